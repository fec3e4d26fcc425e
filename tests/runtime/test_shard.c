/* test_shard.c - boxes as runs, and initial values that do not know the plan. */
#include "runtime/io/shard.h"

#include "runtime/core/bf16.h"
#include "runtime/io/philox.h"
#include "tests/runtime/forked.h"

#include <math.h>

static uint32_t next_number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static LpShard random_box(uint32_t *state, bool padded)
{
    LpShard box = {.ndims = (int)(next_number(state) % 5)};
    for (int i = 0; i < box.ndims; i++) {
        box.dims[i] = 1 + next_number(state) % 5;
        box.begin[i] = next_number(state) % box.dims[i];
        box.extent[i] = 1 + next_number(state) % (box.dims[i] - box.begin[i]);
        if (next_number(state) % 2) {
            box.begin[i] = 0;
            box.extent[i] = box.dims[i];
        }
        if (padded && next_number(state) % 3 == 0)
            box.extent[i] += next_number(state) % 3;
        if (padded && next_number(state) % 9 == 0)
            box.begin[i] = box.dims[i] + 1;
    }
    return box;
}

/* Global index of each local element by counting dims; -1 is padding. */
static void map_slowly(const LpShard *box, int64_t *map)
{
    for (int64_t local = 0; local < lp_shard_count(box); local++) {
        int64_t rest = local, global = 0, step = 1;
        for (int i = box->ndims - 1; i >= 0; i--) {
            int64_t at = box->begin[i] + rest % box->extent[i];
            rest /= box->extent[i];
            global = at >= box->dims[i] || global < 0 ? -1 : global + at * step;
            step *= box->dims[i];
        }
        map[local] = global;
    }
}

static void runs_cover_the_box_in_order(void **state)
{
    uint32_t seed = 7;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        LpShard box = random_box(&seed, round % 2);
        int64_t want[4096], got[4096], last = -1;
        map_slowly(&box, want);
        for (int i = 0; i < 4096; i++)
            got[i] = -1;
        LpRuns runs = lp_runs_begin(&box);
        while (lp_runs_next(&runs)) {
            assert_true(runs.length > 0 && runs.local > last);
            for (int64_t i = 0; i < runs.length; i++)
                got[runs.local + i] = runs.global + i;
            last = runs.local + runs.length - 1;
        }
        assert_memory_equal(want, got, (size_t)lp_shard_count(&box) * sizeof *want);
    }
}

static void runs_are_as_long_as_can_be(void **state)
{
    (void)state;
    LpShard rows = {3, {8, 4, 5}, {2, 0, 0}, {3, 4, 5}};
    LpRuns runs = lp_runs_begin(&rows);
    assert_true(lp_runs_next(&runs));
    assert_int_equal(runs.length, 60);
    assert_int_equal(runs.global, 40);
    assert_false(lp_runs_next(&runs));
    LpShard columns = {2, {3, 10}, {0, 4}, {3, 2}};
    runs = lp_runs_begin(&columns);
    int count = 0;
    while (lp_runs_next(&runs)) {
        assert_int_equal(runs.length, 2);
        assert_int_equal(runs.global, 10 * count + 4);
        count++;
    }
    assert_int_equal(count, 3);
}

static void a_flat_range_is_few_boxes(void **state)
{
    uint32_t seed = 5;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        LpPart whole = {.tensor = 3, .shard = random_box(&seed, round % 2), .owner = round % 3};
        float data[4096];
        LpPart parts[2 * LP_MAX_DIMS];
        int64_t map[4096], own[4096], elements = lp_shard_count(&whole.shard);
        map_slowly(&whole.shard, map);
        int64_t begin = next_number(&seed) % elements;
        int64_t end = begin + 1 + next_number(&seed) % (elements - begin);
        int count = lp_part_cut(&whole, begin, end, data, parts);
        assert_in_range(count, 1, whole.shard.ndims ? 2 * whole.shard.ndims - 1 : 1);
        int64_t at = begin;
        for (int i = 0; i < count; i++) {
            int64_t n = lp_shard_count(&parts[i].shard);
            assert_int_equal(parts[i].tensor, 3);
            assert_int_equal(parts[i].owner, whole.owner);
            assert_ptr_equal(parts[i].data, data + (at - begin));
            assert_true(at + n <= end);
            map_slowly(&parts[i].shard, own);
            assert_memory_equal(own, map + at, (size_t)n * sizeof *own);
            at += n;
        }
        assert_int_equal(at, end);
    }
    LpPart none = {.shard = {1, {4}, {0}, {4}}};
    assert_int_equal(lp_part_cut(&none, 2, 2, NULL, &none), 0);
}

/* Known answers of Philox-4x32-10 from its authors' distribution. */
static void philox_gives_the_known_answers(void **state)
{
    (void)state;
    uint32_t got[4];
    static const uint32_t zeros[4] = {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u};
    static const uint32_t ones[4] = {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu};
    static const uint32_t pi[4] = {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u};
    lp_philox(0, 0, 0, 0, got);
    assert_memory_equal(got, zeros, sizeof zeros);
    lp_philox(UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX, got);
    assert_memory_equal(got, ones, sizeof ones);
    lp_philox(0x299f31d0a4093822u, 0x13198a2eu, 0x03707344u, 0x85a308d3243f6a88u, got);
    assert_memory_equal(got, pi, sizeof pi);
}

static void values_do_not_know_the_shard(void **state)
{
    (void)state;
    enum { COUNT = 7 * 6 * 9 };
    float whole[COUNT], part[COUNT + 64];
    uint32_t seed = 3;
    LpShard all = {3, {7, 6, 9}, {0, 0, 0}, {7, 6, 9}};
    lp_fill_shard(whole, LP_F32, &all, LP_NORMAL, 0.5, 11, 4);
    for (int round = 0; round < 200; round++) {
        LpShard box = {3, {7, 6, 9}, {0}, {0}};
        int64_t map[COUNT];
        for (int i = 0; i < 3; i++) {
            box.begin[i] = next_number(&seed) % box.dims[i];
            box.extent[i] = 1 + next_number(&seed) % (box.dims[i] - box.begin[i]);
        }
        map_slowly(&box, map);
        lp_fill_shard(part, LP_F32, &box, LP_NORMAL, 0.5, 11, 4);
        for (int64_t i = 0; i < lp_shard_count(&box); i++)
            assert_true(part[i] == whole[map[i]]);
    }
    LpShard reshaped = {2, {42, 9}, {12, 0}, {6, 9}};
    lp_fill_shard(part, LP_F32, &reshaped, LP_NORMAL, 0.5, 11, 4);
    assert_memory_equal(part, whole + 12 * 9, 6 * 9 * sizeof(float));
    lp_fill_shard(part, LP_F32, &all, LP_NORMAL, 0.5, 11, 5);
    assert_true(memcmp(part, whole, sizeof whole) != 0);
    lp_fill_shard(part, LP_F32, &all, LP_NORMAL, 0.5, 12, 4);
    assert_true(memcmp(part, whole, sizeof whole) != 0);
}

static void normal_values_are_normal(void **state)
{
    (void)state;
    enum { COUNT = 400000 };
    double *x = malloc(COUNT * sizeof *x), mean = 0, square = 0, fourth = 0, lag = 0;
    LpShard all = {1, {COUNT}, {0}, {COUNT}};
    lp_fill_shard(x, LP_F64, &all, LP_NORMAL, 2, 1, 0);
    for (int i = 0; i < COUNT; i++) {
        mean += x[i] / COUNT;
        square += x[i] * x[i] / COUNT;
        fourth += x[i] * x[i] * x[i] * x[i] / COUNT;
        lag += i > 0 ? x[i] * x[i - 1] / COUNT : 0;
    }
    /* Six standard errors of each figure. */
    assert_true(fabs(mean) < 6 * 2 / sqrt(COUNT));
    assert_true(fabs(square - 4) < 6 * 4 * sqrt(2.0 / COUNT));
    assert_true(fabs(fourth - 48) < 6 * 16 * sqrt(96.0 / COUNT));
    assert_true(fabs(lag) < 6 * 4 / sqrt(COUNT));
    free(x);
}

static void padding_is_zero_and_types_agree(void **state)
{
    (void)state;
    LpShard box = {2, {5, 3}, {4, 0}, {3, 4}};
    float single[12];
    double wide[12];
    uint16_t half[12];
    lp_fill_shard(single, LP_F32, &box, LP_ONES, 0, 1, 0);
    static const float want[12] = {1, 1, 1, 0};
    assert_memory_equal(single, want, sizeof want);
    lp_fill_shard(single, LP_F32, &box, LP_NORMAL, 1, 1, 0);
    lp_fill_shard(wide, LP_F64, &box, LP_NORMAL, 1, 1, 0);
    lp_fill_shard(half, LP_BF16, &box, LP_NORMAL, 1, 1, 0);
    for (int i = 0; i < 12; i++) {
        assert_true(single[i] == (float)wide[i]);
        assert_int_equal(half[i], lp_f32_to_bf16(single[i]));
        assert_true((single[i] == 0) == (i >= 3));
    }
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    assert_int_equal(lp_f32_to_bf16(1.0f), 0x3f80);
    assert_int_equal(lp_f32_to_bf16(1.00390625f), 0x3f80); /* half way: to even */
    assert_int_equal(lp_f32_to_bf16(1.01171875f), 0x3f82);
    assert_int_equal(lp_f32_to_bf16(1.0039064f), 0x3f81);
    assert_int_equal(lp_f32_to_bf16(3.4e38f), 0x7f80);
    assert_int_equal(lp_f32_to_bf16(-INFINITY), 0xff80);
    assert_true(isnan(lp_bf16_to_f32(lp_f32_to_bf16(NAN))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_cover_the_box_in_order),
        cmocka_unit_test(runs_are_as_long_as_can_be),
        cmocka_unit_test(a_flat_range_is_few_boxes),
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(values_do_not_know_the_shard),
        cmocka_unit_test(normal_values_are_normal),
        cmocka_unit_test(padding_is_zero_and_types_agree),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
