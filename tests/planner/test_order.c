/* test_order.c - schedules in topological order: the same times as the schedule itself, paths that
 * bound, slots that suffice. */
#include "ir/lower/program.h"
#include "planner/order.h"
#include "tests/check.h"
#include "tests/planner/problems.h"

typedef struct Sample {
    ScheduleKind kind;
    int stages, micros;
} Sample;

static Sample random_sample(Dice *rng)
{
    return (Sample){dice(rng, 0, 1) ? SCHEDULE_1F1B : SCHEDULE_GPIPE, (int)dice(rng, 1, 8),
                    (int)dice(rng, 1, 24)};
}

static Order *order_of(Arena *arena, ScheduleKind kind, int stages, int micros)
{
    return order_new(arena, kind, schedule_make(arena, diag_new(arena), kind, stages, 1, micros));
}

/* gaps: the longest behind another row. */
static OrderTimes random_times(Dice *rng, int stages, int64_t hop, int64_t gaps)
{
    OrderTimes times = {.hop_forward = {0}};
    for (int s = 0; s < stages; s++) {
        times.time[PART_F][s] = dice(rng, 1, 1000);
        times.time[PART_B][s] = dice(rng, 1, 2000);
        times.hop_forward[s] = times.hop_backward[s] = hop;
        for (int begins = 0; begins < BEGINS_COUNT && gaps > 0; begins++)
            for (int part = PART_F; part <= PART_B; part++)
                times.gap[begins][part][s] = dice(rng, 0, gaps);
    }
    return times;
}

static int64_t makespan(const Order *order, const int64_t *end)
{
    int64_t last = 0;
    for (int i = 0; i < order->n; i++)
        last = end[i] > last ? end[i] : last;
    return last;
}

static void test_times_are_those_of_the_schedule(void **state)
{
    (void)state;
    Dice rng = {1, 0};
    for (int i = 0; i < 300; i++) {
        Arena *arena = arena_new("order");
        Sample at = random_sample(&rng);
        Order *order = order_of(arena, at.kind, at.stages, at.micros);
        int64_t hop = dice(&rng, 0, 300);
        OrderTimes times = random_times(&rng, at.stages, hop, 0);
        int64_t *end = ARENA_ARRAY(arena, int64_t, order->n);
        order_simulate(order, &times, end);
        RowTimes rows = {.hop = hop};
        rows.time[PART_F] = times.time[PART_F];
        rows.time[PART_B] = times.time[PART_B];
        Schedule *schedule =
            schedule_make(arena, diag_new(arena), at.kind, at.stages, 1, at.micros);
        assert_int_equal(makespan(order, end), schedule_simulate(arena, schedule, &rows, NULL));
        arena_free(arena);
    }
}

static int64_t path_length(const OrderPath *path, const OrderTimes *times, int stages)
{
    int64_t length = 0;
    for (int s = 0; s < stages; s++) {
        const PathChunk *at = &path->at[s];
        length +=
            at->hop_forward * times->hop_forward[s] + at->hop_backward * times->hop_backward[s];
        for (int part = PART_F; part <= PART_B; part++) {
            length += at->time[part] * times->time[part][s];
            for (int begins = 0; begins < BEGINS_COUNT; begins++)
                length += at->gap[begins][part] * times->gap[begins][part][s];
        }
    }
    return length;
}

/* The longest path of one plan is exact there, and never above the end of the same row under any
 * other times. */
static void test_paths_bound(void **state)
{
    (void)state;
    Dice rng = {2, 0};
    for (int i = 0; i < 200; i++) {
        Arena *arena = arena_new("paths");
        Sample at = random_sample(&rng);
        Order *order = order_of(arena, at.kind, at.stages, at.micros);
        int64_t *end = ARENA_ARRAY(arena, int64_t, order->n);
        OrderTimes times = random_times(&rng, at.stages, dice(&rng, 0, 300), i % 2 * 400);
        order_simulate(order, &times, end);
        int stage = (int)dice(&rng, 0, at.stages - 1);
        OrderPath path;
        order_path(order, &times, end, stage, &path);
        assert_int_equal(path_length(&path, &times, at.stages), end[order->last[stage]]);
        for (int k = 0; k < 10; k++) {
            OrderTimes other = random_times(&rng, at.stages, dice(&rng, 0, 300), 400);
            order_simulate(order, &other, end);
            assert_true(path_length(&path, &other, at.stages) <= end[order->last[stage]]);
        }
        arena_free(arena);
    }
}

static void test_slots_of_known_schedules(void **state)
{
    (void)state;
    Arena *arena = arena_new("slots");
    Order *one = order_of(arena, SCHEDULE_1F1B, 4, 16);
    for (int s = 0; s < 4; s++)
        assert_int_equal(one->slots[RING_SAVED][s], 4 - s);
    Order *all = order_of(arena, SCHEDULE_GPIPE, 4, 16);
    for (int s = 0; s < 4; s++)
        assert_int_equal(all->slots[RING_SAVED][s], 16);
    Order *few = order_of(arena, SCHEDULE_1F1B, 8, 3);
    assert_int_equal(few->slots[RING_SAVED][0], 3);
    assert_int_equal(few->slots[RING_SAVED][7], 1);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_are_those_of_the_schedule),
        cmocka_unit_test(test_paths_bound),
        cmocka_unit_test(test_slots_of_known_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
