/* real.h - what a trainer stores its weights and activations as: LpReal, fp32 unless LP_REAL_BF16
 * or LP_REAL_F16 is defined in front of the templates.
 *
 * Kernels compute in fp32 whatever is stored: a load widens, a store rounds to nearest even.
 * Statistics, sums over tokens, gradients of weights and the optimizer's state are fp32 always. */
#ifndef LP_REAL_H
#define LP_REAL_H

#include <stdint.h>

#include "templates/host/math.h"
#include "templates/host/tile.h"

#if defined(LP_REAL_BF16) || defined(LP_REAL_F16)

#define LP_REAL_NARROW 1
typedef uint16_t LpReal;

static inline float lp_float_of_real(LpReal x)
{
#if defined(LP_REAL_BF16)
    return lp_float_of_bf16(x);
#else
    return lp_float_of_f16(x);
#endif
}

static inline LpReal lp_real_of_float(float x)
{
#if defined(LP_REAL_BF16)
    return lp_bf16_of_float(x);
#else
    return lp_f16_of_float(x);
#endif
}

/* lp_tile_pack of stored numbers. */
static LP_MAYBE_UNUSED void lp_real_pack(int rows, int cols, const LpReal *src, long lds,
                                         float *dst, long ldd, float scale)
{
    const int wide = LP_TILE_ROUND(cols);
    for (int i = 0; i < rows; i++) {
        const LpReal *restrict s = src + i * lds;
        float *restrict d = dst + i * ldd;
#pragma omp simd
        for (int j = 0; j < cols; j++) {
            d[j] = lp_float_of_real(s[j]) * scale;
        }
        for (int j = cols; j < wide; j++) {
            d[j] = 0.0f;
        }
    }
}

#define LP_REAL_BLOCK 64

/* lp_tile_transpose of stored numbers, rows <= LP_REAL_BLOCK. */
static LP_MAYBE_UNUSED void lp_real_transpose(int rows, int cols, const LpReal *src, long lds,
                                              float *dst, long ldd, float scale)
{
    float block[LP_REAL_BLOCK * LP_REAL_BLOCK];
    for (int j = 0; j < cols; j += LP_REAL_BLOCK) {
        const int some = cols - j < LP_REAL_BLOCK ? cols - j : LP_REAL_BLOCK;
        lp_real_pack(rows, some, src + j, lds, block, LP_REAL_BLOCK, scale);
        lp_tile_transpose(rows, some, block, LP_REAL_BLOCK, dst + j * ldd, ldd, 1.0f);
    }
}

/* Rows of stored numbers as floats: packed into `room`, LP_TILE_ROUND(cols) apart. */
static LP_MAYBE_UNUSED const float *lp_real_rows(int rows, int cols, const LpReal *src, long lds,
                                                 float *room, long *ret_stride)
{
    *ret_stride = LP_TILE_ROUND(cols);
    lp_real_pack(rows, cols, src, lds, room, *ret_stride, 1.0f);
    return room;
}

#else

#define LP_REAL_NARROW 0
typedef float LpReal;

static inline float lp_float_of_real(LpReal x)
{
    return x;
}

static inline LpReal lp_real_of_float(float x)
{
    return x;
}

#define lp_real_pack lp_tile_pack
#define lp_real_transpose lp_tile_transpose

/* They are floats where they lie. */
static LP_MAYBE_UNUSED const float *lp_real_rows(int rows, int cols, const LpReal *src, long lds,
                                                 float *room, long *ret_stride)
{
    (void)rows;
    (void)cols;
    (void)room;
    *ret_stride = lds;
    return src;
}

#endif

/* to[n] = from, rounded. */
static LP_MAYBE_UNUSED void lp_real_store(long n, LpReal *restrict to, const float *restrict from)
{
#pragma omp parallel for simd schedule(static)
    for (long i = 0; i < n; i++) {
        to[i] = lp_real_of_float(from[i]);
    }
}

#endif
