/* machine.h - shared by execute.c (running) and mutate.c (sites): what a Machine is. */
#ifndef LPLAN_IR_LOWER_MACHINE_H
#define LPLAN_IR_LOWER_MACHINE_H

#include "ir/lower/execute.h"

typedef struct Rank {
    int stage, coordinate;
    double *arena;
    unsigned char *touched; /* per element of the arena */
    VEC(Step *) steps;      /* program order, cut short behind their last operand */
    double *stale[2];       /* last message of each class, kept for MUTATE_STALE */
    VEC(int) queue[STREAM_COUNT];
    int head[STREAM_COUNT]; /* also the number of done steps of the stream */
} Rank;

/* Where a mutation may apply: a template instruction, a bucket move of a group, a message class of
 * a stage. */
typedef struct Site {
    MutationKind kind;
    const Body *body;
    const Inst *inst;
    const Move *move;
    int stage, group, node, letter, operand;
    StepKind step;
    MsgKind message;
    const char *equivalent; /* reason, or NULL */
} Site;

struct Machine {
    Arena *arena;
    const Program *program;
    int per_stage, ranks;
    Rank *rank; /* stage-major */
    VEC(Site) sites;
    int rounds;
    double *loss, *norm2;
    const EvalBatch *batch;
    double lr;
    const Site *site; /* of the running mutation, or NULL */
    uint64_t seed, draws;
    const char *fault;
};

/* Fills machine->sites from one stage rank's walk per stage. */
void machine_find_sites(Machine *machine);
/* The running mutation applies to this Step. */
bool site_hits(const Machine *machine, MutationKind kind, const Step *step);

#endif
