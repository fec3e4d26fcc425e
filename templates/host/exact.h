/* exact.h - sums of squares without rounding, so that no order of adding changes a bit.
 *
 * A double holds the square of a float exactly. Squares are split along a fixed grid, one digit of
 * 32 bits after the other, by adding and taking away a number so large that what lies below the
 * digit is rounded off (Rump, Ogita, Oishi 2008, "Accurate floating-point summation"; on a fixed
 * grid: Demmel, Nguyen 2013, "Fast reproducible floating-point summation"). A digit's parts add up
 * without rounding, whatever their order; ranks add their digits as doubles, which hold such sums
 * exactly up to 2^20 ranks. So however a plan cuts parameters among ranks and stages, the norm of
 * all gradients has the same bits. */
#ifndef LP_EXACT_H
#define LP_EXACT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "templates/host/tile.h"

/* Digit k counts 2^(32 k - 298), of which the smallest square is one of digit 0. Squares reach
 * into digit 17, sums of 2^60 of them into digit 19. */
#define LP_EXACT_DIGITS 20
#define LP_EXACT_UNIT (-298)
#define LP_EXACT_RUN 1024 /* so many parts of a digit, of 33 bits, add up exactly in a double */

/* Whole numbers; the last one is infinite or NaN where some number was. */
typedef struct LpExact {
    double digit[LP_EXACT_DIGITS];
} LpExact;

/* Every digit but the last in [0, 2^32) again. */
static LP_INLINE void lp_exact_carry(int64_t *digits)
{
    for (int k = 0; k + 1 < LP_EXACT_DIGITS; k++) {
        const int64_t low = digits[k] & 0xffffffff;
        digits[k + 1] += (digits[k] - low) / 4294967296;
        digits[k] = low;
    }
}

/* Adds Σ x² of a run to the digits; returns it where it is not finite, or 0. */
static LP_INLINE double lp_exact_run(int n, const float *x, int64_t *digits)
{
    double rest[LP_EXACT_RUN];
    double left = 0.0; /* is anything, and no less than the largest of it */
#pragma omp simd reduction(+ : left)
    for (int i = 0; i < n; i++) {
        rest[i] = (double)x[i] * x[i];
        left += rest[i];
    }
    if (!isfinite(left))
        return left;
    for (int k = left > 0.0 ? (ilogb(left) - LP_EXACT_UNIT) / 32 : 0; left > 0.0; k--) {
        const double large = ldexp(1.5, 52 + 32 * k + LP_EXACT_UNIT);
        double sum = 0.0;
        left = 0.0;
#pragma omp simd reduction(+ : sum, left)
        for (int i = 0; i < n; i++) {
            const double part = (rest[i] + large) - large;
            rest[i] -= part;
            sum += part;
            left += fabs(rest[i]);
        }
        digits[k] += (int64_t)ldexp(sum, -32 * k - LP_EXACT_UNIT);
    }
    lp_exact_carry(digits);
    return 0.0;
}

/* Adds Σ x² of n floats. */
static LP_MAYBE_UNUSED void lp_exact_squares(LpExact *sum, long n, const float *x)
{
    const long runs = (n + LP_EXACT_RUN - 1) / LP_EXACT_RUN;
    const double last = sum->digit[LP_EXACT_DIGITS - 1];
    double wild = isfinite(last) ? 0.0 : last;
    int64_t all[LP_EXACT_DIGITS];
    for (int k = 0; k < LP_EXACT_DIGITS; k++)
        all[k] = isfinite(sum->digit[k]) ? (int64_t)sum->digit[k] : 0;
#pragma omp parallel reduction(+ : wild)
    {
        int64_t own[LP_EXACT_DIGITS] = {0};
#pragma omp for schedule(static) nowait
        for (long r = 0; r < runs; r++) {
            const long begin = r * LP_EXACT_RUN;
            const int count = n - begin < LP_EXACT_RUN ? (int)(n - begin) : LP_EXACT_RUN;
            wild += lp_exact_run(count, x + begin, own);
        }
#pragma omp critical(lp_exact_all)
        for (int k = 0; k < LP_EXACT_DIGITS; k++)
            all[k] += own[k];
    }
    lp_exact_carry(all);
    for (int k = 0; k < LP_EXACT_DIGITS; k++)
        sum->digit[k] = (double)all[k];
    sum->digit[LP_EXACT_DIGITS - 1] += wild;
}

/* The sum as a double; digits may be those of many ranks, added. */
static LP_MAYBE_UNUSED double lp_exact_value(const LpExact *sum)
{
    const double last = sum->digit[LP_EXACT_DIGITS - 1];
    int64_t digits[LP_EXACT_DIGITS];
    double value = 0.0;
    if (!isfinite(last))
        return last;
    for (int k = 0; k < LP_EXACT_DIGITS; k++)
        digits[k] = (int64_t)sum->digit[k];
    lp_exact_carry(digits);
    for (int k = 0; k < LP_EXACT_DIGITS; k++)
        value += ldexp((double)digits[k], 32 * k + LP_EXACT_UNIT);
    return value;
}

#endif
