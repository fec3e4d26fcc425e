/* optimizer.h - the optimizer as graph: AdamW with decoupled decay, bias correction and global-norm
 * clipping, and Muon for whole matrices. */
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

/* Jordan et al. 2024, Muon: the momentum of a matrix is replaced by the nearest matrix with equal
 * singular values (by `steps` rounds of a Newton-Schulz iteration with a quintic polynomial). */
typedef struct Muon {
    int steps;            /* rounds; 0: no matrix is moved so */
    double momentum, eps; /* eps, squared, is added to the squared Frobenius norm */
    bool nesterov;
    double rate;    /* the learning rate of matrices is this many times that of the others */
    bool match_rms; /* a step has the root mean square of one of AdamW, 0.2 sqrt(max(rows, columns))
                       (Liu et al. 2025, Moonlight); else sqrt(max(1, rows / columns)), as its
                       authors have it */
} Muon;
Muon muon_default(void); /* of a job that asks for it: 5 rounds, momentum 0.95, eps 1e-7,
                            Nesterov's, rate 1, steps as long as AdamW's */

/* How the tensor of a parameter is one matrix, or a stack of them (experts): its last two stored
 * axes, each a run of the value's axes. */
typedef struct MatrixShape {
    int stack, rows, cols; /* axes of the value, in this order */
} MatrixShape;
enum { MAX_SIDE = 3 }; /* axes of a side; a product of two sides is a value */

/* Is the parameter one that Muon moves: a matrix of a hidden block, between the block that reads
 * tokens and the one that has the loss, that weight decay applies to? Embeddings, heads, gains and
 * biases are AdamW's. */
bool param_is_matrix(const Graph *graph, int param, MatrixShape *ret);

/* Operands of a matrix's step, as parameters of its graph. */
enum {
    MATRIX_WEIGHT,
    MATRIX_MOMENT,
    MATRIX_GRADIENT,
    MATRIX_COEF,  /* of the gradient: clipping */
    MATRIX_LR,    /* learning rate */
    MATRIX_DECAY, /* decoupled weight decay */
    MATRIX_OPERANDS
};

/* The step of one matrix as a class of its own, in a net of its own: einsums of whole matrices and
 * rows, all of backward. What it makes of the weight and of the moment are the gradients of these
 * parameters, to be written over them. Extents are those of the axes behind the stack. */
Graph *matrix_step(Arena *arena, const Net *net, const Graph *graph, int param, const Muon *muon);

#endif
