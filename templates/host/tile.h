/* tile.h - products of small packed matrices held in registers, and the packing they want.
 *
 * A tile product computes C[m][n] (+)= A B, B row-major, its rows readable up to n rounded up to
 * LP_TILE_PAD (pad them with zeros). C is written in exactly n columns. Each element of C is one
 * chain of multiply-adds over k in rising order, whatever m and n: a product cut along m or n has
 * the same bits. */
#ifndef LP_TILE_H
#define LP_TILE_H

#include <string.h>

#if defined(_OPENMP)
#include <omp.h>
#endif

#define LP_MAYBE_UNUSED __attribute__((unused))
#define LP_INLINE inline __attribute__((always_inline))

/* Tiles are padded to the widest vector in use anywhere, so scratch sizes are the same on every
 * machine. */
#define LP_TILE_PAD 16
#define LP_TILE_ROUND(n) (((n) + LP_TILE_PAD - 1) / LP_TILE_PAD * LP_TILE_PAD)

#if defined(__AVX512F__)
#define LP_VEC 16
#define LP_TILE_ROWS 8
#elif defined(__AVX__)
#define LP_VEC 8
#define LP_TILE_ROWS 4
#else
#define LP_VEC 4
#define LP_TILE_ROWS 4
#endif

typedef float LpVec __attribute__((vector_size(LP_VEC * 4), aligned(4), may_alias));

static LP_INLINE int lp_thread_index(void)
{
#if defined(_OPENMP)
    return omp_get_thread_num();
#else
    return 0;
#endif
}

static LP_INLINE int lp_thread_count(void)
{
#if defined(_OPENMP)
    return omp_get_num_threads();
#else
    return 1;
#endif
}

/* rows x (2 LP_VEC) or rows x LP_VEC elements of C in registers. a_row and a_col are the steps of
 * A; one of them is the constant 1. rows and pair are constants after inlining. */
static LP_INLINE void lp_tile_block(const int rows, const int pair, int k, const float *a,
                                    long a_row, long a_col, const float *b, long ldb, float *c,
                                    long ldc, int cols, int add)
{
    LpVec lo[LP_TILE_ROWS];
    LpVec hi[LP_TILE_ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        lo[i] = hi[i] = (LpVec){0};
    }
#pragma GCC unroll 2
    for (int x = 0; x < k; x++) {
        const LpVec b0 = *(const LpVec *)(b + x * ldb);
        const LpVec b1 = pair ? *(const LpVec *)(b + x * ldb + LP_VEC) : b0;
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const float s = a[i * a_row + x * a_col];
            lo[i] += s * b0;
            if (pair) {
                hi[i] += s * b1;
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        float *row = c + i * ldc;
        if (cols == (pair + 1) * LP_VEC) {
            LpVec *out = (LpVec *)row;
            if (add) {
                lo[i] += *out;
            }
            *out = lo[i];
            if (pair) {
                out = (LpVec *)(row + LP_VEC);
                if (add) {
                    hi[i] += *out;
                }
                *out = hi[i];
            }
        } else {
            float tail[2 * LP_VEC];
            memcpy(tail, &lo[i], sizeof lo[i]);
            memcpy(tail + LP_VEC, &hi[i], sizeof hi[i]);
            for (int j = 0; j < cols; j++) {
                row[j] = add ? row[j] + tail[j] : tail[j];
            }
        }
    }
}

static LP_INLINE void lp_tile_any(const int transposed, int m, int n, int k, const float *a,
                                  long lda, const float *b, long ldb, float *c, long ldc, int add)
{
    const long a_row = transposed ? 1 : lda;
    const long a_col = transposed ? lda : 1;
    for (int j = 0; j < n; j += 2 * LP_VEC) {
        const int cols = n - j < 2 * LP_VEC ? n - j : 2 * LP_VEC;
        int i = 0;
        if (cols > LP_VEC) {
            for (; i + LP_TILE_ROWS <= m; i += LP_TILE_ROWS) {
                lp_tile_block(LP_TILE_ROWS, 1, k, a + i * a_row, a_row, a_col, b + j, ldb,
                              c + i * ldc + j, ldc, cols, add);
            }
            for (; i < m; i++) {
                lp_tile_block(1, 1, k, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j,
                              ldc, cols, add);
            }
        } else {
            for (; i + LP_TILE_ROWS <= m; i += LP_TILE_ROWS) {
                lp_tile_block(LP_TILE_ROWS, 0, k, a + i * a_row, a_row, a_col, b + j, ldb,
                              c + i * ldc + j, ldc, cols, add);
            }
            for (; i < m; i++) {
                lp_tile_block(1, 0, k, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j,
                              ldc, cols, add);
            }
        }
    }
}

/* C (+)= A B with A[m][k]. */
static LP_MAYBE_UNUSED void lp_tile_nn(int m, int n, int k, const float *a, long lda,
                                       const float *b, long ldb, float *c, long ldc, int add)
{
    lp_tile_any(0, m, n, k, a, lda, b, ldb, c, ldc, add);
}

/* C (+)= A^T B with A[k][m]. */
static LP_MAYBE_UNUSED void lp_tile_tn(int m, int n, int k, const float *a, long lda,
                                       const float *b, long ldb, float *c, long ldc, int add)
{
    lp_tile_any(1, m, n, k, a, lda, b, ldb, c, ldc, add);
}

/* dst[rows][ldd] = scale * src, columns cols .. round(cols) zeroed. */
static LP_MAYBE_UNUSED void lp_tile_pack(int rows, int cols, const float *src, long lds, float *dst,
                                         long ldd, float scale)
{
    const int wide = LP_TILE_ROUND(cols);
    for (int i = 0; i < rows; i++) {
        const float *s = src + i * lds;
        float *d = dst + i * ldd;
#pragma omp simd
        for (int j = 0; j < cols; j++) {
            d[j] = s[j] * scale;
        }
        for (int j = cols; j < wide; j++) {
            d[j] = 0.0f;
        }
    }
}

/* dst[cols][ldd] = scale * transpose(src[rows][lds]), columns rows .. round(rows) zeroed. Blocks of
 * 4 x 4 become vector shuffles; a plain strided loop would become gathers, half as fast. */
static LP_MAYBE_UNUSED void lp_tile_transpose(int rows, int cols, const float *src, long lds,
                                              float *dst, long ldd, float scale)
{
    const int whole_rows = rows / 4 * 4;
    const int whole_cols = cols / 4 * 4;
    for (int i = 0; i < whole_rows; i += 4) {
        for (int j = 0; j < whole_cols; j += 4) {
            const float *s = src + i * lds + j;
            float *d = dst + j * ldd + i;
            float block[16];
            for (int x = 0; x < 4; x++) {
                for (int y = 0; y < 4; y++) {
                    block[y * 4 + x] = s[x * lds + y] * scale;
                }
            }
            for (int y = 0; y < 4; y++) {
                for (int x = 0; x < 4; x++) {
                    d[y * ldd + x] = block[y * 4 + x];
                }
            }
        }
    }
    for (int j = 0; j < cols; j++) {
        float *d = dst + j * ldd;
        for (int i = j < whole_cols ? whole_rows : 0; i < rows; i++) {
            d[i] = src[i * lds + j] * scale;
        }
        for (int i = rows; i < LP_TILE_ROUND(rows); i++) {
            d[i] = 0.0f;
        }
    }
}

#endif
