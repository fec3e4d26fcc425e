/* simulate.h - the Step simulation: a lowered plan executed on the clock, every stage, one rank of
 * each.
 *
 * Steps run on the streams of their rank and wait for the events that the walk names; a send and
 * its receive, a tied sum and the world reduction start together. Overlap is what the streams
 * leave, never a factor. Along the compute stream every nanosecond of the step is accounted for:
 * work, waiting for one kind of communication, or waiting for other stages (the bubble). */
#ifndef LPLAN_PLANNER_SIMULATE_H
#define LPLAN_PLANNER_SIMULATE_H

#include "ir/lower/walk.h"
#include "planner/price.h"

/* Where the compute stream's time goes. */
typedef enum {
    SPENT_COMPUTE,
    SPENT_BLOCK,    /* waits for a collective inside a block */
    SPENT_GRADIENT, /* for gradients to be reduced, weights to be gathered */
    SPENT_MESSAGE,  /* for a message between stages on its way */
    SPENT_WORLD,    /* for the norm of all ranks */
    SPENT_COPY,     /* for what comes from another memory, or goes there */
    SPENT_BUBBLE,   /* for another stage to have something */
    SPENT_COUNT
} Spent;
extern const char *const spent_text[SPENT_COUNT];
/* Is this kind of waiting there at all? A report leaves out what a plan cannot have. */
bool spent_shown(const Plan *plan, Spent spent);

/* All communication Steps of one kind over one set of atoms, for one purpose. */
typedef struct Traffic {
    StepKind step; /* move, send, tied, world or copy */
    MoveKind move;
    AtomSet atoms; /* of the group; 0 between stages */
    int level;     /* the link level crossed */
    Memory memory; /* of copies: the farther end; no link is crossed */
    Stream stream;
    const char *what; /* "activations", "gradients", "weights", "norm and loss" */
    bool backward;    /* of a block: in backward */
    int64_t *count, *bytes, *ns, *exposed_ns; /* per stage, a rank's own; bytes: sent */
} Traffic;

typedef struct StageTimes {
    int64_t spent_ns[SPENT_COUNT];
    int64_t busy_ns[STREAM_COUNT];
    int64_t level_ns[MAX_LEVELS], level_bytes[MAX_LEVELS];
    int64_t store_ns[MEMORY_COUNT], store_bytes[MEMORY_COUNT]; /* to and from memories behind */
    int64_t flops;                                             /* of matrix products */
} StageTimes;

typedef struct TraceEvent {
    int stage;
    Stream stream;
    int64_t start, ns;
    const char *name; /* of what goes between ranks or memories: the runtime's */
    const char *part; /* of a micro-batch: part_name; or what the step does otherwise */
    int link, micro;  /* of the chain; or NONE */
    bool backward;
} TraceEvent;
typedef VEC(TraceEvent) TraceEvents;

typedef struct StepTimes {
    int64_t step_ns, steps;
    int stages;
    StageTimes *stage;
    VEC(Traffic) traffic;
    int simulated_micros; /* fewer than the plan's: the rest is extrapolated; 0: added up from cards
                           */
} StepTimes;

/* What collectives in the steps of whole matrices carry. */
extern const char *const traffic_matrices;
/* What a collective of a body carries, in the words of Traffic. */
const char *inst_traffic(const Body *body, const Inst *inst);
/* The row of this kind of traffic, added when new. */
int traffic_row(Arena *arena, StepTimes *times, const Traffic *want);

/* How a library carries out what a stage moves of this kind, at its mean size; ALGORITHM_COUNT
 * where there is no choice. */
Algorithm traffic_algorithm(const Plan *plan, const Traffic *traffic, int stage);

/* So many optimizer steps of a program, in all. Events are collected when `trace` is given. */
StepTimes *simulate_rounds(Arena *arena, const Program *program, int rounds, TraceEvents *trace);
/* One optimizer step: where steps flow into each other, of the steady state; the trace then shows
 * the run from its first step on. */
StepTimes *simulate_program(Arena *arena, const Program *program, TraceEvents *trace);
/* The same for a plan: lowers it, and where its Steps would be too many, runs two shorter steps of
 * it and extrapolates every figure in the number of micro-batches. */
StepTimes *simulate_plan(Arena *arena, const Plan *plan, const Net *net, const Program *program);
/* Fills the plan's row lengths from its own bodies: they order its one sequence (plan.h). */
void plan_time_rows(Plan *plan, const Net *net);

#endif
