/* check.h - the static proof: everything about a Program that can be shown without running it.
 *
 * It shares no code with sync.c, layout.c or the lowering: it reads the Program and the Steps of the walk, and judges them by
 * what the bytes would hold. Per stage, vector clocks over its streams and a map of all bytes show that every read finds the
 * value it names, made before it, and that nothing is overwritten while it may still be read; a receive owns its buffer from its
 * post on. Over stages, messages match, every communicator sees one order, and a rendezvous run reaches the end. Over the ranks
 * of a stage, each parameter element has one owner in the norm and every replica is updated in every step. Bodies: every
 * placement satisfies its op's rule, every move is legal and every node of the graph is there once.
 *
 * Coordinate 0 of each stage is walked in full. The others have the same table and layout; they are walked on the rows of one
 * micro-batch and the end of the step, where all that a coordinate changes is, and in full when the program is small. */
#ifndef LPLAN_IR_LOWER_CHECK_H
#define LPLAN_IR_LOWER_CHECK_H

#include "ir/lower/walk.h"

typedef struct CheckReport {
    int stages, coordinates, full; /* ranks of a stage; how many of them were walked in full, per stage */
    int64_t steps, events, operands; /* of all walks */
    int streams, channels, communicators; /* in use: of all ranks; messages of one kind between two stages; groups of ranks */
    int64_t messages, collectives;   /* matched, per coordinate; seen on coordinate 0 */
    int64_t arena_bytes;             /* of the largest stage */
    int64_t elements;                /* with one owner each: trained parameters with their padded rows, tied once */
    int64_t padding;                 /* in the flat gradients between parameters, owned once as well, always zero */
    int rows, period, periodic_rows; /* of stage 0: compute rows of the table; micro-batches after which the state of the checker
                                      * repeats, 0 when it never does; rows until it did */
    int faults;                      /* all of them; `diag` keeps 20 */
} CheckReport;

/* True when nothing is wrong. Two optimizer steps cover reuse from one step to the next. */
bool program_check(Arena *arena, const Program *program, int optimizer_steps, Diag *diag, CheckReport *ret);

/* For tests, which break a Program on purpose: sees every Step before the checker does, may change it, and drops it by returning
 * false. */
typedef struct CheckTap {
    bool (*step)(void *context, Step *step);
    void *context;
} CheckTap;
bool program_check_tapped(Arena *arena, const Program *program, int optimizer_steps, const CheckTap *tap, Diag *diag,
                          CheckReport *ret);
/* The part about bytes and events alone, for one rank of one stage, whole table. */
bool stage_check_bytes(const Program *program, int stage, int coordinate, int optimizer_steps, const CheckTap *tap, Diag *diag,
                       CheckReport *ret);

#endif
