/* rows_text.c - terms of a row program as expressions and variables of a target. */
#include <math.h>
#include <string.h>

#include "codegen/rows_text.h"

enum { LONG_EXPRESSION = 72, PRECEDENCE_LEAF = 14 };

const Term *rows_term(const RowPrinter *p, TermId id)
{
    return &p->program->terms.at[id];
}

int64_t rows_columns(const RowProgram *program)
{
    return rows_extent(program, program->rows, program->axes);
}

bool rows_has_columns(const RowProgram *program)
{
    return program->rows < program->axes;
}

/* ---- indices ---- */

/* Axes [begin, end) of a run of rows counted by `var`: the offset of an argument, 0 terms left out.
 */
static void put_offset(Str *str, const RowProgram *program, const RowArg *arg, int begin, int end,
                       const char *var)
{
    if (begin == end)
        return;
    int64_t unit = arg->stride[end - 1], expect = unit;
    bool dense = true;
    for (int a = end - 1; a >= begin; a--) {
        dense = dense && (arg->stride[a] == expect || program->axis[a].extent == 1);
        expect *= program->axis[a].extent;
    }
    for (int a = dense ? end - 1 : begin; a < end; a++) {
        int64_t stride = arg->stride[a];
        const char *index = dense ? var : program->axis[a].name;
        if (stride == 0 || (!dense && program->axis[a].extent == 1))
            continue;
        const char *plus = str->n ? " + " : "";
        if (stride == 1)
            str_putf(str, "%s%s", plus, index);
        else if (stride == rows_columns(program) && rows_has_columns(program))
            str_putf(str, "%s(long)%s * COLUMNS", plus, index);
        else
            str_putf(str, "%s(long)%s * %lld", plus, index, (long long)stride);
    }
}

const char *text_row_offset(const RowPrinter *p, const RowArg *arg)
{
    Str str = str_new(p->arena);
    put_offset(&str, p->program, arg, 0, p->program->outer, "row");
    put_offset(&str, p->program, arg, p->program->outer, p->program->rows, "j");
    return str.n ? str.at : NULL;
}

/* ---- expressions ---- */

static const char *word_of(const Target *target, const char *name, size_t n);

const char *text_number(Arena *arena, const Target *target, double x)
{
    if (isinf(x))
        return arena_printf(arena, "%s%s", x < 0 ? "-" : "", word_of(target, "inf", 3));
    char *text = arena_printf(arena, "%.9g", x);
    return arena_printf(arena, strpbrk(text, ".e") ? "%sf" : "%s.0f", text);
}

const char *text_fill(Arena *arena, const char *format, const char *x)
{
    const char *hole = strstr(format, "%s");
    return arena_printf(arena, "%.*s%s%s", (int)(hole - format), format, x, hole + 2);
}

static const char *element(const RowPrinter *p, const RowArg *arg, const char *index)
{
    char *text = index ? arena_printf(p->arena, "%s[%s]", arg->name, index)
                       : arena_printf(p->arena, "*%s", arg->name);
    return text;
}

static const char *column_element(const RowPrinter *p, const RowArg *arg, const char *column)
{
    const RowProgram *program = p->program;
    int64_t stride = arg->stride[program->rows];
    if (program->axes - program->rows > 1) {
        Str str = str_new(p->arena);
        put_offset(&str, program, arg, program->rows, program->axes, column);
        column = str.n ? str.at : "0";
    } else if (stride != 1)
        column = arena_printf(p->arena, strchr(column, ' ') ? "(%s) * %lldL" : "%s * %lldL", column,
                              (long long)stride);
    bool own = (arg->rows && text_row_offset(p, arg)) || p->shift;
    return arena_printf(p->arena, "%s%s[%s]", arg->name, own ? "_row" : "", column);
}

const char *text_element_at(const RowPrinter *p, const RowArg *arg, const char *column,
                            int64_t offset)
{
    char *text = arena_strdup(p->arena, arg->columns ? column_element(p, arg, column)
                                                     : element(p, arg, text_row_offset(p, arg)));
    if (offset == 0)
        return text;
    if (*text == '*')
        return arena_printf(p->arena, "%s[%lld]", arg->name, (long long)offset);
    text[strlen(text) - 1] = '\0';
    return arena_printf(p->arena, "%s + %lld]", text, (long long)offset);
}

const char *text_element(const RowPrinter *p, const RowArg *arg, const char *column)
{
    return text_element_at(p, arg, column, 0);
}

const char *text_loaded(const RowPrinter *p, const RowArg *arg, const char *text)
{
    return text_fill(p->arena, p->target->load[arg->dtype], text);
}

/* The argument that holds the term since an earlier pass, or NULL: memory in the first-level cache
 * is cheaper than computing it again. Only where memory keeps every bit. */
static const RowArg *stored_before(const RowPrinter *p, TermId id)
{
    const Term *term = rows_term(p, id);
    if (term->level != LEVEL_COLUMN || term->depth >= p->pass || term->kind == TERM_LOAD)
        return NULL;
    for (int i = 0; i < p->program->args.n; i++) {
        const RowArg *arg = &p->program->args.at[i];
        if (arg->out && !arg->add && arg->stored == id && arg->dtype == DT_F32)
            return arg;
    }
    return NULL;
}

/* What a term means in this column: lanes decide pairs, padding and turned columns. */
void resolve_term(const RowPrinter *p, TermId *id, int *lane)
{
    for (;;) {
        const Term *term = rows_term(p, *id);
        if (term->level != LEVEL_COLUMN) {
            *lane = 0;
            return;
        }
        if (p->name[*lane][*id] || stored_before(p, *id))
            return;
        const Lane *at = &p->lane[*lane];
        if (term->kind == TERM_PAIR) {
            *id = term->of[0];
            *lane = 1 - *lane;
        } else if (term->kind == TERM_TURNED) {
            *id = term->of[at->turn == LANE_FIRST ? 0 : at->turn == LANE_SECOND ? 1 : 2];
        } else if (term->kind == TERM_VALID) {
            *id = term->of[at->valid ? 0 : 1];
        } else {
            return;
        }
    }
}

static const char *word_of(const Target *target, const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof target->words / sizeof *target->words && target->words[i].name;
         i++) {
        if (strlen(target->words[i].name) == n && memcmp(target->words[i].name, name, n) == 0)
            return target->words[i].spelled;
    }
    BUG("target %s has no word for %.*s", target->name, (int)n, name);
}

const char *text_word(const Target *target, const char *name)
{
    return word_of(target, name, strlen(name));
}

static char *operand_text(RowPrinter *p, const Term *term, int k, int lane);

static char *pattern_text(RowPrinter *p, const Term *term, int lane)
{
    Str out = str_new(p->arena);
    for (const char *c = term_info[term->kind].text; *c; c++) {
        if (*c == '%') {
            str_put(&out, operand_text(p, term, *++c - '1', lane));
        } else if (*c == '@') {
            size_t n = strcspn(++c, "(");
            str_put(&out, word_of(p->target, c, n));
            c += n - 1;
        } else {
            str_putc(&out, *c);
        }
    }
    return out.at;
}

/* A sum over rows sees the columns in tiles. */
static const char *column_text(const RowPrinter *p, int lane)
{
    const char *column = p->lane[lane].column;
    return p->shift ? arena_printf(p->arena, "(%s + %s)", p->shift, column) : column;
}

static const char *leaf_text(RowPrinter *p, TermId id, int lane)
{
    const Term *term = rows_term(p, id);
    const RowArg *arg = NULL;
    switch (term->kind) {
    case TERM_CONST:
        return text_number(p->arena, p->target, term->number);
    case TERM_LOAD:
        arg = &p->program->args.at[term->ref];
        return text_loaded(p, arg,
                           text_element_at(p, arg, p->lane[lane].column, (int64_t)term->number));
    case TERM_BASE:
        return p->program->bases.at[term->ref].name;
    case TERM_WHOLE:
        return arena_printf(p->arena, "%lldL", (long long)term->number);
    case TERM_INDEX:
        return column_text(p, lane);
    case TERM_PART: {
        const char *axis = term->ref >= p->program->rows ? column_text(p, lane)
                           : p->program->totals          ? "row"
                                                         : p->program->axis[term->ref].name;
        if (term->number > 1)
            axis = arena_printf(p->arena, "%s / %lld", axis, (long long)term->number);
        if (term->extent)
            axis = arena_printf(p->arena, "%s %% %lld", axis, (long long)term->extent);
        return strchr(axis, ' ') ? arena_printf(p->arena, "(%s)", axis) : axis;
    }
    case TERM_PLACE:
        return p->program->axis[term->ref].name;
    case TERM_AT: {
        arg = &p->program->args.at[term->ref];
        const char *index = print_expression(p, term->of[0], 0);
        const char *value = text_loaded(p, arg, column_element(p, arg, index));
        return arena_printf(p->arena, "(%s >= 0 && %s < COLUMNS ? %s : 0.0f)", index, index, value);
    }
    case TERM_COS:
    case TERM_SIN: {
        const char *text = term->kind == TERM_COS ? p->target->cosine : p->target->sine;
        double gain = p->program->turn.gain;
        if (p->target->turn_tables || gain == 1)
            return text;
        return arena_printf(p->arena, "(%s * %s)", text_number(p->arena, p->target, gain), text);
    }
    default:
        BUG("term %d has no text", (int)term->kind);
    }
}

static int precedence_of(const RowPrinter *p, TermId id, int lane)
{
    resolve_term(p, &id, &lane);
    const Term *term = rows_term(p, id);
    if (p->name[lane][id] || stored_before(p, id))
        return PRECEDENCE_LEAF;
    if (term->kind == TERM_CONST && term->number < 0)
        return 13;
    return term_info[term->kind].precedence;
}

static char *operand_text(RowPrinter *p, const Term *term, int k, int lane)
{
    const TermInfo *info = &term_info[term->kind];
    char *text = print_expression(p, term->of[k], lane);
    if (info->precedence == PRECEDENCE_LEAF)
        return text; /* a call's argument */
    int inner = precedence_of(p, term->of[k], lane);
    /* Sums and products are not reassociated: the text evaluates in the order of the terms. */
    bool wraps = inner < info->precedence || (inner == info->precedence && k > 0) ||
                 (info->precedence < 11 && inner < 11);
    return wraps ? arena_printf(p->arena, "(%s)", text) : text;
}

char *print_expression(RowPrinter *p, TermId id, int lane)
{
    resolve_term(p, &id, &lane);
    if (p->name[lane][id])
        return (char *)p->name[lane][id];
    const RowArg *before = stored_before(p, id);
    if (before)
        return (char *)column_element(p, before, p->lane[lane].column);
    const Term *term = rows_term(p, id);
    return term_info[term->kind].text ? pattern_text(p, term, lane)
                                      : (char *)leaf_text(p, id, lane);
}

/* ---- variables ---- */

static const char *type_text(const Term *term)
{
    return term->type == TYPE_INT ? "long" : term->type == TYPE_BOOL ? "bool" : "float";
}

void print_term(RowPrinter *p, TermId id, int lane)
{
    const Term *term = rows_term(p, id);
    const char *text = print_expression(p, id, lane);
    const char *wanted = term->name;
    if (!wanted && (term->kind == TERM_LOAD || term->kind == TERM_AT))
        wanted = arena_printf(p->arena, "%s_i", p->program->args.at[term->ref].name);
    const char *name = names_take(&p->names, wanted ? wanted : "t");
    emit_line(p->emit, "const %s %s = %s;", type_text(term), name, text);
    p->name[lane][id] = name;
}

bool term_is_free(const RowPrinter *p, TermId id)
{
    TermKind kind = rows_term(p, id)->kind;
    return kind == TERM_CONST || kind == TERM_WHOLE || kind == TERM_BASE || kind == TERM_INDEX ||
           kind == TERM_PLACE || kind == TERM_PART;
}

static void count_uses(RowPrinter *p, TermId id, int lane)
{
    resolve_term(p, &id, &lane);
    if (p->uses[lane][id]++ || p->name[lane][id] || stored_before(p, id))
        return;
    const Term *term = rows_term(p, id);
    if (term->level < LEVEL_COLUMN)
        return;
    for (int k = 0; k < 3 && term->of[k] != NONE; k++)
        count_uses(p, term->of[k], lane);
}

/* Names what is used twice, and long parts of expressions, operands first. */
static void name_shared(RowPrinter *p, TermId id, int lane, bool root)
{
    resolve_term(p, &id, &lane);
    const Term *term = rows_term(p, id);
    if (p->name[lane][id] || stored_before(p, id) || term->level < LEVEL_COLUMN)
        return;
    for (int k = 0; k < 3 && term->of[k] != NONE; k++)
        name_shared(p, term->of[k], lane, false);
    bool shared = p->uses[lane][id] > 1 && !term_is_free(p, id) && term->kind != TERM_LOAD &&
                  term->kind != TERM_COS && term->kind != TERM_SIN;
    bool bulky = !root && strlen(print_expression(p, id, lane)) > LONG_EXPRESSION;
    if (shared || bulky)
        print_term(p, id, lane);
}

void print_shared(RowPrinter *p, const TermId *terms, int n)
{
    for (int lane = 0; lane < p->lanes; lane++) {
        for (int i = 0; i < n; i++)
            count_uses(p, terms[i], lane);
    }
    for (int lane = 0; lane < p->lanes; lane++) {
        for (int i = 0; i < n; i++)
            name_shared(p, terms[i], lane, true);
    }
}

void print_lanes(RowPrinter *p, int lanes, Lane first, Lane second)
{
    p->lanes = lanes;
    p->lane[0] = first;
    p->lane[1] = second;
    for (TermId id = 0; id < p->program->terms.n; id++) {
        if (rows_term(p, id)->level != LEVEL_COLUMN)
            continue;
        for (int l = 0; l < 2; l++) {
            p->name[l][id] = NULL;
            p->uses[l][id] = 0;
        }
    }
}
