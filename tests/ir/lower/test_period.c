/* test_period.c - the induction over micro-batches: rows between two equal states may be repeated,
 * and that is what the Program for more micro-batches is, Step for Step, events and addresses
 * included. */
#include <string.h>

#include "ir/lower/check.h"
#include "tests/check.h"
#include "tests/ir/lower/plans.h"
#include "tests/ir/tiny_models.h"

/* A digest of what a table entry expands to, counted from its micro-batch. */
typedef struct RowList64 {
    VEC(uint64_t) row;
} RowList64;

static void mix(uint64_t *hash, int64_t value)
{
    *hash = (*hash ^ (uint64_t)value) * UINT64_C(0x9fb21c651e98df25);
    *hash ^= *hash >> 31;
}

/* An address, in a ring its slot counted from the micro-batch's. */
static void mix_address(uint64_t *hash, const StageProgram *stage, int64_t address, int micro)
{
    for (int k = 0; k < RING_COUNT; k++) {
        const Ring *ring = &stage->chunk[0].ring[k];
        if (micro == NONE || address < ring->base || address >= ring->base + ring->stride * ring->n)
            continue;
        int64_t slot = (address - ring->base) / ring->stride;
        mix(hash, k);
        mix(hash, (slot - micro % ring->n + ring->n) % ring->n);
        mix(hash, (address - ring->base) % ring->stride);
        return;
    }
    mix(hash, address);
}

static RowList64 rows_of(Arena *arena, const Program *program, int s)
{
    RowList64 list = {{0}};
    const StageProgram *stage = &program->stage[s];
    Walk *walk = walk_begin(arena, program, s, 0, 1);
    int64_t done[STREAM_COUNT] = {0};
    for (int i = 0; i < stage->table.n; i++)
        vec_push(arena, &list.row) = 1;
    for (const Step *step; (step = walk_next(walk)) != NULL;) {
        const Entry *entry = &stage->table.at[step->entry];
        uint64_t *hash = &list.row.at[step->entry];
        mix(hash, step->kind);
        mix(hash, step->stream);
        mix(hash, step->first);
        mix(hash, entry->kind);
        mix(hash, step->link);
        mix(hash, step->micro == NONE ? NONE : step->micro - entry->micro);
        for (int k = 0; k < step->operands; k++) {
            mix_address(hash, stage, step->operand[k].address, entry->micro);
            mix(hash, step->operand[k].bytes);
            mix(hash, step->operand[k].read * 2 + step->operand[k].write);
        }
        for (int w = 0; w < step->waits; w++) {
            mix(hash, step->wait[w].stream);
            mix(hash, done[step->wait[w].stream] - step->wait[w].seq);
        }
        done[step->stream]++;
    }
    return list;
}

static Program *program_at(Arena *arena, ScheduleKind kind, int p, int m, const RowTimes *times)
{
    PlanCase what = {model_with_layers(arena, tiny_llama, p), NULL, p, m, 4, NULL, NULL, 0};
    what.pins = arena_printf(arena, "pp=%d,mbs=1,schedule=%s", p, schedule_text[kind]);
    return program_timed(arena, &what, times);
}

/* The Program for m + 2 periods is the one for m with the loop twice more. */
static void check_induction(int p, int m, const RowTimes *times)
{
    Arena *arena = arena_new("induction");
    const Program *few = program_at(arena, SCHEDULE_1F1B, p, m, times);
    for (int s = 0; s < p; s++) {
        Period period = stage_period(few, s);
        if (period.micros == 0)
            fail_msg("stage %d of %d has no period in %d micro-batches", s, p, m);
        const Program *more = program_at(arena, SCHEDULE_1F1B, p, m + 2 * period.micros, times);
        RowList64 a = rows_of(arena, few, s), b = rows_of(arena, more, s);
        int loop = period.to - period.from;
        assert_int_equal(b.row.n, a.row.n + 2 * loop);
        for (int i = 0; i < b.row.n; i++) {
            int from = i < period.to              ? i
                       : i < period.to + 2 * loop ? period.from + (i - period.from) % loop
                                                  : i - 2 * loop;
            if (a.row.at[from] != b.row.at[i])
                fail_msg("stage %d of %d: entry %d of %d micro-batches is not entry %d of %d", s, p,
                         i, m + 2 * period.micros, from, m);
        }
        CheckReport report;
        assert_true(program_check(arena, more, 2, diag_new(arena), &report));
    }
    arena_free(arena);
}

static void test_even_stages(void **state)
{
    (void)state;
    for (int p = 1; p <= 6; p++)
        check_induction(p, 8 * p + 12, NULL);
}

static void test_uneven_stages(void **state)
{
    (void)state;
    static const int64_t forward[4] = {11, 30, 17, 23}, backward[4] = {25, 55, 31, 44};
    RowTimes times = {.hop = 7};
    times.time[PART_F] = forward;
    times.time[PART_B] = backward;
    check_induction(4, 60, &times);
}

/* All forwards, then all backwards: what is alive grows with m, and nothing repeats. */
static void test_gpipe_has_none(void **state)
{
    (void)state;
    Arena *arena = arena_new("gpipe");
    const Program *program = program_at(arena, SCHEDULE_GPIPE, 3, 40, NULL);
    for (int s = 0; s < 3; s++)
        assert_int_equal(stage_period(program, s).micros, 0);
    CheckReport report;
    assert_true(program_check(arena, program, 2, diag_new(arena), &report));
    assert_int_equal(report.period, 0);
    arena_free(arena);
}

/* What the report says of all stages. */
static void test_report(void **state)
{
    (void)state;
    Arena *arena = arena_new("report");
    CheckReport report;
    assert_true(program_check(arena, program_at(arena, SCHEDULE_1F1B, 3, 30, NULL), 2,
                              diag_new(arena), &report));
    assert_true(report.period >= 1 && report.period <= 3);
    assert_true(report.periodic_from > report.period && report.periodic_from <= 30);
    /* too few micro-batches to repeat anything */
    assert_true(program_check(arena, program_at(arena, SCHEDULE_1F1B, 3, 2, NULL), 2,
                              diag_new(arena), &report));
    assert_int_equal(report.period, 0);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest group[] = {
        cmocka_unit_test(test_even_stages),
        cmocka_unit_test(test_uneven_stages),
        cmocka_unit_test(test_gpipe_has_none),
        cmocka_unit_test(test_report),
    };
    return cmocka_run_group_tests(group, NULL, NULL) != 0;
}
