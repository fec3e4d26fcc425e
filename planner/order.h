/* order.h - a pipeline schedule as rows in an order that respects every dependency: one pass
 * simulates it.
 *
 * A path through the order graph is never longer than the makespan, whatever the lengths of rows
 * are. So a path is a lower bound for every plan of the same schedule: a linear form in the
 * lengths. Nothing here knows a schedule's name. */
#ifndef LPLAN_PLANNER_ORDER_H
#define LPLAN_PLANNER_ORDER_H

#include "ir/lower/program.h"

enum { MAX_STAGES = 64, MAX_CHUNKS = 256 };

/* Where a row begins, as against the row before it on its stage. */
typedef enum {
    BEGINS_THERE, /* at the link of the chunk at which that one ended */
    BEGINS_OWN,   /* there, and it is the whole backward of that forward */
    BEGINS_ANEW,  /* elsewhere */
    BEGINS_STAGE, /* there is none */
    BEGINS_COUNT
} Begins;

typedef struct OrderRow {
    int16_t stage, chunk;
    PartKind part;
    Begins begins;
    bool turns; /* a whole backward behind its forward, or the other way round */
    int32_t micro;
    int8_t pair;    /* 1: it and the next one run as one; 2: it is that next one */
    int32_t before; /* the row of the neighbour chunk whose result this one receives, or NONE */
} OrderRow;

/* How often each length of a chunk occurs among some rows. */
typedef struct PathChunk {
    int32_t time[PART_COUNT], gap[BEGINS_COUNT][PART_COUNT];
    int32_t hop_forward, hop_backward;
} PathChunk;

typedef struct Order {
    ScheduleKind schedule;
    int stages, chunks, micros, n;
    int runs; /* micro-batches that the rows are of: more than a step's where steps flow */
    const Schedule *turn; /* where steps flow: one turn, of which the rows are a short run */
    const int *holder;    /* [chunks] */
    bool *pairs;          /* [stages] some of its rows are two in one */
    bool *meets;          /* [chunks] some of these are a forward and a backward of the chunk */
    bool splits;          /* some backward is in two parts */
    OrderRow *row;        /* in an order that respects all dependencies */
    int *turns;           /* per chunk: whole backwards that are the next row after their forward */
    int *alike;           /* per chunk: most rows behind each other that one of its is the last of,
                             all forwards or none */
    PathChunk *all;       /* per chunk: its rows and their gaps behind others, without pairs */
    int32_t *last;        /* per chunk: the last row that adds to its gradients */
    int *slots[RING_COUNT]; /* per chunk: slots that suffice whatever the lengths of rows are */
} Order;

/* Of a schedule that was checked, and that lives as long. Where its steps flow into each other, the
 * rows are those of a run that is long enough to meet the steady state. */
Order *order_new(Arena *arena, ScheduleKind kind, const Schedule *schedule);

/* Lengths per chunk, and of the hops: forward from chunk c to c + 1, backward from c + 1 to c. */
typedef struct OrderTimes {
    int64_t time[PART_COUNT][MAX_CHUNKS];
    /* Of two rows in one, by the chunk of the forward: all, from its start to the forward's end,
     * and to when what the backward receives is asked for; of all, waits for weights to come and
     * gradients to go, and for saved values that live elsewhere. */
    int64_t pair[MAX_CHUNKS], pair_forward[MAX_CHUNKS], pair_lead[MAX_CHUNKS];
    int64_t pair_stall[MAX_CHUNKS], pair_copied[MAX_CHUNKS];
    int64_t gap[BEGINS_COUNT][PART_COUNT][MAX_CHUNKS]; /* at least, behind the row before it; of two
                                                          in one it is part of their length */
    int64_t hop_forward[MAX_CHUNKS], hop_backward[MAX_CHUNKS];
} OrderTimes;

/* Of two rows in one no more than any plan's, where lengths of single rows are: as long as the
 * forward alone, and not waiting for what the backward receives. */
void order_least_pairs(int chunks, OrderTimes *times);
/* Of a row; where two run as one the second has what is left when the first has ended. */
int64_t order_length(const OrderTimes *times, const OrderRow *row);
/* When what it receives is there; where two run as one, when both may begin. */
int64_t order_ready(const OrderTimes *times, const OrderRow *row, const int64_t *end);
/* Ends of all rows; the caller has room for order->n. */
void order_simulate(const Order *order, const OrderTimes *times, int64_t *ret_end);

typedef struct OrderPath {
    PathChunk at[MAX_CHUNKS];
    int chunk; /* ends with the last row of this chunk */
} OrderPath;

/* The longest path to the last row of `chunk`, from the ends of a simulation. */
void order_path(const Order *order, const OrderTimes *times, const int64_t *end, int chunk,
                OrderPath *ret);

#endif
