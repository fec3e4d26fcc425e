/* schedule.c - pipeline schedules as generators of rows, their checker and their simulation. */
#include "ir/lower/program.h"

const char *const part_text[PART_COUNT] = {"F", "B", "I", "W"};
const char *const schedule_text[SCHEDULE_COUNT] = {"gpipe", "1f1b"};

static void put_row(Arena *arena, Schedule *schedule, int stage, PartKind part, int micro)
{
    vec_push(arena, &schedule->rows[stage]) = (Row){part, stage, micro};
}

static Schedule *schedule_new(Arena *arena, int stages, int micros)
{
    Schedule *schedule = ARENA_NEW(arena, Schedule);
    schedule->stages = stages;
    schedule->micros = micros;
    schedule->rows = ARENA_ARRAY(arena, RowList, stages);
    return schedule;
}

/* All forwards, then all backwards in reverse order (Huang et al., GPipe). */
static Schedule *make_gpipe(Arena *arena, int stages, int micros)
{
    Schedule *schedule = schedule_new(arena, stages, micros);
    for (int stage = 0; stage < stages; stage++) {
        for (int micro = 0; micro < micros; micro++)
            put_row(arena, schedule, stage, PART_F, micro);
        for (int micro = micros - 1; micro >= 0; micro--)
            put_row(arena, schedule, stage, PART_B, micro);
    }
    return schedule;
}

/* Warm-up of min(stages - stage - 1, micros) forwards, then one forward and one backward in turn,
 * then the rest (PipeDream-flush; Narayanan et al.). */
static Schedule *make_1f1b(Arena *arena, int stages, int micros)
{
    Schedule *schedule = schedule_new(arena, stages, micros);
    for (int stage = 0; stage < stages; stage++) {
        int warm = stages - stage - 1 < micros ? stages - stage - 1 : micros;
        for (int micro = 0; micro < warm; micro++)
            put_row(arena, schedule, stage, PART_F, micro);
        for (int micro = 0; micro < micros - warm; micro++) {
            put_row(arena, schedule, stage, PART_F, warm + micro);
            put_row(arena, schedule, stage, PART_B, micro);
        }
        for (int micro = micros - warm; micro < micros; micro++)
            put_row(arena, schedule, stage, PART_B, micro);
    }
    return schedule;
}

Schedule *schedule_make(Arena *arena, ScheduleKind kind, int stages, int micros)
{
    CHECK(stages > 0 && micros > 0);
    switch (kind) {
    case SCHEDULE_GPIPE:
        return make_gpipe(arena, stages, micros);
    case SCHEDULE_1F1B:
        return make_1f1b(arena, stages, micros);
    case SCHEDULE_COUNT:
        break;
    }
    BUG("unknown schedule %d", (int)kind);
}

/* Ends of the parts of one (stage, micro-batch); -1 while open. */
typedef struct Ends {
    int64_t forward, backward;
} Ends;

static bool row_ready(const Schedule *schedule, const Ends *ends, const Row *row, int64_t hop,
                      int64_t *ret_time)
{
    const Ends *own = &ends[row->stage * schedule->micros + row->micro];
    *ret_time = 0;
    if (row->part == PART_F) {
        if (row->stage == 0)
            return true;
        const Ends *before = own - schedule->micros;
        *ret_time = before->forward + hop;
        return before->forward >= 0;
    }
    if (own->forward < 0)
        return false;
    *ret_time = own->forward;
    if (row->stage == schedule->stages - 1)
        return true;
    const Ends *after = own + schedule->micros;
    if (after->backward + hop > *ret_time)
        *ret_time = after->backward + hop;
    return after->backward >= 0;
}

/* Runs every stage's rows in order; -1 when some row never becomes ready. */
static int64_t run_rows(Arena *arena, const Schedule *schedule, const RowTimes *times,
                        RowSpan **span)
{
    Ends *ends = ARENA_ARRAY(arena, Ends, schedule->stages * schedule->micros);
    for (int i = 0; i < schedule->stages * schedule->micros; i++)
        ends[i] = (Ends){-1, -1};
    int *next = ARENA_ARRAY(arena, int, schedule->stages);
    int64_t *clock = ARENA_ARRAY(arena, int64_t, schedule->stages), makespan = 0;
    int left = 0;
    for (int stage = 0; stage < schedule->stages; stage++)
        left += schedule->rows[stage].n;
    for (bool moved = true; moved;) {
        moved = false;
        for (int stage = 0; stage < schedule->stages; stage++)
            while (next[stage] < schedule->rows[stage].n) {
                const Row *row = &schedule->rows[stage].at[next[stage]];
                int64_t ready;
                if (!row_ready(schedule, ends, row, times ? times->hop : 0, &ready))
                    break;
                int64_t start = ready > clock[stage] ? ready : clock[stage];
                int64_t length = times                 ? times->time[row->part][stage]
                                 : row->part == PART_F ? 1
                                                       : 2;
                clock[stage] = start + length;
                Ends *own = &ends[stage * schedule->micros + row->micro];
                *(row->part == PART_F ? &own->forward : &own->backward) = clock[stage];
                if (span)
                    span[stage][next[stage]] = (RowSpan){start, clock[stage]};
                makespan = clock[stage] > makespan ? clock[stage] : makespan;
                next[stage]++;
                left--;
                moved = true;
            }
    }
    return left ? -1 : makespan;
}

int64_t schedule_simulate(Arena *arena, const Schedule *schedule, const RowTimes *times,
                          RowSpan ***ret)
{
    RowSpan **span = NULL;
    if (ret) {
        span = ARENA_ARRAY(arena, RowSpan *, schedule->stages);
        for (int stage = 0; stage < schedule->stages; stage++)
            span[stage] = ARENA_ARRAY(arena, RowSpan, schedule->rows[stage].n + 1);
        *ret = span;
    }
    int64_t makespan = run_rows(arena, schedule, times, span);
    if (makespan < 0)
        BUG("the schedule does not reach its end");
    return makespan;
}

bool schedule_check(const Schedule *schedule, Diag *diag)
{
    bool good = true;
    Arena *scratch = arena_new("schedule");
    for (int stage = 0; stage < schedule->stages; stage++) {
        int *seen = ARENA_ARRAY(scratch, int, schedule->micros * 2);
        for (int i = 0; i < schedule->rows[stage].n; i++) {
            const Row *row = &schedule->rows[stage].at[i];
            if (row->stage != stage || row->micro < 0 || row->micro >= schedule->micros) {
                good =
                    diag_error(diag, NO_SPAN, "row %d of stage %d names stage %d, micro-batch %d",
                               i, stage, row->stage, row->micro);
                continue;
            }
            if (row->part != PART_F && !seen[row->micro])
                good = diag_error(diag, NO_SPAN,
                                  "stage %d runs backward of micro-batch %d before forward", stage,
                                  row->micro);
            seen[row->micro + (row->part == PART_F ? 0 : schedule->micros)]++;
        }
        for (int micro = 0; micro < schedule->micros; micro++)
            if (seen[micro] != 1 || seen[micro + schedule->micros] != 1)
                good = diag_error(diag, NO_SPAN,
                                  "stage %d has %d forwards and %d backwards of micro-batch %d",
                                  stage, seen[micro], seen[micro + schedule->micros], micro);
    }
    if (good && run_rows(scratch, schedule, NULL, NULL) < 0)
        good = diag_error(diag, NO_SPAN, "the schedule of %d stages and %d micro-batches deadlocks",
                          schedule->stages, schedule->micros);
    arena_free(scratch);
    return good;
}

void schedule_put_csv(Str *str, const Schedule *schedule)
{
    for (int stage = 0; stage < schedule->stages; stage++) {
        for (int i = 0; i < schedule->rows[stage].n; i++) {
            const Row *row = &schedule->rows[stage].at[i];
            str_putf(str, "%s%d%s%d", i ? "," : "", row->stage, part_text[row->part], row->micro);
        }
        str_putc(str, '\n');
    }
}
