/* gemm_bf16.h - matrix product with operands rounded to bf16, fp32 sums and an fp32 result: the
 * products of a trainer that stores fp32, in bf16 (gemm_typed.h). Call it outside parallel regions.
 */
#ifndef LP_GEMM_BF16_H
#define LP_GEMM_BF16_H

#include "templates/host/gemm_typed.h"

/* Both operands as bf16, each from a cache line of its own. */
#define LP_GEMM_BF16_LINE(elements) (((size_t)(elements)*2 + 63) / 64 * 64)
#define LP_GEMM_BF16_BYTES(m, n, k)                                                                \
    (LP_GEMM_BF16_LINE((size_t)(m) * (size_t)(k)) + LP_GEMM_BF16_LINE((size_t)(n) * (size_t)(k)))

/* Dense out[rows][cols] = bf16(x), x rows ld apart. */
static LP_MAYBE_UNUSED void lp_bf16_pack(long rows, long cols, const float *x, long ld,
                                         uint16_t *out)
{
#pragma omp parallel for schedule(static)
    for (long i = 0; i < rows; i++) {
        const float *restrict from = x + i * ld;
        uint16_t *restrict to = out + i * cols;
#pragma omp simd
        for (long j = 0; j < cols; j++) {
            to[j] = lp_bf16_of_float(from[j]);
        }
    }
}

static LP_MAYBE_UNUSED void lp_gemm_bf16(int trans_a, int trans_b, int m, int n, int k, float alpha,
                                         const float *a, int lda, const float *b, int ldb,
                                         float beta, float *c, int ldc, void *scratch)
{
    uint16_t *a16 = scratch;
    uint16_t *b16 = (uint16_t *)((char *)scratch + LP_GEMM_BF16_LINE((size_t)m * (size_t)k));
    lp_bf16_pack(trans_a ? k : m, trans_a ? m : k, a, lda, a16);
    lp_bf16_pack(trans_b ? n : k, trans_b ? k : n, b, ldb, b16);
    lp_gemm_typed(trans_a, trans_b, m, n, k, alpha,
                  (LpMatrix){a16, LP_ELEMENT_BF16, trans_a ? m : k},
                  (LpMatrix){b16, LP_ELEMENT_BF16, trans_b ? k : n}, beta,
                  (LpMatrix){c, LP_ELEMENT_F32, ldc});
}

#endif
