/* prove.h - the numeric proof: the Program of an image, run on all its ranks, against the
 * un-lowered graph. */
#ifndef LPLAN_IR_LOWER_PROVE_H
#define LPLAN_IR_LOWER_PROVE_H

#include "ir/plan.h"

typedef struct ProveOptions {
    int rounds;     /* optimizer steps; 2 */
    int orders;     /* random orders besides program order; 3 */
    bool mutations; /* break every site and require that it shows */
    uint64_t seed;
    double tolerance; /* relative, 1e-10 */
} ProveOptions;
ProveOptions prove_default(void);

typedef struct MutationReport {
    const char *name;
    const char *equivalent; /* reason why it must change nothing, or NULL: it must show */
    double error;           /* that it caused; infinite for NaN, deadlock or mismatch */
    bool good;              /* caught, or equivalent and silent */
} MutationReport;

typedef struct ProveReport {
    bool equal;
    double max_error;  /* over loss, norm and every parameter after every round and order */
    const char *worst; /* where */
    double last_bit;   /* where that is more than the tolerance: what the last bit of the weights
                          makes of the unbroken oracle; plans are equal up to 8 times this, at most
                          1e-6 */
    const char *fault; /* deadlock or mismatch, or NULL */
    int ranks, stages, micros, steps; /* of the image; Steps of all ranks */
    int params, rounds;               /* optimizer steps */
    bool clips, flows;                /* gradients are clipped; steps flow into each other */
    bool empty_row;                   /* of a step: without tokens */
    bool evaluates;                   /* the run at work has evaluations between its steps */
    int64_t touched_bytes[MEMORY_COUNT], layout_bytes[MEMORY_COUNT]; /* high-water mark and arena of
                                                                       each memory, worst stage */
    int tried, caught, equivalent;
    VEC(MutationReport) mutations;
    int reached_ops; /* distinct ops executed */
    int reached_moves[MOVE_KIND_COUNT];
} ProveReport;

/* Runs it; false when something is not equal or not caught. The report says what. */
bool prove_numeric(Arena *arena, Diag *diag, const Plan *plan, const Net *net,
                   const ProveOptions *options, ProveReport *ret);

#endif
