/* mutate_hops.c - where a Program can be broken: copies between memories. */
#include "ir/lower/machine.h"
#include "ir/lower/state.h"

/* Of saved values: a hop that does not happen, or takes the slot of another micro-batch. */
static void put_spills(Machine *machine, const Step *step)
{
    const StageProgram *stage = &machine->program->stage[step->stage];
    const Chunk *chunk = &stage->chunk[stage->link[step->link].chunk];
    const Operand *from = &step->operand[0], *to = &step->operand[1];
    Memory far = address_memory(from->address > to->address ? from->address : to->address);
    bool several = false;
    for (int kind = 0; kind < SAVED_KINDS; kind++)
        several = several || chunk->away[kind].n > 1;
    site_put(machine, site_of(machine, MUTATE_SKIP, step));
    if (several && far == machine->program->plan->memory[KEPT_SAVED])
        site_put(machine, site_of(machine, MUTATE_SLOT, step));
}

/* The norm brought a bucket's far gradients, and its place is its own. */
static bool is_there(const Machine *machine, const Step *step)
{
    const StageProgram *stage = &machine->program->stage[step->stage];
    const Operand *to = &step->operand[1];
    Memory memory = address_memory(to->address);
    bool alone = stage->table.at[step->entry].kind == ENTRY_UPDATE;
    for (int b = 0; b < stage->buckets.n && alone; b++) {
        const Bucket *other = &stage->buckets.at[b];
        const AtomList *list = &stage->groups.at[other->group].gradient_share;
        int64_t at = other->gradient[memory],
                bytes = other->elements / list_extent(machine_mesh(machine), list) * WIDTH;
        alone = b == step->bucket || at == NONE || at + bytes <= to->address ||
                at >= to->address + to->bytes;
    }
    return alone;
}

void machine_hop_sites(Machine *machine, const Step *step)
{
    const StageProgram *stage = &machine->program->stage[step->stage];
    const Operand *from = &step->operand[0], *to = &step->operand[1];
    Site skip = site_of(machine, MUTATE_SKIP, step);
    if (step->bucket == NONE) {
        put_spills(machine, step);
        return;
    }
    Kept kept = step_carries(step);
    Memory home =
        kept == KEPT_STATE ? state_home(stage, step->bucket) : machine->program->plan->memory[kept];
    if (address_memory(to->address) == home && (kept != KEPT_WEIGHTS || stage->versions.n == 1) &&
        group_frozen(machine->program, stage, &stage->groups.at[skip.group]))
        skip.equivalent = "all gradients of the group are zero, and so is its state";
    if (kept == KEPT_GRADIENTS && is_there(machine, step))
        skip.equivalent = "nothing else has been there since the norm";
    site_put(machine, skip);
    Memory near = address_memory(from->address < to->address ? from->address : to->address);
    if (kept == KEPT_STATE       ? state_slots(near, stage->state_way.n[near]) > 1
        : kept == KEPT_GRADIENTS ? other_sums(stage, step, near) != NONE
                                 : home == MEMORY_NVME && other_between(stage, step) != NONE) {
        Site slot = site_of(machine, MUTATE_SLOT, step);
        slot.equivalent = kept == KEPT_GRADIENTS ? skip.equivalent : NULL;
        site_put(machine, slot);
    }
}
