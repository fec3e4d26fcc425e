/* gemm_real.h - matrix product of operands as they are stored (real.h) with a result in fp32. */
#ifndef LP_GEMM_REAL_H
#define LP_GEMM_REAL_H

#include "templates/host/gemm.h"
#include "templates/host/real.h"

#if LP_REAL_NARROW
#include "templates/host/gemm_typed.h"

#if defined(LP_REAL_BF16)
#define LP_ELEMENT_REAL LP_ELEMENT_BF16
#else
#define LP_ELEMENT_REAL LP_ELEMENT_F16
#endif
#endif

/* C[m][n] = op(A)[m][k] op(B)[k][n] + beta C; beta == 0 never reads C. */
static LP_MAYBE_UNUSED void lp_gemm_real(int trans_a, int trans_b, int m, int n, int k,
                                         const LpReal *a, int lda, const LpReal *b, int ldb,
                                         float beta, float *c, int ldc)
{
#if LP_REAL_NARROW
    lp_gemm_typed(trans_a, trans_b, m, n, k, 1.0f, (LpMatrix){(void *)a, LP_ELEMENT_REAL, lda},
                  (LpMatrix){(void *)b, LP_ELEMENT_REAL, ldb}, beta,
                  (LpMatrix){c, LP_ELEMENT_F32, ldc});
#else
    lp_gemm(trans_a, trans_b, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
#endif
}

#endif
