/* program.h - the Program: what every rank does, in order, on which bytes, waiting for what.
 *
 * Per stage: links (instances of bodies), a table of entries in the order of one global sequence,
 * and a layout. walk.h expands it to Steps; nobody stores the expansion. Price simulates the Steps,
 * prove executes them, print folds the table into loops around the bodies. All ranks of a stage
 * have the same table and layout; they differ by coordinate only. */
#ifndef LPLAN_IR_LOWER_PROGRAM_H
#define LPLAN_IR_LOWER_PROGRAM_H

#include "ir/lower/matrix.h"

typedef enum {
    ENTRY_COMPUTE, /* part over all links of a chunk, for one micro-batch */
    ENTRY_SEND,    /* activation to the next chunk or gradient to the previous one */
    ENTRY_RECV,
    ENTRY_REDUCE, /* gradient bucket `index`: its path to the optimizer's share */
    ENTRY_TIED,   /* group `index`: sum over the two home stages */
    ENTRY_NORM,   /* sums of squares, then one world reduction of {norm2, loss} */
    ENTRY_UPDATE, /* optimizer on bucket `index`, then its path home */
    ENTRY_WORLD,  /* where steps flow into each other: the world reduction, out of NORM, which
                     nobody waits for */
    ENTRY_LOSS,   /* end of an evaluation: the losses summed over the world */
    ENTRY_COUNT
} EntryKind;
extern const char *const entry_text[ENTRY_COUNT];

typedef enum { MSG_ACTIVATION, MSG_GRADIENT } MsgKind;

typedef struct Entry {
    EntryKind kind;
    PartKind part;
    int chunk; /* of the stage */
    int micro;
    bool first,
        last; /* compute: the first and the last row of its chunk that adds to accumulators (of
                 F rows: to the loss): writes them instead; closes the buckets behind it */
    MsgKind message;
    int peer;     /* stage, of sends and receives */
    int index;    /* bucket or group */
    bool braids;  /* compute: the next entry, a backward, runs in the same row: braid.h */
    bool braided; /* and this is that one: its Steps stand with those of the entry before */
    bool resumes; /* compute: begins at the link where the row before it ended, whose gathered
                     weights are still there */
    int stays;    /* compute: the last links of the chunk whose saved values stay on the device,
                     though they live elsewhere (spill.h) */
    int ahead; /* it is of a step so many later than the turn of the table (schedule.h); < 0: of an
                  earlier one */
} Entry;

/* Parameters whose gradients take one path to their optimizer, laid side by side: the flat value
 * [c, e] of DESIGN section 5, c the coordinates that hold different blocks, e the elements of one
 * block sequence. Each link's block is padded so that every bucket divides by the share atoms; a
 * group of whole matrices, each of `unit` elements, has its padding behind those of a bucket.
 *
 * Every home of a group is this value, cut over the atoms of a list: its weights over
 * weight_share, its accumulators over gradient_share, its optimizer's state over share; each list
 * begins with the one before. A rank's home holds its block of every bucket, one after the other.
 *
 *     accumulator ─ scatter, each micro-batch ─► gradient home ─ reduce ─► share of the state
 *     weights for a use ◄─ fetch, each use ─ weight home ◄─ gather ─ updated share
 *
 * Where weights live in another memory, copies bring this rank's part of a bucket, through every
 * memory between, to its place in the buffer for uses, and fetch goes on from there; the update
 * steps it there, and copies take it home.
 *
 * Where gradients do, their home has a place on the device for as long as a row adds to it, and the
 * ways above lead to and from that place: what earlier micro-batches left comes there ahead of the
 * row's first sum and goes home behind the last; the norm and the update bring the share again.
 *
 * Where no home is cut but the state's, accumulators and the weights of uses are the homes. */
typedef struct GroupMember {
    int link;  /* of the stage (0-based in the stage) */
    int param; /* of its class */
    int net_param;
    int64_t offset;   /* elements from the group's start */
    int64_t elements; /* local */
    bool decay;
} GroupMember;

/* What an optimizer keeps of a parameter besides its weight: the moments, and the weight it steps
 * where the model's is narrower. */
typedef enum { FIELD_MOMENT1, FIELD_MOMENT2, FIELD_MASTER, FIELD_COUNT } StateField;
extern const char *const field_text[FIELD_COUNT];

typedef struct Group {
    AtomSet sharded; /* atoms on which blocks differ */
    AtomSet partial; /* atoms on which accumulators are Partial */
    AtomList share;  /* atoms that cut the optimizer's share (in the order of the path), none:
                        replicated optimizer */
    AtomList gradient_share, weight_share; /* the first of them */
    Memory state_home;                     /* where its optimizer's state lives */
    bool far;                              /* its weights live in another memory (KEPT_WEIGHTS), */
    bool far_gradients;                    /* and its gradients (KEPT_GRADIENTS): Bucket.gradient */
    bool buffered; /* accumulators pass through a buffer: their home is added to each micro-batch */
    int tied_stage; /* the other home stage, or NONE */
    double rate;    /* its parameters move by this much against the sign of their gradient; 0: by
                       AdamW, and count in the norm */
    int matrix;     /* its parameters are whole matrices of this kind (Program.matrices), or NONE */
    int64_t unit;   /* elements that are not cut apart */
    Path scatter;   /* accumulator -> gradient home, on [c, e]; ends in it, when buffered */
    Path reduce;    /* gradient home -> share; in place */
    Path gather;    /* updated share -> weight home; in place */
    Path fetch;     /* weight home -> whole; begins in it */
    VEC(GroupMember) members;
    int64_t elements;                                   /* padded */
    int64_t weight, gradient, moment1, moment2, master; /* addresses; master NONE without one */
    int64_t share_elements;
    int64_t state_elements;  /* the same as its home holds them, with what aligns buckets there; */
    int64_t weight_elements; /* and of a rank's weights */
} Group;

/* Elements between members. */
typedef struct FlatGap {
    int64_t begin, elements; /* of the group's flat sequence */
} FlatGap;

typedef struct Bucket {
    int group;
    int64_t begin, elements; /* of the group's flat sequence */
    int close_link;      /* complete when the last row of this link's chunk has done this link */
    int64_t share_begin; /* in moment1/moment2/master */
    int64_t share_elements;
    int64_t filled;       /* elements, without the padding behind whole matrices */
    int open_link;        /* the highest link that uses one of its members */
    int64_t buffer;       /* address of its accumulators, NONE: at their home */
    int64_t weight_begin; /* of a rank's block in the home of its group's weights, elements */
    int64_t fetch;   /* address of its weights for a use, NONE: at their home; bucket_fetched */
    int64_t between; /* of a rank's block of them in the host's memory, on its way from a file and
                        back, or NONE */
    int64_t gradient[MEMORY_COUNT]; /* where a rank's block of far gradients is: on the device while
                                       rows add to it, in memories between, at home; else NONE */
    VEC(FlatGap) gaps; /* padding in which another bucket's accumulators may have left something */
} Bucket;

/* A ring of n slots of `stride` bytes; slot = micro-batch mod n. Where lives end in another order
 * than they begin, so that this would take more slots than are ever alive, `slot` says it for every
 * micro-batch. What holds a link's values for a while only has one slot, or two `sides`: one for
 * forward, the other for a backward that runs beside it. */
typedef struct Ring {
    int64_t base, stride;
    int n;
    int *slot; /* [micro-batches], or NULL */
    bool sides;
} Ring;
/* back: for a list of backward. */
int ring_slot(const Ring *ring, int micro, bool back);

typedef enum {
    RING_DATA,
    RING_SAVED, /* the kinds of saved values, as SavedKind */
    RING_SAVED_W,
    RING_SAVED_IW,
    RING_STAYS, /* those of links that keep theirs on the device where others of the plan do not
                   (spill.h); what I makes for W stays anyway */
    RING_STAYS_W,
    RING_IN,
    RING_OUT,
    RING_GRAD_IN,
    RING_GRAD_OUT,
    RING_COUNT
} RingKind;
extern const char *const ring_text[RING_COUNT];

typedef struct StageLink {
    int link;  /* of net->chain */
    int chunk; /* of the stage */
    const Body *body;
    int block; /* number of what it saves among all of the stage that leaves for another memory
                  (spill.h), or NONE: it stays */
    int64_t saved_offset[SAVED_KINDS]; /* in a slot of the kind: the link's block, followed by its
                                          `in` when it is saved and not the chunk's first, */
    int64_t in_offset;      /* where that is, or NONE: a transient, or the chunk's in ring for its
                               first link */
    int64_t grad_in_offset; /* of the gradient of its output, kept for W, in the third kind; NONE: a
                               transient, or the chunk's ring for its last link */
    int64_t block_bytes[SAVED_KINDS]; /* of the link's block and that `in`; */
    int64_t between_offset[SAVED_KINDS], away_offset[SAVED_KINDS]; /* spill.h: in the areas of
                                          memories between, in a slot of its home */
    int64_t *weight,
        *gradient; /* addresses per param of the class (a tied second use points at the first's) */
    int *bucket,
        *member; /* per param: its bucket, and its number in the group; NONE where it has none */
} StageLink;

/* A run of links of a stage with rings of its own. What goes to a chunk of the same stage is
 * written where that one reads it: there is no message and no out ring. */
typedef struct Chunk {
    int index;                  /* of all chunks */
    int begin, end;             /* its links, of the stage, */
    int first_block, end_block; /* and those of their blocks that leave */
    int first_row, last_row;    /* entries that are the first and last to add to gradients */
    Ring ring[RING_COUNT];
    int64_t data_offset[DATA_COUNT]; /* within a data slot */
    Ring away[SAVED_KINDS];    /* of saved values whose home is another memory (spill.h), there; */
    Ring between[SAVED_KINDS]; /* where they pass through a memory between */
} Chunk;

/* A row of two chunks' parts as pairs of links, in the order of both: braid.h. */
typedef struct Pairing Pairing;

/* What passes through a memory on its way between the device and a home behind it, of a list whose
 * members have homes of their own. */
typedef struct HopWay {
    int n[MEMORY_COUNT], *at[MEMORY_COUNT]; /* those, in the order of the list */
    int *turn[MEMORY_COUNT];                /* of each of the list: its place among them, or NONE */
} HopWay;

typedef struct StageProgram {
    int index;
    int chunks;
    Chunk *chunk;
    int links;
    StageLink *link; /* chunk by chunk */
    int blocks;
    int *block_link; /* [blocks] whose they are, in the order of links */
    VEC(Entry) table;
    VEC(Entry)
    evaluation; /* what one step's forwards alone do, in their order: no gradient, no
                   update, nothing is drawn. Between steps, or where a run is drained */
    VEC(Pairing *) pairings;
    VEC(Group) groups;
    VEC(Bucket) buckets;
    int64_t scratch, scratch_bytes; /* temps of the running segment, */
    int64_t scratch_back; /* of backward apart where rows are braided, else at `scratch` */
    int64_t fetched, fetched_bytes; /* weights gathered for use: Bucket.fetch, for forward; */
    int64_t fetched_back; /* for backward so many bytes behind: 0 where no rows are braided */
    int64_t between, between_bytes, between_back; /* the same of weights of files: Bucket.between */
    int64_t buffers, buffers_bytes; /* accumulators of running micro-batches: Bucket.buffer */
    int64_t sums[MEMORY_COUNT], sums_bytes[MEMORY_COUNT]; /* far gradients at work and on their way:
                                                             Bucket.gradient */
    int64_t pass[4],
        pass_bytes;  /* transients between links: two for activations, two for gradients */
    int64_t scalars; /* SCALAR_COUNT cells of 64 bytes, of the gradient's dtype; behind them
                        the slots of `pair` */
    int delay;       /* steps by which the weights of forward and backward are stale */
    int ahead, lag;  /* the most steps that entries are later and earlier than their turn */
    Ring versions;   /* of all weights of the stage, where they live: slot = updates so far mod n */
    Ring pair;       /* of {loss, norm2}: slot = step mod n */
    HopWay state_way;                       /* of the buckets' state */
    int64_t state_slot[MEMORY_COUNT];       /* where it has its slots (state.h), */
    int64_t state_slot_bytes[MEMORY_COUNT]; /* of a field of one */
    int64_t far_bytes[MEMORY_COUNT];        /* arenas behind the device's; [MEMORY_HBM] is unused */
    int64_t arena_bytes;                    /* the layout's peak: what the trainer allocates */
    int64_t group_bytes[4]; /* report: weights, gradients, optimizer state, activations (rings) */
} StageProgram;

/* LOSS accumulates over micro-batches on this rank, those beside it behind it, then evaluation's;
 * COEF is the clip coefficient; LR and STEP (counted from 1) are set before each step, and
 * so is the weight decay of matrices, which stands behind STEP. Zero at start, but COEF is 1: where
 * steps flow nothing sets it. */
enum { SCALAR_LOSS, SCALAR_COEF, SCALAR_LR, SCALAR_STEP, SCALAR_COUNT };
/* A slot of {loss, norm2, losses beside it}: this rank's share before the world reduction, the
 * totals after it. Trainers hold norm2 there in all its digits (templates/host/exact.h). */
enum { PAIR_BYTES = 256 };

typedef struct Program {
    Arena *arena;
    const Plan *plan;
    const Net *net;
    const Recipe *recipe;
    Body **body; /* per class, then per kind of matrices: the steps of these */
    int bodies;
    VEC(MatrixKind) matrices;
    int stages, chunks;
    const int *holder; /* [chunks] */
    StageProgram *stage;
    Graph *optimizer; /* nodes sumsq, clip, adamw, sign over a flat dim */
    NodeId sumsq, clip, adamw, sign;
    int slack;  /* compute rows a buffer outlives its last asynchronous reader */
    bool flows; /* steps flow into each other: the tables are turns, weights have versions */
    /* The order of communication, projected to the tables: entries carry positions implicitly. */
} Program;

/* The stage that holds a chunk, and which of its chunks that is; NONE for a chunk that is none. */
int chunk_stage(const Program *program, int chunk);
int chunk_of_stage(const Program *program, int chunk);
/* The link of the stage that is `link` of the chain, or NONE. */
int stage_find_link(const StageProgram *stage, int link);
/* Of all links of the stage that add to this accumulator, this one does it first in every step. */
bool link_opens(const StageProgram *stage, int link, int param);

/* The number that rings go by: of a micro-batch in its step, or in the run where steps flow. */
int micro_number(const Program *program, int step, int micro);
/* The version of the weights that the rows of a step read: the updates before it. */
int stage_version(const StageProgram *stage, int step);
/* Bytes by which this version lies behind the addresses of groups and links. */
int64_t version_offset(const StageProgram *stage, int version);
/* Where {loss, norm2, losses beside it} of a step are. */
int64_t pair_address(const StageProgram *stage, int step);
/* Where a rank adds up a loss; its place behind pair_address, in elements. */
int64_t loss_address(const Program *program, const StageProgram *stage, int number);
int loss_in_pair(int number);
/* Where the losses of an evaluation are, one behind the other: this rank's share, then the sums. */
int64_t evaluation_address(const Program *program, const StageProgram *stage);
/* The entry that a Step of the stage expands: of its table, or of an evaluation. */
const Entry *stage_entry(const StageProgram *stage, int entry, bool evaluates);

/* Optimizer steps that meet every reuse from one step to the next: two, and where steps flow as
 * many more as write every slot of the weights again. */
int program_rounds(const Program *program);

/* Lowers a verified plan: a function of the plan alone. Tests may give another price of moves and
 * other row times; NULL: the plan's own cluster and rows. */
Program *program_build(Arena *arena, const Plan *plan, const Net *net, const MovePrice *price,
                       const RowTimes *times);
/* The same, pass by pass (pass.h). NULL when it was told to stop before the program is whole. */
Program *program_build_passes(Arena *arena, const Plan *plan, const Net *net,
                              const MovePrice *price, const RowTimes *times, Passes *passes);
/* The first of the flat elements of a bucket that a rank of the stage holds when it is cut over a
 * list. */
int64_t bucket_block_begin(const Program *program, const Bucket *bucket, const AtomList *list,
                           int coordinate);
/* The same for the optimizer's share. */
int64_t bucket_share_begin(const Program *program, const StageProgram *stage, const Bucket *bucket,
                           int coordinate);
/* Groups, buckets, rings and addresses of every stage; the tables, a line a stage. */
void program_put_text(Str *str, const Program *program);
void program_put_tables(Str *str, const Program *program);

#endif
