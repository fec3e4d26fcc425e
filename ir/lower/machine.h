/* machine.h - what a Machine is, shared by machine.c (memory), perform.c (one Step), execute.c (the
 * order) and mutate.c (sites). */
#ifndef LPLAN_IR_LOWER_MACHINE_H
#define LPLAN_IR_LOWER_MACHINE_H

#include "ir/lower/execute.h"
#include "ir/lower/recall.h"

enum {
    MAX_GROUP = 64, /* ranks that may meet */
    WIDTH = 8       /* bytes of an element: everything is fp64 here */
};

/* A local block in its whole value, in whose order the net's places are. */
typedef struct BlockMap {
    const Net *net;
    int axes;
    DimId dim[MAX_AXES];
    int64_t local[MAX_AXES], origin[MAX_AXES], whole[MAX_AXES];
} BlockMap;

typedef struct Known Known;

typedef struct Rank {
    int stage, coordinate;
    double *memory[MEMORY_COUNT];         /* an arena of each */
    double *first[MEMORY_COUNT];          /* the same as machine_set_params left it */
    unsigned char *touched[MEMORY_COUNT]; /* per element */
    VEC(Step *) steps;                    /* program order, cut short behind their last operand */
    Known **known;  /* per Step, of kernels: what the right run read and gave, or NULL */
    double **stale; /* [boundary * 2 + class] last message, kept for MUTATE_STALE */
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
    Stream stream; /* of copies between memories */
    Kept carries;  /* of copies between memories */
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
    bool evaluates;           /* between steps, */
    double *loss, *evaluated; /* net_losses per round */
    double *norm2;
    const EvalBatch *batch;
    double lr;
    const Site *site; /* of the running mutation, or NULL */
    bool poisons;     /* it is a move that gives NaN for the blocks of others */
    uint64_t seed, draws;
    const char *fault;
    Recall *recall;              /* of kernels of runs that nothing breaks */
    Arena *scratch;              /* of one Step */
    const double *expected_norm; /* per round, or NULL */
    double tolerance;
    bool differs; /* from the expected norm: the run may end */
};

/* Elements of a memory of a rank of the stage. */
int64_t memory_elements(const StageProgram *stage, Memory memory);
/* What lies at an address. */
double *rank_at(const Rank *rank, int64_t address);
/* The bytes of an operand, which count as touched. */
double *operand_at(Rank *rank, const Operand *operand);
/* A kernel of a body. One that reads what it read when nothing was broken gives what it gave then.
 */
void machine_kernel(Machine *machine, Rank *rank, const Step *step);
/* Where the version behind the one that a row of this step reads is. */
int64_t next_version(const StageProgram *stage, const Step *step, int64_t address);
/* What the optimizer is told before each step. */
void set_scalars(const Machine *machine, Rank *rank, const Step *step);
const EvalBatch *step_batch(const Machine *machine, const Step *step);
/* A copy brings weights from another memory to their use in a row. */
bool step_fetches(const Program *program, const Step *step);
/* A copy between two memories of a rank. */
void machine_copy(const Machine *machine, Rank *rank, const Step *step);
/* Where another bucket's far gradients are in that memory, which a hop could take for its own;
 * NONE.
 */
int64_t other_sums(const StageProgram *stage, const Step *step, Memory near);
/* The same of weights on their way between a file and the device. */
int64_t other_between(const StageProgram *stage, const Step *step);
/* Sites of mutations (mutate.c): one of a Step, which is put once; those of a hop (mutate_hops.c),
 * that it does not happen, or takes another's slot. Does no step change a group? */
Site site_of(const Machine *machine, MutationKind kind, const Step *step);
void site_put(Machine *machine, Site site);
void machine_hop_sites(Machine *machine, const Step *step);
bool group_frozen(const Program *program, const StageProgram *stage, const Group *group);
/* The scratch arena, empty. */
Arena *machine_scratch(Machine *machine);
/* What the world's reduction of a step, or of an evaluation, has summed. */
void machine_world(Machine *machine, const Step *step, const double *sums);
void machine_compare_norm(Machine *machine, int round);
const Mesh *machine_mesh(const Machine *machine);
Rank *machine_rank(const Machine *machine, int stage, int coordinate);
BlockMap machine_block(const Machine *machine, const Body *body, const Copy *copy, int coordinate);
/* Index of a local element in the whole value, its positions in a row. */
int64_t block_index(const BlockMap *map, int64_t local);

/* Meets other ranks: a collective, not a local move. */
bool step_is_comm(const Step *step);
bool step_is_routed(const Step *step); /* a move of rows that go by whom they name */
/* Executes one Step of all ranks that do it together (its group, its pair, or one rank). */
void machine_perform(Machine *machine, Rank **member, Step **step, int n);

/* Fills machine->sites from one stage rank's walk per stage. */
void machine_find_sites(Machine *machine);
/* The running mutation applies to this Step. */
bool site_hits(const Machine *machine, MutationKind kind, const Step *step);

#endif
