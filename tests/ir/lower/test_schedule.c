/* test_schedule.c - generators of schedules, their checker and their simulation. */
#include "ir/lower/program.h"

#include <stdlib.h>
#include <string.h>

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

/* Published rows (those of DualPipeV are PyTorch's own golden's), read, made and written alike. */
static void test_golden_files(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ScheduleKind kind;
        int chunks;
    } files[] = {{"gpipe", SCHEDULE_GPIPE, 1},
                 {"1f1b", SCHEDULE_1F1B, 1},
                 {"int_v2", SCHEDULE_INTERLEAVED, 2},
                 {"zbh1", SCHEDULE_ZBH1, 1},
                 {"zbv", SCHEDULE_ZBV, 2},
                 {"dualpipev", SCHEDULE_DUALPIPEV, 2}};
    const char *root = getenv("LPLAN_SOURCE_ROOT");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (int p = 2; p <= 4; p += 2) {
            Arena *arena = arena_new("golden");
            Diag *diag = diag_new(arena);
            char *path = arena_printf(arena, "%s/tests/golden/schedules/%s_p%d_m%d.csv",
                                      root ? root : ".", files[i].name, p, 2 * p);
            char *want = file_read(arena, path, NULL);
            assert_non_null(want);
            Str made = str_new(arena), again = str_new(arena);
            schedule_put_csv(&made,
                             schedule_make(arena, diag, files[i].kind, p, files[i].chunks, 2 * p));
            assert_string_equal(made.at, want);
            const Schedule *read = schedule_read_csv(arena, diag, want, path);
            assert_non_null(read);
            schedule_put_csv(&again, read);
            assert_string_equal(again.at, want);
            arena_free(arena);
        }
}

/* The last micro-batches of a short group may wait for each other: where, an exhaustive run of the
 * order graph says (CONTRACTS 2.3), and so does the checker. */
static bool never_ends(int p, int m)
{
    int rest = m % p;
    return (p == 5 && rest == 2 && m > p) || (p == 6 && (rest == 2 || rest == 3) && m > p) ||
           (p == 7 && rest >= 2 && rest <= 4 && m > p) ||
           (p == 8 && rest >= 2 && rest <= 5 && m > p);
}

static void test_every_kind(void **state)
{
    (void)state;
    for (int kind = 0; kind < SCHEDULE_TABLE; kind++)
        for (int p = 1; p <= 8; p++)
            for (int m = 1; m <= 24; m++) {
                Arena *arena = arena_new("kind");
                Diag *diag = diag_new(arena);
                const ScheduleInfo *info = &schedule_info[kind];
                Schedule *schedule =
                    schedule_make(arena, diag, (ScheduleKind)kind, p, info->least, m);
                bool fits = info->micros_most == 0 || m <= info->micros_most;
                assert_int_equal(schedule != NULL, m >= info->cover * p && fits);
                assert_int_equal(schedule && schedule->delay, schedule && info->flows);
                assert_int_equal(diag_errors(diag), schedule ? 0 : 1);
                bool ends = !(kind == SCHEDULE_INTERLEAVED && never_ends(p, m));
                if (schedule && schedule_check(schedule, diag) != ends)
                    fail_msg("%s p %d m %d", schedule_text[kind], p, m);
                /* a first stage that never splits, or no other, may keep backward whole */
                if (schedule && p > 1)
                    assert_int_equal(schedule_splits(schedule), info->splits);
                arena_free(arena);
            }
}

/* CONTRACTS 2.9 in units of a sixth: F, I and W of a whole stage 6 each. (Pairs of DualPipeV, which
 * are one row there, run in order here.) */
static void test_makespans(void **state)
{
    (void)state;
    static const struct {
        ScheduleKind kind;
        int p, m, chunks, span;
    } known[] = {{SCHEDULE_GPIPE, 4, 8, 1, 198},       {SCHEDULE_1F1B, 4, 8, 1, 198},
                 {SCHEDULE_INTERLEAVED, 4, 8, 2, 171}, {SCHEDULE_ZBH1, 4, 8, 1, 162},
                 {SCHEDULE_ZBV, 4, 8, 2, 153},         {SCHEDULE_INTERLEAVED, 8, 32, 2, 639},
                 {SCHEDULE_ZBH1, 8, 32, 1, 618},       {SCHEDULE_ZBV, 8, 32, 2, 597},
                 {SCHEDULE_1F1B, 8, 32, 1, 702}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        Arena *arena = arena_new("span");
        int64_t *length = ARENA_ARRAY(arena, int64_t, known[i].p * known[i].chunks);
        for (int c = 0; c < known[i].p * known[i].chunks; c++)
            length[c] = 6 / known[i].chunks;
        RowTimes times = {.hop = 0, .time = {length, NULL, length, length}};
        const Schedule *schedule = schedule_make(arena, diag_new(arena), known[i].kind, known[i].p,
                                                 known[i].chunks, known[i].m);
        assert_int_equal(schedule_simulate(arena, schedule, &times, NULL), known[i].span);
        arena_free(arena);
    }
}

/* The same with pairs as one row, which is as long as both: no gain. */
static void test_makespans_of_pairs(void **state)
{
    (void)state;
    static const int known[][3] = {{2, 4, 78}, {4, 8, 162}, {8, 16, 330}, {8, 32, 618}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        Arena *arena = arena_new("span");
        int p = known[i][0], m = known[i][1];
        int64_t *length = ARENA_ARRAY(arena, int64_t, 2 * p),
                *pair = ARENA_ARRAY(arena, int64_t, 2 * p);
        for (int c = 0; c < 2 * p; c++) {
            length[c] = 3;
            pair[c] = 6; /* twice as fast as one behind the other would make it 9 */
        }
        RowTimes times = {.hop = 0, .time = {length, NULL, length, length}};
        Diag *diag = diag_new(arena);
        const Schedule *schedule = schedule_make_braided(arena, diag, SCHEDULE_DUALPIPEV, p, 2, m);
        assert_true(schedule && schedule_check(schedule, diag));
        assert_int_equal(schedule_simulate(arena, schedule, &times, NULL), known[i][2]);
        times.pair = pair;
        assert_true(schedule_simulate(arena, schedule, &times, NULL) < known[i][2]);
        arena_free(arena);
    }
}

/* Pairs of 1F1B: both rows have one span, every stage but the ends has as many as it can, and
 * neither waits for ever, with any number of micro-batches. */
static void test_braided_1f1b(void **state)
{
    (void)state;
    for (int p = 1; p <= 6; p++)
        for (int m = 1; m <= 16; m++) {
            Arena *arena = arena_new("pairs");
            Diag *diag = diag_new(arena);
            const Schedule *schedule = schedule_make_braided(arena, diag, SCHEDULE_1F1B, p, 1, m);
            assert_true(schedule && schedule_check(schedule, diag));
            RowSpan **span;
            int64_t end = schedule_simulate(arena, schedule, NULL, &span);
            for (int s = 0; s < p; s++) {
                int pairs = 0, warm = smaller(2 * (p - s) - 1, m);
                for (int i = 0; i < schedule->rows[s].n; i++) {
                    if (!schedule_pair(schedule, s, i))
                        continue;
                    pairs++;
                    assert_int_equal(span[s][i].start, span[s][i + 1].start);
                    assert_int_equal(span[s][i].end, span[s][i].start + 3);
                }
                assert_int_equal(pairs, m - warm);
                assert_int_equal(most_live(schedule, s), smaller(warm + 1, m));
            }
            /* a stage never waits in its steady state: fill, rows, drain */
            if (m >= 2 * p)
                assert_true(end <= 3 * m + 3 * (p - 1) + 2 * p);
            arena_free(arena);
        }
    Arena *arena = arena_new("pairs");
    Diag *diag = diag_new(arena);
    assert_null(schedule_make_braided(arena, diag, SCHEDULE_GPIPE, 2, 1, 4));
    assert_non_null(strstr(diag_item(diag, 0)->text, "beside each other"));
    arena_free(arena);
}

static const Schedule *read_text(Arena *arena, Diag *diag, const char *text)
{
    return schedule_read_csv(arena, diag, text, "x.csv");
}

/* Idle cells, communication, quotes, and the letters of older files. */
static void test_read_csv(void **state)
{
    (void)state;
    Arena *arena = arena_new("csv");
    Diag *diag = diag_new(arena);
    static const char *const good[][2] = {
        {"0F0,,\"0B0\"\n ,1F0,1B0\r\n", "0F0,0B0\n1F0,1B0\n"},
        {"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1UNSHARD,1F0,1B0,1REDUCE_GRAD", "0F0,0B0\n1F0,1B0\n"},
        {"0F0,0BW0\n1F0,1B0,1W0\n", "0F0,0B0\n1F0,1I0,1W0\n"},
        {"0F0,0B0,0W0", "0F0,0I0,0W0\n"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const Schedule *schedule = read_text(arena, diag, good[i][0]);
        assert_non_null(schedule);
        Str text = str_new(arena);
        schedule_put_csv(&text, schedule);
        assert_string_equal(text.at, good[i][1]);
    }
    assert_int_equal(diag_count(diag), 0);
    static const char *const bad[] = {"",
                                      "\n",
                                      "0F0,0Q0\n",
                                      "F0\n",
                                      "0F\n",
                                      "0F0,0B0,0B0\n",
                                      "0F0\n",
                                      "1F0,1B0\n",
                                      "0F0,0B0\n1F0\n",
                                      "0B0,0F0\n",
                                      "0F0,0I0\n",
                                      "(0F0;0B0)\n",
                                      "(0F0,0B0)OVERLAP_F_B\n",
                                      "0F99999999999999999999,0B0\n",
                                      "0F0,0B0\n0F1,0B1\n",
                                      "0F0,1F0,1B0,0B0\n\n"};
    /* pairs that run as one: another micro-batch's, and one's own, which waits for itself */
    static const char *const pairs[] = {
        "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n", "0F0,0F1,(0F2;0I0)OVERLAP_F_B,0W0,0B1,0B2\n",
        "0F1,(0F0;0B0)OVERLAP_F_B,0B1\n", "0F0,0B0,(0F1;0F2)OVERLAP_F_B,0B1,0B2\n"};
    for (int i = 0; i < 4; i++) {
        Diag *own = diag_new(arena);
        Schedule braided = *read_text(arena, own, pairs[i]);
        braided.braids = true;
        assert_int_equal(schedule_check(&braided, own), i < 2);
        Str text = str_new(arena);
        schedule_put_csv(&text, &braided);
        assert_string_equal(text.at, pairs[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Diag *own = diag_new(arena);
        if (read_text(arena, own, bad[i]) || diag_errors(own) == 0)
            fail_msg("\"%s\" was read", bad[i]);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest group[] = {
        cmocka_unit_test(test_golden_files),
        cmocka_unit_test(test_every_kind),
        cmocka_unit_test(test_makespans),
        cmocka_unit_test(test_makespans_of_pairs),
        cmocka_unit_test(test_braided_1f1b),
        cmocka_unit_test(test_read_csv),
        cmocka_unit_test(test_all_shapes),
        cmocka_unit_test(test_uneven_times),
        cmocka_unit_test(test_broken_schedules),
        cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_csv),
    };
    return cmocka_run_group_tests(group, NULL, NULL) != 0;
}
