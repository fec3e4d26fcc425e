/* test_flat.c - the template of flat kernels against eval_node and plain loops. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "templates/host/exact.h"
#include "templates/host/flat.h"

#include "ir/base/rng.h"
#include "ir/eval.h"
#include "tests/check.h"

enum { N = 1003 };

/* Three steps of AdamW with clipping and decay, next to the op that defines it. */
static void test_adamw(void **state)
{
    (void)state;
    Arena *arena = arena_new("flat");
    Net *net = ARENA_NEW(arena, Net);
    *net = (Net){.name = "flat", .arena = arena};
    DimId dim = net_add_dim(net, "e", DIM_OTHER, N);
    Graph *graph = net_add_class(net, "flat");
    ValueId in[7];
    static const char *const names[7] = {"w", "m", "v", "g", "coef", "lr", "step"};
    for (int i = 0; i < 7; i++)
        in[i] = graph_value(graph, VALUE_INPUT, names[i], i < 4, &dim);
    Attrs attrs = {.adamw = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1}};
    NodeId node = graph_node(graph, OP_ADAMW, "adamw", "e,e,e,e,,,->e,e,e", &attrs, in, 7);
    double exact[4][N], next[3][N];
    float w[N], m[N], v[N], g[N];
    for (int i = 0; i < N; i++) {
        w[i] = (float)rng_normal(1, 0, (uint64_t)i);
        exact[0][i] = w[i];
        exact[1][i] = exact[2][i] = m[i] = v[i] = 0;
    }
    for (int step = 1; step <= 3; step++) {
        const double coef = 0.5, lr = 0.01, count = step;
        for (int i = 0; i < N; i++)
            exact[3][i] = g[i] = (float)rng_normal(2, (uint64_t)step, (uint64_t)i);
        const double *const operands[7] = {exact[0], exact[1], exact[2], exact[3],
                                           &coef,    &lr,      &count};
        double *const results[3] = {next[0], next[1], next[2]};
        const int64_t extent[MAX_LETTERS] = {N}, origin[MAX_LETTERS] = {0};
        eval_node(net, graph, &graph->nodes.at[node], operands, results, extent, origin, NULL);
        memcpy(exact, next, sizeof next);
        lp_adamw(N, lp_adam(0.9, 0.95, 1e-8, 0.1, lr, count, coef), w, m, v, g);
    }
    for (int i = 0; i < N; i++) {
        assert_true(fabs(w[i] - exact[0][i]) < 2e-6);
        assert_true(fabs(m[i] - exact[1][i]) < 1e-6);
        assert_true(fabs(v[i] - exact[2][i]) < 1e-6);
    }
    arena_free(arena);
}

/* Multiples of 1/1024 whose squares add up in a whole number: the sum is the right one, to the
 * last bit. */
static void test_squares_whole(void **state)
{
    (void)state;
    static const long sizes[] = {0, 1, 1023, 1025, 40000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        float *x = malloc((size_t)(sizes[s] + 1) * sizeof *x);
        uint64_t want = 0;
        for (long i = 0; i < sizes[s]; i++) {
            int64_t k = (int64_t)(rng_unit(3, 0, (uint64_t)i) * (1 << 19));
            x[i] = (float)k / 1024.0f;
            want += (uint64_t)(k * k);
        }
        LpExact sum = {{0.0}};
        lp_exact_squares(&sum, sizes[s], x);
        assert_true(lp_exact_value(&sum) == ldexp((double)want, -20));
        free(x);
    }
}

enum { WIDE = 5000 };

/* Floats of every exponent, subnormal ones too. */
static void wide_floats(float *ret)
{
    for (int i = 0; i < WIDE; i++) {
        double unit = rng_unit(7, 0, (uint64_t)i),
               sign = rng_unit(7, 1, (uint64_t)i) < 0.5 ? -1 : 1;
        int exponent = -148 + (int)(275.0 * rng_unit(7, 2, (uint64_t)i));
        ret[i] = (float)(sign * ldexp(0.5 + 0.5 * unit, exponent));
    }
}

/* However numbers are cut among ranks, and in which order ranks add their digits: the same bits. */
static void test_squares_cut(void **state)
{
    (void)state;
    float x[WIDE];
    wide_floats(x);
    LpExact whole = {{0.0}};
    lp_exact_squares(&whole, WIDE, x);
    double want = lp_exact_value(&whole);
    long double about = 0;
    for (int i = 0; i < WIDE; i++)
        about += (long double)x[i] * x[i];
    assert_true(fabsl(want - about) <= 1e-15L * about);
    for (uint64_t seed = 0; seed < 50; seed++) {
        LpExact ranks[8], sum = {{0.0}};
        memset(ranks, 0, sizeof ranks);
        for (int begin = 0; begin < WIDE;) {
            int most = 1 + (int)(3000.0 * rng_unit(seed, 1, (uint64_t)begin));
            int n = WIDE - begin < most ? WIDE - begin : most;
            lp_exact_squares(&ranks[(int)(8.0 * rng_unit(seed, 2, (uint64_t)begin))], n, x + begin);
            begin += n;
        }
        for (int r = 0; r < 8; r++)
            for (int k = 0; k < LP_EXACT_DIGITS; k++)
                sum.digit[k] += ranks[(r + (int)seed) % 8].digit[k];
        assert_true(lp_exact_value(&sum) == want);
    }
}

static void test_squares_wild(void **state)
{
    (void)state;
    float x[WIDE];
    wide_floats(x);
    x[1500] = INFINITY;
    LpExact sum = {{0.0}}, other = {{0.0}};
    lp_exact_squares(&sum, WIDE, x);
    assert_true(isinf(lp_exact_value(&sum)));
    lp_exact_squares(&sum, 100, x); /* what comes behind it does not heal it */
    assert_true(isinf(lp_exact_value(&sum)));
    x[1500] = NAN;
    lp_exact_squares(&other, WIDE, x);
    assert_true(isnan(lp_exact_value(&other)));
}

/* [outer][n][block] and back, and one block of many. */
static void test_blocks(void **state)
{
    (void)state;
    enum { OUTER = 5, BLOCKS = 3, WIDTH = 7 };
    int from[OUTER][BLOCKS][WIDTH], packed[BLOCKS][OUTER][WIDTH], back[OUTER][BLOCKS][WIDTH];
    for (int i = 0; i < OUTER * BLOCKS * WIDTH; i++)
        ((int *)from)[i] = i;
    lp_pack_blocks(packed, from, OUTER, BLOCKS, sizeof from[0][0]);
    for (int o = 0; o < OUTER; o++) {
        for (int k = 0; k < BLOCKS; k++)
            assert_memory_equal(packed[k][o], from[o][k], sizeof from[0][0]);
    }
    lp_unpack_blocks(back, packed, OUTER, BLOCKS, sizeof from[0][0]);
    assert_memory_equal(back, from, sizeof from);
}

static void test_accumulate(void **state)
{
    (void)state;
    float to[4] = {NAN, NAN, NAN, NAN};
    const float from[4] = {1, 2, 3, 4};
    lp_accumulate(4, to, from, 1);
    lp_accumulate(4, to, from, 0);
    for (int i = 0; i < 4; i++)
        assert_true(to[i] == 2 * from[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adamw),       cmocka_unit_test(test_squares_whole),
        cmocka_unit_test(test_squares_cut), cmocka_unit_test(test_squares_wild),
        cmocka_unit_test(test_blocks),      cmocka_unit_test(test_accumulate)};
    return cmocka_run_group_tests_name("flat", tests, NULL, NULL);
}
