/* check_carry.c - what the static proof asks of weights that do not live on their device: hops
 * carry a rank's block between its home, its places on the way and the buffer for uses. */
#include "ir/lower/check_in.h"
#include "ir/lower/state.h"

/* A rank's block of a bucket's weights: its first element, and how many. */
static int64_t block_begin(const Trace *trace, const Bucket *bucket, const Group *group,
                           int64_t *ret_count)
{
    const Mesh *mesh = &trace->program->plan->mesh;
    *ret_count = bucket->elements / list_extent(mesh, &group->weight_share);
    return bucket->begin + *ret_count * list_index(mesh, &group->weight_share, trace->coordinate);
}

static int width_of(const Trace *trace)
{
    return dtype_bytes(trace->program->recipe->weight);
}

int64_t weight_home_at(const Trace *trace, const Bucket *bucket, const Group *group, int version)
{
    int64_t count, begin = block_begin(trace, bucket, group, &count);
    return slot_of_version(trace->stage, version) + group->weight +
           (bucket->weight_begin - begin) * width_of(trace);
}

int64_t weight_buffer_at(const Trace *trace, const Bucket *bucket, int64_t address)
{
    const StageProgram *stage = trace->stage;
    bool back = stage->fetched_back && address >= stage->fetched + stage->fetched_back;
    return bucket->fetch - bucket->begin * width_of(trace) + (back ? stage->fetched_back : 0);
}

bool step_carries_weights(const Trace *trace, const TraceStep *step)
{
    const StageProgram *stage = trace->stage;
    bool carries = false;
    for (int k = 0; k < step->operands && step->kind == STEP_COPY; k++) {
        int64_t at = trace->operands.at[step->operand + k].address;
        carries = carries || (at >= stage->fetched && at < stage->fetched + stage->fetched_bytes) ||
                  (at >= stage->between && at < stage->between + stage->between_bytes);
    }
    return carries;
}

/* Where the block is in a memory; `address` tells the version's side. */
static int64_t block_at(const Trace *trace, const TraceStep *step, int64_t address)
{
    const StageProgram *stage = trace->stage;
    const Bucket *bucket = &stage->buckets.at[step->bucket];
    const Group *group = &stage->groups.at[bucket->group];
    int64_t count, from = block_begin(trace, bucket, group, &count) * width_of(trace);
    int version = step_leaves(trace, step) ? step->round + 1 : version_read(trace, step);
    bool back = stage->between_back && address >= stage->between + stage->between_back;
    if (address_memory(address) == trace->program->plan->memory[KEPT_WEIGHTS])
        return weight_home_at(trace, bucket, group, version) + from;
    if (address_memory(address) == MEMORY_HBM)
        return weight_buffer_at(trace, bucket, address) + from;
    return bucket->between + (back ? stage->between_back : 0);
}

const char *weights_misplaced(const Trace *trace, const TraceStep *step)
{
    const Bucket *bucket = &trace->stage->buckets.at[step->bucket];
    const Group *group = &trace->stage->groups.at[bucket->group];
    const Operand *operand = &trace->operands.at[step->operand];
    int64_t bytes;
    block_begin(trace, bucket, group, &bytes);
    bytes *= width_of(trace);
    bool out = step_leaves(trace, step);
    Memory far = address_memory(operand[out].address), near = address_memory(operand[!out].address);
    if (far == MEMORY_NVME) /* whole grains */
        bytes = (bytes + FILE_GRAIN - 1) / FILE_GRAIN * FILE_GRAIN;
    bool good = group->far && step->operands == 2 && operand[0].read && operand[1].write &&
                far == near + 1 && far <= trace->program->plan->memory[KEPT_WEIGHTS];
    for (int k = 0; k < 2 && good; k++)
        good = operand[k].bytes == bytes &&
               operand[k].address == block_at(trace, step, operand[k].address);
    return good ? NULL : "carries other bytes than this rank's weights of the bucket";
}
