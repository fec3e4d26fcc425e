/* program.h - the Program: what every rank does, in order, on which bytes, waiting for what.
 *
 * Per stage: links (instances of bodies), a table of entries in the order of one global sequence,
 * and a layout. walk.h expands it to Steps; nobody stores the expansion. Price simulates the Steps,
 * prove executes them, print folds the table into loops around the bodies. All ranks of a stage
 * have the same table and layout; they differ by coordinate only. */
#ifndef LPLAN_IR_LOWER_PROGRAM_H
#define LPLAN_IR_LOWER_PROGRAM_H

#include "ir/lower/body.h"

typedef enum { PART_F, PART_B, PART_I, PART_W, PART_COUNT } PartKind;
extern const char *const part_text[PART_COUNT];

/* Row of a schedule: one part on one virtual stage and micro-batch. Generators in schedule.c emit
 * these; no lowering knows a schedule's name. */
typedef struct Row {
    PartKind part;
    int stage, micro;
} Row;
typedef VEC(Row) RowList;

typedef struct Schedule {
    int stages, micros;
    RowList *rows; /* per stage, in order */
} Schedule;
/* Generators (CONTRACTS 2.1, 2.2), and the checker: one F and one B of every pair, F before B,
 * cross-stage run reaches the end. */
Schedule *schedule_make(Arena *arena, ScheduleKind kind, int stages, int micros);
bool schedule_check(const Schedule *schedule, Diag *diag);
/* PyTorch's CSV cells, "0F0,0F1,,1B0". */
void schedule_put_csv(Str *str, const Schedule *schedule);

typedef enum {
    ENTRY_COMPUTE, /* part over all links of the stage, for one micro-batch */
    ENTRY_SEND,    /* activation to the next stage or gradient to the previous one */
    ENTRY_RECV,
    ENTRY_REDUCE, /* gradient bucket `index`: its path to the optimizer's share */
    ENTRY_TIED,   /* group `index`: sum over the two home stages */
    ENTRY_NORM,   /* sums of squares, then one world reduction of {norm2, loss} */
    ENTRY_UPDATE, /* optimizer on bucket `index`, then its path home */
    ENTRY_COUNT
} EntryKind;
extern const char *const entry_text[ENTRY_COUNT];

typedef enum { MSG_ACTIVATION, MSG_GRADIENT } MsgKind;

typedef struct Entry {
    EntryKind kind;
    PartKind part;
    int micro;
    bool first,
        last; /* compute: write accumulators instead of adding; close the buckets behind this row */
    MsgKind message;
    int peer;  /* stage, of sends and receives */
    int index; /* bucket or group */
} Entry;

/* Parameters whose gradients take one path to their optimizer, laid side by side: the flat value
 * [c, e] of DESIGN section 5, c the coordinates that hold different blocks, e the elements of one
 * block sequence. Each link's block is padded so that every bucket divides by the share atoms. */
typedef struct GroupMember {
    int link;  /* of the stage (0-based in the stage) */
    int param; /* of its class */
    int net_param;
    int64_t offset;   /* elements from the group's start */
    int64_t elements; /* local */
    bool decay;
} GroupMember;

typedef struct Group {
    AtomSet sharded; /* atoms on which blocks differ */
    AtomSet partial; /* atoms on which accumulators are Partial */
    AtomList share;  /* atoms that cut the optimizer's share (in the order of the path), none:
                        replicated optimizer */
    int tied_stage;  /* the other home stage, or NONE */
    double rate;     /* its parameters move by this much against the sign of their gradient; 0: by
                        AdamW, and count in the norm */
    Path reduce;     /* accumulator -> share, on [c, e]; in place */
    Path gather;     /* updated share -> home; in place */
    VEC(GroupMember) members;
    int64_t elements;                                   /* padded */
    int64_t weight, gradient, moment1, moment2, master; /* addresses; master NONE without one */
    int64_t share_elements;
} Group;

typedef struct Bucket {
    int group;
    int64_t begin, elements; /* of the group's flat sequence */
    int close_link; /* complete when backward of this link (the lowest of its members) is done */
    int64_t share_begin; /* in moment1/moment2/master */
    int64_t share_elements;
} Bucket;

/* A ring of n slots of `stride` bytes; slot = micro-batch mod n. */
typedef struct Ring {
    int64_t base, stride;
    int n;
} Ring;

typedef enum {
    RING_DATA,
    RING_SAVED,
    RING_IN,
    RING_OUT,
    RING_GRAD_IN,
    RING_GRAD_OUT,
    RING_COUNT
} RingKind;
extern const char *const ring_text[RING_COUNT];

typedef struct StageLink {
    int link; /* of net->chain */
    const Body *body;
    int64_t saved_offset; /* in a saved slot: the link's block, followed by its `in` when it is
                             saved and not the first */
    int64_t in_offset;    /* of the saved `in`, or NONE: a transient, or the stage's in ring for the
                             first link */
    int64_t *weight,
        *gradient; /* addresses per param of the class (a tied second use points at the first's) */
} StageLink;

typedef struct StageProgram {
    int index;
    int links;
    StageLink *link;
    VEC(Entry) table;
    VEC(Group) groups;
    VEC(Bucket) buckets;
    Ring ring[RING_COUNT];
    int64_t data_offset[DATA_COUNT]; /* within a data slot */
    int64_t scratch, scratch_bytes;  /* temps of the running segment */
    int64_t pass[4],
        pass_bytes;         /* transients between links: two for activations, two for gradients */
    int64_t scalars;        /* SCALAR_COUNT cells of 64 bytes, of the gradient's dtype */
    int64_t arena_bytes;    /* the layout's peak: what the trainer allocates */
    int64_t group_bytes[4]; /* report: weights, gradients, optimizer state, activations (rings) */
} StageProgram;

/* LOSS accumulates over micro-batches on this rank; PAIR is {loss, norm2}: this rank's share before
 * the world reduction, the totals after it; COEF the clip coefficient; LR and STEP (counted from 1)
 * are set before each step. Zero at start. */
enum { SCALAR_LOSS, SCALAR_PAIR, SCALAR_COEF, SCALAR_LR, SCALAR_STEP, SCALAR_COUNT };

typedef struct Program {
    Arena *arena;
    const Plan *plan;
    const Net *net;
    const Recipe *recipe;
    Body **body; /* per class */
    int stages;
    StageProgram *stage;
    Graph *optimizer; /* nodes sumsq, clip, adamw, sign over a flat dim */
    NodeId sumsq, clip, adamw, sign;
    int slack; /* compute rows a buffer outlives its last asynchronous reader */
    /* The order of communication, projected to the tables: entries carry positions implicitly. */
} Program;

/* Length of the rows of every stage, ns, and of one hop between stages: the segment simulation that
 * orders the sequence (by time; ends before starts; then stage). */
typedef struct RowTimes {
    const int64_t *time[PART_COUNT]; /* [stages] */
    int64_t hop;
} RowTimes;
/* Start and end of every row under these times, indexed as schedule->rows; the makespan. */
typedef struct RowSpan {
    int64_t start, end;
} RowSpan;
int64_t schedule_simulate(Arena *arena, const Schedule *schedule, const RowTimes *times,
                          RowSpan ***ret);

/* Lowers a verified plan: a function of the plan alone. Tests may give another price of moves and
 * other row times; NULL: the plan's own cluster and rows. */
Program *program_build(Arena *arena, const Plan *plan, const Net *net, const MovePrice *price,
                       const RowTimes *times);
/* The same, pass by pass (pass.h). NULL when it was told to stop before the program is whole. */
Program *program_build_passes(Arena *arena, const Plan *plan, const Net *net,
                              const MovePrice *price, const RowTimes *times, Passes *passes);
/* Where a parameter's block is cut over ranks and which rank owns which element: see Group. The
 * rank of the stage that owns the flat elements [begin, begin + n) of a bucket's share. */
int64_t bucket_share_begin(const Program *program, const StageProgram *stage, const Bucket *bucket,
                           int coordinate);
/* Groups, buckets, rings and addresses of every stage; the tables, a line a stage. */
void program_put_text(Str *str, const Program *program);
void program_put_tables(Str *str, const Program *program);

#endif
