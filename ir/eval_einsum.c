/* eval_einsum.c - products and sums over letters: nearly all time of a proof is here. */
#include "ir/eval_walk.h"

/* One letter: its extent, and what a step along it adds to the places in a, b and y. */
typedef struct Loop {
    int64_t extent, a, b, y;
} Loop;

/* Four sums at once, so that one addition need not wait for the one before. */
static double dot(const double *restrict a, const double *restrict b, int64_t n)
{
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* y must not overlap a or b; eval_node says so. */
static void run_row(const Loop *l, const double *restrict a, const double *restrict b,
                    double *restrict y)
{
    int64_t n = l->extent;
    if (l->y == 0 && l->a == 1 && l->b == 1) {
        *y += dot(a, b, n);
    } else if (l->y == 1 && l->a == 0 && l->b == 1) {
        for (int64_t i = 0; i < n; i++)
            y[i] += *a * b[i];
    } else if (l->y == 1 && l->a == 1 && l->b == 0) {
        for (int64_t i = 0; i < n; i++)
            y[i] += a[i] * *b;
    } else {
        for (int64_t i = 0; i < n; i++)
            y[i * l->y] += a[i * l->a] * b[i * l->b];
    }
}

/* The forms of run_row that are fast; longer ones before shorter ones. */
static int64_t fitness(const Loop *l)
{
    bool fast = (l->y == 1 && l->a + l->b == 1) || (l->y == 0 && l->a == 1 && l->b == 1);
    return l->extent * (fast ? 4 : 1);
}

/* Letters of more than one index, the fittest innermost. */
static int collect_loops(const Eval *e, bool product, Loop *loop)
{
    int n = 0;
    for (int l = 0; l < e->node->sig.letters; l++) {
        Loop new = {e->extent[l], e->stride[0][l], product ? e->stride[1][l] : 0,
                    e->stride[MAX_IN][l]};
        if (new.extent == 1)
            continue;
        int at = n++;
        for (; at > 0 && fitness(&loop[at - 1]) > fitness(&new); at--)
            loop[at] = loop[at - 1];
        loop[at] = new;
    }
    return n;
}

void eval_einsum(const Eval *e)
{
    static const double one = 1;
    eval_clear_outputs(e);
    for (int l = 0; l < e->node->sig.letters; l++)
        if (e->extent[l] == 0)
            return;
    bool product = e->node->ins == 2;
    Loop loop[MAX_LETTERS] = {{1, 0, 0, 0}};
    int n = collect_loops(e, product, loop), inner = n > 0 ? n - 1 : 0;
    int64_t at[MAX_LETTERS] = {0};
    const double *b = product ? e->in[1] : &one;
    Loop offset = {0};
    for (int i = inner; i >= 0;) {
        run_row(&loop[inner], e->in[0] + offset.a, b + offset.b, e->out[0] + offset.y);
        for (i = inner - 1; i >= 0; i--) {
            int64_t steps = ++at[i] < loop[i].extent ? 1 : 1 - loop[i].extent;
            offset.a += steps * loop[i].a;
            offset.b += steps * loop[i].b;
            offset.y += steps * loop[i].y;
            if (steps == 1)
                break;
            at[i] = 0;
        }
    }
}
