/* attention_reference.c - attention in double by its definition. */
#include "tests/templates/attention_reference.h"

#include <stdlib.h>

#include "runtime/io/philox.h"

/* Shard x of n of a zigzag holds run x, then run 2n - 1 - x. */
static long position(const LpAttention *a, long place)
{
    if (a->runs == 0) {
        return place;
    }
    const long shard = place / (2 * a->run);
    const long inside = place - shard * 2 * a->run;
    return inside < a->run ? shard * a->run + inside
                           : (a->runs - 1 - shard) * a->run + inside - a->run;
}

static int sees(const LpAttention *a, int b, int i, int j)
{
    const long query = position(a, a->base_q + i);
    const long key = position(a, a->base_k + j);
    return (!a->causal || query >= key) && (a->window <= 0 || query - key < a->window) &&
           (a->chunk <= 0 || query / a->chunk == key / a->chunk) &&
           (!a->starts || key >= a->starts[(long)b * a->s + i]);
}

static double dot(int n, const double *x, const double *y)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i] * y[i];
    }
    return sum;
}

static void add(int n, double factor, const double *x, double *y)
{
    for (int i = 0; i < n; i++) {
        y[i] += factor * x[i];
    }
}

/* The score of a scaled product, and its slope by that. */
static double bent(const LpAttention *a, int head, int i, int j, double x, double *ret_slope)
{
    *ret_slope = 1;
    if (a->softcap > 0) {
        const double t = tanh(x / (double)a->softcap);
        *ret_slope = 1 - t * t;
        x = (double)a->softcap * t;
    }
    const long ahead = position(a, a->base_k + j) - position(a, a->base_q + i);
    return a->slopes ? x + (double)a->slopes[head] * (double)ahead : x;
}

/* What a share is multiplied by: the runtime's generator draws for the row's word and the key. */
static double kept(const LpAttention *a, int b, int i, int head, int j)
{
    uint32_t word[4];
    if (!a->words) {
        return 1;
    }
    const int row = a->words[((long)b * a->s + i) * a->g * a->r + head];
    lp_philox((uint64_t)row, 0xffffffffu, LP_STREAM_DRAW, (uint64_t)position(a, a->base_k + j),
              word);
    return word[0] < a->below ? 0 : (double)a->kept;
}

/* One row of the softmax: query i of sequence b in row q_row (of b, s, g, r), keys from row kv_row
 * on, kv_step apart. p and slope are room for t numbers each. */
static void reference_row(const LpAttention *a, const Reference *x, int b, int i, int head,
                          double *p, double *slope)
{
    const int d = a->d;
    const int e = a->e;
    const long q_row = ((long)b * a->s + i) * a->g * a->r + head;
    const long kv_row = (long)b * a->t * a->g + head / a->r;
    double peak = -INFINITY;
    double sum = 0;
    for (int j = 0; j < a->t; j++) {
        const double product =
            a->scale * dot(d, x->q + q_row * d, x->k + (kv_row + (long)j * a->g) * d);
        p[j] = bent(a, head, i, j, product, &slope[j]);
        p[j] = sees(a, b, i, j) ? p[j] : -INFINITY;
        peak = p[j] > peak ? p[j] : peak;
    }
    for (int j = 0; j < a->t; j++) {
        p[j] = peak == -INFINITY ? 0.0 : exp(p[j] - peak);
        sum += p[j];
    }
    x->l[q_row] = sum > 0 ? peak + log(sum) : -INFINITY;
    for (int j = 0; j < a->t && sum > 0; j++) {
        p[j] /= sum;
        add(e, p[j] * kept(a, b, i, head, j), x->v + (kv_row + (long)j * a->g) * e,
            x->o + q_row * e);
    }
    if (!x->dq) {
        return;
    }
    const double delta = dot(e, x->o + q_row * e, x->dout + q_row * e);
    for (int j = 0; j < a->t; j++) {
        const long key = kv_row + (long)j * a->g;
        const double dp = dot(e, x->dout + q_row * e, x->v + key * e);
        const double m = kept(a, b, i, head, j);
        const double ds = p[j] * (m * dp - delta) * slope[j] * a->scale;
        add(e, p[j] * m, x->dout + q_row * e, x->dv + key * e);
        add(d, ds, x->k + key * d, x->dq + q_row * d);
        add(d, ds, x->q + q_row * d, x->dk + key * d);
    }
}

void reference_attention(const LpAttention *a, const Reference *x)
{
    const long q_rows = (long)a->b * a->s * a->g * a->r;
    const long kv_rows = (long)a->b * a->t * a->g;
    double *p = calloc((size_t)a->t, 2 * sizeof *p);
    memset(x->o, 0, (size_t)(q_rows * a->e) * sizeof *x->o);
    if (x->dq) {
        memset(x->dq, 0, (size_t)(q_rows * a->d) * sizeof *x->dq);
        memset(x->dk, 0, (size_t)(kv_rows * a->d) * sizeof *x->dk);
        memset(x->dv, 0, (size_t)(kv_rows * a->e) * sizeof *x->dv);
    }
    for (int b = 0; b < a->b; b++) {
        for (int i = 0; i < a->s; i++) {
            for (int head = 0; head < a->g * a->r; head++) {
                reference_row(a, x, b, i, head, p, p + a->t);
            }
        }
    }
    free(p);
}
