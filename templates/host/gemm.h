/* gemm.h - one door for matrix products: BLAS, plain C without one, and bf16 by oneDNN.
 *
 * Row-major C[m][n] = alpha op(A)[m][k] op(B)[k][n] + beta C; beta == 0 never reads C. The BLAS is
 * declared here and not by cblas.h, whose <complex.h> not every compiler takes; an int stands for
 * the enumerations in every CBLAS. */
#ifndef LP_GEMM_H
#define LP_GEMM_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "templates/host/tile.h"

#if defined(LP_NO_BLAS)

#define LP_GEMM_DEPTH 256
#define LP_GEMM_WIDE 64
#define LP_GEMM_TALL 256

/* panel[depth][LP_GEMM_WIDE] = alpha op(B)[k0 ..][j0 ..], zero beyond column cols. */
static void lp_gemm_panel(int trans_b, int depth, int cols, float alpha, const float *b, int ldb,
                          int k0, int j0, float *panel)
{
    if (trans_b) {
        lp_tile_transpose(cols, depth, b + (long)j0 * ldb + k0, ldb, panel, LP_GEMM_WIDE, alpha);
    } else {
        lp_tile_pack(depth, cols, b + (long)k0 * ldb + j0, ldb, panel, LP_GEMM_WIDE, alpha);
    }
}

static void lp_gemm_scale(int m, int n, float beta, float *c, int ldc)
{
    for (int i = 0; i < m; i++) {
        float *row = c + (long)i * ldc;
        for (int j = 0; j < n; j++) {
            row[j] = beta == 0.0f ? 0.0f : row[j] * beta;
        }
    }
}

/* A task is a block of at most LP_GEMM_TALL x LP_GEMM_WIDE of C: nothing is shared, so the bits do
 * not depend on the threads. */
static LP_MAYBE_UNUSED void lp_gemm(int trans_a, int trans_b, int m, int n, int k, float alpha,
                                    const float *a, int lda, const float *b, int ldb, float beta,
                                    float *c, int ldc)
{
    const long down = (m + LP_GEMM_TALL - 1) / LP_GEMM_TALL;
    const long across = (n + LP_GEMM_WIDE - 1) / LP_GEMM_WIDE;
#pragma omp parallel for schedule(static)
    for (long task = 0; task < down * across; task++) {
        float panel[LP_GEMM_DEPTH * LP_GEMM_WIDE];
        const int i0 = (int)(task % down) * LP_GEMM_TALL;
        const int j0 = (int)(task / down) * LP_GEMM_WIDE;
        const int rows = m - i0 < LP_GEMM_TALL ? m - i0 : LP_GEMM_TALL;
        const int cols = n - j0 < LP_GEMM_WIDE ? n - j0 : LP_GEMM_WIDE;
        float *out = c + (long)i0 * ldc + j0;
        if (beta != 1.0f) {
            lp_gemm_scale(rows, cols, beta, out, ldc);
        }
        for (int k0 = 0; k0 < k; k0 += LP_GEMM_DEPTH) {
            const int depth = k - k0 < LP_GEMM_DEPTH ? k - k0 : LP_GEMM_DEPTH;
            lp_gemm_panel(trans_b, depth, cols, alpha, b, ldb, k0, j0, panel);
            if (trans_a) {
                lp_tile_tn(rows, cols, depth, a + (long)k0 * lda + i0, lda, panel, LP_GEMM_WIDE,
                           out, ldc, 1);
            } else {
                lp_tile_nn(rows, cols, depth, a + (long)i0 * lda + k0, lda, panel, LP_GEMM_WIDE,
                           out, ldc, 1);
            }
        }
    }
}

static LP_MAYBE_UNUSED void lp_gemm_print(FILE *f)
{
    fprintf(f, "gemm: plain C, vectors of %d floats\n", LP_VEC);
}

#else

void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
/* OpenBLAS only: absent in other libraries, hence weak. */
char *openblas_get_corename(void) __attribute__((weak));
int openblas_get_parallel(void) __attribute__((weak));
int openblas_get_num_threads(void) __attribute__((weak));

static LP_MAYBE_UNUSED void lp_gemm(int trans_a, int trans_b, int m, int n, int k, float alpha,
                                    const float *a, int lda, const float *b, int ldb, float beta,
                                    float *c, int ldc)
{
    const int row_major = 101;
    const int no_trans = 111;
    const int trans = 112;
    cblas_sgemm(row_major, trans_a ? trans : no_trans, trans_b ? trans : no_trans, m, n, k, alpha,
                a, lda, b, ldb, beta, c, ldc);
}

static LP_MAYBE_UNUSED void lp_gemm_print(FILE *f)
{
    static const char *const kinds[] = {"serial", "pthread", "openmp"};
    if (!openblas_get_corename || !openblas_get_parallel || !openblas_get_num_threads) {
        fprintf(f, "gemm: a BLAS that is not OpenBLAS\n");
        return;
    }
    const int kind = openblas_get_parallel();
    fprintf(f, "gemm: OpenBLAS %s, %s, %d threads\n", openblas_get_corename(),
            kind >= 0 && kind <= 2 ? kinds[kind] : "unknown", openblas_get_num_threads());
    if (kind == 1) {
        fprintf(f, "gemm: warning: the pthread build of OpenBLAS competes with OpenMP for the "
                   "cores (measured 1.4 times slower steps); install the openmp build\n");
    }
}

#endif
#endif
