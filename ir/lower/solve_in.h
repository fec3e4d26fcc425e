/* solve_in.h - the solver's problem: variables, factors and the messages of an elimination. Private
 * to solve*.c and their tests. */
#ifndef LPLAN_IR_LOWER_SOLVE_IN_H
#define LPLAN_IR_LOWER_SOLVE_IN_H

#include "ir/lower/solve.h"

enum { MAX_SET = 3, MAX_SCOPE = 24, MAX_ROWS = 1 << 26 };
/* Costs are capped here: a few of them still add without overflow. */
#define COST_MAX (INT64_MAX / 16)

static inline int64_t cost_add(int64_t a, int64_t b)
{
    int64_t sum = a + b;
    return sum > COST_MAX ? COST_MAX : sum;
}

/* Of two non-negative numbers. */
static inline int64_t cost_times(int64_t a, int64_t b)
{
    return a != 0 && b > COST_MAX / a ? COST_MAX : a * b;
}

/* Every placement that some option or copy gives a value, in a written order; what moving between
 * two of them costs. */
typedef struct Spot {
    VEC(Placement) places;
    int whole;     /* index of the placement without width atoms */
    int64_t *path; /* n x n, -1 until asked for */
    int64_t *size; /* bytes of one copy */
} Spot;

typedef struct Option {
    NodeChoice choice;
    int16_t in[MAX_IN], out[MAX_OUT]; /* indices into the values' spots */
} Option;

typedef struct CopySet {
    int n;
    int16_t at[MAX_SET];
} CopySet;

typedef enum { VAR_NODE, VAR_HOME, VAR_BOUNDARY, VAR_COPIES, VAR_SAVED } VarKind;

typedef struct Var {
    VarKind kind;
    int id; /* node, param or value */
    Segment seg;
    int n;
    Option *option;   /* VAR_NODE */
    Placement *place; /* VAR_HOME, VAR_BOUNDARY, VAR_SAVED */
    CopySet *copies;  /* VAR_COPIES */
} Var;

/* One or two variables; table[i * n1 + j]. Forbidden where micro_ns is COST_MAX. */
typedef struct Factor {
    int n, var[2];
    Label *table;
} Factor;

typedef struct Problem {
    Arena *arena;
    SolveSetup setup;
    PathTable *paths;
    VEC(Var) vars;
    VEC(Factor) factors;
    Spot *spot;               /* per value */
    int *node_var, *home_var; /* per node, per param */
    int boundary_var;         /* NONE when the class has no boundary */
    int *saved_var;           /* per value, NONE when nothing is chosen */
    bool *whole_dim;          /* per dim: some op of the class may not split it */
    bool *again;              /* per node: runs in backward too */
    bool *routed;             /* per node: works on single choices, which may live elsewhere */
} Problem;

/* solve_domain.c: options of nodes, homes and the boundary, and the spots of all values. */
bool problem_domains(Problem *problem);
int spot_index(Problem *problem, ValueId value, const Placement *place); /* adds it when new */
/* solve_turns.c: the time of all runs of a node, of which each takes `ns`. */
int64_t turns_ns(const Problem *problem, const Node *node, const NodeChoice *choice,
                 const Placement *in, const Placement *out, int64_t ns);
/* solve_build.c */
Problem *problem_new(Arena *arena, const SolveSetup *setup);
Label label_add(Label a, Label b);
/* Sum of all factors. */
Label problem_label(const Problem *problem, const uint16_t *value);
int64_t label_ns(const SolveSetup *setup, const Label *label);
int64_t label_bytes(const SolveSetup *setup, const Label *label); /* transient left aside */
bool label_forbidden(const Label *label);

/* ---- elimination (solve_elim.c) ---- */

/* What is minimised: ns * time + byte * bytes. */
typedef struct Weights {
    int64_t ns, byte;
} Weights;

/* A table of costs over some variables, the first one major. */
typedef struct Message {
    int n, var[MAX_SCOPE];
    int64_t size;
    int64_t *cost;
    int from; /* bucket it was sent by, NONE for a factor */
} Message;

/* What is summed when a variable is eliminated. Scope: the variables that remain. */
typedef struct Bucket {
    int var, parent; /* bucket that reads its message; NONE for a root */
    VEC(int32_t) in; /* messages */
    Message out;     /* minimum over the variable */
    uint16_t *arg;   /* per cell of out */
    int64_t *down;   /* per cell of out: minimum of everything outside the bucket's tree; NULL until
                        asked for */
} Bucket;

typedef struct Tree {
    Arena *arena;
    const Problem *problem;
    Weights weights;
    int64_t best;
    int n;
    Bucket *bucket; /* in order of elimination */
    VEC(Message) messages;
    int width;
    int64_t rows;
    int *alive_n;
    uint16_t **alive; /* per variable: the values kept */
} Tree;

/* NULL when a table would have more than MAX_ROWS cells. */
Tree *tree_new(Arena *arena, const Problem *problem, Weights weights, bool prune);
int64_t weights_cost(Weights weights, int64_t ns, int64_t bytes);
void tree_values(const Tree *tree, uint16_t *ret_value);
/* Fills every bucket's down table. */
void tree_down(Tree *tree);

/* ---- exact lists (solve_front.c) ---- */

typedef struct Point {
    int64_t ns, bytes; /* transient included */
    uint16_t *value;
} Point;

/* The frontier among solutions of at most `limit` bytes whose weighted cost is at most cost_limit.
 */
int front_find(Arena *arena, Tree *tree, int64_t limit, int64_t cost_limit, Point **ret,
               int64_t *ret_labels);

#endif
