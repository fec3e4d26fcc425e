/* walk_spill.c - hops of saved values that live in another memory. */
#include "ir/lower/spill.h"
#include "ir/lower/state.h"
#include "ir/lower/walk_in.h"

/* The blocks of a link, between `near` and the memory behind it. */
static void put_hop(Walk *walk, const Entry *entry, int link, Memory near, bool in)
{
    const Program *program = walk->program;
    const StageLink *at = &walk->stage->link[link];
    int number = micro_number(program, walk->round, entry->micro);
    Step *step = NULL;
    for (int kind = 0; kind < SAVED_KINDS; kind++) {
        int64_t bytes = at->block_bytes[kind];
        if (bytes == 0 || !spill_leaves(at, (SavedKind)kind) ||
            !spill_in_row(entry, (SavedKind)kind))
            continue;
        if (!step) {
            step = walk_put(walk, STEP_COPY, hop_stream(near, in));
            step->link = link;
            step->micro = entry->micro;
        }
        uint64_t name = walk_name(NAME_BLOCK, at->link, kind, number);
        for (int to = 0; to < 2; to++) {
            Memory memory = (Memory)(near + (in != to));
            walk_operand(
                step,
                spill_address(program, walk->stage, link, (SavedKind)kind, memory, number, in),
                bytes, name, NULL, !to, to);
        }
    }
}

/* Those around a place of the row, of all blocks that leave; NONE: before its first. */
static void put_hops(Walk *walk, const Entry *entry, int at)
{
    const StageProgram *stage = walk->stage;
    const Chunk *chunk = &stage->chunk[entry->chunk];
    bool in = entry->part != PART_F;
    Hop hop[MAX_HOPS];
    int n = hops_around(walk->program->plan->memory[KEPT_SAVED],
                        chunk->end_block - chunk->first_block, at, in, hop);
    for (int i = 0; i < n; i++) {
        int block = in ? chunk->end_block - 1 - hop[i].bucket : chunk->first_block + hop[i].bucket;
        if (!spill_stays(stage, entry, stage->block_link[block]))
            put_hop(walk, entry, stage->block_link[block], hop[i].near, in);
    }
}

void walk_spill(Walk *walk, const Entry *entry, int link)
{
    const Chunk *chunk = &walk->stage->chunk[entry->chunk];
    bool in = entry->part != PART_F;
    if (in && link == chunk->end - 1)
        put_hops(walk, entry, NONE);
    int block = walk->stage->link[link].block;
    if (block != NONE)
        put_hops(walk, entry, in ? chunk->end_block - 1 - block : block - chunk->first_block);
}
