/* check_cells.h - the memory of one rank as the static proof sees it: cells between the addresses
 * of a trace. */
#ifndef LPLAN_IR_LOWER_CHECK_CELLS_H
#define LPLAN_IR_LOWER_CHECK_CELLS_H

#include "ir/lower/check_in.h"

/* The latest Step of each stream that is over; -1 none. */
typedef struct Clock {
    int32_t seq[STREAM_COUNT];
} Clock;

typedef struct Cell {
    const Region *region;         /* NULL: outside of all */
    uint64_t name;                /* of the value that is there */
    int64_t base;                 /* where that value begins */
    int32_t writer;               /* Step of the trace, -1 none */
    int32_t round;                /* optimizer step of the latest write, -1 none */
    int32_t reader[STREAM_COUNT]; /* since the latest write: number in the stream, -1 none */
    int32_t expected;   /* gradient, loss: additions in one optimizer step; 0 between parameters */
    int32_t adds, sums; /* of this optimizer step: additions, sums over ranks */
    bool evaluated;     /* the latest write was an evaluation's */
    bool stepped;       /* state on its way: the optimizer has made it what it is */
    bool closed;        /* gradient: something has read it, no more may be added */
    bool folded;        /* gradient's home: a buffer has taken in what it holds */
    bool dirty;   /* buffer: a number that is not padding has been here since it was cleared */
    bool trained; /* weight or moment that each step must update */
} Cell;

typedef struct CellRun {
    Check *check;
    const Trace *trace;
    const RegionList *regions;
    Arena *arena;
    int cells;
    Cell *cell;
    int64_t *begin; /* of cell i; begin[cells] is the end of the last */
    int64_t *key;   /* address -> cell, open addressing */
    int32_t *at;
    int slots;
    Clock *clock; /* per Step of the trace: what one who waits for it knows */
    Clock now[STREAM_COUNT];
    VEC(int32_t) seen[STREAM_COUNT]; /* Steps of each stream so far */
} CellRun;

typedef struct CellSpan {
    int begin, end;
} CellSpan;

/* Lives until the next one. */
CellRun *cell_run_new(Check *check, const Trace *trace, const RegionList *regions);
/* The cell that holds an address. */
int cell_of(const CellRun *run, int64_t address);
/* The cells of an operand of the trace. */
CellSpan cell_span(const CellRun *run, const Operand *operand);

/* ---- places (check_place.c) ---- */

/* An instruction of the step of a whole matrix. */
bool step_is_matrix(const TraceStep *step);
bool check_place(CellRun *run, const TraceStep *step, const Operand *operand);

/* ---- optimizer state away from its device (check_state.c) ---- */

/* A Step that is no copy works on a home in another memory. */
bool state_is_away(const TraceStep *step, const Cell *cell);
/* A copy away from the device. */
bool state_leaves(const Trace *trace, const TraceStep *step);
/* A fault of reading what a slot holds from `begin` on, or NULL. */
const char *state_taken(const CellRun *run, const TraceStep *step, const Operand *operand,
                        const Cell *cell, int64_t begin);

/* ---- far gradients (check_sums.c) ---- */

/* Additions that a byte of a bucket's block waits for in a step, `at` bytes behind its first; 0
 * between parameters. */
int sums_expected(const Trace *trace, int bucket, int64_t at);
/* The same at home. */
int sums_expected_home(const Trace *trace, const Region *region, int64_t address);
/* A fault of a hop that takes what a cell holds, or NULL. */
const char *sums_taken(const CellRun *run, const TraceStep *step, const Operand *operand,
                       const Cell *cell, int64_t begin);
/* A Step of a row is the first to write a bucket's place on the device: the cell counts anew. */
void sums_begin(const CellRun *run, const TraceStep *step, const Operand *operand, Cell *cell,
                int64_t begin);
/* What a hop writes: the cell counts on where the other end's did. */
void sums_carry(CellRun *run, const Operand *operand, int cell);

/* ---- saved values away from their device (check_spill.c) ---- */

/* Cell i of the operand that a hop writes takes on what the hop read: the same value as one whole,
 * or nothing. */
void spill_carry(CellRun *run, const Operand *operand, int i);
/* A fault of where a hop reads or writes, or NULL. */
const char *spill_misplaced(const Trace *trace, const TraceStep *step, const Operand *operand);

/* ---- periods (check_period.c) ---- */

typedef struct PeriodRun PeriodRun;
PeriodRun *period_run_new(CellRun *run);
/* Before every Step of the run. */
void period_see(CellRun *run, PeriodRun *period, const TraceStep *next);
Period period_found(const PeriodRun *period);

#endif
