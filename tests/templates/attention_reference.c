/* attention_reference.c - attention in double by its definition. */
#include "tests/templates/attention_reference.h"

#include <stdlib.h>

static int sees(const LpAttention *a, int i, int j)
{
    const long query = a->base_q + i;
    const long key = a->base_k + j;
    return (!a->causal || query >= key) && (a->window <= 0 || query - key < a->window);
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

/* One row of the softmax: query row q_row (of b, s, g, r), keys from row kv_row of stride width. */
static void reference_row(const LpAttention *a, const Reference *x, long q_row, long kv_row,
                          long kv_step, int i, double *p)
{
    const int d = a->d;
    double peak = -INFINITY;
    double sum = 0;
    for (int j = 0; j < a->t; j++) {
        p[j] = sees(a, i, j)
                   ? a->scale * dot(d, x->q + q_row * d, x->k + (kv_row + j * kv_step) * d)
                   : -INFINITY;
        peak = p[j] > peak ? p[j] : peak;
    }
    for (int j = 0; j < a->t; j++) {
        p[j] = peak == -INFINITY ? 0.0 : exp(p[j] - peak);
        sum += p[j];
    }
    x->l[q_row] = sum > 0 ? peak + log(sum) : -INFINITY;
    for (int j = 0; j < a->t && sum > 0; j++) {
        p[j] /= sum;
        add(d, p[j], x->v + (kv_row + j * kv_step) * d, x->o + q_row * d);
    }
    if (!x->dq) {
        return;
    }
    const double delta = dot(d, x->o + q_row * d, x->dout + q_row * d);
    for (int j = 0; j < a->t; j++) {
        const long key = (kv_row + j * kv_step) * d;
        const double ds = p[j] * (dot(d, x->dout + q_row * d, x->v + key) - delta) * a->scale;
        add(d, p[j], x->dout + q_row * d, x->dv + key);
        add(d, ds, x->k + key, x->dq + q_row * d);
        add(d, ds, x->q + q_row * d, x->dk + key);
    }
}

void reference_attention(const LpAttention *a, const Reference *x)
{
    const long q_size = (long)a->b * a->s * a->g * a->r * a->d;
    const long kv_size = (long)a->b * a->t * a->g * a->d;
    double *p = calloc((size_t)a->t, sizeof *p);
    memset(x->o, 0, (size_t)q_size * sizeof *x->o);
    if (x->dq) {
        memset(x->dq, 0, (size_t)q_size * sizeof *x->dq);
        memset(x->dk, 0, (size_t)kv_size * sizeof *x->dk);
        memset(x->dv, 0, (size_t)kv_size * sizeof *x->dv);
    }
    for (int b = 0; b < a->b; b++) {
        for (int i = 0; i < a->s; i++) {
            for (int head = 0; head < a->g * a->r; head++) {
                const long q_row = ((long)b * a->s + i) * a->g * a->r + head;
                const long kv_row = (long)b * a->t * a->g + head / a->r;
                reference_row(a, x, q_row, kv_row, a->g, i, p);
            }
        }
    }
    free(p);
}
