/* order.c - schedules in topological order: simulation, critical paths, slots that always suffice.
 */
#include "planner/order.h"

/* ---- the order ---- */

/* Rows of every stage become ready one by one; what a row receives has a smaller number. */
static void put_rows(Arena *scratch, Order *order, const Schedule *schedule)
{
    int32_t *place = ARENA_ARRAY(scratch, int32_t, 2 * order->stages * order->micros);
    int *next = ARENA_ARRAY(scratch, int, order->stages);
    for (int i = 0; i < 2 * order->stages * order->micros; i++)
        place[i] = NONE;
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < order->stages; s++)
            for (; next[s] < schedule->rows[s].n; next[s]++) {
                const Row *row = &schedule->rows[s].at[next[s]];
                bool backward = row->part != PART_F;
                int from = backward ? s + 1 : s - 1;
                bool receives = from >= 0 && from < order->stages;
                int32_t *before = &place[2 * ((receives ? from : s) * order->micros + row->micro)];
                if (receives && before[backward] == NONE)
                    break;
                place[2 * (s * order->micros + row->micro) + backward] = order->n;
                order->last[s] = order->n;
                order->row[order->n++] = (OrderRow){(int16_t)s, backward, row->micro,
                                                    receives ? before[backward] : NONE};
                moved = true;
            }
    }
    if (order->n != 2 * order->stages * order->micros)
        BUG("the schedule of %d stages does not reach its end", order->stages);
}

void order_simulate(const Order *order, const OrderTimes *times, int64_t *ret_end)
{
    int64_t clock[MAX_STAGES] = {0};
    for (int i = 0; i < order->n; i++) {
        const OrderRow *row = &order->row[i];
        int s = row->stage;
        int64_t start = clock[s];
        if (row->before != NONE) {
            int64_t hop = row->backward ? times->hop_backward[s] : times->hop_forward[s - 1];
            int64_t ready = ret_end[row->before] + hop;
            start = ready > start ? ready : start;
        }
        clock[s] = ret_end[i] = start + (row->backward ? times->backward[s] : times->forward[s]);
    }
}

void order_path(const Order *order, const OrderTimes *times, const int64_t *end, int stage,
                OrderPath *ret)
{
    *ret = (OrderPath){.stage = stage};
    int at = order->last[stage];
    while (at != NONE) {
        const OrderRow *row = &order->row[at];
        int s = row->stage, previous = at - 1;
        int64_t start = end[at] - (row->backward ? times->backward[s] : times->forward[s]);
        if (row->backward)
            ret->backward[s]++;
        else
            ret->forward[s]++;
        while (previous >= 0 && order->row[previous].stage != s)
            previous--;
        bool waited = row->before != NONE && (previous < 0 || end[previous] < start);
        if (!waited) {
            at = previous;
            continue;
        }
        if (row->backward)
            ret->hop_backward[s]++;
        else
            ret->hop_forward[s - 1]++;
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

static int slots_for(const Life *life, int micros)
{
    bool rising = true, falling = true;
    for (int a = 1; a < micros; a++) {
        rising &= life[a].first >= life[a - 1].first;
        falling &= life[a].last <= life[a - 1].last;
    }
    int n = 1;
    while (n < micros && slots_clash(life, micros, n, rising || falling))
        n++;
    return n;
}

typedef struct StageRows {
    int *forward, *backward;        /* per micro-batch: index of the row in its stage */
    int *message_in, *message_grad; /* rows of this stage that run before the message can come */
} StageRows;

/* With rows of this stage one long and all others nothing, the end of a row counts the rows of this
 * stage before it. */
static void fill_rows(const Order *order, int stage, int64_t *end, StageRows *ret)
{
    OrderTimes times = {0};
    times.forward[stage] = times.backward[stage] = 1;
    order_simulate(order, &times, end);
    int at = 0;
    for (int i = 0; i < order->n; i++) {
        const OrderRow *row = &order->row[i];
        if (row->stage == stage) {
            (row->backward ? ret->backward : ret->forward)[row->micro] = at++;
            if (row->before != NONE)
                (row->backward ? ret->message_grad : ret->message_in)[row->micro] =
                    (int)end[row->before] - 1;
        }
    }
}

static void fill_life(RingKind kind, const StageRows *rows, bool keeps_in, int micro, Life *ret)
{
    int forward = 2 * rows->forward[micro], backward = 2 * rows->backward[micro];
    switch (kind) {
    case RING_DATA:
    case RING_SAVED:
        *ret = (Life){forward, backward};
        break;
    case RING_IN:
        *ret = (Life){2 * rows->message_in[micro] + 1, keeps_in ? backward : forward};
        break;
    case RING_OUT:
        *ret = (Life){forward, forward + 2};
        break;
    case RING_GRAD_IN:
        *ret = (Life){2 * rows->message_grad[micro] + 1, backward};
        break;
    case RING_GRAD_OUT:
        *ret = (Life){backward, backward + 2};
        break;
    case RING_COUNT:
        break;
    }
}

static void fill_slots(Arena *scratch, Order *order)
{
    int64_t *end = ARENA_ARRAY(scratch, int64_t, order->n);
    Life *life = ARENA_ARRAY(scratch, Life, order->micros);
    StageRows rows = {
        ARENA_ARRAY(scratch, int, order->micros), ARENA_ARRAY(scratch, int, order->micros),
        ARENA_ARRAY(scratch, int, order->micros), ARENA_ARRAY(scratch, int, order->micros)};
    for (int s = 0; s < order->stages; s++) {
        fill_rows(order, s, end, &rows);
        for (int kind = 0; kind < RING_COUNT; kind++) {
            for (int micro = 0; micro < order->micros; micro++)
                fill_life((RingKind)kind, &rows, true, micro, &life[micro]);
            order->slots[kind][s] = slots_for(life, order->micros);
        }
    }
}

Order *order_new(Arena *arena, ScheduleKind kind, int stages, int micros)
{
    CHECK(stages <= MAX_STAGES);
    Order *order = ARENA_NEW(arena, Order);
    *order = (Order){.schedule = kind, .stages = stages, .micros = micros};
    order->row = ARENA_ARRAY(arena, OrderRow, 2 * stages * micros);
    order->last = ARENA_ARRAY(arena, int32_t, stages);
    for (int ring = 0; ring < RING_COUNT; ring++)
        order->slots[ring] = ARENA_ARRAY(arena, int, stages);
    Arena *scratch = arena_new("order");
    put_rows(scratch, order, schedule_make(scratch, kind, stages, micros));
    fill_slots(scratch, order);
    arena_free(scratch);
    return order;
}
