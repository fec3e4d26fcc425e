/* math_test.c - the polynomials of math.h against double libm, over all floats by a prime stride.
 *
 * A stride of 509 bit patterns visits 8.4 million floats of every sign, binade and mantissa
 * region; the arguments where errors peak in an exhaustive sweep are added by hand. */
#include "templates/host/math.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define STRIDE 509u

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* One unit in the last place of a float near x; subnormal results count in units of FLT_MIN. */
static double ulp_of(double x)
{
    int exponent = 0;
    const double a = fabs(x) < 0x1p-126 ? 0x1p-126 : fabs(x);
    frexp(a, &exponent);
    return ldexp(1.0, exponent - 24);
}

static void check_at(const char *name, float (*f)(float), double (*exact)(double), float x,
                     double bound_ulp)
{
    const double want = exact(x);
    const float got = f(x);
    if (isnan(want) || isinf((float)want)) {
        if (isnan(want) ? !isnan(got) : got != (float)want) {
            fail_msg("%s(%.9g) = %.9g, not %.9g", name, (double)x, (double)got, want);
        }
        return;
    }
    const double e = fabs(got - want) / ulp_of(want);
    if (!(e <= bound_ulp)) {
        fail_msg("%s(%.9g) = %.9g is %.2f ulp off", name, (double)x, (double)got, e);
    }
}

static void sweep(const char *name, float (*f)(float), double (*exact)(double), float low,
                  float high, double bound_ulp)
{
    for (uint32_t i = 0; i < UINT32_MAX - STRIDE; i += STRIDE) {
        const float x = lp_float_of_bits(i);
        if (isnan(x) || (x >= low && x <= high)) {
            check_at(name, f, exact, x, bound_ulp);
        }
    }
}

static void test_exp(void **state)
{
    (void)state;
    sweep("exp", lp_expf, exp, -86.98f, 88.7228f, 2);
    check_at("exp", lp_expf, exp, -86.9353027f, 2);
    assert_true(lp_expf(-INFINITY) == 0.0f);
    assert_true(lp_expf(-87.0f) == 0.0f);
    assert_true(lp_expf(-1e30f) == 0.0f);
    assert_true(lp_expf(0.0f) == 1.0f);
    assert_true(lp_expf(88.73f) == INFINITY);
    assert_true(lp_expf(INFINITY) == INFINITY);
    assert_true(isfinite(lp_expf(88.7228f)));
}

static void test_log(void **state)
{
    (void)state;
    sweep("log", lp_logf, log, -INFINITY, INFINITY, 2);
    check_at("log", lp_logf, log, 0.703049541f, 2);
    check_at("log", lp_logf, log, 1e-45f, 2);
    assert_true(lp_logf(0.0f) == -INFINITY);
    assert_true(lp_logf(1.0f) == 0.0f);
    assert_true(isnan(lp_logf(-1.0f)));
    assert_true(lp_logf(INFINITY) == INFINITY);
}

static void test_tanh(void **state)
{
    (void)state;
    sweep("tanh", lp_tanhf, tanh, -INFINITY, INFINITY, 4);
    check_at("tanh", lp_tanhf, tanh, -3.58953714f, 4);
    assert_true(lp_tanhf(-INFINITY) == -1.0f);
}

static void test_erf(void **state)
{
    (void)state;
    sweep("erf", lp_erff, erf, -INFINITY, INFINITY, 4);
    check_at("erf", lp_erff, erf, 0.968820453f, 4);
    assert_true(lp_erff(INFINITY) == 1.0f);
}

static void test_sigmoid(void **state)
{
    (void)state;
    sweep("sigmoid", lp_sigmoidf, sigmoid, -86.0f, INFINITY, 4);
    check_at("sigmoid", lp_sigmoidf, sigmoid, -16.6542969f, 4);
    assert_true(lp_sigmoidf(-INFINITY) == 0.0f);
    assert_true(lp_sigmoidf(-100.0f) == 0.0f);
}

/* A loop of vectors must give the bits of one call: lanes and scalars run the same operations. */
static void test_vectors_equal_scalars(void **state)
{
    (void)state;
    float x[1000];
    float y[5][1000];
    for (int i = 0; i < 1000; i++) {
        x[i] = (float)(i - 500) * 0.17f;
    }
#pragma omp simd
    for (int i = 0; i < 1000; i++) {
        y[0][i] = lp_expf(x[i]);
        y[1][i] = lp_logf(x[i]);
        y[2][i] = lp_tanhf(x[i]);
        y[3][i] = lp_erff(x[i]);
        y[4][i] = lp_sigmoidf(x[i]);
    }
    float (*volatile one[5])(float) = {lp_expf, lp_logf, lp_tanhf, lp_erff, lp_sigmoidf};
    for (int f = 0; f < 5; f++) {
        for (int i = 0; i < 1000; i++) {
            const float want = one[f](x[i]);
            assert_true(y[f][i] == want || (isnan(want) && isnan(y[f][i])));
        }
    }
}

/* The value of the bits, by the definition of the format. */
static double f16_value(unsigned h)
{
    const int exponent = (int)(h >> 10 & 31u);
    const int fraction = (int)(h & 1023u);
    return exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
}

/* All finite numbers, and what lies half way between neighbours and just beside it. */
static void test_f16(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7c00u; h++) {
        const double x = f16_value(h);
        const double next = h == 0x7bffu ? 65536.0 : f16_value(h + 1);
        const float middle = (float)((x + next) / 2); /* exact */
        assert_true((double)lp_float_of_f16((uint16_t)h) == x);
        assert_true((double)lp_float_of_f16((uint16_t)(h | 0x8000u)) == -x);
        assert_int_equal(lp_f16_of_float((float)x), h);
        assert_int_equal(lp_f16_of_float(-(float)x), h | 0x8000u);
        assert_int_equal(lp_f16_of_float(middle), h + (h & 1u));
        assert_int_equal(lp_f16_of_float(nextafterf(middle, 0.0f)), h);
        assert_int_equal(lp_f16_of_float(nextafterf(middle, INFINITY)), h + 1);
    }
    assert_int_equal(lp_f16_of_float(INFINITY), 0x7c00);
    assert_int_equal(lp_f16_of_float(-3e38f), 0xfc00);
    assert_true(lp_float_of_f16(0xfc00) == -INFINITY);
    assert_true(isnan(lp_float_of_f16(0x7c01)));
    assert_true(isnan(lp_float_of_f16(lp_f16_of_float(NAN))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),     cmocka_unit_test(test_log),
        cmocka_unit_test(test_tanh),    cmocka_unit_test(test_erf),
        cmocka_unit_test(test_sigmoid), cmocka_unit_test(test_vectors_equal_scalars),
        cmocka_unit_test(test_f16),
    };
    return cmocka_run_group_tests_name("math", tests, NULL, NULL);
}
