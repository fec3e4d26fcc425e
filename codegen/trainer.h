/* trainer.h - what the parts of the trainer's printer share. Private to codegen/. */
#ifndef LPLAN_CODEGEN_TRAINER_H
#define LPLAN_CODEGEN_TRAINER_H

#include "codegen/build.h"
#include "codegen/emit.h"
#include "codegen/rows.h"
#include "codegen/waits.h"
#include "ir/lower/program.h"

/* An ordered list of atoms that emitted code indexes by or communicates over: enum LIST_TP,
 * s->index[], s->comm[]. */
typedef struct ListName {
    AtomList list;
    const char *name; /* "TP" */
    bool comm;
} ListName;

typedef struct KernelText {
    const char *name; /* of the program, before it was made unique */
    const char *text;
    const char *unique;
    const RowProgram *program;
} KernelText;

typedef struct EventName {
    int class, which, inst; /* which: list of the body */
    const char *name;       /* field of State */
} EventName;

typedef struct HeadWidths {
    int64_t d, e; /* of queries and keys, of values */
} HeadWidths;

/* Where an instruction packs blocks: its first, second, … room. */
typedef struct PackRoom {
    const Inst *inst;
    int nth;
    const char *text;
} PackRoom;

typedef struct Trainer {
    Arena *arena;
    Diag *diag;
    const Program *program;
    const Plan *plan;
    const Net *net;
    const Waits *waits;
    const char **class_name; /* identifiers: of classes, then of the steps of matrices */
    Names globals;
    VEC(ListName) lists;
    VEC(KernelText) kernels;
    VEC(EventName) events;
    VEC(HeadWidths) widths; /* of attention: its scratch */
    VEC(PackRoom) rooms;
    int64_t pack_bytes; /* outside the arena: blocks of collectives that are not contiguous */
    bool (*takes_first)[BODY_LISTS]; /* per class and list: has it accumulators? */
    bool split;                      /* backward in two parts, I and W */
    bool braids;                     /* some rows are two in one, */
    bool apart;                      /* and weights of their uses lie apart for either */
    const TrainerOptions *options;
    struct {
        int64_t m, n, k, bytes;
    } widest; /* product whose operands need most room as bf16 */
    struct {
        bool used;
        int64_t capacity;                                   /* experts that a capacity counts */
        int64_t choices, experts, from, to, scratch_floats; /* of the linear that needs most */
        bool rows;                                          /* rows go where their choices name */
    } routes;
} Trainer;

/* Constant of the list, "LIST_TP"; the list is added when it is new. */
/* All tied parameters have their homes in one pair of stages. */
bool trainer_one_tie(const Trainer *t);
/* How many kinds of data trainers count, and what they call one. */
int trainer_data_kinds(const Trainer *t);
const char *trainer_data(Trainer *t, int data);
const char *trainer_list(Trainer *t, const AtomList *list, bool comm);
/* "s->index[LIST_TP] * 64L", or "0" for an unsharded axis. */
const char *trainer_origin(Trainer *t, const AtomList *list, int64_t local);
AtomList atoms_as_list(AtomSet atoms); /* highest atom major */
/* The kernel's name, one for equal texts; NULL after an error. */
const char *trainer_kernel(Trainer *t, const RowProgram *program);
/* Field of State that is the event of a collective of a body. */
const char *trainer_event(Trainer *t, int class, int which, int inst);
/* A sentence from the compiler that may contain names of the model, fit for a comment. */
const char *trainer_comment(Trainer *t, const char *text);
/* CLASS_PARAM constant and the class's link type. */
const char *trainer_param(Trainer *t, int class, int param);
/* "1 rank", "2 ranks" */
const char *trainer_count(Trainer *t, long long n, const char *one, const char *many);
const char *trainer_upper(Trainer *t, const char *text);           /* ln_1 -> LN_1 */
const char *trainer_camel(Trainer *t, const char *text);           /* ln_1 -> Ln1 */
const char *dtype_constant(DType dtype);                           /* "LP_F32" */
const char *shape_comment(Trainer *t, const Body *body, int copy); /* "b s h = 4 x 64 x 768" */

/* Does a class draw random numbers (of a stage, of the net)? */
bool trainer_class_draws(const Trainer *t, int class);
bool trainer_stage_draws(const Trainer *t, int stage);
bool trainer_draws(const Trainer *t);

/* Names of the bases of a chunk's rings (trainer_links.c). */
extern const char *const trainer_ring_base[RING_COUNT];
int trainer_class_of(const Trainer *t, const StageLink *link);
/* The copy that holds a kind of data in a body, or NONE. */
int trainer_data_copy(const Body *body, int data);
/* Is the accumulator of a parameter written by another link of the same stage before this one, or
 * does it begin anew with every micro-batch? All links of a class agree. */
bool trainer_adds_always(const Trainer *t, const Body *body, int param);
bool trainer_begins_anew(const Trainer *t, const Body *body, int param);

/* Templates of experts and their scratch, where a body has experts (trainer_experts.c). */
void trainer_print_expert_includes(Trainer *t, Emit *out);
void trainer_print_expert_scratch(Trainer *t, Emit *out);

/* Each prints its part of trainer.c. Bodies are printed first, since they find the kernels, lists
 * and events that are needed. */
void trainer_print_body(Trainer *t, Emit *out, int class, int which);
/* Is this body the step of a kind of matrices, of which there is one list, `backward`? */
bool trainer_is_matrix(const Trainer *t, int class);
/* "forward"; "backward", or "input" and "weight" where it is split. */
const char *trainer_part(const Trainer *t, int which);
/* "stage0", or "stage0_chunk3" where a stage has several. */
const char *trainer_chunk(Trainer *t, int stage, int chunk);
/* Rows that are two in one (trainer_braid.c): functions of pairs of bodies; of the pairs of links
 * of a stage's chunks; and how the schedule calls one: "stage0_chunk0_beside_chunk3". */
void trainer_print_braids(Trainer *t, Emit *out);
void trainer_print_pairings(Trainer *t, Emit *out, int stage);
const char *trainer_beside(Trainer *t, int stage, const Entry *entry);
/* trainer_stage.c: where a chunk keeps a micro-batch, "stage0_slots(s, micro)"; the micro-batch
 * whose row is flagged first, or last, of forwards or of rows that add to gradients; whether the
 * links of a chunk close buckets; data of a micro-batch; how a link is called, "&stage0_layer[2]".
 */
const char *trainer_slots(Trainer *t, int stage, int chunk, const char *micro, bool back);
int flagged_micro(const StageProgram *stage, int chunk, bool forward, bool last);
bool link_closes(const StageProgram *stage, int link);
void trainer_print_load(Trainer *t, Emit *out, int stage, const Chunk *chunk);
void trainer_print_link_types(Trainer *t, Emit *out);
void trainer_print_link_tables(Trainer *t, Emit *out, int stage);
void trainer_print_stage(Trainer *t, Emit *out, int stage); /* slots, forward, backward, messages */
void trainer_print_update(Trainer *t, Emit *out, int stage); /* buckets, norm, optimizer */
void trainer_print_tables(Trainer *t, Emit *out, int stage); /* groups and buckets */
/* Steps of whole matrices, where a stage has such groups; ", .filled = 640L" of their buckets. */
bool trainer_has_matrices(const StageProgram *stage);
void trainer_print_matrices(Trainer *t, Emit *out, int stage);
const char *trainer_bucket_filled(Trainer *t, const StageProgram *stage, const Bucket *bucket);
void trainer_print_params(Trainer *t, Emit *out); /* tensors of the model, blocks of each stage */
/* What of the moments a rank holds, for checkpoints; after the tables of every stage. */
void trainer_print_moments(Trainer *t, Emit *out);
void trainer_print_run(Trainer *t, Emit *out);                 /* run_rank */
void trainer_print_job(Trainer *t, Emit *out);                 /* the table of the job, and main */
void trainer_print_schedule(Trainer *t, Emit *out, int stage); /* the table as loops */
void trainer_print_evaluation(Trainer *t, Emit *out, int stage); /* its forwards alone */
void trainer_print_evaluate(Trainer *t, Emit *out);              /* all batches, on any stage */
/* This rank's share of a loss, as an expression. */
const char *trainer_loss_owner(Trainer *t, int stage, int number);
/* trainer_flow.c: where steps flow into each other. What State has more of; helpers; how a step
 * counted from the last drain sets the version that layers read; the world's sum; the run. */
void trainer_print_flow_state(Emit *out);
void trainer_print_flow_helpers(Trainer *t, Emit *out);
void trainer_print_version(Trainer *t, Emit *out, int stage);
void trainer_print_versions(Trainer *t, Emit *out, int stage); /* that a step reads and writes */
void trainer_print_world(Emit *out, int stage);
void trainer_print_flow_run(Trainer *t, Emit *out, const char *begin);
/* "turn + 1": the step of an entry, counted from the last drain. */
const char *trainer_flow_step(Trainer *t, const Entry *entry);
/* The step and the micro-batch of it, where `micro` is what a part was called with. */
const char *trainer_step(Trainer *t);
const char *trainer_micro(Trainer *t);
/* Copies between memories (trainer_hops.c): lanes of them, from STREAM_COPY_IN on; where each
 * memory begins; and waits of the places of buckets, or links, `index` from place.index to `end` of
 * `all`: for others, told by how far they are, or for all where that differs too much. field_of:
 * which array of events an event is of; NONE: of another printer's. */
extern const char *const trainer_lane[], *const trainer_memory[];
typedef struct HopWaits {
    Place place;
    int end;
    const char *index, *all;
    const int *turn; /* NULL; or of each its place in the list of those that take part, NONE of
                        the others: */
    const char *turn_name, *list; /* this one's, and the list */
    const char *const *field;     /* of State: "hop[LP_COPY_IN]" */
    int fields;
    int (*field_of)(const Place *place, const Event *event);
} HopWaits;
/* Of the places of all buckets of a stage; whose fields they wait for is left to say. */
HopWaits trainer_bucket_hops(Trainer *t, int stage, PlaceKind kind, int lane);
void trainer_print_distant_waits(Trainer *t, Emit *out, const HopWaits *waits);
/* Waits for all that is under way: field[lane][index]. */
void trainer_print_lane_waits(Emit *out, const char *field, const char *index);
/* Optimizer state that lives away from the arena (trainer_state.c): its slots and hops, printed
 * behind the buckets of a stage, and the pieces of other functions that are about it. They print
 * nothing where state lives in the arena. */
bool trainer_state_away(const Trainer *t);
bool stage_state_away(const StageProgram *stage);
/* Where the home of a `group` is: "s->arena"; ", .state_home = 1" of one where they differ. */
const char *trainer_state_base(const Trainer *t);
const char *trainer_state_home(const Trainer *t, const Group *group);
void trainer_print_state(Trainer *t, Emit *out, int stage);
void trainer_print_first_hops(Trainer *t, Emit *out, int stage); /* before the norm */
void trainer_print_hops_in(Trainer *t, Emit *out, int stage);    /* around the update of bucket b */
void trainer_print_hops_out(Trainer *t, Emit *out, int stage);
void trainer_print_near(Trainer *t, Emit *out, int stage); /* near_group, near_bucket */
/* The weights of bucket b from its masters, wherever these are; `how`, `where`: of lp_publish_. */
void trainer_print_publish(Trainer *t, Emit *out, int stage, const char *how, const char *where);
void trainer_print_hop_events(Trainer *t, Emit *out, int buckets);
void trainer_print_hops_end(Trainer *t, Emit *out); /* waits for all of them */
/* Weights that live away from the arena (trainer_carry.c): nothing is printed where they do not. */
bool trainer_carries(const Trainer *t);
void trainer_print_carry(Trainer *t, Emit *out, int stage);
void trainer_print_carry_in(Trainer *t, Emit *out, int stage); /* around the update of bucket b */
void trainer_print_carry_out(Trainer *t, Emit *out, int stage);
void trainer_print_carry_near(Trainer *t, Emit *out, int stage); /* near_group */
/* Waits for other buckets that share bytes with b; lane: of PLACE_CARRY. */
void trainer_print_carry_waits(Trainer *t, Emit *out, int stage, PlaceKind kind, int lane);
void trainer_print_carry_events(Trainer *t, Emit *out, int buckets);
void trainer_print_carry_end(Trainer *t, Emit *out);
const char *trainer_weight_base(Trainer *t); /* where the home of a `group` is */
bool trainer_weights_in_file(const Trainer *t);
/* A hop of bucket b between `near` and the memory behind it: the call; `back`, `version`: what to
 * say where it asks. */
const char *trainer_carry_call(Trainer *t, int stage, Memory near, bool in, const char *back,
                               const char *version);
/* ", .between = …": of a bucket whose weights pass through the host's memory. */
const char *trainer_bucket_between(Trainer *t, const StageProgram *stage, const Bucket *bucket);
/* Weights ahead of their links, behind the functions that bring a bucket's: from how many memories
 * they come; the function for one, "ahead" or "read", which comes a link earlier; the calls before
 * the first link of a row. */
int trainer_weight_hops(const Trainer *t, int stage);
const char *trainer_weight_hop(int near);
void trainer_print_read_ahead(Trainer *t, Emit *out, int stage);
void trainer_print_first_weights(Trainer *t, Emit *out, int stage, const Chunk *chunk, bool forward,
                                 bool may_resume);
/* Gradients that live away from the arena (trainer_sums.c): the same. Their hops around backward of
 * the links of a chunk; this rank's share to the norm and the update; waits for what shares bytes
 * with those of bucket b, `lane` of PLACE_SUMS. */
bool stage_sums(const StageProgram *stage);
bool stage_clears(const StageProgram *stage); /* layers add to some in place: stage0_clear() */
bool trainer_sums(const Trainer *t);
const char *trainer_bucket_sums(Trainer *t, const Bucket *bucket); /* ", .sums = {…}" */
void trainer_print_sums(Trainer *t, Emit *out, int stage);
void trainer_print_sums_begin(Trainer *t, Emit *out, int stage, const Chunk *chunk);
void trainer_print_sums_in(Trainer *t, Emit *out, int stage, const Chunk *chunk, int begin,
                           int end);
void trainer_print_sums_out(Trainer *t, Emit *out, int stage, const Chunk *chunk, int begin,
                            int end);
void trainer_print_sums_share(Trainer *t, Emit *out, int stage);
void trainer_print_sums_waits(Trainer *t, Emit *out, int stage, PlaceKind kind, int lane);
void trainer_print_sums_events(Trainer *t, Emit *out, int buckets);
void trainer_print_sums_end(Trainer *t, Emit *out);
void trainer_print_sums_home(Trainer *t, Emit *out); /* gradient_home() */
/* Element `at` of the gradients of a `bucket` of a `group`, where homes are cut. */
const char *trainer_gradient_at(Trainer *t, const char *at);
/* Saved values that live away from the arena (trainer_spill.c): nothing is printed where they do
 * not. Has the plan such, and links of a chunk? */
bool trainer_spills(const Trainer *t);
bool trainer_chunk_spills(const Trainer *t, int stage, int chunk);
/* Tables and hops of a stage's blocks. */
void trainer_print_spills(Trainer *t, Emit *out, int stage);
/* Behind forward of links that are called alike, as `link`, and ahead of their backward (of the
 * whole, or of W alone); one of them, the highest; row: "micro, stay" of it. */
void trainer_print_leave(Trainer *t, Emit *out, int stage, int chunk, int one, const char *link,
                         const char *row);
void trainer_print_return(Trainer *t, Emit *out, int stage, int chunk, bool whole, int highest,
                          const char *link, const char *row);
void trainer_print_spill_events(Trainer *t, Emit *out);
void trainer_print_spills_end(Trainer *t, Emit *out); /* waits for all of them */
/* What a place waits for of hops; `lane`: of PLACE_HOP. */
void trainer_print_hop_waits(Trainer *t, Emit *out, int stage, PlaceKind kind, int lane);

/* lp_wait lines for a place; `micro` is the text of the micro-batch, or NULL. */
void trainer_print_waits(Trainer *t, Emit *out, const Place *place, const char *micro);
/* Waits of places that differ by bucket: true when all are for the bucket itself, to be printed by
 * the caller; others are printed here. */
bool trainer_bucket_waits(Trainer *t, Emit *out, int stage, PlaceKind kind);
/* The event of a micro-batch's slot of a ring, as an index of State's arrays. */
const char *trainer_slot(Trainer *t, int stage, int chunk, RingKind kind, const char *micro);
/* What a link waits for before a list of its body: buckets and fetches by tables, so that links of
 * a run are called alike; anything else lets it stand alone. */
void trainer_print_wait_tables(Trainer *t, Emit *out, int stage, const Chunk *chunk);
void trainer_print_link_waits(Trainer *t, Emit *out, int stage, const Chunk *chunk, int which,
                              const char *link);
bool trainer_stands_alone(const Trainer *t, int stage, int which, int link);
/* Does any bucket of the stage communicate before, or after, its update? */
bool path_communicates(const Path *path);
/* Homes of the stage's weights, or gradients, that are cut (trainer_homes.c): are there any, and
 * the functions by which buckets become whole for a use, and go home. */
bool stage_fetches(const StageProgram *stage);
/* ", back", where weights for backward lie apart from those for forward; or "". */
const char *trainer_back(const StageProgram *stage, const char *back);
bool stage_scatters(const StageProgram *stage);
bool any_cut(const Trainer *t);
bool trainer_fetches(const Trainer *t);
void trainer_print_homes(Trainer *t, Emit *out, int stage);
/* ", .weight_cut = …": what a group's row says of homes that are cut; "" where they are whole. */
const char *trainer_group_cuts(Trainer *t, const Group *group);
const char *trainer_bucket_buffers(Trainer *t, const StageProgram *stage, int bucket);
/* Boxes of what this rank holds at home, in place of whole blocks (any_cut). */
void trainer_print_boxes(Trainer *t, Emit *out);

#endif
