/* order.h - a pipeline schedule as rows in an order that respects every dependency: one pass
 * simulates it.
 *
 * A path through the order graph is never longer than the makespan, whatever the lengths of rows
 * are. So a path is a lower bound for every plan of the same schedule: a linear form in the
 * lengths. Nothing here knows a schedule's name. */
#ifndef LPLAN_PLANNER_ORDER_H
#define LPLAN_PLANNER_ORDER_H

#include "ir/lower/program.h"

enum { MAX_STAGES = 64 };

typedef struct OrderRow {
    int16_t stage;
    bool backward;
    int32_t micro;
    int32_t before; /* the row of the neighbour stage whose result this one receives, or NONE */
} OrderRow;

typedef struct Order {
    ScheduleKind schedule;
    int stages, micros, n;
    OrderRow *row;          /* in an order that respects all dependencies */
    int32_t *last;          /* per stage: its last row, which is a backward one */
    int *slots[RING_COUNT]; /* per stage: slots that suffice whatever the lengths of rows are */
} Order;

Order *order_new(Arena *arena, ScheduleKind schedule, int stages, int micros);

/* Lengths per stage, and of the hops: forward from stage s to s + 1, backward from s + 1 to s. */
typedef struct OrderTimes {
    int64_t forward[MAX_STAGES], backward[MAX_STAGES];
    int64_t hop_forward[MAX_STAGES], hop_backward[MAX_STAGES];
} OrderTimes;

/* Ends of all rows; the caller has room for order->n. */
void order_simulate(const Order *order, const OrderTimes *times, int64_t *ret_end);

/* How often each length occurs on a path. */
typedef struct OrderPath {
    int32_t forward[MAX_STAGES], backward[MAX_STAGES];
    int32_t hop_forward[MAX_STAGES], hop_backward[MAX_STAGES];
    int stage; /* ends with the last row of this stage */
} OrderPath;

/* The longest path to the last row of `stage`, from the ends of a simulation. */
void order_path(const Order *order, const OrderTimes *times, const int64_t *end, int stage,
                OrderPath *ret);

#endif
