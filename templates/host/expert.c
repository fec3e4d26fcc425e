/* expert.c - linears whose weights the choices pick, and their gradients.
 *
 * Choices are sorted by expert, stably; then each expert multiplies tiles of the rows that chose
 * it, gathered into one matrix. Rows of nobody, and of experts outside the block [base, base +
 * experts), are zero, so that the sum over the blocks is the whole result. Sums over rows run in
 * the order of the choices, whatever the number of threads. */
#ifndef LP_EXPERT_C
#define LP_EXPERT_C

#include <stdint.h>
#include <string.h>

#include "templates/host/gemm_real.h"
#include "templates/host/real.h"
#include "templates/host/tile.h"

/* TUNE: rows of one product. Enough for the matrix product's own blocks, few enough to stay in the
 * second-level cache for widths of thousands. */
#define LP_EXPERT_ROWS 128

/* Scratch: a tile of the rows read and of the rows made, the sorted choices, and where each
 * expert's end. */
#define LP_EXPERT_FLOATS(choices, experts, from, to)                                               \
    ((size_t)LP_EXPERT_ROWS * ((size_t)(from) + (size_t)(to)) + (size_t)(choices) +                \
     (size_t)(experts) + 1)
#define LP_EXPERT_BYTES(choices, experts, from, to)                                                \
    (LP_EXPERT_FLOATS(choices, experts, from, to) * sizeof(float))

typedef struct LpExpert {
    long tokens;
    int k;        /* choices of a token */
    int shared;   /* one row of x serves all choices of its token: x[tokens][from] */
    int experts;  /* of this block */
    long base;    /* the first of them */
    int from, to; /* widths of x[tokens][k][from] and y[tokens][k][to] */
    int to_first; /* weights are [experts][to][from], else [experts][from][to] */
} LpExpert;

typedef struct LpExpertScratch {
    LpReal *x;      /* a tile of the rows read */
    float *y;       /* a tile of the rows made; backward their gradient, as it is stored */
    int32_t *order; /* choices by expert */
    int32_t *end;   /* of each expert's run in `order` */
} LpExpertScratch;

static LP_MAYBE_UNUSED LpExpertScratch lp_expert_scratch(const LpExpert *e, void *scratch)
{
    LpExpertScratch s;
    s.x = scratch;
    s.y = (float *)scratch + (long)LP_EXPERT_ROWS * e->from;
    s.order = (int32_t *)(s.y + (long)LP_EXPERT_ROWS * e->to);
    s.end = s.order + e->tokens * e->k;
    return s;
}

/* Counting sort: end[e] begins as the start of the run of e. */
static LP_MAYBE_UNUSED void lp_expert_sort(const LpExpert *e, const int32_t *choice,
                                           const LpExpertScratch *s)
{
    const long choices = e->tokens * e->k;
    memset(s->end, 0, ((size_t)e->experts + 1) * sizeof *s->end);
    for (long i = 0; i < choices; i++) {
        const long expert = choice[i] - e->base;
        if (expert >= 0 && expert < e->experts) {
            s->end[expert + 1]++;
        }
    }
    for (int i = 0; i < e->experts; i++) {
        s->end[i + 1] += s->end[i];
    }
    for (long i = 0; i < choices; i++) {
        const long expert = choice[i] - e->base;
        if (expert >= 0 && expert < e->experts) {
            s->order[s->end[expert]++] = (int32_t)i;
        }
    }
}

/* to[rows][width] = the rows of `from` that the sorted choices name; one row a token, or a choice.
 */
static LP_MAYBE_UNUSED void lp_expert_gather(const int32_t *order, int rows, int width, int divisor,
                                             const LpReal *from, LpReal *to)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < rows; i++) {
        memcpy(to + (long)i * width, from + order[i] / divisor * (long)width,
               (size_t)width * sizeof *to);
    }
}

/* y[tokens][k][to] = x w[choice]. With the widths and the order of the weights turned round, x is
 * the gradient of y and y that of x. */
static LP_MAYBE_UNUSED void lp_expert_forward(const LpExpert *e, const int32_t *choice,
                                              const LpReal *x, const LpReal *w, LpReal *y,
                                              void *scratch)
{
    const LpExpertScratch s = lp_expert_scratch(e, scratch);
    const long choices = e->tokens * e->k;
    lp_expert_sort(e, choice, &s);
#pragma omp parallel for schedule(static)
    for (long i = 0; i < choices; i++) {
        const long expert = choice[i] - e->base;
        if (expert < 0 || expert >= e->experts) {
            memset(y + i * e->to, 0, (size_t)e->to * sizeof *y);
        }
    }
    for (int expert = 0, begin = 0; expert < e->experts; begin = s.end[expert++]) {
        const LpReal *weight = w + (long)expert * e->from * e->to;
        for (int at = begin; at < s.end[expert]; at += LP_EXPERT_ROWS) {
            const int left = s.end[expert] - at;
            const int rows = left < LP_EXPERT_ROWS ? left : LP_EXPERT_ROWS;
            lp_expert_gather(s.order + at, rows, e->from, e->shared ? e->k : 1, x, s.x);
            lp_gemm_real(0, e->to_first, rows, e->to, e->from, s.x, e->from, weight,
                         e->to_first ? e->from : e->to, 0.0f, s.y, e->to);
#pragma omp parallel for schedule(static)
            for (int i = 0; i < rows; i++) {
                LpReal *out = y + s.order[at + i] * (long)e->to;
                const float *sum = s.y + (long)i * e->to;
                for (int j = 0; j < e->to; j++) {
                    out[j] = lp_real_of_float(sum[j]);
                }
            }
        }
    }
}

/* dw[experts] (+)= sum over the rows of an expert of dy and x, in the order of the weights. */
static LP_MAYBE_UNUSED void lp_expert_backward(const LpExpert *e, const int32_t *choice,
                                               const LpReal *dy, const LpReal *x, float *dw,
                                               int overwrite, void *scratch)
{
    const LpExpertScratch s = lp_expert_scratch(e, scratch);
    const long each = (long)e->from * e->to;
    LpReal *back = (LpReal *)s.y;
    lp_expert_sort(e, choice, &s);
    for (int expert = 0, begin = 0; expert < e->experts; begin = s.end[expert++]) {
        float *weight = dw + expert * each;
        if (overwrite && s.end[expert] == begin) {
            memset(weight, 0, (size_t)each * sizeof *weight);
        }
        for (int at = begin; at < s.end[expert]; at += LP_EXPERT_ROWS) {
            const int left = s.end[expert] - at;
            const int rows = left < LP_EXPERT_ROWS ? left : LP_EXPERT_ROWS;
            const float beta = overwrite && at == begin ? 0.0f : 1.0f;
            lp_expert_gather(s.order + at, rows, e->from, e->shared ? e->k : 1, x, s.x);
            lp_expert_gather(s.order + at, rows, e->to, 1, dy, back);
            if (e->to_first) {
                lp_gemm_real(1, 0, e->to, e->from, rows, back, e->to, s.x, e->from, beta, weight,
                             e->from);
            } else {
                lp_gemm_real(1, 0, e->from, e->to, rows, s.x, e->from, back, e->to, beta, weight,
                             e->to);
            }
        }
    }
}

#endif
