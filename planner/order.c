/* order.c - schedules in topological order: simulation, critical paths, slots that always suffice.
 */
#include "planner/order.h"

#include "ir/base/num.h"

/* ---- the order ---- */

/* Rows of the stages as they become ready. */
typedef struct Putting {
    Order *order;
    const Schedule *schedule;
    int32_t *place[2]; /* of forwards, and of what gives gradients of inputs */
} Putting;

/* False when the row receives something that is not there yet. */
static bool row_before(const Putting *put, const Row *row, int32_t *ret_before)
{
    int back = row->part != PART_F, from = row->chunk + (back ? 1 : -1);
    bool receives = row->part != PART_W && from >= 0 && from < put->order->chunks;
    *ret_before = receives ? put->place[back][from * put->order->runs + row->micro] : (int32_t)NONE;
    return !receives || *ret_before != NONE;
}

static void put_row(const Putting *put, int stage, const Row *row, int pair, int32_t before)
{
    Order *order = put->order;
    if (row->part != PART_W)
        put->place[row->part != PART_F][row->chunk * order->runs + row->micro] = order->n;
    if (row->part == PART_B || row->part == PART_W)
        order->last[row->chunk] = order->n;
    order->row[order->n++] = (OrderRow){.stage = (int16_t)stage,
                                        .chunk = (int16_t)row->chunk,
                                        .part = row->part,
                                        .micro = row->micro,
                                        .pair = (int8_t)pair,
                                        .before = before};
    order->pairs[stage] = order->pairs[stage] || pair > 0;
    if (pair == 2 && order->row[order->n - 2].chunk == row->chunk)
        order->meets[row->chunk] = true;
}

/* The next row of a stage, or two in one; how many, 0 when it waits. */
static int put_next(const Putting *put, int stage, int next)
{
    const RowList *rows = &put->schedule->rows[stage];
    int n = schedule_pair(put->schedule, stage, next) ? 2 : 1;
    int32_t before[2];
    for (int i = 0; i < n; i++)
        if (next == rows->n || !row_before(put, &rows->at[next + i], &before[i]))
            return 0;
    for (int i = 0; i < n; i++)
        put_row(put, stage, &rows->at[next + i], n == 2 ? i + 1 : 0, before[i]);
    return n;
}

/* Rows of every stage become ready one by one; what a row receives has a smaller number. */
static void put_rows(Arena *scratch, Order *order, const Schedule *schedule)
{
    int cells = order->chunks * order->runs, rows = 0;
    Putting put = {order,
                   schedule,
                   {ARENA_ARRAY(scratch, int32_t, cells), ARENA_ARRAY(scratch, int32_t, cells)}};
    int *next = ARENA_ARRAY(scratch, int, order->stages);
    for (int i = 0; i < cells; i++)
        put.place[0][i] = put.place[1][i] = NONE;
    for (int s = 0; s < order->stages; s++)
        rows += schedule->rows[s].n;
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < order->stages; s++)
            for (int n; (n = put_next(&put, s, next[s])) > 0; next[s] += n)
                moved = true;
    }
    if (order->n != rows)
        BUG("the schedule of %d stages does not reach its end", order->stages);
}

/* The hop that a row's input comes over. */
static int64_t hop_to(const OrderTimes *times, const OrderRow *row)
{
    return row->part == PART_F ? times->hop_forward[row->chunk - 1]
                               : times->hop_backward[row->chunk];
}

static int64_t gap_before(const OrderTimes *times, const OrderRow *row)
{
    return row->pair ? 0 : times->gap[row->begins][row->part][row->chunk];
}

static int64_t received(const OrderTimes *times, const OrderRow *row, const int64_t *end)
{
    return row->before == NONE ? 0 : end[row->before] + hop_to(times, row);
}

int64_t order_ready(const OrderTimes *times, const OrderRow *row, const int64_t *end)
{
    int64_t ready = received(times, row, end);
    if (row->pair != 1)
        return row->pair == 2 ? 0 : ready;
    return num_larger(ready, received(times, &row[1], end) - times->pair_lead[row->chunk]);
}

void order_least_pairs(int chunks, OrderTimes *times)
{
    for (int c = 0; c < chunks; c++) {
        times->pair[c] = times->pair_forward[c] = times->time[PART_F][c];
        times->pair_lead[c] = INT64_MAX / 4;
    }
}

int64_t order_length(const OrderTimes *times, const OrderRow *row)
{
    int chunk = row[row->pair == 2 ? -1 : 0].chunk;
    return row->pair == 2   ? times->pair[chunk] - times->pair_forward[chunk]
           : row->pair == 1 ? times->pair_forward[chunk]
                            : times->time[row->part][row->chunk];
}

void order_simulate(const Order *order, const OrderTimes *times, int64_t *ret_end)
{
    int64_t clock[MAX_STAGES] = {0};
    for (int i = 0; i < order->n; i++) {
        const OrderRow *row = &order->row[i];
        int64_t start = clock[row->stage] + gap_before(times, row);
        start = num_larger(start, order_ready(times, row, ret_end));
        clock[row->stage] = ret_end[i] = start + order_length(times, row);
    }
}

void order_path(const Order *order, const OrderTimes *times, const int64_t *end, int chunk,
                OrderPath *ret)
{
    *ret = (OrderPath){.chunk = chunk};
    int at = order->last[chunk];
    while (at != NONE) {
        const OrderRow *row = &order->row[at];
        int previous = at - 1;
        int64_t start = end[at] - times->time[row->part][row->chunk];
        PathChunk *own = &ret->at[row->chunk];
        own->time[row->part]++;
        while (previous >= 0 && order->row[previous].stage != row->stage)
            previous--;
        int64_t resumed = (previous < 0 ? 0 : end[previous]) + gap_before(times, row);
        if (row->before == NONE || resumed >= start) {
            own->gap[row->begins][row->part] += row->pair == 0;
            at = previous;
            continue;
        }
        if (row->part == PART_F)
            ret->at[row->chunk - 1].hop_forward++;
        else
            own->hop_backward++;
        at = row->before;
    }
}

/* ---- slots ---- */

/* Where in a stage's list a micro-batch's buffer is taken and given back: row i stands at 2 i, a
 * message that can come as soon as row i has run at 2 i + 1. */
typedef struct Life {
    int first, last;
} Life;

/* Where lives begin in the order of micro-batches (or end against it), who meets a later taker of
 * his slot meets the next one: then one neighbour tells, else all do. */
static bool slots_clash(const Life *life, int micros, int n, bool ordered)
{
    for (int a = 0; a + n < micros; a++)
        for (int b = a + n; b < micros; b += n) {
            if (life[a].first <= life[b].last && life[b].first <= life[a].last)
                return true;
            if (ordered)
                break;
        }
    return false;
}

/* A column of slots: each life takes the lowest that is free where it begins. */
static int slots_in_column(Arena *scratch, const Life *life, int micros)
{
    int *by_begin = ARENA_ARRAY(scratch, int, micros), *last = ARENA_ARRAY(scratch, int, micros);
    int n = 0;
    for (int i = 0; i < micros; i++) {
        int at = i;
        for (; at > 0 && life[by_begin[at - 1]].first > life[i].first; at--)
            by_begin[at] = by_begin[at - 1];
        by_begin[at] = i;
    }
    for (int i = 0; i < micros; i++) {
        int slot = 0;
        while (slot < n && last[slot] >= life[by_begin[i]].first)
            slot++;
        n += slot == n;
        last[slot] = life[by_begin[i]].last;
    }
    return n;
}

static int slots_for(Arena *scratch, const Life *life, int micros)
{
    bool rises = true, falls = true, ends_rise = true, ends_fall = true;
    for (int a = 1; a < micros; a++) {
        rises &= life[a].first >= life[a - 1].first;
        falls &= life[a].first <= life[a - 1].first;
        ends_rise &= life[a].last >= life[a - 1].last;
        ends_fall &= life[a].last <= life[a - 1].last;
    }
    int n = 1;
    while (n < micros && slots_clash(life, micros, n, rises || ends_fall))
        n++;
    if ((rises || falls) && (ends_rise || ends_fall))
        return n;
    int column = slots_in_column(scratch, life, micros);
    return column < n ? column : n;
}

typedef struct ChunkRows {
    int *forward, *input, *weight;  /* per micro-batch: index of the row in its stage */
    int *message_in, *message_grad; /* twice the row of this stage behind which the value can come;
                                       one more when it comes from another stage */
} ChunkRows;

/* How many rows of each of `LANES` stages end no later than a row does, whatever the lengths are.
 */
enum { LANES = 16 };
typedef struct Counts {
    int32_t of[LANES];
} Counts;

static void counts_raise(Counts *counts, const OrderRow *row, const Counts *end)
{
    if (row->before == NONE)
        return;
    for (int lane = 0; lane < LANES; lane++)
        if (counts->of[lane] < end[row->before].of[lane])
            counts->of[lane] = end[row->before].of[lane];
}

/* Of stages from `first` on. A row waits for the one before it on its stage and for what it
 * receives; of two in one the first waits for what both receive. */
static void count_rows(const Order *order, int first, Counts *ret_end)
{
    Counts clock[MAX_STAGES] = {{{0}}};
    for (int i = 0; i < order->n; i++) {
        const OrderRow *row = &order->row[i];
        Counts *now = &clock[row->stage];
        if (row->pair != 2)
            counts_raise(now, row, ret_end);
        if (row->pair == 1)
            counts_raise(now, row + 1, ret_end);
        if (row->stage >= first && row->stage < first + LANES)
            now->of[row->stage - first]++;
        ret_end[i] = *now;
    }
}

/* Of stages from `first` on, from their counts. */
static void fill_rows(const Order *order, int first, const Counts *end, ChunkRows *ret)
{
    int at[LANES] = {0};
    for (int i = 0; i < order->n; i++) {
        const OrderRow *row = &order->row[i];
        ChunkRows *own = &ret[row->chunk];
        int lane = row->stage - first;
        if (lane < 0 || lane >= LANES)
            continue;
        if (row->part == PART_F)
            own->forward[row->micro] = at[lane];
        if (row->part == PART_B || row->part == PART_I)
            own->input[row->micro] = at[lane] - (row->pair == 2);
        if (row->part == PART_B || row->part == PART_W)
            own->weight[row->micro] = at[lane] - (row->pair == 2);
        at[lane]++;
        if (row->before != NONE)
            (row->part == PART_F ? own->message_in : own->message_grad)[row->micro] =
                2 * (end[row->before].of[lane] - 1) + (order->row[row->before].stage != row->stage);
    }
}

static Life life_of(RingKind kind, const ChunkRows *rows, int micro)
{
    int forward = 2 * rows->forward[micro], input = 2 * rows->input[micro],
        weight = 2 * rows->weight[micro];
    switch (kind) {
    case RING_SAVED:
    case RING_STAYS:
        return (Life){forward, input};
    case RING_DATA:
    case RING_SAVED_W:
    case RING_STAYS_W:
        return (Life){forward, weight};
    case RING_SAVED_IW:
        return (Life){input, weight};
    case RING_IN:
        return (Life){rows->message_in[micro], weight};
    case RING_OUT:
        return (Life){forward, forward + 2};
    case RING_GRAD_IN:
        return (Life){rows->message_grad[micro], weight};
    case RING_GRAD_OUT:
        return (Life){input, input + 2};
    case RING_COUNT:
        break;
    }
    BUG("no such ring");
}

static void fill_slots(Arena *scratch, Order *order)
{
    Counts *end = ARENA_ARRAY(scratch, Counts, order->n);
    Life *life = ARENA_ARRAY(scratch, Life, order->runs);
    ChunkRows *rows = ARENA_ARRAY(scratch, ChunkRows, order->chunks);
    for (int c = 0; c < order->chunks; c++)
        rows[c] = (ChunkRows){
            ARENA_ARRAY(scratch, int, order->runs), ARENA_ARRAY(scratch, int, order->runs),
            ARENA_ARRAY(scratch, int, order->runs), ARENA_ARRAY(scratch, int, order->runs),
            ARENA_ARRAY(scratch, int, order->runs)};
    for (int first = 0; first < order->stages; first += LANES) {
        count_rows(order, first, end);
        fill_rows(order, first, end, rows);
    }
    for (int c = 0; c < order->chunks; c++)
        for (int kind = 0; kind < RING_COUNT; kind++) {
            if (kind == RING_STAYS || kind == RING_STAYS_W) { /* the same lives */
                order->slots[kind][c] = order->slots[kind - RING_STAYS + RING_SAVED][c];
                continue;
            }
            for (int micro = 0; micro < order->runs; micro++)
                life[micro] = life_of((RingKind)kind, &rows[c], micro);
            order->slots[kind][c] = slots_for(scratch, life, order->runs);
        }
}

static void find_begins(Order *order)
{
    OrderRow *before[MAX_STAGES] = {NULL};
    int alike[MAX_STAGES] = {0};
    for (int i = 0; i < order->n; i++) {
        OrderRow *row = &order->row[i];
        OrderRow *last = before[row->stage];
        bool turns = last && last->chunk == row->chunk &&
                     (last->part == PART_F) != (row->part == PART_F) &&
                     last->micro / order->micros == row->micro / order->micros;
        bool resumes = turns && !order->pairs[row->stage]; /* weights of the two lie apart */
        row->begins = !last ? BEGINS_STAGE : resumes ? BEGINS_THERE : BEGINS_ANEW;
        if (turns && row->part == PART_B && row->micro == last->micro &&
            !order->meets[row->chunk]) {
            row->turns = last->turns = true;
            order->turns[row->chunk]++;
            row->begins = BEGINS_OWN;
        }
        bool same = last && (last->part == PART_F) == (row->part == PART_F);
        alike[row->stage] = same ? alike[row->stage] + 1 : 1;
        if (alike[row->stage] > order->alike[row->chunk])
            order->alike[row->chunk] = alike[row->stage];
        before[row->stage] = row;
    }
    for (int i = 0; i < order->n; i++) {
        const OrderRow *row = &order->row[i];
        PathChunk *all = &order->all[row->chunk];
        all->time[row->part] += row->pair == 0;
        all->gap[row->begins][row->part] += row->pair == 0 && row->begins != BEGINS_STAGE;
    }
}

Order *order_new(Arena *arena, ScheduleKind kind, const Schedule *schedule)
{
    CHECK(schedule->stages <= MAX_STAGES && schedule->chunks <= MAX_CHUNKS);
    Order *order = ARENA_NEW(arena, Order);
    const Schedule *run = schedule;
    if (schedule->delay)
        run = schedule_unroll(arena, schedule, schedule->stages + 2);
    *order = (Order){.schedule = kind,
                     .stages = schedule->stages,
                     .chunks = schedule->chunks,
                     .micros = schedule->micros,
                     .runs = run->micros,
                     .turn = schedule->delay ? schedule : NULL,
                     .holder = schedule->holder,
                     .splits = schedule_splits(schedule)};
    order->row = ARENA_ARRAY(arena, OrderRow, 3 * order->chunks * order->runs);
    order->last = ARENA_ARRAY(arena, int32_t, order->chunks);
    order->turns = ARENA_ARRAY(arena, int, order->chunks);
    order->alike = ARENA_ARRAY(arena, int, order->chunks);
    order->all = ARENA_ARRAY(arena, PathChunk, order->chunks);
    order->pairs = ARENA_ARRAY(arena, bool, order->stages);
    order->meets = ARENA_ARRAY(arena, bool, order->chunks);
    for (int ring = 0; ring < RING_COUNT; ring++)
        order->slots[ring] = ARENA_ARRAY(arena, int, order->chunks);
    Arena *scratch = arena_new("order");
    put_rows(scratch, order, run);
    find_begins(order);
    fill_slots(scratch, order);
    arena_free(scratch);
    return order;
}
