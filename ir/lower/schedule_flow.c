/* schedule_flow.c - schedules whose steps flow into each other: the run without its turns, and the
 * steady state. */
#include "ir/base/arena.h"
#include "ir/lower/schedule.h"

int schedule_ahead(const Schedule *schedule, int stage)
{
    int most = 0;
    for (int i = 0; i < schedule->rows[stage].n; i++)
        if (schedule->rows[stage].at[i].ahead > most)
            most = schedule->rows[stage].at[i].ahead;
    return most;
}

Schedule *schedule_unroll(Arena *arena, const Schedule *schedule, int steps)
{
    Schedule *whole = ARENA_NEW(arena, Schedule);
    *whole = *schedule;
    whole->delay = NULL;
    whole->micros = schedule->micros * steps;
    whole->rows = ARENA_ARRAY(arena, RowList, schedule->stages);
    for (int s = 0; s < schedule->stages; s++)
        for (int turn = -schedule_ahead(schedule, s); turn < steps; turn++)
            for (int i = 0; i < schedule->rows[s].n; i++) {
                Row row = schedule->rows[s].at[i];
                int step = turn + row.ahead;
                if (step < 0 || step >= steps)
                    continue;
                row.micro += step * schedule->micros;
                row.ahead = 0;
                vec_push(arena, &whole->rows[s]) = row;
            }
    return whole;
}

/* ---- the steady state ---- */

/* Row `to` begins at least `ns` after row `from` does, `turns` turns later. */
typedef struct Arc {
    int from, to;
    int64_t ns;
    int turns;
} Arc;

typedef struct Cycle {
    int rows;
    int *first;      /* per stage: its first row */
    int64_t *length; /* per row */
    VEC(Arc) arcs;
    int64_t *start; /* per row, under the period that was tried last */
} Cycle;

/* Rows of every (chunk, micro-batch): forward, and what gives the gradient of the input. */
static void put_needs(Arena *arena, const Schedule *schedule, const RowTimes *times, Cycle *cycle)
{
    int cells = schedule->chunks * schedule->micros;
    int *row_of[2] = {ARENA_ARRAY(arena, int, cells), ARENA_ARRAY(arena, int, cells)};
    int *ahead = ARENA_ARRAY(arena, int, cycle->rows);
    for (int s = 0; s < schedule->stages; s++)
        for (int i = 0; i < schedule->rows[s].n; i++) {
            const Row *row = &schedule->rows[s].at[i];
            int at = cycle->first[s] + i;
            ahead[at] = row->ahead;
            if (row->part != PART_W)
                row_of[row->part != PART_F][row->chunk * schedule->micros + row->micro] = at;
        }
    for (int s = 0; s < schedule->stages; s++)
        for (int i = 0; i < schedule->rows[s].n; i++) {
            const Row *row = &schedule->rows[s].at[i];
            int at = cycle->first[s] + i, way = row->part != PART_F, cell;
            int neighbour = row->chunk + (way ? 1 : -1);
            if (way) { /* behind its own forward; W behind its I */
                cell = row->chunk * schedule->micros + row->micro;
                int own = row_of[row->part == PART_W][cell];
                vec_push(arena, &cycle->arcs) =
                    (Arc){own, at, cycle->length[own], ahead[own] - row->ahead};
            }
            if (row->part == PART_W || neighbour < 0 || neighbour >= schedule->chunks)
                continue;
            cell = neighbour * schedule->micros + row->micro;
            int from = row_of[way][cell];
            bool far = schedule->holder[neighbour] != s;
            vec_push(arena, &cycle->arcs) =
                (Arc){from, at, cycle->length[from] + (far && times ? times->hop : 0),
                      ahead[from] - row->ahead};
        }
}

static Cycle cycle_of(Arena *arena, const Schedule *schedule, const RowTimes *times,
                      const int64_t *end_ns)
{
    Cycle cycle = {.first = ARENA_ARRAY(arena, int, schedule->stages + 1)};
    for (int s = 0; s < schedule->stages; s++)
        cycle.first[s + 1] = cycle.first[s] + schedule->rows[s].n;
    cycle.rows = cycle.first[schedule->stages];
    cycle.length = ARENA_ARRAY(arena, int64_t, cycle.rows);
    cycle.start = ARENA_ARRAY(arena, int64_t, cycle.rows);
    for (int s = 0; s < schedule->stages; s++)
        for (int i = 0; i < schedule->rows[s].n; i++)
            cycle.length[cycle.first[s] + i] = row_ns(times, &schedule->rows[s].at[i]);
    for (int s = 0; s < schedule->stages; s++)
        for (int i = 0; i < schedule->rows[s].n; i++) {
            int at = cycle.first[s] + i;
            bool last = i + 1 == schedule->rows[s].n;
            vec_push(arena, &cycle.arcs) =
                (Arc){at, last ? cycle.first[s] : at + 1,
                      cycle.length[at] + (last && end_ns ? end_ns[s] : 0), last};
        }
    put_needs(arena, schedule, times, &cycle);
    return cycle;
}

/* Earliest starts under a period; false when rows would wait for themselves: a path without a
 * circle has no more arcs than there are rows. */
static bool starts_settle(Cycle *cycle, int64_t period)
{
    bool moved = true;
    for (int i = 0; i < cycle->rows; i++)
        cycle->start[i] = 0;
    for (int pass = 0; moved && pass <= cycle->rows; pass++) {
        moved = false;
        for (int a = 0; a < cycle->arcs.n; a++) {
            const Arc *arc = &cycle->arcs.at[a];
            int64_t start = cycle->start[arc->from] + arc->ns - arc->turns * period;
            if (start <= cycle->start[arc->to])
                continue;
            cycle->start[arc->to] = start;
            moved = true;
        }
    }
    return !moved;
}

/* No stage is faster than its own rows. */
static int64_t busiest(const Cycle *cycle, const Schedule *schedule, const int64_t *end_ns)
{
    int64_t most = 1;
    for (int s = 0; s < schedule->stages; s++) {
        int64_t own = end_ns ? end_ns[s] : 0;
        for (int i = cycle->first[s]; i < cycle->first[s + 1]; i++)
            own += cycle->length[i];
        most = own > most ? own : most;
    }
    return most;
}

int64_t schedule_steady(Arena *arena, const Schedule *schedule, const RowTimes *times,
                        const int64_t *end_ns, RowSpan ***ret)
{
    Arena *scratch = arena_new("steady");
    Cycle cycle = cycle_of(scratch, schedule, times, end_ns);
    int64_t low = busiest(&cycle, schedule, end_ns), high = 1;
    for (int a = 0; a < cycle.arcs.n; a++)
        high += cycle.arcs.at[a].ns;
    if (starts_settle(&cycle, low))
        high = low;
    else if (!starts_settle(&cycle, high))
        BUG("rows of one step wait for each other in a circle");
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (starts_settle(&cycle, middle))
            high = middle;
        else
            low = middle + 1;
    }
    CHECK(starts_settle(&cycle, low));
    if (ret) {
        *ret = ARENA_ARRAY(arena, RowSpan *, schedule->stages);
        for (int s = 0; s < schedule->stages; s++) {
            (*ret)[s] = ARENA_ARRAY(arena, RowSpan, schedule->rows[s].n + 1);
            for (int i = 0; i < schedule->rows[s].n; i++) {
                int at = cycle.first[s] + i;
                (*ret)[s][i] = (RowSpan){cycle.start[at], cycle.start[at] + cycle.length[at]};
            }
        }
    }
    arena_free(scratch);
    return low;
}
