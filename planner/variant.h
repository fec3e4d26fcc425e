/* variant.h - how every class of the model is placed inside a stage: the solver's answer for one
 * width of tp and cp, sequence and recompute rule.
 *
 * What a layer does inside a stage does not depend on how many data-parallel ranks, stages or
 * sequences there are. So classes are solved once, for one sequence on a mesh of the tp and cp
 * atoms alone, and lifted to the mesh of a plan: dp atoms shard the batch wherever it is, and are
 * Partial in what sums over it. */
#ifndef LPLAN_PLANNER_VARIANT_H
#define LPLAN_PLANNER_VARIANT_H

#include "ir/plan.h"
#include "planner/price.h"

/* What is planned for. The model document stays with the caller; `net` is it, read for one sequence
 * a micro-batch (problem_read). */
typedef struct Problem {
    Arena *arena;
    Diag *diag;
    JsonDoc *model;
    Net *net;
    Net *routed; /* the same, read so that experts may live apart from the tokens; NULL when it has
                    none */
    Cluster *cluster;
    Job job;
    int imbalance;  /* rows of the experts of the fullest rank, in percent of an even share; 0: not
                       said */
    Memory offload; /* the farthest memory in which a search may keep things unasked */
    bool refine;    /* a search may have homes of a stage's layers differ unasked */
    bool wide;      /* a search looks at what is dear to look at, too: search.h */
    const char *defaulted; /* the flags whose values nobody gave, or NULL */
    int ranks;
    struct StepShelf *steps; /* of whole matrices that were lowered for cards: card.h */
} Problem;

/* Reads the model for the job's sequence length; false after errors. */
bool problem_read(Problem *problem);
/* What was said of the imbalance of experts, or what is assumed. */
enum { USUAL_IMBALANCE = 150 };
int problem_imbalance(const Problem *problem);
/* Do choices of a net pick experts that ranks could share? */
bool net_has_experts(const Net *net);

/* The Pareto set of the class with most links, of time against bytes: a label is a corner of its
 * hull, and the price of a byte at which every class is solved. Fastest first, so that of equal
 * plans the one with fewer messages comes first. */
enum { MAX_LABELS = 8 };
typedef struct BlockLabel {
    int64_t ns_weight, byte_weight;
    int64_t micro_ns, saved_bytes, state_bytes; /* of a link, for one sequence */
    const ClassPlan *plan;                      /* of that class, as the hull has it */
} BlockLabel;

typedef struct BlockLabels {
    int n;         /* 0: no legal placement, */
    bool too_wide; /* or one that the solver gave up to find */
    BlockLabel at[MAX_LABELS];
} BlockLabels;

/* The ranks over which a layer is spread, and what it may do where it crosses the sequence. */
typedef struct Spread {
    int tp, cp, cp_heads; /* cp_heads: 1 when no atoms are set apart for them */
    int cp_by;            /* a Cross, or -1: whatever is fastest */
    bool routed;          /* experts may live apart from the tokens */
    int rounds;           /* in which their rows come */
    int etp;              /* dp ranks that cut each expert beside those of tp */
    int tp_etp; /* the ranks of tp that cut each expert; 0: all of them, and none shares any */
    int tp_ep, cp_ep; /* those beside them, and of cp, that share experts; 1: none */
    bool zigzag;      /* the order of the sequence */
    bool passing;     /* products see the blocks of a sequence that is on tp pass by (Pins.tp_by) */
    AtomEnds ends;    /* of the atoms, beside those of its own degrees */
    int64_t runs;     /* of the sequence, where other layers deal it out; 0: as zigzag says */
} Spread;
/* Are rows of experts apart from their tokens under these pins? */
bool pins_routed(const Pins *pins);
Spread spread_of_pins(const Pins *pins);
/* Of the classes whose roles are the plan's; of one class. */
Spread spread_of_plan(const Plan *plan, const Net *net);
Spread spread_of_class(const Plan *plan, const Net *net, int class);
bool spread_same(const Spread *a, const Spread *b);
/* The form of the model for it: rows of experts have rounds of which one of `sharing` ranks has
 * room for so many percent of an even share. NULL after an error. */
Net *problem_form(const Problem *problem, const Spread *spread, int sharing, int64_t room_percent);
/* Room for the rows of a round, so that all rounds hold what can come. */
int pins_rounds_room(const Problem *problem, const Pins *pins);
/* Of a stage with so many dp ranks beside them, and where `ep` ranks in all share experts. */
Degrees spread_degrees(const Spread *spread, int dp, int ep, const Net *net);
/* Of `ep` ranks that share experts those of dp. */
int spread_dp_ep(const Spread *spread, int ep);

/* What all variants of one width share: the mesh of its atoms, and the moves found on it. */
typedef struct Width {
    Spread spread;
    Net *net;  /* for one sequence */
    Mesh mesh; /* tp and cp atoms */
    Pricer pricer;
    PathTable *paths;
    BlockLabels *labels[2][2]; /* per sp, recompute; NULL: not asked for yet */
} Width;
/* NULL after an error in `diag`. */
Width *width_new(Arena *arena, Diag *diag, const Problem *problem, const Spread *spread);

typedef struct VariantKey {
    Spread spread;
    bool sp, recompute;
    int block; /* a label; NONE: the one at which a byte is worth a nanosecond */
} VariantKey;
VariantKey key_of_pins(const Pins *pins);
/* The error that a class has more placements than are weighed; false. */
bool class_too_wide(Diag *diag, const char *name, int tp);

/* The labels of this key, whatever its own is. One where a layer leaves the fastest domain: there
 * the blocks are slow in any case, and their hulls take longest to find. */
const BlockLabels *width_labels(Arena *arena, Width *width, const VariantKey *key);

typedef struct Variant {
    VariantKey key;
    Net *net;  /* for one sequence */
    Mesh mesh; /* tp and cp atoms */
    int64_t pad_vocabulary;
    ClassPlan *class;
} Variant;

/* NULL after an error in `diag` that says what does not divide. */
Variant *variant_solve(Arena *arena, Diag *diag, Width *width, const VariantKey *key);
/* A class plan on a mesh of the same atoms and any dp atoms after them. Those that share experts
 * hold parts of them, and work on the rows that name these; the others, and these elsewhere, cut
 * the batch. */
void variant_lift(Arena *arena, const Variant *variant, const Mesh *mesh, int class,
                  ClassPlan *ret);
/* The same classes as a plan has them, on the plan's own mesh: nothing is left to lift. */
Variant *variant_of_plan(Arena *arena, const Plan *plan, const Net *net);
/* The labels that a plan of this problem chose among. Its own place in them, or NONE when it is
 * none of them, or there is only one. */
int plan_label(Arena *arena, const Problem *problem, const Plan *plan, const Net *net, bool sp,
               bool recompute, BlockLabels *ret);
/* Is this class of a plan, but for its boundary and for what it makes again, class `from` of the
 * variant? */
bool plan_has_class(Arena *arena, const Plan *plan, const Net *net, int class,
                    const Variant *variant, int from);
/* KV heads of the model as the mesh needs them: 0 when there is no attention. */
int64_t model_kv_heads(const Net *net);

#endif
