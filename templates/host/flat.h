/* flat.h - kernels over flat ranges: what a trainer does besides its model. AdamW, gradient
 * accumulation, and blocks copied between layouts.
 *
 * No result depends on the number of threads. */
#ifndef LP_FLAT_H
#define LP_FLAT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "templates/host/real.h"
#include "templates/host/tile.h"

typedef struct LpAdam {
    float beta1, beta2, eps, decay, lr;
    float correct1, correct2; /* 1 / (1 - beta^step) */
    float coef;               /* of the gradient: clipping */
} LpAdam;

static LP_MAYBE_UNUSED LpAdam lp_adam(double beta1, double beta2, double eps, double decay,
                                      double lr, double step, double coef)
{
    LpAdam a = {(float)beta1, (float)beta2, (float)eps, (float)decay,
                (float)lr,    0.0f,         0.0f,       (float)coef};
    a.correct1 = (float)(1.0 / (1.0 - pow(beta1, step)));
    a.correct2 = (float)(1.0 / (1.0 - pow(beta2, step)));
    return a;
}

/* One pass: 4 streams read, 3 written. Gradients need no clearing: the first micro-batch of a step
 * overwrites them. */
static LP_MAYBE_UNUSED void lp_adamw(long n, LpAdam a, float *restrict w, float *restrict m,
                                     float *restrict v, const float *restrict g)
{
    const float keep = 1.0f - a.lr * a.decay, rate = a.lr * a.correct1;
#pragma omp parallel for simd schedule(static)
    for (long i = 0; i < n; i++) {
        const float gi = g[i] * a.coef;
        const float mi = a.beta1 * m[i] + (1.0f - a.beta1) * gi;
        const float vi = a.beta2 * v[i] + (1.0f - a.beta2) * gi * gi;
        m[i] = mi;
        v[i] = vi;
        w[i] = w[i] * keep - rate * mi / (sqrtf(vi * a.correct2) + a.eps);
    }
}

static LP_MAYBE_UNUSED void lp_scale(long n, float *x, float factor)
{
#pragma omp parallel for simd schedule(static)
    for (long i = 0; i < n; i++)
        x[i] *= factor;
}

/* to += from, or = on the first micro-batch. */
static LP_MAYBE_UNUSED void lp_accumulate(long n, float *restrict to, const float *restrict from,
                                          int first)
{
#pragma omp parallel for simd schedule(static)
    for (long i = 0; i < n; i++)
        to[i] = (first ? 0.0f : to[i]) + from[i];
}

/* The same of stored numbers. */
static LP_MAYBE_UNUSED void lp_accumulate_real(long n, float *restrict to,
                                               const LpReal *restrict from, int first)
{
#pragma omp parallel for simd schedule(static)
    for (long i = 0; i < n; i++)
        to[i] = (first ? 0.0f : to[i]) + lp_float_of_real(from[i]);
}

/* Stored numbers added to stored numbers. */
static LP_MAYBE_UNUSED void lp_add_real(long n, LpReal *restrict to, const LpReal *restrict from)
{
#pragma omp parallel for simd schedule(static)
    for (long i = 0; i < n; i++)
        to[i] = lp_real_of_float(lp_float_of_real(to[i]) + lp_float_of_real(from[i]));
}

/* `rows` runs of `bytes`, from one stride to another. */
static LP_MAYBE_UNUSED void lp_copy_rows(void *to, long to_stride, const void *from,
                                         long from_stride, long rows, long bytes)
{
#pragma omp parallel for schedule(static)
    for (long i = 0; i < rows; i++)
        memcpy((char *)to + i * to_stride, (const char *)from + i * from_stride, (size_t)bytes);
}

/* [outer][n][bytes] -> [n][outer][bytes]: the blocks of an axis, each in one piece; and back. */
static LP_MAYBE_UNUSED void lp_pack_blocks(void *to, const void *from, long outer, long n,
                                           long bytes)
{
    for (long k = 0; k < n; k++)
        lp_copy_rows((char *)to + k * outer * bytes, bytes, (const char *)from + k * bytes,
                     n * bytes, outer, bytes);
}

static LP_MAYBE_UNUSED void lp_unpack_blocks(void *to, const void *from, long outer, long n,
                                             long bytes)
{
    for (long k = 0; k < n; k++)
        lp_copy_rows((char *)to + k * bytes, n * bytes, (const char *)from + k * outer * bytes,
                     bytes, outer, bytes);
}

#endif
