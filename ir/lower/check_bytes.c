/* check_bytes.c - the static proof of one rank's bytes and events.
 *
 * All addresses of a trace cut its memory into cells. A cell holds the name of a value and who
 * wrote it and reads it; every Step has a clock, the latest Step of each stream that is certain to
 * be over before it begins. A read must find the value it names, of this optimizer step, from its
 * first byte on, behind the write; a write must be behind the write and all reads before it.
 * Weights, gradients and moments have one name for ever: for them the cell counts what happened in
 * this optimizer step. */
#include "ir/lower/check_in.h"

#include <stdlib.h>
#include <string.h>

#include "ir/lower/check_cells.h"

/* Words for the value in a cell. */
static const char *held(const CellRun *run, const Cell *cell)
{
    if (cell->writer < 0)
        return "nothing was ever written there";
    const Trace *trace = run->trace;
    const TraceStep *writer = &trace->steps.at[cell->writer];
    for (int k = 0; k < writer->operands; k++) {
        const Operand *operand = &trace->operands.at[writer->operand + k];
        if (operand->write && operand->name == cell->name && operand->address == cell->base &&
            operand->copy)
            return arena_printf(run->arena, "%s is there, written by %s", operand->copy->name,
                                trace_name(run->arena, trace, writer));
    }
    return arena_printf(run->arena, "written by %s", trace_name(run->arena, trace, writer));
}

static bool fault(CellRun *run, const TraceStep *step, const Operand *operand, const Cell *cell,
                  const char *what)
{
    return check_fault(run->check, "%s: %s %s, bytes %lld to %lld of the %s; %s",
                       trace_name(run->arena, run->trace, step), what,
                       operand->copy ? operand->copy->name : "flat memory",
                       (long long)operand->address, (long long)(operand->address + operand->bytes),
                       cell->region
                           ? region_words(run->arena, run->trace->program, run->trace->stage,
                                          cell->region, operand->address)
                           : "arena",
                       held(run, cell));
}

/* ---- order ---- */

static bool is_over(const CellRun *run, const Clock *clock, int writer)
{
    const TraceStep *step = &run->trace->steps.at[writer];
    return clock->seq[step->stream] >= step->seq;
}

/* The clock of a Step: its stream's past and that of all it waits for. */
static bool advance(CellRun *run, int at, Clock *ret)
{
    const Trace *trace = run->trace;
    const TraceStep *step = &trace->steps.at[at];
    bool good = true;
    *ret = run->now[step->stream];
    if (step->seq != run->seen[step->stream].n)
        good = check_fault(run->check, "%s: its number in the stream should be %d",
                           trace_name(run->arena, trace, step), run->seen[step->stream].n);
    for (int w = 0; w < step->waits; w++) {
        const Wait *wait = &trace->waits.at[step->wait + w];
        bool known =
            wait->stream < STREAM_COUNT && wait->seq >= 0 && wait->seq < run->seen[wait->stream].n;
        if (!known) {
            good = check_fault(run->check, "%s: waits for %s#%lld, which is no earlier Step",
                               trace_name(run->arena, trace, step),
                               wait->stream < STREAM_COUNT ? stream_text[wait->stream] : "?",
                               (long long)wait->seq);
            continue;
        }
        const Clock *other = &run->clock[run->seen[wait->stream].at[wait->seq]];
        for (int s = 0; s < STREAM_COUNT; s++)
            if (other->seq[s] > ret->seq[s])
                ret->seq[s] = other->seq[s];
    }
    ret->seq[step->stream] = run->seen[step->stream].n;
    run->clock[at] = run->now[step->stream] = *ret;
    vec_push(run->arena, &run->seen[step->stream]) = at;
    return good;
}

/* ---- what a cell of static memory may be asked for ---- */

static bool is_flat(const TraceStep *step)
{
    return step->inst == NULL;
}

/* How many sums a gradient needs before `step` may use it: those of its group's path that come
 * earlier, and the tied one. */
static int sums_before(const CellRun *run, const TraceStep *step, const Group *group)
{
    const Path *path = on_path(step, &group->scatter) ? &group->scatter : &group->reduce;
    int n = 0;
    (void)run;
    for (int i = 0; i < path->n; i++) {
        if (step->move == &path->move[i])
            return n;
        n += path->move[i].kind != MOVE_SLICE;
    }
    return n + (step->kind != STEP_TIED && group->tied_stage != NONE);
}

static const Group *group_of(const CellRun *run, const TraceStep *step, const Cell *cell)
{
    const StageProgram *stage = run->trace->stage;
    bool sums = cell->region->kind == REGION_SUMS; /* of one bucket after the other */
    return &stage->groups.at[sums ? stage->buckets.at[step->bucket].group : cell->region->index];
}

/* Gradients of earlier micro-batches that a buffer takes in. */
static bool is_fold(const TraceStep *step)
{
    return step->kind == STEP_ACCUMULATE && is_flat(step);
}

static const char *fold_gradient(const TraceStep *step, Cell *cell)
{
    if (cell->round != step->round || cell->adds == 0)
        return "takes in a gradient of an earlier step:";
    if (cell->folded)
        return "takes in twice what earlier micro-batches added:";
    cell->folded = true;
    return NULL;
}

static const char *read_gradient(const CellRun *run, const TraceStep *step, Cell *cell)
{
    if (is_fold(step))
        return fold_gradient(step, cell);
    cell->closed = true;
    if (cell->expected == 0)
        return NULL;
    if (cell->round != step->round || cell->adds == 0)
        return "uses a gradient of an earlier step:";
    if (cell->adds != cell->expected)
        return "uses a gradient before every micro-batch has been added:";
    if (cell->sums != sums_before(run, step, group_of(run, step, cell)))
        return "uses a gradient whose sums over ranks are not those that come before:";
    return NULL;
}

static const char *read_scalar(const CellRun *run, const TraceStep *step, const Operand *operand,
                               const Cell *cell)
{
    int64_t which = (operand->address - run->trace->stage->scalars) / 64;
    if (which == SCALAR_LR || which == SCALAR_STEP)
        return NULL;
    if (which == SCALAR_COEF && run->trace->program->flows)
        return NULL; /* one for ever */
    int64_t last = loss_address(run->trace->program, run->trace->stage, MOST_AHEAD);
    bool sum = operand->address <= last; /* of a loss, over micro-batches */
    if (sum && cell->expected == 0)
        return NULL; /* a stage without the loss: zero for ever */
    if (cell->round != step->round || cell->writer < 0 || cell->evaluated != step->evaluates)
        return "reads a number of an earlier step:";
    if (sum && is_flat(step) && cell->adds != cell->expected)
        return "uses the loss before every micro-batch has been added:";
    return NULL;
}

/* A fault of reading a cell whose name does not change, or NULL. */
static const char *read_static(const CellRun *run, const TraceStep *step, const Operand *operand,
                               Cell *cell, int64_t begin)
{
    if (operand->write && ((operand->copy && !step_is_matrix(step)) || is_fold(step)))
        return NULL; /* an accumulator: judged as a write */
    if (state_is_away(step, cell))
        return "reads in a far memory";
    switch (cell->region->kind) {
    case REGION_GRADIENT:
        if (step_sums(run->trace, step))
            return sums_taken(run, step, operand, cell, begin);
        return is_flat(step) || step_is_matrix(step) ? read_gradient(run, step, cell)
                                                     : "reads a gradient inside a layer:";
    case REGION_WEIGHT:
        if (is_flat(step) && step->kind == STEP_MOVE &&
            !on_path(step, &group_of(run, step, cell)->fetch))
            return cell->round == step->round || !cell->trained
                       ? NULL
                       : "gathers a weight that this step has not updated:";
        return cell->round == version_read(run->trace, step) - 1 || !cell->trained
                   ? NULL
                   : "reads a weight of the wrong step:";
    case REGION_MOMENT1:
    case REGION_MOMENT2:
    case REGION_MASTER:
        return cell->round == step->round - 1 ? NULL : "updates twice in one step:";
    case REGION_SCALARS:
        return read_scalar(run, step, operand, cell);
    default:
        return NULL;
    }
}

static const char *accumulate(const TraceStep *step, const Operand *operand, Cell *cell)
{
    bool first =
        cell->round != step->round || cell->adds == 0 || cell->evaluated != step->evaluates;
    bool more = step->inst && step->inst->turn > 0; /* of the same micro-batch: another turn */
    if (cell->expected == 0)
        return "adds a gradient where there is no parameter:";
    if (!first && cell->closed)
        return "adds to a gradient that is already being reduced:";
    if (first && operand->read)
        return "adds to what an earlier step left:";
    if (!first && !operand->read)
        return "overwrites what earlier micro-batches added:";
    if (first && more)
        return "adds a later turn of a ring before the first:";
    cell->adds = first ? 1 : cell->adds + !more;
    cell->sums = 0;
    cell->closed = false;
    return cell->adds > cell->expected ? "adds more often than there are micro-batches:" : NULL;
}

/* Sums of a micro-batch come home, or the sums of all go on. */
static const char *write_gradient(const CellRun *run, const TraceStep *step, const Operand *operand,
                                  Cell *cell)
{
    const Group *group = group_of(run, step, cell);
    if (is_fold(step))
        return accumulate(step, operand, cell);
    if (on_path(step, &group->scatter)) {
        bool first = cell->round != step->round || cell->adds == 0;
        if (!first && !cell->folded)
            return "overwrites what earlier micro-batches added:";
        Operand sum = *operand;
        sum.read = !first;
        cell->folded = false;
        return accumulate(step, &sum, cell);
    }
    cell->sums = sums_before(run, step, group) + 1;
    return on_path(step, &group->reduce) || step->kind == STEP_TIED ? NULL
                                                                    : "writes into the gradients:";
}

static const char *write_static(const CellRun *run, const TraceStep *step, const Operand *operand,
                                Cell *cell)
{
    RegionKind kind = cell->region->kind;
    if (state_is_away(step, cell))
        return "writes into a far memory";
    if (step_is_matrix(step))
        return kind == REGION_WEIGHT || kind == REGION_MOMENT1 || kind == REGION_MASTER
                   ? NULL
                   : "writes over an operand of its matrix's step:";
    if (operand->copy)
        return kind == REGION_GRADIENT || kind == REGION_SCALARS ? accumulate(step, operand, cell)
                                                                 : "writes into a layer's weights:";
    if (kind == REGION_GRADIENT)
        return step_sums(run->trace, step) ? NULL : write_gradient(run, step, operand, cell);
    return NULL;
}

/* ---- gradients at work that live elsewhere ---- */

static const char *read_sums(const CellRun *run, const TraceStep *step, const Operand *operand,
                             Cell *cell, int64_t begin)
{
    if (step_sums(run->trace, step))
        return sums_taken(run, step, operand, cell, begin);
    if (state_is_away(step, cell))
        return "reads in a far memory";
    if (operand->write && (operand->copy || is_fold(step)))
        return NULL; /* an accumulator: judged as a write */
    if (operand->copy)
        return "reads a gradient inside a layer:";
    if (cell->name != operand->name)
        return "does not find";
    return cell->dirty && cell->expected == 0 ? "sends padding that is not zero:"
                                              : read_gradient(run, step, cell);
}

static const char *write_sums(const CellRun *run, const TraceStep *step, const Operand *operand,
                              Cell *cell, int64_t begin)
{
    if (step_sums(run->trace, step))
        return NULL; /* it counts on: sums_carry */
    if (state_is_away(step, cell))
        return "writes into a far memory";
    sums_begin(run, step, operand, cell, begin);
    cell->dirty = step->kind != STEP_CLEAR && (cell->dirty || cell->expected > 0);
    if (step->kind == STEP_CLEAR)
        return cell->expected == 0 ? NULL : "clears a gradient:";
    return operand->copy ? accumulate(step, operand, cell)
                         : write_gradient(run, step, operand, cell);
}

/* ---- what is whole for a while ---- */

/* The member of a bucket that its buffer has at an address, or NULL between members. */
static const GroupMember *member_in_buffer(const CellRun *run, int b, int64_t address)
{
    const Bucket *bucket = &run->trace->stage->buckets.at[b];
    const Group *group = &run->trace->stage->groups.at[bucket->group];
    int64_t element = bucket->begin + (address - bucket->buffer) /
                                          dtype_bytes(run->trace->program->recipe->gradient);
    int low = 0, high = group->members.n - 1; /* by offset */
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (group->members.at[mid].offset <= element)
            low = mid;
        else
            high = mid - 1;
    }
    const GroupMember *member = &group->members.at[low];
    return element >= member->offset && element < member->offset + member->elements ? member : NULL;
}

/* A bucket's accumulators go on their way: all terms of the micro-batch are there, and padding is
 * zero. */
static const char *read_buffer(const CellRun *run, const TraceStep *step, const Operand *operand,
                               Cell *cell, int64_t begin)
{
    if (operand->copy)
        return operand->write ? NULL : "reads a gradient inside a layer:";
    const StageProgram *stage = run->trace->stage;
    const Group *group = &stage->groups.at[stage->buckets.at[step->bucket].group];
    const GroupMember *member = member_in_buffer(run, step->bucket, begin);
    if (!member)
        return cell->dirty ? "sends padding that is not zero:" : NULL;
    if (cell->writer < 0 || cell->name != operand->name || cell->round != step->round)
        return "does not find";
    if (cell->adds != member_uses(run->trace->program, stage, group, member))
        return "uses a gradient before every link has added to it:";
    if (step->kind == STEP_MOVE && cell->sums != sums_before(run, step, group))
        return "uses a gradient whose sums over ranks are not those that come before:";
    cell->closed = true;
    return NULL;
}

static const char *write_buffer(const CellRun *run, const TraceStep *step, const Operand *operand,
                                Cell *cell, int64_t begin)
{
    if (step->kind == STEP_CLEAR) {
        bool padding = !member_in_buffer(run, step->bucket, begin);
        cell->dirty = false;
        return padding ? NULL : "clears a gradient:";
    }
    if (!operand->copy) {
        const StageProgram *stage = run->trace->stage;
        const Group *group = &stage->groups.at[stage->buckets.at[step->bucket].group];
        cell->dirty |= member_in_buffer(run, step->bucket, begin) != NULL;
        cell->sums = step->kind == STEP_MOVE ? sums_before(run, step, group) + 1 : cell->sums;
        return is_fold(step) || on_path(step, &group->scatter) ? NULL
                                                               : "writes into the gradients:";
    }
    bool first = cell->name != operand->name || cell->round != step->round || cell->adds == 0;
    if (first && operand->read)
        return "adds to what another micro-batch left:";
    if (!first && !operand->read)
        return "overwrites what the micro-batch added:";
    if (!first && cell->closed)
        return "adds to a gradient that is already being reduced:";
    bool more = step->inst && step->inst->turn > 0; /* another turn of one node */
    if (first && more)
        return "adds a later turn of a ring before the first:";
    cell->adds = first ? 1 : cell->adds + !more;
    cell->sums = 0;
    cell->closed = false;
    cell->dirty = true;
    return NULL;
}

/* ---- accesses ---- */

static bool is_static(const Cell *cell)
{
    return cell->region && cell->region->kind < REGION_RING;
}

static bool read_cells(CellRun *run, const TraceStep *step, const Operand *operand,
                       const Clock *clock)
{
    CellSpan span = cell_span(run, operand);
    for (int i = span.begin; i < span.end; i++) {
        Cell *cell = &run->cell[i];
        const char *what = NULL;
        if (!cell->region)
            what = "reads outside of every region:";
        else if (is_static(cell))
            what = read_static(run, step, operand, cell, run->begin[i]);
        else if (step_spills(step))
            what = NULL; /* it carries what is there, and says no more of it */
        else if (cell->region->kind == REGION_AWAY)
            what = "reads in a far memory";
        else if (cell->region->kind == REGION_BUFFER)
            what = read_buffer(run, step, operand, cell, run->begin[i]);
        else if (cell->region->kind == REGION_SUMS)
            what = read_sums(run, step, operand, cell, run->begin[i]);
        else if (cell->writer < 0 || cell->name != operand->name || cell->round != step->round)
            what = "does not find";
        else if (cell->region->kind == REGION_FETCHED || cell->region->kind == REGION_SLOTS)
            what = state_taken(run, step, operand, cell, run->begin[i]);
        else if (cell->base != operand->address && cell->region->kind != REGION_FETCHED)
            what = "finds at another place";
        if (!what && cell->writer >= 0 && !is_over(run, clock, cell->writer))
            what = "does not wait for the write of";
        if (cell->reader[step->stream] < (int32_t)step->seq)
            cell->reader[step->stream] = (int32_t)step->seq;
        if (what)
            return fault(run, step, operand, cell, what);
    }
    return true;
}

static bool write_cells(CellRun *run, int at, const Operand *operand, const Clock *clock)
{
    const TraceStep *step = &run->trace->steps.at[at];
    CellSpan span = cell_span(run, operand);
    bool good = true;
    for (int i = span.begin; i < span.end; i++) {
        Cell *cell = &run->cell[i];
        const char *what = NULL;
        if (!cell->region)
            what = "writes outside of every region:";
        else if (is_static(cell))
            what = write_static(run, step, operand, cell);
        else if (cell->region->kind == REGION_BUFFER)
            what = write_buffer(run, step, operand, cell, run->begin[i]);
        else if (cell->region->kind == REGION_SUMS)
            what = write_sums(run, step, operand, cell, run->begin[i]);
        else if (cell->region->kind == REGION_FETCHED && operand->copy && !step_is_matrix(step))
            what = "writes into a layer's weights:";
        else if (cell->region->kind == REGION_AWAY && !step_spills(step))
            what = "writes into a far memory";
        if (!what && cell->writer >= 0 && !is_over(run, clock, cell->writer))
            what = "may be overtaken by the earlier write of what it writes,";
        for (int s = 0; s < STREAM_COUNT && !what; s++)
            if (cell->reader[s] > clock->seq[s])
                what = arena_printf(run->arena,
                                    "does not wait for %s#%d, which still reads what is under",
                                    stream_text[s], cell->reader[s]);
        if (what && good)
            good = fault(run, step, operand, cell, what);
        cell->stepped = step->node || step_is_matrix(step) || state_leaves(run->trace, step);
        cell->writer = at;
        cell->name = operand->name;
        cell->base = operand->address;
        cell->round = step->round;
        cell->evaluated = step->evaluates;
        if (step_spills(step))
            spill_carry(run, operand, i);
        if (step_sums(run->trace, step))
            sums_carry(run, operand, i);
        for (int s = 0; s < STREAM_COUNT; s++)
            cell->reader[s] = -1;
    }
    return good;
}

static bool overlap(const Operand *a, const Operand *b)
{
    return a->address < b->address + b->bytes && b->address < a->address + a->bytes;
}

/* What one Step reads and writes at once lies apart, but for sums and gathers that run in place. */
static bool check_in_place(CellRun *run, const TraceStep *step)
{
    const Operand *operand = &run->trace->operands.at[step->operand];
    if (is_flat(step) && step->kind != STEP_LOAD)
        return true; /* flat moves are judged by where their ranges lie */
    for (int a = 0; a < step->operands; a++)
        for (int b = 0; b < a; b++) {
            if ((!operand[a].write && !operand[b].write) || !overlap(&operand[a], &operand[b]))
                continue;
            bool in_place = (step->kind == STEP_MERGE ||
                             (step->kind == STEP_MOVE && step->move->kind == MOVE_ALL_REDUCE)) &&
                            operand[a].address == operand[b].address &&
                            operand[a].bytes == operand[b].bytes;
            if (!in_place)
                return check_fault(
                    run->check, "%s: writes over an operand of its own, bytes %lld to %lld",
                    trace_name(run->arena, run->trace, step), (long long)operand[a].address,
                    (long long)(operand[a].address + operand[a].bytes));
        }
    return true;
}

/* ---- the run ---- */

/* Weights in another slot than that of the version which a step makes. */
static bool is_older(const CellRun *run, int cell, int round)
{
    const StageProgram *stage = run->trace->stage;
    const Region *region = run->cell[cell].region;
    return region->kind == REGION_WEIGHT &&
           region->begin !=
               stage->groups.at[region->index].weight + slot_of_version(stage, round + 1);
}

/* Behind an optimizer step everything that is trained has been updated in it. */
static bool check_updated(CellRun *run, int round)
{
    for (int i = 0; i < run->cells; i++) {
        const Cell *cell = &run->cell[i];
        if (!cell->trained || cell->round == round || is_older(run, i, round))
            continue;
        return check_fault(
            run->check, "rank %d (stage %d): step %d does not update bytes %lld to %lld of the %s",
            trace_rank(run->trace), run->trace->stage->index, round, (long long)run->begin[i],
            (long long)run->begin[i + 1],
            region_words(run->arena, run->trace->program, run->trace->stage, cell->region,
                         run->begin[i]));
    }
    return true;
}

static bool run_step(CellRun *run, int at)
{
    const Trace *trace = run->trace;
    const TraceStep *step = &trace->steps.at[at];
    Clock clock;
    bool good = advance(run, at, &clock);
    good &= check_in_place(run, step);
    for (int pass = 0; pass < 3; pass++)
        for (int k = 0; k < step->operands; k++) {
            const Operand *operand = &trace->operands.at[step->operand + k];
            if (operand->bytes == 0)
                continue;
            if (pass == 0)
                good &= check_place(run, step, operand);
            if (pass == 1 && operand->read)
                good &= read_cells(run, step, operand, &clock);
            if (pass == 2 && operand->write)
                good &= write_cells(run, at, operand, &clock);
        }
    return good;
}

bool check_bytes(Check *check, const Trace *trace, const RegionList *regions, Period *ret_period)
{
    CellRun *run = cell_run_new(check, trace, regions);
    bool asked = ret_period && !trace->program->flows; /* there turns repeat, not micro-batches */
    PeriodRun *period = asked ? period_run_new(run) : NULL;
    bool good = true;
    for (int i = 0; i < trace->steps.n; i++) {
        int turn = i > 0 ? trace->steps.at[i - 1].turn : -1;
        if (i > 0 && trace->steps.at[i].turn != turn && turn >= 0 && turn < trace->rounds)
            good &= check_updated(run, turn);
        if (period)
            period_see(run, period, &trace->steps.at[i]);
        good &= run_step(run, i);
    }
    if (period)
        *ret_period = period_found(period);
    if (trace->steps.n > 0 && trace->steps.at[trace->steps.n - 1].turn < trace->rounds)
        good &= check_updated(run, trace->rounds - 1);
    int streams = 0;
    for (int s = 0; s < STREAM_COUNT; s++)
        streams += run->seen[s].n > 0;
    if (trace->whole && trace->coordinate == 0)
        check->report->streams += streams;
    return good;
}
