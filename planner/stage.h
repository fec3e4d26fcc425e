/* stage.h - what a run of links costs as one pipeline stage of a family: lengths, bytes, and the
 * end of the step.
 *
 * A family is everything of a plan but its cuts. The cost of a stage is the sum of its cards, plus
 * what the family adds: reductions of gradient buckets behind the last backward row, the share of
 * the gradient norm, the update and the gathers. It says the same as ir/lower/program.c and
 * layout.c would say of the lowered stage; a test compares. */
#ifndef LPLAN_PLANNER_STAGE_H
#define LPLAN_PLANNER_STAGE_H

#include "planner/card.h"
#include "planner/make.h"
#include "planner/order.h"
#include "planner/pair.h"

typedef struct Family {
    Arena *arena;
    const Problem *problem;
    const Deck *deck;
    const Order *order;
    int dp;
    Homes homes; /* of parameters, but for what two chunks of a stage share */
    int64_t bucket_bytes;
    Mesh mesh; /* of a plan: the deck's tp atoms, then the dp atoms */
    Pricer pricer;
    Memory memory[KEPT_COUNT]; /* the caller's to set, before costs are asked for */
    int64_t hop_bytes;         /* of a message between stages */
    bool uniform;              /* all links but the first and the last are of one class */
    PairShelf *pairs;          /* of rows that are two in one; NULL until one is asked for */
    struct FlatPath *paths;
    struct StageCost **cost; /* per (first link, end, together): filled when asked for */
    struct Tail *tail;       /* NULL: all links of a class are alike */
} Family;

/* What a hop carries of a bucket's far gradients or weights, and how long it takes between a memory
 * and the one behind it; bytes 0: they stay on the device. */
typedef struct FarHop {
    int64_t bytes, in_ns[MEMORY_COUNT], out_ns[MEMORY_COUNT];
} FarHop;

/* One gradient bucket on its way: times are from the start of the chunk's last row that adds to
 * gradients, its W where backward is split. */
typedef struct StageBucket {
    int close_link;     /* of the chain */
    bool tied;          /* summed with the other home stage */
    int open_link;      /* the highest that uses it */
    const Group *group; /* whose paths it takes */
    int64_t elements, share_elements;
    int64_t ready_ns, reduce_ns, reduced_ns;
    int64_t ready_whole_ns; /* in a row of I and W together */
    int64_t sumsq_ns, update_ns, gather_ns;
    int64_t fetch_ns;   /* its weights for a use, */
    bool far;           /* which live in another memory: */
    FarHop carry;       /* this rank's part, on its way; bytes as they reach the device */
    int behind[2];      /* updates: its buffer, and its place in the host's memory, are those of the
                           bucket so many before; 0: of none, */
    int64_t free_ns[2]; /* and free so long behind the last row's end, or before it */
    int64_t scatter_ns, fold_ns; /* its gradients in every micro-batch, and what is added of those
                                    before it; the last one's is part of reduce_ns */
    int64_t share_bytes;         /* of gradients, for the tied sum */
    FarHop sums, last_sums;      /* of a micro-batch; of the last one, the norm and the update */
    const CardMatrix *matrix;    /* of whole matrices, or NULL; */
    int64_t matrices;            /* those of the rank that has most */
    Memory state_home;           /* where its state lives, and */
    int64_t hop_bytes;           /* a hop from one memory to another carries; 0: it stays */
} StageBucket;

/* Links of a chunk that have the other choice of two: so many of its last layers, and the ends of
 * the chain. */
typedef struct TailLinks {
    int layers;
    bool first, last;
} TailLinks;

typedef struct StageCost {
    struct StageCost *next; /* of the same links, with another tail */
    TailLinks tail;
    int64_t ns[PART_COUNT];        /* of a row of each part */
    int64_t stall_ns[PART_COUNT];  /* of that, waits for weights to come and for gradients to go */
    int64_t copied_ns[PART_COUNT]; /* and for saved values that live elsewhere */
    int64_t fold_ns;               /* and of rows that add to gradients, adding of homes */
    int64_t gap_ns[BEGINS_COUNT][PART_COUNT]; /* behind the row before it: until weights of its
                                                 first link have come, and gradients have gone */
    bool waits;                               /* some of these are not 0 */
    /* Never too much: from the last backward row's end until this rank's norm is known, with tied
     * sums that wait for nobody; and from the clip coefficient to the end of the last gather and of
     * what goes home, where all that could come before has come. */
    int64_t norm_least_ns, update_ns;
    int64_t fixed_bytes; /* scalars, parameters, transients, scratch */
    int64_t weight_bytes, gradient_bytes, state_bytes, transient_bytes; /* parts of it */
    int64_t pass_bytes, scratch_bytes, fetched_bytes, buffer_bytes;     /* which chunks of a stage
                                                                           share */
    int64_t forward_bytes, backward_bytes; /* of the scratch: temps of either */
    int64_t field_bytes;                   /* of state on its way: the largest field of a bucket */
    int far_buckets;                       /* those on whose way it is */
    int64_t home_bytes[MEMORY_COUNT];      /* of state, by where it lives, */
    int64_t far_weight_bytes, far_gradient_bytes; /* and of weights and gradients */
    int64_t sums_bytes[MEMORY_COUNT];             /* places of far gradients on their way, */
    int64_t between_bytes;                        /* and of weights from files, in host memory */
    int64_t lane_ns[MEMORY_COUNT];     /* lanes into memories are free so long behind the last row's
                                          end, or before it */
    int64_t spill_bytes[MEMORY_COUNT]; /* through which saved values pass that live elsewhere */
    int64_t stride[RING_COUNT];        /* bytes of a slot */
    int buckets;
    StageBucket *bucket;
    int other_home;     /* the link that a tied bucket is summed with, or NONE */
    int64_t reduced_ns; /* the last reduction ends, from the start of the last backward row */
} StageCost;

/* Costs are kept in the family's arena; the deck and the order must outlive it. NULL when there is
 * no such mesh. zero, shard: the words of homes_preset. */
Family *family_new(Arena *arena, const Problem *problem, const Deck *deck, const Order *order,
                   int dp, int zero, int shard);
const Card *family_card(const Family *family, int link);
/* The last layers of chunks have the cards of another deck, with boundaries that are the same: as
 * many of a stage's layers as the budget has room for, first of those chunks whose slots take least
 * for it, and the ends of the chain, where they share nothing and are faster so. The deck's
 * parameters have homes of their own, or (NULL) the family's. Not for rows that are two in one.
 * Before costs are asked for. */
void family_set_tail(Family *family, const Deck *deck, const Homes *homes);
/* Chunks of a stage have them as evenly as there is room for so many, from now on. True: that is
 * another choice than the first, for a stage has several. */
bool family_even_tails(Family *family, bool even);
/* Those of the chunk of a plan. */
TailLinks family_tail(Family *family, const int *first_link, int chunk);
/* A pass over one link at least, under the choice that suits. */
void family_least(const Family *family, int link, int64_t *ret_forward_ns,
                  int64_t *ret_backward_ns);
/* A run of links as one chunk, the other home of whose tied parameters is on another stage. */
const StageCost *family_stage(Family *family, int stage, int first_link, int end_link);
/* The chunk of a plan; first_link has chunks + 1 entries. */
const StageCost *family_chunk(Family *family, const int *first_link, int chunk);
/* Runs of the same classes cost the same: where all inner links are of one class, those that begin
 * at link 1 speak for the others. The link at which the cost of a run was taken. */
int family_begin(const Family *family, int first_link, int end_link);
/* The chunk of a link of the chain. */
int chunk_with(const int *first_link, int chunks, int link);
/* Bytes of the arena of a stage that has this chunk alone: never less than the layout of the
 * lowered plan takes. */
int64_t stage_bytes(const Family *family, const StageCost *cost, int chunk);
/* The same of a stage with all of its chunks. */
typedef struct StageBytes {
    int64_t weights, gradients, state, saved, transients, all;
    int64_t far[MEMORY_COUNT]; /* in other memories */
} StageBytes;
StageBytes family_bytes(Family *family, const int *first_link, int stage);
int64_t family_budget(const Family *family); /* memory less margin */
/* Lengths of hops between stages, by the level that each crosses. */
void family_hops(const Family *family, OrderTimes *ret);

/* The group with its paths. `elements` divides by the share; its size picks the path where two are
 * close, and the first stage asked for speaks for all. whole: another chunk of the stage shares it.
 */
const Group *stage_flat_group(Family *family, const Group *like, bool whole, int64_t elements);
/* Length of a flat path on `count` elements of `width` bytes, as the walk issues its moves. */
int64_t stage_flat_ns(const Family *family, const Path *path, int64_t count, int width);
/* Buffers of buckets that are whole for a while, and the rows that wait for them: fills the bytes,
 * lengthens ns, and moves the readiness of buckets. turns: as OrderRow.turns; alike: so many rows
 * of one direction follow each other. own: per part, what each link adds to a row. */
void stage_add_homes(const Family *family, int begin, int end, bool turns, int alike,
                     int64_t *const own[PART_COUNT], StageCost *cost);

/* Two rows in one: a forward of a run of links, and a part of the backward of another or of the
 * same; `follows`: of the micro-batch whose forward the row before was. */
typedef struct PairedRun {
    const StageCost *cost;
    int begin, end;
    PartKind part; /* of backward */
} PairedRun;
typedef struct PairedRows {
    PairedRun run[2];
    bool follows;
    const PairStep *step;
    int steps;
} PairedRows;
/* The waits of one row, as in StageCost. */
typedef struct PairWaits {
    int64_t stall, fold, copied;
} PairWaits;
/* Over and over. Where two chunks of a stage take turns, rows[1] stands between: the forward of
 * that one's backward, and the backward of the other; n: how many there are. */
PairWaits stage_pair_waits(const Family *family, const PairedRows *rows, int n);

/* Elements that a rank holds after a move of a flat bucket. */
int64_t flat_count(const Mesh *mesh, const Move *move, int64_t count);

/* Bytes of {loss, norm}, which all ranks reduce together. */
int family_pair_bytes(const Family *family);
/* Lengths of rows and hops of a plan; first_link has chunks + 1 entries. */
void family_lengths(Family *family, const int *first_link, OrderTimes *ret);

/* When a stage begins to update, and when it was done with rows: from then on places of far weights
 * are free, and lanes into memories. */
typedef struct UpdateStart {
    int64_t begin, rows, lane[MEMORY_COUNT];
} UpdateStart;

/* Planner of hops (stage_hops.c): when the updates of these buckets end, with all state on its way
 * from the start of the step, and when the last of them has been stepped; the bytes of a device's
 * slots, of so many buckets that pass through them. */
int64_t stage_update_end(const Family *family, const StageBucket *const *bucket, int n,
                         const UpdateStart *start, int64_t *ret_stepped);
/* Do updates wait for another memory? */
bool family_updates_far(const Family *family);
/* How many fields of state an element has: moments, of a whole matrix one, and its master. */
int family_state_fields(const Family *family, bool whole);
int64_t state_slots_bytes(const Family *family, int buckets, int64_t field_bytes);
/* The same of a bucket's far gradients: when this rank's sum of squares is known that begins behind
 * `begin`, when bucket i has been reduced at ready[i]. */
int64_t stage_norm_end(const Family *family, const StageBucket *const *bucket, const int64_t *ready,
                       int n, int64_t begin);
/* Hops of far gradients of a bucket, and of far weights. */
void stage_put_sums(const Family *family, StageBucket *bucket, StageCost *cost);
void stage_put_carry(const Family *family, StageBucket *bucket, StageCost *cost);
/* What a bucket's share carries on a hop, by and by the stage's slots and homes. */
void stage_put_hop(const Family *family, bool by_sign, int64_t share, StageBucket *bucket,
                   StageCost *cost);
/* Bytes of rings and transients, and what passes through memories on its way (stage_bytes.c). */
void stage_fill_rings(const Family *family, int begin, int end, StageCost *cost);
/* Does what a link saves live in another memory, and what it saves of a kind? */
bool family_leaves(const Family *family, int link);
bool family_spills(const Family *family, int link, SavedKind kind);
/* What a link saves of a kind, with the chain's value that enters it; first, last: of its chunk. */
int64_t family_block(const Family *family, int link, SavedKind kind, bool first, bool last);
/* Does what a stage has elsewhere fit there: of one chunk, of several? */
bool stage_fits_far(const Family *family, const StageCost *cost, int chunk);
bool family_fits_far(const Family *family, const StageBytes *bytes);

/* The end of the step on one stage, absolute. */
typedef struct StageEnd {
    int64_t row_end;   /* of its last row */
    int64_t norm;      /* its sum of squares is known */
    int64_t world_ns;  /* the reduction of all ranks, */
    int64_t world_end; /* which ends here for everyone */
    int64_t copy_ns;   /* of update_ns: more than with all state on the device */
    int64_t step_ns;   /* from the clip coefficient to its last update, */
    int64_t update_ns; /* and to its last gather's end */
} StageEnd;
/* Returns the end of the step. */
int64_t family_ends(Family *family, const int *first_link, const int64_t *row_end, StageEnd *ret);

/* The objective: ns of one optimizer step of the whole plan, segment by segment; where steps flow
 * into each other, of one turn of the steady state. `end` has room for order->n. */
int64_t family_segment(Family *family, const int *first_link, int64_t *end);

#endif
