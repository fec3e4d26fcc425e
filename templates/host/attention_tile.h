/* attention_tile.h - a tile of keys against a tile of queries: who sees whom, scores, products.
 *
 * What attention.c is made of; its head says what a score is and how tensors lie. Scores are
 * transposed: st[key][query]. */
#ifndef LP_ATTENTION_TILE_H
#define LP_ATTENTION_TILE_H

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "templates/host/draw.h"
#include "templates/host/math.h"
#include "templates/host/real.h"
#include "templates/host/tile.h"

/* TUNE: at D = 64 a score tile is 32 KiB; 128 keys beat 64 by 5% at T = 1024 and equal it below. */
#define LP_ATTENTION_QUERIES 64
#define LP_ATTENTION_KEYS 128

/* Per thread: forward qt, v, acc, st and three statistics rows; backward qt, dot, q, dout, k, dq,
 * st, dpt. Both in floats, d the width of queries and keys, e that of values; then times threads.
 * Stored in 16 bits, also forward k; backward v, dk, dv. */
#define LP_ATTENTION_FORWARD_FLOATS(d, e)                                                          \
    ((size_t)LP_TILE_ROUND(d) * LP_ATTENTION_QUERIES +                                             \
     (size_t)LP_TILE_ROUND(e) * (LP_ATTENTION_QUERIES + LP_ATTENTION_KEYS) +                       \
     LP_ATTENTION_QUERIES * (LP_ATTENTION_KEYS + 4) +                                              \
     LP_REAL_NARROW * (size_t)LP_TILE_ROUND(d) * LP_ATTENTION_KEYS)
#define LP_ATTENTION_BACKWARD_FLOATS(d, e)                                                         \
    ((size_t)LP_TILE_ROUND(d) * (3 * LP_ATTENTION_QUERIES + LP_ATTENTION_KEYS) +                   \
     (size_t)LP_TILE_ROUND(e) * (2 * LP_ATTENTION_QUERIES) +                                       \
     LP_ATTENTION_QUERIES * (2 * LP_ATTENTION_KEYS + 2) +                                          \
     LP_REAL_NARROW * LP_ATTENTION_KEYS *                                                          \
         ((size_t)LP_TILE_ROUND(d) + 2 * (size_t)LP_TILE_ROUND(e)))
#define LP_ATTENTION_FORWARD_BYTES(d, e, threads)                                                  \
    (LP_ATTENTION_FORWARD_FLOATS(d, e) * sizeof(float) * (size_t)(threads))
#define LP_ATTENTION_BACKWARD_BYTES(d, e, threads)                                                 \
    (LP_ATTENTION_BACKWARD_FLOATS(d, e) * sizeof(float) * (size_t)(threads))

typedef struct LpAttention {
    int b, s, t, g, r; /* batch, queries, keys, kv heads, query heads per kv head */
    int d, e;          /* width of queries and keys, of values */
    long q_stride, k_stride, v_stride, o_stride;
    long dq_stride, dk_stride, dv_stride, do_stride; /* backward only */
    float scale;
    int causal;
    int window;          /* 0: none */
    long base_q, base_k; /* global place of row 0 of q and of k */
    int chunk;           /* 0: none */
    float softcap;       /* 0: none */
    const float *slopes; /* [g][r], or NULL */
    const int *starts;   /* [b][s], or NULL */
    const int *words;    /* [b][s][g][r], or NULL: what each row draws by, to drop shares out */
    unsigned below;      /* a share is dropped when its word is below this */
    float kept;          /* what the others are multiplied by */
    long run, runs;      /* places are those of a sequence dealt out (lp_position); 0: positions */
    int wide;            /* results are fp32 whatever LpReal is: terms of a sum over blocks */
} LpAttention;

/* Rows [begin, end) of queries or keys that are neighbours in position too: row i is at base + i.
 */
typedef struct LpSpan {
    int begin, end;
    long base;
} LpSpan;

/* One tile of keys j0 .. j0 + keys against one tile of queries i0 .. i0 + queries. */
typedef struct LpTilePair {
    int i0, queries, j0, keys;
    long shift;        /* query i0 + i sees key j0 + j causally iff i + shift >= j */
    int masked;        /* some pair of the tile is hidden */
    const int *starts; /* of the tile's queries, or NULL where they hide nothing */
    float slope;       /* of the head's linear bias; 0: none */
    const int *words;  /* of the tile's queries, those of all heads apart, or NULL */
} LpTilePair;

/* The head and the sequence of a tile, as far as scores depend on them. */
typedef struct LpSight {
    const int *starts; /* of the sequence's queries, or NULL */
    float slope;
    const int *words; /* of the sequence's queries, or NULL */
} LpSight;

static LP_INLINE int lp_min_int(int x, int y)
{
    return x < y ? x : y;
}

static LP_INLINE int lp_clamp_int(long x, int low, int high)
{
    return x < low ? low : x > high ? high : (int)x;
}

/* The rows from `from` on, of n whose first one is at place `base`, to the end of their run. */
static LP_INLINE LpSpan lp_span(const LpAttention *a, long base, int n, int from)
{
    if (a->runs == 0) {
        return (LpSpan){from, n, base};
    }
    const long place = base + from;
    const int end = lp_clamp_int(from + a->run - place % a->run, 0, n);
    return (LpSpan){from, end, lp_position(place, a->run, a->runs) - from};
}

/* Tiles of queries: each has neighbours in position alone. */
static LP_INLINE int lp_query_tiles(const LpAttention *a)
{
    int tiles = 0;
    for (LpSpan q = {0}; q.end < a->s;) {
        q = lp_span(a, a->base_q, a->s, q.end);
        tiles += (q.end - q.begin + LP_ATTENTION_QUERIES - 1) / LP_ATTENTION_QUERIES;
    }
    return tiles;
}

static LP_INLINE LpSpan lp_query_tile(const LpAttention *a, int index)
{
    LpSpan q = {0};
    while (q.end < a->s) {
        q = lp_span(a, a->base_q, a->s, q.end);
        const int tiles = (q.end - q.begin + LP_ATTENTION_QUERIES - 1) / LP_ATTENTION_QUERIES;
        if (index < tiles) {
            break;
        }
        index -= tiles;
    }
    q.begin += index * LP_ATTENTION_QUERIES;
    q.end = lp_min_int(q.end, q.begin + LP_ATTENTION_QUERIES);
    return q;
}

/* The same attention where rows of a tile of queries and of a span of keys are neighbours. */
static LP_INLINE LpAttention lp_attention_at(const LpAttention *a, LpSpan q)
{
    LpAttention at = *a;
    at.base_q = q.base;
    return at;
}

static LP_INLINE LpSight lp_attention_sight(const LpAttention *a, long batch, int head)
{
    return (LpSight){.starts = a->starts ? a->starts + batch * a->s : NULL,
                     .slope = a->slopes ? a->slopes[head] : 0.0f,
                     .words = a->words ? a->words + batch * a->s * a->g * a->r + head : NULL};
}

/* The tile's first key that query i of it sees by window and chunk, and behind the last one. */
static LP_INLINE long lp_first_key(const LpAttention *a, long base_q, long base_k, long i)
{
    long first = a->window > 0 ? base_q + i - a->window + 1 - base_k : 0;
    if (a->chunk > 0) {
        const long begin = (base_q + i) / a->chunk * a->chunk - base_k;
        first = begin > first ? begin : first;
    }
    return first;
}

static LP_INLINE long lp_last_key(const LpAttention *a, long base_q, long base_k, long i, long keys)
{
    long last = a->causal ? base_q + i + 1 - base_k : keys;
    if (a->chunk > 0) {
        const long end = ((base_q + i) / a->chunk + 1) * a->chunk - base_k;
        last = end < last ? end : last;
    }
    return last;
}

/* The keys of a span that a tile of queries sees: [*ret_first, *ret_last), the first on a tile
 * border, counted from the span's begin. base_q and base_k of `a` are those of tile and span. */
static LP_MAYBE_UNUSED void lp_attention_keys(const LpAttention *a, const LpSight *sight, LpSpan q,
                                              LpSpan k, int *ret_first, int *ret_last)
{
    const int i0 = q.begin;
    const int queries = q.end - q.begin;
    long first = lp_first_key(a, a->base_q, a->base_k, i0);
    if (sight->starts) {
        long earliest = sight->starts[i0];
        for (int i = 1; i < queries; i++) {
            const int start = sight->starts[i0 + i];
            earliest = start < earliest ? start : earliest;
        }
        first = earliest - a->base_k > first ? earliest - a->base_k : first;
    }
    const int skipped = lp_clamp_int(first, k.begin, k.end) - k.begin;
    *ret_first = k.begin + skipped / LP_ATTENTION_KEYS * LP_ATTENTION_KEYS;
    *ret_last =
        lp_clamp_int(lp_last_key(a, a->base_q, a->base_k, i0 + queries - 1, k.end), k.begin, k.end);
}

static LP_MAYBE_UNUSED LpTilePair lp_tile_pair(const LpAttention *a, const LpSight *sight, int i0,
                                               int queries, int j0, int last)
{
    const long base_q = a->base_q + i0;
    const long base_k = a->base_k + j0;
    LpTilePair p = {.i0 = i0, .queries = queries, .j0 = j0, .slope = sight->slope};
    p.keys = lp_min_int(LP_ATTENTION_KEYS, last - j0);
    p.words = sight->words ? sight->words + (long)i0 * a->g * a->r : NULL;
    p.shift = base_q - base_k;
    p.masked = lp_first_key(a, base_q, base_k, queries - 1) > 0 ||
               lp_last_key(a, base_q, base_k, 0, p.keys) < p.keys;
    for (int i = 0; sight->starts && i < queries; i++) {
        if (sight->starts[i0 + i] > base_k) {
            p.starts = sight->starts + i0;
            p.masked = 1;
        }
    }
    return p;
}

/* The queries of the tile that see key j of the tile but for their starts: [*ret_low, *ret_high),
 * maybe empty. */
static LP_INLINE void lp_tile_queries(const LpAttention *a, const LpTilePair *p, int j,
                                      int *ret_low, int *ret_high)
{
    long low = a->causal ? j - p->shift : 0;
    long high = a->window > 0 ? j - p->shift + a->window : p->queries;
    if (a->chunk > 0) {
        const long base_q = a->base_q + p->i0;
        const long begin = (a->base_k + p->j0 + j) / a->chunk * a->chunk - base_q;
        low = begin > low ? begin : low;
        high = begin + a->chunk < high ? begin + a->chunk : high;
    }
    *ret_low = lp_clamp_int(low, 0, p->queries);
    *ret_high = lp_clamp_int(high, 0, p->queries);
}

/* The columns, in whole vectors, that keys j .. j + keys of the tile need. */
static LP_INLINE void lp_tile_columns(const LpAttention *a, const LpTilePair *p, int j, int keys,
                                      int *ret_low, int *ret_high)
{
    int low = 0;
    int high = 0;
    int unused = 0;
    lp_tile_queries(a, p, j, &low, &unused);
    lp_tile_queries(a, p, j + keys - 1, &unused, &high);
    *ret_low = low / LP_TILE_PAD * LP_TILE_PAD;
    *ret_high = LP_TILE_ROUND(high);
}

/* st[key][query] = x[key] . yt[.][query], in the columns that are needed. x rows are x_stride
 * apart; yt is [width][LP_ATTENTION_QUERIES]. */
static LP_MAYBE_UNUSED void lp_tile_scores(const LpAttention *a, const LpTilePair *p, int width,
                                           const float *x, long x_stride, const float *yt,
                                           float *st)
{
    const int n = LP_ATTENTION_QUERIES;
    if (!p->masked) {
        lp_tile_nn(p->keys, LP_TILE_ROUND(p->queries), width, x, x_stride, yt, n, st, n, 0);
        return;
    }
    for (int j = 0; j < p->keys; j += LP_TILE_PAD) {
        const int keys = lp_min_int(LP_TILE_PAD, p->keys - j);
        int low = 0;
        int high = 0;
        lp_tile_columns(a, p, j, keys, &low, &high);
        if (low < high) {
            lp_tile_nn(keys, high - low, width, x + j * x_stride, x_stride, yt + low, n,
                       st + (long)j * n + low, n, 0);
        }
    }
}

/* In a masked tile, products over keys or queries go by blocks of this many rows, each with the
 * part of the sum that is not hidden from all of it. */
#define LP_ATTENTION_BLOCK 8

static LP_MAYBE_UNUSED void lp_clear_rows(int rows, int n, float *x, long stride)
{
    for (int i = 0; i < rows; i++) {
        memset(x + i * stride, 0, (size_t)n * sizeof *x);
    }
}

/* out[query][n] (+)= sum over keys of st[key][query] y[key][n]; hidden pairs of st hold 0. */
static LP_MAYBE_UNUSED void lp_tile_over_keys(const LpAttention *a, const LpTilePair *p, int n,
                                              const float *st, const float *y, long y_stride,
                                              float *out, long out_stride, int add)
{
    const int ld = LP_ATTENTION_QUERIES;
    if (!p->masked) {
        lp_tile_tn(p->queries, n, p->keys, st, ld, y, y_stride, out, out_stride, add);
        return;
    }
    for (int i = 0; i < p->queries; i += LP_ATTENTION_BLOCK) {
        const int some = lp_min_int(LP_ATTENTION_BLOCK, p->queries - i);
        const long base_q = a->base_q + p->i0;
        const long base_k = a->base_k + p->j0;
        const int low = lp_clamp_int(lp_first_key(a, base_q, base_k, i), 0, p->keys);
        const int high =
            lp_clamp_int(lp_last_key(a, base_q, base_k, i + some - 1, p->keys), 0, p->keys);
        if (low < high) {
            lp_tile_tn(some, n, high - low, st + (long)low * ld + i, ld, y + low * y_stride,
                       y_stride, out + i * out_stride, out_stride, add);
        } else if (!add) {
            lp_clear_rows(some, n, out + i * out_stride, out_stride);
        }
    }
}

/* out[key][n] (+)= sum over queries of st[key][query] y[query][n]; hidden pairs of st hold 0. */
static LP_MAYBE_UNUSED void lp_tile_over_queries(const LpAttention *a, const LpTilePair *p, int n,
                                                 const float *st, const float *y, long y_stride,
                                                 float *out, long out_stride, int add)
{
    const int ld = LP_ATTENTION_QUERIES;
    if (!p->masked) {
        lp_tile_nn(p->keys, n, p->queries, st, ld, y, y_stride, out, out_stride, add);
        return;
    }
    for (int j = 0; j < p->keys; j += LP_ATTENTION_BLOCK) {
        const int keys = lp_min_int(LP_ATTENTION_BLOCK, p->keys - j);
        int low = 0;
        int high = 0;
        int unused = 0;
        lp_tile_queries(a, p, j, &low, &unused);
        lp_tile_queries(a, p, j + keys - 1, &unused, &high);
        if (low < high) {
            lp_tile_nn(keys, n, high - low, st + (long)j * ld + low, ld, y + low * y_stride,
                       y_stride, out + j * out_stride, out_stride, add);
        } else if (!add) {
            lp_clear_rows(keys, n, out + j * out_stride, out_stride);
        }
    }
}

/* The whole vectors of row j of a tile that hold its seen pairs, for elementwise work. Hidden pairs
 * within them get the value `hidden`. Outside, the row becomes 0 as far as the blocks of the
 * products reach; beyond, nobody reads. */
static LP_INLINE void lp_tile_seen(const LpAttention *a, const LpTilePair *p, int j, float *row,
                                   float hidden, int *ret_low, int *ret_high)
{
    const int wide = LP_TILE_ROUND(p->queries);
    int low = 0;
    int high = wide;
    if (p->masked) {
        lp_tile_queries(a, p, j, &low, &high);
    }
    *ret_low = low / LP_TILE_PAD * LP_TILE_PAD;
    *ret_high = LP_TILE_ROUND(high);
    if (p->masked) {
        /* The next key's queries are one further on at most, but for chunks. */
        const int begin = a->chunk > 0 || low < LP_ATTENTION_BLOCK ? 0 : low - LP_ATTENTION_BLOCK;
        const int end = a->chunk > 0 ? wide : lp_min_int(high + LP_ATTENTION_BLOCK - 1, wide);
        for (int i = begin; i < *ret_low; i++) {
            row[i] = 0.0f;
        }
        for (int i = *ret_low; i < low; i++) {
            row[i] = hidden;
        }
        for (int i = high; i < *ret_high; i++) {
            row[i] = hidden;
        }
        for (int i = *ret_high; i < end; i++) {
            row[i] = 0.0f;
        }
        if (p->starts) {
            const int key = (int)(a->base_k + p->j0 + j);
            for (int i = low; i < high; i++) {
                row[i] = p->starts[i] > key ? hidden : row[i];
            }
        }
    }
}

/* Scores that are more than products: the cap, then the head's linear bias, in the columns of each
 * key that lp_tile_seen leaves. In backward dpt becomes (dpt - delta) times the slope of the cap.
 */
static LP_MAYBE_UNUSED void lp_tile_bend(const LpAttention *a, const LpTilePair *p, float *st,
                                         float *dpt, const float *restrict delta)
{
    const int ld = LP_ATTENTION_QUERIES;
    const float cap = a->softcap;
    const float inverse = cap > 0.0f ? 1.0f / cap : 0.0f;
    int low = 0;
    int high = LP_TILE_ROUND(p->queries);
    for (int j = 0; j < p->keys; j++) {
        float *restrict row = st + (long)j * ld;
        float *restrict slope = dpt ? dpt + (long)j * ld : NULL;
        const float ahead = (float)(j - p->shift);
        if (p->masked) {
            lp_tile_columns(a, p, j, 1, &low, &high);
        }
        if (slope) {
#pragma omp simd
            for (int i = low; i < high; i++) {
                slope[i] -= delta[i];
            }
        }
        if (cap > 0.0f && slope) {
#pragma omp simd
            for (int i = low; i < high; i++) {
                const float t = lp_tanhf(row[i] * inverse);
                row[i] = cap * t;
                slope[i] *= 1.0f - t * t;
            }
        } else if (cap > 0.0f) {
#pragma omp simd
            for (int i = low; i < high; i++) {
                row[i] = cap * lp_tanhf(row[i] * inverse);
            }
        }
        if (p->slope != 0.0f) {
#pragma omp simd
            for (int i = low; i < high; i++) {
                row[i] += p->slope * (ahead - (float)i);
            }
        }
    }
}

static LP_INLINE int lp_attention_bends(const LpAttention *a)
{
    return a->softcap > 0.0f || a->slopes != NULL;
}

/* One step of the online softmax over a score tile, which becomes exp(score - new maximum).
 * peak, sum: running maximum and sum; ret_shrink: the factor for what was accumulated before. */
static LP_MAYBE_UNUSED void lp_tile_softmax(const LpAttention *a, const LpTilePair *p,
                                            float *restrict st, float *restrict peak,
                                            float *restrict sum, float *restrict ret_shrink)
{
    const int ld = LP_ATTENTION_QUERIES;
    const int wide = LP_TILE_ROUND(p->queries);
    float top[LP_ATTENTION_QUERIES];
    int low = 0;
    int high = wide;
#pragma omp simd
    for (int i = 0; i < wide; i++) {
        top[i] = peak[i];
    }
    for (int j = 0; j < p->keys; j++) {
        float *row = st + (long)j * ld;
        lp_tile_seen(a, p, j, row, -INFINITY, &low, &high);
#pragma omp simd
        for (int i = low; i < high; i++) {
            top[i] = row[i] > top[i] ? row[i] : top[i];
        }
    }
    /* A query that has seen nothing yet has maximum -inf: subtract 0 instead, exp(-inf) is 0. */
    float base[LP_ATTENTION_QUERIES];
#pragma omp simd
    for (int i = 0; i < wide; i++) {
        base[i] = top[i] == -INFINITY ? 0.0f : top[i];
        ret_shrink[i] = lp_expf(peak[i] - base[i]);
        sum[i] *= ret_shrink[i];
        peak[i] = top[i];
    }
    for (int j = 0; j < p->keys; j++) {
        float *row = st + (long)j * ld;
        if (p->masked) {
            lp_tile_columns(a, p, j, 1, &low, &high);
        }
#pragma omp simd
        for (int i = low; i < high; i++) {
            row[i] = lp_expf(row[i] - base[i]);
            sum[i] += row[i];
        }
    }
}

/* Drops out of a tile what the rows' words say of its keys: forward, backward and every rank that
 * holds the pair draw the same. */
static LP_MAYBE_UNUSED void lp_tile_drop(const LpAttention *a, const LpTilePair *p, float *st)
{
    const int ld = LP_ATTENTION_QUERIES;
    int words[LP_ATTENTION_QUERIES] = {0};
    int low = 0;
    int high = LP_TILE_ROUND(p->queries);
    for (int i = 0; i < p->queries; i++) {
        words[i] = p->words[(long)i * a->g * a->r];
    }
    for (int j = 0; j < p->keys; j++) {
        float *restrict row = st + (long)j * ld;
        const long key = a->base_k + p->j0 + j;
        if (p->masked) {
            lp_tile_columns(a, p, j, 1, &low, &high);
        }
#pragma omp simd
        for (int i = low; i < high; i++) {
            row[i] *= lp_draw(words[i], 0xffffffffL, key) < a->below ? 0.0f : a->kept;
        }
    }
}

#endif
