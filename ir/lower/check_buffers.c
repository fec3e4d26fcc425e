/* check_buffers.c - the static proof of a layout: buckets that are whole, or on the device, for a
 * while. */
#include "ir/lower/check_in.h"
#include "ir/lower/state.h"

/* Links that use the bucket: all that point at one of its members. */
static void used_by(const StageProgram *stage, int b, int *ret_low, int *ret_high)
{
    *ret_low = stage->links;
    *ret_high = NONE;
    for (int i = 0; i < stage->links; i++)
        for (int p = 0; p < stage->link[i].body->graph->params.n; p++)
            if (stage->link[i].bucket[p] == b) {
                *ret_low = i < *ret_low ? i : *ret_low;
                *ret_high = i;
            }
}

/* Is link `b` later than a neighbour of link `a`? Rows end at the last link of a chunk, so the next
 * one is no neighbour of it. */
static bool beyond(const StageProgram *stage, int a, int b)
{
    return b > a + 1 || (b == a + 1 && stage->link[a].chunk != stage->link[b].chunk);
}

/* What of a bucket's weights is on its way between a file and the buffer: whole grains. */
static int64_t between_bytes(const Check *check, const StageProgram *stage, const Bucket *bucket)
{
    const AtomList *list = &stage->groups.at[bucket->group].weight_share;
    int64_t bytes = bucket->elements / list_extent(&check->program->plan->mesh, list) *
                    dtype_bytes(check->program->recipe->weight);
    return (bytes + FILE_GRAIN - 1) / FILE_GRAIN * FILE_GRAIN;
}

/* Two buckets that neighbouring links use lie apart. */
static bool check_apart(Check *check, const StageProgram *stage, int a, int b)
{
    const Bucket *x = &stage->buckets.at[a], *y = &stage->buckets.at[b];
    int64_t weight = dtype_bytes(check->program->recipe->weight),
            gradient = dtype_bytes(check->program->recipe->gradient);
    int low[2], high[2];
    used_by(stage, a, &low[0], &high[0]);
    used_by(stage, b, &low[1], &high[1]);
    if (beyond(stage, high[1], low[0]) || beyond(stage, high[0], low[1]))
        return true;
    bool weights = x->fetch != NONE && y->fetch != NONE &&
                   x->fetch < y->fetch + y->elements * weight &&
                   y->fetch < x->fetch + x->elements * weight;
    weights = weights || (x->between != NONE && y->between != NONE &&
                          x->between < y->between + between_bytes(check, stage, y) &&
                          y->between < x->between + between_bytes(check, stage, x));
    bool gradients = x->buffer != NONE && y->buffer != NONE &&
                     x->buffer < y->buffer + y->elements * gradient &&
                     y->buffer < x->buffer + x->elements * gradient;
    return (!weights && !gradients) ||
           check_fault(check, "stage %d: the %s of buckets %d and %d share bytes", stage->index,
                       weights ? "fetched weights" : "gradient buffers", a, b);
}

/* Where its far gradients lie: at home in the order of the group, each block apart; on the device
 * and in memories between apart from those that links beside it need. */
static bool check_far(Check *check, const StageProgram *stage, int a, int b)
{
    const Program *program = check->program;
    const Bucket *x = &stage->buckets.at[a], *y = &stage->buckets.at[b];
    const Group *own[2] = {&stage->groups.at[x->group], &stage->groups.at[y->group]};
    Memory home = program->plan->memory[KEPT_GRADIENTS];
    int low[2], high[2];
    used_by(stage, a, &low[0], &high[0]);
    used_by(stage, b, &low[1], &high[1]);
    for (int k = 0; k < 2; k++) /* a buffer goes on to its home behind its last link */
        high[k] = own[k]->buffered ? low[k] : high[k];
    bool together = !beyond(stage, high[1], low[0]) && !beyond(stage, high[0], low[1]);
    for (int m = MEMORY_HBM; m <= (int)home; m++)
        if ((m == (int)home || together) && own[0]->far_gradients && own[1]->far_gradients &&
            x->gradient[m] < y->gradient[m] + sums_block_bytes(program, stage, b) &&
            y->gradient[m] < x->gradient[m] + sums_block_bytes(program, stage, a))
            return check_fault(check,
                               "stage %d: the far gradients of buckets %d and %d share bytes",
                               stage->index, a, b);
    return true;
}

/* A bucket has the buffers that its homes ask for, of its own among its neighbours. */
bool check_buffers(Check *check, const StageProgram *stage)
{
    bool good = true;
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        const Group *group = &stage->groups.at[bucket->group];
        int low, high;
        used_by(stage, b, &low, &high);
        if ((bucket->fetch != NONE) != (group->far || group->weight_share.n > 0) ||
            (bucket->buffer != NONE) != group->buffered ||
            (bucket->gradient[MEMORY_HBM] != NONE) != group->far_gradients ||
            (bucket->between != NONE) != (address_memory(group->weight) == MEMORY_NVME) ||
            bucket->close_link != low || bucket->open_link != high)
            good = check_fault(check, "stage %d: bucket %d has other buffers or links than it says",
                               stage->index, b);
        int64_t bytes = bucket->elements * dtype_bytes(check->program->recipe->weight);
        if (stage->fetched_back && bucket->fetch != NONE &&
            bucket->fetch + bytes > stage->fetched + stage->fetched_back)
            good = check_fault(check, "stage %d: forward and backward share bucket %d's weights",
                               stage->index, b);
        if (bucket->between != NONE && stage->fetched_back &&
            bucket->between + between_bytes(check, stage, bucket) >
                stage->between + stage->between_back)
            good = check_fault(check, "stage %d: both rows of two share bucket %d's weights",
                               stage->index, b);
        for (int other = 0; other < b; other++)
            good &= check_apart(check, stage, other, b) && check_far(check, stage, other, b);
    }
    return good;
}
