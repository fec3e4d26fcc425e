/* spill.c - places of saved values whose home is another memory. */
#include "ir/lower/spill.h"

#include "ir/base/num.h"
#include "ir/lower/braid.h"
#include "ir/lower/layout.h"
#include "ir/lower/state.h"

static Memory home_of(const Program *program)
{
    return program->plan->memory[KEPT_SAVED];
}

void spill_number(Program *program, StageProgram *stage)
{
    const Plan *plan = program->plan;
    stage->block_link = ARENA_ARRAY(program->arena, int, stage->links + 1);
    for (int c = 0; c < stage->chunks; c++) {
        Chunk *chunk = &stage->chunk[c];
        chunk->first_block = stage->blocks;
        for (int i = chunk->begin; i < chunk->end; i++) {
            StageLink *link = &stage->link[i];
            Homes homes = plan_homes(plan, program->net->chain.at[link->link].class);
            bool leaves = home_memory(plan->memory, &homes, KEPT_SAVED) != MEMORY_HBM;
            link->block = leaves ? stage->blocks : NONE;
            if (leaves)
                stage->block_link[stage->blocks++] = i;
        }
        chunk->end_block = stage->blocks;
    }
}

bool spill_leaves(const StageLink *link, SavedKind kind)
{
    return link->block != NONE && kind != SAVED_IW;
}

RingKind spill_ring(const Program *program, const StageLink *link, SavedKind kind)
{
    bool stays = home_of(program) != MEMORY_HBM && link->block == NONE && kind != SAVED_IW;
    return (RingKind)((stays ? RING_STAYS : RING_SAVED) + kind);
}

int64_t spill_bytes(Memory home, int64_t saved_bytes)
{
    int64_t grain = home == MEMORY_NVME ? FILE_GRAIN : 1;
    return (saved_bytes + grain - 1) / grain * grain;
}

Life spill_life(int block, Memory memory, int64_t bytes)
{
    return (Life){block, bytes, block, block + SPILL_STAYS - 1 + 2 * (int)memory};
}

bool spill_stays(const StageProgram *stage, const Entry *entry, int link)
{
    int block = stage->link[link].block;
    return block == NONE || block >= stage->chunk[entry->chunk].end_block - entry->stays;
}

bool spill_in_row(const Entry *entry, SavedKind kind)
{
    return kind == SAVED_W || (kind == SAVED_I && entry->part != PART_W);
}

int64_t spill_address(const Program *program, const StageProgram *stage, int link, SavedKind kind,
                      Memory memory, int number, bool back)
{
    const StageLink *at = &stage->link[link];
    const Chunk *chunk = &stage->chunk[at->chunk];
    const Ring *ring = memory == MEMORY_HBM         ? &chunk->ring[RING_SAVED + kind]
                       : memory != home_of(program) ? &chunk->between[kind]
                                                    : &chunk->away[kind];
    int64_t offset = memory == MEMORY_HBM         ? at->saved_offset[kind]
                     : memory != home_of(program) ? at->between_offset[kind]
                                                  : at->away_offset[kind];
    return ring->base + ring->stride * ring_slot(ring, number, back) + offset;
}

void spill_mark_stays(Program *program)
{
    if (program->plan->memory[KEPT_SAVED] == MEMORY_HBM)
        return; /* nobody asks */
    for (int s = 0; s < program->stages; s++) {
        Entry *before = NULL;
        for (int i = 0; i < program->stage[s].table.n; i++) {
            Entry *entry = &program->stage[s].table.at[i];
            if (entry->kind != ENTRY_COMPUTE)
                continue;
            if (before && before->part == PART_F && entry->part == PART_B &&
                before->chunk == entry->chunk && before->micro == entry->micro &&
                before->ahead == entry->ahead &&
                !chunk_meets_itself(&program->stage[s], entry->chunk))
                before->stays = entry->stays = SPILL_STAYS;
            before = entry;
        }
    }
}

/* The area of a memory that the blocks pass through: its bytes, and the place of each. */
static int64_t place_blocks(const StageProgram *stage, const Chunk *chunk, SavedKind kind,
                            Memory memory, int64_t *ret_offset)
{
    Arena *scratch = arena_new("blocks");
    const int *link = stage->block_link + chunk->first_block;
    int n = chunk->end_block - chunk->first_block;
    Life *life = ARENA_ARRAY(scratch, Life, n);
    int64_t *offset = ARENA_ARRAY(scratch, int64_t, n);
    for (int i = 0; i < n; i++)
        life[i] = spill_life(i, memory, stage->link[link[i]].block_bytes[kind]);
    int64_t bytes = lives_place(life, n, offset);
    for (int i = 0; i < n; i++)
        ret_offset[life[i].id] = offset[i];
    arena_free(scratch);
    return bytes;
}

static void put_near(StageLink *link, SavedKind kind, int64_t offset)
{
    const Body *body = link->body;
    if (link->in_offset != NONE && kind == (body->saves_in_late ? SAVED_W : SAVED_I))
        link->in_offset = offset + body->saved_bytes[kind];
    link->saved_offset[kind] = offset;
}

static void put_between(StageLink *link, SavedKind kind, int64_t offset)
{
    link->between_offset[kind] = offset;
}

int64_t spill_layout(const Program *program, StageProgram *stage, Chunk *chunk, SavedKind kind,
                     int64_t at)
{
    Memory home = home_of(program);
    bool sides = chunk_meets_itself(stage, (int)(chunk - stage->chunk));
    Arena *scratch = arena_new("spill");
    const int *of = stage->block_link + chunk->first_block;
    int blocks = chunk->end_block - chunk->first_block;
    int64_t *offset = ARENA_ARRAY(scratch, int64_t, blocks), slot = 0;
    for (int b = 0; b < blocks; b++) {
        StageLink *link = &stage->link[of[b]];
        link->block_bytes[kind] = spill_bytes(home, link->block_bytes[kind]);
        link->away_offset[kind] = slot;
        slot += link->block_bytes[kind];
    }
    for (int m = MEMORY_HBM; m < (int)home; m++) {
        int64_t bytes = place_blocks(stage, chunk, kind, (Memory)m, offset);
        Ring area = {.stride = bytes, .n = bytes == 0 ? 0 : 1 + sides, .sides = sides};
        for (int b = 0; b < blocks; b++)
            (m == MEMORY_HBM ? put_near : put_between)(&stage->link[of[b]], kind, offset[b]);
        if (m == MEMORY_HBM) {
            area.base = at;
            chunk->ring[RING_SAVED + kind] = area;
            at += bytes * area.n;
            continue;
        }
        int64_t *end = &stage->far_bytes[m];
        area.base = memory_address((Memory)m, *end = spill_bytes(home, *end));
        chunk->between[kind] = area;
        *end += bytes * area.n;
    }
    int64_t *end = &stage->far_bytes[home];
    Ring *ring = &chunk->away[kind];
    *ring = (Ring){.base = memory_address(home, *end = spill_bytes(home, *end)), .stride = slot};
    if (slot)
        layout_choose_slots(program, stage, chunk, (RingKind)(RING_SAVED + kind), ring);
    *end += slot * ring->n;
    arena_free(scratch);
    return at;
}
