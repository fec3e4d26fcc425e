/* math.h - exp, log, tanh, erf and sigmoid for float as straight-line polynomials that vectorise;
 * bf16 and fp16; where the places of a sequence are.
 *
 * Why not libm: its vector forms are reached only under -ffast-math, and their bits follow the
 * glibc of the machine. These depend on the compiled code alone. The polynomials are minimax fits
 * (Remez, computed for this file) on the reduced ranges named beside them. Bounds in units in the
 * last place (ulp) over all floats; tests/templates/math_test.c sweeps them against double libm:
 *
 *     lp_expf      2 ulp; +inf above 88.7228, 0 below -86.98 (results under 1.7e-38)
 *     lp_logf      2 ulp, subnormal arguments included
 *     lp_tanhf     4 ulp
 *     lp_erff      4 ulp; 2e-7 absolute
 *     lp_sigmoidf  4 ulp; 0 below -88.7228
 *
 * No branch depends on data: every choice is a select, so `#pragma omp simd` vectorises all. NaN
 * in gives NaN out. */
#ifndef LP_MATH_H
#define LP_MATH_H

#include <math.h>
#include <stdint.h>

typedef union LpBits {
    float f;
    uint32_t u;
} LpBits;

static inline float lp_float_of_bits(uint32_t u)
{
    const LpBits b = {.u = u};
    return b.f;
}

static inline uint32_t lp_bits_of_float(float f)
{
    const LpBits b = {.f = f};
    return b.u;
}

/* x = n ln 2 + r with |r| <= 0.3467: returns e^r - 1 and, through ret_half_scale, 2^(n - 1) for
 * -125 <= n <= 128. Adding 1.5 * 2^23 rounds, and leaves n in the low bits of the sum: there is no
 * conversion to int that a NaN could make undefined. The high part of ln 2 has 12 bits, so n times
 * it is exact. */
static inline float lp_expm1_reduced(float x, float *ret_half_scale)
{
    const float magic = 12582912.0f;
    const float t = x * 1.44269502f + magic;
    const float n = t - magic;
    const float r = (x - n * 0.693359375f) + n * 2.12194442e-4f;
    float p = 1.394674880e-3f;
    p = p * r + 8.366755210e-3f;
    p = p * r + 4.166627675e-2f;
    p = p * r + 1.666654199e-1f;
    p = p * r + 5.000000000e-1f;
    *ret_half_scale = lp_float_of_bits((lp_bits_of_float(t) + 126u) << 23);
    return (p * r) * r + r;
}

static inline float lp_expf(float x)
{
    const float low = -86.98f;
    const float high = 88.7228317f;
    float c = x > high ? high : x;
    c = c < low ? low : c;
    float half;
    const float p = lp_expm1_reduced(c, &half);
    float y = (half + half * p) * 2.0f;
    y = x < low ? 0.0f : y;
    return x > high ? INFINITY : y;
}

/* x = 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); log(1 + f) = f - f^2/2 + f^3 Q(f). */
static inline float lp_logf(float x)
{
    const float tiny = x < 1.17549435e-38f ? 1.0f : 0.0f;
    const float c = tiny != 0.0f ? x * 8388608.0f : x;
    /* Subtracting the bits of sqrt(1/2) puts the binade border there. */
    const uint32_t u = lp_bits_of_float(c) - 0x3f3504f3u;
    const float n = (float)((int32_t)u >> 23) - 23.0f * tiny;
    const float f = lp_float_of_bits((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float q = 6.915545464e-2f;
    q = q * f - 1.178985685e-1f;
    q = q * f + 1.187291816e-1f;
    q = q * f - 1.238433570e-1f;
    q = q * f + 1.421866566e-1f;
    q = q * f - 1.666925251e-1f;
    q = q * f + 2.000222653e-1f;
    q = q * f - 2.499998659e-1f;
    q = q * f + 3.333331048e-1f;
    const float f2 = f * f;
    float y = (q * f) * f2 + n * -2.12194442e-4f;
    y = y - 0.5f * f2;
    y = (f + y) + n * 0.693359375f;
    y = x > 3.40282347e+38f ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x >= 0.0f ? y : NAN;
}

/* e^(2x) - 1 keeps its relative accuracy at 0, so tanh does too. Beyond 9.02 tanh rounds to 1. */
static inline float lp_tanhf(float x)
{
    float c = x > 9.02f ? 9.02f : x;
    c = c < -9.02f ? -9.02f : c;
    float half;
    const float p = lp_expm1_reduced(c + c, &half);
    const float e = half * p + (half - 0.5f); /* (e^(2x) - 1) / 2 */
    return e / (e + 1.0f);
}

/* |x| < 1: x + x Q(x^2). Else 1 - exp(-Q(|x|)), Q a fit of -log(erfc) on [1, 4]; at 4 erf is 1. */
static inline float lp_erff(float x)
{
    const float u = x * x;
    float s = -5.660156021e-4f;
    s = s * u + 4.924789537e-3f;
    s = s * u - 2.671770751e-2f;
    s = s * u + 1.128041148e-1f;
    s = s * u - 3.761235476e-1f;
    s = s * u + 1.283791214e-1f;
    const float small = s * x + x;
    const float a0 = x < 0.0f ? -x : x;
    const float a = a0 > 4.0f ? 4.0f : a0;
    float q = -1.856945746e-4f;
    q = q * a + 2.940839622e-3f;
    q = q * a - 2.181045152e-2f;
    q = q * a + 1.030485332e-1f;
    q = q * a + 6.382123232e-1f;
    q = q * a + 1.127048373e+0f;
    q = q * a + 3.515801509e-4f;
    float half;
    const float p = lp_expm1_reduced(-q, &half);
    const float big = 1.0f - (half + half * p) * 2.0f;
    const float y = x < 0.0f ? -big : big;
    return a0 < 1.0f ? small : (x == x ? y : x);
}

static inline float lp_sigmoidf(float x)
{
    return 1.0f / (1.0f + lp_expf(-x));
}

/* bf16 is the upper half of a float. Rounds to nearest, ties to even; a NaN keeps a mantissa bit.
 */
static inline uint16_t lp_bf16_of_float(float x)
{
    const uint32_t u = lp_bits_of_float(x);
    const uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
    return (uint16_t)((x == x ? rounded : (u | 0x00400000u)) >> 16);
}

static inline float lp_float_of_bf16(uint16_t x)
{
    return lp_float_of_bits((uint32_t)x << 16);
}

/* fp16, to nearest even: infinite from 65520 on, subnormal below 2^-14. Adding 0.5 to a number
 * below 2^-14 leaves its multiple of 2^-24, rounded, in the low bits of the sum. */
static inline uint16_t lp_f16_of_float(float x)
{
    const uint32_t bits = lp_bits_of_float(x);
    const uint32_t u = bits & 0x7fffffffu;
    const uint32_t half = 0x3f000000u;
    const uint32_t small = lp_bits_of_float(lp_float_of_bits(u) + lp_float_of_bits(half)) - half;
    const uint32_t normal = (u - 0x38000000u + 0xfffu + ((u >> 13) & 1u)) >> 13;
    const uint32_t large = u > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const uint32_t finite = u < 0x38800000u ? small : normal;
    return (uint16_t)((u >= 0x47800000u ? large : finite) | ((bits >> 16) & 0x8000u));
}

static inline float lp_float_of_f16(uint16_t x)
{
    const uint32_t u = (uint32_t)(x & 0x7fffu) << 13;
    const uint32_t normal = u + 0x38000000u;
    const uint32_t small =
        lp_bits_of_float(lp_float_of_bits(u + 0x38800000u) - lp_float_of_bits(0x38800000u));
    const uint32_t finite = u < 0x00800000u ? small : normal;
    const uint32_t bits = u >= 0x0f800000u ? u + 0x70000000u : finite;
    return lp_float_of_bits(bits | (uint32_t)(x & 0x8000u) << 16);
}

/* What a number becomes when it is stored in 16 bits and read again. */
static inline float lp_round_bf16(float x)
{
    return lp_float_of_bf16(lp_bf16_of_float(x));
}

static inline float lp_round_f16(float x)
{
    return lp_float_of_f16(lp_f16_of_float(x));
}

/* The position at a place of a sequence that is dealt out: of `runs` runs of `run` positions, run i
 * and run runs - 1 - i lie side by side. */
static inline long lp_position(long place, long run, long runs)
{
    const long at = place / run;
    return (at % 2 == 0 ? at / 2 : runs - 1 - at / 2) * run + place % run;
}

#endif
