/* check_sums.c - what the static proof asks of gradients that do not live on their device: hops
 * carry a rank's block, and what has been counted of it, between its places. */
#include "ir/lower/check_cells.h"
#include "ir/lower/state.h"

static Memory home_of(const Trace *trace)
{
    return trace->program->plan->memory[KEPT_GRADIENTS];
}

static int width_of(const Program *program)
{
    return dtype_bytes(program->recipe->gradient);
}

/* Elements of a bucket on a rank, when it is cut over a list. */
static int64_t block_count(const Program *program, const Bucket *bucket, const AtomList *list)
{
    return bucket->elements / list_extent(&program->plan->mesh, list);
}

int64_t sums_block_bytes(const Program *program, const StageProgram *stage, int b)
{
    const Bucket *bucket = &stage->buckets.at[b];
    const Group *group = &stage->groups.at[bucket->group];
    int64_t bytes = block_count(program, bucket, &group->gradient_share) * width_of(program);
    int64_t grain = program->plan->memory[KEPT_GRADIENTS] == MEMORY_NVME ? FILE_GRAIN : 64;
    return (bytes + grain - 1) / grain * grain;
}

int64_t sums_home_bytes(const Program *program, const StageProgram *stage, int g)
{
    int64_t bytes = 0;
    for (int b = 0; b < stage->buckets.n; b++)
        bytes += stage->buckets.at[b].group == g ? sums_block_bytes(program, stage, b) : 0;
    return bytes;
}

bool step_sums(const Trace *trace, const TraceStep *step)
{
    const Operand *operand = &trace->operands.at[step->operand];
    bool sums = false;
    for (int m = MEMORY_HBM; m < (int)home_of(trace) && step->kind == STEP_COPY; m++)
        for (int k = 0; k < step->operands; k++)
            sums =
                sums || (operand[k].address >= trace->stage->sums[m] &&
                         operand[k].address < trace->stage->sums[m] + trace->stage->sums_bytes[m]);
    return sums;
}

bool step_leaves(const Trace *trace, const TraceStep *step)
{
    const Operand *operand = &trace->operands.at[step->operand];
    return operand[0].address < operand[1].address;
}

/* The last way home, and those to the norm and the update, are of the share where the home is no
 * file. */
static bool carries_share(const Trace *trace, const TraceStep *step)
{
    const Entry *entry = &trace->stage->table.at[step->entry];
    return home_of(trace) == MEMORY_DRAM &&
           (entry->kind != ENTRY_COMPUTE || (entry->last && step_leaves(trace, step)));
}

const char *sums_misplaced(const Trace *trace, const TraceStep *step)
{
    const Program *program = trace->program;
    const Mesh *mesh = &program->plan->mesh;
    const Bucket *bucket = &trace->stage->buckets.at[step->bucket];
    const Group *group = &trace->stage->groups.at[bucket->group];
    const AtomList *whole = &group->gradient_share, *share = &group->share;
    int64_t count = block_count(program, bucket, whole), from = 0;
    if (carries_share(trace, step)) {
        int64_t block = count * list_index(mesh, whole, trace->coordinate);
        count = block_count(program, bucket, share);
        from = count * list_index(mesh, share, trace->coordinate) - block;
    }
    int64_t bytes = count * width_of(program);
    if (home_of(trace) == MEMORY_NVME)
        bytes = (bytes + FILE_GRAIN - 1) / FILE_GRAIN * FILE_GRAIN;
    const Operand *operand = &trace->operands.at[step->operand];
    bool good = group->far_gradients && step->operands == 2;
    for (int k = 0; good && k < 2; k++) {
        Memory memory = address_memory(operand[k].address),
               other = address_memory(operand[1 - k].address);
        good = operand[k].read == (k == 0) && operand[k].write == (k == 1) &&
               memory <= home_of(trace) && (memory == other + 1 || other == memory + 1) &&
               operand[k].bytes == bytes &&
               operand[k].address == bucket->gradient[memory] + from * width_of(program);
    }
    return good ? NULL : "carries other bytes than this rank's gradients of the bucket";
}

int sums_hops_due(const Trace *trace, int b, bool in)
{
    const StageProgram *stage = trace->stage;
    int micros = trace->whole ? trace->program->plan->micro_batches : 1;
    if (!stage->groups.at[stage->buckets.at[b].group].far_gradients)
        return 0;
    return (int)home_of(trace) * (in ? micros + 1 : micros); /* all but the first, norm, update */
}

/* ---- cells ---- */

int sums_expected(const Trace *trace, int b, int64_t at)
{
    const Program *program = trace->program;
    const StageProgram *stage = trace->stage;
    const Bucket *bucket = &stage->buckets.at[b];
    const Group *group = &stage->groups.at[bucket->group];
    int micros = trace->whole ? program->plan->micro_batches : 1;
    int64_t element = at / width_of(program);
    if (element >= block_count(program, bucket, &group->gradient_share))
        return 0; /* fills a grain */
    if (group->buffered)
        return micros;
    for (int k = 0; k < group->members.n; k++) {
        const GroupMember *member = &group->members.at[k];
        int64_t first = member->offset - bucket->begin;
        if (element >= first && element < first + member->elements)
            return micros * member_uses(program, stage, group, member);
    }
    return 0;
}

int sums_expected_home(const Trace *trace, const Region *region, int64_t address)
{
    const StageProgram *stage = trace->stage;
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        int64_t at = address - bucket->gradient[home_of(trace)];
        if (bucket->group == region->index && at >= 0 &&
            at < sums_block_bytes(trace->program, stage, b))
            return sums_expected(trace, b, at);
    }
    return 0;
}

const char *sums_taken(const CellRun *run, const TraceStep *step, const Operand *operand,
                       const Cell *cell, int64_t begin)
{
    const Trace *trace = run->trace;
    const Bucket *bucket = &trace->stage->buckets.at[step->bucket];
    int64_t at = begin - bucket->gradient[address_memory(begin)];
    if (sums_expected(trace, step->bucket, at) == 0 &&
        at / width_of(trace->program) >=
            block_count(trace->program, bucket,
                        &trace->stage->groups.at[bucket->group].gradient_share))
        return NULL;
    if (cell->region->kind == REGION_SUMS && cell->name != operand->name)
        return "does not find";
    if (cell->expected == 0)
        return cell->dirty ? "carries padding that is not zero:" : NULL;
    return cell->round != step->round || cell->adds <= 0 ? "carries a gradient of an earlier step:"
                                                         : NULL;
}

void sums_begin(const CellRun *run, const TraceStep *step, const Operand *operand, Cell *cell,
                int64_t begin)
{
    if (cell->name == operand->name && cell->round == step->round)
        return;
    const StageProgram *stage = run->trace->stage;
    int b =
        step->bucket != NONE ? step->bucket : stage->link[step->link].bucket[operand->copy->param];
    cell->adds = cell->sums = 0;
    cell->closed = cell->folded = false;
    cell->expected =
        sums_expected(run->trace, b, begin - stage->buckets.at[b].gradient[MEMORY_HBM]);
}

void sums_carry(CellRun *run, const Operand *operand, int i)
{
    const Operand *from = operand - 1; /* in pairs */
    int64_t away = from->address - operand->address;
    int at = cell_of(run, run->begin[i] + away);
    const Cell *first = &run->cell[at];
    Cell *cell = &run->cell[i];
    cell->round = first->round;
    cell->adds = first->adds;
    cell->sums = first->sums;
    cell->closed = first->closed;
    cell->folded = false; /* whoever took it in is another place of it */
    cell->dirty = first->dirty;
    if (cell->region->kind == REGION_SUMS)
        cell->expected = first->expected;
    for (at++; at < run->cells && run->begin[at] < run->begin[i + 1] + away; at++) {
        const Cell *next = &run->cell[at];
        if (next->round != first->round || next->adds != first->adds || next->sums != first->sums)
            cell->adds = -1; /* of several counts: nothing that anybody finds */
    }
}
