/* check_state.c - what the static proof asks of optimizer state, and of weights, that do not live
 * on their device: only copies reach their homes, and what leaves a slot has been stepped there. */
#include "ir/lower/check_cells.h"
#include "ir/lower/state.h"

/* Only copies reach what is not in the device's memory. */
bool state_is_away(const CellRun *run, const TraceStep *step, const Cell *cell)
{
    RegionKind kind = cell->region->kind;
    bool state = kind >= REGION_MOMENT1 && kind <= REGION_MASTER &&
                 run->trace->program->plan->memory[KEPT_STATE] != MEMORY_HBM;
    bool weight = kind == REGION_WEIGHT && address_memory(cell->region->begin) != MEMORY_HBM;
    return step->kind != STEP_COPY && (state || weight);
}

/* Goes away from the device. */
bool state_leaves(const Trace *trace, const TraceStep *step)
{
    const Operand *operand = &trace->operands.at[step->operand];
    return step->kind == STEP_COPY && step->bucket != NONE &&
           operand[0].address < operand[1].address;
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
    if (group->matrix == NONE)
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
