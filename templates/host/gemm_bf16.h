/* gemm_bf16.h - matrix product with operands rounded to bf16, fp32 sums and an fp32 result.
 *
 * With LP_ONEDNN the product runs in oneDNN (AMX or AVX512_BF16 where the machine has them);
 * without it the rounded operands are multiplied in fp32, which gives the same numbers up to the
 * order of the sums: a plan in bf16 runs everywhere. Call it outside parallel regions. */
#ifndef LP_GEMM_BF16_H
#define LP_GEMM_BF16_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "templates/host/math.h"
#include "templates/host/tile.h"

#if defined(LP_ONEDNN)
#include <oneapi/dnnl/dnnl.h>
#if DNNL_VERSION_MAJOR != 2
#error "gemm_bf16.h is written for oneDNN 2; build without LP_ONEDNN"
#endif
#endif

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

#if defined(LP_ONEDNN)

#define LP_DNNL_PRIMITIVES 512

typedef struct LpDnnlKey {
    int trans_a, trans_b, m, n, k, ldc;
    float alpha, beta;
} LpDnnlKey;

/* Making a primitive takes about a millisecond, a product may take less: one of each kind is kept.
 * The trainer's shapes are few and known. Ranks may be threads of one process, and an execution
 * sets the handles of its primitive's memory: each rank has its own. */
typedef struct LpDnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int count;
    LpDnnlKey keys[LP_DNNL_PRIMITIVES];
    struct {
        dnnl_primitive_t product;
        dnnl_memory_t a, b, c;
    } made[LP_DNNL_PRIMITIVES];
} LpDnnl;

static _Thread_local LpDnnl lp_dnnl;

static void lp_dnnl_check(dnnl_status_t status, const char *what)
{
    if (status != dnnl_success) {
        fprintf(stderr, "lp_gemm_bf16: oneDNN refused %s (status %d); build without LP_ONEDNN\n",
                what, (int)status);
        exit(70);
    }
}

static void lp_dnnl_make(LpDnnl *x, const LpDnnlKey *key, void *a, void *b, float *c)
{
    const dnnl_dims_t dims_a = {key->m, key->k};
    const dnnl_dims_t dims_b = {key->k, key->n};
    const dnnl_dims_t dims_c = {key->m, key->n};
    const dnnl_dims_t step_a = {key->trans_a ? 1 : key->k, key->trans_a ? key->m : 1};
    const dnnl_dims_t step_b = {key->trans_b ? 1 : key->n, key->trans_b ? key->k : 1};
    const dnnl_dims_t step_c = {key->ldc, 1};
    dnnl_memory_desc_t ma;
    dnnl_memory_desc_t mb;
    dnnl_memory_desc_t mc;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t primitive;
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t post;
    lp_dnnl_check(dnnl_memory_desc_init_by_strides(&ma, 2, dims_a, dnnl_bf16, step_a), "A");
    lp_dnnl_check(dnnl_memory_desc_init_by_strides(&mb, 2, dims_b, dnnl_bf16, step_b), "B");
    lp_dnnl_check(dnnl_memory_desc_init_by_strides(&mc, 2, dims_c, dnnl_f32, step_c), "C");
    lp_dnnl_check(dnnl_primitive_attr_create(&attr), "attributes");
    lp_dnnl_check(dnnl_primitive_attr_set_output_scales(attr, 1, 0, &key->alpha), "alpha");
    lp_dnnl_check(dnnl_post_ops_create(&post), "post-ops");
    if (key->beta != 0.0f) {
        lp_dnnl_check(dnnl_post_ops_append_sum(post, key->beta), "beta");
    }
    lp_dnnl_check(dnnl_primitive_attr_set_post_ops(attr, post), "post-ops");
    lp_dnnl_check(dnnl_matmul_desc_init(&desc, &ma, &mb, NULL, &mc), "the product");
    lp_dnnl_check(dnnl_primitive_desc_create(&primitive, &desc, attr, x->engine, NULL),
                  "the product");
    lp_dnnl_check(dnnl_primitive_create(&x->made[x->count].product, primitive), "the product");
    lp_dnnl_check(dnnl_memory_create(&x->made[x->count].a, &ma, x->engine, a), "A");
    lp_dnnl_check(dnnl_memory_create(&x->made[x->count].b, &mb, x->engine, b), "B");
    lp_dnnl_check(dnnl_memory_create(&x->made[x->count].c, &mc, x->engine, c), "C");
    dnnl_primitive_desc_destroy(primitive);
    dnnl_post_ops_destroy(post);
    dnnl_primitive_attr_destroy(attr);
    x->keys[x->count++] = *key;
}

static int lp_dnnl_find(LpDnnl *x, const LpDnnlKey *key, void *a, void *b, float *c)
{
    for (int i = 0; i < x->count; i++) {
        const LpDnnlKey *y = &x->keys[i];
        if (y->trans_a == key->trans_a && y->trans_b == key->trans_b && y->m == key->m &&
            y->n == key->n && y->k == key->k && y->ldc == key->ldc && y->alpha == key->alpha &&
            y->beta == key->beta) {
            return i;
        }
    }
    if (!x->engine) {
        lp_dnnl_check(dnnl_engine_create(&x->engine, dnnl_cpu, 0), "an engine");
        lp_dnnl_check(dnnl_stream_create(&x->stream, x->engine, dnnl_stream_default_flags),
                      "a stream");
    }
    lp_dnnl_check(x->count < LP_DNNL_PRIMITIVES ? dnnl_success : dnnl_out_of_memory,
                  "one shape more");
    lp_dnnl_make(x, key, a, b, c);
    return x->count - 1;
}

static void lp_gemm_bf16_run(const LpDnnlKey *key, uint16_t *a, uint16_t *b, float *c)
{
    const int i = lp_dnnl_find(&lp_dnnl, key, a, b, c);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, lp_dnnl.made[i].a},
                                    {DNNL_ARG_WEIGHTS, lp_dnnl.made[i].b},
                                    {DNNL_ARG_DST, lp_dnnl.made[i].c}};
    lp_dnnl_check(dnnl_memory_set_data_handle(lp_dnnl.made[i].a, a), "A");
    lp_dnnl_check(dnnl_memory_set_data_handle(lp_dnnl.made[i].b, b), "B");
    lp_dnnl_check(dnnl_memory_set_data_handle(lp_dnnl.made[i].c, c), "C");
    lp_dnnl_check(dnnl_primitive_execute(lp_dnnl.made[i].product, lp_dnnl.stream, 3, args),
                  "to run");
    lp_dnnl_check(dnnl_stream_wait(lp_dnnl.stream), "to finish");
}

static LP_MAYBE_UNUSED void lp_gemm_bf16(int trans_a, int trans_b, int m, int n, int k, float alpha,
                                         const float *a, int lda, const float *b, int ldb,
                                         float beta, float *c, int ldc, void *scratch)
{
    const LpDnnlKey key = {trans_a != 0, trans_b != 0, m, n, k, ldc, alpha, beta};
    uint16_t *a16 = scratch;
    uint16_t *b16 = (uint16_t *)((char *)scratch + LP_GEMM_BF16_LINE((size_t)m * (size_t)k));
    lp_bf16_pack(trans_a ? k : m, trans_a ? m : k, a, lda, a16);
    lp_bf16_pack(trans_b ? n : k, trans_b ? k : n, b, ldb, b16);
    lp_gemm_bf16_run(&key, a16, b16, c);
}

#else

#define LP_BF16_BLOCK 128

/* out[i][j] = x(i0 + i, j0 + j) as float, where x(i, j) = x[i * row + j * col]; out rows are
 * LP_BF16_BLOCK apart and zero from column cols on. */
static void lp_bf16_block(int rows, int cols, const uint16_t *x, long row, long col, float *out)
{
    for (int i = 0; i < rows; i++) {
        float *to = out + i * LP_BF16_BLOCK;
        for (int j = 0; j < LP_BF16_BLOCK; j++) {
            to[j] = j < cols ? lp_float_of_bf16(x[i * row + j * col]) : 0.0f;
        }
    }
}

static LP_MAYBE_UNUSED void lp_gemm_bf16(int trans_a, int trans_b, int m, int n, int k, float alpha,
                                         const float *a, int lda, const float *b, int ldb,
                                         float beta, float *c, int ldc, void *scratch)
{
    const int size = LP_BF16_BLOCK;
    uint16_t *a16 = scratch;
    uint16_t *b16 = (uint16_t *)((char *)scratch + LP_GEMM_BF16_LINE((size_t)m * (size_t)k));
    const long down = (m + size - 1) / size;
    const long across = (n + size - 1) / size;
    lp_bf16_pack(trans_a ? k : m, trans_a ? m : k, a, lda, a16);
    lp_bf16_pack(trans_b ? n : k, trans_b ? k : n, b, ldb, b16);
#pragma omp parallel for schedule(static)
    for (long task = 0; task < down * across; task++) {
        float left[LP_BF16_BLOCK * LP_BF16_BLOCK];
        float right[LP_BF16_BLOCK * LP_BF16_BLOCK];
        float sum[LP_BF16_BLOCK * LP_BF16_BLOCK] = {0};
        const int i0 = (int)(task % down) * size;
        const int j0 = (int)(task / down) * size;
        const int rows = m - i0 < size ? m - i0 : size;
        const int cols = n - j0 < size ? n - j0 : size;
        for (int k0 = 0; k0 < k; k0 += size) {
            const int depth = k - k0 < size ? k - k0 : size;
            lp_bf16_block(rows, depth, a16 + (trans_a ? (long)k0 * m + i0 : (long)i0 * k + k0),
                          trans_a ? 1 : k, trans_a ? m : 1, left);
            lp_bf16_block(depth, cols, b16 + (trans_b ? (long)j0 * k + k0 : (long)k0 * n + j0),
                          trans_b ? 1 : n, trans_b ? k : 1, right);
            lp_tile_nn(rows, cols, depth, left, size, right, size, sum, size, 1);
        }
        for (int i = 0; i < rows; i++) {
            float *out = c + (long)(i0 + i) * ldc + j0;
            for (int j = 0; j < cols; j++) {
                const float old = beta == 0.0f ? 0.0f : beta * out[j];
                out[j] = alpha * sum[i * size + j] + old;
            }
        }
    }
}

#endif
#endif
