/* eval_walk.h - what the evaluation rules of the ops share: operands with strides, walks over
 * indices. */
#ifndef LPLAN_IR_EVAL_WALK_H
#define LPLAN_IR_EVAL_WALK_H

#include "ir/eval.h"

enum { OPERANDS = MAX_IN + MAX_OUT };

/* One node on one block. Operands are the inputs, then from MAX_IN on the outputs. */
typedef struct Eval {
    const Net *net;
    const Graph *graph;
    const Node *node;
    const double *const *in;
    double *const *out;
    const int64_t *extent, *origin;
    const EvalDraw *draw;
    int64_t stride[OPERANDS][MAX_LETTERS]; /* 0 where the operand lacks the letter */
    uint16_t set[OPERANDS];                /* its letters */
} Eval;

/* Runs over all index tuples of a set of letters, with the offset of each operand. */
typedef struct EvalWalk {
    int n;
    int letter[MAX_LETTERS];
    int64_t at[MAX_LETTERS];    /* by position in `letter` */
    int64_t index[MAX_LETTERS]; /* by letter */
    int64_t offset[OPERANDS];
    bool more;
} EvalWalk;

EvalWalk eval_walk(const Eval *e, uint16_t set);
void eval_walk_next(const Eval *e, EvalWalk *w);
#define WALK(w, e, set) for (EvalWalk w = eval_walk(e, set); w.more; eval_walk_next(e, &w))

void eval_clear_outputs(const Eval *e);
/* The letter of the last axis of an input; the one letter of a set. */
int eval_last_letter(const Eval *e, int input);
int eval_only_letter(uint16_t set);
/* Where the id of operand 0 falls in the local block of letter v, or NONE; NaN when the id was
 * never written, else 0: what it adds to whatever it addresses. */
int64_t eval_local_row(const Eval *e, const EvalWalk *w, int v);
double eval_id_poison(const Eval *e, const EvalWalk *w);
/* The larger, or NaN: the proofs fill memory with it. */
double eval_larger(double a, double b);

static inline double eval_in(const Eval *e, const EvalWalk *w, int i)
{
    return e->in[i][w->offset[i]];
}

/* The position at an index of a letter of the block. */
static inline int64_t eval_position(const Eval *e, int letter, int64_t index)
{
    return dim_position(e->net, e->node->sig.dim[letter], e->origin[letter] + index);
}

static inline double *eval_out(const Eval *e, const EvalWalk *w, int o)
{
    return &e->out[o][w->offset[MAX_IN + o]];
}

/* The rules that have files of their own. */
void eval_einsum(const Eval *e);
void eval_expert(const Eval *e);
void eval_expert_dw(const Eval *e);
void eval_topk(const Eval *e);
void eval_capacity(const Eval *e);
void eval_chance(const Eval *e);
void eval_deal(const Eval *e);
void eval_tally(const Eval *e);
void eval_take_choice(const Eval *e);
void eval_spread(const Eval *e);
void eval_softmax(const Eval *e);
void eval_softmax_grad(const Eval *e);
void eval_norm(const Eval *e);
void eval_norm_dx(const Eval *e);
void eval_norm_dg(const Eval *e);
void eval_rope(const Eval *e);
void eval_temper(const Eval *e);
void eval_attention(const Eval *e);
void eval_attention_grad(const Eval *e);

#endif
