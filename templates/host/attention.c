/* attention.c - flash attention on the host: forward, and backward from the saved log-sum-exp.
 *
 * Scores live transposed, st[key][query], in a tile of LP_ATTENTION_KEYS x LP_ATTENTION_QUERIES:
 * then the statistics of a row of the softmax are lanes of a vector, a mask is a prefix or a suffix
 * of a tile row, and only q (not k) needs transposing, once per query tile. The S x T matrix never
 * exists. Query i sees key j iff
 *     causal:  base_q + i >= base_k + j            window > 0:  base_q + i - base_k - j < window
 * and tiles that nobody sees are not computed; within a masked tile, blocks of LP_TILE_PAD keys
 * take only the queries that see one of them.
 *
 * Layout: q, o, dq, dout [b][s][g][r][d]; k, v, dk, dv [b][t][g][d]; l, delta [b][s][g][r]. The
 * strides are of one position, so that q, k, v may be parts of one wider row. A row that sees no
 * key gets o = 0 and l = -inf, and no gradient.
 *
 * Every output element is summed by one thread in an order fixed by the shapes: results do not
 * depend on the number of threads. */
#ifndef LP_ATTENTION_C
#define LP_ATTENTION_C

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "templates/host/math.h"
#include "templates/host/tile.h"

/* TUNE: at D = 64 a score tile is 32 KiB; 128 keys beat 64 by 5% at T = 1024 and equal it below. */
#define LP_ATTENTION_QUERIES 64
#define LP_ATTENTION_KEYS 128

/* Per thread: forward qt, v, acc, st and three statistics rows; backward qt, dot, q, dout, k, dq,
 * st, dpt. Both per d in floats, then times threads. */
#define LP_ATTENTION_FORWARD_FLOATS(d)                                                             \
    ((size_t)LP_TILE_ROUND(d) * (2 * LP_ATTENTION_QUERIES + LP_ATTENTION_KEYS) +                   \
     LP_ATTENTION_QUERIES * (LP_ATTENTION_KEYS + 4))
#define LP_ATTENTION_BACKWARD_FLOATS(d)                                                            \
    ((size_t)LP_TILE_ROUND(d) * (5 * LP_ATTENTION_QUERIES + LP_ATTENTION_KEYS) +                   \
     LP_ATTENTION_QUERIES * (2 * LP_ATTENTION_KEYS + 2))
#define LP_ATTENTION_FORWARD_BYTES(d, threads)                                                     \
    (LP_ATTENTION_FORWARD_FLOATS(d) * sizeof(float) * (size_t)(threads))
#define LP_ATTENTION_BACKWARD_BYTES(d, threads)                                                    \
    (LP_ATTENTION_BACKWARD_FLOATS(d) * sizeof(float) * (size_t)(threads))

typedef struct LpAttention {
    int b, s, t, g, r, d; /* batch, queries, keys, kv heads, query heads per kv head, head width */
    long q_stride, k_stride, v_stride, o_stride;
    long dq_stride, dk_stride, dv_stride, do_stride; /* backward only */
    float scale;
    int causal;
    int window;          /* 0: none */
    long base_q, base_k; /* global position of row 0 of q and of k */
} LpAttention;

/* One tile of keys j0 .. j0 + keys against one tile of queries i0 .. i0 + queries. */
typedef struct LpTilePair {
    int i0, queries, j0, keys;
    long shift; /* query i0 + i sees key j0 + j causally iff i + shift >= j */
    int masked; /* some pair of the tile is hidden */
} LpTilePair;

static LP_INLINE int lp_min_int(int x, int y)
{
    return x < y ? x : y;
}

static LP_INLINE int lp_clamp_int(long x, int low, int high)
{
    return x < low ? low : x > high ? high : (int)x;
}

/* The keys that a tile of queries sees: [*ret_first, *ret_last), the first on a tile border. */
static LP_MAYBE_UNUSED void lp_attention_keys(const LpAttention *a, int i0, int queries,
                                              int *ret_first, int *ret_last)
{
    const long shift = a->base_q + i0 - a->base_k;
    const int first = a->window > 0 ? lp_clamp_int(shift - a->window + 1, 0, a->t) : 0;
    *ret_first = first / LP_ATTENTION_KEYS * LP_ATTENTION_KEYS;
    *ret_last = a->causal ? lp_clamp_int(shift + queries, 0, a->t) : a->t;
}

static LP_MAYBE_UNUSED LpTilePair lp_tile_pair(const LpAttention *a, int i0, int queries, int j0,
                                               int last)
{
    LpTilePair p = {.i0 = i0, .queries = queries, .j0 = j0};
    p.keys = lp_min_int(LP_ATTENTION_KEYS, last - j0);
    p.shift = a->base_q + i0 - a->base_k - j0;
    p.masked = (a->causal && p.shift < p.keys - 1) ||
               (a->window > 0 && queries - 1 + p.shift >= a->window);
    return p;
}

/* The queries of the tile that see key j of the tile: [*ret_low, *ret_high), maybe empty. */
static LP_INLINE void lp_tile_queries(const LpAttention *a, const LpTilePair *p, int j,
                                      int *ret_low, int *ret_high)
{
    *ret_low = a->causal ? lp_clamp_int(j - p->shift, 0, p->queries) : 0;
    *ret_high = a->window > 0 ? lp_clamp_int(j - p->shift + a->window, 0, p->queries) : p->queries;
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
 * apart; yt is [d][LP_ATTENTION_QUERIES]. */
static LP_MAYBE_UNUSED void lp_tile_scores(const LpAttention *a, const LpTilePair *p,
                                           const float *x, long x_stride, const float *yt,
                                           float *st)
{
    const int n = LP_ATTENTION_QUERIES;
    if (!p->masked) {
        lp_tile_nn(p->keys, LP_TILE_ROUND(p->queries), a->d, x, x_stride, yt, n, st, n, 0);
        return;
    }
    for (int j = 0; j < p->keys; j += LP_TILE_PAD) {
        const int keys = lp_min_int(LP_TILE_PAD, p->keys - j);
        int low = 0;
        int high = 0;
        lp_tile_columns(a, p, j, keys, &low, &high);
        if (low < high) {
            lp_tile_nn(keys, high - low, a->d, x + j * x_stride, x_stride, yt + low, n,
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
        const int low = a->window > 0 ? lp_clamp_int(i + p->shift - a->window + 1, 0, p->keys) : 0;
        const int high = a->causal ? lp_clamp_int(i + some + p->shift, 0, p->keys) : p->keys;
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
        const int end = lp_min_int(high + LP_ATTENTION_BLOCK - 1, wide);
        for (int i = low < LP_ATTENTION_BLOCK ? 0 : low - LP_ATTENTION_BLOCK; i < *ret_low; i++) {
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
    }
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

/* One query tile of one head. q, o point at its first row, k and v at the head's row 0, l at its
 * first row with step l_step. */
static LP_MAYBE_UNUSED void lp_attention_forward_tile(const LpAttention *a, int i0, int queries,
                                                      const float *q, const float *k,
                                                      const float *v, float *o, float *l,
                                                      long l_step, float *scratch)
{
    const int n = LP_ATTENTION_QUERIES;
    const int wide = LP_TILE_ROUND(queries);
    const int dp = LP_TILE_ROUND(a->d);
    float *qt = scratch;
    float *acc = qt + (long)dp * n;
    float *vp = acc + (long)n * dp;
    float *st = vp + (long)LP_ATTENTION_KEYS * dp;
    float *peak = st + (long)LP_ATTENTION_KEYS * n;
    float *sum = peak + n;
    float *shrink = sum + n;
    int first = 0;
    int last = 0;

    lp_attention_keys(a, i0, queries, &first, &last);
    lp_tile_transpose(queries, a->d, q, a->q_stride, qt, n, a->scale);
    if (first >= last) {
        lp_clear_rows(queries, dp, acc, dp);
    }
    for (int i = 0; i < wide; i++) {
        peak[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    for (int j0 = first; j0 < last; j0 += LP_ATTENTION_KEYS) {
        const LpTilePair p = lp_tile_pair(a, i0, queries, j0, last);
        lp_tile_scores(a, &p, k + j0 * a->k_stride, a->k_stride, qt, st);
        lp_tile_softmax(a, &p, st, peak, sum, shrink);
        if (j0 > first) {
            for (int i = 0; i < queries; i++) {
                float *row = acc + (long)i * dp;
#pragma omp simd
                for (int x = 0; x < dp; x++) {
                    row[x] *= shrink[i];
                }
            }
        }
        lp_tile_pack(p.keys, a->d, v + j0 * a->v_stride, a->v_stride, vp, dp, 1.0f);
        lp_tile_over_keys(a, &p, dp, st, vp, dp, acc, dp, j0 > first);
    }
    for (int i = 0; i < queries; i++) {
        const float *row = acc + (long)i * dp;
        float *out = o + i * a->o_stride;
        const float inverse = sum[i] > 0.0f ? 1.0f / sum[i] : 0.0f;
#pragma omp simd
        for (int x = 0; x < a->d; x++) {
            out[x] = row[x] * inverse;
        }
        l[i * l_step] = peak[i] + lp_logf(sum[i]);
    }
}

/* Tiles of unequal work (causal) in an order whose contiguous parts weigh the same: first, last,
 * second, last but one, ... */
static LP_INLINE int lp_tile_order(int index, int count)
{
    return index % 2 == 0 ? index / 2 : count - 1 - index / 2;
}

static LP_MAYBE_UNUSED void lp_attention_forward(const LpAttention *a, const float *q,
                                                 const float *k, const float *v, float *o, float *l,
                                                 void *scratch, int threads)
{
    const int tiles = (a->s + LP_ATTENTION_QUERIES - 1) / LP_ATTENTION_QUERIES;
    const int heads = a->g * a->r;
    const long tasks = (long)a->b * heads * tiles;
#pragma omp parallel num_threads(threads)
    {
        float *mine = (float *)scratch + lp_thread_index() * LP_ATTENTION_FORWARD_FLOATS(a->d);
#pragma omp for schedule(static)
        for (long task = 0; task < tasks; task++) {
            const int i0 = lp_tile_order((int)(task % tiles), tiles) * LP_ATTENTION_QUERIES;
            const int head = (int)(task / tiles % heads);
            const long batch = task / tiles / heads;
            const long kv = (long)(head / a->r) * a->d;
            const long row = batch * a->s + i0;
            lp_attention_forward_tile(
                a, i0, lp_min_int(LP_ATTENTION_QUERIES, a->s - i0),
                q + row * a->q_stride + (long)head * a->d, k + batch * a->t * a->k_stride + kv,
                v + batch * a->t * a->v_stride + kv, o + row * a->o_stride + (long)head * a->d,
                l + row * heads + head, heads, mine);
        }
    }
}

static LP_MAYBE_UNUSED void lp_attention_delta(const LpAttention *a, const float *o,
                                               const float *dout, float *delta, int threads)
{
    const int heads = a->g * a->r;
    const long rows = (long)a->b * a->s;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < rows; row++) {
        for (int head = 0; head < heads; head++) {
            const float *x = o + row * a->o_stride + (long)head * a->d;
            const float *y = dout + row * a->do_stride + (long)head * a->d;
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int i = 0; i < a->d; i++) {
                sum += x[i] * y[i];
            }
            delta[row * heads + head] = sum;
        }
    }
}

/* The scratch of one thread in backward, and the query tile it holds. */
typedef struct LpBackwardTile {
    float *qt, *dot;      /* [d][queries]: scale * q and dout, transposed */
    float *q, *dout, *dq; /* [queries][round(d)]: scale * q, dout, sum of ds k */
    float *k;             /* [keys][round(d)] */
    float *st, *dpt;      /* [keys][queries] */
    float *l, *delta;     /* [queries] */
} LpBackwardTile;

static LP_MAYBE_UNUSED LpBackwardTile lp_backward_tile(int d, float *scratch)
{
    const long wide = (long)LP_TILE_ROUND(d) * LP_ATTENTION_QUERIES;
    const long tile = (long)LP_ATTENTION_KEYS * LP_ATTENTION_QUERIES;
    LpBackwardTile w;
    w.qt = scratch;
    w.dot = w.qt + wide;
    w.q = w.dot + wide;
    w.dout = w.q + wide;
    w.dq = w.dout + wide;
    w.k = w.dq + wide;
    w.st = w.k + (long)LP_TILE_ROUND(d) * LP_ATTENTION_KEYS;
    w.dpt = w.st + tile;
    w.l = w.dpt + tile;
    w.delta = w.l + LP_ATTENTION_QUERIES;
    return w;
}

static LP_MAYBE_UNUSED void lp_backward_load(const LpAttention *a, const LpBackwardTile *w,
                                             int queries, const float *q, const float *dout,
                                             const float *l, const float *delta, long l_step)
{
    const int n = LP_ATTENTION_QUERIES;
    const int dp = LP_TILE_ROUND(a->d);
    lp_tile_pack(queries, a->d, q, a->q_stride, w->q, dp, a->scale);
    lp_tile_transpose(queries, a->d, w->q, dp, w->qt, n, 1.0f);
    lp_tile_pack(queries, a->d, dout, a->do_stride, w->dout, dp, 1.0f);
    lp_tile_transpose(queries, a->d, w->dout, dp, w->dot, n, 1.0f);
    for (int i = 0; i < LP_TILE_ROUND(queries); i++) {
        /* +inf makes every probability of an empty row, and of the padding, exp(-inf) = 0. */
        const float lse = i < queries ? l[i * l_step] : -INFINITY;
        w->l[i] = lse == -INFINITY ? INFINITY : lse;
        w->delta[i] = i < queries ? delta[i * l_step] : 0.0f;
    }
}

/* What lp_backward_pair does with w->dq. */
enum { LP_DQ_SKIP, LP_DQ_SET, LP_DQ_ADD };

/* Adds one tile pair to dk and dv, unless they are NULL, and to w->dq. k, v, dk, dv point at the
 * key tile's first row. */
static LP_MAYBE_UNUSED void lp_backward_pair(const LpAttention *a, const LpBackwardTile *w,
                                             const LpTilePair *p, const float *k, const float *v,
                                             float *dk, float *dv, int dq)
{
    const int n = LP_ATTENTION_QUERIES;
    const int dp = LP_TILE_ROUND(a->d);
    lp_tile_scores(a, p, k, a->k_stride, w->qt, w->st);
    lp_tile_scores(a, p, v, a->v_stride, w->dot, w->dpt);
    for (int j = 0; j < p->keys; j++) {
        float *restrict s = w->st + (long)j * n;
        float *restrict dp_row = w->dpt + (long)j * n;
        const float *restrict l = w->l;
        const float *restrict delta = w->delta;
        int low = 0;
        int high = 0;
        lp_tile_seen(a, p, j, s, -INFINITY, &low, &high);
        lp_tile_seen(a, p, j, dp_row, 0.0f, &low, &high);
#pragma omp simd
        for (int i = low; i < high; i++) {
            s[i] = lp_expf(s[i] - l[i]);
            dp_row[i] = s[i] * (dp_row[i] - delta[i]);
        }
    }
    if (dk) {
        lp_tile_over_queries(a, p, a->d, w->st, w->dout, dp, dv, a->dv_stride, 1);
        lp_tile_over_queries(a, p, a->d, w->dpt, w->q, dp, dk, a->dk_stride, 1);
    }
    if (dq != LP_DQ_SKIP) {
        lp_tile_pack(p->keys, a->d, k, a->k_stride, w->k, dp, 1.0f);
        lp_tile_over_keys(a, p, dp, w->dpt, w->k, dp, w->dq, dp, dq == LP_DQ_ADD);
    }
}

/* The pointers of one head (g, r) of one batch element. */
typedef struct LpBackwardHead {
    const float *q, *k, *v, *dout, *l, *delta;
    float *dq, *dk, *dv;
} LpBackwardHead;

/* Query tile i0 of one head against the keys [from, to) that it sees; either output may be off. */
static LP_MAYBE_UNUSED void lp_backward_queries(const LpAttention *a, const LpBackwardTile *w,
                                                const LpBackwardHead *h, int i0, int from, int to,
                                                int want_dq, int want_dkv)
{
    const int queries = lp_min_int(LP_ATTENTION_QUERIES, a->s - i0);
    const int dp = LP_TILE_ROUND(a->d);
    const long heads = (long)a->g * a->r;
    int first = 0;
    int last = 0;
    lp_attention_keys(a, i0, queries, &first, &last);
    from = from > first ? from : first;
    to = lp_min_int(to, last);
    if (from < to) {
        lp_backward_load(a, w, queries, h->q + i0 * a->q_stride, h->dout + i0 * a->do_stride,
                         h->l + i0 * heads, h->delta + i0 * heads, heads);
    } else if (want_dq) {
        lp_clear_rows(queries, dp, w->dq, dp);
    }
    for (int j0 = from; j0 < to; j0 += LP_ATTENTION_KEYS) {
        const LpTilePair p = lp_tile_pair(a, i0, queries, j0, last);
        const int set_or_add = j0 == from ? LP_DQ_SET : LP_DQ_ADD;
        lp_backward_pair(a, w, &p, h->k + j0 * a->k_stride, h->v + j0 * a->v_stride,
                         want_dkv ? h->dk + j0 * a->dk_stride : NULL,
                         want_dkv ? h->dv + j0 * a->dv_stride : NULL,
                         want_dq ? set_or_add : LP_DQ_SKIP);
    }
    for (int i = 0; want_dq && i < queries; i++) {
        const float *row = w->dq + (long)i * dp;
        float *out = h->dq + (i0 + i) * a->dq_stride;
#pragma omp simd
        for (int x = 0; x < a->d; x++) {
            out[x] = row[x] * a->scale;
        }
    }
}

static LP_INLINE LpBackwardHead lp_backward_head(const LpAttention *a, const LpBackwardHead *all,
                                                 long batch, int head)
{
    const long heads = (long)a->g * a->r;
    const long q = (long)head * a->d;
    const long kv = (long)(head / a->r) * a->d;
    const LpBackwardHead h = {
        .q = all->q + batch * a->s * a->q_stride + q,
        .k = all->k + batch * a->t * a->k_stride + kv,
        .v = all->v + batch * a->t * a->v_stride + kv,
        .dout = all->dout + batch * a->s * a->do_stride + q,
        .l = all->l + batch * a->s * heads + head,
        .delta = all->delta + batch * a->s * heads + head,
        .dq = all->dq + batch * a->s * a->dq_stride + q,
        .dk = all->dk + batch * a->t * a->dk_stride + kv,
        .dv = all->dv + batch * a->t * a->dv_stride + kv,
    };
    return h;
}

/* dk and dv of the keys [from, to) of one kv head, over all its query heads; dq on the way. */
static LP_MAYBE_UNUSED void lp_backward_keys(const LpAttention *a, const LpBackwardTile *w,
                                             const LpBackwardHead *all, long batch, int group,
                                             int from, int to, int want_dq)
{
    for (int r = 0; r < a->r; r++) {
        const LpBackwardHead h = lp_backward_head(a, all, batch, group * a->r + r);
        if (r == 0) {
            lp_clear_rows(to - from, a->d, h.dk + from * a->dk_stride, a->dk_stride);
            lp_clear_rows(to - from, a->d, h.dv + from * a->dv_stride, a->dv_stride);
        }
        for (int i0 = 0; i0 < a->s; i0 += LP_ATTENTION_QUERIES) {
            lp_backward_queries(a, w, &h, i0, from, to, want_dq, 1);
        }
    }
}

/* One pass makes all three gradients (5 products a tile), a task for each kv head. When that would
 * leave threads idle, two passes (4 + 3 products) have a task for each key tile, then for each
 * query tile. Sums run in the same order either way, so the bits are the same. */
static LP_MAYBE_UNUSED void lp_attention_backward(const LpAttention *a, const float *q,
                                                  const float *k, const float *v, const float *dout,
                                                  const float *l, const float *delta, float *dq,
                                                  float *dk, float *dv, void *scratch, int threads)
{
    const LpBackwardHead all = {q, k, v, dout, l, delta, dq, dk, dv};
    const int heads = a->g * a->r;
    const int tiles_q = (a->s + LP_ATTENTION_QUERIES - 1) / LP_ATTENTION_QUERIES;
    const int tiles_k = (a->t + LP_ATTENTION_KEYS - 1) / LP_ATTENTION_KEYS;
    const long groups = (long)a->b * a->g;
    const long rounds = (groups + threads - 1) / threads;
    const int one_pass = 7 * groups >= 5 * rounds * threads;
    const int parts = one_pass ? 1 : tiles_k;
#pragma omp parallel num_threads(threads)
    {
        const LpBackwardTile w = lp_backward_tile(
            a->d, (float *)scratch + lp_thread_index() * LP_ATTENTION_BACKWARD_FLOATS(a->d));
#pragma omp for schedule(static)
        for (long task = 0; task < groups * parts; task++) {
            const int part = lp_tile_order((int)(task % parts), parts);
            const long group = task / parts;
            const int from = part * LP_ATTENTION_KEYS;
            const int to = one_pass ? a->t : lp_min_int(a->t, from + LP_ATTENTION_KEYS);
            lp_backward_keys(a, &w, &all, group / a->g, (int)(group % a->g), from, to, one_pass);
        }
#pragma omp for schedule(static)
        for (long task = 0; task < (one_pass ? 0 : a->b * (long)heads * tiles_q); task++) {
            const int part = lp_tile_order((int)(task % tiles_q), tiles_q);
            const int head = (int)(task / tiles_q % heads);
            const LpBackwardHead h = lp_backward_head(a, &all, task / tiles_q / heads, head);
            lp_backward_queries(a, &w, &h, part * LP_ATTENTION_QUERIES, 0, a->t, 1, 0);
        }
    }
}

#endif
