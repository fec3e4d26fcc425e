/* gemm_test.c - lp_gemm, lp_gemm_bf16 and lp_gemm_typed against a product in double; built once per
 * back end. */
#include "templates/host/gemm.h"
#include "templates/host/gemm_bf16.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct Shape {
    int m, n, k;
} Shape;

static const Shape shapes[] = {{1, 1, 1},     {7, 5, 3},     {64, 64, 64},  {65, 63, 17},
                               {3, 200, 300}, {300, 3, 200}, {130, 70, 513}};

static float *filled(long count, uint32_t seed)
{
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (long i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
    return x;
}

static float rounded(float x, int bf16)
{
    return bf16 ? lp_float_of_bf16(lp_bf16_of_float(x)) : x;
}

static void check(Shape s, int ta, int tb, float alpha, float beta, int bf16)
{
    const int lda = (ta ? s.m : s.k) + 3;
    const int ldb = (tb ? s.k : s.n) + 1;
    const int ldc = s.n + 2;
    float *a = filled((long)(ta ? s.k : s.m) * lda, 1);
    float *b = filled((long)(tb ? s.n : s.k) * ldb, 2);
    float *c = filled((long)s.m * ldc, 3);
    float *old = filled((long)s.m * ldc, 3);
    for (long i = 0; beta == 0.0f && i < (long)s.m * ldc; i++) {
        c[i] = NAN;
    }
    if (bf16) {
        const size_t bytes = LP_GEMM_BF16_BYTES(s.m, s.n, s.k);
        char *scratch = aligned_alloc(64, bytes + 64);
        assert_non_null(scratch);
        scratch[bytes] = 0x5a;
        lp_gemm_bf16(ta, tb, s.m, s.n, s.k, alpha, a, lda, b, ldb, beta, c, ldc, scratch);
        lp_gemm_bf16(ta, tb, s.m, s.n, s.k, 0.0f, a, lda, b, ldb, 1.0f, c, ldc, scratch);
        assert_int_equal(scratch[bytes], 0x5a);
        free(scratch);
    } else {
        lp_gemm(ta, tb, s.m, s.n, s.k, alpha, a, lda, b, ldb, beta, c, ldc);
    }
    for (int i = 0; i < s.m; i++) {
        for (int j = 0; j < s.n; j++) {
            double sum = 0;
            for (int x = 0; x < s.k; x++) {
                const float left = a[ta ? (long)x * lda + i : (long)i * lda + x];
                const float right = b[tb ? (long)j * ldb + x : (long)x * ldb + j];
                sum += (double)rounded(left, bf16) * rounded(right, bf16);
            }
            const double want = alpha * sum + (double)beta * old[(long)i * ldc + j];
            if (!(fabs(c[(long)i * ldc + j] - want) < 3e-6 * sqrt(s.k) + 1e-6)) {
                fail_msg("m %d n %d k %d trans %d %d alpha %g beta %g bf16 %d: [%d][%d] %g not %g",
                         s.m, s.n, s.k, ta, tb, (double)alpha, (double)beta, bf16, i, j,
                         (double)c[(long)i * ldc + j], want);
            }
        }
        const float gap = c[(long)i * ldc + s.n];
        assert_true(beta == 0.0f ? isnan(gap) : gap == old[(long)i * ldc + s.n]);
    }
    free(a);
    free(b);
    free(c);
    free(old);
}

static void check_all(int bf16)
{
    static const float factors[][2] = {{1, 0}, {1, 1}, {0.5f, 0.25f}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int trans = 0; trans < 4; trans++) {
            for (int f = 0; f < 3; f++) {
                check(shapes[i], trans & 1, trans >> 1, factors[f][0], factors[f][1], bf16);
            }
        }
    }
}

static void test_fp32(void **state)
{
    (void)state;
    lp_gemm_print(stderr);
    check_all(0);
}

static void test_bf16(void **state)
{
    (void)state;
    check_all(1);
}

static double stored(const void *x, LpElement element, long i)
{
    return (double)lp_element(x, element, i);
}

/* The same numbers as the element says. */
static void *as(const float *x, long count, LpElement element)
{
    LpMatrix m = {malloc((size_t)count * sizeof(float)), element, 0};
    assert_non_null(m.at);
    for (long i = 0; i < count; i++) {
        lp_gemm_store(&m, i, x[i]);
    }
    return m.at;
}

/* Each of the operands and the result in each of the types; the result is rounded once. */
static void check_typed(Shape s, int ta, int tb, const LpElement *e, float beta)
{
    static const double unit[] = {0x1p-23, 0x1p-8, 0x1p-11};
    const int lda = (ta ? s.m : s.k) + 3;
    const int ldb = (tb ? s.k : s.n) + 1;
    const int ldc = s.n + 2;
    float *x[3] = {filled((long)(ta ? s.k : s.m) * lda, 1), filled((long)(tb ? s.n : s.k) * ldb, 2),
                   filled((long)s.m * ldc, 3)};
    const long count[3] = {(long)(ta ? s.k : s.m) * lda, (long)(tb ? s.n : s.k) * ldb,
                           (long)s.m * ldc};
    void *at[3];
    for (int i = 0; i < 3; i++) {
        at[i] = as(x[i], count[i], e[i]);
    }
    void *old = as(x[2], count[2], e[2]);
    lp_gemm_typed(ta, tb, s.m, s.n, s.k, 1.0f, (LpMatrix){at[0], e[0], lda},
                  (LpMatrix){at[1], e[1], ldb}, beta, (LpMatrix){at[2], e[2], ldc});
    for (int i = 0; i < s.m; i++) {
        for (int j = 0; j < s.n; j++) {
            double want = beta * stored(old, e[2], (long)i * ldc + j);
            for (int k = 0; k < s.k; k++) {
                want += stored(at[0], e[0], ta ? (long)k * lda + i : (long)i * lda + k) *
                        stored(at[1], e[1], tb ? (long)j * ldb + k : (long)k * ldb + j);
            }
            const double got = stored(at[2], e[2], (long)i * ldc + j);
            const double bound = 3e-6 * sqrt(s.k) + 1e-6 + unit[e[2]] * fabs(want);
            if (!(fabs(got - want) <= bound)) {
                fail_msg("m %d n %d k %d trans %d %d types %d %d %d: [%d][%d] %g not %g", s.m, s.n,
                         s.k, ta, tb, (int)e[0], (int)e[1], (int)e[2], i, j, got, want);
            }
        }
        const long gap = (long)i * ldc + s.n;
        assert_true(stored(at[2], e[2], gap) == stored(old, e[2], gap));
    }
    for (int i = 0; i < 3; i++) {
        free(at[i]);
        free(x[i]);
    }
    free(old);
}

static void test_typed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int way = 0; way < 27 * 4; way++) {
            const LpElement e[3] = {(LpElement)(way % 3), (LpElement)(way / 3 % 3),
                                    (LpElement)(way / 9 % 3)};
            check_typed(shapes[i], way / 27 & 1, way / 27 >> 1, e,
                        e[2] == LP_ELEMENT_F32 ? 1.0f : 0.0f);
        }
    }
}

static void test_bf16_rounding(void **state)
{
    (void)state;
    assert_int_equal(lp_bf16_of_float(1.0f), 0x3f80);
    assert_int_equal(lp_bf16_of_float(0x1.01p0f), 0x3f80);     /* a tie, to even: down */
    assert_int_equal(lp_bf16_of_float(0x1.03p0f), 0x3f82);     /* a tie, to even: up */
    assert_int_equal(lp_bf16_of_float(0x1.010002p0f), 0x3f81); /* just above the tie */
    assert_int_equal(lp_bf16_of_float(INFINITY), 0x7f80);
    assert_int_equal(lp_bf16_of_float(3.4e38f), 0x7f80);
    assert_true(isnan(lp_float_of_bf16(lp_bf16_of_float(lp_float_of_bits(0x7f800001u)))));
    assert_true(isnan(lp_float_of_bf16(lp_bf16_of_float(lp_float_of_bits(0xffffffffu)))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp32),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_bf16_rounding),
        cmocka_unit_test(test_typed),
    };
    return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
