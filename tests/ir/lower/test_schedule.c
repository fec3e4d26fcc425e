/* test_schedule.c - generators of schedules, their checker and their simulation. */
#include "ir/lower/program.h"

#include "tests/check.h"

static int64_t span_of(const Schedule *schedule, Arena *arena)
{
    return schedule_simulate(arena, schedule, NULL, NULL);
}

/* Most micro-batches whose forward is done and whose backward is not. */
static int most_live(const Schedule *schedule, int stage)
{
    int live = 0, most = 0;
    for (int i = 0; i < schedule->rows[stage].n; i++) {
        live += schedule->rows[stage].at[i].part == PART_F ? 1 : -1;
        most = live > most ? live : most;
    }
    return most;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Fewer micro-batches than stages, one of them, and as many as come: the well-known length and
 * memory. */
static void test_all_shapes(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 20; m++)
            for (int kind = 0; kind <= SCHEDULE_1F1B; kind++) {
                Arena *arena = arena_new("schedule");
                Diag *diag = diag_new(arena);
                const Schedule *schedule =
                    schedule_make(arena, diag_new(arena), (ScheduleKind)kind, p, 1, m);
                assert_true(schedule_check(schedule, diag));
                assert_int_equal(diag_count(diag), 0);
                assert_int_equal(span_of(schedule, arena), 3 * (m + p - 1));
                for (int s = 0; s < p; s++) {
                    assert_int_equal(schedule->rows[s].n, 2 * m);
                    assert_int_equal(most_live(schedule, s),
                                     kind == SCHEDULE_GPIPE ? m : smaller(p - s, m));
                }
                arena_free(arena);
            }
}

/* Uneven stages and hops: rows follow one another on their stage, and every row starts behind what
 * it needs. */
static void test_uneven_times(void **state)
{
    (void)state;
    enum { P = 4, M = 6, HOP = 7 };
    static const int64_t forward[P] = {10, 30, 5, 20}, backward[P] = {25, 40, 11, 60};
    RowTimes times = {.hop = HOP};
    times.time[PART_F] = forward;
    times.time[PART_B] = backward;
    for (int kind = 0; kind <= SCHEDULE_1F1B; kind++) {
        Arena *arena = arena_new("schedule");
        const Schedule *schedule =
            schedule_make(arena, diag_new(arena), (ScheduleKind)kind, P, 1, M);
        RowSpan **span;
        int64_t makespan = schedule_simulate(arena, schedule, &times, &span), end[2][P][M],
                last = 0;
        for (int s = 0; s < P; s++)
            for (int i = 0; i < schedule->rows[s].n; i++) {
                const Row *row = &schedule->rows[s].at[i];
                const int64_t *length = row->part == PART_F ? forward : backward;
                assert_int_equal(span[s][i].end - span[s][i].start, length[s]);
                assert_true(i == 0 || span[s][i].start >= span[s][i - 1].end);
                end[row->part == PART_B][s][row->micro] = span[s][i].end;
                last = span[s][i].end > last ? span[s][i].end : last;
            }
        assert_int_equal(makespan, last);
        for (int s = 0; s < P; s++)
            for (int i = 0; i < schedule->rows[s].n; i++) {
                const Row *row = &schedule->rows[s].at[i];
                int64_t ready = i ? span[s][i - 1].end : 0, need = 0;
                if (row->part == PART_F && s > 0)
                    need = end[0][s - 1][row->micro] + HOP;
                if (row->part == PART_B && s + 1 < P)
                    need = end[1][s + 1][row->micro] + HOP;
                if (row->part == PART_B && end[0][s][row->micro] > need)
                    need = end[0][s][row->micro];
                assert_int_equal(span[s][i].start,
                                 need > ready ? need : ready); /* and not a moment later */
            }
        arena_free(arena);
    }
}

static void swap_rows(Schedule *schedule, int stage, int a, int b)
{
    Row row = schedule->rows[stage].at[a];
    schedule->rows[stage].at[a] = schedule->rows[stage].at[b];
    schedule->rows[stage].at[b] = row;
}

static bool is_legal(Arena *arena, const Schedule *schedule)
{
    Diag *diag = diag_new(arena);
    bool good = schedule_check(schedule, diag);
    assert_true(good == (diag_errors(diag) == 0));
    return good;
}

static void test_broken_schedules(void **state)
{
    (void)state;
    Arena *arena = arena_new("schedule");
    Schedule *schedule = schedule_make(arena, diag_new(arena), SCHEDULE_1F1B, 3, 1, 5);
    RowList *rows = &schedule->rows[1];
    assert_true(is_legal(arena, schedule));
    for (int i = 0; i < rows->n; i++) {
        Row row = rows->at[i];
        rows->at[i].micro = (row.micro + 1) % 5;
        assert_false(is_legal(arena, schedule));
        rows->at[i].micro = 5;
        assert_false(is_legal(arena, schedule));
        rows->at[i] = row;
        rows->at[i].chunk = 2;
        assert_false(is_legal(arena, schedule));
        rows->at[i] = row;
        rows->at[i].part = row.part == PART_F ? PART_B : PART_F;
        assert_false(is_legal(arena, schedule));
        rows->at[i] = row;
    }
    rows->n--;
    assert_false(is_legal(arena, schedule));
    rows->n++;
    int last = rows->n - 1;
    swap_rows(schedule, 1, 0, last); /* backward before forward */
    assert_false(is_legal(arena, schedule));
    swap_rows(schedule, 1, 0, last);
    assert_true(is_legal(arena, schedule));
    arena_free(arena);
}

/* Each stage alone is right; together stage 0 waits for a backward that needs a forward behind it.
 */
static Schedule *deadlock(Arena *arena)
{
    Schedule *schedule = schedule_make(arena, diag_new(arena), SCHEDULE_1F1B, 2, 1, 2);
    /* stage 0: F0 B0 F1 B1; stage 1: F0 F1 B0 B1 */
    swap_rows(schedule, 0, 1, 2);
    swap_rows(schedule, 1, 1, 2);
    return schedule;
}

static void simulate_deadlock(void *unused)
{
    (void)unused;
    Arena *arena = arena_new("schedule");
    schedule_simulate(arena, deadlock(arena), NULL, NULL);
}

static void test_deadlock(void **state)
{
    (void)state;
    Arena *arena = arena_new("schedule");
    Diag *diag = diag_new(arena);
    assert_false(schedule_check(deadlock(arena), diag));
    assert_non_null(diag_item(diag, 0));
    char text[512];
    assert_int_equal(check_child(simulate_deadlock, NULL, text, sizeof text), 70);
    arena_free(arena);
}

static void test_csv(void **state)
{
    (void)state;
    Arena *arena = arena_new("schedule");
    Str text = str_new(arena);
    schedule_put_csv(&text, schedule_make(arena, diag_new(arena), SCHEDULE_GPIPE, 2, 1, 2));
    assert_string_equal(text.at, "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n");
    text = str_new(arena);
    schedule_put_csv(&text, schedule_make(arena, diag_new(arena), SCHEDULE_1F1B, 3, 1, 1));
    assert_string_equal(text.at, "0F0,0B0\n1F0,1B0\n2F0,2B0\n");
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest group[] = {
        cmocka_unit_test(test_all_shapes),
        cmocka_unit_test(test_uneven_times),
        cmocka_unit_test(test_broken_schedules),
        cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_csv),
    };
    return cmocka_run_group_tests(group, NULL, NULL) != 0;
}
