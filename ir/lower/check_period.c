/* check_period.c - when the state of the static proof repeats: what was shown for this number of
 * micro-batches then holds for any larger one that leaves the same remainder.
 *
 * The table of a stage has a loop of its own. At one phase of it the whole state is written down
 * relative to the micro-batch: ring slots and names counted from it, Steps by their order among
 * what they can be compared with. Two equal states have equal futures under equal, shifted Steps,
 * so the rows between them may be repeated any number of times. */
#include "ir/lower/check_cells.h"

#include <stdlib.h>

#include "ir/lower/loop.h"

/* ---- the state ---- */

typedef struct Digest {
    uint64_t a, b;
} Digest;

static void mix(Digest *digest, int64_t value)
{
    uint64_t x = (uint64_t)value;
    digest->a = (digest->a ^ x) * UINT64_C(0x9fb21c651e98df25);
    digest->a ^= digest->a >> 29;
    digest->b = (digest->b + x) * UINT64_C(0xd6e8feb86659fd93);
    digest->b ^= digest->b >> 32;
}

/* Steps and knowledge of one stream, in order: 2 x number for a Step that a cell names, 2 x number
 * + 1 for what a clock knows. Runs of one sort rank alike, because only a Step and a clock are ever
 * compared. */
typedef struct Ranks {
    VEC(int64_t) value;
    int32_t *rank;
} Ranks;

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void sort_ranks(Arena *arena, Ranks *ranks)
{
    if (ranks->value.n == 0)
        return;
    qsort(ranks->value.at, (size_t)ranks->value.n, sizeof ranks->value.at[0], by_value);
    ranks->rank = ARENA_ARRAY(arena, int32_t, ranks->value.n);
    int32_t rank = 0;
    for (int i = 0; i < ranks->value.n; i++) {
        if (i > 0 && (ranks->value.at[i] & 1) != (ranks->value.at[i - 1] & 1))
            rank++;
        ranks->rank[i] = rank;
    }
}

static int32_t rank_of(const Ranks *ranks, int64_t value)
{
    int low = 0, high = ranks->value.n - 1;
    while (low < high) {
        int mid = (low + high) / 2;
        if (ranks->value.at[mid] < value)
            low = mid + 1;
        else
            high = mid;
    }
    return ranks->rank[low];
}

static void collect_clock(Arena *arena, Ranks *ranks, const Clock *clock)
{
    for (int s = 0; s < STREAM_COUNT; s++)
        vec_push(arena, &ranks[s].value) = 2 * (int64_t)clock->seq[s] + 1;
}

static void collect_step(Arena *arena, const CellRun *run, Ranks *ranks, int stream, int seq)
{
    vec_push(arena, &ranks[stream].value) = 2 * (int64_t)seq;
    collect_clock(arena, ranks, &run->clock[run->seen[stream].at[seq]]);
}

static void mix_clock(Digest *digest, const Ranks *ranks, const Clock *clock)
{
    for (int s = 0; s < STREAM_COUNT; s++)
        mix(digest, rank_of(&ranks[s], 2 * (int64_t)clock->seq[s] + 1));
}

static void mix_step(Digest *digest, const CellRun *run, const Ranks *ranks, int stream, int seq)
{
    mix(digest, stream);
    mix(digest, rank_of(&ranks[stream], 2 * (int64_t)seq));
    mix_clock(digest, ranks, &run->clock[run->seen[stream].at[seq]]);
}

/* The ring that holds the cell, or NULL. */
static const Ring *ring_of_cell(const CellRun *run, const Cell *cell, int64_t begin)
{
    const Chunk *chunk = &run->trace->stage->chunk[cell->region->chunk];
    if (cell->region->kind == REGION_RING)
        return &chunk->ring[cell->region->index];
    if (cell->region->kind != REGION_AWAY)
        return NULL;
    const Ring *away = &chunk->away[cell->region->index];
    return begin >= away->base ? away : NULL;
}

static void mix_cell(Digest *digest, const CellRun *run, const Ranks *ranks, const Cell *cell,
                     int64_t begin, int micro, int window)
{
    const TraceStep *steps = run->trace->steps.at;
    const Ring *ring = ring_of_cell(run, cell, begin);
    if (ring) {
        int64_t slot = (begin - ring->base) / ring->stride;
        mix(digest, cell->region->index + RING_COUNT * cell->region->chunk);
        mix(digest, cell->region->kind == REGION_AWAY);
        /* a column of slots has to come again itself */
        mix(digest, ring->slot ? slot : (slot - micro % ring->n + ring->n) % ring->n);
        mix(digest, (begin - ring->base) % ring->stride);
    } else {
        mix(digest, begin);
    }
    mix(digest, cell->closed + 2 * cell->folded + 4 * cell->dirty);
    mix(digest, cell->sums);
    int uses = cell->expected / run->trace->program->plan->micro_batches;
    mix(digest, cell->expected ? cell->adds - (int64_t)uses * micro : 0);
    if (cell->region->kind == REGION_BUFFER)
        mix(digest, cell->adds);
    for (int s = 0; s < STREAM_COUNT; s++)
        if (cell->reader[s] >= 0)
            mix_step(digest, run, ranks, s, cell->reader[s]);
    if (cell->writer < 0)
        return;
    int written = steps[cell->writer].micro, age = micro - written;
    mix_step(digest, run, ranks, (int)steps[cell->writer].stream, (int)steps[cell->writer].seq);
    mix(digest, (int64_t)(cell->region->kind < REGION_RING ? 0 : cell->name >> 24));
    if (step_spills(&steps[cell->writer])) { /* it may have carried what is older than itself */
        int64_t carried = micro - (int64_t)(cell->name & 0xffffff);
        mix(digest, carried > window || carried < -window ? INT64_MAX : carried);
    }
    mix(digest,
        cell->region->kind < REGION_RING || written == NONE || age > window ? INT64_MAX : age);
}

static Digest state_digest(const CellRun *run, int micro, int window)
{
    Arena *arena = arena_new("state");
    Ranks ranks[STREAM_COUNT] = {{{0}, NULL}};
    for (int i = 0; i < run->cells; i++) {
        const Cell *cell = &run->cell[i];
        if (cell->writer >= 0)
            collect_step(arena, run, ranks, (int)run->trace->steps.at[cell->writer].stream,
                         (int)run->trace->steps.at[cell->writer].seq);
        for (int s = 0; s < STREAM_COUNT; s++)
            if (cell->reader[s] >= 0)
                collect_step(arena, run, ranks, s, cell->reader[s]);
    }
    for (int s = 0; s < STREAM_COUNT; s++)
        collect_clock(arena, ranks, &run->now[s]);
    for (int s = 0; s < STREAM_COUNT; s++)
        sort_ranks(arena, &ranks[s]);
    /* the cells of a ring are added up, because the slot that begins the state wanders */
    Digest sum = {0, 0};
    for (int i = 0; i < run->cells; i++) {
        if (!run->cell[i].region)
            continue;
        Digest one = {1, 2};
        mix_cell(&one, run, ranks, &run->cell[i], run->begin[i], micro, window);
        sum.a += one.a;
        sum.b += one.b;
    }
    for (int s = 0; s < STREAM_COUNT; s++)
        mix_clock(&sum, ranks, &run->now[s]);
    arena_free(arena);
    return sum;
}

/* ---- the run ---- */

/* Keeps the search as cheap as the walk. */
enum { CELLS_PER_OPERAND = 1 };

struct PeriodRun {
    Loop loop;
    int phase;      /* entry of the loop's first compute row */
    int last;       /* entry whose state was taken last */
    int64_t budget; /* cells that may still be looked at: where nothing repeats, as in GPipe, the
                       search ends */
    VEC(Digest) seen;
    VEC(int) entry;
    Period found;
};

PeriodRun *period_run_new(CellRun *run)
{
    const StageProgram *stage = run->trace->stage;
    PeriodRun *period = ARENA_NEW(run->arena, PeriodRun);
    period->loop = table_loop(stage, 16 * run->trace->program->chunks + 16);
    period->phase = period->last = NONE;
    period->budget = CELLS_PER_OPERAND * (int64_t)run->trace->operands.n;
    for (int i = period->loop.prefix + period->loop.entries - 1;
         i >= period->loop.prefix && period->loop.repeats; i--)
        if (stage->table.at[i].kind == ENTRY_COMPUTE && !stage->table.at[i].braided)
            period->phase = i;
    return period;
}

void period_see(CellRun *run, PeriodRun *period, const TraceStep *next)
{
    const Loop *loop = &period->loop;
    if (period->found.micros || period->phase == NONE || next->round != 0 ||
        next->entry == period->last)
        return;
    period->last = next->entry;
    if (next->entry < period->phase || (next->entry - period->phase) % loop->entries != 0 ||
        next->entry >= loop->prefix + loop->entries * loop->repeats)
        return;
    period->budget -= run->cells;
    if (period->budget < 0)
        return;
    int micro = run->trace->stage->table.at[next->entry].micro;
    Digest digest = state_digest(run, micro, 4 * run->trace->program->stages);
    for (int i = 0; i < period->seen.n; i++)
        if (period->seen.at[i].a == digest.a && period->seen.at[i].b == digest.b) {
            int from = period->entry.at[i];
            period->found =
                (Period){from, next->entry, micro - run->trace->stage->table.at[from].micro};
            return;
        }
    vec_push(run->arena, &period->seen) = digest;
    vec_push(run->arena, &period->entry) = next->entry;
}

Period period_found(const PeriodRun *period)
{
    return period->found;
}
