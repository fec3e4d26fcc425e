/* execute.h - runs a Program: all its ranks in one process, in fp64, in their arenas at the
 * layout's offsets.
 *
 * The Machine executes Steps as the events allow: in program order, or in an order drawn from a
 * seed among all that are ready. Arenas start as NaN, and what a row leaves in the scratch area is
 * poisoned behind it, so that a wrong address or a missing wait becomes a wrong number. Mutations
 * break one Step on purpose: a proof that cannot fail proves nothing. */
#ifndef LPLAN_IR_LOWER_EXECUTE_H
#define LPLAN_IR_LOWER_EXECUTE_H

#include "ir/eval.h"
#include "ir/lower/walk.h"

typedef enum {
    MUTATE_NONE,
    MUTATE_SKIP,    /* a move keeps its own block only */
    MUTATE_AVERAGE, /* a sum is divided by its group */
    MUTATE_SHORT,   /* the group lacks one atom (one rank when it has one atom): the others'
                       blocks count as zeros */
    MUTATE_STALE,   /* a message delivers what the previous one of its channel did */
    MUTATE_PEER,    /* a message comes from the next coordinate */
    MUTATE_BASE,    /* the origin of a split letter is off by one shard */
    MUTATE_OWN, /* every rank owns: `own` keeps everywhere, every replica counts in the norm and the
                   loss */
    MUTATE_TURN,    /* blocks are passed on the other way round */
    MUTATE_SLOT,    /* a kernel reads its ring slot of the next micro-batch */
    MUTATE_FORGET,  /* a gradient's home loses what earlier micro-batches left */
    MUTATE_RUN,     /* the runs of a block are taken for one: where data are read, or by one node */
    MUTATE_VERSION, /* a kernel reads the version of a weight that lies in the next slot */
    MUTATE_BEYOND,  /* of a padded message more is taken for rows than came */
    MUTATE_MEMBER,  /* a padded message is taken for that of the next member */
    MUTATE_COUNT
} MutationKind;
extern const char *const mutation_text[MUTATE_COUNT];

/* Site: the n-th place in the Program where this kind applies (templates count once, whatever the
 * layer or the micro-batch). */
typedef struct Mutation {
    MutationKind kind;
    int site;
    bool poison; /* MUTATE_SKIP: what others would have given is NaN, so that it shows wherever
                    anything depends on it */
} Mutation;

typedef struct Machine Machine;

/* A program under the fp64 recipe. Everything is kept in the arena. */
Machine *machine_new(Arena *arena, const Program *program);
/* With evaluations of the same batches between steps: before each, or, where steps flow, before the
 * first. */
Machine *machine_new_evaluating(Arena *arena, const Program *program);
/* Whole parameters by NetParam, as stored: fills every rank's shard; moments are zero. */
void machine_set_params(Machine *machine, const double *const *param);
/* All memory as machine_set_params left it. */
void machine_restart(Machine *machine);
/* Runs `rounds` optimizer steps on batch[round * micro_batches + micro] with this learning rate.
 * seed 0: program order. False when it deadlocks or communicators disagree; *ret_fault says where.
 */
bool machine_run(Machine *machine, const EvalBatch *batch, int rounds, double lr, uint64_t seed,
                 const Mutation *mutation, const char **ret_fault);
/* Lets later runs end as soon as a round's gradient norm is not the expected one (NULL: they go
 * on).
 */
void machine_expect(Machine *machine, const double *norm, double tolerance);
/* |got - want| / |want|; of what is all but zero (a model may have no gradient at all) the
 * difference itself counts. */
double machine_relative(double got, double want);
/* After a run: the losses (graph_loss) and squared gradient norm that every rank agreed on, per
 * round; NaN for a round that was not reached. */
double machine_loss(const Machine *machine, int round, int number);
/* The same of the evaluation before a step; where steps flow there is one, before the first. */
double machine_evaluated(const Machine *machine, int round, int number);
bool machine_flows(const Machine *machine);
double machine_norm2(const Machine *machine, int round);
/* Gathers one parameter: the largest deviation of any rank's weight from `want`, relative to its
 * largest element (NaN: infinite). */
double machine_param_error(const Machine *machine, int net_param, const double *want);
/* The same parameter as a whole, into an array of its elements: NaN where no rank has it. False
 * when two ranks that hold one element do not hold the same bits of it. */
bool machine_param(const Machine *machine, int net_param, double *ret);
/* Number of sites of a mutation kind (MUTATE_NONE: of all), the i-th of all, and what it is in
 * words. */
int machine_sites(Machine *machine, MutationKind kind);
Mutation machine_site(const Machine *machine, int index);
const char *machine_site_name(Arena *arena, const Machine *machine, const Mutation *mutation);
/* Why a mutation of this site changes nothing, or NULL: it must be caught. */
const char *machine_equivalent(const Machine *machine, const Mutation *mutation);
/* Bytes of an arena that the last run touched, the most of any rank of the stage (the high-water
 * mark). */
int64_t machine_touched(const Machine *machine, int stage, Memory memory);
/* Bytes that the layout gives that arena. */
int64_t machine_laid_out(const Machine *machine, int stage, Memory memory);

#endif
