/* walk_in.h - what the parts of the walk share. Private to ir/lower. */
#ifndef LPLAN_IR_LOWER_WALK_IN_H
#define LPLAN_IR_LOWER_WALK_IN_H

#include "ir/lower/sync.h"
#include "ir/lower/walk.h"

struct Walk {
    Arena *arena;
    const Program *program;
    const StageProgram *stage;
    int coordinate, rounds, entry;
    int turn, turns; /* of the table; the run ends with that one */
    int round;       /* of the entry at work */
    bool evaluates;  /* there are evaluations, */
    bool evaluating; /* and this is one: `entry` is of the stage's evaluation */
    Sync *sync;
    VEC(Step) queue; /* Steps of the current entry */
    int next;
};

/* Names of values: what kind, which link or edge of the chain, which copy, which micro-batch.
 * Static memory (weights, gradients, moments, scalars) is one name: its cells never change owner.
 */
typedef enum {
    NAME_STATIC = 1,
    NAME_DATA,
    NAME_EDGE,
    NAME_GRAD_EDGE,
    NAME_SAVED,
    NAME_TEMP,
    NAME_FETCHED, /* weights of a bucket, gathered or on their way; `copy`: in which memory, and for
                     backward, where that is apart */
    NAME_BUFFER,  /* accumulators of a bucket, of one micro-batch */
    NAME_BLOCK,   /* saved values of a link, on their way or at home; `copy` is their kind */
    NAME_STATE,   /* state of a bucket, on its way; `link` is the memory, `micro` the bucket */
    NAME_SUMS     /* far gradients of a bucket, at work or on their way; the same */
} NameKind;

/* `link` is that of the chain, or a bucket. */
uint64_t walk_name(NameKind kind, int link, int copy, int micro);
/* A bucket's weights of a version where they are whole for a use, of forward or of backward, or
 * where they are stepped; or on their way there, in a memory between. */
uint64_t walk_fetched_name(const Walk *walk, int bucket, Memory memory, bool back, int version);
/* A Step of the current entry. */
Step *walk_put(Walk *walk, StepKind kind, Stream stream);
/* The same for an instruction of a body. */
Step *walk_inst(Walk *walk, const Body *body, const Inst *inst);
void walk_operand(Step *step, int64_t address, int64_t bytes, uint64_t name, const Copy *copy,
                  bool read, bool write);

/* walk_spill.c: saved values whose home is another memory, before a link of a row runs or behind
 * it. */
void walk_spill(Walk *walk, const Entry *entry, int link);

/* walk_flat.c: what happens to flat buckets. */

/* The weights of buckets that a link is the first of its row to use go on their way: before the row
 * begins, those of its first link, unless they are there; ahead of a link, those of the next. Those
 * of files leave them a link earlier. */
void walk_fetch_first(Walk *walk, const Entry *entry);
void walk_fetch_ahead(Walk *walk, const Entry *entry, int link);
/* Backward of a link is done: the gradients that are complete with it go on their way. */
void walk_close(Walk *walk, const Entry *entry, int link);
void walk_reduce(Walk *walk, int bucket);
/* walk_sums.c: far gradients, before backward of a link or behind it. This rank's share of them, to
 * the norm and to the update. */
void walk_sums(Walk *walk, const Entry *entry, int link, bool in);
void walk_share_in(Walk *walk, int bucket);
void walk_tied(Walk *walk, int group);
void walk_norm(Walk *walk);
void walk_world(Walk *walk);
void walk_evaluated(Walk *walk); /* the losses of an evaluation, of the world */
void walk_update(Walk *walk, int bucket);
void walk_matrices(Walk *walk, int bucket); /* walk_matrix.c: the part of it that steps them */

#endif
