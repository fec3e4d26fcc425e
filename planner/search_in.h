/* search_in.h - the parts of the search: its space, the bound without solving, and the best cuts of
 * one family. Private to search*.c. */
#ifndef LPLAN_PLANNER_SEARCH_IN_H
#define LPLAN_PLANNER_SEARCH_IN_H

#include "planner/search.h"

/* ---- search_space.c ---- */

/* What no placement avoids, per class and sequence: matrix products with a parameter of two axes or
 * more, its gradient, attention. */
typedef struct Work {
    int64_t *flops; /* of one micro-batch of one sequence, per product */
    int n;
    bool *again;                   /* a forward product that full recompute runs again */
    int *times;                    /* links that have it */
    int64_t params, expert_params; /* these are a part of those */
    int64_t kept,
        inputs; /* elements of all links' values that backward reads, and of their chain inputs */
} Work;
Work work_of(Arena *arena, const Problem *problem);
/* Ns of all links for one micro-batch, forward and backward, on tp ranks: never more than any
 * card's sum. */
int64_t work_ns(const Work *work, const Problem *problem, const Pins *pins);
/* The least makespan of `micros` passes through `stages` stages that share `work` as suits best:
 * stages before the busiest have to run once before it begins. */
int64_t pipeline_bound(int64_t work, int stages, int64_t micros);
/* Bytes that a rank of some stage needs at least: its share of weights, gradients and optimizer
 * state, and of one micro-batch's saved values. */
int64_t memory_bound(const Work *work, const Problem *problem, const Pins *pins);

/* One chunk on every stage, and backward in one part: busy paths bound such plans. */
bool pins_plain(const Pins *pins);
bool pins_split(const Pins *pins);

/* ---- search_cuts.c ---- */

typedef struct Cuts {
    int64_t step_ns; /* INT64_MAX: none is better than `below` */
    int first_link[MAX_CHUNKS + 1];
    int64_t bytes;
} Cuts;

typedef struct CutStats {
    int64_t simulated;
    bool complete; /* false: out of time; `bound` is what remains */
    int64_t bound;
} CutStats;

/* Called now and then; true: time is up. */
typedef struct Deadline {
    int64_t end_ns; /* of the monotonic clock; 0: none */
} Deadline;
bool deadline_passed(const Deadline *deadline);

/* A lower bound over all cuts that fit, from busy paths; INT64_MAX when none fits under `below`.
 * `fixed` has the pinned cuts or is NULL. */
typedef struct CutTable CutTable;
CutTable *cuts_table(Arena *arena, Family *family, const int *fixed, int64_t below);
int64_t cuts_bound(const CutTable *table);
bool cuts_fit(const CutTable *table);
/* The cuts that the busy paths like best, and even ones, where they are faster than `below`. */
Cuts cuts_first(CutTable *table, int64_t below, CutStats *stats);
/* The best cuts of the family that are faster than `below`. */
Cuts cuts_search(CutTable *table, int64_t below, const Deadline *deadline, CutStats *stats);

#endif
