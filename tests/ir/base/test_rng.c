/* test_rng.c - Philox against its published known answers; the distributions against theory. */
#include "ir/base/rng.h"

#include <math.h>
#include <stdbool.h>

#include "runtime/io/philox.h"
#include "templates/host/draw.h"
#include "tests/check.h"

/* Known answers published with the generator (Random123, kat_vectors, philox4x32 10). */
static const struct {
    uint64_t key, lo, hi;
    uint32_t words[4];
} known[] = {
    {0, 0, 0, {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}},
    {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}},
    {0x299f31d0a4093822u,
     0x85a308d3243f6a88u,
     0x0370734413198a2eu,
     {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}},
};

static void test_known_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t words[4];
        rng_philox(known[i].key, known[i].lo, known[i].hi, words);
        for (int w = 0; w < 4; w++)
            assert_int_equal(words[w], known[i].words[w]);
    }
}

static void test_every_argument_counts(void **state)
{
    (void)state;
    uint64_t base = rng_u64(1, 2, 3);
    assert_true(base == rng_u64(1, 2, 3));
    assert_true(base != rng_u64(2, 2, 3));
    assert_true(base != rng_u64(1, 3, 3));
    assert_true(base != rng_u64(1, 2, 4));
    assert_true(base != rng_u64(1 + (UINT64_C(1) << 32), 2, 3));
    assert_true(base != rng_u64(1, 2 + (UINT64_C(1) << 32), 3));
    assert_true(base != rng_u64(1, 2, 3 + (UINT64_C(1) << 32)));
}

/* Bounds are six standard errors of the mean of n draws. */
static void test_unit_is_uniform(void **state)
{
    (void)state;
    enum { N = 200000, BINS = 16 };
    int bins[BINS] = {0};
    double sum = 0;
    for (int i = 0; i < N; i++) {
        double unit = rng_unit(7, 0, (uint64_t)i);
        assert_true(unit > 0.0 && unit < 1.0);
        bins[(int)(unit * BINS)]++;
        sum += unit;
    }
    assert_true(fabs(sum / N - 0.5) < 6 * sqrt(1.0 / 12 / N));
    for (int b = 0; b < BINS; b++)
        assert_true(fabs((double)bins[b] / N - 1.0 / BINS) <
                    6 * sqrt(1.0 / BINS * (1 - 1.0 / BINS) / N));
}

static void test_normal_has_its_moments(void **state)
{
    (void)state;
    enum { N = 200000 };
    double sum = 0, squares = 0, cubes = 0, beyond = 0, lagged = 0, before = 0;
    for (int i = 0; i < N; i++) {
        double z = rng_normal(7, 1, (uint64_t)i);
        assert_true(isfinite(z));
        sum += z;
        squares += z * z;
        cubes += z * z * z;
        beyond += fabs(z) > 1.959963984540054;
        lagged += z * before;
        before = z;
    }
    double error = 6 / sqrt(N);
    assert_true(fabs(sum / N) < error);
    assert_true(fabs(squares / N - 1) < error * sqrt(2));
    assert_true(fabs(cubes / N) < error * sqrt(15));
    assert_true(fabs(lagged / N) < error);
    assert_true(fabs(beyond / N - 0.05) < error * sqrt(0.05 * 0.95));
}

/* What the evaluator draws, what emitted kernels draw, and the runtime's generator: bit for bit.
 * (The CUDA text is compared on the values of whole kernels.) */
static void test_draws_agree(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 10000; i++) {
        uint64_t seed = rng_u64(1, 0, i), index = rng_u64(1, 1, i) >> (i % 64);
        uint32_t stream = (uint32_t)rng_u64(1, 2, i), words[4];
        lp_philox(seed, stream, LP_STREAM_DRAW, index, words);
        assert_int_equal(rng_drop_word(seed, stream, index), words[0]);
        assert_int_equal(lp_draw((long)seed, (long)stream, (long)index), words[0]);
    }
}

/* The share that is dropped, and that neighbours, streams and seeds know nothing of each other:
 * within six standard errors. */
static void test_drop_rate(void **state)
{
    (void)state;
    enum { N = 200000 };
    static const double rates[] = {0.001, 0.1, 0.5, 0.9};
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        uint32_t below = rng_drop_below(rates[r]);
        int dropped = 0, both[3] = {0};
        for (uint64_t i = 0; i < N; i++) {
            bool here = rng_drop_word(5, 7, i) < below;
            dropped += here;
            both[0] += here && rng_drop_word(5, 7, i + 1) < below;
            both[1] += here && rng_drop_word(5, 8, i) < below;
            both[2] += here && rng_drop_word(6, 7, i) < below;
        }
        double p = rates[r], pp = p * p;
        assert_true(fabs((double)dropped / N - p) < 6 * sqrt(p * (1 - p) / N));
        for (int k = 0; k < 3; k++)
            assert_true(fabs((double)both[k] / N - pp) < 6 * sqrt(pp * (1 - pp) / N) + 3.0 / N);
    }
    assert_int_equal(rng_drop_below(0), 0);
    assert_int_equal(rng_drop_below(1), 0xffffffffu);
    assert_int_equal(rng_drop_below(0.5), 0x80000000u);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_draws_agree),     cmocka_unit_test(test_drop_rate),
    cmocka_unit_test(test_known_answers),   cmocka_unit_test(test_every_argument_counts),
    cmocka_unit_test(test_unit_is_uniform), cmocka_unit_test(test_normal_has_its_moments),
};

RUN(tests)
