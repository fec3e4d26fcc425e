/* route_test.c - choosing experts: the templates against the meaning of their ops. */
#include "templates/host/route.c"

#include <stdlib.h>

#include "ir/base/rng.h"
#include "tests/check.h"
#include "tests/templates/eval_one.h"

enum { B = 3, S = 37, ROWS = B * S, E = 24, K = 5, MOST = ROWS * E };

static const NamedDim dims[] = {{"b", B}, {"s", S}, {"e", E}, {"k", K}};

/* Few different values, so that most rows have ties. */
static void coarse_scores(double *scores)
{
    for (int i = 0; i < ROWS * E; i++)
        scores[i] = floor(rng_unit(5, 1, (uint64_t)i) * 7) / 8;
}

static void random_choices(int32_t *choice, double *exact)
{
    for (int i = 0; i < ROWS * K; i++)
        exact[i] = choice[i] = (int32_t)floor(rng_unit(6, 2, (uint64_t)i) * (E + 1)) - 1;
}

static void check_topk(Attr_topk attrs)
{
    static double scores[ROWS * E], want[ROWS * K];
    static float x[ROWS * E];
    static int32_t got[ROWS * K];
    coarse_scores(scores);
    for (int i = 0; i < ROWS * E; i++)
        x[i] = (float)scores[i];
    eval_one(OP_TOPK, "bse->bsk", &(Attrs){.topk = attrs}, dims, 4, (const double *[]){scores},
             (double *[]){want}, NULL);
    const LpTopk t = {.rows = ROWS,
                      .experts = E,
                      .k = K,
                      .groups = attrs.groups ? (int)attrs.groups : 1,
                      .kept = attrs.groups ? (int)attrs.kept : 1,
                      .top2 = attrs.by == GROUP_TOP2};
    lp_topk(&t, x, got);
    for (int i = 0; i < ROWS * K; i++)
        assert_int_equal(got[i], (int)want[i]);
}

static void test_topk(void **state)
{
    (void)state;
    check_topk((Attr_topk){0});
    check_topk((Attr_topk){.groups = 4, .kept = 2, .by = GROUP_MAX});
    check_topk((Attr_topk){.groups = 4, .kept = 2, .by = GROUP_TOP2});
    check_topk((Attr_topk){.groups = E, .kept = K, .by = GROUP_TOP2});
    check_topk((Attr_topk){.groups = 2, .kept = 2, .by = GROUP_MAX});
}

/* The first of equals, all infinities included; a NaN is chosen by its row and by no other. */
static void test_topk_edges(void **state)
{
    (void)state;
    const float low = -INFINITY;
    const float x[4][4] = {{1, 1, 1, 1}, {low, low, low, low}, {0, 2, -1, 2}, {0, 2, NAN, 2}};
    int32_t choice[4][3];
    lp_topk(&(const LpTopk){.rows = 4, .experts = 4, .k = 3, .groups = 1, .kept = 1}, x[0],
            choice[0]);
    static const int32_t want[4][3] = {{0, 1, 2}, {0, 1, 2}, {1, 3, 0}, {2, 2, 2}};
    assert_memory_equal(choice, want, sizeof want);
}

static void check_capacity(long bound, int threads)
{
    static double exact[ROWS * K], want[ROWS * K];
    static int32_t choice[ROWS * K], got[ROWS * K];
    random_choices(choice, exact);
    Attrs attrs = {.capacity = {.experts = E, .bound = bound}};
    eval_one(OP_CAPACITY, "bsk->bsk", &attrs, dims, 4, (const double *[]){exact},
             (double *[]){want}, NULL);
    void *scratch = malloc(LP_CAPACITY_BYTES(E, threads));
    assert_non_null(scratch);
    lp_capacity(B, S, K, E, bound, choice, got, scratch, threads);
    free(scratch);
    int dropped = 0;
    for (int i = 0; i < ROWS * K; i++) {
        assert_int_equal(got[i], (int)want[i]);
        dropped += got[i] != choice[i];
    }
    assert_true(bound > 100 ? dropped == 0 : dropped > 0);
}

static void test_capacity(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        check_capacity(1, threads);
        check_capacity(5, threads);
        check_capacity(1000, threads);
    }
}

/* A later choice stays as often as its part of both shares says, and always where nothing is drawn.
 */
static void test_chance(void **state)
{
    (void)state;
    static double exact[ROWS * K], part[ROWS * K], drawn[ROWS], want[ROWS * K];
    static float share[ROWS * K];
    static int32_t choice[ROWS * K], word[ROWS], got[ROWS * K];
    random_choices(choice, exact);
    for (int i = 0; i < ROWS; i++)
        drawn[i] = word[i] = (int32_t)(rng_u64(5, 1, (uint64_t)i) >> 33);
    for (int i = 0; i < ROWS * K; i++)
        part[i] = share[i] = (float)exp(rng_normal(6, 2, (uint64_t)i));
    eval_one(OP_CHANCE, "bsk,bsk,bs->bsk", NULL, dims, 4, (const double *[]){exact, part, drawn},
             (double *[]){want}, NULL);
    lp_chance(ROWS, K, choice, share, word, 0, got);
    for (int i = 0; i < ROWS * K; i++)
        assert_int_equal(got[i], (int)want[i]);
    lp_chance(ROWS, K, choice, share, word, 1, got);
    assert_memory_equal(got, choice, sizeof got);
    enum { MANY = 20000 };
    static int32_t two[2 * MANY], left[2 * MANY], words[MANY];
    static float shares[2 * MANY];
    int kept = 0;
    for (int i = 0; i < MANY; i++) {
        words[i] = (int32_t)(rng_u64(9, 1, (uint64_t)i) >> 33);
        shares[2 * i] = 3, shares[2 * i + 1] = 1; /* half of them */
    }
    lp_chance(MANY, 2, two, shares, words, 0, left);
    for (int i = 0; i < MANY; i++)
        kept += left[2 * i + 1] >= 0;
    assert_true(abs(2 * kept - MANY) < 5 * 142); /* five standard deviations */
}

/* Blocks of experts: their counts side by side are the counts. */
static void test_tally(void **state)
{
    (void)state;
    static double exact[ROWS * K];
    static int32_t choice[ROWS * K];
    double want[E];
    float got[E];
    random_choices(choice, exact);
    eval_one(OP_TALLY, "bsk->e", NULL, dims, 4, (const double *[]){exact}, (double *[]){want},
             NULL);
    for (int blocks = 1; blocks <= 3; blocks++) {
        for (int b = 0; b < blocks; b++)
            lp_tally(ROWS * K, E / blocks, b * (E / blocks), choice, got + b * (E / blocks));
        for (int e = 0; e < E; e++)
            assert_true(got[e] == (float)want[e]);
    }
}

static void test_take_and_spread(void **state)
{
    (void)state;
    static double exact[ROWS * K], wide[MOST], few[ROWS * K], want[MOST];
    static float x[MOST], dy[ROWS * K], got[MOST];
    static int32_t choice[ROWS * K];
    random_choices(choice, exact);
    for (int i = 0; i < ROWS * E; i++)
        wide[i] = x[i] = (float)rng_normal(7, 3, (uint64_t)i);
    for (int i = 0; i < ROWS * K; i++)
        few[i] = dy[i] = (float)rng_normal(8, 4, (uint64_t)i);
    eval_one(OP_TAKE, "bsk,bse->bsk", NULL, dims, 4, (const double *[]){exact, wide},
             (double *[]){want}, NULL);
    lp_take(ROWS, E, K, choice, x, got);
    for (int i = 0; i < ROWS * K; i++)
        assert_true(got[i] == (float)want[i]);
    eval_one(OP_SPREAD, "bsk,bsk->bse", NULL, dims, 4, (const double *[]){exact, few},
             (double *[]){want}, NULL);
    lp_spread(ROWS, E, K, choice, dy, got);
    for (int i = 0; i < ROWS * E; i++)
        assert_true(fabs(got[i] - want[i]) <= 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topk),     cmocka_unit_test(test_topk_edges),
        cmocka_unit_test(test_capacity), cmocka_unit_test(test_chance),
        cmocka_unit_test(test_tally),    cmocka_unit_test(test_take_and_spread),
    };
    return cmocka_run_group_tests_name("route", tests, NULL, NULL);
}
