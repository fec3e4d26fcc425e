/* attention.c - flash attention on the host: forward, and backward from the saved log-sum-exp.
 *
 * Scores live transposed, st[key][query], in a tile of LP_ATTENTION_KEYS x LP_ATTENTION_QUERIES:
 * then the statistics of a row of the softmax are lanes of a vector, a mask is a prefix or a suffix
 * of a tile row, and only q (not k) needs transposing, once per query tile. The S x T matrix never
 * exists. Query i sees key j iff
 *     causal:     base_q + i >= base_k + j      window > 0:  base_q + i - base_k - j < window
 *     chunk > 0:  (base_q + i) / chunk == (base_k + j) / chunk
 *     starts:     base_k + j >= starts[b][i]
 * and tiles that nobody sees are not computed; within a masked tile, blocks of LP_TILE_PAD keys
 * take only the queries that see one of them. The score of a pair is x = scale q k, then with
 * softcap > 0 softcap tanh(x / softcap), then with slopes x + slopes[g][r] (base_k + j - base_q -
 * i). With words a share of the softmax is dropped, or multiplied by `kept`, as
 * lp_draw(words[b][i][g][r], -1, base_k + j) says; the sum of the row counts all shares.
 *
 * With runs > 0 rows are places of a sequence dealt out, and positions above those of lp_position:
 * tiles end where a run does.
 *
 * Tensors of the sequence are LpReal (real.h), but for results that are asked to be wide; l, delta
 * and all scratch are fp32. Layout: q, dq
 * [b][s][g][r][d]; o, dout [b][s][g][r][e]; k, dk [b][t][g][d]; v, dv [b][t][g][e]; l, delta
 * [b][s][g][r]. The strides are of one position, so that q, k, v may be parts of one wider row. A
 * row that sees no key gets o = 0 and l = -inf, and no gradient.
 *
 * Every output element is summed by one thread in an order fixed by the shapes: results do not
 * depend on the number of threads. */
#ifndef LP_ATTENTION_C
#define LP_ATTENTION_C

#include <math.h>
#include <stddef.h>

#include "templates/host/attention_tile.h"
#include "templates/host/math.h"
#include "templates/host/real.h"
#include "templates/host/tile.h"

/* Row `row` of n numbers, times a factor, at element `at` of a result. */
static LP_INLINE void lp_attention_store(const LpAttention *a, void *result, long at, int n,
                                         const float *row, float factor)
{
    if (LP_REAL_NARROW && !a->wide) {
        LpReal *out = (LpReal *)result + at;
#pragma omp simd
        for (int x = 0; x < n; x++) {
            out[x] = lp_real_of_float(row[x] * factor);
        }
        return;
    }
    float *out = (float *)result + at;
#pragma omp simd
    for (int x = 0; x < n; x++) {
        out[x] = row[x] * factor;
    }
}

/* One query tile of one head. q, o + o_at are its first row, k and v at the head's row 0, l at its
 * first row with step l_step. */
static LP_MAYBE_UNUSED void lp_attention_forward_tile(const LpAttention *all, const LpSight *sight,
                                                      LpSpan tile, const LpReal *q, const LpReal *k,
                                                      const LpReal *v, void *o, long o_at, float *l,
                                                      long l_step, float *scratch)
{
    LpAttention here = lp_attention_at(all, tile);
    const LpAttention *a = &here;
    const int i0 = tile.begin;
    const int queries = tile.end - tile.begin;
    const int n = LP_ATTENTION_QUERIES;
    const int wide = LP_TILE_ROUND(queries);
    const int ep = LP_TILE_ROUND(a->e);
    float *qt = scratch;
    float *acc = qt + (long)LP_TILE_ROUND(a->d) * n;
    float *vp = acc + (long)n * ep;
    float *st = vp + (long)LP_ATTENTION_KEYS * ep;
    float *peak = st + (long)LP_ATTENTION_KEYS * n;
    float *sum = peak + n;
    float *shrink = sum + n;
    float *room = shrink + n;
    long k_stride = 0;
    int started = 0;

    lp_real_transpose(queries, a->d, q, a->q_stride, qt, n, a->scale);
    for (int i = 0; i < wide; i++) {
        peak[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    for (LpSpan span = {0}; span.end < a->t;) {
        int first = 0;
        int last = 0;
        span = lp_span(all, all->base_k, a->t, span.end);
        here.base_k = span.base;
        lp_attention_keys(a, sight, tile, span, &first, &last);
        for (int j0 = first; j0 < last; j0 += LP_ATTENTION_KEYS) {
            const LpTilePair p = lp_tile_pair(a, sight, i0, queries, j0, last);
            const float *keys =
                lp_real_rows(p.keys, a->d, k + j0 * a->k_stride, a->k_stride, room, &k_stride);
            lp_tile_scores(a, &p, a->d, keys, k_stride, qt, st);
            if (lp_attention_bends(a)) {
                lp_tile_bend(a, &p, st, NULL, NULL);
            }
            lp_tile_softmax(a, &p, st, peak, sum, shrink);
            if (p.words) {
                lp_tile_drop(a, &p, st);
            }
            if (started) {
                for (int i = 0; i < queries; i++) {
                    float *row = acc + (long)i * ep;
#pragma omp simd
                    for (int x = 0; x < ep; x++) {
                        row[x] *= shrink[i];
                    }
                }
            }
            lp_real_pack(p.keys, a->e, v + j0 * a->v_stride, a->v_stride, vp, ep, 1.0f);
            lp_tile_over_keys(a, &p, ep, st, vp, ep, acc, ep, started);
            started = 1;
        }
    }
    if (!started) {
        lp_clear_rows(queries, ep, acc, ep);
    }
    for (int i = 0; i < queries; i++) {
        const float *row = acc + (long)i * ep;
        const float inverse = sum[i] > 0.0f ? 1.0f / sum[i] : 0.0f;
        lp_attention_store(a, o, o_at + i * a->o_stride, a->e, row, inverse);
        l[i * l_step] = peak[i] + lp_logf(sum[i]);
    }
}

/* Tiles of unequal work (causal) in an order whose contiguous parts weigh the same: first, last,
 * second, last but one, ... */
static LP_INLINE int lp_tile_order(int index, int count)
{
    return index % 2 == 0 ? index / 2 : count - 1 - index / 2;
}

static LP_MAYBE_UNUSED void lp_attention_forward(const LpAttention *a, const LpReal *q,
                                                 const LpReal *k, const LpReal *v, void *o,
                                                 float *l, void *scratch, int threads)
{
    const int tiles = lp_query_tiles(a);
    const int heads = a->g * a->r;
    const long tasks = (long)a->b * heads * tiles;
#pragma omp parallel num_threads(threads)
    {
        float *mine =
            (float *)scratch + lp_thread_index() * LP_ATTENTION_FORWARD_FLOATS(a->d, a->e);
#pragma omp for schedule(static)
        for (long task = 0; task < tasks; task++) {
            const LpSpan tile = lp_query_tile(a, lp_tile_order((int)(task % tiles), tiles));
            const int head = (int)(task / tiles % heads);
            const long batch = task / tiles / heads;
            const long kv = head / a->r;
            const long row = batch * a->s + tile.begin;
            const LpSight sight = lp_attention_sight(a, batch, head);
            lp_attention_forward_tile(a, &sight, tile, q + row * a->q_stride + (long)head * a->d,
                                      k + batch * a->t * a->k_stride + kv * a->d,
                                      v + batch * a->t * a->v_stride + kv * a->e, o,
                                      row * a->o_stride + (long)head * a->e, l + row * heads + head,
                                      heads, mine);
        }
    }
}

/* Joins attention over some keys, o and l, with that over others, o2 and l2: o is a mean of values
 * with the weights exp(l), and l of a row that has seen no key is -inf. o is [rows][width]. */
static LP_MAYBE_UNUSED void lp_attention_merge(long rows, int width, float *restrict o,
                                               float *restrict l, const float *restrict o2,
                                               const float *restrict l2, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < rows; row++) {
        const float top = l[row] > l2[row] ? l[row] : l2[row];
        if (top == -INFINITY) {
            continue;
        }
        const float mine = lp_expf(l[row] - top);
        const float other = lp_expf(l2[row] - top);
        const float sum = mine + other;
        const float scale = mine / sum;
        const float scale2 = other / sum;
        float *x = o + row * width;
        const float *y = o2 + row * width;
#pragma omp simd
        for (int i = 0; i < width; i++) {
            x[i] = scale * x[i] + scale2 * y[i];
        }
        l[row] = top + lp_logf(sum);
    }
}

static LP_MAYBE_UNUSED void lp_attention_delta(const LpAttention *a, const LpReal *o,
                                               const LpReal *dout, float *delta, int threads)
{
    const int heads = a->g * a->r;
    const long rows = (long)a->b * a->s;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < rows; row++) {
        for (int head = 0; head < heads; head++) {
            const LpReal *x = o + row * a->o_stride + (long)head * a->e;
            const LpReal *y = dout + row * a->do_stride + (long)head * a->e;
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int i = 0; i < a->e; i++) {
                sum += lp_float_of_real(x[i]) * lp_float_of_real(y[i]);
            }
            delta[row * heads + head] = sum;
        }
    }
}

/* The scratch of one thread in backward, and the query tile it holds. */
typedef struct LpBackwardTile {
    float *qt, *dot;  /* [d][queries], [e][queries]: scale * q and dout, transposed */
    float *q, *dq;    /* [queries][round(d)]: scale * q, sum of ds k */
    float *dout;      /* [queries][round(e)] */
    float *k;         /* [keys][round(d)] */
    float *st, *dpt;  /* [keys][queries] */
    float *l, *delta; /* [queries] */
    float *v;         /* [keys][round(e)], as dv and, of width d, dk: in 16 bits only */
    float *dk, *dv;
} LpBackwardTile;

static LP_MAYBE_UNUSED LpBackwardTile lp_backward_tile(int d, int e, float *scratch)
{
    const long wide = (long)LP_TILE_ROUND(d) * LP_ATTENTION_QUERIES;
    const long wide_e = (long)LP_TILE_ROUND(e) * LP_ATTENTION_QUERIES;
    const long tile = (long)LP_ATTENTION_KEYS * LP_ATTENTION_QUERIES;
    LpBackwardTile w;
    w.qt = scratch;
    w.dot = w.qt + wide;
    w.q = w.dot + wide_e;
    w.dout = w.q + wide;
    w.dq = w.dout + wide_e;
    w.k = w.dq + wide;
    w.st = w.k + (long)LP_TILE_ROUND(d) * LP_ATTENTION_KEYS;
    w.dpt = w.st + tile;
    w.l = w.dpt + tile;
    w.delta = w.l + LP_ATTENTION_QUERIES;
    w.v = w.dk = w.dv = NULL;
    if (LP_REAL_NARROW) {
        w.v = w.delta + LP_ATTENTION_QUERIES;
        w.dk = w.v + (long)LP_TILE_ROUND(e) * LP_ATTENTION_KEYS;
        w.dv = w.dk + (long)LP_TILE_ROUND(d) * LP_ATTENTION_KEYS;
    }
    return w;
}

static LP_MAYBE_UNUSED void lp_backward_load(const LpAttention *a, const LpBackwardTile *w,
                                             int queries, const LpReal *q, const LpReal *dout,
                                             const float *l, const float *delta, long l_step)
{
    const int n = LP_ATTENTION_QUERIES;
    const int dp = LP_TILE_ROUND(a->d);
    const int ep = LP_TILE_ROUND(a->e);
    lp_real_pack(queries, a->d, q, a->q_stride, w->q, dp, a->scale);
    lp_tile_transpose(queries, a->d, w->q, dp, w->qt, n, 1.0f);
    lp_real_pack(queries, a->e, dout, a->do_stride, w->dout, ep, 1.0f);
    lp_tile_transpose(queries, a->e, w->dout, ep, w->dot, n, 1.0f);
    for (int i = 0; i < LP_TILE_ROUND(queries); i++) {
        /* +inf makes every probability of an empty row, and of the padding, exp(-inf) = 0. */
        const float lse = i < queries ? l[i * l_step] : -INFINITY;
        w->l[i] = lse == -INFINITY ? INFINITY : lse;
        w->delta[i] = i < queries ? delta[i * l_step] : 0.0f;
    }
}

/* What lp_backward_pair does with w->dq. */
enum { LP_DQ_SKIP, LP_DQ_SET, LP_DQ_ADD };

/* Where gradients of keys and values are summed in fp32: the result itself, or room of the thread.
 * Row 0 is key `first`. */
typedef struct LpBackwardSums {
    float *dk, *dv;
    long dk_stride, dv_stride;
    int first;
} LpBackwardSums;

/* Adds one tile pair to the sums, unless they are NULL, and to w->dq. k, v point at the key tile's
 * first row. */
static LP_MAYBE_UNUSED void lp_backward_pair(const LpAttention *a, const LpBackwardTile *w,
                                             const LpTilePair *p, const LpReal *k, const LpReal *v,
                                             const LpBackwardSums *sums, int dq)
{
    const int n = LP_ATTENTION_QUERIES;
    const int dp = LP_TILE_ROUND(a->d);
    const int bends = lp_attention_bends(a);
    long k_stride = 0;
    long v_stride = 0;
    const float *keys = lp_real_rows(p->keys, a->d, k, a->k_stride, w->k, &k_stride);
    const float *values = lp_real_rows(p->keys, a->e, v, a->v_stride, w->v, &v_stride);
    lp_tile_scores(a, p, a->d, keys, k_stride, w->qt, w->st);
    lp_tile_scores(a, p, a->e, values, v_stride, w->dot, w->dpt);
    if (p->words) {
        lp_tile_drop(a, p, w->dpt);
    }
    if (bends) {
        lp_tile_bend(a, p, w->st, w->dpt, w->delta);
    }
    for (int j = 0; j < p->keys; j++) {
        float *restrict s = w->st + (long)j * n;
        float *restrict dp_row = w->dpt + (long)j * n;
        const float *restrict l = w->l;
        const float *restrict delta = w->delta;
        int low = 0;
        int high = 0;
        lp_tile_seen(a, p, j, s, -INFINITY, &low, &high);
        lp_tile_seen(a, p, j, dp_row, 0.0f, &low, &high);
        if (bends) {
#pragma omp simd
            for (int i = low; i < high; i++) {
                s[i] = lp_expf(s[i] - l[i]);
                dp_row[i] *= s[i];
            }
            continue;
        }
#pragma omp simd
        for (int i = low; i < high; i++) {
            s[i] = lp_expf(s[i] - l[i]);
            dp_row[i] = s[i] * (dp_row[i] - delta[i]);
        }
    }
    if (p->words && sums) {
        lp_tile_drop(a, p, w->st);
    }
    if (sums) {
        const long row = p->j0 - sums->first;
        lp_tile_over_queries(a, p, a->e, w->st, w->dout, LP_TILE_ROUND(a->e),
                             sums->dv + row * sums->dv_stride, sums->dv_stride, 1);
        lp_tile_over_queries(a, p, a->d, w->dpt, w->q, dp, sums->dk + row * sums->dk_stride,
                             sums->dk_stride, 1);
    }
    if (dq != LP_DQ_SKIP) {
        if (keys != w->k) {
            lp_real_pack(p->keys, a->d, k, a->k_stride, w->k, dp, 1.0f);
        }
        lp_tile_over_keys(a, p, dp, w->dpt, w->k, dp, w->dq, dp, dq == LP_DQ_ADD);
    }
}

/* The pointers of one head (g, r) of one batch element. */
typedef struct LpBackwardHead {
    const LpReal *q, *k, *v, *dout;
    const float *l, *delta;
    void *dq, *dk, *dv;
    long dq_at, dk_at, dv_at; /* their first elements of the head */
    LpSight sight;
} LpBackwardHead;

/* A query tile of one head against the keys [from, to) that it sees; dq, or the sums, may be off
 * (NULL). */
static LP_MAYBE_UNUSED void lp_backward_queries(const LpAttention *all, const LpBackwardTile *w,
                                                const LpBackwardHead *h, LpSpan tile, int from,
                                                int to, int want_dq, const LpBackwardSums *sums)
{
    LpAttention here = lp_attention_at(all, tile);
    const LpAttention *a = &here;
    const int i0 = tile.begin;
    const int queries = tile.end - tile.begin;
    const int dp = LP_TILE_ROUND(a->d);
    const long heads = (long)a->g * a->r;
    int started = 0;
    for (LpSpan span = {0}; span.end < a->t;) {
        int first = 0;
        int last = 0;
        span = lp_span(all, all->base_k, a->t, span.end);
        here.base_k = span.base;
        lp_attention_keys(a, &h->sight, tile, span, &first, &last);
        first = from > first ? from : first;
        last = lp_min_int(to, last);
        if (first < last && !started) {
            lp_backward_load(a, w, queries, h->q + i0 * a->q_stride, h->dout + i0 * a->do_stride,
                             h->l + i0 * heads, h->delta + i0 * heads, heads);
        }
        for (int j0 = first; j0 < last; j0 += LP_ATTENTION_KEYS) {
            const LpTilePair p = lp_tile_pair(a, &h->sight, i0, queries, j0, last);
            const int set_or_add = started ? LP_DQ_ADD : LP_DQ_SET;
            lp_backward_pair(a, w, &p, h->k + j0 * a->k_stride, h->v + j0 * a->v_stride, sums,
                             want_dq ? set_or_add : LP_DQ_SKIP);
            started = 1;
        }
    }
    if (want_dq && !started) {
        lp_clear_rows(queries, dp, w->dq, dp);
    }
    for (int i = 0; want_dq && i < queries; i++) {
        const float *row = w->dq + (long)i * dp;
        lp_attention_store(a, h->dq, h->dq_at + (i0 + i) * a->dq_stride, a->d, row, a->scale);
    }
}

static LP_INLINE LpBackwardHead lp_backward_head(const LpAttention *a, const LpBackwardHead *all,
                                                 long batch, int head)
{
    const long heads = (long)a->g * a->r;
    const long q = (long)head * a->d;
    const long kv = head / a->r;
    const LpBackwardHead h = {
        .q = all->q + batch * a->s * a->q_stride + q,
        .k = all->k + batch * a->t * a->k_stride + kv * a->d,
        .v = all->v + batch * a->t * a->v_stride + kv * a->e,
        .dout = all->dout + batch * a->s * a->do_stride + (long)head * a->e,
        .l = all->l + batch * a->s * heads + head,
        .delta = all->delta + batch * a->s * heads + head,
        .dq = all->dq,
        .dk = all->dk,
        .dv = all->dv,
        .dq_at = batch * a->s * a->dq_stride + q,
        .dk_at = batch * a->t * a->dk_stride + kv * a->d,
        .dv_at = batch * a->t * a->dv_stride + kv * a->e,
        .sight = lp_attention_sight(a, batch, head),
    };
    return h;
}

/* The sums of a head's keys from `from` on. */
static LP_INLINE LpBackwardSums lp_backward_sums(const LpAttention *a, const LpBackwardTile *w,
                                                 const LpBackwardHead *h, int from)
{
#if LP_REAL_NARROW
    (void)h;
    return (LpBackwardSums){w->dk, w->dv, LP_TILE_ROUND(a->d), LP_TILE_ROUND(a->e), from};
#else
    (void)w;
    return (LpBackwardSums){(float *)h->dk + h->dk_at + from * a->dk_stride,
                            (float *)h->dv + h->dv_at + from * a->dv_stride, a->dk_stride,
                            a->dv_stride, from};
#endif
}

/* Sums that are not their result are stored to it. */
static LP_MAYBE_UNUSED void lp_backward_store(const LpAttention *a, int rows, int n,
                                              const float *sums, long sums_stride, void *result,
                                              long at, long stride)
{
    for (int i = 0; LP_REAL_NARROW && i < rows; i++) {
        lp_attention_store(a, result, at + i * stride, n, sums + i * sums_stride, 1.0f);
    }
}

/* dk and dv of the keys [from, to) of one kv head, over all its query heads; dq on the way. */
static LP_MAYBE_UNUSED void lp_backward_keys(const LpAttention *a, const LpBackwardTile *w,
                                             const LpBackwardHead *all, long batch, int group,
                                             int from, int to, int want_dq)
{
    const LpBackwardHead first = lp_backward_head(a, all, batch, group * a->r);
    const LpBackwardSums sums = lp_backward_sums(a, w, &first, from);
    const int tiles = lp_query_tiles(a);
    lp_clear_rows(to - from, a->d, sums.dk, sums.dk_stride);
    lp_clear_rows(to - from, a->e, sums.dv, sums.dv_stride);
    for (int r = 0; r < a->r; r++) {
        const LpBackwardHead h = lp_backward_head(a, all, batch, group * a->r + r);
        for (int tile = 0; tile < tiles; tile++) {
            lp_backward_queries(a, w, &h, lp_query_tile(a, tile), from, to, want_dq, &sums);
        }
    }
    lp_backward_store(a, to - from, a->d, sums.dk, sums.dk_stride, first.dk,
                      first.dk_at + from * a->dk_stride, a->dk_stride);
    lp_backward_store(a, to - from, a->e, sums.dv, sums.dv_stride, first.dv,
                      first.dv_at + from * a->dv_stride, a->dv_stride);
}

/* One pass makes all three gradients (5 products a tile), a task for each kv head. When that would
 * leave threads idle, two passes (4 + 3 products) have a task for each key tile, then for each
 * query tile; and in 16 bits, where a task has room for the sums of one key tile. Sums run in the
 * same order either way, so the bits are the same. */
static LP_MAYBE_UNUSED void lp_attention_backward(const LpAttention *a, const LpReal *q,
                                                  const LpReal *k, const LpReal *v,
                                                  const LpReal *dout, const float *l,
                                                  const float *delta, void *dq, void *dk, void *dv,
                                                  void *scratch, int threads)
{
    const LpBackwardHead all = {q, k, v, dout, l, delta, dq, dk, dv, 0, 0, 0, {NULL, 0.0f, NULL}};
    const int heads = a->g * a->r;
    const int tiles_q = lp_query_tiles(a);
    const int tiles_k = (a->t + LP_ATTENTION_KEYS - 1) / LP_ATTENTION_KEYS;
    const long groups = (long)a->b * a->g;
    const long rounds = (groups + threads - 1) / threads;
    const int one_pass = !LP_REAL_NARROW && 7 * groups >= 5 * rounds * threads;
    const int parts = one_pass ? 1 : tiles_k;
#pragma omp parallel num_threads(threads)
    {
        const LpBackwardTile w = lp_backward_tile(
            a->d, a->e,
            (float *)scratch + lp_thread_index() * LP_ATTENTION_BACKWARD_FLOATS(a->d, a->e));
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
            lp_backward_queries(a, &w, &h, lp_query_tile(a, part), 0, a->t, 1, NULL);
        }
    }
}

#endif
