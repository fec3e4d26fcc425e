/* rows_print.c - a row program as text of a target. */
#include <math.h>
#include <string.h>

#include "codegen/target.h"

enum { LONG_EXPRESSION = 72, PRECEDENCE_LEAF = 14 };

static const Term *term_at_id(const RowPrinter *p, TermId id)
{
    return &p->program->terms.at[id];
}

static int64_t column_count(const RowProgram *program)
{
    return rows_extent(program, program->rows, program->axes);
}

static bool has_columns(const RowProgram *program)
{
    return program->rows < program->axes;
}

/* ---- indices ------------------------------------------------------------------------------------- */

/* Axes [begin, end) of a run of rows counted by `var`: the offset of an argument, 0 terms left out. */
static void put_offset(Str *str, const RowProgram *program, const RowArg *arg, int begin, int end, const char *var)
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
        else if (stride == column_count(program) && has_columns(program))
            str_putf(str, "%s(long)%s * COLUMNS", plus, index);
        else
            str_putf(str, "%s(long)%s * %lld", plus, index, (long long)stride);
    }
}

static const char *row_offset(const RowPrinter *p, const RowArg *arg)
{
    Str str = str_new(p->arena);
    put_offset(&str, p->program, arg, 0, p->program->outer, "row");
    put_offset(&str, p->program, arg, p->program->outer, p->program->rows, "j");
    return str.n ? str.at : NULL;
}

/* Is the axis's own index needed, besides that of the whole run of rows? */
static bool axis_needed(const RowProgram *program, int axis)
{
    if (program->turns && axis == program->turn.axis)
        return true;
    bool outer = axis < program->outer;
    int begin = outer ? 0 : program->outer, end = outer ? program->outer : program->rows;
    if (end - begin == 1)
        return false;
    for (int i = 0; i < program->args.n; i++) {
        const RowArg *arg = &program->args.at[i];
        int64_t expect = arg->stride[end - 1];
        for (int a = end - 1; a >= begin; a--) {
            if (arg->stride[a] != expect && program->axis[a].extent != 1)
                return program->axis[axis].extent != 1;
            expect *= program->axis[a].extent;
        }
    }
    return false;
}

static void print_axis_indices(RowPrinter *p, int begin, int end, const char *var)
{
    const RowProgram *program = p->program;
    for (int a = begin; a < end; a++) {
        if (!axis_needed(program, a))
            continue;
        int64_t below = rows_extent(program, a + 1, end);
        Str text = str_new(p->arena);
        str_put(&text, var);
        if (below > 1)
            str_putf(&text, " / %lld", (long long)below);
        if (a > begin)
            str_putf(&text, " %% %lld", (long long)program->axis[a].extent);
        emit_line(p->emit, "const int %s = %s;", program->axis[a].name, text.at);
    }
}

/* ---- expressions --------------------------------------------------------------------------------- */

static const char *word_of(const Target *target, const char *name, size_t n);

static const char *number_text(Arena *arena, const Target *target, double x)
{
    if (isinf(x))
        return arena_printf(arena, "%s%s", x < 0 ? "-" : "", word_of(target, "inf", 3));
    char *text = arena_printf(arena, "%.9g", x);
    return arena_printf(arena, strpbrk(text, ".e") ? "%sf" : "%s.0f", text);
}

static const char *wrap(Arena *arena, const char *format, const char *x)
{
    const char *hole = strstr(format, "%s");
    return arena_printf(arena, "%.*s%s%s", (int)(hole - format), format, x, hole + 2);
}

static const char *element(const RowPrinter *p, const RowArg *arg, const char *index)
{
    char *text = index ? arena_printf(p->arena, "%s[%s]", arg->name, index) : arena_printf(p->arena, "*%s", arg->name);
    return text;
}

static const char *column_element(const RowPrinter *p, const RowArg *arg, const char *column)
{
    int64_t stride = arg->stride[p->program->rows];
    if (stride != 1)
        column = arena_printf(p->arena, strchr(column, ' ') ? "(%s) * %lldL" : "%s * %lldL", column, (long long)stride);
    bool own = (arg->rows && row_offset(p, arg)) || p->shift;
    return arena_printf(p->arena, "%s%s[%s]", arg->name, own ? "_row" : "", column);
}

static const char *argument_element(const RowPrinter *p, const RowArg *arg, const char *column)
{
    return arg->columns ? column_element(p, arg, column) : element(p, arg, row_offset(p, arg));
}

char *print_flat_element(RowPrinter *p, const RowArg *arg, const char *index)
{
    return arena_printf(p->arena, "%s[%s]", arg->name, index);
}

static const char *loaded(const RowPrinter *p, const RowArg *arg, const char *text)
{
    return wrap(p->arena, p->target->load[arg->dtype], text);
}

/* The argument that holds the term since an earlier pass, or NULL: memory in the first-level cache is cheaper than
 * computing it again. Only where memory keeps every bit. */
static const RowArg *stored_before(const RowPrinter *p, TermId id)
{
    const Term *term = term_at_id(p, id);
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
static void resolve(const RowPrinter *p, TermId *id, int *lane)
{
    for (;;) {
        const Term *term = term_at_id(p, *id);
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
    for (size_t i = 0; i < sizeof target->words / sizeof *target->words && target->words[i].name; i++) {
        if (strlen(target->words[i].name) == n && memcmp(target->words[i].name, name, n) == 0)
            return target->words[i].spelled;
    }
    BUG("target %s has no word for %.*s", target->name, (int)n, name);
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

static const char *leaf_text(RowPrinter *p, TermId id, int lane)
{
    const Term *term = term_at_id(p, id);
    const RowArg *arg = NULL;
    switch (term->kind) {
    case TERM_CONST:
        return number_text(p->arena, p->target, term->number);
    case TERM_LOAD:
        arg = &p->program->args.at[term->ref];
        return loaded(p, arg, argument_element(p, arg, p->lane[lane].column));
    case TERM_BASE:
        return p->program->bases.at[term->ref].name;
    case TERM_INDEX:
        return p->lane[lane].column;
    case TERM_AT: {
        arg = &p->program->args.at[term->ref];
        const char *index = print_expression(p, term->of[0], 0);
        const char *value = loaded(p, arg, column_element(p, arg, index));
        return arena_printf(p->arena, "(%s >= 0 && %s < COLUMNS ? %s : 0.0f)", index, index, value);
    }
    case TERM_COS:
        return p->target->cosine;
    case TERM_SIN:
        return p->target->sine;
    default:
        BUG("term %d has no text", (int)term->kind);
    }
}

static int precedence_of(const RowPrinter *p, TermId id, int lane)
{
    resolve(p, &id, &lane);
    const Term *term = term_at_id(p, id);
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
    resolve(p, &id, &lane);
    if (p->name[lane][id])
        return (char *)p->name[lane][id];
    const RowArg *before = stored_before(p, id);
    if (before)
        return (char *)column_element(p, before, p->lane[lane].column);
    const Term *term = term_at_id(p, id);
    return term_info[term->kind].text ? pattern_text(p, term, lane) : (char *)leaf_text(p, id, lane);
}

/* ---- variables ----------------------------------------------------------------------------------- */

static const char *type_text(const Term *term)
{
    return term->type == TYPE_INT ? "long" : term->type == TYPE_BOOL ? "bool" : "float";
}

static void name_term(RowPrinter *p, TermId id, int lane)
{
    const Term *term = term_at_id(p, id);
    const char *text = print_expression(p, id, lane);
    const char *wanted = term->name;
    if (!wanted && (term->kind == TERM_LOAD || term->kind == TERM_AT))
        wanted = arena_printf(p->arena, "%s_i", p->program->args.at[term->ref].name);
    const char *name = names_take(&p->names, wanted ? wanted : "t");
    emit_line(p->emit, "const %s %s = %s;", type_text(term), name, text);
    p->name[lane][id] = name;
}

static bool costs_nothing(const RowPrinter *p, TermId id)
{
    TermKind kind = term_at_id(p, id)->kind;
    return kind == TERM_CONST || kind == TERM_BASE || kind == TERM_INDEX;
}

static void count_uses(RowPrinter *p, TermId id, int lane)
{
    resolve(p, &id, &lane);
    if (p->uses[lane][id]++ || p->name[lane][id] || stored_before(p, id))
        return;
    const Term *term = term_at_id(p, id);
    if (term->level < LEVEL_COLUMN)
        return;
    for (int k = 0; k < 3 && term->of[k] != NONE; k++)
        count_uses(p, term->of[k], lane);
}

/* Names what is used twice, and long parts of expressions, operands first. */
static void name_shared(RowPrinter *p, TermId id, int lane, bool root)
{
    resolve(p, &id, &lane);
    const Term *term = term_at_id(p, id);
    if (p->name[lane][id] || stored_before(p, id) || term->level < LEVEL_COLUMN)
        return;
    for (int k = 0; k < 3 && term->of[k] != NONE; k++)
        name_shared(p, term->of[k], lane, false);
    bool shared = p->uses[lane][id] > 1 && !costs_nothing(p, id) && term->kind != TERM_LOAD && term->kind != TERM_COS &&
                  term->kind != TERM_SIN;
    bool bulky = !root && strlen(print_expression(p, id, lane)) > LONG_EXPRESSION;
    if (shared || bulky)
        name_term(p, id, lane);
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
        if (term_at_id(p, id)->level != LEVEL_COLUMN)
            continue;
        for (int l = 0; l < 2; l++) {
            p->name[l][id] = NULL;
            p->uses[l][id] = 0;
        }
    }
}

/* ---- rows ---------------------------------------------------------------------------------------- */

size_t print_row_begin(RowPrinter *p)
{
    return p->emit->text.n;
}

void print_row_end(RowPrinter *p, size_t begin)
{
    char *body = arena_strdup(p->arena, p->emit->text.at + begin);
    p->emit->text.n = begin;
    for (int i = 0; i < p->program->args.n; i++) {
        const RowArg *arg = &p->program->args.at[i];
        const char *offset = row_offset(p, arg);
        if (!arg->columns || (!offset && !p->shift) || !strstr(body, arena_printf(p->arena, "%s_row[", arg->name)))
            continue;
        emit_line(p->emit, "%s%s *%s %s_row = %s%s%s%s%s;", arg->out ? "" : "const ", p->target->element[arg->dtype],
                  p->target->restrict_, arg->name, arg->name, offset ? " + " : "", offset ? offset : "",
                  p->shift ? " + " : "", p->shift ? p->shift : "");
    }
    emit_text(p->emit, body);
}

static bool reads_directly(const RowPrinter *p, TermId reader, TermId id)
{
    const Term *term = term_at_id(p, reader);
    return term->of[0] == id || term->of[1] == id || term->of[2] == id;
}

/* A row number is a variable when columns read it, or two row numbers do. */
static bool row_term_needs_name(const RowPrinter *p, TermId id)
{
    const Term *term = term_at_id(p, id);
    if (term->level > LEVEL_ROW || costs_nothing(p, id))
        return false;
    int rows = 0;
    for (TermId reader = 0; reader < p->program->terms.n; reader++) {
        const Term *by = term_at_id(p, reader);
        if (!reads_directly(p, reader, id))
            continue;
        if (by->level == LEVEL_COLUMN || by->kind == TERM_AT)
            return true;
        rows++;
    }
    for (int i = 0; i < p->program->args.n; i++)
        rows += p->program->args.at[i].out && p->program->args.at[i].stored == id;
    return rows > 1;
}

void print_row_terms(RowPrinter *p, int pass)
{
    for (TermId id = 0; id < p->program->terms.n; id++) {
        const Term *term = term_at_id(p, id);
        if (term->depth == pass && !p->name[0][id] && term->kind != TERM_SUM && term->kind != TERM_MAX &&
            row_term_needs_name(p, id))
            name_term(p, id, 0);
    }
}

static void mark_columns(const RowPrinter *p, TermId id, bool *ret_reads)
{
    const Term *term = term_at_id(p, id);
    ret_reads[id] = true;
    if (term->level < LEVEL_COLUMN)
        return;
    for (int k = 0; k < 3 && term->of[k] != NONE; k++)
        mark_columns(p, term->of[k], ret_reads);
}

int print_row_needs(const RowPrinter *p, TermId *ret_terms, int cap)
{
    bool *reads = ARENA_ARRAY(p->arena, bool, p->program->terms.n);
    for (int i = 0; i < p->program->args.n; i++) {
        if (p->program->args.at[i].out)
            mark_columns(p, term_at_id(p, p->program->args.at[i].stored)->of[0], reads);
    }
    int n = 0;
    for (TermId id = 0; id < p->program->terms.n; id++) {
        const Term *term = term_at_id(p, id);
        if (reads[id] && term->level == LEVEL_ROW && term->depth && n < cap)
            ret_terms[n++] = id;
    }
    return n;
}

/* What one pass over the columns does. */
typedef struct Pass {
    int n;
    TermId term[MAX_OPERANDS];  /* values at the column */
    TermId total[MAX_OPERANDS]; /* the reduction it feeds, or NONE */
    const RowArg *arg[MAX_OPERANDS]; /* the output it is stored to, or NULL */
} Pass;

static Pass collect_pass(const RowPrinter *p, int depth)
{
    Pass pass = {0};
    const RowProgram *program = p->program;
    for (TermId id = 0; id < program->terms.n; id++) {
        const Term *term = term_at_id(p, id);
        if ((term->kind != TERM_SUM && term->kind != TERM_MAX) || term->depth != depth + 1)
            continue;
        pass.term[pass.n] = term->of[0];
        pass.total[pass.n++] = id;
    }
    for (int i = 0; i < program->args.n; i++) {
        const RowArg *arg = &program->args.at[i];
        if (!arg->out || !arg->columns || term_at_id(p, arg->stored)->depth != depth)
            continue;
        if (term_at_id(p, arg->stored)->level == LEVEL_TOTAL)
            continue;
        pass.term[pass.n] = arg->stored;
        pass.total[pass.n] = NONE;
        pass.arg[pass.n++] = arg;
    }
    return pass;
}

static void print_store(RowPrinter *p, const RowArg *arg, const char *place, const char *value)
{
    if (arg->add) {
        const char *old = loaded(p, arg, place);
        value = arena_printf(p->arena, "(first ? 0.0f : %s) + %s", old, value);
    }
    emit_line(p->emit, "%s", wrap(p->arena, wrap(p->arena, p->target->assign[arg->dtype], place), value));
}

static void print_pass_lane(RowPrinter *p, const Pass *pass, int lane)
{
    for (int i = 0; i < pass->n; i++) {
        char *value = print_expression(p, pass->term[i], lane);
        if (pass->total[i] == NONE) {
            print_store(p, pass->arg[i], argument_element(p, pass->arg[i], p->lane[lane].column), value);
            continue;
        }
        const char *total = p->name[0][pass->total[i]];
        if (term_at_id(p, pass->total[i])->kind == TERM_SUM) {
            emit_line(p->emit, "%s += %s;", total, value);
        } else {
            if (strchr(value, ' ') || strchr(value, '(')) {
                const char *name = names_take(&p->names, "candidate");
                emit_line(p->emit, "const float %s = %s;", name, value);
                value = (char *)name;
            }
            emit_line(p->emit, "%s = %s > %s ? %s : %s;", total, value, total, value, total);
        }
    }
}

static void print_simd(RowPrinter *p, const Pass *pass)
{
    if (!p->target->simd)
        return;
    Str sums = str_new(p->arena), maxima = str_new(p->arena);
    for (int i = 0; i < pass->n; i++) {
        if (pass->total[i] == NONE)
            continue;
        Str *list = term_at_id(p, pass->total[i])->kind == TERM_SUM ? &sums : &maxima;
        str_putf(list, "%s%s", list->n ? ", " : "", p->name[0][pass->total[i]]);
    }
    Str text = str_new(p->arena);
    str_put(&text, p->target->simd);
    if (sums.n)
        str_putf(&text, " reduction(+ : %s)", sums.at);
    if (maxima.n)
        str_putf(&text, " reduction(max : %s)", maxima.at);
    emit_directive(p->emit, "%s", text.at);
}

/* Nothing to do in columns where every sum adds 0 and every maximum sees -inf. */
static bool pass_is_idle(RowPrinter *p, const Pass *pass)
{
    for (int i = 0; i < pass->n; i++) {
        TermId id = pass->term[i];
        int lane = 0;
        resolve(p, &id, &lane);
        const Term *term = term_at_id(p, id);
        if (pass->total[i] == NONE || term->kind != TERM_CONST || (term->number != 0 && !isinf(term->number)))
            return false;
    }
    return true;
}

static void print_column_loop(RowPrinter *p, const Pass *pass, const char *begin, const char *end)
{
    if (pass_is_idle(p, pass))
        return;
    Names outside = p->names;
    print_simd(p, pass);
    const char *head = arena_printf(p->arena, "%s", p->target->columns);
    head = wrap(p->arena, wrap(p->arena, head, begin), end);
    const char *zero = strstr(head, "0 + ");
    if (zero)
        head = arena_printf(p->arena, "%.*s%s", (int)(zero - head), head, zero + strlen("0 + "));
    emit_open(p->emit, "%s", head);
    print_shared(p, pass->term, pass->n);
    for (int lane = 0; lane < p->lanes; lane++)
        print_pass_lane(p, pass, lane);
    emit_close_slim(p->emit);
    p->names.taken.n = outside.taken.n;
}

static void print_columns(RowPrinter *p, const Pass *pass)
{
    const RowProgram *program = p->program;
    Lane plain = {.column = "i", .valid = true}, none = {0};
    if (program->turns) {
        const RowTurn *turn = &program->turn;
        const char *half = arena_printf(p->arena, "%lld", (long long)turn->turned / 2);
        Lane first = {"i", LANE_FIRST, true}, second = {arena_printf(p->arena, "i + %s", half), LANE_SECOND, true};
        if (turn->interleaved) {
            first.column = "2 * i";
            second.column = "2 * i + 1";
        }
        print_lanes(p, 2, first, second);
        print_column_loop(p, pass, "0", half);
        if (turn->turned < column_count(program)) {
            plain.turn = LANE_STILL;
            print_lanes(p, 1, plain, none);
            print_column_loop(p, pass, arena_printf(p->arena, "%lld", (long long)turn->turned), "COLUMNS");
        }
        return;
    }
    print_lanes(p, 1, plain, none);
    print_column_loop(p, pass, "0", program->padded ? "used" : "COLUMNS");
    if (!program->padded)
        return;
    plain.valid = false;
    print_lanes(p, 1, plain, none);
    print_column_loop(p, pass, "used", "COLUMNS");
}

static void open_totals(RowPrinter *p, const Pass *pass)
{
    for (int i = 0; i < pass->n; i++) {
        if (pass->total[i] == NONE)
            continue;
        const Term *term = term_at_id(p, pass->total[i]);
        bool sum = term->kind == TERM_SUM;
        const char *name = names_take(&p->names, term->name ? term->name : sum ? "total" : "largest");
        emit_line(p->emit, "float %s = %s;", name, number_text(p->arena, p->target, sum ? 0.0 : -HUGE_VAL));
        p->name[0][pass->total[i]] = name;
    }
}

static void close_totals(RowPrinter *p, const Pass *pass)
{
    for (int i = 0; i < pass->n; i++) {
        if (pass->total[i] == NONE)
            continue;
        bool sum = term_at_id(p, pass->total[i])->kind == TERM_SUM;
        const char *text = sum ? p->target->sum : p->target->max, *name = p->name[0][pass->total[i]];
        if (text)
            emit_line(p->emit, "%s", wrap(p->arena, wrap(p->arena, text, name), name));
    }
}

void print_passes(RowPrinter *p, bool totals)
{
    int last = p->program->depth;
    for (p->pass = 0; p->pass <= last; p->pass++) {
        print_row_terms(p, p->pass);
        Pass pass = collect_pass(p, p->pass);
        if (pass.n == 0 || (totals && p->pass == last))
            continue;
        open_totals(p, &pass);
        print_columns(p, &pass);
        close_totals(p, &pass);
    }
    p->pass = last;
    print_row_terms(p, last);
}

/* Stores of one number a row (or of the only one). */
static void print_row_stores(RowPrinter *p)
{
    for (int i = 0; i < p->program->args.n; i++) {
        const RowArg *arg = &p->program->args.at[i];
        if (!arg->out || arg->columns)
            continue;
        if (p->target->once) {
            emit_line(p->emit, "%s", p->target->once);
            p->emit->depth++;
        }
        print_store(p, arg, argument_element(p, arg, NULL), print_expression(p, arg->stored, 0));
        if (p->target->once)
            p->emit->depth--;
    }
}

static void print_turn_tables(RowPrinter *p)
{
    const RowTurn *turn = &p->program->turn;
    long long half = (long long)turn->turned / 2;
    const char *base = p->program->bases.at[turn->base].name, *axis = p->program->axis[turn->axis].name;
    if (!p->target->turn_tables) {
        emit_line(p->emit, "const float position = (float)(%s + %s);", base, axis);
        return;
    }
    emit_line(p->emit, "float cosine[%lld], sine[%lld];", half, half);
    emit_open(p->emit, "for (int i = 0; i < %lld; i++)", half);
    emit_line(p->emit, "const double angle = (double)(%s + %s) * frequency[i];", base, axis);
    emit_line(p->emit, "cosine[i] = (float)cos(angle);");
    emit_line(p->emit, "sine[i] = (float)sin(angle);");
    emit_close(p->emit, "");
}

void print_row_body(RowPrinter *p)
{
    const RowProgram *program = p->program;
    print_axis_indices(p, 0, program->outer, "row");
    if (program->turns)
        print_turn_tables(p);
    bool inner = program->outer < program->rows;
    if (inner) {
        emit_open(p->emit, "for (int j = 0; j < %lld; j++)", (long long)rows_extent(program, program->outer, program->rows));
        print_axis_indices(p, program->outer, program->rows, "j");
    }
    size_t begin = print_row_begin(p);
    print_passes(p, false);
    print_row_stores(p);
    print_row_end(p, begin);
    if (inner)
        emit_close(p->emit, "");
}

/* ---- the kernel ---------------------------------------------------------------------------------- */

static void print_head(RowPrinter *p, const char *name)
{
    Str list = str_new(p->arena);
    for (int i = 0; i < p->program->args.n; i++) {
        const RowArg *arg = &p->program->args.at[i];
        str_putf(&list, "%s%s%s *%s %s", list.n ? ", " : "", arg->out ? "" : "const ", p->target->element[arg->dtype],
                 p->target->restrict_, arg->name);
    }
    for (int i = 0; i < p->program->bases.n; i++)
        str_putf(&list, "%slong %s", list.n ? ", " : "", p->program->bases.at[i].name);
    if (p->program->adds)
        str_putf(&list, ", %s first", p->target->flag);
    emit_open_function(p->emit, "%s %s(%s)", p->target->head, name, list.at);
}

static void print_constants(RowPrinter *p)
{
    const RowProgram *program = p->program;
    Str text = str_new(p->arena);
    if (program->rows)
        str_putf(&text, "ROWS = %lld", (long long)rows_extent(program, 0, program->outer));
    if (has_columns(program))
        str_putf(&text, "%sCOLUMNS = %lld", text.n ? ", " : "", (long long)column_count(program));
    if (text.n)
        emit_line(p->emit, "enum { %s };", text.at);
    bool reduces = false;
    for (int i = 0; i < program->terms.n; i++)
        reduces = reduces || program->terms.at[i].kind == TERM_SUM || program->terms.at[i].kind == TERM_MAX;
    if (p->target->shared && reduces)
        emit_line(p->emit, "%s", p->target->shared);
    if (!program->padded)
        return;
    const char *base = program->bases.at[program->used_base].name;
    emit_line(p->emit, "const long rest = %lld - %s; /* columns beyond are padding */", (long long)program->used, base);
    emit_line(p->emit, "const int used = rest < 0 ? 0 : rest < COLUMNS ? (int)rest : COLUMNS;");
}

static void print_frequencies(RowPrinter *p, const char *name)
{
    if (!p->program->turns)
        return;
    const RowTurn *turn = &p->program->turn;
    Str text = str_new(p->arena);
    for (int64_t i = 0; i < turn->turned / 2; i++)
        str_putf(&text, "%s%.17g", i ? ", " : "", turn->frequency[i]);
    emit_comment(p->emit, "Radians a position, per pair of columns.");
    emit_line(p->emit, "%s %s_frequency[%lld] = {%s};", p->target->table, name, (long long)turn->turned / 2, text.at);
    emit_blank(p->emit);
}

static bool is_flat(const RowProgram *program)
{
    if (program->rows || !has_columns(program))
        return false;
    for (int i = 0; i < program->terms.n; i++) {
        if (program->terms.at[i].depth)
            return false;
    }
    return true;
}

static void print_flat(RowPrinter *p)
{
    Pass pass = collect_pass(p, 0);
    print_row_terms(p, 0);
    p->target->flat_open(p);
    print_lanes(p, 1, (Lane){.column = "i", .valid = true}, (Lane){0});
    print_shared(p, pass.term, pass.n);
    print_pass_lane(p, &pass, 0);
    emit_close_slim(p->emit);
}

char *rows_print(Arena *arena, const RowProgram *program, const Target *target, const char *name)
{
    Emit emit = emit_new(arena);
    RowPrinter p = {.arena = arena, .program = program, .target = target, .emit = &emit, .names = names_new(arena)};
    for (int l = 0; l < 2; l++) {
        p.name[l] = ARENA_ARRAY(arena, const char *, program->terms.n + 1);
        p.uses[l] = ARENA_ARRAY(arena, int, program->terms.n + 1);
    }
    static const char *const reserved[] = {"k", "i", "j", "row", "tile", "begin", "end", "used", "rest", "first", "frequency"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        names_take(&p.names, reserved[i]);
    for (int i = 0; i < program->args.n; i++)
        names_take(&p.names, program->args.at[i].name);
    for (int i = 0; i < program->bases.n; i++)
        names_take(&p.names, program->bases.at[i].name);
    for (int i = 0; i < program->axes; i++)
        names_take(&p.names, program->axis[i].name);
    print_frequencies(&p, name);
    print_head(&p, name);
    print_constants(&p);
    if (program->turns)
        emit_line(&emit, "const %s *frequency = %s_frequency;", strstr(target->table, "double") ? "double" : "float", name);
    if (program->totals) {
        target->totals(&p);
    } else if (is_flat(program) && !program->padded) {
        print_flat(&p);
    } else {
        if (program->rows)
            target->rows_open(&p);
        print_row_body(&p);
        if (program->rows)
            emit_close(&emit, "");
    }
    emit_close(&emit, "");
    return emit.text.at;
}
