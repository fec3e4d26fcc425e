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
    int begin, links;
    int64_t *bytes[SAVED_KINDS]; /* per link, counted from the first */
    int64_t *place[SAVED_KINDS][MEMORY_COUNT];
    bool *reaches;                 /* the link before it writes into its block */
    int64_t *used;                 /* when a row's link was done with its block on the device */
    int64_t lane[MEMORY_COUNT][2]; /* of the hops out of a memory, and into it */
    int64_t *end[MEMORY_COUNT][2]; /* of the last hop of each link */
    bool follows;                  /* the hops out are those of a forward beside it */
};

SpillRun *spill_run_new(Arena *scratch, const Family *family, int begin, int end)
{
    if (family->memory[KEPT_SAVED] == MEMORY_HBM)
        return NULL;
    SpillRun *run = ARENA_NEW(scratch, SpillRun);
    *run = (SpillRun){.family = family,
                      .home = family->memory[KEPT_SAVED],
                      .begin = begin,
                      .links = end - begin,
                      .reaches = ARENA_ARRAY(scratch, bool, end - begin),
                      .used = ARENA_ARRAY(scratch, int64_t, end - begin)};
    Life *life = ARENA_ARRAY(scratch, Life, run->links);
    int64_t *offset = ARENA_ARRAY(scratch, int64_t, run->links);
    for (int i = 1; i < run->links; i++)
        run->reaches[i] = family_card(family, begin + i)->saves_in;
    for (int kind = 0; kind < SAVED_KINDS; kind++) {
        run->bytes[kind] = ARENA_ARRAY(scratch, int64_t, run->links);
        for (int i = 0; i < run->links && family_spills(family, (SavedKind)kind); i++)
            run->bytes[kind][i] =
                family_block(family, begin + i, (SavedKind)kind, i == 0, i == run->links - 1);
        for (int m = MEMORY_HBM; m < (int)run->home; m++) {
            run->place[kind][m] = ARENA_ARRAY(scratch, int64_t, run->links);
            for (int i = 0; i < run->links; i++)
                life[i] = spill_life(i, (Memory)m, run->bytes[kind][i]);
            lives_place(life, run->links, offset);
            for (int i = 0; i < run->links; i++)
                run->place[kind][m][life[i].id] = offset[i];
        }
    }
    for (int m = MEMORY_HBM; m < (int)run->home; m++)
        for (int in = 0; in < 2; in++)
            run->end[m][in] = ARENA_ARRAY(scratch, int64_t, run->links);
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
    run->used = later(scratch, before->used, run->links, clock);
    for (int m = MEMORY_HBM; m < (int)run->home; m++)
        for (int in = 0; in < 2; in++) {
            run->lane[m][in] -= clock;
            run->end[m][in] = later(scratch, before->end[m][in], run->links, clock);
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

/* Do the blocks of two links share bytes of a memory? */
static bool meet(const SpillRun *run, Memory memory, int a, int b)
{
    for (int kind = 0; kind < SAVED_KINDS; kind++) {
        const int64_t *at = run->place[kind][memory], *bytes = run->bytes[kind];
        if (bytes[a] && bytes[b] && at[a] < at[b] + bytes[b] && at[b] < at[a] + bytes[a])
            return true;
    }
    return false;
}

/* From when on others are done with the bytes of a link's block. */
static int64_t free_from(const SpillRun *run, Memory memory, int link, bool computed)
{
    int64_t at = INT64_MIN;
    for (int j = 0; j < run->links; j++) {
        if (!meet(run, memory, link, j))
            continue;
        at = run->follows ? at : num_larger(at, run->end[memory][false][j]);
        if (memory == MEMORY_HBM)
            at = computed ? num_larger(at, run->used[j]) : at;
        else
            at = num_larger(at, run->end[memory - 1][true][j]);
    }
    return at;
}

static bool stays(const SpillRun *run, bool turns, int link)
{
    return turns && link >= run->links - SPILL_STAYS;
}

static void run_hop(SpillRun *run, PartKind part, int link, Memory near, bool in)
{
    Memory far = (Memory)(near + 1);
    int64_t bytes = 0;
    for (int kind = 0; kind < SAVED_KINDS; kind++)
        if (part != PART_W || kind == SAVED_W)
            bytes += run->bytes[kind][link];
    if (bytes == 0)
        return;
    int64_t ready;
    if (in)
        ready =
            num_larger(free_from(run, near, link, true),
                       far < run->home ? run->end[far][true][link] : run->end[near][false][link]);
    else
        ready = num_larger(near == MEMORY_HBM ? run->used[link] : run->end[near - 1][false][link],
                           far < run->home ? free_from(run, far, link, false) : INT64_MIN);
    int64_t *lane = &run->lane[near][in];
    *lane = num_larger(*lane, ready) +
            price_copy(run->family->problem->cluster, in ? far : near, in ? near : far, bytes);
    run->end[near][in][link] = *lane;
}

/* Around the link at a place of the row; NONE: before it. */
static void run_hops(SpillRun *run, PartKind part, bool turns, int place)
{
    bool in = part != PART_F;
    Hop hop[MAX_HOPS];
    int n = hops_around(run->home, run->links, place, in, hop);
    for (int i = 0; i < n; i++) {
        int link = in ? run->links - 1 - hop[i].bucket : hop[i].bucket;
        if (!stays(run, turns, link))
            run_hop(run, part, link, hop[i].near, in);
    }
}

int64_t spill_run_begin(SpillRun *run, PartKind part, bool turns, int i, int64_t clock)
{
    if (!run)
        return clock;
    int link = i - run->begin;
    if (part == PART_F)
        return num_larger(clock, free_from(run, MEMORY_HBM, link, false));
    int place = run->links - 1 - link;
    if (place == 0)
        run_hops(run, part, turns, NONE);
    run_hops(run, part, turns, place);
    return stays(run, turns, link) ? clock : num_larger(clock, run->end[MEMORY_HBM][true][link]);
}

int64_t spill_run_end(SpillRun *run, PartKind part, bool turns, int i, int64_t clock)
{
    if (!run)
        return clock;
    int link = i - run->begin;
    if (part == PART_F && link + 1 < run->links && run->reaches[link + 1]) {
        clock = num_larger(clock, free_from(run, MEMORY_HBM, link + 1, false));
        run->used[link + 1] = clock;
    }
    run->used[link] = clock;
    if (part == PART_F)
        run_hops(run, part, turns, link);
    return clock;
}

int64_t spill_hop_bytes(const Family *family, int link, PartKind part, bool first, bool last)
{
    int64_t bytes = 0;
    for (int kind = 0; kind < SAVED_KINDS; kind++)
        if (family_spills(family, (SavedKind)kind) && (part != PART_W || kind == SAVED_W))
            bytes += family_block(family, link, (SavedKind)kind, first, last);
    return bytes;
}
