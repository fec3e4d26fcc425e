/* embedding.c - table lookup and its gradient, for the rows [base, base + rows) of a table.
 *
 * A vocabulary shard sees the ids of all ranks: an id outside the shard gives a zero row forward
 * and nothing backward, so that the sum over the shards is the whole table's result. Backward adds
 * in the order of the positions, each thread in columns of its own: no atomics, and the same bits
 * for any number of threads. */
#ifndef LP_EMBEDDING_C
#define LP_EMBEDDING_C

#include <stdint.h>
#include <string.h>

#include "templates/host/real.h"
#include "templates/host/tile.h"

/* A thread's part of the gradient's columns is whole cache lines, else threads share lines. */
#define LP_EMBEDDING_COLUMNS 16

static LP_MAYBE_UNUSED void lp_embedding_forward(long n, long rows, int d, long base,
                                                 const int32_t *ids, const LpReal *w, LpReal *out,
                                                 long out_stride, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long i = 0; i < n; i++) {
        const long row = ids[i] - base;
        LpReal *to = out + i * out_stride;
        if (row >= 0 && row < rows) {
            memcpy(to, w + row * d, (size_t)d * sizeof *to);
        } else {
            memset(to, 0, (size_t)d * sizeof *to);
        }
    }
}

/* `wide`, a constant after inlining: dout is fp32, not as stored. */
static LP_INLINE void lp_embedding_add(const int wide, int first, int last, const void *dout,
                                       long at, float *restrict to)
{
    const LpReal *restrict stored = (const LpReal *)dout + (wide ? 0 : at);
    const float *restrict plain = (const float *)dout + (wide ? at : 0);
#pragma omp simd
    for (int x = first; x < last; x++) {
        to[x] += wide ? plain[x] : lp_float_of_real(stored[x]);
    }
}

static LP_INLINE void lp_embedding_scatter(const int wide, long n, long rows, int d, long base,
                                           const int32_t *ids, const void *dout, long dout_stride,
                                           float *dw, int overwrite, int threads)
{
    const int parts = (d + LP_EMBEDDING_COLUMNS - 1) / LP_EMBEDDING_COLUMNS;
#pragma omp parallel num_threads(threads)
    {
        if (overwrite) {
#pragma omp for schedule(static)
            for (long row = 0; row < rows; row++) {
                memset(dw + row * d, 0, (size_t)d * sizeof *dw);
            }
        }
        /* One share of columns for each thread, not one task for each part: a row's columns are
         * then read in one run. */
        const int count = lp_thread_count();
        const int first = (int)((long)parts * lp_thread_index() / count) * LP_EMBEDDING_COLUMNS;
        const int end = (int)((long)parts * (lp_thread_index() + 1) / count) * LP_EMBEDDING_COLUMNS;
        const int last = end < d ? end : d;
        for (long i = 0; i < n; i++) {
            const long row = ids[i] - base;
            if (row < 0 || row >= rows) {
                continue;
            }
            lp_embedding_add(wide, first, last, dout, i * dout_stride, dw + row * d);
        }
    }
}

static LP_MAYBE_UNUSED void lp_embedding_backward(long n, long rows, int d, long base,
                                                  const int32_t *ids, const LpReal *dout,
                                                  long dout_stride, float *dw, int overwrite,
                                                  int threads)
{
    lp_embedding_scatter(!LP_REAL_NARROW, n, rows, d, base, ids, dout, dout_stride, dw, overwrite,
                         threads);
}

/* The same of gradients in fp32: sums over the sequences of a batch, as those of positions are. */
static LP_MAYBE_UNUSED void lp_embedding_backward_wide(long n, long rows, int d, long base,
                                                       const int32_t *ids, const float *dout,
                                                       long dout_stride, float *dw, int overwrite,
                                                       int threads)
{
    lp_embedding_scatter(1, n, rows, d, base, ids, dout, dout_stride, dw, overwrite, threads);
}

#endif
