/* check.h - the static proof: everything about a Program that can be shown without running it.
 *
 * It shares no code with sync.c, layout.c or the lowering: it reads the Program and the Steps of
 * the walk, and judges them by what the bytes would hold. Per stage, vector clocks over its streams
 * and a map of all bytes show that every read finds the value it names, made before it, and that
 * nothing is overwritten while it may still be read; a receive owns its buffer from its post on.
 * Over stages, messages match, every communicator sees one order, and a rendezvous run reaches the
 * end. Over the ranks of a stage, each parameter element has one owner in the norm and every
 * replica is updated in every step. Bodies: every placement satisfies its op's rule, every move is
 * legal and every node of the graph is there once.
 *
 * Coordinate 0 of each stage is walked in full. The others have the same table and layout; they are
 * walked on the rows of one micro-batch and the end of the step, where all that a coordinate
 * changes is, and in full when the program is small. */
#ifndef LPLAN_IR_LOWER_CHECK_H
#define LPLAN_IR_LOWER_CHECK_H

#include "ir/lower/walk.h"

/* The state of the checker before entry `from` of a stage's table is that before entry `to`,
 * counted from its micro-batch: what lies between may be repeated any number of times. micros 0: it
 * never is, as in GPipe. */
typedef struct Period {
    int from, to, micros;
} Period;

typedef struct CheckReport {
    int stages, coordinates;         /* ranks of a stage */
    int full;                        /* of them walked in full, on the last stage */
    int64_t steps, events, operands; /* of all walks */
    int streams;                     /* in use, of rank 0 of every stage */
    int channels;                    /* messages of one kind from one stage to another */
    int communicators;               /* groups of ranks with collectives on one stream */
    int64_t messages, collectives;   /* on rank 0 of every stage */
    int64_t arena_bytes;             /* of the largest stage */
    int64_t elements; /* with one owner each: trained parameters, padded rows too, tied once */
    int64_t padding;  /* between parameters in the flat gradients: owned once as well */
    /* The state of every stage repeats after `period` micro-batches, 0 when on one it never does,
     * and has done so by micro-batch `periodic_from`: what is shown then holds for larger numbers
     * of micro-batches too, in steps of the period. */
    int period, periodic_from;
    int faults; /* all of them; `diag` keeps 20 */
} CheckReport;

/* True when nothing is wrong. Two optimizer steps cover reuse from one step to the next. */
bool program_check(Arena *arena, const Program *program, int optimizer_steps, Diag *diag,
                   CheckReport *ret);

/* For tests, which break a Program on purpose: sees every Step before the checker does, may change
 * it, and drops it by returning false. */
typedef struct CheckTap {
    bool (*step)(void *context, Step *step);
    void *context;
} CheckTap;
bool program_check_tapped(Arena *arena, const Program *program, int optimizer_steps,
                          const CheckTap *tap, Diag *diag, CheckReport *ret);
/* Of a program that is right: the order, the messages and the bytes of steps with evaluations
 * between them (walk_begin_evaluating). `tap`: NULL, or as below. */
bool program_check_evaluating(Arena *arena, const Program *program, int optimizer_steps,
                              const CheckTap *tap, Diag *diag, CheckReport *ret);
/* The part about bytes and events alone, for one rank of one stage, whole table. */
bool stage_check_bytes(const Program *program, int stage, int coordinate, int optimizer_steps,
                       const CheckTap *tap, Diag *diag, CheckReport *ret);
/* The period of one stage; none when its bytes do not hold. */
Period stage_period(const Program *program, int stage);

#endif
