/* target_host.c - C with OpenMP: rows over threads, columns over vector lanes. */
#include "codegen/target.h"

/* TUNE: row numbers of one block stay on the stack and in the first-level cache; a tile of columns
 * fills four vectors. */
enum { TOTAL_BLOCK = 1024, TOTAL_TILE = 64, MAX_NEEDS = 8 };

static void host_rows_open(RowPrinter *p)
{
    emit_directive(p->emit, "#pragma omp parallel for schedule(static)");
    emit_open(p->emit, "for (int row = 0; row < ROWS; row++)");
}

static void host_flat_open(RowPrinter *p)
{
    emit_directive(p->emit, "#pragma omp parallel for simd schedule(static)");
    emit_open(p->emit, "for (long i = 0; i < COLUMNS; i++)");
}

/* First sweep: numbers of the rows [begin, end) that the sums over rows need, into arrays. */
static void host_row_needs(RowPrinter *p, const TermId *needs, int n, const char **array)
{
    emit_directive(p->emit, "#pragma omp parallel for schedule(static)");
    emit_open(p->emit, "for (int row = begin; row < end; row++)");
    Names outside = p->names;
    size_t mark = print_row_begin(p);
    print_passes(p, true);
    for (int i = 0; i < n; i++)
        emit_line(p->emit, "%s[row - begin] = %s;", array[i], print_expression(p, needs[i], 0));
    print_row_end(p, mark);
    emit_close(p->emit, "");
    p->names.taken.n = outside.taken.n;
}

static void host_total_tile(RowPrinter *p, bool blocks, bool ragged)
{
    const RowProgram *program = p->program;
    TermId terms[MAX_OPERANDS];
    const char *sums[MAX_OPERANDS];
    const RowArg *args[MAX_OPERANDS];
    int n = 0;
    for (int i = 0; i < program->args.n; i++) {
        const RowArg *arg = &program->args.at[i];
        if (!arg->out)
            continue;
        args[n] = arg;
        terms[n] = program->terms.at[arg->stored].of[0];
        sums[n] = names_take(&p->names, arena_printf(p->arena, "%s_tile", arg->name));
        emit_line(p->emit, "float %s[TILE] = {0};", sums[n++]);
    }
    if (ragged)
        emit_line(p->emit, "const int width = COLUMNS - tile < TILE ? COLUMNS - tile : TILE;");
    const char *width = ragged ? "width" : "TILE";
    emit_open(p->emit, "for (int row = %s; row < %s; row++)", blocks ? "begin" : "0",
              blocks ? "end" : "ROWS");
    p->shift = "tile";
    size_t mark = print_row_begin(p);
    print_row_terms(p, 0);
    emit_directive(p->emit, "#pragma omp simd");
    emit_open(p->emit, "for (int i = 0; i < %s; i++)", width);
    print_lanes(p, 1, (Lane){.column = "i", .valid = true}, (Lane){0});
    print_shared(p, terms, n);
    for (int k = 0; k < n; k++)
        emit_line(p->emit, "%s[i] += %s;", sums[k], print_expression(p, terms[k], 0));
    emit_close_slim(p->emit);
    print_row_end(p, mark);
    emit_close(p->emit, "");
    p->shift = NULL;
    emit_open(p->emit, "for (int i = 0; i < %s; i++)", width);
    for (int k = 0; k < n; k++) {
        const char *fresh = args[k]->add ? blocks ? "first && begin == 0" : "first"
                            : blocks     ? "begin == 0"
                                         : NULL;
        print_total(p, args[k], "tile + i", fresh, arena_printf(p->arena, "%s[i]", sums[k]));
    }
    emit_close_slim(p->emit);
}

/* Each thread owns tiles of columns and walks down the rows: no sum crosses threads. */
static void host_totals(RowPrinter *p)
{
    const RowProgram *program = p->program;
    TermId needs[MAX_NEEDS];
    int n = print_row_needs(p, needs, MAX_NEEDS);
    const char *array[MAX_NEEDS];
    bool ragged = rows_extent(program, program->rows, program->axes) % TOTAL_TILE != 0;
    emit_line(p->emit, n ? "enum { TILE = %d, BLOCK = %d };" : "enum { TILE = %d };", TOTAL_TILE,
              TOTAL_BLOCK);
    for (int i = 0; i < n; i++) {
        const char *name = program->terms.at[needs[i]].name;
        array[i] = names_take(&p->names, arena_printf(p->arena, "%s_of", name ? name : "number"));
        emit_line(p->emit, "float %s[BLOCK];", array[i]);
    }
    if (n) {
        emit_open(p->emit, "for (int begin = 0; begin < ROWS; begin += BLOCK)");
        emit_line(p->emit, "const int end = ROWS - begin < BLOCK ? ROWS : begin + BLOCK;");
        host_row_needs(p, needs, n, array);
        for (TermId id = 0; id < program->terms.n; id++)
            p->name[0][id] = NULL;
        for (int i = 0; i < n; i++)
            p->name[0][needs[i]] = arena_printf(p->arena, "%s[row - begin]", array[i]);
    }
    emit_directive(p->emit, "#pragma omp parallel for schedule(static)");
    emit_open(p->emit, "for (int tile = 0; tile < COLUMNS; tile += TILE)");
    host_total_tile(p, n > 0, ragged);
    emit_close(p->emit, "");
    if (n)
        emit_close(p->emit, "");
}

const Target target_host = {
    .name = "host",
    .head = "static void",
    .restrict_ = "restrict",
    .flag = "bool",
    .table = "static const double",
    .element = {[DT_F32] = "float",
                [DT_F64] = "double",
                [DT_BF16] = "uint16_t",
                [DT_F16] = "uint16_t",
                [DT_I32] = "int32_t"},
    .load = {[DT_F32] = "%s",
             [DT_F64] = "(float)%s",
             [DT_BF16] = "lp_float_of_bf16(%s)",
             [DT_F16] = "lp_float_of_f16(%s)",
             [DT_I32] = "%s"},
    .assign = {[DT_F32] = "%s = %s;",
               [DT_F64] = "%s = %s;",
               [DT_BF16] = "%s = lp_bf16_of_float(%s);",
               [DT_F16] = "%s = lp_f16_of_float(%s);",
               [DT_I32] = "%s = (int32_t)(%s);"},
    .words = {{"exp", "lp_expf"},
              {"log", "lp_logf"},
              {"sqrt", "sqrtf"},
              {"floor", "floorf"},
              {"tanh", "lp_tanhf"},
              {"erf", "lp_erff"},
              {"sigmoid", "lp_sigmoidf"},
              {"draw", "lp_draw"},
              {"position", "lp_position"},
              {"round_bf16", "lp_round_bf16"},
              {"round_f16", "lp_round_f16"},
              {"inf", "INFINITY"}},
    .cosine = "cosine[i]",
    .sine = "sine[i]",
    .turn_tables = true,
    .columns = "for (int i = %s; i < %s; i++)",
    .simd = "#pragma omp simd",
    .rows_open = host_rows_open,
    .flat_open = host_flat_open,
    .totals = host_totals,
};
