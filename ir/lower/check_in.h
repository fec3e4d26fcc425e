/* check_in.h - what the parts of the static proof share: the run, the trace of a rank, the regions
 * of a layout. */
#ifndef LPLAN_IR_LOWER_CHECK_IN_H
#define LPLAN_IR_LOWER_CHECK_IN_H

#include "ir/lower/check.h"

typedef struct Check {
    Arena *arena; /* lives for the whole check */
    const Program *program;
    int rounds;
    const CheckTap *tap; /* or NULL */
    Diag *diag;
    CheckReport *report;
    Arena *walk, *cells; /* reset by every walk and every run over its bytes */
    bool evaluates;      /* with evaluations between steps */
} Check;

/* Appends a fault and returns false. */
bool check_fault(Check *check, const char *format, ...) LP_PRINTF(2, 3);

/* ---- regions (check_layout.c) ---- */

typedef enum {
    REGION_SCALARS,
    REGION_WEIGHT,
    REGION_GRADIENT,
    REGION_MOMENT1,
    REGION_MOMENT2,
    REGION_MASTER,
    REGION_RING,
    REGION_PASS,
    REGION_SCRATCH,
    REGION_FETCHED, /* weights for a use */
    REGION_BUFFER,  /* accumulators of running micro-batches */
    REGION_SLOTS,   /* of state on its way */
    REGION_AWAY,    /* saved values in another memory */
    REGION_SUMS,    /* far gradients, at work and on their way */
    REGION_COUNT
} RegionKind;
extern const char *const region_text[REGION_COUNT];

typedef struct Region {
    RegionKind kind;
    int index; /* of the group or pass buffer; of a ring: of its kind; of slots and sums: the
                  memory; of saved values: their kind */
    int chunk; /* of a ring: of the stage */
    int64_t begin, end;
} Region;

typedef struct RegionList {
    int n;
    Region *at; /* by address */
} RegionList;

/* Bytes by which the slot of this version of the weights lies behind the first. */
int64_t slot_of_version(const StageProgram *stage, int version);
RegionList regions_of(Arena *arena, const Program *program, const StageProgram *stage);
/* The region that holds [address, address + bytes), or NULL. */
const Region *region_find(const RegionList *regions, int64_t address, int64_t bytes);
/* "gradients of layers.3.q.weight", "saved ring, slot 2": the bytes from this address on. */
const char *region_words(Arena *arena, const Program *program, const StageProgram *stage,
                         const Region *region, int64_t address);
/* How many uses in this stage add to a group's member: two when both uses of a tied parameter live
 * here. */
int member_uses(const Program *program, const StageProgram *stage, const Group *group,
                const GroupMember *member);
/* Its part in check_buffers.c: buckets that are whole, or on the device, for a while. */
bool check_buffers(Check *check, const StageProgram *stage);
/* Regions disjoint and inside the arena; groups, buckets, rings and pointers consistent. */
bool check_layout(Check *check, const StageProgram *stage);

/* Where a field of a bucket's state is on its way through a memory. */
int64_t slot_address(const Program *program, const StageProgram *stage, Memory memory, int bucket,
                     StateField field);
/* Where the optimizer finds a field of a bucket's state. */
int64_t state_at_update(const Program *program, const StageProgram *stage, int bucket,
                        StateField field);

/* ---- traces (check.c) ---- */

/* A Step without its operands and waits, which are in the trace's lists. */
typedef struct TraceStep {
    StepKind kind;
    Stream stream;
    int64_t seq;
    int round, turn, entry, link, micro, bucket, peer;
    MsgKind message;
    int boundary;
    bool first, decay;
    const Body *body;
    const Inst *inst;
    const Node *node;
    const Move *move;
    int64_t elements, from_element, count;
    int operand, operands, wait, waits; /* first and number */
    bool evaluates;
} TraceStep;

/* What one rank does. */
typedef struct Trace {
    const Program *program; /* whose table was walked */
    const StageProgram *stage;
    int coordinate, rounds;
    bool whole; /* the whole table, not the rows of one micro-batch */
    VEC(TraceStep) steps;
    VEC(Operand) operands;
    VEC(Wait) waits;
} Trace;

/* ---- state away from its device (check_state.c) ---- */

/* Hops that the update of a group's bucket makes; a fault of one that carries other bytes than this
 * rank's state of its bucket, or NULL. */
int state_hops_due(const Group *group);
const char *state_misplaced(const Trace *trace, const TraceStep *step);

/* ---- far weights (check_carry.c) ---- */

/* Where a rank has its block of a version at home, and a bucket is whole for a use (of backward,
 * where `address` is behind the buffers of forward), as if its group's element 0 were there. */
int64_t weight_home_at(const Trace *trace, const Bucket *bucket, const Group *group, int version);
int64_t weight_buffer_at(const Trace *trace, const Bucket *bucket, int64_t address);
/* A hop of theirs; a fault of one that carries other bytes than this rank's block, or NULL. */
bool step_carries_weights(const Trace *trace, const TraceStep *step);
const char *weights_misplaced(const Trace *trace, const TraceStep *step);

/* ---- far gradients (check_sums.c) ---- */

/* Bytes of a bucket's block, and of all of a group at home, with what aligns them. */
int64_t sums_block_bytes(const Program *program, const StageProgram *stage, int bucket);
int64_t sums_home_bytes(const Program *program, const StageProgram *stage, int group);
/* A hop of theirs; a copy that goes away from the device. */
bool step_sums(const Trace *trace, const TraceStep *step);
bool step_leaves(const Trace *trace, const TraceStep *step);
/* A fault of a hop that carries other bytes than this rank's block, or share, of its bucket, or
 * NULL. */
const char *sums_misplaced(const Trace *trace, const TraceStep *step);
/* Hops that a bucket makes in a step, to the device or away. */
int sums_hops_due(const Trace *trace, int bucket, bool in);

Trace *trace_take(Check *check, Arena *arena, const Program *program, int stage, int coordinate,
                  bool whole);
/* "rank 5 (stage 1) block#34 all_gather, layer (link 2), micro-batch 3, step 0": for a person. */
const char *trace_name(Arena *arena, const Trace *trace, const TraceStep *step);
int trace_rank(const Trace *trace);             /* in the world */
bool step_is_collective(const TraceStep *step); /* inside a stage */
bool step_spills(const TraceStep *step);        /* a hop of saved values */
/* How many updates lie behind the weights that a Step must find (check_place.c). */
int version_read(const Trace *trace, const TraceStep *step);
static inline bool on_path(const TraceStep *step, const Path *path)
{
    return step->move >= path->move && step->move < path->move + path->n;
}
bool step_crosses(const TraceStep *step); /* sends, receives, tied sums, the world's */

/* ---- the parts ---- */

/* check_body.c */
bool check_body(Check *check, const Body *body);
/* check_turns.c: what passes by along rings (one segment). */
bool check_turns(Check *check, const Body *body, const InstList *list);
bool check_chain(Check *check); /* neighbours of the chain agree about what they hand on */
/* A move, by the table of place.h: what it makes of a placement; false when it may not be. */
bool move_apply(const Placement *before, const Move *move, Placement *ret);

/* check_bytes.c: names, clocks and the cycle of gradients, weights and moments, of one rank. */
bool check_bytes(Check *check, const Trace *trace, const RegionList *regions,
                 Period *ret_period); /* period: NULL, not asked */

/* check_order.c */
typedef struct Crossing { /* one Step that another stage takes part in */
    StepKind kind;
    Stream stream;
    MsgKind message;
    int peer, micro, round, bucket, boundary;
    int64_t bytes;
    const Copy *copy;
    int step; /* of the trace it came from */
} Crossing;
typedef struct CrossingList {
    VEC(Crossing) list;
} CrossingList;
void take_crossings(Arena *arena, const Trace *trace, CrossingList *ret);
/* A collective of coordinate 0's list that one rank of another group does without: the last owner
 * of whole matrices may have fewer to step than the first. */
typedef struct Absence {
    int step;  /* of coordinate 0's trace */
    int group; /* the first rank of the group */
} Absence;
typedef struct Absences {
    VEC(Absence) list;
} Absences;
/* The communication of another coordinate is that of coordinate 0, Step by Step, but for what its
 * whole group does without. */
bool check_same_communication(Check *check, const Trace *first, const Trace *other,
                              Absences *absences);
/* What any rank of a group does without, all ranks of it do. */
bool check_absences(Check *check, const Trace *first, Absences *absences);
/* Groups of one atom list partition the ranks, alike for all members. Counts them. */
bool check_groups(Check *check, const Trace *trace);
/* Messages match per channel; the run of all stages reaches its end. */
bool check_messages(Check *check, const CrossingList *stage);
bool check_deadlock(Check *check, const CrossingList *stage);

/* check_owner.c collects what each rank owns and updates, check_owned.c judges them together. */

/* Elements [begin, end) of one block sequence of a group, counted in the norm by one rank. */
typedef struct Owned {
    int stage, group, block;
    int64_t begin, end;
    int owner_stage, coordinate;
} Owned;

/* A rank that counts its accumulator of a loss. */
typedef struct LossOwner {
    int number, stage, coordinate;
} LossOwner;

typedef struct Owners {
    VEC(Owned) owned;
    VEC(LossOwner) loss;
} Owners;

Owners *owners_new(Check *check);
bool owners_add(Check *check, Owners *owners, const Trace *trace);
bool owners_check(Check *check, Owners *owners);

#endif
