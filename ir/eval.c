/* eval.c - every op as plain loops over doubles: the meaning that all other code is compared with.
 */
#include "ir/eval.h"

#include <math.h>
#include <string.h>

#include "ir/base/rng.h"
#include "ir/eval_walk.h"

EvalWalk eval_walk(const Eval *e, uint16_t set)
{
    EvalWalk w = {.more = true};
    for (int l = 0; l < e->node->sig.letters; l++) {
        if (!(set >> l & 1))
            continue;
        w.letter[w.n++] = l;
        w.more = w.more && e->extent[l] > 0;
    }
    return w;
}

void eval_walk_next(const Eval *e, EvalWalk *w)
{
    for (int i = w->n - 1; i >= 0; i--) {
        int l = w->letter[i];
        bool wraps = ++w->at[i] == e->extent[l];
        int64_t steps = wraps ? 1 - e->extent[l] : 1;
        for (int o = 0; o < e->node->ins; o++)
            w->offset[o] += steps * e->stride[o][l];
        for (int o = MAX_IN; o < MAX_IN + e->node->outs; o++)
            w->offset[o] += steps * e->stride[o][l];
        w->index[l] += steps;
        if (!wraps)
            return;
        w->at[i] = 0;
    }
    w->more = false;
}

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

void eval_clear_outputs(const Eval *e)
{
    for (int o = 0; o < e->node->outs; o++)
        memset(e->out[o], 0, (size_t)elements(e, MAX_IN + o) * sizeof(double));
}

int eval_last_letter(const Eval *e, int input)
{
    return e->node->sig.in[input][e->graph->values.at[e->node->in[input]].axes - 1];
}

int eval_only_letter(uint16_t set)
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

double eval_larger(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

/* ---- pointwise ---- */

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
    case ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case ACT_LOG:
        return log(x);
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
    case ACT_SIGMOID: {
        double sigmoid = 1 / (1 + exp(-x));
        return sigmoid * (1 - sigmoid);
    }
    case ACT_LOG:
        return 1 / x;
    case ACT_KIND_COUNT:
        break;
    }
    BUG("no activation %d", (int)kind);
}

static double curve(const Attr_curve *c, double x)
{
    switch (c->kind) {
    case CURVE_SWISH:
        return x / (1 + exp(-c->a * x));
    case CURVE_SOFTCAP:
        return c->a * tanh(x / c->a);
    case CURVE_CLAMP:
        return x < c->a ? c->a : x > c->b ? c->b : x;
    case CURVE_SHIFT:
        return x + c->a;
    case CURVE_RECIP:
        return 1 / (x + c->a);
    case CURVE_RSQRT:
        return 1 / sqrt(c->a * x + c->b);
    case CURVE_KIND_COUNT:
        break;
    }
    BUG("no curve %d", (int)c->kind);
}

static double curve_slope(const Attr_curve *c, double x)
{
    switch (c->kind) {
    case CURVE_SWISH: {
        double sigmoid = 1 / (1 + exp(-c->a * x));
        return sigmoid * (1 + c->a * x * (1 - sigmoid));
    }
    case CURVE_SOFTCAP: {
        double t = tanh(x / c->a);
        return 1 - t * t;
    }
    case CURVE_CLAMP: /* the ends count as inside */
        return x < c->a || x > c->b ? 0 : isnan(x) ? x : 1;
    case CURVE_SHIFT:
        return 1;
    case CURVE_RECIP:
        return -1 / ((x + c->a) * (x + c->a));
    case CURVE_RSQRT:
        return -0.5 * c->a * pow(c->a * x + c->b, -1.5);
    case CURVE_KIND_COUNT:
        break;
    }
    BUG("no curve %d", (int)c->kind);
}

static double pointwise(const Eval *e, const EvalWalk *w)
{
    const Attrs *attrs = &e->node->attrs;
    double x = eval_in(e, w, 0);
    double y = e->node->ins > 1 ? eval_in(e, w, 1) : 0;
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
    case OP_SIGN: /* NaN stays NaN */
        if (attrs->sign.linear)
            return x - attrs->sign.rate * y;
        return y > 0 ? x - attrs->sign.rate : y < 0 ? x + attrs->sign.rate : x + y;
    case OP_ACT:
        return act(attrs->act.kind, x);
    case OP_ACT_GRAD:
        return act_slope(attrs->act.kind, x) * y;
    case OP_CURVE:
        return curve(&attrs->curve, x);
    case OP_CURVE_GRAD:
        return curve_slope(&attrs->curve, x) * y;
    case OP_BROADCAST:
        return x;
    case OP_NLL:
        return log(x) + y - eval_in(e, w, 2);
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
    *eval_out(e, &w, 0) = pointwise(e, &w);
}

static void eval_sumsq(const Eval *e)
{
    eval_clear_outputs(e);
    WALK(w, e, e->set[0])
    {
        double x = eval_in(e, &w, 0);
        e->out[0][0] += x * x;
    }
}

static void eval_momentum(const Eval *e)
{
    double keep = e->node->attrs.momentum.momentum, coef = e->in[2][0];
    WALK(w, e, e->set[0])
    *eval_out(e, &w, 0) = keep * eval_in(e, &w, 0) + (1 - keep) * coef * eval_in(e, &w, 1);
}

static void eval_descend(const Eval *e)
{
    double lr = e->in[2][0], decay = e->in[3][0], ratio = e->node->attrs.descend.ratio;
    WALK(w, e, e->set[0])
    {
        double x = eval_in(e, &w, 0);
        *eval_out(e, &w, 0) = x - lr * decay * x - lr * ratio * eval_in(e, &w, 1);
    }
}

static void eval_adamw(const Eval *e)
{
    const Attr_adamw *a = &e->node->attrs.adamw;
    double coef = e->in[4][0], lr = e->in[5][0], step = e->in[6][0];
    double c1 = 1 - pow(a->beta1, step), c2 = 1 - pow(a->beta2, step);
    WALK(w, e, e->set[0])
    {
        double x = eval_in(e, &w, 0), g = eval_in(e, &w, 3) * coef;
        double m = a->beta1 * eval_in(e, &w, 1) + (1 - a->beta1) * g;
        double v = a->beta2 * eval_in(e, &w, 2) + (1 - a->beta2) * g * g;
        x -= lr * a->decay * x;
        *eval_out(e, &w, 0) = x - lr * (m / c1) / (sqrt(v / c2) + a->eps);
        *eval_out(e, &w, 1) = m;
        *eval_out(e, &w, 2) = v;
    }
}

/* ---- ids and vocabularies ---- */

/* Where each part begins along the letter that they share, and how an index of a part counts along
 * it: its own letters, the last fastest. */
static int64_t part_place(const Eval *e, const EvalWalk *w, int part, int operand, int whole)
{
    uint16_t own = (uint16_t)(e->set[operand] & ~e->set[whole]);
    const Value *value =
        &e->graph->values
             .at[operand < MAX_IN ? e->node->in[operand] : e->node->out[operand - MAX_IN]];
    const int8_t *letter =
        operand < MAX_IN ? e->node->sig.in[operand] : e->node->sig.out[operand - MAX_IN];
    int64_t place = 0;
    for (int p = 0; p < part; p++)
        place += part_extent(e->graph, e->node, p, e->extent);
    int64_t at = 0;
    for (int a = 0; a < value->axes; a++) {
        if (own >> letter[a] & 1)
            at = at * e->extent[letter[a]] + w->index[letter[a]];
    }
    return place + at;
}

static void eval_split(const Eval *e)
{
    int64_t stride = e->stride[0][split_letter(e->graph, e->node)];
    for (int part = 0; part < e->node->outs; part++) {
        WALK(w, e, e->set[MAX_IN + part])
        *eval_out(e, &w, part) =
            e->in[0][w.offset[0] + stride * part_place(e, &w, part, MAX_IN + part, 0)];
    }
}

static void eval_stack(const Eval *e)
{
    int64_t stride = e->stride[MAX_IN][split_letter(e->graph, e->node)];
    for (int part = 0; part < e->node->ins; part++) {
        WALK(w, e, e->set[part])
        eval_out(e, &w, 0)[stride * part_place(e, &w, part, part, MAX_IN)] = eval_in(e, &w, part);
    }
}

static void eval_iota(const Eval *e)
{
    int s = eval_only_letter(e->node->sig.base);
    for (int64_t i = 0; i < e->extent[s]; i++)
        e->out[0][i] = (double)(eval_position(e, s, i) + e->node->attrs.iota.offset);
}

/* Positions that begin anew in every document. */
static void eval_places(const Eval *e)
{
    int s = eval_only_letter(e->node->sig.base);
    WALK(w, e, e->set[MAX_IN])
    *eval_out(e, &w, 0) = (double)eval_position(e, s, w.index[s]) - eval_in(e, &w, 0) +
                          (double)e->node->attrs.iota.offset;
}

static void eval_ones(const Eval *e)
{
    WALK(w, e, e->set[MAX_IN])
    *eval_out(e, &w, 0) = 1;
}

static void eval_zeros(const Eval *e)
{
    eval_clear_outputs(e);
}

static void eval_slopes(const Eval *e)
{
    WALK(w, e, e->set[MAX_IN])
    {
        int64_t head = 0, heads = 1;
        for (int a = 0; a < e->graph->values.at[e->node->out[0]].axes; a++) {
            int l = e->node->sig.out[0][a];
            int64_t all = e->net->dims.at[e->node->sig.dim[l]].extent;
            head = head * all + eval_position(e, l, w.index[l]);
            heads *= all;
        }
        *eval_out(e, &w, 0) = alibi_slope(head, heads);
    }
}

/* An element is told by its sample in the run and its place in that, whatever rank or micro-batch
 * holds it. */
static uint32_t drawn_word(const Eval *e, const EvalWalk *w, int64_t site)
{
    const Value *value = &e->graph->values.at[e->node->out[0]];
    int64_t sample = 0, index = 0, each = 1;
    for (int a = value->axes - 1; a >= 0; a--) {
        int l = e->node->sig.out[0][a];
        const Dim *dim = &e->net->dims.at[value->dim[a]];
        int64_t at = eval_position(e, l, w->index[l]);
        if (dim->kind == DIM_BATCH) {
            sample = e->draw->sample + at;
            continue;
        }
        index += at * each;
        each *= dim->used;
    }
    return rng_drop_word(e->draw->seed, draw_stream(e->draw->layer, site),
                         (uint64_t)(sample * each + index));
}

/* 1 / (1 - rate) where the element is kept, 0 where it is dropped. */
static void eval_dropout(const Eval *e)
{
    const Attr_dropout *d = &e->node->attrs.dropout;
    WALK(w, e, e->set[MAX_IN])
    *eval_out(e, &w, 0) = e->draw->off ? 1
                          : drawn_word(e, &w, d->site) < rng_drop_below(d->rate)
                              ? 0
                              : 1 / (1 - d->rate);
}

/* 31 bits: indices are never negative. */
static void eval_draw(const Eval *e)
{
    WALK(w, e, e->set[MAX_IN])
    *eval_out(e, &w, 0) = (double)(drawn_word(e, &w, e->node->attrs.draw.site) / 2);
}

int64_t eval_local_row(const Eval *e, const EvalWalk *w, int v)
{
    double id = eval_in(e, w, 0);
    if (isnan(id))
        return NONE;
    int64_t row = (int64_t)llround(id) - e->origin[v];
    return row >= 0 && row < e->extent[v] ? row : NONE;
}

double eval_id_poison(const Eval *e, const EvalWalk *w)
{
    return isnan(eval_in(e, w, 0)) ? NAN : 0;
}

/* Lookup and pick: row `id` of operand 1, zero when another block has it. */
static void eval_take(const Eval *e)
{
    int v = eval_only_letter(e->node->sig.base);
    WALK(w, e, e->set[MAX_IN])
    {
        int64_t row = eval_local_row(e, &w, v);
        *eval_out(e, &w, 0) =
            row == NONE ? eval_id_poison(e, &w) : e->in[1][w.offset[1] + row * e->stride[1][v]];
    }
}

static void eval_scatter(const Eval *e)
{
    int v = eval_only_letter(e->node->sig.base);
    eval_clear_outputs(e);
    WALK(w, e, e->set[1])
    {
        int64_t row = eval_local_row(e, &w, v);
        if (row != NONE)
            eval_out(e, &w, 0)[row * e->stride[MAX_IN][v]] += eval_in(e, &w, 1);
        else
            *eval_out(e, &w, 0) += eval_id_poison(e, &w);
    }
}

static void eval_onehot(const Eval *e)
{
    int v = eval_only_letter(e->node->sig.base);
    WALK(w, e, e->set[MAX_IN])
    {
        bool here = eval_local_row(e, &w, v) == w.index[v];
        *eval_out(e, &w, 0) = here ? eval_in(e, &w, 1) : eval_id_poison(e, &w);
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
    int v = eval_only_letter(e->node->sig.base);
    WALK(w, e, e->set[MAX_IN])
    {
        double max = -INFINITY;
        for (int64_t i = 0; i < words(e, v); i++)
            max = eval_larger(max, e->in[0][w.offset[0] + i * e->stride[0][v]]);
        *eval_out(e, &w, 0) = max;
    }
}

static void eval_sumexp(const Eval *e)
{
    int v = eval_only_letter(e->node->sig.base);
    WALK(w, e, e->set[MAX_IN])
    {
        double sum = 0, max = eval_in(e, &w, 1);
        for (int64_t i = 0; i < words(e, v); i++)
            sum += exp(e->in[0][w.offset[0] + i * e->stride[0][v]] - max);
        *eval_out(e, &w, 0) = sum;
    }
}

static void eval_vsum(const Eval *e)
{
    int v = eval_only_letter(e->node->sig.base);
    WALK(w, e, e->set[MAX_IN])
    {
        double sum = 0;
        for (int64_t i = 0; i < words(e, v); i++)
            sum += e->in[0][w.offset[0] + i * e->stride[0][v]];
        *eval_out(e, &w, 0) = sum;
    }
}

static void eval_vfill(const Eval *e)
{
    int v = eval_only_letter(e->node->sig.base);
    WALK(w, e, e->set[MAX_IN])
    *eval_out(e, &w, 0) = w.index[v] < words(e, v) ? eval_in(e, &w, 0) : 0;
}

static void eval_expmul(const Eval *e)
{
    int v = eval_only_letter(e->node->sig.base);
    WALK(w, e, e->set[MAX_IN])
    *eval_out(e, &w, 0) = w.index[v] < words(e, v)
                              ? exp(eval_in(e, &w, 0) - eval_in(e, &w, 1)) * eval_in(e, &w, 2)
                              : 0;
}

void eval_node(const Net *net, const Graph *graph, const Node *node, const double *const *in,
               double *const *out, const int64_t extent[MAX_LETTERS],
               const int64_t origin[MAX_LETTERS], const EvalDraw *draw)
{
    static void (*const rule[OP_COUNT])(const Eval *) = {
        [OP_EINSUM] = eval_einsum,       [OP_ADD] = eval_pointwise,
        [OP_BIAS] = eval_pointwise,      [OP_MUL] = eval_pointwise,
        [OP_SCALE] = eval_pointwise,     [OP_ACT] = eval_pointwise,
        [OP_CURVE] = eval_pointwise,     [OP_CURVE_GRAD] = eval_pointwise,
        [OP_BROADCAST] = eval_pointwise, [OP_TEMPER] = eval_temper,
        [OP_ONES] = eval_ones,           [OP_ZEROS] = eval_zeros,
        [OP_SLOPES] = eval_slopes,       [OP_PLACES] = eval_places,
        [OP_DROPOUT] = eval_dropout,     [OP_DRAW] = eval_draw,
        [OP_SOFTMAX] = eval_softmax,     [OP_SOFTMAX_GRAD] = eval_softmax_grad,
        [OP_TOPK] = eval_topk,           [OP_CAPACITY] = eval_capacity,
        [OP_DEAL] = eval_deal,           [OP_CHANCE] = eval_chance,
        [OP_TALLY] = eval_tally,         [OP_TAKE] = eval_take_choice,
        [OP_SPREAD] = eval_spread,       [OP_EXPERT] = eval_expert,
        [OP_EXPERT_DW] = eval_expert_dw, [OP_VSUM] = eval_vsum,
        [OP_VFILL] = eval_vfill,         [OP_NORM] = eval_norm,
        [OP_ROPE] = eval_rope,           [OP_ATTENTION] = eval_attention,
        [OP_SPLIT] = eval_split,         [OP_LOOKUP] = eval_take,
        [OP_IOTA] = eval_iota,           [OP_VMAX] = eval_vmax,
        [OP_SUMEXP] = eval_sumexp,       [OP_PICK] = eval_take,
        [OP_NLL] = eval_pointwise,       [OP_REDUCE] = eval_einsum,
        [OP_ACT_GRAD] = eval_pointwise,  [OP_NORM_DX] = eval_norm_dx,
        [OP_NORM_DG] = eval_norm_dg,     [OP_ATTENTION_GRAD] = eval_attention_grad,
        [OP_STACK] = eval_stack,         [OP_SCATTER] = eval_scatter,
        [OP_EXPMUL] = eval_expmul,       [OP_ONEHOT] = eval_onehot,
        [OP_DIV] = eval_pointwise,       [OP_SUMSQ] = eval_sumsq,
        [OP_SIGN] = eval_pointwise,      [OP_CLIP] = eval_pointwise,
        [OP_MOMENTUM] = eval_momentum,   [OP_DESCEND] = eval_descend,
        [OP_ADAMW] = eval_adamw,
    };
    Eval e = {.net = net,
              .graph = graph,
              .node = node,
              .in = in,
              .out = out,
              .extent = extent,
              .origin = origin,
              .draw = draw ? draw : &(const EvalDraw){0, 0, 0, false}};
    for (int i = 0; i < node->ins; i++)
        set_operand(&e, i, node->in[i], node->sig.in[i]);
    for (int o = 0; o < node->outs; o++)
        set_operand(&e, MAX_IN + o, node->out[o], node->sig.out[o]);
    if (!rule[node->op])
        BUG("%s has no meaning", op_info[node->op].text);
    rule[node->op](&e);
}
