/* gemm.h - an einsum with a contraction as a product of matrices, under loops over what no matrix
 * holds. */
#ifndef LPLAN_CODEGEN_GEMM_H
#define LPLAN_CODEGEN_GEMM_H

#include "ir/lower/body.h"

typedef struct GemmLoop {
    const char *name; /* of the loop variable */
    int64_t extent;
    int64_t stride[3]; /* elements, of a, b and c */
    bool sums;         /* its products are added up */
} GemmLoop;

typedef struct Gemm {
    int a, b, c; /* copies: c[m][n] = a[m][k] b[k][n], row-major after the transpositions */
    bool trans_a, trans_b;
    int64_t m, n, k, lda, ldb, ldc;
    int loops;
    GemmLoop loop[MAX_LETTERS];
    bool adds; /* to what earlier turns of a ring left in c */
    AtomList ring;
    int turn;
    int64_t block[3]; /* of a, b and c: elements of one block of which a turn sees that of the rank
                         `turn` places before; 0 where it sees all */
} Gemm;

/* False when strides do not make matrices of it, or nothing is a product: then it is rows. */
bool gemm_build(Arena *arena, const Body *body, const Inst *inst, Gemm *ret);

#endif
