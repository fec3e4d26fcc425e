/* eval.h - what every op means, as plain loops over doubles, and the oracle: a whole net evaluated
 * un-placed.
 *
 * eval_node works on local blocks: the evaluator of a placed program calls it with each rank's
 * extents and origins, the oracle with whole values. */
#ifndef LPLAN_IR_EVAL_H
#define LPLAN_IR_EVAL_H

#include "ir/optimizer.h"

/* What draws are keyed by besides their site and their element: two samples of a run never draw the
 * same, however the step is cut into micro-batches and ranks. */
typedef struct EvalDraw {
    uint64_t seed;
    int64_t layer;  /* place of the link in the chain */
    int64_t sample; /* number in the run of the micro-batch's first row */
    bool off;       /* nothing is dropped: evaluation */
} EvalDraw;

/* One op on one block. in and out are dense and row-major in the local extents of their letters;
 * ids are whole numbers. extent: per letter, of the block. origin: per letter, the global place
 * where the block begins, of positions in the net's order; read for `base` letters only. draw: NULL
 * is that of seed, layer and sample 0. An output may not share memory with an input. */
void eval_node(const Net *net, const Graph *graph, const Node *node, const double *const *in,
               double *const *out, const int64_t extent[MAX_LETTERS],
               const int64_t origin[MAX_LETTERS], const EvalDraw *draw);

/* One micro-batch: ids, labels and weights, [b, s] of the whole micro-batch each, and where in the
 * run it stands. */
typedef struct EvalBatch {
    const double *data[DATA_COUNT];
    uint64_t seed;
    int64_t sample; /* number in the run of its first row */
    bool evaluates; /* nothing is dropped */
} EvalBatch;

/* Elements of the i-th parameter of the net, padding included; whether weight decay applies. */
int64_t eval_param_elements(const Net *net, int i);
bool eval_param_decays(const Net *net, int i);
/* What each step moves it by, outside of AdamW; 0 for a parameter that AdamW moves. */
double eval_param_rate(const Net *net, int i);

/* The losses (net_losses) summed over the micro-batches, of the forward alone. */
void eval_net_losses(const Net *net, const double *const *param, const EvalBatch *batch,
                     int micro_batches, double *ret);

/* Loss summed over the micro-batches, and per NetParam the gradient summed over micro-batches and
 * uses; grad NULL: forward only. Whatever order the net has, here the sequence lies as it is. */
double eval_net(const Net *net, const double *const *param, const EvalBatch *batch,
                int micro_batches, double *const *grad);

typedef struct EvalAdam {
    double beta1, beta2, eps, decay; /* decay of parameters that take it; 0 for the others */
    double clip;                     /* of the global norm; <= 0: none */
    Muon muon;                       /* of matrices; steps 0: none */
    bool linear; /* where a sign counts, its number does: proofs must see every term of it */
} EvalAdam;

/* One AdamW step over all parameters, in place; `step` counts from 1. Gives the norm of the
 * gradients before clipping. */
double eval_step(const Net *net, const EvalAdam *adam, double lr, int64_t step,
                 double *const *param, double *const *m, double *const *v,
                 const double *const *grad);

#endif
