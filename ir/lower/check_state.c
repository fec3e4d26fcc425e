/* check_state.c - what the static proof asks of optimizer state, and of weights, that do not live
 * on their device: only copies reach their homes, and what leaves a slot has been stepped there. */
#include "ir/lower/check_cells.h"
#include "ir/lower/state.h"

/* Only copies reach what is not in the device's memory. */
bool state_is_away(const TraceStep *step, const Cell *cell)
{
    RegionKind kind = cell->region->kind;
    bool home = (kind >= REGION_WEIGHT && kind <= REGION_MASTER) || kind == REGION_SUMS;
    return step->kind != STEP_COPY && home && address_memory(cell->region->begin) != MEMORY_HBM;
}

/* Goes away from the device. */
bool state_leaves(const Trace *trace, const TraceStep *step)
{
    return step->kind == STEP_COPY && step->bucket != NONE && step_leaves(trace, step);
}

/* In what a hop carries beyond the share, to fill a grain of a file, nothing is stepped; nor in
 * padding between whole matrices. */
static bool in_share(const CellRun *run, const TraceStep *step, const Operand *operand,
                     int64_t begin)
{
    const Trace *trace = run->trace;
    const Recipe *recipe = trace->program->recipe;
    const Bucket *bucket = &trace->stage->buckets.at[step->bucket];
    const Group *group = &trace->stage->groups.at[bucket->group];
    bool weights = region_find(run->regions, begin, 1)->kind == REGION_FETCHED;
    int64_t at =
        (begin - operand->address) / dtype_bytes(weights ? recipe->weight : recipe->master);
    if (group->matrix == NONE || at >= bucket->share_elements)
        return at < bucket->share_elements;
    at += bucket_share_begin(trace->program, trace->stage, bucket, trace->coordinate);
    for (int k = 0; k < group->members.n; k++) {
        const GroupMember *member = &group->members.at[k];
        if (at >= member->offset && at < member->offset + member->elements)
            return true;
    }
    return false;
}

const char *state_taken(const CellRun *run, const TraceStep *step, const Operand *operand,
                        const Cell *cell, int64_t begin)
{
    bool early =
        state_leaves(run->trace, step) && !cell->stepped && in_share(run, step, operand, begin);
    return early ? "takes away before its update" : NULL;
}

/* Fields that an update steps, there and back through every memory between. */
int state_hops_due(const Group *group)
{
    bool any = group->rate == 0 || group->master != NONE;
    return any ? 2 * (int)address_memory(group->moment1) : 0;
}

/* A hop carries each field of the bucket between neighbouring memories, whole. */
const char *state_misplaced(const Trace *trace, const TraceStep *step)
{
    const Program *program = trace->program;
    const Bucket *bucket = &trace->stage->buckets.at[step->bucket];
    const Group *group = &trace->stage->groups.at[bucket->group];
    const Operand *operand = &trace->operands.at[step->operand];
    StateField kept[FIELD_COUNT];
    int fields = 0;
    for (int f = 0; f < FIELD_COUNT; f++) /* a matrix has one moment, what moves by signs none */
        if (group_field(group, (StateField)f) != NONE && (group->rate == 0 || f == FIELD_MASTER))
            kept[fields++] = (StateField)f;
    int width = dtype_bytes(program->recipe->master);
    Memory home = address_memory(group->moment1);
    bool good = step->operands == 2 * fields && fields > 0;
    for (int k = 0; good && k < step->operands; k++) {
        Memory memory = address_memory(operand[k].address),
               other = address_memory(operand[k ^ 1].address);
        StateField field = kept[k / 2];
        int64_t at = memory == home
                         ? group_field(group, field) + bucket->share_begin * width
                         : slot_address(program, trace->stage, memory, step->bucket, field);
        good = operand[k].read == (k % 2 == 0) && operand[k].write == (k % 2 == 1) &&
               operand[k].address == at && operand[k].bytes >= bucket->share_elements * width &&
               operand[k].bytes == operand[0].bytes &&
               (memory == other + 1 || other == memory + 1) && memory <= home;
    }
    return good ? NULL : "carries other bytes than this rank's state of the bucket";
}
