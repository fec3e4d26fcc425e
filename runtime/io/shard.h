/* shard.h - boxes of logical tensors as runs of consecutive elements. */
#ifndef LPLAN_RUNTIME_IO_SHARD_H
#define LPLAN_RUNTIME_IO_SHARD_H

#include "runtime/lp.h"

/* Walks the box in memory order:
 *     LpRuns runs = lp_runs_begin(&shard);
 *     while (lp_runs_next(&runs)) use(runs.global, runs.local, runs.length);
 * Runs are as long as the box allows; padding beyond the tensor's dims belongs to no run. */
typedef struct LpRuns {
    const LpShard *shard;
    int outer;                        /* dims [0, outer) are counted, the rest is inside a run */
    int64_t index[LP_MAX_DIMS];       /* in the box */
    int64_t valid[LP_MAX_DIMS];       /* extent without padding */
    int64_t global_step[LP_MAX_DIMS]; /* elements per unit of a dim: in the tensor, in the box */
    int64_t local_step[LP_MAX_DIMS];
    bool fresh, empty;
    int64_t global, local,
        length; /* the present run: first element in the tensor, in the box; elements */
} LpRuns;

LpRuns lp_runs_begin(const LpShard *shard);
bool lp_runs_next(LpRuns *runs);

int64_t lp_shard_count(const LpShard *shard);        /* elements in memory, padding included */
int64_t lp_shard_tensor_count(const LpShard *shard); /* elements of the whole tensor */

/* NULL, or what is wrong with the box as a part of `tensor`. */
const char *lp_shard_error(const LpShard *shard, const LpTensor *tensor);

#endif
