/* optimizer.h - the optimizer as graph: AdamW with decoupled decay, bias correction and global-norm
 * clipping. */
#ifndef LPLAN_IR_OPTIMIZER_H
#define LPLAN_IR_OPTIMIZER_H

#include "ir/graph.h"

/* Loshchilov and Hutter, Decoupled Weight Decay Regularization; clip <= 0: no clipping. */
typedef struct AdamW {
    double beta1, beta2, eps, decay, clip;
} AdamW;

/* Four nodes over a flat dim e of extent 1 (a stand-in for any range of elements):
 *   norm2   sum of squares of a gradient
 *   clip    norm2 of all parameters -> coefficient
 *   step    weight, moment1, moment2, gradient, coefficient, lr, step (from 1) -> weight, moment1,
 * moment2
 *   sign    weight, gradient -> weight: a fixed step against the sign, of parameters that AdamW
 * does not move */
typedef struct Optimizer {
    Graph *graph;
    NodeId norm2, clip, step, sign;
} Optimizer;

Optimizer optimizer_make(Arena *arena, const AdamW *adamw);

#endif
