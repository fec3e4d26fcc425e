/* rows_print.c - a row program as text of a target: its rows, passes over the columns, and stores.
 */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "codegen/rows_text.h"

/* Declares, in front of what was printed since `mark`, the indices of the axes [begin, end) that it
 * uses. */
static void insert_axis_indices(RowPrinter *p, size_t mark, int begin, int end, const char *var)
{
    const RowProgram *program = p->program;
    char *body = arena_strdup(p->arena, p->emit->text.at + mark);
    p->emit->text.n = mark;
    for (int a = begin; a < end; a++) {
        if (!strstr(body, program->axis[a].name))
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
    emit_text(p->emit, body);
}

/* ---- rows ---- */

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
        const char *offset = text_row_offset(p, arg);
        if (!arg->columns || (!offset && !p->shift) ||
            !strstr(body, arena_printf(p->arena, "%s_row[", arg->name)))
            continue;
        emit_line(p->emit, "%s%s *%s %s_row = %s%s%s%s%s;", arg->out ? "" : "const ",
                  p->target->element[arg->dtype], p->target->restrict_, arg->name, arg->name,
                  offset ? " + " : "", offset ? offset : "", p->shift ? " + " : "",
                  p->shift ? p->shift : "");
    }
    emit_text(p->emit, body);
}

static bool reads_directly(const RowPrinter *p, TermId reader, TermId id)
{
    const Term *term = rows_term(p, reader);
    return term->of[0] == id || term->of[1] == id || term->of[2] == id;
}

/* A row number is a variable when columns read it, or two row numbers do. */
static bool row_term_needs_name(const RowPrinter *p, TermId id)
{
    const Term *term = rows_term(p, id);
    if (term->level > LEVEL_ROW || term_is_free(p, id))
        return false;
    int rows = 0;
    for (TermId reader = 0; reader < p->program->terms.n; reader++) {
        const Term *by = rows_term(p, reader);
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
        const Term *term = rows_term(p, id);
        if (term->depth == pass && !p->name[0][id] && term->kind != TERM_SUM &&
            term->kind != TERM_MAX && row_term_needs_name(p, id))
            print_term(p, id, 0);
    }
}

static void mark_columns(const RowPrinter *p, TermId id, bool *ret_reads)
{
    const Term *term = rows_term(p, id);
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
            mark_columns(p, rows_term(p, p->program->args.at[i].stored)->of[0], reads);
    }
    int n = 0;
    for (TermId id = 0; id < p->program->terms.n; id++) {
        const Term *term = rows_term(p, id);
        if (reads[id] && term->level == LEVEL_ROW && term->depth && n < cap)
            ret_terms[n++] = id;
    }
    return n;
}

/* What one pass over the columns does. */
typedef struct Pass {
    int n;
    TermId term[MAX_OPERANDS];       /* values at the column */
    TermId total[MAX_OPERANDS];      /* the reduction it feeds, or NONE */
    const RowArg *arg[MAX_OPERANDS]; /* the output it is stored to, or NULL */
} Pass;

static Pass collect_pass(const RowPrinter *p, int depth)
{
    Pass pass = {0};
    const RowProgram *program = p->program;
    for (TermId id = 0; id < program->terms.n; id++) {
        const Term *term = rows_term(p, id);
        if ((term->kind != TERM_SUM && term->kind != TERM_MAX) || term->depth != depth + 1)
            continue;
        pass.term[pass.n] = term->of[0];
        pass.total[pass.n++] = id;
    }
    for (int i = 0; i < program->args.n; i++) {
        const RowArg *arg = &program->args.at[i];
        if (!arg->out || !arg->columns || rows_term(p, arg->stored)->depth != depth)
            continue;
        if (rows_term(p, arg->stored)->level == LEVEL_TOTAL)
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
        const char *old = text_loaded(p, arg, place);
        value = arena_printf(p->arena, "(first ? 0.0f : %s) + %s", old, value);
    }
    emit_line(
        p->emit, "%s",
        text_fill(p->arena, text_fill(p->arena, p->target->assign[arg->dtype], place), value));
}

static void print_pass_lane(RowPrinter *p, const Pass *pass, int lane)
{
    for (int i = 0; i < pass->n; i++) {
        char *value = print_expression(p, pass->term[i], lane);
        if (pass->total[i] == NONE) {
            print_store(p, pass->arg[i], text_element(p, pass->arg[i], p->lane[lane].column),
                        value);
            continue;
        }
        const char *total = p->name[0][pass->total[i]];
        if (rows_term(p, pass->total[i])->kind == TERM_SUM) {
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
        Str *list = rows_term(p, pass->total[i])->kind == TERM_SUM ? &sums : &maxima;
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
        resolve_term(p, &id, &lane);
        const Term *term = rows_term(p, id);
        if (pass->total[i] == NONE || term->kind != TERM_CONST ||
            (term->number != 0 && !isinf(term->number)))
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
    head = text_fill(p->arena, text_fill(p->arena, head, begin), end);
    const char *zero = strstr(head, "0 + ");
    if (zero)
        head = arena_printf(p->arena, "%.*s%s", (int)(zero - head), head, zero + strlen("0 + "));
    emit_open(p->emit, "%s", head);
    size_t mark = p->emit->text.n;
    print_shared(p, pass->term, pass->n);
    for (int lane = 0; lane < p->lanes; lane++)
        print_pass_lane(p, pass, lane);
    if (p->program->axes - p->program->rows > 1)
        insert_axis_indices(p, mark, p->program->rows, p->program->axes, "i");
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
        Lane first = {"i", LANE_FIRST, true},
             second = {arena_printf(p->arena, "i + %s", half), LANE_SECOND, true};
        if (turn->interleaved) {
            first.column = "2 * i";
            second.column = "2 * i + 1";
        }
        print_lanes(p, 2, first, second);
        print_column_loop(p, pass, "0", half);
        if (turn->turned < rows_columns(program)) {
            plain.turn = LANE_STILL;
            print_lanes(p, 1, plain, none);
            print_column_loop(p, pass, arena_printf(p->arena, "%lld", (long long)turn->turned),
                              "COLUMNS");
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
        const Term *term = rows_term(p, pass->total[i]);
        bool sum = term->kind == TERM_SUM;
        const char *name = names_take(&p->names, term->name ? term->name
                                                 : sum      ? "total"
                                                            : "largest");
        emit_line(p->emit, "float %s = %s;", name,
                  text_number(p->arena, p->target, sum ? 0.0 : -HUGE_VAL));
        p->name[0][pass->total[i]] = name;
    }
}

static void close_totals(RowPrinter *p, const Pass *pass)
{
    for (int i = 0; i < pass->n; i++) {
        if (pass->total[i] == NONE)
            continue;
        bool sum = rows_term(p, pass->total[i])->kind == TERM_SUM;
        const char *text = sum ? p->target->sum : p->target->max,
                   *name = p->name[0][pass->total[i]];
        if (text)
            emit_line(p->emit, "%s", text_fill(p->arena, text_fill(p->arena, text, name), name));
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
        print_store(p, arg, text_element(p, arg, NULL), print_expression(p, arg->stored, 0));
        if (p->target->once)
            p->emit->depth--;
    }
}

static void print_turn_tables(RowPrinter *p)
{
    const RowTurn *turn = &p->program->turn;
    long long half = (long long)turn->turned / 2;
    const char *base = p->program->bases.at[turn->base].name,
               *axis = p->program->axis[turn->axis].name;
    const char *position = arena_printf(p->arena, "%s + %s", base, axis);
    if (turn->runs)
        position = arena_printf(p->arena, "%s(%s, %lldL, %lldL)", text_word(p->target, "position"),
                                position, (long long)turn->run, (long long)turn->runs);
    if (turn->starts != NONE)
        position = arena_printf(p->arena, "%s - %s", position,
                                text_element(p, &p->program->args.at[turn->starts], NULL));
    if (!p->target->turn_tables) {
        emit_line(p->emit, "const float position = (float)(%s);", position);
        return;
    }
    const char *gain = turn->gain != 1 ? arena_printf(p->arena, "%.17g * ", turn->gain) : "";
    bool product = turn->gain != 1;
    emit_line(p->emit, "float cosine[%lld], sine[%lld];", half, half);
    emit_open(p->emit, "for (int i = 0; i < %lld; i++)", half);
    emit_line(p->emit, "const double angle = (double)(%s) * frequency[i];", position);
    emit_line(p->emit,
              product ? "cosine[i] = (float)(%scos(angle));" : "cosine[i] = (float)%scos(angle);",
              gain);
    emit_line(p->emit,
              product ? "sine[i] = (float)(%ssin(angle));" : "sine[i] = (float)%ssin(angle);",
              gain);
    emit_close(p->emit, "");
}

static void print_one_row(RowPrinter *p)
{
    size_t begin = print_row_begin(p);
    print_passes(p, false);
    print_row_stores(p);
    print_row_end(p, begin);
}

void print_row_body(RowPrinter *p)
{
    const RowProgram *program = p->program;
    size_t mark = p->emit->text.n;
    if (program->turns)
        print_turn_tables(p);
    if (program->outer < program->rows) {
        emit_open(p->emit, "for (int j = 0; j < %lld; j++)",
                  (long long)rows_extent(program, program->outer, program->rows));
        size_t inner = p->emit->text.n;
        print_one_row(p);
        insert_axis_indices(p, inner, program->outer, program->rows, "j");
        emit_close(p->emit, "");
    } else {
        print_one_row(p);
    }
    insert_axis_indices(p, mark, 0, program->outer, "row");
}

/* ---- the kernel ---- */

static void print_head(RowPrinter *p, const char *name)
{
    Str list = str_new(p->arena);
    for (int i = 0; i < p->program->args.n; i++) {
        const RowArg *arg = &p->program->args.at[i];
        str_putf(&list, "%s%s%s *%s %s", list.n ? ", " : "", arg->out ? "" : "const ",
                 p->target->element[arg->dtype], p->target->restrict_, arg->name);
    }
    for (int i = 0; i < p->program->bases.n; i++)
        str_putf(&list, "%slong %s", list.n ? ", " : "", p->program->bases.at[i].name);
    if (p->program->adds)
        str_putf(&list, ", %s first", p->target->flag);
    emit_open_function(p->emit, "%s %s(%s)", p->target->head, name, list.at);
}

void print_total(RowPrinter *p, const RowArg *arg, const char *at, const char *fresh,
                 const char *sum)
{
    const char *place = arena_printf(p->arena, "%s[%s]", arg->name, at);
    if (fresh)
        sum = arena_printf(p->arena, "(%s ? 0.0f : %s) + %s", fresh,
                           text_fill(p->arena, p->target->load[arg->dtype], place), sum);
    const char *line = text_fill(p->arena, p->target->assign[arg->dtype], place);
    emit_line(p->emit, "%s", text_fill(p->arena, line, sum));
}

static void print_constants(RowPrinter *p)
{
    const RowProgram *program = p->program;
    Str text = str_new(p->arena);
    if (program->rows || p->target->single_row_loop)
        str_putf(&text, "ROWS = %lld", (long long)rows_extent(program, 0, program->outer));
    if (rows_has_columns(program))
        str_putf(&text, "%sCOLUMNS = %lld", text.n ? ", " : "", (long long)rows_columns(program));
    if (text.n)
        emit_line(p->emit, "enum { %s };", text.at);
    bool reduces = false;
    for (int i = 0; i < program->terms.n; i++)
        reduces = reduces || program->terms.at[i].kind == TERM_SUM ||
                  program->terms.at[i].kind == TERM_MAX;
    if (p->target->shared && reduces)
        emit_line(p->emit, "%s", p->target->shared);
    if (!program->padded)
        return;
    const char *base = program->bases.at[program->used_base].name;
    emit_line(p->emit, "const long rest = %lld - %s; /* columns beyond are padding */",
              (long long)program->used, base);
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
    emit_line(p->emit, "%s %s_frequency[%lld] = {%s};", p->target->table, name,
              (long long)turn->turned / 2, text.at);
    emit_blank(p->emit);
}

static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        bool inside = at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_');
        if (!inside && !isalnum((unsigned char)at[n]) && at[n] != '_')
            return true;
    }
    return false;
}

/* Says so of arguments that what was printed since `mark` does not look at. */
static void print_unused(RowPrinter *p, size_t mark)
{
    char *body = arena_strdup(p->arena, p->emit->text.at + mark);
    p->emit->text.n = mark;
    for (int i = 0; i < p->program->args.n + p->program->bases.n; i++) {
        int base = i - p->program->args.n;
        const char *name = base < 0 ? p->program->args.at[i].name : p->program->bases.at[base].name;
        if (!has_word(body, name))
            emit_line(p->emit, "(void)%s;", name);
    }
    emit_text(p->emit, body);
}

static bool is_flat(const RowProgram *program)
{
    if (program->rows || !rows_has_columns(program))
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
    RowPrinter p = {.arena = arena,
                    .program = program,
                    .target = target,
                    .emit = &emit,
                    .names = names_new(arena)};
    for (int l = 0; l < 2; l++) {
        p.name[l] = ARENA_ARRAY(arena, const char *, program->terms.n + 1);
        p.uses[l] = ARENA_ARRAY(arena, int, program->terms.n + 1);
    }
    static const char *const reserved[] = {"k",   "i",    "j",    "row",   "tile",     "begin",
                                           "end", "used", "rest", "first", "frequency"};
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
    size_t mark = emit.text.n;
    print_constants(&p);
    if (program->turns)
        emit_line(&emit, "const %s *frequency = %s_frequency;",
                  strstr(target->table, "double") ? "double" : "float", name);
    if (program->totals) {
        target->totals(&p);
    } else if (is_flat(program) && !program->padded) {
        print_flat(&p);
    } else {
        bool loop = program->rows || target->single_row_loop;
        if (loop)
            target->rows_open(&p);
        print_row_body(&p);
        if (loop)
            emit_close(&emit, "");
    }
    print_unused(&p, mark);
    emit_close(&emit, "");
    return emit.text.at;
}
