/* solve.h - the block solver: the best placement of one class, by variable elimination over its
 * signature graph.
 *
 * Forward and backward are placed together. Atoms of the *width* role act as one and are what is
 * solved; *token* atoms are spent on the letter of their role (dp: the batch, cp: the sequence) by
 * every node that has it. A node with two letters of the sequence, which sets each position against
 * the others, may give its cp atoms otherwise (Cross): that is chosen with the rest. Variables: a
 * choice per node, a home per parameter, one boundary placement, and a set of copies per value and
 * segment, so that every factor has one or two variables. A solution has five figures that only add
 * (transient: maximum); time and bytes follow from them: time  = micro_batches * micro_ns + step_ns
 *     bytes = live * saved_bytes + state_bytes + transient_bytes
 * The cost of a move is paid once per copy made, from the nearest copy there is; a parameter's
 * gradient is reduced once per step where its shards are already those of its home, else moved
 * there every micro-batch. */
#ifndef LPLAN_IR_LOWER_SOLVE_H
#define LPLAN_IR_LOWER_SOLVE_H

#include "ir/plan.h"

/* Where the width atoms are at the block's boundary. */
typedef enum {
    BOUNDARY_FREE,
    BOUNDARY_SEQUENCE, /* on the sequence axis */
    BOUNDARY_WHOLE /* the value is whole on them, and no op of the block splits the sequence over
                      them */
} BoundaryRule;

/* Where the width atoms are in the homes of parameters of two or more axes. */
typedef enum { WEIGHTS_FREE, WEIGHTS_SHARDED, WEIGHTS_WHOLE } WeightRule;

/* What a node and its placements cost; state of a parameter. `context` is passed on. */
typedef struct SolveModel {
    const void *context;
    int64_t (*node_ns)(const void *context, const Graph *graph, const Node *node,
                       const Placement *in, const Placement *out);
    /* Weights, gradients and optimizer state of one parameter with this home, per rank. */
    int64_t (*state_bytes)(const void *context, const Graph *graph, int param,
                           const Placement *home);
    MovePrice price; /* ns; its element_bytes are those of every float */
} SolveModel;

typedef struct SolveSetup {
    const Net *net;
    const Graph *graph;
    const Mesh *mesh;
    AtomSet width, tokens; /* disjoint; other atoms stay Replicate */
    AtomSet rows; /* what act as the width in nodes that work on single choices: it and token atoms;
                     0: the width alone */
    AtomSet shared; /* of both: in such nodes their ranks have the rows that name what they hold, */
    AtomSet apart;  /* and these have parts of the sequence */
    AtomSet heads;  /* of the tokens: hold whole sequences where a node crosses them */
    unsigned cross; /* set of Cross: what the others of the sequence may do there; 0: gather */
    bool pass_by;   /* products see the blocks of a sequence that is on the width atoms pass by,
                       instead of gathering it, or of scattering their sums */
    const SolveModel *model;
    int64_t micro_batches, live; /* per step; in flight at once, whose saved values coexist */
    bool gather_weights;         /* a home need not be a free view of what the uses need */
    bool recompute; /* forward runs again in backward; only the block's input is kept */
    BoundaryRule boundary_rule;
    WeightRule weight_rule;
    const Placement
        *boundary; /* given: of chain_in, chain_out and gradients; NULL: chosen by the rule */
    const Placement *const *home; /* per param, entries NULL where free; or NULL */
    PathTable *paths;             /* shared by solves of one net, mesh and price; or NULL */
} SolveSetup;

typedef struct Label {
    int64_t micro_ns, step_ns, saved_bytes, state_bytes, transient_bytes;
} Label;

typedef struct Solution {
    Label label;
    int64_t ns, bytes; /* of one step; of one rank */
    ClassPlan plan;
    uint16_t *value; /* of each variable; for tests */
} Solution;

typedef struct Solver Solver;

/* Builds domains and factors. NULL when a rule, a pin or the batch leaves some node no legal
 * choice. */
Solver *solver_new(Arena *arena, const SolveSetup *setup);

/* Minimises ns_weight * time + byte_weight * bytes, transient bytes left aside; both are scaled
 * down together when that could overflow. False when there is no solution at all, or none within
 * tables of reason: stats say so. */
bool solver_at(Solver *solver, int64_t ns_weight, int64_t byte_weight, Solution *ret);
/* The corners of the lower convex hull of (time, bytes without transient), fastest first. Returns
 * their number. */
int solver_hull(Solver *solver, Solution *ret, int cap);
/* The fastest solution of at most this many bytes. False when there is none. Exact, unless the
 * tables of the exact solve would be too large: then the best corner of the hull, and stats say so.
 */
bool solver_within(Solver *solver, int64_t budget_bytes, Solution *ret);
/* All of the (time, bytes) frontier up to a limit of bytes, fastest first. For small graphs.
 * Returns their number, which may exceed cap; only cap are written. NONE when the tables would be
 * too large. */
int solver_front(Solver *solver, int64_t limit_bytes, Solution *ret, int cap);

/* Size of what was solved, and of the last solve. */
typedef struct SolveStats {
    int variables, factors, width; /* width: variables in the largest table */
    int64_t rows, labels;          /* table cells; labels kept by an exact solve */
    bool exact;                    /* of the last solver_within */
    bool too_wide;                 /* some solve gave up: a table would have been too large */
} SolveStats;
SolveStats solver_stats(const Solver *solver);

#endif
