/* schedule.c - the checker and the simulation of pipeline schedules, whoever made their rows. */
#include "ir/lower/schedule.h"

#include "ir/base/arena.h"

const char *const part_text[PART_COUNT] = {"F", "B", "I", "W"};
const char *const part_name[PART_COUNT] = {"forward", "backward", "input", "weight"};

bool schedule_splits(const Schedule *schedule)
{
    for (int stage = 0; stage < schedule->stages; stage++)
        for (int i = 0; i < schedule->rows[stage].n; i++)
            if (schedule->rows[stage].at[i].part > PART_B)
                return true;
    return false;
}

/* Ends of the parts of one (chunk, micro-batch); -1 while open. */
typedef struct Ends {
    int64_t forward, input; /* input: of its B or I */
} Ends;

typedef struct RowRun {
    const Schedule *schedule;
    const RowTimes *times;
    Ends *ends;      /* [chunk * micros + micro] */
    int *next;       /* per stage */
    int64_t *clock;  /* per stage */
    RowSpan **spans; /* or NULL */
} RowRun;

int64_t row_ns(const RowTimes *times, const Row *row)
{
    if (!times)
        return row->part == PART_B ? 2 : 1;
    if (times->time[row->part])
        return times->time[row->part][row->chunk];
    CHECK(row->part == PART_B);
    return times->time[PART_I][row->chunk] + times->time[PART_W][row->chunk];
}

int64_t pair_ns(const RowTimes *times, const Row *forward, const Row *backward)
{
    return times && times->pair ? times->pair[forward->chunk]
                                : row_ns(times, forward) + row_ns(times, backward);
}

bool schedule_pair(const Schedule *schedule, int stage, int row)
{
    const RowList *rows = &schedule->rows[stage];
    return schedule->braids && row + 1 < rows->n && rows->at[row].with_next;
}

/* A result of another chunk: it comes over a hop when that is on another stage. */
static bool comes(const RowRun *run, const Row *row, int from, int64_t end, int64_t *time)
{
    const Schedule *schedule = run->schedule;
    bool far = schedule->holder[from] != schedule->holder[row->chunk];
    int64_t at = end + (far && run->times ? run->times->hop : 0);
    *time = at > *time ? at : *time;
    return end >= 0;
}

static bool row_ready(const RowRun *run, const Row *row, int64_t *ret_time)
{
    int micros = run->schedule->micros;
    const Ends *own = &run->ends[row->chunk * micros + row->micro];
    *ret_time = 0;
    switch (row->part) {
    case PART_F:
        return row->chunk == 0 || comes(run, row, row->chunk - 1, own[-micros].forward, ret_time);
    case PART_W:
        *ret_time = own->input;
        return own->input >= 0;
    default:
        *ret_time = own->forward;
        return own->forward >= 0 && (row->chunk == run->schedule->chunks - 1 ||
                                     comes(run, row, row->chunk + 1, own[micros].input, ret_time));
    }
}

/* Rows that run as one are ready when both are. */
static bool run_row(RowRun *run, int stage)
{
    const RowList *rows = &run->schedule->rows[stage];
    int at = run->next[stage], n = schedule_pair(run->schedule, stage, at) ? 2 : 1;
    if (at == rows->n)
        return false;
    const Row *row = &rows->at[at];
    int64_t start = run->clock[stage];
    for (int i = 0; i < n; i++) {
        int64_t ready;
        if (!row_ready(run, &row[i], &ready))
            return false;
        start = ready > start ? ready : start;
    }
    int64_t ns = n == 2 ? pair_ns(run->times, &row[0], &row[1]) : row_ns(run->times, row);
    int64_t end = run->clock[stage] = start + ns;
    for (int i = 0; i < n; i++) {
        Ends *own = &run->ends[row[i].chunk * run->schedule->micros + row[i].micro];
        if (row[i].part == PART_F)
            own->forward = end;
        else if (row[i].part != PART_W)
            own->input = end;
        if (run->spans)
            run->spans[stage][at + i] = (RowSpan){start, end};
    }
    run->next[stage] += n;
    return true;
}

static RowRun run_rows(Arena *arena, const Schedule *schedule, const RowTimes *times,
                       RowSpan **spans)
{
    int cells = schedule->chunks * schedule->micros;
    RowRun run = {schedule,
                  times,
                  ARENA_ARRAY(arena, Ends, cells),
                  ARENA_ARRAY(arena, int, schedule->stages),
                  ARENA_ARRAY(arena, int64_t, schedule->stages),
                  spans};
    for (int i = 0; i < cells; i++)
        run.ends[i] = (Ends){-1, -1};
    for (bool moved = true; moved;) {
        moved = false;
        for (int stage = 0; stage < schedule->stages; stage++)
            while (run_row(&run, stage))
                moved = true;
    }
    return run;
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
    RowRun run = run_rows(arena, schedule, times, span);
    int64_t makespan = 0;
    for (int stage = 0; stage < schedule->stages; stage++) {
        if (run.next[stage] < schedule->rows[stage].n)
            BUG("the schedule does not reach its end");
        makespan = run.clock[stage] > makespan ? run.clock[stage] : makespan;
    }
    return makespan;
}

/* ---- the checker ---- */

/* What has been seen of the parts of one (chunk, micro-batch). */
typedef struct Seen {
    int count[PART_COUNT];
} Seen;

static bool check_row(const Schedule *schedule, int stage, int at, Seen *seen, Diag *diag)
{
    const Row *row = &schedule->rows[stage].at[at];
    if (row->chunk < 0 || row->chunk >= schedule->chunks || row->micro < 0 ||
        row->micro >= schedule->micros || row->part >= PART_COUNT)
        return diag_error(diag, NO_SPAN, "row %d of stage %d names chunk %d, micro-batch %d", at,
                          stage, row->chunk, row->micro);
    if (schedule->holder[row->chunk] != stage)
        return diag_error(diag, NO_SPAN, "row %d of stage %d is of chunk %d, which stage %d holds",
                          at, stage, row->chunk, schedule->holder[row->chunk]);
    Seen *own = &seen[row->chunk * schedule->micros + row->micro];
    bool ready = row->part == PART_F   ? true
                 : row->part == PART_W ? own->count[PART_I] > 0
                                       : own->count[PART_F] > 0;
    own->count[row->part]++;
    return ready ||
           diag_error(diag, NO_SPAN, "stage %d runs %s of chunk %d, micro-batch %d before its %s",
                      stage, part_text[row->part], row->chunk, row->micro,
                      row->part == PART_W ? "I" : "forward");
}

/* A forward and a part of a backward, of which neither waits for the other. */
static bool check_pair(const Schedule *schedule, int stage, int at, Diag *diag)
{
    const Row *row = &schedule->rows[stage].at[at];
    if (!schedule_pair(schedule, stage, at) || (row[0].part == PART_F && row[1].part != PART_F &&
                                                row[0].micro != row[1].micro && !row[1].with_next))
        return true;
    diag_error(diag, NO_SPAN, "stage %d is to run %d%s%d and %d%s%d as one", stage, row[0].chunk,
               part_text[row[0].part], row[0].micro, row[1].chunk, part_text[row[1].part],
               row[1].micro);
    diag_help(diag, "a forward and a part of the backward of another micro-batch; or pin braid=0");
    return false;
}

static bool check_cell(const Seen *seen, int chunk, int micro, Diag *diag)
{
    const int *n = seen->count;
    bool whole = n[PART_B] == 1 && n[PART_I] == 0 && n[PART_W] == 0;
    bool split = n[PART_B] == 0 && n[PART_I] == 1 && n[PART_W] == 1;
    return (n[PART_F] == 1 && (whole || split)) ||
           diag_error(diag, NO_SPAN,
                      "chunk %d has %d forwards of micro-batch %d, and as backwards %d B, %d I and "
                      "%d W; it needs one F and one B, or one I and one W",
                      chunk, n[PART_F], micro, n[PART_B], n[PART_I], n[PART_W]);
}

static bool check_end(Arena *scratch, const Schedule *schedule, Diag *diag)
{
    RowRun run = run_rows(scratch, schedule, NULL, NULL);
    Str text = str_new(scratch);
    int stuck = 0;
    for (int stage = 0; stage < schedule->stages; stage++) {
        if (run.next[stage] == schedule->rows[stage].n)
            continue;
        const Row *row = &schedule->rows[stage].at[run.next[stage]];
        if (stuck++ < 4)
            str_putf(&text, "%s%d%s%d on stage %d", stuck > 1 ? ", " : "", row->chunk,
                     part_text[row->part], row->micro, stage);
    }
    if (!stuck)
        return true;
    diag_error(diag, NO_SPAN,
               "the schedule of %d stages, %d chunks and %d micro-batches deadlocks: %s never run",
               schedule->stages, schedule->chunks, schedule->micros, text.at);
    diag_help(diag, "a number of micro-batches that divides by %d runs; so does 1F1B with any",
              schedule->stages);
    return false;
}

/* Rows that add to accumulators, the loss's among them, run in the turn of their own step, and no
 * row reads weights that are not there yet. */
static bool check_flow(const Schedule *schedule, Diag *diag)
{
    for (int s = 0; s < schedule->stages; s++)
        for (int i = 0; i < schedule->rows[s].n; i++) {
            const Row *row = &schedule->rows[s].at[i];
            bool adds = row->part != PART_F || row->chunk == schedule->chunks - 1;
            if (row->ahead < 0 || (adds && row->ahead > 0) || row->ahead > schedule->delay[s])
                return diag_error(diag, NO_SPAN,
                                  "row %d of stage %d runs %d steps ahead with weights stale by %d",
                                  i, s, row->ahead, schedule->delay[s]);
        }
    return true;
}

bool schedule_check(const Schedule *schedule, Diag *diag)
{
    if (schedule->delay) { /* the run without its turns: the prologue, a few turns and the drain */
        Arena *scratch = arena_new("run");
        bool good = check_flow(schedule, diag) &&
                    schedule_check(schedule_unroll(scratch, schedule, schedule->stages + 2), diag);
        arena_free(scratch);
        return good;
    }
    bool good = true;
    Arena *scratch = arena_new("schedule");
    Seen *seen = ARENA_ARRAY(scratch, Seen, schedule->chunks * schedule->micros);
    for (int stage = 0; stage < schedule->stages; stage++)
        for (int i = 0; i < schedule->rows[stage].n; i++)
            good &=
                check_row(schedule, stage, i, seen, diag) && check_pair(schedule, stage, i, diag);
    for (int chunk = 0; chunk < schedule->chunks && good; chunk++)
        for (int micro = 0; micro < schedule->micros; micro++)
            good &= check_cell(&seen[chunk * schedule->micros + micro], chunk, micro, diag);
    good = good && check_end(scratch, schedule, diag);
    arena_free(scratch);
    return good;
}
