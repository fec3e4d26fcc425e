/* gemm_typed.h - matrix products of operands and results that are each stored as bf16, fp16 or
 * fp32; sums are fp32.
 *
 * Two operands in bf16 are multiplied by oneDNN under LP_ONEDNN (AMX or AVX512_BF16) where the
 * machine has instructions for it; all others, and all without it, block by block as floats, in an
 * order that does not depend on the number of threads. Call it outside parallel regions. */
#ifndef LP_GEMM_TYPED_H
#define LP_GEMM_TYPED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "templates/host/math.h"
#include "templates/host/tile.h"

#if defined(LP_ONEDNN)
#include <oneapi/dnnl/dnnl.h>
#if DNNL_VERSION_MAJOR != 2
#error "gemm_typed.h is written for oneDNN 2; build without LP_ONEDNN"
#endif
#endif

typedef enum LpElement { LP_ELEMENT_F32, LP_ELEMENT_BF16, LP_ELEMENT_F16 } LpElement;

/* A matrix, row-major; rows of `ld` elements. */
typedef struct LpMatrix {
    void *at;
    LpElement element;
    int ld;
} LpMatrix;

#if defined(LP_ONEDNN)

#define LP_DNNL_PRIMITIVES 512

typedef struct LpDnnlKey {
    int trans_a, trans_b, m, n, k, lda, ldb, ldc;
    LpElement result;
    float alpha, beta;
} LpDnnlKey;

/* Making a primitive takes about a millisecond, a product may take less: one of each kind is kept;
 * none where the machine has no instructions for it. The trainer's shapes are few and known. Ranks
 * may be threads of one process, and an execution sets the handles of its primitive's memory: each
 * rank has its own. */
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
        fprintf(stderr, "lp_gemm_typed: oneDNN refused %s (status %d); build without LP_ONEDNN\n",
                what, (int)status);
        exit(70);
    }
}

static void lp_dnnl_make(LpDnnl *x, const LpDnnlKey *key, void *a, void *b, void *c)
{
    const dnnl_dims_t dims_a = {key->m, key->k};
    const dnnl_dims_t dims_b = {key->k, key->n};
    const dnnl_dims_t dims_c = {key->m, key->n};
    const dnnl_dims_t step_a = {key->trans_a ? 1 : key->lda, key->trans_a ? key->lda : 1};
    const dnnl_dims_t step_b = {key->trans_b ? 1 : key->ldb, key->trans_b ? key->ldb : 1};
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
    lp_dnnl_check(
        dnnl_memory_desc_init_by_strides(
            &mc, 2, dims_c, key->result == LP_ELEMENT_BF16 ? dnnl_bf16 : dnnl_f32, step_c),
        "C");
    lp_dnnl_check(dnnl_primitive_attr_create(&attr), "attributes");
    lp_dnnl_check(dnnl_primitive_attr_set_output_scales(attr, 1, 0, &key->alpha), "alpha");
    lp_dnnl_check(dnnl_post_ops_create(&post), "post-ops");
    if (key->beta != 0.0f) {
        lp_dnnl_check(dnnl_post_ops_append_sum(post, key->beta), "beta");
    }
    lp_dnnl_check(dnnl_primitive_attr_set_post_ops(attr, post), "post-ops");
    lp_dnnl_check(dnnl_matmul_desc_init(&desc, &ma, &mb, NULL, &mc), "the product");
    const dnnl_status_t status =
        dnnl_primitive_desc_create(&primitive, &desc, attr, x->engine, NULL);
    if (status != dnnl_unimplemented) {
        lp_dnnl_check(status, "the product");
        lp_dnnl_check(dnnl_primitive_create(&x->made[x->count].product, primitive), "the product");
        lp_dnnl_check(dnnl_memory_create(&x->made[x->count].a, &ma, x->engine, a), "A");
        lp_dnnl_check(dnnl_memory_create(&x->made[x->count].b, &mb, x->engine, b), "B");
        lp_dnnl_check(dnnl_memory_create(&x->made[x->count].c, &mc, x->engine, c), "C");
        dnnl_primitive_desc_destroy(primitive);
    }
    dnnl_post_ops_destroy(post);
    dnnl_primitive_attr_destroy(attr);
    x->keys[x->count++] = *key;
}

static int lp_dnnl_find(LpDnnl *x, const LpDnnlKey *key, void *a, void *b, void *c)
{
    for (int i = 0; i < x->count; i++) {
        const LpDnnlKey *y = &x->keys[i];
        if (y->trans_a == key->trans_a && y->trans_b == key->trans_b && y->m == key->m &&
            y->n == key->n && y->k == key->k && y->lda == key->lda && y->ldb == key->ldb &&
            y->ldc == key->ldc && y->result == key->result && y->alpha == key->alpha &&
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

/* False where this machine's oneDNN has no such product. */
static int lp_dnnl_run(const LpDnnlKey *key, void *a, void *b, void *c)
{
    const int i = lp_dnnl_find(&lp_dnnl, key, a, b, c);
    if (!lp_dnnl.made[i].product) {
        return 0;
    }
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, lp_dnnl.made[i].a},
                                    {DNNL_ARG_WEIGHTS, lp_dnnl.made[i].b},
                                    {DNNL_ARG_DST, lp_dnnl.made[i].c}};
    lp_dnnl_check(dnnl_memory_set_data_handle(lp_dnnl.made[i].a, a), "A");
    lp_dnnl_check(dnnl_memory_set_data_handle(lp_dnnl.made[i].b, b), "B");
    lp_dnnl_check(dnnl_memory_set_data_handle(lp_dnnl.made[i].c, c), "C");
    lp_dnnl_check(dnnl_primitive_execute(lp_dnnl.made[i].product, lp_dnnl.stream, 3, args),
                  "to run");
    lp_dnnl_check(dnnl_stream_wait(lp_dnnl.stream), "to finish");
    return 1;
}

#endif

#define LP_GEMM_BLOCK 128

static LP_INLINE float lp_element(const void *x, LpElement element, long i)
{
    return element == LP_ELEMENT_F32    ? ((const float *)x)[i]
           : element == LP_ELEMENT_BF16 ? lp_float_of_bf16(((const uint16_t *)x)[i])
                                        : lp_float_of_f16(((const uint16_t *)x)[i]);
}

/* out[i][j] = x(i, j) as float, where x(i, j) is element first + i * row + j * col; out rows are
 * LP_GEMM_BLOCK apart and zero from column cols on. `element` is a constant after inlining. */
static LP_INLINE void lp_gemm_load(const LpElement element, int rows, int cols, const void *x,
                                   long first, long row, long col, float *out)
{
    for (int i = 0; i < rows; i++) {
        float *to = out + i * LP_GEMM_BLOCK;
        if (col == 1) {
#pragma omp simd
            for (int j = 0; j < cols; j++) {
                to[j] = lp_element(x, element, first + i * row + j);
            }
        } else {
            for (int j = 0; j < cols; j++) {
                to[j] = lp_element(x, element, first + i * row + j * col);
            }
        }
        for (int j = cols; j < LP_GEMM_BLOCK; j++) {
            to[j] = 0.0f;
        }
    }
}

static void lp_gemm_block(const LpMatrix *x, int trans, int i0, int j0, int rows, int cols,
                          float *out)
{
    const long first = trans ? (long)j0 * x->ld + i0 : (long)i0 * x->ld + j0;
    const long row = trans ? 1 : x->ld;
    const long col = trans ? x->ld : 1;
    if (x->element == LP_ELEMENT_BF16) {
        lp_gemm_load(LP_ELEMENT_BF16, rows, cols, x->at, first, row, col, out);
    } else if (x->element == LP_ELEMENT_F16) {
        lp_gemm_load(LP_ELEMENT_F16, rows, cols, x->at, first, row, col, out);
    } else {
        lp_gemm_load(LP_ELEMENT_F32, rows, cols, x->at, first, row, col, out);
    }
}

static LP_INLINE void lp_gemm_store(const LpMatrix *c, long i, float x)
{
    if (c->element == LP_ELEMENT_F32) {
        ((float *)c->at)[i] = x;
    } else {
        ((uint16_t *)c->at)[i] =
            c->element == LP_ELEMENT_BF16 ? lp_bf16_of_float(x) : lp_f16_of_float(x);
    }
}

/* A task is a block of C: nothing is shared, so the bits do not depend on the threads. */
static void lp_gemm_blocks(int trans_a, int trans_b, int m, int n, int k, float alpha,
                           const LpMatrix *a, const LpMatrix *b, float beta, const LpMatrix *c)
{
    const int size = LP_GEMM_BLOCK;
    const long down = (m + size - 1) / size;
    const long across = (n + size - 1) / size;
#pragma omp parallel for schedule(static)
    for (long task = 0; task < down * across; task++) {
        float left[LP_GEMM_BLOCK * LP_GEMM_BLOCK];
        float right[LP_GEMM_BLOCK * LP_GEMM_BLOCK];
        float sum[LP_GEMM_BLOCK * LP_GEMM_BLOCK] = {0};
        const int i0 = (int)(task % down) * size;
        const int j0 = (int)(task / down) * size;
        const int rows = m - i0 < size ? m - i0 : size;
        const int cols = n - j0 < size ? n - j0 : size;
        for (int k0 = 0; k0 < k; k0 += size) {
            const int depth = k - k0 < size ? k - k0 : size;
            lp_gemm_block(a, trans_a, i0, k0, rows, depth, left);
            lp_gemm_block(b, trans_b, k0, j0, depth, cols, right);
            lp_tile_nn(rows, cols, depth, left, size, right, size, sum, size, 1);
        }
        for (int i = 0; i < rows; i++) {
            const long out = (long)(i0 + i) * c->ld + j0;
            for (int j = 0; j < cols; j++) {
                const float old =
                    beta == 0.0f ? 0.0f : beta * lp_element(c->at, c->element, out + j);
                lp_gemm_store(c, out + j, alpha * sum[i * size + j] + old);
            }
        }
    }
}

/* C[m][n] = alpha op(A)[m][k] op(B)[k][n] + beta C; beta == 0 never reads C. */
static LP_MAYBE_UNUSED void lp_gemm_typed(int trans_a, int trans_b, int m, int n, int k,
                                          float alpha, LpMatrix a, LpMatrix b, float beta,
                                          LpMatrix c)
{
#if defined(LP_ONEDNN)
    const LpDnnlKey key = {trans_a != 0, trans_b != 0, m,         n,     k,   a.ld,
                           b.ld,         c.ld,         c.element, alpha, beta};
    if (a.element == LP_ELEMENT_BF16 && b.element == LP_ELEMENT_BF16 &&
        c.element != LP_ELEMENT_F16 && lp_dnnl_run(&key, a.at, b.at, c.at)) {
        return;
    }
#endif
    lp_gemm_blocks(trans_a, trans_b, m, n, k, alpha, &a, &b, beta, &c);
}

#endif
