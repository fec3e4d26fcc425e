/* shard.c - boxes of logical tensors as runs of consecutive elements. */
#include "runtime/io/shard.h"

#include <stddef.h>

int64_t lp_shard_count(const LpShard *shard)
{
    int64_t count = 1;
    for (int i = 0; i < shard->ndims; i++)
        count *= shard->extent[i];
    return count;
}

int64_t lp_shard_tensor_count(const LpShard *shard)
{
    int64_t count = 1;
    for (int i = 0; i < shard->ndims; i++)
        count *= shard->dims[i];
    return count;
}

const char *lp_shard_error(const LpShard *shard, const LpTensor *tensor)
{
    int64_t count = 1;
    if (shard->ndims < 0 || shard->ndims > LP_MAX_DIMS)
        return "the box has too many dims";
    for (int i = 0; i < shard->ndims; i++)
        if (shard->begin[i] < 0 || shard->extent[i] < 0 || shard->dims[i] < 0)
            return "the box has a negative bound";
    for (int i = 0; i < tensor->ndims; i++)
        count *= tensor->dims[i];
    return count == lp_shard_tensor_count(shard) ? NULL : "the box is of a tensor of another size";
}

LpRuns lp_runs_begin(const LpShard *shard)
{
    LpRuns runs = {.shard = shard, .fresh = true};
    int64_t global_step = 1, local_step = 1;
    for (int i = shard->ndims - 1; i >= 0; i--) {
        int64_t left = shard->dims[i] - shard->begin[i];
        runs.valid[i] = left < shard->extent[i] ? left : shard->extent[i];
        runs.empty = runs.empty || runs.valid[i] <= 0;
        runs.global_step[i] = global_step;
        runs.local_step[i] = local_step;
        global_step *= shard->dims[i];
        local_step *= shard->extent[i];
    }
    /* A run swallows dims from the inside while those within are whole in the tensor and in the
     * box. */
    int outer = shard->ndims;
    runs.length = 1;
    while (outer > 0) {
        outer--;
        runs.length *= runs.valid[outer];
        if (runs.valid[outer] != shard->dims[outer] || runs.valid[outer] != shard->extent[outer])
            break;
    }
    runs.outer = outer;
    return runs;
}

bool lp_runs_next(LpRuns *runs)
{
    if (runs->empty)
        return false;
    int dim = runs->outer - 1;
    if (runs->fresh) {
        runs->fresh = false;
    } else {
        while (dim >= 0 && ++runs->index[dim] == runs->valid[dim])
            runs->index[dim--] = 0;
        if (dim < 0)
            return false;
    }
    const LpShard *shard = runs->shard;
    runs->global = runs->local = 0;
    for (int i = 0; i < shard->ndims; i++) {
        runs->global += (shard->begin[i] + runs->index[i]) * runs->global_step[i];
        runs->local += runs->index[i] * runs->local_step[i];
    }
    return true;
}

/* Each box begins as far out as its place and the elements left allow: they grow, then shrink. */
int lp_part_cut(const LpPart *whole, int64_t begin, int64_t end, float *data, LpPart *ret_parts)
{
    const LpShard *shard = &whole->shard;
    int count = 0;
    for (int64_t at = begin; at < end; count++) {
        LpPart *part = &ret_parts[count];
        *part = *whole;
        part->data = data + (at - begin);
        int64_t inner = lp_shard_count(shard), left = at;
        int dim = 0;
        for (; dim < shard->ndims; dim++) {
            inner /= shard->extent[dim];
            part->shard.begin[dim] += left / inner;
            part->shard.extent[dim] = 1;
            int64_t room = shard->extent[dim] - left / inner;
            left %= inner;
            if (left == 0 && end - at >= inner) {
                int64_t fits = (end - at) / inner;
                part->shard.extent[dim] = fits < room ? fits : room;
                break;
            }
        }
        at += dim < shard->ndims ? inner * part->shard.extent[dim] : 1;
    }
    return count;
}
