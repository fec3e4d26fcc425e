/* check_place.c - the static proof of places: every operand lies where its kind of value lives. */
#include "ir/lower/check_cells.h"
#include "ir/lower/matrix_row.h"

bool step_is_matrix(const TraceStep *step)
{
    return step->inst && step->bucket != NONE;
}

/* How many updates lie behind the weights that a Step must find: the optimizer takes the newest,
 * layers, and what is fetched for them, those of so many steps ago as the stage says. */
int version_read(const Trace *trace, const TraceStep *step)
{
    const Entry *entry = stage_entry(trace->stage, step->entry, step->evaluates);
    int stale = entry->kind == ENTRY_UPDATE ? 0 : trace->stage->delay;
    return step->round > stale ? step->round - stale : 0;
}

/* Where forward leaves values of links to backward. */
static bool is_saved_ring(int ring)
{
    return ring == RING_SAVED || ring == RING_SAVED_W || ring == RING_STAYS || ring == RING_STAYS_W;
}

/* Where a copy of this home may be. */
static bool is_home(const Region *region, Home home)
{
    int k = region->index;
    switch (home) {
    case HOME_DATA:
        return region->kind == REGION_RING && k == RING_DATA;
    case HOME_PARAM:
        return region->kind == REGION_WEIGHT || region->kind == REGION_FETCHED;
    case HOME_ACC:
        return region->kind == REGION_GRADIENT || region->kind == REGION_SCALARS ||
               region->kind == REGION_BUFFER || region->kind == REGION_SUMS;
    case HOME_IN:
        return region->kind == REGION_RING ? k == RING_IN || is_saved_ring(k)
                                           : region->kind == REGION_PASS && k < 2;
    case HOME_OUT: /* in the ring of the next chunk, where this stage has it */
        return region->kind == REGION_RING ? k == RING_OUT || k == RING_IN || is_saved_ring(k)
                                           : region->kind == REGION_PASS && k < 2;
    case HOME_GRAD_IN:
        return region->kind == REGION_RING ? k == RING_GRAD_IN || k == RING_SAVED_IW
                                           : region->kind == REGION_PASS && k >= 2;
    case HOME_GRAD_OUT:
        return region->kind == REGION_RING
                   ? k == RING_GRAD_OUT || k == RING_GRAD_IN || k == RING_SAVED_IW
                   : region->kind == REGION_PASS && k >= 2;
    case HOME_SAVED:
    case HOME_SAVED_W:
        return region->kind == REGION_RING && (k == RING_SAVED + (int)(home - HOME_SAVED) ||
                                               k == RING_STAYS + (int)(home - HOME_SAVED));
    case HOME_SAVED_IW:
        return region->kind == REGION_RING && k == RING_SAVED_IW;
    case HOME_TEMP:
        return region->kind == REGION_SCRATCH;
    default:
        return false;
    }
}

/* The number of a micro-batch, in its step or in the run, by which rings go. */
static int number_of(const CellRun *run, const TraceStep *step)
{
    const Program *program = run->trace->program;
    return step->micro + (program->flows ? step->round * program->plan->micro_batches : 0);
}

/* Weights and accumulators stand at fixed addresses: those of a version. */
static bool is_fixed_place(const CellRun *run, const TraceStep *step, const Copy *copy,
                           int64_t address)
{
    const StageProgram *stage = run->trace->stage;
    const StageLink *link = &stage->link[step->link];
    if (copy->home == HOME_PARAM)
        return address == link->weight[copy->param] +
                              (stage->buckets.at[link->bucket[copy->param]].fetch == NONE
                                   ? slot_of_version(stage, version_read(run->trace, step))
                               : body_list_with(step->body, step->inst) > 0 ? stage->fetched_back
                                                                            : 0);
    if (copy->home == HOME_ACC)
        return address == (copy->param == NONE ? stage->scalars + 64 * SCALAR_LOSS +
                                                     copy->number * dtype_bytes(copy->dtype)
                                               : link->gradient[copy->param]);
    return true;
}

/* Of a matrix's step: temps in the scratch area, all else in the group of its bucket. */
static bool is_matrix_place(const CellRun *run, const TraceStep *step, const Operand *operand,
                            const Region *region)
{
    const Trace *trace = run->trace;
    const Copy *copy = operand->copy;
    for (int hops = 0; copy->alias != NONE && hops < step->body->copies.n; hops++)
        copy = &step->body->copies.at[copy->alias];
    if (copy->home == HOME_TEMP)
        return region->kind == REGION_SCRATCH &&
               operand->address == trace->stage->scratch + copy->offset;
    return (copy->home == HOME_PARAM || copy->home == HOME_ACC) &&
           operand->address == matrix_operand(trace->program, trace->stage,
                                              &trace->stage->buckets.at[step->bucket],
                                              trace->coordinate, step->from_element, copy->param,
                                              step->round + (copy->home == HOME_ACC));
}

bool check_place(CellRun *run, const TraceStep *step, const Operand *operand)
{
    const Region *region = region_find(run->regions, operand->address, operand->bytes);
    const char *what = NULL;
    if (!region) {
        what = "lies in no region of the layout";
    } else if (operand->copy && step_is_matrix(step)) {
        what = is_matrix_place(run, step, operand, region)
                   ? NULL
                   : "is not where an operand of its matrix's step lives";
    } else if (operand->copy) {
        const StageProgram *stage = run->trace->stage;
        const Body *body = stage->link[step->link].body;
        const Copy *copy = operand->copy;
        for (int hops = 0; copy->alias != NONE && hops < body->copies.n; hops++)
            copy = &body->copies.at[copy->alias];
        const Ring *ring =
            region->kind == REGION_RING ? &stage->chunk[region->chunk].ring[region->index] : NULL;
        int64_t slot = ring ? (operand->address - ring->base) / ring->stride : 0;
        if (!is_home(region, copy->home) || !is_fixed_place(run, step, copy, operand->address))
            what = "is not where its kind of value lives";
        else if (ring &&
                 (slot != ring_slot(ring, number_of(run, step),
                                    step->inst && body_list_with(body, step->inst) > 0) ||
                  (operand->address - ring->base) % ring->stride + operand->bytes > ring->stride))
            what = "lies outside of its micro-batch's slot";
    }
    if (!what && step_spills(step))
        what = spill_misplaced(run->trace, step, operand);
    if (!what)
        return true;
    return check_fault(
        run->check, "%s: %s, bytes %lld to %lld, %s", trace_name(run->arena, run->trace, step),
        operand->copy ? operand->copy->name : "flat memory", (long long)operand->address,
        (long long)(operand->address + operand->bytes), what);
}
