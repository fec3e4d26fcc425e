/* eval.c - every op as plain loops over doubles: the meaning that all other code is compared with.
 */
#include "ir/eval.h"

#include <math.h>
#include <string.h>

enum { OPERANDS = MAX_IN + MAX_OUT };

/* One node on one block. Operands are the inputs, then from MAX_IN on the outputs. */
typedef struct Eval {
    const Net *net;
    const Graph *graph;
    const Node *node;
    const double *const *in;
    double *const *out;
    const int64_t *extent, *origin;
    int64_t stride[OPERANDS][MAX_LETTERS]; /* 0 where the operand lacks the letter */
    uint16_t set[OPERANDS];                /* its letters */
} Eval;

/* Runs over all index tuples of a set of letters, with the offset of each operand. */
typedef struct Walk {
    int n;
    int letter[MAX_LETTERS];
    int64_t at[MAX_LETTERS];    /* by position in `letter` */
    int64_t index[MAX_LETTERS]; /* by letter */
    int64_t offset[OPERANDS];
    bool more;
} Walk;

static Walk walk_begin(const Eval *e, uint16_t set)
{
    Walk w = {.more = true};
    for (int l = 0; l < e->node->sig.letters; l++) {
        if (!(set >> l & 1))
            continue;
        w.letter[w.n++] = l;
        w.more = w.more && e->extent[l] > 0;
    }
    return w;
}

static void walk_next(const Eval *e, Walk *w)
{
    for (int i = w->n - 1; i >= 0; i--) {
        int l = w->letter[i];
        bool wraps = ++w->at[i] == e->extent[l];
        int64_t steps = wraps ? 1 - e->extent[l] : 1;
        for (int o = 0; o < OPERANDS; o++)
            w->offset[o] += steps * e->stride[o][l];
        w->index[l] += steps;
        if (!wraps)
            return;
        w->at[i] = 0;
    }
    w->more = false;
}

#define WALK(w, e, set) for (Walk w = walk_begin(e, set); w.more; walk_next(e, &w))

static void set_operand(Eval *e, int operand, ValueId id, const int8_t *letter)
{
    int64_t stride = 1;
    for (int a = e->graph->values.at[id].axes - 1; a >= 0; a--) {
        e->stride[operand][letter[a]] = stride;
        e->set[operand] |= (uint16_t)(1u << letter[a]);
        stride *= e->extent[letter[a]];
    }
}

static int64_t elements(const Eval *e, int operand)
{
    int64_t n = 1;
    for (int l = 0; l < e->node->sig.letters; l++) {
        if (e->set[operand] >> l & 1)
            n *= e->extent[l];
    }
    return n;
}

static void clear_outputs(const Eval *e)
{
    for (int o = 0; o < e->node->outs; o++)
        memset(e->out[o], 0, (size_t)elements(e, MAX_IN + o) * sizeof(double));
}

static double read_in(const Eval *e, const Walk *w, int i)
{
    return e->in[i][w->offset[i]];
}

static double *at_out(const Eval *e, const Walk *w, int o)
{
    return &e->out[o][w->offset[MAX_IN + o]];
}

static int last_letter(const Eval *e, int input)
{
    return e->node->sig.in[input][e->graph->values.at[e->node->in[input]].axes - 1];
}

static int only_letter(uint16_t set)
{
    int l = 0;
    while (!(set >> l & 1))
        l++;
    return l;
}

/* Comparisons are written so that NaN stays NaN: the proofs fill memory with it. */
static double at_most_one(double x)
{
    return x > 1 ? 1 : x;
}

static double larger(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

/* ---- sums and pointwise ---- */

/* The longest letter runs innermost, by strides alone: a whole model is mostly this loop. */
static void eval_einsum(const Eval *e)
{
    clear_outputs(e);
    const Sig *sig = &e->node->sig;
    bool product = e->node->ins == 2;
    int inner = 0;
    for (int l = 1; l < sig->letters; l++)
        inner = e->extent[l] > e->extent[inner] ? l : inner;
    uint16_t outer = (uint16_t)((1u << sig->letters) - 1);
    int64_t n = 1;
    if (sig->letters > 0) {
        outer &= (uint16_t) ~(1u << inner);
        n = e->extent[inner];
    }
    int64_t sa = e->stride[0][inner], sb = e->stride[1][inner], sy = e->stride[MAX_IN][inner];
    WALK(w, e, outer)
    {
        const double *a = e->in[0] + w.offset[0];
        const double *b = product ? e->in[1] + w.offset[1] : NULL;
        double *y = at_out(e, &w, 0);
        for (int64_t i = 0; i < n; i++)
            y[i * sy] += product ? a[i * sa] * b[i * sb] : a[i * sa];
    }
}

static double act(ActKind kind, double x)
{
    switch (kind) {
    case ACT_SILU:
        return x / (1 + exp(-x));
    case ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACT_GELU_ERF:
        return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case ACT_RELU:
        return x <= 0 ? 0 : x;
    case ACT_RELU2:
        return x <= 0 ? 0 : x * x;
    case ACT_KIND_COUNT:
        break;
    }
    BUG("no activation %d", (int)kind);
}

static double act_slope(ActKind kind, double x)
{
    switch (kind) {
    case ACT_SILU: {
        double sigmoid = 1 / (1 + exp(-x));
        return sigmoid * (1 + x * (1 - sigmoid));
    }
    case ACT_GELU_TANH: {
        double c = sqrt(2 / M_PI), t = tanh(c * (x + 0.044715 * x * x * x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
    }
    case ACT_GELU_ERF:
        return 0.5 * (1 + erf(x * M_SQRT1_2)) + x * exp(-0.5 * x * x) / sqrt(2 * M_PI);
    case ACT_RELU:
        return x <= 0 ? 0 : x > 0 ? 1 : x;
    case ACT_RELU2:
        return x <= 0 ? 0 : 2 * x;
    case ACT_KIND_COUNT:
        break;
    }
    BUG("no activation %d", (int)kind);
}

static double pointwise(const Eval *e, const Walk *w)
{
    const Attrs *attrs = &e->node->attrs;
    double x = read_in(e, w, 0);
    double y = e->node->ins > 1 ? read_in(e, w, 1) : 0;
    switch (e->node->op) {
    case OP_ADD:
    case OP_BIAS:
        return x + y;
    case OP_MUL:
        return x * y;
    case OP_DIV:
        return x / y;
    case OP_SCALE:
        return x * attrs->scale.factor;
    case OP_ACT:
        return act(attrs->act.kind, x);
    case OP_ACT_GRAD:
        return act_slope(attrs->act.kind, x) * y;
    case OP_NLL:
        return log(x) + y - read_in(e, w, 2);
    case OP_CLIP:
        if (attrs->clip.max_norm <= 0)
            return 1;
        return at_most_one(attrs->clip.max_norm / (sqrt(x) + 1e-6));
    default:
        BUG("%s is not pointwise", op_info[e->node->op].text);
    }
}

static void eval_pointwise(const Eval *e)
{
    WALK(w, e, e->set[MAX_IN])
    *at_out(e, &w, 0) = pointwise(e, &w);
}

static void eval_sumsq(const Eval *e)
{
    clear_outputs(e);
    WALK(w, e, e->set[0])
    {
        double x = read_in(e, &w, 0);
        e->out[0][0] += x * x;
    }
}

static void eval_adamw(const Eval *e)
{
    const Attr_adamw *a = &e->node->attrs.adamw;
    double coef = e->in[4][0], lr = e->in[5][0], step = e->in[6][0];
    double c1 = 1 - pow(a->beta1, step), c2 = 1 - pow(a->beta2, step);
    WALK(w, e, e->set[0])
    {
        double x = read_in(e, &w, 0), g = read_in(e, &w, 3) * coef;
        double m = a->beta1 * read_in(e, &w, 1) + (1 - a->beta1) * g;
        double v = a->beta2 * read_in(e, &w, 2) + (1 - a->beta2) * g * g;
        x -= lr * a->decay * x;
        *at_out(e, &w, 0) = x - lr * (m / c1) / (sqrt(v / c2) + a->eps);
        *at_out(e, &w, 1) = m;
        *at_out(e, &w, 2) = v;
    }
}

/* ---- rows ---- */

/* Mean (0 for rms) and inverse deviation of a row of operand 0 along letter h. */
static void row_moments(const Eval *e, const Walk *w, int h, double *ret_mean, double *ret_inverse)
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

static void eval_norm(const Eval *e)
{
    int h = last_letter(e, 0);
    WALK(w, e, (uint16_t)(e->set[0] & ~(1u << h)))
    {
        double mean, inverse;
        row_moments(e, &w, h, &mean, &inverse);
        const double *x = e->in[0] + w.offset[0];
        for (int64_t i = 0; i < e->extent[h]; i++)
            at_out(e, &w, 0)[i * e->stride[MAX_IN][h]] =
                (x[i * e->stride[0][h]] - mean) * inverse * e->in[1][i * e->stride[1][h]];
    }
}

static void eval_norm_dx(const Eval *e)
{
    int h = last_letter(e, 0);
    int64_t n = e->extent[h];
    WALK(w, e, (uint16_t)(e->set[0] & ~(1u << h)))
    {
        double mean, inverse, along = 0, shift = 0;
        row_moments(e, &w, h, &mean, &inverse);
        const double *x = e->in[0] + w.offset[0], *dy = e->in[2] + w.offset[2];
        for (int64_t i = 0; i < n; i++) {
            double g = e->in[1][i * e->stride[1][h]] * dy[i * e->stride[2][h]];
            along += g * (x[i * e->stride[0][h]] - mean) * inverse / (double)n;
            shift += g / (double)n;
        }
        if (e->node->attrs.norm.kind == NORM_RMS)
            shift = 0;
        for (int64_t i = 0; i < n; i++) {
            double g = e->in[1][i * e->stride[1][h]] * dy[i * e->stride[2][h]];
            double unit = (x[i * e->stride[0][h]] - mean) * inverse;
            at_out(e, &w, 0)[i * e->stride[MAX_IN][h]] = inverse * (g - shift - unit * along);
        }
    }
}

static void eval_norm_dg(const Eval *e)
{
    clear_outputs(e);
    int h = last_letter(e, 0);
    WALK(w, e, (uint16_t)(e->set[0] & ~(1u << h)))
    {
        double mean, inverse;
        row_moments(e, &w, h, &mean, &inverse);
        const double *x = e->in[0] + w.offset[0], *dy = e->in[1] + w.offset[1];
        for (int64_t i = 0; i < e->extent[h]; i++)
            e->out[0][i] += dy[i * e->stride[1][h]] * (x[i * e->stride[0][h]] - mean) * inverse;
    }
}

/* Radians that pair `i` turns per position. */
static double rope_rate(const Attr_rope *rope, int64_t i)
{
    double rate = pow(rope->theta, -2.0 * (double)i / (double)rope->rotary);
    if (rope->scaling == ROPE_PLAIN)
        return rate;
    if (rope->scaling == ROPE_LINEAR)
        return rate / rope->factor;
    /* Llama 3.1: short waves stay, long ones are stretched, a ramp between. */
    double turns = (double)rope->original * rate / (2 * M_PI);
    if (turns > rope->high)
        return rate;
    if (turns < rope->low)
        return rate / rope->factor;
    double ramp = (turns - rope->low) / (rope->high - rope->low);
    return (1 - ramp) * rate / rope->factor + ramp * rate;
}

static void eval_rope(const Eval *e)
{
    const Attr_rope *rope = &e->node->attrs.rope;
    int d = last_letter(e, 0), s = only_letter(e->node->sig.base);
    int64_t half = rope->rotary / 2, in = e->stride[0][d], out = e->stride[MAX_IN][d];
    WALK(w, e, (uint16_t)(e->set[0] & ~(1u << d)))
    {
        const double *x = e->in[0] + w.offset[0];
        double *y = at_out(e, &w, 0);
        double position = (double)(e->origin[s] + w.index[s]);
        for (int64_t i = 0; i < half; i++) {
            int64_t a = rope->interleaved ? 2 * i : i, b = rope->interleaved ? a + 1 : i + half;
            double angle = position * rope_rate(rope, i);
            double c = cos(angle), z = rope->inverse ? -sin(angle) : sin(angle);
            y[a * out] = x[a * in] * c - x[b * in] * z;
            y[b * out] = x[b * in] * c + x[a * in] * z;
        }
        for (int64_t i = rope->rotary; i < e->extent[d]; i++)
            y[i * out] = x[i * in];
    }
}

/* ---- attention ---- */

/* Letters of the op: s of the queries, t of the keys, d of both. */
typedef struct Heads {
    int s, t, d;
    int64_t base_q, base_k;
} Heads;

static Heads heads_of(const Eval *e)
{
    const Sig *sig = &e->node->sig;
    Heads h = {.s = sig->in[0][1], .t = sig->in[1][1], .d = last_letter(e, 0)};
    h.base_q = e->origin[h.s];
    h.base_k = e->origin[h.t];
    return h;
}

static bool visible(const Eval *e, const Heads *h, int64_t query, int64_t key)
{
    const Attr_attention *a = &e->node->attrs.attention;
    int64_t back = h->base_q + query - (h->base_k + key);
    return (!a->causal || back >= 0) && (a->window <= 0 || back < a->window);
}

/* Dot product of rows of two inputs along d; key moves the second one along t. */
static double row_dot(const Eval *e, const Walk *w, const Heads *h, int a, int b, int64_t key)
{
    const double *x = e->in[a] + w->offset[a];
    const double *y = e->in[b] + w->offset[b] + key * e->stride[b][h->t];
    double sum = 0;
    for (int64_t i = 0; i < e->extent[h->d]; i++)
        sum += x[i * e->stride[a][h->d]] * y[i * e->stride[b][h->d]];
    return sum;
}

static void eval_attention(const Eval *e)
{
    Heads h = heads_of(e);
    double scale = e->node->attrs.attention.scale;
    clear_outputs(e);
    WALK(w, e, e->set[MAX_IN + 1])
    {
        double max = -INFINITY, sum = 0;
        for (int64_t t = 0; t < e->extent[h.t]; t++) {
            if (visible(e, &h, w.index[h.s], t))
                max = larger(max, scale * row_dot(e, &w, &h, 0, 1, t));
        }
        *at_out(e, &w, 1) = -INFINITY;
        if (isinf(max))
            continue;
        double *o = at_out(e, &w, 0);
        for (int64_t t = 0; t < e->extent[h.t]; t++) {
            if (!visible(e, &h, w.index[h.s], t))
                continue;
            double p = exp(scale * row_dot(e, &w, &h, 0, 1, t) - max);
            const double *v = e->in[2] + w.offset[2] + t * e->stride[2][h.t];
            for (int64_t i = 0; i < e->extent[h.d]; i++)
                o[i * e->stride[MAX_IN][h.d]] += p * v[i * e->stride[2][h.d]];
            sum += p;
        }
        for (int64_t i = 0; i < e->extent[h.d]; i++)
            o[i * e->stride[MAX_IN][h.d]] /= sum;
        *at_out(e, &w, 1) = max + log(sum);
    }
}

/* Inputs q, k, v, do, l, delta; l and delta are those of the whole row of keys, of which t may be a
 * part. */
static void eval_attention_grad(const Eval *e)
{
    Heads h = heads_of(e);
    double scale = e->node->attrs.attention.scale;
    clear_outputs(e);
    WALK(w, e, e->set[4])
    {
        double l = read_in(e, &w, 4), delta = read_in(e, &w, 5);
        const double *q = e->in[0] + w.offset[0], *go = e->in[3] + w.offset[3];
        for (int64_t t = 0; t < e->extent[h.t]; t++) {
            if (!visible(e, &h, w.index[h.s], t) || isinf(l))
                continue;
            double p = exp(scale * row_dot(e, &w, &h, 0, 1, t) - l);
            double ds = scale * p * (row_dot(e, &w, &h, 3, 2, t) - delta);
            const double *k = e->in[1] + w.offset[1] + t * e->stride[1][h.t];
            double *dq = at_out(e, &w, 0);
            double *dk = at_out(e, &w, 1) + t * e->stride[MAX_IN + 1][h.t];
            double *dv = at_out(e, &w, 2) + t * e->stride[MAX_IN + 2][h.t];
            for (int64_t i = 0; i < e->extent[h.d]; i++) {
                dq[i * e->stride[MAX_IN][h.d]] += ds * k[i * e->stride[1][h.d]];
                dk[i * e->stride[MAX_IN + 1][h.d]] += ds * q[i * e->stride[0][h.d]];
                dv[i * e->stride[MAX_IN + 2][h.d]] += p * go[i * e->stride[3][h.d]];
            }
        }
    }
}

/* ---- ids and vocabularies ---- */

static void eval_split(const Eval *e)
{
    int c = only_letter(e->node->sig.nosplit);
    for (int part = 0; part < e->node->outs; part++) {
        WALK(w, e, e->set[MAX_IN + part])
        *at_out(e, &w, part) = e->in[0][w.offset[0] + part * e->stride[0][c]];
    }
}

static void eval_stack(const Eval *e)
{
    int c = only_letter(e->node->sig.nosplit);
    for (int part = 0; part < e->node->ins; part++) {
        WALK(w, e, e->set[part])
        at_out(e, &w, 0)[part * e->stride[MAX_IN][c]] = read_in(e, &w, part);
    }
}

static void eval_iota(const Eval *e)
{
    int s = only_letter(e->node->sig.base);
    for (int64_t i = 0; i < e->extent[s]; i++)
        e->out[0][i] = (double)(e->origin[s] + i);
}

/* Where the id of operand 0 falls in the local block of letter v, or NONE. */
static int64_t local_row(const Eval *e, const Walk *w, int v)
{
    double id = read_in(e, w, 0);
    if (isnan(id))
        return NONE;
    int64_t row = (int64_t)llround(id) - e->origin[v];
    return row >= 0 && row < e->extent[v] ? row : NONE;
}

/* What an id adds to whatever it addresses: nothing, or NaN when it was never written. */
static double id_poison(const Eval *e, const Walk *w)
{
    return isnan(read_in(e, w, 0)) ? NAN : 0;
}

/* Lookup and pick: row `id` of operand 1, zero when another block has it. */
static void eval_take(const Eval *e)
{
    int v = only_letter(e->node->sig.base);
    WALK(w, e, e->set[MAX_IN])
    {
        int64_t row = local_row(e, &w, v);
        *at_out(e, &w, 0) =
            row == NONE ? id_poison(e, &w) : e->in[1][w.offset[1] + row * e->stride[1][v]];
    }
}

static void eval_scatter(const Eval *e)
{
    int v = only_letter(e->node->sig.base);
    clear_outputs(e);
    WALK(w, e, e->set[1])
    {
        int64_t row = local_row(e, &w, v);
        if (row != NONE)
            at_out(e, &w, 0)[row * e->stride[MAX_IN][v]] += read_in(e, &w, 1);
        else
            *at_out(e, &w, 0) += id_poison(e, &w);
    }
}

static void eval_onehot(const Eval *e)
{
    int v = only_letter(e->node->sig.base);
    WALK(w, e, e->set[MAX_IN])
    {
        bool here = local_row(e, &w, v) == w.index[v];
        *at_out(e, &w, 0) = here ? read_in(e, &w, 1) : id_poison(e, &w);
    }
}

/* Local rows of the block that are words, not padding: a prefix. */
static int64_t words(const Eval *e, int v)
{
    int64_t used = e->net->dims.at[e->node->sig.dim[v]].used - e->origin[v];
    return used < 0 ? 0 : used < e->extent[v] ? used : e->extent[v];
}

static void eval_vmax(const Eval *e)
{
    int v = only_letter(e->node->sig.base);
    WALK(w, e, e->set[MAX_IN])
    {
        double max = -INFINITY;
        for (int64_t i = 0; i < words(e, v); i++)
            max = larger(max, e->in[0][w.offset[0] + i * e->stride[0][v]]);
        *at_out(e, &w, 0) = max;
    }
}

static void eval_sumexp(const Eval *e)
{
    int v = only_letter(e->node->sig.base);
    WALK(w, e, e->set[MAX_IN])
    {
        double sum = 0, max = read_in(e, &w, 1);
        for (int64_t i = 0; i < words(e, v); i++)
            sum += exp(e->in[0][w.offset[0] + i * e->stride[0][v]] - max);
        *at_out(e, &w, 0) = sum;
    }
}

static void eval_expmul(const Eval *e)
{
    int v = only_letter(e->node->sig.base);
    WALK(w, e, e->set[MAX_IN])
    *at_out(e, &w, 0) = w.index[v] < words(e, v)
                            ? exp(read_in(e, &w, 0) - read_in(e, &w, 1)) * read_in(e, &w, 2)
                            : 0;
}

void eval_node(const Net *net, const Graph *graph, const Node *node, const double *const *in,
               double *const *out, const int64_t extent[MAX_LETTERS],
               const int64_t origin[MAX_LETTERS])
{
    static void (*const rule[OP_COUNT])(const Eval *) = {
        [OP_EINSUM] = eval_einsum,
        [OP_ADD] = eval_pointwise,
        [OP_BIAS] = eval_pointwise,
        [OP_MUL] = eval_pointwise,
        [OP_SCALE] = eval_pointwise,
        [OP_ACT] = eval_pointwise,
        [OP_NORM] = eval_norm,
        [OP_ROPE] = eval_rope,
        [OP_ATTENTION] = eval_attention,
        [OP_SPLIT] = eval_split,
        [OP_LOOKUP] = eval_take,
        [OP_IOTA] = eval_iota,
        [OP_VMAX] = eval_vmax,
        [OP_SUMEXP] = eval_sumexp,
        [OP_PICK] = eval_take,
        [OP_NLL] = eval_pointwise,
        [OP_REDUCE] = eval_einsum,
        [OP_ACT_GRAD] = eval_pointwise,
        [OP_NORM_DX] = eval_norm_dx,
        [OP_NORM_DG] = eval_norm_dg,
        [OP_ATTENTION_GRAD] = eval_attention_grad,
        [OP_STACK] = eval_stack,
        [OP_SCATTER] = eval_scatter,
        [OP_EXPMUL] = eval_expmul,
        [OP_ONEHOT] = eval_onehot,
        [OP_DIV] = eval_pointwise,
        [OP_SUMSQ] = eval_sumsq,
        [OP_CLIP] = eval_pointwise,
        [OP_ADAMW] = eval_adamw,
    };
    Eval e = {.net = net,
              .graph = graph,
              .node = node,
              .in = in,
              .out = out,
              .extent = extent,
              .origin = origin};
    for (int i = 0; i < node->ins; i++)
        set_operand(&e, i, node->in[i], node->sig.in[i]);
    for (int o = 0; o < node->outs; o++)
        set_operand(&e, MAX_IN + o, node->out[o], node->sig.out[o]);
    if (!rule[node->op])
        BUG("%s has no meaning", op_info[node->op].text);
    rule[node->op](&e);
}
