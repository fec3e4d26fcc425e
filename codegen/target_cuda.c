/* target_cuda.c - CUDA: a block per row, threads stride over the columns. Text needs
 * templates/cuda/prelude.cuh only. */
#include "codegen/target.h"

static void cuda_rows_open(RowPrinter *p)
{
    emit_open(p->emit, "for (int row = blockIdx.x; row < ROWS; row += gridDim.x)");
}

static void cuda_flat_open(RowPrinter *p)
{
    emit_open(p->emit, "for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < COLUMNS; "
                       "i += (long)gridDim.x * blockDim.x)");
}

static int total_terms(const RowProgram *program, TermId *ret_terms, const RowArg **ret_args)
{
    int n = 0;
    for (int i = 0; i < program->args.n; i++) {
        if (!program->args.at[i].out)
            continue;
        ret_args[n] = &program->args.at[i];
        ret_terms[n++] = program->terms.at[program->args.at[i].stored].of[0];
    }
    return n;
}

/* A thread per column walks down the rows. */
static void cuda_column_totals(RowPrinter *p, const TermId *terms, const RowArg *const *args, int n)
{
    cuda_flat_open(p);
    const char *sums[MAX_OPERANDS];
    for (int k = 0; k < n; k++) {
        sums[k] = names_take(&p->names, "total");
        emit_line(p->emit, "float %s = 0.0f;", sums[k]);
    }
    emit_open(p->emit, "for (int row = 0; row < ROWS; row++)");
    size_t mark = print_row_begin(p);
    print_row_terms(p, 0);
    print_lanes(p, 1, (Lane){.column = "i", .valid = true}, (Lane){0});
    print_shared(p, terms, n);
    for (int k = 0; k < n; k++)
        emit_line(p->emit, "%s += %s;", sums[k], print_expression(p, terms[k], 0));
    print_row_end(p, mark);
    emit_close(p->emit, "");
    for (int k = 0; k < n; k++)
        print_total(p, args[k], "i", args[k]->add ? "first" : NULL, sums[k]);
    emit_close(p->emit, "");
}

/* Row numbers are needed: each block takes rows and adds its sums at the end. The launcher clears
 * what `first` overwrites. No atomic adds to bf16: there one block takes all rows. */
static void cuda_block_totals(RowPrinter *p, const TermId *terms, const RowArg *const *args, int n)
{
    emit_line(p->emit, "enum { EACH = (COLUMNS + LP_THREADS - 1) / LP_THREADS };");
    const char *sums[MAX_OPERANDS];
    for (int k = 0; k < n; k++) {
        sums[k] = names_take(&p->names, "total");
        emit_line(p->emit, "float %s[EACH] = {0};", sums[k]);
    }
    bool alone = false;
    for (int k = 0; k < n; k++)
        alone = alone || args[k]->dtype != DT_F32 || !args[k]->add;
    if (p->program->adds && !alone)
        emit_line(p->emit, "(void)first;");
    if (alone) {
        emit_line(p->emit, "if (blockIdx.x != 0)");
        emit_line(p->emit, "    return;");
        emit_open(p->emit, "for (int row = 0; row < ROWS; row++)");
    } else {
        cuda_rows_open(p);
    }
    size_t mark = print_row_begin(p);
    print_passes(p, true);
    emit_open(p->emit, "for (int k = 0, i = threadIdx.x; i < COLUMNS; k++, i += LP_THREADS)");
    print_lanes(p, 1, (Lane){.column = "i", .valid = true}, (Lane){0});
    print_shared(p, terms, n);
    for (int k = 0; k < n; k++)
        emit_line(p->emit, "%s[k] += %s;", sums[k], print_expression(p, terms[k], 0));
    emit_close_slim(p->emit);
    print_row_end(p, mark);
    emit_close(p->emit, "");
    emit_open(p->emit, "for (int k = 0, i = threadIdx.x; i < COLUMNS; k++, i += LP_THREADS)");
    for (int k = 0; k < n; k++) {
        const char *sum = arena_printf(p->arena, "%s[k]", sums[k]);
        if (alone)
            print_total(p, args[k], "i", args[k]->add ? "first" : NULL, sum);
        else
            emit_line(p->emit, "atomicAdd(&%s[i], %s);", args[k]->name, sum);
    }
    emit_close_slim(p->emit);
}

static void cuda_totals(RowPrinter *p)
{
    TermId terms[MAX_OPERANDS], need;
    const RowArg *args[MAX_OPERANDS];
    int n = total_terms(p->program, terms, args);
    if (print_row_needs(p, &need, 1))
        cuda_block_totals(p, terms, args, n);
    else
        cuda_column_totals(p, terms, args, n);
}

const Target target_cuda = {
    .name = "cuda",
    .head = "extern \"C\" __global__ void",
    .restrict_ = "__restrict__",
    .flag = "int",
    .table = "__device__ const float",
    .element = {[DT_F32] = "float",
                [DT_F64] = "double",
                [DT_BF16] = "lp_bf16",
                [DT_F16] = "lp_f16",
                [DT_I32] = "int"},
    .load = {[DT_F32] = "%s",
             [DT_F64] = "(float)%s",
             [DT_BF16] = "lp_float(%s)",
             [DT_F16] = "lp_float(%s)",
             [DT_I32] = "%s"},
    .assign = {[DT_F32] = "%s = %s;",
               [DT_F64] = "%s = %s;",
               [DT_BF16] = "lp_put(&%s, %s);",
               [DT_F16] = "lp_put(&%s, %s);",
               [DT_I32] = "%s = (int)(%s);"},
    .words = {{"exp", "__expf"},
              {"log", "__logf"},
              {"sqrt", "sqrtf"},
              {"floor", "floorf"},
              {"tanh", "tanhf"},
              {"erf", "erff"},
              {"sigmoid", "lp_sigmoid"},
              {"draw", "lp_draw"},
              {"position", "lp_position"},
              {"round_bf16", "lp_as_bf16"},
              {"round_f16", "lp_as_f16"},
              {"inf", "LP_INF"}},
    .cosine = "cosf(position * frequency[i])",
    .sine = "sinf(position * frequency[i])",
    .single_row_loop = true,
    .columns = "for (int i = %s + threadIdx.x; i < %s; i += blockDim.x)",
    .shared = "__shared__ float shared[32];",
    .sum = "%s = lp_block_sum(%s, shared);",
    .max = "%s = lp_block_max(%s, shared);",
    .once = "if (threadIdx.x == 0)",
    .rows_open = cuda_rows_open,
    .flat_open = cuda_flat_open,
    .totals = cuda_totals,
};
