/* sync.c - per byte cell, the last writer and the last reader of every stream; waits are what those
 * imply, less what is already known.
 *
 * A Step needs every earlier Step of another stream that wrote what it touches, or read what it
 * writes. Taken newest first, a need is skipped when the clocks gained so far imply it: what is
 * left is the transitive reduction. Cells split on demand, so ranges may nest and overlap freely.
 */
#include "ir/lower/sync.h"

#include <string.h>

typedef struct Clock {
    int32_t seq[STREAM_COUNT]; /* last Step of each stream known to be done, -1 none */
} Clock;

typedef struct Cell {
    int64_t begin;                 /* the cell ends where the next begins */
    int32_t writer_stream, writer; /* seq, -1 none */
    int32_t reader[STREAM_COUNT];
} Cell;

typedef struct Done {
    Clock clock; /* what a waiter for this Step knows */
    int64_t order;
} Done;

struct Sync {
    Arena *arena;
    VEC(Cell) cells;
    Clock now[STREAM_COUNT];
    VEC(Done) done[STREAM_COUNT];
    int64_t order;
};

Sync *sync_new(Arena *arena)
{
    Sync *sync = ARENA_NEW(arena, Sync);
    sync->arena = arena;
    Cell *cell = &vec_push(arena, &sync->cells);
    cell->begin = INT64_MIN;
    cell->writer_stream = cell->writer = -1;
    memset(cell->reader, -1, sizeof cell->reader);
    memset(sync->now, -1, sizeof sync->now);
    return sync;
}

/* Index of the cell that holds `at`. */
static int find_cell(const Sync *sync, int64_t at)
{
    int low = 0, high = sync->cells.n - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (sync->cells.at[mid].begin <= at)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

/* Makes `at` a boundary; the index of the cell that begins there. */
static int cut_cell(Sync *sync, int64_t at)
{
    int i = find_cell(sync, at);
    if (sync->cells.at[i].begin == at)
        return i;
    vec_push(sync->arena, &sync->cells) = (Cell){0};
    Cell *cell = sync->cells.at;
    memmove(&cell[i + 2], &cell[i + 1], (size_t)(sync->cells.n - i - 2) * sizeof *cell);
    cell[i + 1] = cell[i];
    cell[i + 1].begin = at;
    return i + 1;
}

/* One stream runs in order, so its newest Step implies the others. */
static void need(Clock *needs, int stream, int32_t seq)
{
    if (seq > needs->seq[stream])
        needs->seq[stream] = seq;
}

/* The newest Step of each other stream that this one needs. */
static void collect(Sync *sync, const Step *step, Clock *needs)
{
    memset(needs, -1, sizeof *needs);
    for (int k = 0; k < step->operands; k++) {
        const Operand *operand = &step->operand[k];
        if (operand->bytes == 0)
            continue;
        int end = cut_cell(sync, operand->address + operand->bytes);
        int begin = cut_cell(sync, operand->address);
        end = find_cell(sync, operand->address + operand->bytes);
        for (int i = begin; i < end; i++) {
            const Cell *cell = &sync->cells.at[i];
            if (cell->writer >= 0)
                need(needs, cell->writer_stream, cell->writer);
            for (int s = 0; operand->write && s < STREAM_COUNT; s++)
                need(needs, s, cell->reader[s]);
        }
    }
    needs->seq[step->stream] = -1;
}

static void learn(Clock *clock, const Clock *other)
{
    for (int s = 0; s < STREAM_COUNT; s++)
        if (other->seq[s] > clock->seq[s])
            clock->seq[s] = other->seq[s];
}

static void choose_waits(const Sync *sync, Step *step, Clock *needs, Clock *clock)
{
    step->waits = 0;
    for (;;) {
        int best = -1;
        int64_t newest = -1;
        for (int s = 0; s < STREAM_COUNT; s++) {
            if (needs->seq[s] < 0 || sync->done[s].at[needs->seq[s]].order < newest)
                continue;
            newest = sync->done[s].at[needs->seq[s]].order;
            best = s;
        }
        if (best < 0)
            return;
        Wait wait = {(Stream)best, needs->seq[best]};
        needs->seq[best] = -1;
        if (clock->seq[best] >= wait.seq)
            continue;
        step->wait[step->waits++] = wait;
        learn(clock, &sync->done[best].at[wait.seq].clock);
    }
}

static void record(Sync *sync, const Step *step)
{
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < step->operands; k++) {
            const Operand *operand = &step->operand[k];
            if (operand->bytes == 0 || operand->write != (pass == 1))
                continue;
            int begin = find_cell(sync, operand->address);
            int end = find_cell(sync, operand->address + operand->bytes);
            for (int i = begin; i < end; i++) {
                Cell *cell = &sync->cells.at[i];
                if (operand->write) {
                    cell->writer_stream = (int32_t)step->stream;
                    cell->writer = (int32_t)step->seq;
                    memset(cell->reader, -1, sizeof cell->reader);
                } else {
                    cell->reader[step->stream] = (int32_t)step->seq;
                }
            }
        }
}

void sync_step(Sync *sync, Step *step)
{
    Stream stream = step->stream;
    step->seq = sync->done[stream].n;
    Clock needs;
    collect(sync, step, &needs);
    Clock clock = sync->now[stream];
    choose_waits(sync, step, &needs, &clock);
    clock.seq[stream] = (int32_t)step->seq;
    sync->now[stream] = clock;
    vec_push(sync->arena, &sync->done[stream]) = (Done){clock, sync->order++};
    record(sync, step);
}
