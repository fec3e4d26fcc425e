/* stage_spill.c - rows whose saved values live in other memories, on the clock: the same hops as
 * ir/lower/walk_spill.c puts around links. */
#include "planner/stage_spill.h"

#include <string.h>

#include "ir/base/num.h"
#include "ir/lower/spill.h"
#include "ir/lower/state.h"

struct SpillRun {
    const Family *family;
    Memory home;
    int begin, links, blocks;
    int *block; /* per link, counted from the first: its number, or NONE: it stays */
    int64_t *bytes[SAVED_KINDS]; /* per block */
    int64_t *place[SAVED_KINDS][MEMORY_COUNT];
    bool *reaches;                 /* the link before its own writes into it */
    int64_t *used;                 /* when a row's link was done with it on the device */
    int64_t lane[MEMORY_COUNT][2]; /* of the hops out of a memory, and into it */
    int64_t *end[MEMORY_COUNT][2]; /* of the last hop of each block */
    bool follows;                  /* the hops out are those of a forward beside it */
};

static void place_blocks(Arena *scratch, SpillRun *run)
{
    Life *life = ARENA_ARRAY(scratch, Life, run->blocks);
    int64_t *offset = ARENA_ARRAY(scratch, int64_t, run->blocks);
    for (int kind = 0; kind < SAVED_KINDS; kind++)
        for (int m = MEMORY_HBM; m < (int)run->home; m++) {
            run->place[kind][m] = ARENA_ARRAY(scratch, int64_t, run->blocks);
            for (int b = 0; b < run->blocks; b++)
                life[b] = spill_life(b, (Memory)m, run->bytes[kind][b]);
            lives_place(life, run->blocks, offset);
            for (int b = 0; b < run->blocks; b++)
                run->place[kind][m][life[b].id] = offset[b];
        }
}

SpillRun *spill_run_new(Arena *scratch, const Family *family, int begin, int end)
{
    int blocks = 0;
    for (int i = begin; i < end; i++)
        blocks += family_leaves(family, i);
    if (blocks == 0)
        return NULL;
    SpillRun *run = ARENA_NEW(scratch, SpillRun);
    *run = (SpillRun){.family = family,
                      .home = family->memory[KEPT_SAVED],
                      .begin = begin,
                      .links = end - begin,
                      .blocks = blocks,
                      .block = ARENA_ARRAY(scratch, int, end - begin),
                      .reaches = ARENA_ARRAY(scratch, bool, blocks),
                      .used = ARENA_ARRAY(scratch, int64_t, blocks)};
    for (int kind = 0; kind < SAVED_KINDS; kind++)
        run->bytes[kind] = ARENA_ARRAY(scratch, int64_t, blocks);
    for (int i = 0, b = 0; i < run->links; i++) {
        run->block[i] = family_leaves(family, begin + i) ? b++ : NONE;
        if (run->block[i] == NONE)
            continue;
        run->reaches[b - 1] = i > 0 && family_card(family, begin + i)->saves_in;
        for (int kind = 0; kind < SAVED_IW; kind++)
            run->bytes[kind][b - 1] =
                family_block(family, begin + i, (SavedKind)kind, i == 0, i == run->links - 1);
    }
    place_blocks(scratch, run);
    for (int m = MEMORY_HBM; m < (int)run->home; m++)
        for (int in = 0; in < 2; in++)
            run->end[m][in] = ARENA_ARRAY(scratch, int64_t, blocks);
    return run;
}

static int64_t *later(Arena *scratch, const int64_t *at, int n, int64_t shift)
{
    int64_t *copy = ARENA_ARRAY(scratch, int64_t, n);
    for (int i = 0; i < n; i++)
        copy[i] = at[i] - shift;
    return copy;
}

SpillRun *spill_run_behind(Arena *scratch, const SpillRun *before, int64_t clock)
{
    if (!before)
        return NULL;
    SpillRun *run = ARENA_NEW(scratch, SpillRun);
    *run = *before;
    run->used = later(scratch, before->used, run->blocks, clock);
    for (int m = MEMORY_HBM; m < (int)run->home; m++)
        for (int in = 0; in < 2; in++) {
            run->lane[m][in] -= clock;
            run->end[m][in] = later(scratch, before->end[m][in], run->blocks, clock);
        }
    return run;
}

void spill_run_follow(SpillRun *run, const SpillRun *forward)
{
    for (int m = MEMORY_HBM; run && m < (int)run->home; m++)
        run->end[m][false] = forward->end[m][false];
    if (run)
        run->follows = true;
}

void spill_run_share(SpillRun *run, const SpillRun *other)
{
    if (run && other)
        memcpy(run->lane, other->lane, sizeof run->lane);
}

/* Do two blocks share bytes of a memory? */
static bool meet(const SpillRun *run, Memory memory, int a, int b)
{
    for (int kind = 0; kind < SAVED_KINDS; kind++) {
        const int64_t *at = run->place[kind][memory], *bytes = run->bytes[kind];
        if (bytes[a] && bytes[b] && at[a] < at[b] + bytes[b] && at[b] < at[a] + bytes[a])
            return true;
    }
    return false;
}

/* From when on others are done with the bytes of a block. */
static int64_t free_from(const SpillRun *run, Memory memory, int block, bool computed)
{
    int64_t at = INT64_MIN;
    for (int j = 0; j < run->blocks; j++) {
        if (!meet(run, memory, block, j))
            continue;
        at = run->follows ? at : num_larger(at, run->end[memory][false][j]);
        if (memory == MEMORY_HBM)
            at = computed ? num_larger(at, run->used[j]) : at;
        else
            at = num_larger(at, run->end[memory - 1][true][j]);
    }
    return at;
}

static bool stays(const SpillRun *run, bool turns, int block)
{
    return turns && block >= run->blocks - SPILL_STAYS;
}

static void run_hop(SpillRun *run, PartKind part, int block, Memory near, bool in)
{
    Memory far = (Memory)(near + 1);
    int64_t bytes = 0;
    for (int kind = 0; kind < SAVED_KINDS; kind++)
        if (part != PART_W || kind == SAVED_W)
            bytes += run->bytes[kind][block];
    if (bytes == 0)
        return;
    int64_t ready;
    if (in)
        ready =
            num_larger(free_from(run, near, block, true),
                       far < run->home ? run->end[far][true][block] : run->end[near][false][block]);
    else
        ready = num_larger(near == MEMORY_HBM ? run->used[block] : run->end[near - 1][false][block],
                           far < run->home ? free_from(run, far, block, false) : INT64_MIN);
    int64_t *lane = &run->lane[near][in];
    *lane = num_larger(*lane, ready) +
            price_copy(run->family->problem->cluster, in ? far : near, in ? near : far, bytes);
    run->end[near][in][block] = *lane;
}

/* Around the link whose block has a place in the row; NONE: before it. */
static void run_hops(SpillRun *run, PartKind part, bool turns, int place)
{
    bool in = part != PART_F;
    Hop hop[MAX_HOPS];
    int n = hops_around(run->home, run->blocks, place, in, hop);
    for (int i = 0; i < n; i++) {
        int block = in ? run->blocks - 1 - hop[i].bucket : hop[i].bucket;
        if (!stays(run, turns, block))
            run_hop(run, part, block, hop[i].near, in);
    }
}

int64_t spill_run_begin(SpillRun *run, PartKind part, bool turns, int i, int64_t clock)
{
    if (!run)
        return clock;
    int link = i - run->begin, block = run->block[link];
    if (part != PART_F && link == run->links - 1)
        run_hops(run, part, turns, NONE);
    if (block == NONE)
        return clock;
    if (part == PART_F)
        return num_larger(clock, free_from(run, MEMORY_HBM, block, false));
    run_hops(run, part, turns, run->blocks - 1 - block);
    return stays(run, turns, block) ? clock : num_larger(clock, run->end[MEMORY_HBM][true][block]);
}

int64_t spill_run_end(SpillRun *run, PartKind part, bool turns, int i, int64_t clock)
{
    if (!run)
        return clock;
    int link = i - run->begin, block = run->block[link];
    int next = part == PART_F && link + 1 < run->links ? run->block[link + 1] : NONE;
    if (next != NONE && run->reaches[next]) {
        clock = num_larger(clock, free_from(run, MEMORY_HBM, next, false));
        run->used[next] = clock;
    }
    if (block == NONE)
        return clock;
    run->used[block] = clock;
    if (part == PART_F)
        run_hops(run, part, turns, block);
    return clock;
}

int64_t spill_hop_bytes(const Family *family, int link, PartKind part, bool first, bool last)
{
    int64_t bytes = 0;
    for (int kind = 0; kind < SAVED_KINDS; kind++)
        if (family_spills(family, link, (SavedKind)kind) && (part != PART_W || kind == SAVED_W))
            bytes += family_block(family, link, (SavedKind)kind, first, last);
    return bytes;
}
