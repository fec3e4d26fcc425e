/* check_spill.c - what the static proof asks of saved values that do not live on their device: hops
 * carry values as they are, between the places of their link and micro-batch. */
#include "ir/lower/check_cells.h"
#include "ir/lower/state.h"

bool step_spills(const TraceStep *step)
{
    return step->kind == STEP_COPY && step->bucket == NONE;
}

void spill_carry(CellRun *run, const Operand *operand, int i)
{
    const Operand *from = operand - 1; /* in pairs */
    int64_t away = from->address - operand->address;
    int at = cell_of(run, run->begin[i] + away);
    const Cell *first = &run->cell[at];
    Cell *cell = &run->cell[i];
    cell->name = first->name;
    cell->round = first->round;
    cell->base = first->base - away;
    for (at++; at < run->cells && run->begin[at] < run->begin[i + 1] + away; at++) {
        const Cell *next = &run->cell[at];
        if (next->name != first->name || next->round != first->round || next->base != first->base)
            cell->name = 0; /* of several values: nothing that anybody finds */
    }
}

/* Where a link's block is in a memory, from the layout's numbers. */
static int64_t block_at(const Trace *trace, const TraceStep *step, int kind, Memory memory)
{
    const Program *program = trace->program;
    const StageLink *link = &trace->stage->link[step->link];
    const Chunk *chunk = &trace->stage->chunk[link->chunk];
    const Operand *pair = &trace->operands.at[step->operand];
    bool returns = pair[0].address > pair[1].address; /* to backward */
    const Ring *area =
        memory == MEMORY_HBM ? &chunk->ring[RING_SAVED + kind] : &chunk->between[kind];
    int64_t side = area->sides && returns ? area->stride : 0;
    if (memory == MEMORY_HBM)
        return area->base + side + link->saved_offset[kind];
    if (memory != program->plan->memory[KEPT_SAVED])
        return area->base + side + link->between_offset[kind];
    const Ring *ring = &chunk->away[kind];
    int number = step->micro + (program->flows ? step->round * program->plan->micro_batches : 0);
    int slot = ring->slot ? ring->slot[number] : number % ring->n;
    return ring->base + slot * ring->stride + link->away_offset[kind];
}

const char *spill_misplaced(const Trace *trace, const TraceStep *step, const Operand *operand)
{
    const Program *program = trace->program;
    const Operand *first = &trace->operands.at[step->operand],
                  *other = (operand - first) % 2 ? operand - 1 : operand + 1;
    Memory memory = address_memory(operand->address), behind = address_memory(other->address);
    if (step->link == NONE || trace->stage->link[step->link].block == NONE ||
        operand->read == operand->write || operand->write != ((operand - first) % 2 == 1) ||
        operand->bytes != other->bytes || (memory != behind + 1 && behind != memory + 1) ||
        memory > program->plan->memory[KEPT_SAVED])
        return "is no hop between neighbouring memories";
    for (int kind = 0; kind < SAVED_KINDS; kind++)
        if (trace->stage->link[step->link].block_bytes[kind] == operand->bytes &&
            block_at(trace, step, kind, memory) == operand->address)
            return NULL;
    return "is not where its link's saved values are";
}
