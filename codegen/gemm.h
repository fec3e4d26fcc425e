/* gemm.h - an einsum with a contraction as a product of matrices, under loops over what no matrix
 * holds. */
#ifndef LPLAN_CODEGEN_GEMM_H
#define LPLAN_CODEGEN_GEMM_H

#include "ir/lower/body.h"

typedef struct GemmLoop {
    const char *name; /* of the loop variable */
    int64_t extent;
    int64_t stride[3]; /* elements, of a, b and c */
} GemmLoop;

typedef struct Gemm {
    int a, b, c; /* copies: c[m][n] = a[m][k] b[k][n], row-major after the transpositions */
    bool trans_a, trans_b;
    int64_t m, n, k, lda, ldb, ldc;
    int loops;
    GemmLoop loop[MAX_LETTERS];
} Gemm;

/* False when strides do not make matrices of it, or nothing is a product: then it is rows. */
bool gemm_build(Arena *arena, const Body *body, const Inst *inst, Gemm *ret);

#endif
