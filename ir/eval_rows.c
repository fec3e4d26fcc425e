/* eval_rows.c - the meaning of norms, rope and attention. */
#include <math.h>

#include "ir/base/rng.h"
#include "ir/eval_walk.h"

/* ---- norms ---- */

/* Mean (0 for rms) and inverse deviation of a row of operand 0 along letter h. */
static void row_moments(const Eval *e, const EvalWalk *w, int h, double *ret_mean,
                        double *ret_inverse)
{
    const Attr_norm *norm = &e->node->attrs.norm;
    int64_t n = e->extent[h], stride = e->stride[0][h];
    const double *x = e->in[0] + w->offset[0];
    double mean = 0, square = 0;
    for (int64_t i = 0; norm->kind == NORM_LAYER && i < n; i++)
        mean += x[i * stride] / (double)n;
    for (int64_t i = 0; i < n; i++)
        square += (x[i * stride] - mean) * (x[i * stride] - mean) / (double)n;
    *ret_mean = mean;
    *ret_inverse = 1 / sqrt(square + norm->eps);
}

/* Some families store gains less one. */
static double gain(const Eval *e, int h, int64_t i)
{
    return e->in[1][i * e->stride[1][h]] + e->node->attrs.norm.shift;
}

void eval_norm(const Eval *e)
{
    int h = eval_last_letter(e, 0);
    WALK(w, e, (uint16_t)(e->set[0] & ~(1u << h)))
    {
        double mean, inverse;
        row_moments(e, &w, h, &mean, &inverse);
        const double *x = e->in[0] + w.offset[0];
        for (int64_t i = 0; i < e->extent[h]; i++)
            eval_out(e, &w, 0)[i * e->stride[MAX_IN][h]] =
                (x[i * e->stride[0][h]] - mean) * inverse * gain(e, h, i);
    }
}

void eval_norm_dx(const Eval *e)
{
    int h = eval_last_letter(e, 0);
    int64_t n = e->extent[h];
    WALK(w, e, (uint16_t)(e->set[0] & ~(1u << h)))
    {
        double mean, inverse, along = 0, shift = 0;
        row_moments(e, &w, h, &mean, &inverse);
        const double *x = e->in[0] + w.offset[0], *dy = e->in[2] + w.offset[2];
        for (int64_t i = 0; i < n; i++) {
            double g = gain(e, h, i) * dy[i * e->stride[2][h]];
            along += g * (x[i * e->stride[0][h]] - mean) * inverse / (double)n;
            shift += g / (double)n;
        }
        if (e->node->attrs.norm.kind == NORM_RMS)
            shift = 0;
        for (int64_t i = 0; i < n; i++) {
            double g = gain(e, h, i) * dy[i * e->stride[2][h]];
            double unit = (x[i * e->stride[0][h]] - mean) * inverse;
            eval_out(e, &w, 0)[i * e->stride[MAX_IN][h]] = inverse * (g - shift - unit * along);
        }
    }
}

void eval_norm_dg(const Eval *e)
{
    eval_clear_outputs(e);
    int h = eval_last_letter(e, 0);
    WALK(w, e, (uint16_t)(e->set[0] & ~(1u << h)))
    {
        double mean, inverse;
        row_moments(e, &w, h, &mean, &inverse);
        const double *x = e->in[0] + w.offset[0], *dy = e->in[1] + w.offset[1];
        for (int64_t i = 0; i < e->extent[h]; i++)
            e->out[0][i] += dy[i * e->stride[1][h]] * (x[i * e->stride[0][h]] - mean) * inverse;
    }
}

/* ---- rope ---- */

void eval_rope(const Eval *e)
{
    const Attr_rope *rope = &e->node->attrs.rope;
    int d = eval_last_letter(e, 0), s = eval_only_letter(e->node->sig.base);
    double gain_all = rope_gain(rope);
    int64_t half = rope->rotary / 2, in = e->stride[0][d], out = e->stride[MAX_IN][d];
    WALK(w, e, (uint16_t)(e->set[0] & ~(1u << d)))
    {
        const double *x = e->in[0] + w.offset[0];
        double *y = eval_out(e, &w, 0);
        double position = (double)eval_position(e, s, w.index[s]);
        if (e->node->ins > 1)
            position -= eval_in(e, &w, 1);
        for (int64_t i = 0; i < half; i++) {
            int64_t a = rope->interleaved ? 2 * i : i, b = rope->interleaved ? a + 1 : i + half;
            double angle = position * rope_rate(rope, i);
            double c = gain_all * cos(angle), z = gain_all * sin(angle);
            z = rope->inverse ? -z : z;
            y[a * out] = x[a * in] * c - x[b * in] * z;
            y[b * out] = x[b * in] * c + x[a * in] * z;
        }
        for (int64_t i = rope->rotary; i < e->extent[d]; i++)
            y[i * out] = x[i * in];
    }
}

/* Queries far from the beginning are made longer, by steps of a length. */
void eval_temper(const Eval *e)
{
    const Attr_temper *t = &e->node->attrs.temper;
    int s = eval_only_letter(e->node->sig.base);
    WALK(w, e, e->set[0])
    {
        double position = (double)(eval_position(e, s, w.index[s]) + t->ahead);
        double factor = 1 + t->scale * log(1 + floor(position / t->length));
        *eval_out(e, &w, 0) = factor * eval_in(e, &w, 0);
    }
}

/* ---- attention ---- */

/* Letters of the op: s of the queries, t of the keys, d of both, v of the values; operands that the
 * node may lack, or NONE. */
typedef struct Heads {
    int s, t, d, v;
    int slopes, starts, words;
} Heads;

static Heads heads_of(const Eval *e)
{
    const Sig *sig = &e->node->sig;
    Heads h = {.s = sig->in[0][1], .t = sig->in[1][1], .d = eval_last_letter(e, 0)};
    h.v = eval_last_letter(e, 2);
    h.slopes = attention_slopes(e->graph, e->node);
    h.starts = attention_starts(e->graph, e->node);
    h.words = attention_words(e->graph, e->node);
    return h;
}

/* One query row sees a key of its document, chunk and window, and none ahead. */
static bool visible(const Eval *e, const Heads *h, const EvalWalk *w, int64_t key)
{
    const Attr_attention *a = &e->node->attrs.attention;
    int64_t query = eval_position(e, h->s, w->index[h->s]);
    key = eval_position(e, h->t, key);
    if (h->starts != NONE && (double)key < eval_in(e, w, h->starts))
        return false;
    if (a->chunk > 0 && query / a->chunk != key / a->chunk)
        return false;
    return (!a->causal || query >= key) && (a->window <= 0 || query - key < a->window);
}

/* Dot product of rows of two inputs along a letter; key moves the second one along t. */
static double row_dot(const Eval *e, const EvalWalk *w, const Heads *h, int a, int b, int along,
                      int64_t key)
{
    const double *x = e->in[a] + w->offset[a];
    const double *y = e->in[b] + w->offset[b] + key * e->stride[b][h->t];
    double sum = 0;
    for (int64_t i = 0; i < e->extent[along]; i++)
        sum += x[i * e->stride[a][along]] * y[i * e->stride[b][along]];
    return sum;
}

/* The score of one key, and its slope by the scaled product. */
static double score(const Eval *e, const EvalWalk *w, const Heads *h, int64_t key,
                    double *ret_slope)
{
    const Attr_attention *a = &e->node->attrs.attention;
    double x = a->scale * row_dot(e, w, h, 0, 1, h->d, key);
    *ret_slope = 1;
    if (a->softcap > 0) {
        double t = tanh(x / a->softcap);
        x = a->softcap * t;
        *ret_slope = 1 - t * t;
    }
    if (h->slopes != NONE) {
        int64_t ahead = eval_position(e, h->t, key) - eval_position(e, h->s, w->index[h->s]);
        x += eval_in(e, w, h->slopes) * (double)ahead;
    }
    bool poisoned = h->starts != NONE && isnan(eval_in(e, w, h->starts));
    return poisoned ? NAN : x;
}

/* What the share of a key is multiplied by: 0, or what keeps the mean. */
static double kept(const Eval *e, const EvalWalk *w, const Heads *h, int64_t key)
{
    double rate = e->node->attrs.attention.drop, word;
    if (h->words == NONE || e->draw->off)
        return 1;
    word = eval_in(e, w, h->words);
    if (isnan(word))
        return NAN;
    bool drops = rng_drop_word((uint64_t)word, DRAW_OF_ROW, (uint64_t)eval_position(e, h->t, key)) <
                 rng_drop_below(rate);
    return drops ? 0 : 1 / (1 - rate);
}

void eval_attention(const Eval *e)
{
    Heads h = heads_of(e);
    double slope;
    eval_clear_outputs(e);
    WALK(w, e, e->set[MAX_IN + 1])
    {
        double max = -INFINITY, sum = 0;
        for (int64_t t = 0; t < e->extent[h.t]; t++) {
            if (visible(e, &h, &w, t))
                max = eval_larger(max, score(e, &w, &h, t, &slope));
        }
        *eval_out(e, &w, 1) = -INFINITY;
        if (isinf(max))
            continue;
        double *o = eval_out(e, &w, 0);
        for (int64_t t = 0; t < e->extent[h.t]; t++) {
            if (!visible(e, &h, &w, t))
                continue;
            double p = exp(score(e, &w, &h, t, &slope) - max), share = kept(e, &w, &h, t);
            const double *v = e->in[2] + w.offset[2] + t * e->stride[2][h.t];
            for (int64_t i = 0; i < e->extent[h.v]; i++)
                o[i * e->stride[MAX_IN][h.v]] += p * share * v[i * e->stride[2][h.v]];
            sum += p;
        }
        for (int64_t i = 0; i < e->extent[h.v]; i++)
            o[i * e->stride[MAX_IN][h.v]] /= sum;
        *eval_out(e, &w, 1) = max + log(sum);
    }
}

/* Inputs q, k, v, do, l, delta; l and delta are those of the whole row of keys, of which t may be a
 * part. */
void eval_attention_grad(const Eval *e)
{
    Heads h = heads_of(e);
    double scale = e->node->attrs.attention.scale;
    eval_clear_outputs(e);
    WALK(w, e, e->set[4])
    {
        double l = eval_in(e, &w, 4), delta = eval_in(e, &w, 5);
        const double *q = e->in[0] + w.offset[0], *go = e->in[3] + w.offset[3];
        for (int64_t t = 0; t < e->extent[h.t]; t++) {
            if (!visible(e, &h, &w, t) || isinf(l))
                continue;
            double slope, p = exp(score(e, &w, &h, t, &slope) - l);
            double share = kept(e, &w, &h, t);
            double ds = scale * slope * p * (share * row_dot(e, &w, &h, 3, 2, h.v, t) - delta);
            const double *k = e->in[1] + w.offset[1] + t * e->stride[1][h.t];
            double *dq = eval_out(e, &w, 0);
            double *dk = eval_out(e, &w, 1) + t * e->stride[MAX_IN + 1][h.t];
            double *dv = eval_out(e, &w, 2) + t * e->stride[MAX_IN + 2][h.t];
            for (int64_t i = 0; i < e->extent[h.d]; i++) {
                dq[i * e->stride[MAX_IN][h.d]] += ds * k[i * e->stride[1][h.d]];
                dk[i * e->stride[MAX_IN + 1][h.d]] += ds * q[i * e->stride[0][h.d]];
            }
            for (int64_t i = 0; i < e->extent[h.v]; i++)
                dv[i * e->stride[MAX_IN + 2][h.v]] += p * share * go[i * e->stride[3][h.v]];
        }
    }
}
