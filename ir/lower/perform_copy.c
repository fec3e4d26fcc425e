/* perform_copy.c - what an operand of a Step is in the memories of a rank, and copies between them.
 */
#include <math.h>
#include <string.h>

#include "ir/lower/machine.h"
#include "ir/lower/state.h"

double *operand_at(Rank *rank, const Operand *operand)
{
    memset(rank->touched[address_memory(operand->address)] +
               address_offset(operand->address) / WIDTH,
           1, (size_t)(operand->bytes / WIDTH));
    return rank_at(rank, operand->address);
}

/* A hop of saved values: as bytes. */
static void copy_block(const Machine *machine, Rank *rank, const Step *step)
{
    const StageProgram *stage = &machine->program->stage[rank->stage];
    const Chunk *chunk = &stage->chunk[stage->link[step->link].chunk];
    for (int k = 0; k < step->operands; k += 2) {
        Operand from = step->operand[k], to = step->operand[k + 1];
        Operand *far = from.address > to.address ? &from : &to;
        for (int kind = 0; kind < SAVED_KINDS && site_hits(machine, MUTATE_SLOT, step); kind++) {
            const Ring *ring = &chunk->away[kind]; /* that of another micro-batch */
            int64_t bytes = ring->stride * ring->n, at = far->address - ring->base;
            if (at >= 0 && at < bytes)
                far->address = ring->base + (at + ring->stride) % bytes;
        }
        double *source = operand_at(rank, &from);
        memcpy(operand_at(rank, &to), source, (size_t)from.bytes);
        Memory memory = address_memory(from.address);
        bool between = memory != MEMORY_HBM && memory != machine->program->plan->memory[KEPT_SAVED];
        for (int64_t e = 0; between && e < from.bytes / WIDTH; e++)
            source[e] = NAN; /* nobody reads it again there */
    }
}

bool step_fetches(const Program *program, const Step *step)
{
    const Entry *entry = stage_entry(&program->stage[step->stage], step->entry, step->evaluates);
    return address_memory(step->operand[0].address) == program->plan->memory[KEPT_WEIGHTS] &&
           entry->kind == ENTRY_COMPUTE;
}

int64_t other_sums(const StageProgram *stage, const Step *step, Memory near)
{
    const Bucket *own = &stage->buckets.at[step->bucket];
    for (int k = 1; k < stage->buckets.n; k++) {
        const Bucket *other = &stage->buckets.at[(step->bucket + k) % stage->buckets.n];
        if (other->group == own->group && other->gradient[near] != own->gradient[near] &&
            other->elements >= own->elements)
            return other->gradient[near];
    }
    return NONE;
}

int64_t other_between(const StageProgram *stage, const Step *step)
{
    const Bucket *own = &stage->buckets.at[step->bucket];
    for (int k = 1; k < stage->buckets.n; k++) {
        const Bucket *other = &stage->buckets.at[(step->bucket + k) % stage->buckets.n];
        if (other->group == own->group && other->between != own->between &&
            other->elements >= own->elements)
            return other->between;
    }
    return NONE;
}

/* A hop of far weights. */
static void copy_weights(const Machine *machine, Rank *rank, const Step *step)
{
    const StageProgram *stage = &machine->program->stage[rank->stage];
    Operand end[2] = {step->operand[0], step->operand[1]};
    if (site_hits(machine, MUTATE_VERSION, step) && step_fetches(machine->program, step))
        end[0].address = next_version(stage, step, end[0].address);
    int64_t other = other_between(stage, step);
    for (int k = 0; k < 2 && other != NONE && site_hits(machine, MUTATE_SLOT, step); k++)
        if (end[k].address >= stage->between &&
            end[k].address < stage->between + stage->between_bytes)
            end[k].address = other;
    double *source = operand_at(rank, &end[0]);
    memcpy(operand_at(rank, &end[1]), source, (size_t)end[0].bytes);
    bool passes = address_memory(end[0].address) == MEMORY_DRAM && stage->between_bytes > 0;
    for (int64_t e = 0; passes && e < end[0].bytes / WIDTH; e++)
        source[e] = NAN; /* nobody reads it again there */
}

/* A hop of far gradients; the same of what leaves the device. */
static void copy_sums(const Machine *machine, Rank *rank, const Step *step)
{
    const StageProgram *stage = &machine->program->stage[rank->stage];
    Operand from = step->operand[0], to = step->operand[1];
    bool out = from.address < to.address;
    Operand *end = out ? &from : &to; /* the nearer one */
    int64_t other = other_sums(stage, step, address_memory(end->address));
    if (other != NONE && site_hits(machine, MUTATE_SLOT, step))
        end->address = other;
    double *source = operand_at(rank, &from);
    memcpy(operand_at(rank, &to), source, (size_t)from.bytes);
    for (int64_t e = 0; out && e < from.bytes / WIDTH; e++)
        source[e] = NAN;
}

/* A hop of state. What leaves a slot is not to be read there again: it is poisoned behind the copy,
 * so that a wrong slot is a wrong number. */
void machine_copy(const Machine *machine, Rank *rank, const Step *step)
{
    const Program *program = machine->program;
    const StageProgram *stage = &program->stage[rank->stage];
    if (site_hits(machine, MUTATE_SKIP, step))
        return;
    if (step->bucket == NONE) {
        copy_block(machine, rank, step);
        return;
    }
    if (step_carries(step) == KEPT_WEIGHTS) {
        copy_weights(machine, rank, step);
        return;
    }
    if (step_carries(step) == KEPT_GRADIENTS) {
        copy_sums(machine, rank, step);
        return;
    }
    for (int k = 0; k < step->operands; k += 2) {
        Operand from = step->operand[k], to = step->operand[k + 1];
        if (site_hits(machine, MUTATE_SLOT, step)) { /* the nearer end is that of another bucket */
            Operand *near = from.address < to.address ? &from : &to;
            Memory memory = address_memory(near->address);
            int64_t area = stage->state_slot[memory],
                    slot = state_fields(program) * stage->state_slot_bytes[memory],
                    n = state_slots(memory, stage->state_way.n[memory]);
            near->address = area + (near->address - area + slot) % (n * slot);
        }
        double *source = operand_at(rank, &from);
        memcpy(operand_at(rank, &to), source, (size_t)from.bytes);
        for (int64_t e = 0; address_memory(from.address) != state_home(stage, step->bucket) &&
                            e < from.bytes / WIDTH;
             e++)
            source[e] = NAN;
    }
}
