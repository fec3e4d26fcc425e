/* route.c - how tokens come to experts: the best scores of a row, capacities, counts, and picking
 * by choice.
 *
 * A choice is the number of an expert, or -1: nobody. Every function does one row (of one token, or
 * of one sequence) on one thread, in the order of the choices: results do not depend on the number
 * of threads. */
#ifndef LP_ROUTE_C
#define LP_ROUTE_C

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "templates/host/tile.h"

/* Most groups that experts may be in. */
#define LP_ROUTE_GROUPS 64

typedef struct LpTopk {
    long rows;
    int experts, k; /* scores of a row, choices of a row */
    int groups;     /* equal runs of experts; 1: no groups */
    int kept;       /* groups that a row may choose from */
    int top2;       /* a group is worth its best two scores together, not its best */
} LpTopk;

/* In double: sums of two scores are equal only where they are exactly equal. */
static LP_MAYBE_UNUSED double lp_group_worth(const float *x, int n, int top2)
{
    double best = -INFINITY, second = -INFINITY;
    for (int i = 0; i < n; i++) {
        if (x[i] > best) {
            second = best;
            best = x[i];
        } else if (x[i] > second) {
            second = x[i];
        }
    }
    return top2 && n > 1 ? best + second : best;
}

/* Marks the groups worth most, the first among equals. */
static LP_MAYBE_UNUSED void lp_keep_groups(const LpTopk *t, const float *x, int *kept)
{
    const int each = t->experts / t->groups;
    double worth[LP_ROUTE_GROUPS];
    for (int g = 0; g < t->groups; g++) {
        worth[g] = lp_group_worth(x + (long)g * each, each, t->top2);
        kept[g] = 0;
    }
    for (int i = 0; i < t->kept; i++) {
        int best = -1;
        for (int g = 0; g < t->groups; g++) {
            if (!kept[g] && (best < 0 || worth[g] > worth[best])) {
                best = g;
            }
        }
        kept[best] = 1;
    }
}

/* The k best scores of a row, the largest first and the first among equals. A row with a NaN
 * chooses it every time, so that it goes on to the loss. */
static LP_MAYBE_UNUSED void lp_topk_row(const LpTopk *t, const float *x, int32_t *choice)
{
    int kept[LP_ROUTE_GROUPS] = {1};
    const int each = t->experts / t->groups;
    int poison = -1;
    for (int i = 0; i < t->experts; i++) {
        poison = x[i] != x[i] ? i : poison;
    }
    if (t->groups > 1) {
        lp_keep_groups(t, x, kept);
    }
    int last = -1;
    for (int c = 0; c < t->k; c++) {
        int best = poison;
        for (int g = 0; g < t->groups && poison < 0; g++) {
            for (int i = g * each; kept[g] && i < (g + 1) * each; i++) {
                const int after = last < 0 || x[i] < x[last] || (x[i] == x[last] && i > last);
                if (after && (best < 0 || x[i] > x[best])) {
                    best = i;
                }
            }
        }
        choice[c] = last = best;
    }
}

/* choice[rows][k] of scores[rows][experts]. */
static LP_MAYBE_UNUSED void lp_topk(const LpTopk *t, const float *scores, int32_t *choice)
{
#pragma omp parallel for schedule(static)
    for (long row = 0; row < t->rows; row++) {
        lp_topk_row(t, scores + row * t->experts, choice + row * t->k);
    }
}

#define LP_CAPACITY_BYTES(experts, threads)                                                        \
    (sizeof(int32_t) * (size_t)(experts) * (size_t)(threads))

/* out[b][s][k]: of each sequence an expert keeps its first `bound` choices, first choices of all
 * tokens before second ones; the others become -1. scratch: LP_CAPACITY_BYTES. */
static LP_MAYBE_UNUSED void lp_capacity(long b, long s, int k, int experts, long bound,
                                        const int32_t *choice, int32_t *out, void *scratch,
                                        int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < b; row++) {
        int32_t *used = (int32_t *)scratch + (long)lp_thread_index() * experts;
        memset(used, 0, (size_t)experts * sizeof *used);
        for (int c = 0; c < k; c++) {
            for (long token = 0; token < s; token++) {
                const long at = (row * s + token) * k + c;
                const int32_t id = choice[at];
                const int full = id >= 0 && used[id] >= bound;
                if (id >= 0 && !full) {
                    used[id]++;
                }
                out[at] = full ? -1 : id;
            }
        }
    }
}

/* out[rows][k]: the first choice, and each later one where twice its share is more than the drawn
 * part, word / 2^31, of its share and the first one's together; else -1. With `all` nothing is
 * drawn. */
static LP_MAYBE_UNUSED void lp_chance(long rows, int k, const int32_t *choice, const float *share,
                                      const int32_t *word, int all, int32_t *out)
{
#pragma omp parallel for schedule(static)
    for (long row = 0; row < rows; row++) {
        const double part = all ? 0.0 : (double)word[row] / 2147483648.0;
        for (long i = row * k; i < (row + 1) * k; i++) {
            const double own = share[i], both = own + (double)share[row * k];
            out[i] = i == row * k || 2.0 * own > part * both ? choice[i] : -1;
        }
    }
}

/* out[rows]: the choices of one round. Each of the owners, who have `named` experts, takes `bound`
 * of them a round in their order, and in the last round all that are left; the others become -1.
 * scratch: LP_CAPACITY_BYTES of the owners. */
static LP_MAYBE_UNUSED void lp_deal(long rows, long named, int owners, long bound, int round,
                                    int rounds, const int32_t *choice, int32_t *out, void *scratch)
{
    int32_t *seen = scratch;
    memset(seen, 0, (size_t)owners * sizeof *seen);
    for (long i = 0; i < rows; i++) {
        const int32_t id = choice[i];
        long at = id >= 0 ? seen[id / named]++ / bound : -1;
        at = at < rounds ? at : rounds - 1;
        out[i] = at == round ? id : -1;
    }
}

/* out[experts]: how many of n choices are of each of the experts [base, base + experts). */
static LP_MAYBE_UNUSED void lp_tally(long n, int experts, long base, const int32_t *choice,
                                     float *out)
{
    for (int e = 0; e < experts; e++) {
        out[e] = 0.0f;
    }
    for (long i = 0; i < n; i++) {
        const long e = choice[i] - base;
        if (e >= 0 && e < experts) {
            out[e] += 1.0f;
        }
    }
}

/* out[rows][k] = from[rows][choice], 0 for nobody. */
static LP_MAYBE_UNUSED void lp_take(long rows, int experts, int k, const int32_t *choice,
                                    const float *from, float *out)
{
#pragma omp parallel for schedule(static)
    for (long row = 0; row < rows; row++) {
        for (int c = 0; c < k; c++) {
            const int32_t id = choice[row * k + c];
            out[row * k + c] = id >= 0 && id < experts ? from[row * experts + id] : 0.0f;
        }
    }
}

/* Its gradient: out[rows][experts] = sum over the choices of an expert of dout[rows][k]. */
static LP_MAYBE_UNUSED void lp_spread(long rows, int experts, int k, const int32_t *choice,
                                      const float *dout, float *out)
{
#pragma omp parallel for schedule(static)
    for (long row = 0; row < rows; row++) {
        float *to = out + row * experts;
        memset(to, 0, (size_t)experts * sizeof *to);
        for (int c = 0; c < k; c++) {
            const int32_t id = choice[row * k + c];
            if (id >= 0 && id < experts) {
                to[id] += dout[row * k + c];
            }
        }
    }
}

#endif
