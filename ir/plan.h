/* plan.h - the Plan: the choice. What runs where, as data; no technique has a field of its own.
 *
 * A Plan is self-contained: it carries the model, the cluster and the job it was made for. "ZeRO",
 * "recompute" and "SP" are names of what the homes and boundary say: presets on input (Pins), words
 * in reports. */
#ifndef LPLAN_IR_PLAN_H
#define LPLAN_IR_PLAN_H

#include "ir/base/json.h"
#include "ir/cluster.h"
#include "ir/lower/place.h"
#include "ir/lower/schedule.h"
#include "ir/model.h"
#include "ir/optimizer.h"

typedef enum { DT_F32, DT_F64, DT_BF16, DT_F16, DT_I32, DT_COUNT } DType;
int dtype_bytes(DType dtype);
extern const char *const dtype_text[DT_COUNT];

/* Which dtype each kind of value has. */
typedef struct Recipe {
    const char *name; /* "fp32", "bf16", "fp16", "fp64" (proofs) */
    DType weight, activation, gradient, master;
    bool has_master;  /* the optimizer keeps its own copy of the weights */
    bool scales_loss; /* gradients are too small for the activations' dtype: the loss is scaled */
} Recipe;
const Recipe *recipe_by_name(const char *name); /* NULL when unknown */

typedef struct Job {
    int64_t global_batch, sequence; /* sequences per optimizer step; tokens per sequence */
    const char *recipe;
    double beta1, beta2, eps, decay, clip; /* AdamW; clip <= 0: no clipping */
    Muon muon;                             /* steps = 0: AdamW moves everything */
} Job;
Job job_default(void);

/* Where a value's life between forward and backward is spent. */
typedef enum {
    KEEP_SAVED,
    KEEP_NONE
} Keep; /* KEEP_NONE: recomputed in backward from what is saved */

/* What outlives its use, and may wait for the next one in another memory than the device's: the
 * optimizer's state, from one update to the next; what forward saves for backward; weights, from
 * one use to the next; gradients, from one micro-batch to the next and to the update. */
typedef enum { KEPT_STATE, KEPT_SAVED, KEPT_WEIGHTS, KEPT_GRADIENTS, KEPT_COUNT } Kept;
extern const char *const kept_pin[KEPT_COUNT];   /* "optimizer_home" */
extern const char *const kept_text[KEPT_COUNT];  /* "the optimizer's state" */
extern const char *const kept_short[KEPT_COUNT]; /* "optimizer" */

/* Over which atoms what belongs to a parameter is cut, beyond the cuts of its own placement: the
 * optimizer's state (and its step), the gradient accumulator, the weight. Each set holds the next
 * one. Where a gradient's home is cut, every micro-batch adds its sums to the share; where a
 * weight's is, it is gathered for each use. Nothing: the home of everybody is whole. */
typedef struct Homes {
    AtomSet state, gradient, weight;
    uint8_t nearer[KEPT_COUNT]; /* by how many memories what is kept lives nearer to the device than
                                   the plan's home for it (Plan.memory) */
} Homes;

/* The choice for one class: the same for all its instances. */
typedef struct ClassPlan {
    Placement boundary_in, boundary_out; /* of chain_in/chain_out and of their gradients */
    NodeChoice *choice;                  /* per node */
    Placement *home;                     /* per param: where the weight lives, and is used */
    Keep *keep;                          /* per value that backward reads */
    Placement
        *saved; /* per value: the copy that is kept (a copy forward makes, or a free view of one) */
    const Homes *cut;     /* and homes of its parameters; NULL: as the plan says for all */
    const Mesh *mesh;     /* the plan's, with the roles that its atoms have in this class; NULL: the
                             plan's own */
    const AtomList *rows; /* atoms by which it reads the batch; NULL: those of its boundary */
} ClassPlan;

typedef struct Plan {
    Arena *arena;
    JsonDoc *model;          /* the model graph, embedded in the plan file */
    const json_t *predicted; /* what the planner wrote of it there; NULL for a plan made here */
    Cluster *cluster;
    Job job;
    int ranks, stages;
    int chunks;          /* of all stages: the chain is cut into so many */
    int *holder;         /* [chunks] the stage that has it */
    Mesh mesh;           /* of one stage: ranks / stages ranks */
    int64_t micro_batch; /* sequences per data-parallel rank and micro-batch */
    int micro_batches;   /* per step */
    int64_t pad_vocabulary;
    int64_t room_percent; /* of rows that meet their experts on other ranks: Net.room_percent */
    int rounds; /* in which they do, so that the room of one holds all; 0 or 1: they come at once */
    Exchange exchange; /* how: Net.exchange */
    ScheduleKind schedule;
    AtomSet zigzag; /* the sequence is dealt out to these in a zigzag (Net.runs); empty: it lies
                       as it is */
    const Schedule *table; /* the rows of SCHEDULE_TABLE */
    bool braid;            /* rows that are meant to overlap run as one: Schedule.braids */
    int *first_link; /* chunks + 1: chunk i has links [first_link[i], first_link[i+1]) of the chain
                      */
    AtomSet state_atoms; /* optimizer state (and its step) is sharded over these, where a gradient
                            is Partial or Replicate there */
    AtomSet gradient_atoms, weight_atoms; /* the same of accumulators and weights: see Homes */
    Memory memory[KEPT_COUNT];            /* where it is between its uses, but for Homes.nearer */
    int64_t bucket_bytes;                 /* gradient buckets close at this size */
    int *part;        /* per link of the chain: links of one kind and of one part are a class;
                         NULL: those of one kind are */
    ClassPlan *class; /* per class of the net */
    int64_t *row_ns[PART_COUNT]; /* [chunks] length of the rows of each part: they order the one
                                    sequence; NULL: B 2, others 1 */
    int64_t *pair_ns; /* [chunks] of two rows in one, by the chunk of the forward; or NULL */
    int64_t hop_ns;   /* a message between stages */
} Plan;

/* How a node that sets each position of the sequence against the others meets the shards of other
 * cp ranks: it gathers them, holds whole sequences of fewer heads, or sees them pass by. */
typedef enum { CROSS_GATHER, CROSS_HEADS, CROSS_RING, CROSS_COUNT } Cross;
extern const char *const cross_text[CROSS_COUNT];

/* The order of the sequence in the program: its positions in a row, or two runs a cp rank so that
 * all see equally much of what a causal mask leaves. */
typedef enum { ORDER_IDENTITY, ORDER_ZIGZAG, ORDER_COUNT } SequenceOrder;
extern const char *const order_text[ORDER_COUNT];

enum { MAX_CUTS = 256, MAX_ROUNDS = 8 };

/* Which of the atoms that cut tokens cut homes: all; those inside a unit of the fastest link; those
 * for weights, and all for gradients and state. */
typedef enum { SHARD_ALL, SHARD_NODE, SHARD_WEIGHTS, SHARD_COUNT } Shard;
extern const char *const shard_text[SHARD_COUNT];
extern const char *const exchange_text[EXCHANGE_COUNT];

/* The memory in which parameters with these homes have theirs, of a plan's memories [KEPT_COUNT].
 */
Memory home_memory(const Memory *memory, const Homes *homes, Kept kept);
/* Does some class keep it nearer than the plan says for all? */
bool plan_keeps_some(const Plan *plan, const Net *net, Kept kept);
/* The farthest memory that anything of a plan lives in. */
Memory plan_farthest(const Plan *plan);

/* A plan in few words, as a person pins it; -1 (or NULL, 0) leaves the choice to the search. */
typedef struct Pins {
    int tp, cp, dp, pp, zero, sp, recompute; /* zero: 0 to 3; recompute: 0 none, 1 full */
    int shard;                               /* a Shard */
    int cp_by;                               /* a Cross, of the cp ranks that cp_heads leaves */
    int tp_by;    /* a Cross, gather or ring: how products meet the shards of a sequence on tp (sp);
                     -1: gather */
    int cp_heads; /* cp ranks, the nearest ones, that hold whole sequences of fewer heads */
    int order;    /* a SequenceOrder, over the cp ranks that cp_heads leaves */
    int ep;  /* ranks that share the experts of a layer: dp ranks, the nearest ones, and first those
                of tp that do not cut each of them */
    int etp; /* ranks that cut each expert: those of tp, and of dp the nearest ones beside ep; or
                only some of tp */
    int room;   /* rows of experts a rank has room for, in percent of an even share; 0: all that
                   can come */
    int rounds; /* in which rows of experts may come; > 1: then the room is that of a round, and all
                   rounds together hold all that can come */
    int exchange; /* an Exchange: do messages of them have their own sizes, or that of their bound
                   */
    int home[KEPT_COUNT]; /* Memories: where the optimizer's state lives, … */
    int braid;            /* 1: rows that are meant to overlap run as one */
    int block; /* label of the blocks, of those their placements offer: 0 is the fastest */
    int64_t micro_batch;
    const char *schedule;  /* of schedule_text */
    const Schedule *table; /* of schedule "table": the rows of the file that was named */
    int chunks;            /* of a stage */
    int cuts;              /* number of given cuts */
    int cut[MAX_CUTS];     /* layers per chunk, along the chain */
    const char *again;     /* with recompute 0: what is made again, kinds of ops and values of the
                              model joined by +; NULL: nothing */
    int ranges; /* pins that some layers have otherwise: of those that name a layer the */
    const struct PinRange *range; /* last one says a key (pin_ranges.h) */
} Pins;

/* Layers, or the link before or behind them; a range of layers that is open ends with the last. */
enum { RANGE_FIRST = -1, RANGE_LAST = 1 << 24, RANGE_OPEN = RANGE_LAST - 1 };
typedef struct PinRange {
    int begin, end; /* the first and the last layer, from 0; both RANGE_FIRST or RANGE_LAST */
    Pins pins;      /* what it says; the rest is as pins_none has it */
} PinRange;
Pins pins_none(void);
/* The memories of complete pins. */
void pins_memories(const Pins *pins, Memory *ret);
/* "tp=2,pp=2,zero=1,sp=1,recompute=full,schedule=1f1b,mbs=1,layers=3+5"; schedule=FILE.csv reads
 * rows into the arena. False after an error that names the nearest key. */
bool pins_parse(Arena *arena, Diag *diag, const char *text, Pins *ret);
bool pin_is_key(const char *key); /* of all layers: "tp", ... */
/* Chunks of all stages of complete pins, and where they are: as many on each stage, or the table's.
 */
int pins_chunks(const Pins *pins);
/* The rows of complete pins for so many micro-batches: made, or the table's, and checked. NULL
 * after an error that says why they do not run. */
const Schedule *pins_rows(Arena *arena, Diag *diag, const Pins *pins, int micros);

/* Ranks behind which an atom ends, whatever its role goes on with. */
typedef struct AtomEnds {
    int n, at[MAX_ATOMS];
} AtomEnds;

/* How many ranks of a stage have each role. */
typedef struct Degrees {
    int tp, cp, dp;
    int cp_heads;     /* a divisor of cp that gets atoms of its own, or 1 */
    int64_t kv_heads; /* splits tp where it does not divide; 0: nothing does */
    int ep;           /* the same of dp: ranks that share experts */
    int etp;          /* and those before them, that cut each expert as tp does; 0 or 1: none */
    int tp_etp;       /* the nearest ranks of tp, which cut each expert; 0: all of them do, */
    int tp_ep,
        cp_ep;     /* else of those beside them, and of cp, so many share experts; 0 or 1: none */
    AtomEnds ends; /* so that meshes of other degrees have the same atoms */
} Degrees;
/* The ranks that `ep` and `etp` stand for: those of tp beyond etp share experts first, then dp
 * ranks, and cp with them where dp ranks alone do not make up ep. */
void degrees_of_experts(int ep, int etp, Degrees *ret);
/* Atoms of a stage on this cluster: prime-power factors in rank order, tp innermost, then cp, then
 * dp, those that share experts first. False after an error that says what does not fit. */
bool mesh_build(Diag *diag, const Cluster *cluster, const Degrees *degrees, Mesh *ret);
/* The first atoms of a role, in rank order, that are `extent` ranks together. */
AtomSet role_first_atoms(const Mesh *mesh, Role role, int extent);

/* The atoms that a zigzag deals the sequence out to: those of cp that do not exchange heads for it
 * (degrees.cp_heads). */
AtomSet mesh_zigzag(const Mesh *mesh, int cp_heads);
/* The mesh with the roles that its atoms have in a class. */
const Mesh *class_mesh(const ClassPlan *class, const Mesh *mesh);
const Mesh *plan_mesh(const Plan *plan, int class);
/* What a net has of a plan beyond its extents: room for rows, the order of the sequence, parts of
 * its classes. */
void plan_tell(const Plan *plan, Net *net);

/* One chunk on every stage. */
void plan_chunk_per_stage(Arena *arena, Plan *plan);
/* The rows of the plan's schedule; NULL after an error that says why there are none. */
const Schedule *plan_rows(Arena *arena, Diag *diag, const Plan *plan);

/* The chunk of all stages that has a link of the chain. */
int plan_chunk_of_link(const Plan *plan, int link);
/* How the parameters of a class are cut. */
Homes plan_homes(const Plan *plan, int class);
bool homes_equal(const Homes *a, const Homes *b);
/* The same of what belongs to parameters: what layers save may differ. */
bool homes_equal_of_params(const Homes *a, const Homes *b);
/* How one of them is. What two chunks of a stage share is whole there: their rows lie apart, and
 * those of other micro-batches between them. */
Homes plan_param_homes(const Plan *plan, const NetParam *param);
/* The sets that the words zero=0..3 and shard=… stand for on this mesh. */
Homes homes_preset(const Mesh *mesh, int zero, int shard);
/* And back: the words for some homes; *ret_shard is a Shard, SHARD_ALL where it says nothing. -1:
 * no words stand for them. */
int homes_words(const Mesh *mesh, const Homes *homes, int *ret_shard);

/* Empty arrays for a class; boundaries Replicate. */
void class_plan_alloc(Arena *arena, const Graph *graph, ClassPlan *ret);

/* Text: plan.json, lplan-plan/1. Reading verifies everything against the embedded model (every
 * choice legal, every home fits). */
char *plan_text(Arena *arena, const Plan *plan, const Net *net);
json_t *plan_json(const Plan *plan,
                  const Net *net); /* a new reference; "pins" and "predicted" may be added to it */
Plan *plan_load(Arena *arena, Diag *diag, const char *path, Net **ret_net);
bool plan_verify(const Plan *plan, const Net *net, Diag *diag);
/* The same for a plan that was read from `file`: errors say where in it. */
bool plan_verify_file(const Plan *plan, const Net *net, Diag *diag, Json file);

#endif
