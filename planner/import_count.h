/* import_count.h - what a model counts: parameters, those that a token meets, FLOPs. */
#ifndef LPLAN_PLANNER_IMPORT_COUNT_H
#define LPLAN_PLANNER_IMPORT_COUNT_H

#include "ir/graph.h"

typedef struct CountRow {
    int links;       /* of the chain that are of this class */
    int64_t params;  /* of one; a tied tensor counts where it occurs first */
    int64_t active;  /* of one, a choice of k of e experts counted as k/e of them */
    int64_t forward; /* FLOPs of one and one token */
} CountRow;

typedef struct Count {
    CountRow *row; /* per class of the net */
    int64_t params, active;
    int64_t forward, backward; /* FLOPs per token */
} Count;

/* Model FLOPs: two per multiply-add of products with weights and of attention, all pairs of
 * positions counted, whatever the mask. Backward is twice forward; recomputation is not counted. */
Count net_count(Arena *arena, const Net *net);

#endif
