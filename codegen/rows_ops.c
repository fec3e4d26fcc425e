/* rows_ops.c - what each op of row form does to one element, in terms. */
#include <math.h>

#include "codegen/rows.h"
#include "ir/base/rng.h"

typedef struct Rule {
    RowBuilder *b;
    int node; /* of the instruction */
    const Node *at;
    const Attrs *attrs;
} Rule;

static TermId in(Rule *r, int k)
{
    return term_of_operand(r->b, r->node, k);
}

static TermId num(Rule *r, double x)
{
    return term_number(r->b, x);
}

static bool is_number(Rule *r, TermId x, double value)
{
    const Term *term = &r->b->program->terms.at[x];
    return term->kind == TERM_CONST && term->number == value;
}

static TermId add(Rule *r, TermId x, TermId y)
{
    return is_number(r, x, 0) ? y : is_number(r, y, 0) ? x : term_new(r->b, TERM_ADD, x, y, NONE);
}

static TermId sub(Rule *r, TermId x, TermId y)
{
    return term_new(r->b, TERM_SUB, x, y, NONE);
}

static TermId mul(Rule *r, TermId x, TermId y)
{
    return is_number(r, x, 1) ? y : is_number(r, y, 1) ? x : term_new(r->b, TERM_MUL, x, y, NONE);
}

static TermId divide(Rule *r, TermId x, TermId y)
{
    return term_new(r->b, TERM_DIV, x, y, NONE);
}

static TermId call(Rule *r, TermKind kind, TermId x)
{
    return term_new(r->b, kind, x, NONE, NONE);
}

static TermId named(Rule *r, const char *name, TermId x)
{
    return term_named(r->b, name, x);
}

static int64_t columns(Rule *r)
{
    return rows_extent(r->b->program, r->b->program->rows, r->b->program->axes);
}

static TermId positive(Rule *r, TermId x, TermId then)
{
    return term_new(r->b, TERM_CHOOSE, term_new(r->b, TERM_GT, x, num(r, 0), NONE), then,
                    num(r, 0));
}

static const double gelu_a = 0.7978845608028654, gelu_b = 0.044715; /* sqrt(2 / pi) */
static const double half_root = 0.7071067811865476, normal_density = 0.3989422804014327;

/* tanh's argument in the approximate GELU: a (x + b x^3). */
static TermId gelu_tanh(Rule *r, TermId x)
{
    TermId inner =
        mul(r, mul(r, num(r, gelu_a), x), add(r, num(r, 1), mul(r, mul(r, num(r, gelu_b), x), x)));
    return named(r, "t", call(r, TERM_TANH, inner));
}

static TermId activation(Rule *r, TermId x)
{
    TermId half = num(r, 0.5), one = num(r, 1);
    switch (r->attrs->act.kind) {
    case ACT_SILU:
        return mul(r, x, call(r, TERM_SIGMOID, x));
    case ACT_GELU_TANH:
        return mul(r, mul(r, half, x), add(r, one, gelu_tanh(r, x)));
    case ACT_GELU_ERF:
        return mul(r, mul(r, half, x),
                   add(r, one, call(r, TERM_ERF, mul(r, x, num(r, half_root)))));
    case ACT_RELU:
        return positive(r, x, x);
    case ACT_RELU2:
        return positive(r, x, mul(r, x, x));
    case ACT_SIGMOID:
        return call(r, TERM_SIGMOID, x);
    case ACT_LOG:
        return call(r, TERM_LOG, x);
    case ACT_KIND_COUNT:
        break;
    }
    BUG("activation %d", (int)r->attrs->act.kind);
}

static TermId activation_slope(Rule *r, TermId x)
{
    TermId half = num(r, 0.5), one = num(r, 1);
    switch (r->attrs->act.kind) {
    case ACT_SILU: {
        TermId s = named(r, "s", call(r, TERM_SIGMOID, x));
        return mul(r, s, add(r, one, mul(r, x, sub(r, one, s))));
    }
    case ACT_GELU_TANH: {
        TermId t = gelu_tanh(r, x);
        TermId inner =
            mul(r, num(r, gelu_a), add(r, one, mul(r, mul(r, num(r, 3 * gelu_b), x), x)));
        TermId bend = mul(r, mul(r, x, sub(r, one, mul(r, t, t))), inner);
        return mul(r, half, add(r, add(r, one, t), bend));
    }
    case ACT_GELU_ERF: {
        TermId step = add(r, one, call(r, TERM_ERF, mul(r, x, num(r, half_root))));
        TermId bell = call(r, TERM_EXP, mul(r, mul(r, num(r, -0.5), x), x));
        return add(r, mul(r, half, step), mul(r, mul(r, num(r, normal_density), x), bell));
    }
    case ACT_RELU:
        return positive(r, x, one);
    case ACT_RELU2:
        return positive(r, x, mul(r, num(r, 2), x));
    case ACT_SIGMOID: {
        TermId s = named(r, "s", call(r, TERM_SIGMOID, x));
        return mul(r, s, sub(r, one, s));
    }
    case ACT_LOG:
        return divide(r, one, x);
    case ACT_KIND_COUNT:
        break;
    }
    BUG("activation %d", (int)r->attrs->act.kind);
}

static TermId choose(Rule *r, TermKind kind, TermId x, TermId y, TermId then, TermId otherwise)
{
    return term_new(r->b, TERM_CHOOSE, term_new(r->b, kind, x, y, NONE), then, otherwise);
}

static TermId curve(Rule *r, TermId x)
{
    const Attr_curve *c = &r->attrs->curve;
    TermId a = num(r, c->a), b = num(r, c->b), one = num(r, 1);
    switch (c->kind) {
    case CURVE_SWISH:
        return mul(r, x, call(r, TERM_SIGMOID, mul(r, a, x)));
    case CURVE_SOFTCAP:
        return mul(r, a, call(r, TERM_TANH, mul(r, num(r, 1 / c->a), x)));
    case CURVE_CLAMP:
        return choose(r, TERM_GT, a, x, a, choose(r, TERM_GT, x, b, b, x));
    case CURVE_SHIFT:
        return add(r, x, a);
    case CURVE_RECIP:
        return divide(r, one, add(r, x, a));
    case CURVE_RSQRT:
        return divide(r, one, call(r, TERM_SQRT, add(r, mul(r, a, x), b)));
    case CURVE_KIND_COUNT:
        break;
    }
    BUG("curve %d", (int)c->kind);
}

static TermId curve_slope(Rule *r, TermId x)
{
    const Attr_curve *c = &r->attrs->curve;
    TermId a = num(r, c->a), b = num(r, c->b), zero = num(r, 0), one = num(r, 1);
    switch (c->kind) {
    case CURVE_SWISH: {
        TermId s = named(r, "s", call(r, TERM_SIGMOID, mul(r, a, x)));
        return mul(r, s, add(r, one, mul(r, mul(r, a, x), sub(r, one, s))));
    }
    case CURVE_SOFTCAP: {
        TermId t = named(r, "t", call(r, TERM_TANH, mul(r, num(r, 1 / c->a), x)));
        return sub(r, one, mul(r, t, t));
    }
    case CURVE_CLAMP:
        return choose(r, TERM_GT, a, x, zero, choose(r, TERM_GT, x, b, zero, one));
    case CURVE_SHIFT:
        return one;
    case CURVE_RECIP: {
        TermId y = named(r, "y", divide(r, one, add(r, x, a)));
        return mul(r, num(r, -1), mul(r, y, y));
    }
    case CURVE_RSQRT: {
        TermId y = named(r, "y", divide(r, one, call(r, TERM_SQRT, add(r, mul(r, a, x), b))));
        return mul(r, num(r, -0.5 * c->a), mul(r, y, mul(r, y, y)));
    }
    case CURVE_KIND_COUNT:
        break;
    }
    BUG("curve %d", (int)c->kind);
}

static TermId mean_of(Rule *r, TermId x)
{
    return mul(r, call(r, TERM_SUM, x), num(r, 1.0 / (double)columns(r)));
}

/* x without its mean (layer) or as it is (rms), and 1 / its deviation. */
static TermId norm_centre(Rule *r, TermId x)
{
    if (r->attrs->norm.kind == NORM_RMS)
        return x;
    return named(r, "centred", sub(r, x, named(r, "mean", mean_of(r, x))));
}

static TermId norm_rstd(Rule *r, TermId centred)
{
    TermId variance = mean_of(r, mul(r, centred, centred));
    TermId root = call(r, TERM_SQRT, add(r, variance, num(r, r->attrs->norm.eps)));
    return named(r, "rstd", divide(r, num(r, 1), root));
}

/* Some families store gains less one. */
static TermId norm_gain(Rule *r)
{
    return add(r, in(r, 1), num(r, r->attrs->norm.shift));
}

/* With n = c rstd and e = dy gain: dx = rstd (e - mean(e) - n mean(e n)); the first mean is of
 * layer norm only. Both sums are taken of c, not of n, so that they need no second pass. */
static TermId norm_dx(Rule *r)
{
    TermId c = norm_centre(r, in(r, 0)), rstd = norm_rstd(r, c);
    TermId e = named(r, "e", mul(r, in(r, 2), norm_gain(r)));
    TermId along = mul(r, mul(r, mean_of(r, mul(r, e, c)), rstd), rstd);
    TermId bent = mul(r, c, named(r, "along", along));
    TermId rest =
        r->attrs->norm.kind == NORM_RMS ? e : sub(r, e, named(r, "mean_e", mean_of(r, e)));
    return mul(r, rstd, sub(r, rest, bent));
}

static TermId rope(Rule *r)
{
    RowProgram *p = r->b->program;
    const Attr_rope *a = &r->attrs->rope;
    TermId base = term_base(r->b, r->b->inst->bind_in[r->node][0], 1, "base_s");
    double *frequency = ARENA_ARRAY(p->arena, double, a->rotary / 2);
    for (int64_t i = 0; i < a->rotary / 2; i++)
        frequency[i] = rope_rate(a, i);
    p->turns = true;
    p->turn.turned = a->rotary;
    p->turn.interleaved = a->interleaved;
    p->turn.base = p->terms.at[base].ref;
    const Net *net = r->b->body->net;
    p->turn.runs = net->runs;
    p->turn.run = net->runs ? net->dims.at[net->sequence].extent / net->runs : 0;
    p->turn.frequency = frequency;
    p->turn.gain = rope_gain(a);
    p->turn.starts = r->at->ins > 1 ? p->terms.at[in(r, 1)].ref : NONE;
    TermId x = in(r, 0);
    TermId along = mul(r, x, term_new(r->b, TERM_COS, NONE, NONE, NONE));
    TermId across = mul(r, call(r, TERM_PAIR, x), term_new(r->b, TERM_SIN, NONE, NONE, NONE));
    TermId minus = sub(r, along, across), plus = add(r, along, across);
    return term_new(r->b, TERM_TURNED, a->inverse ? plus : minus, a->inverse ? minus : plus, x);
}

/* Columns of the vocabulary beyond the used ones are padding. `copy` has the axis last. */
static TermId unless_padding(Rule *r, int copy, TermId term, double padding)
{
    RowProgram *p = r->b->program;
    const Value *value = &r->b->body->graph->values.at[r->b->body->copies.at[copy].value];
    const Dim *dim = &r->b->body->net->dims.at[value->dim[value->axes - 1]];
    if (dim->used >= dim->extent)
        return term;
    TermId base = term_base(r->b, copy, value->axes - 1, "base_v");
    p->padded = true;
    p->used = dim->used;
    p->used_base = p->terms.at[base].ref;
    return term_new(r->b, TERM_VALID, term, num(r, padding), NONE);
}

/* Where a column, that of an axis of the sequence, is in it. */
static TermId column_position(Rule *r, int copy, int axis)
{
    const Value *value = &r->b->body->graph->values.at[r->b->body->copies.at[copy].value];
    return term_position(r->b, value->dim[axis],
                         add(r, term_new(r->b, TERM_INDEX, NONE, NONE, NONE),
                             term_base(r->b, copy, axis, "base_s")));
}

/* The column of this rank's block that the label names; outside of it on all ranks but one. */
static TermId label_column(Rule *r, int copy)
{
    const Value *value = &r->b->body->graph->values.at[r->b->body->copies.at[copy].value];
    return named(r, "label", sub(r, in(r, 0), term_base(r->b, copy, value->axes - 1, "base_v")));
}

static TermId at_label(Rule *r, TermId label, TermId then)
{
    TermId here =
        term_new(r->b, TERM_EQ, term_new(r->b, TERM_INDEX, NONE, NONE, NONE), label, NONE);
    return term_new(r->b, TERM_CHOOSE, here, then, num(r, 0));
}

static TermId pick(Rule *r)
{
    int copy = r->b->inst->bind_in[r->node][1];
    TermId label = label_column(r, copy);
    if (copy_is_input(r->b, copy))
        return term_at(r->b, copy, label);
    return call(r, TERM_SUM, at_label(r, label, in(r, 1)));
}

/* Queries are made longer by steps of a length: 1 + scale log(1 + floor(position / length)). */
static TermId temper(Rule *r)
{
    const Attr_temper *t = &r->attrs->temper;
    TermId position = term_place(r->b, r->b->inst->bind_in[r->node][0], 1);
    TermId ahead = add(r, num(r, (double)t->ahead), position);
    TermId steps = call(r, TERM_FLOOR, divide(r, ahead, num(r, t->length)));
    TermId rate = mul(r, num(r, t->scale), call(r, TERM_LOG, add(r, num(r, 1), steps)));
    return mul(r, in(r, 0), named(r, "longer", add(r, num(r, 1), rate)));
}

/* Slopes of linear biases: alibi_slope of the head, whose index may be that of two axes. */
static TermId slopes(Rule *r)
{
    int out = r->b->inst->bind_out[r->node][0];
    const Value *value = &r->b->body->graph->values.at[r->at->out[0]];
    int64_t heads = 1, power = 1;
    TermId head = NONE;
    for (int a = 0; a < value->axes; a++) {
        int64_t all = r->b->body->net->dims.at[value->dim[a]].extent;
        TermId at = term_place(r->b, out, a);
        head = a ? add(r, mul(r, head, num(r, (double)all)), at) : at;
        heads *= all;
    }
    head = named(r, "head", head);
    while (power * 2 <= heads)
        power *= 2;
    /* e to the power of rate is the ratio of two neighbours. */
    double rate = -8 * log(2) / (double)power;
    TermId first = call(r, TERM_EXP, mul(r, num(r, rate), add(r, num(r, 1), head)));
    TermId rest =
        call(r, TERM_EXP, mul(r, num(r, rate), add(r, num(r, 0.5 - (double)power), head)));
    return power == heads ? first : choose(r, TERM_GT, num(r, (double)power), head, first, rest);
}

/* What drawn_word of eval.c says: the index counts samples of the run, then places in the sample.
 */
static TermId drawn_word(Rule *r, int64_t site)
{
    int out = r->b->inst->bind_out[r->node][0];
    const Value *value = &r->b->body->graph->values.at[r->at->out[0]];
    const Dim *dims = r->b->body->net->dims.at;
    TermId index = NONE;
    for (int pass = 0; pass < 2; pass++)
        for (int a = 0; a < value->axes; a++) {
            const Dim *dim = &dims[value->dim[a]];
            bool batch = dim->kind == DIM_BATCH;
            if (batch != (pass == 0))
                continue;
            const char *name =
                batch ? "sample" : arena_printf(r->b->program->arena, "base_%c", dim->letter);
            RowBase base = {name, batch ? BASE_SAMPLE : BASE_ORIGIN, out, a, 0};
            TermId at = add(r, term_part(r->b, out, a), term_argument(r->b, base));
            at = term_position(r->b, value->dim[a], at);
            index = index == NONE ? at : add(r, mul(r, index, term_whole(r->b, dim->used)), at);
        }
    TermId seed = term_argument(r->b, (RowBase){"seed", BASE_SEED, NONE, NONE, 0});
    TermId stream = term_argument(r->b, (RowBase){"stream", BASE_STREAM, NONE, NONE, site});
    return term_new(r->b, TERM_DRAW, seed, stream, index);
}

static TermId dropout(Rule *r)
{
    const Attr_dropout *d = &r->attrs->dropout;
    TermId drawn = choose(r, TERM_GT, term_whole(r->b, rng_drop_below(d->rate)),
                          drawn_word(r, d->site), num(r, 0), num(r, 1 / (1 - d->rate)));
    /* an evaluation has no stream and drops nothing */
    TermId stream = term_argument(r->b, (RowBase){"stream", BASE_STREAM, NONE, NONE, d->site});
    return choose(r, TERM_GT, term_whole(r->b, 0), stream, num(r, 1), drawn);
}

static bool value_has(const Value *value, DimId dim)
{
    for (int a = 0; a < value->axes; a++) {
        if (value->dim[a] == dim)
            return true;
    }
    return false;
}

/* A product, summed over the letters that the output lacks: columns, or rows. */
static TermId einsum(Rule *r)
{
    TermId product = r->at->ins == 2 ? mul(r, in(r, 0), in(r, 1)) : in(r, 0);
    const Value *values = r->b->body->graph->values.at;
    for (int a = 0; a < r->b->axes; a++) {
        bool read = false;
        for (int k = 0; k < r->at->ins; k++)
            read = read || value_has(&values[r->at->in[k]], r->b->dim[a]);
        if (read && !value_has(&values[r->at->out[0]], r->b->dim[a]))
            return call(r, r->b->totals >> a & 1 ? TERM_TOTAL : TERM_SUM, product);
    }
    return product;
}

static TermId one_output(Rule *r)
{
    int out = r->b->inst->bind_out[r->node][0],
        x = r->at->ins ? r->b->inst->bind_in[r->node][0] : NONE;
    switch (r->at->op) {
    case OP_EINSUM:
    case OP_REDUCE:
        return einsum(r);
    case OP_ADD:
    case OP_BIAS:
        return add(r, in(r, 0), in(r, 1));
    case OP_MUL:
        return mul(r, in(r, 0), in(r, 1));
    case OP_DIV:
        return divide(r, in(r, 0), in(r, 1));
    case OP_SCALE:
        return mul(r, in(r, 0), num(r, r->attrs->scale.factor));
    case OP_ACT:
        return activation(r, in(r, 0));
    case OP_ACT_GRAD:
        return mul(r, in(r, 1), activation_slope(r, in(r, 0)));
    case OP_CURVE:
        return curve(r, in(r, 0));
    case OP_CURVE_GRAD:
        return mul(r, in(r, 1), curve_slope(r, in(r, 0)));
    case OP_BROADCAST:
        return in(r, 0);
    case OP_ONES:
        return num(r, 1);
    case OP_SLOPES:
        return slopes(r);
    case OP_DROPOUT:
        return dropout(r);
    case OP_DRAW:
        return divide(r, drawn_word(r, r->attrs->draw.site), term_whole(r->b, 2));
    case OP_TEMPER:
        return temper(r);
    case OP_ZEROS:
        return num(r, 0);
    case OP_SOFTMAX: {
        TermId x0 = in(r, 0);
        TermId e = call(r, TERM_EXP, sub(r, x0, named(r, "max", call(r, TERM_MAX, x0))));
        return divide(r, e, named(r, "sum", call(r, TERM_SUM, e)));
    }
    case OP_SOFTMAX_GRAD: {
        TermId y = in(r, 0), dy = in(r, 1);
        return mul(r, y, sub(r, dy, named(r, "along", call(r, TERM_SUM, mul(r, y, dy)))));
    }
    case OP_VSUM:
        return named(r, "sum", call(r, TERM_SUM, unless_padding(r, x, in(r, 0), 0)));
    case OP_VFILL:
        return unless_padding(r, out, in(r, 0), 0);
    case OP_NORM: {
        TermId c = norm_centre(r, in(r, 0));
        return mul(r, mul(r, c, norm_rstd(r, c)), norm_gain(r));
    }
    case OP_NORM_DX:
        return norm_dx(r);
    case OP_NORM_DG: {
        TermId c = norm_centre(r, in(r, 0));
        return call(r, TERM_TOTAL, mul(r, mul(r, c, norm_rstd(r, c)), in(r, 1)));
    }
    case OP_ROPE:
        return rope(r);
    case OP_IOTA:
        return add(r, num(r, (double)r->attrs->iota.offset), column_position(r, out, 0));
    case OP_PLACES:
        return sub(r, add(r, num(r, (double)r->attrs->iota.offset), column_position(r, out, 1)),
                   in(r, 0));
    case OP_VMAX:
        return named(r, "max", call(r, TERM_MAX, unless_padding(r, x, in(r, 0), -HUGE_VAL)));
    case OP_SUMEXP: {
        TermId e = call(r, TERM_EXP, sub(r, in(r, 0), in(r, 1)));
        return named(r, "sum", call(r, TERM_SUM, unless_padding(r, x, e, 0)));
    }
    case OP_PICK:
        return pick(r);
    case OP_NLL:
        return sub(r, add(r, call(r, TERM_LOG, in(r, 0)), in(r, 1)), in(r, 2));
    case OP_EXPMUL: {
        TermId e = call(r, TERM_EXP, sub(r, in(r, 0), in(r, 1)));
        return unless_padding(r, out, mul(r, e, in(r, 2)), 0);
    }
    case OP_MOMENTUM: {
        double keep = r->attrs->momentum.momentum;
        TermId g = mul(r, mul(r, in(r, 2), num(r, 1 - keep)), in(r, 1));
        return add(r, mul(r, num(r, keep), in(r, 0)), g);
    }
    case OP_DESCEND: {
        TermId lr = in(r, 2), kept = sub(r, num(r, 1), mul(r, lr, in(r, 3)));
        TermId step = mul(r, mul(r, lr, num(r, r->attrs->descend.ratio)), in(r, 1));
        return sub(r, mul(r, in(r, 0), kept), step);
    }
    case OP_ONEHOT:
        return at_label(r, label_column(r, out), in(r, 1));
    default:
        return NONE;
    }
}

bool rows_of_node(RowBuilder *b, int node, TermId ret_out[MAX_OUT])
{
    const Node *at = &b->body->graph->nodes.at[b->inst->node[node]];
    Rule rule = {b, node, at, &at->attrs};
    ret_out[0] = at->outs == 1 ? one_output(&rule) : NONE;
    return ret_out[0] != NONE;
}

typedef struct Roles {
    const char *in[MAX_IN], *out[MAX_OUT];
} Roles;

static const Roles roles[OP_COUNT] = {
    [OP_EINSUM] = {{"a", "b"}, {"c"}},
    [OP_ADD] = {{"a", "b"}, {"y"}},
    [OP_BIAS] = {{"x", "bias"}, {"y"}},
    [OP_MUL] = {{"a", "b"}, {"y"}},
    [OP_SCALE] = {{"x"}, {"y"}},
    [OP_ACT] = {{"x"}, {"y"}},
    [OP_NORM] = {{"x", "gain"}, {"y"}},
    [OP_ROPE] = {{"x", "starts"}, {"y"}},
    [OP_ATTENTION] = {{"q", "k", "v"}, {"o", "lse"}},
    [OP_SPLIT] = {{"x"}, {"part", "part", "part"}},
    [OP_CURVE] = {{"x"}, {"y"}},
    [OP_CURVE_GRAD] = {{"x", "dy"}, {"dx"}},
    [OP_BROADCAST] = {{"x"}, {"y"}},
    [OP_TEMPER] = {{"x"}, {"y"}},
    [OP_ONES] = {{NULL}, {"ones"}},
    [OP_ZEROS] = {{NULL}, {"zeros"}},
    [OP_SLOPES] = {{NULL}, {"slopes"}},
    [OP_DROPOUT] = {{NULL}, {"mask"}},
    [OP_DRAW] = {{NULL}, {"words"}},
    [OP_PLACES] = {{"starts"}, {"positions"}},
    [OP_SOFTMAX] = {{"x"}, {"y"}},
    [OP_SOFTMAX_GRAD] = {{"y", "dy"}, {"dx"}},
    [OP_TOPK] = {{"scores"}, {"choice"}},
    [OP_CAPACITY] = {{"choice"}, {"kept"}},
    [OP_DEAL] = {{"choice"}, {"dealt"}},
    [OP_CHANCE] = {{"choice", "share", "words"}, {"drawn"}},
    [OP_TALLY] = {{"choice"}, {"count"}},
    [OP_TAKE] = {{"choice", "scores"}, {"taken"}},
    [OP_SPREAD] = {{"choice", "dtaken"}, {"dscores"}},
    [OP_EXPERT] = {{"choice", "x", "w"}, {"y"}},
    [OP_EXPERT_DW] = {{"choice", "dy", "x"}, {"dw"}},
    [OP_VSUM] = {{"x"}, {"sum"}},
    [OP_VFILL] = {{"dsum"}, {"dx"}},
    [OP_LOOKUP] = {{"ids", "table"}, {"y"}},
    [OP_IOTA] = {{NULL}, {"positions"}},
    [OP_VMAX] = {{"x"}, {"max_x"}},
    [OP_SUMEXP] = {{"x", "max_x"}, {"sum_exp"}},
    [OP_PICK] = {{"labels", "x"}, {"picked"}},
    [OP_NLL] = {{"sum_exp", "max_x", "picked"}, {"nll"}},
    [OP_REDUCE] = {{"x"}, {"y"}},
    [OP_ACT_GRAD] = {{"x", "dy"}, {"dx"}},
    [OP_NORM_DX] = {{"x", "gain", "dy"}, {"dx"}},
    [OP_NORM_DG] = {{"x", "dy"}, {"dgain"}},
    [OP_ATTENTION_GRAD] = {{"q", "k", "v", "dout", "lse", "delta"}, {"dq", "dk", "dv"}},
    [OP_STACK] = {{"part", "part", "part"}, {"y"}},
    [OP_SCATTER] = {{"ids", "dy"}, {"dtable"}},
    [OP_EXPMUL] = {{"x", "max_x", "dsum"}, {"dx"}},
    [OP_ONEHOT] = {{"labels", "dpicked"}, {"dx"}},
    [OP_DIV] = {{"a", "b"}, {"y"}},
    [OP_SUMSQ] = {{"g"}, {"norm2"}},
    [OP_SIGN] = {{"w", "g"}, {"w"}},
    [OP_CLIP] = {{"norm2"}, {"coef"}},
    [OP_MOMENTUM] = {{"m", "g", "coef"}, {"m"}},
    [OP_DESCEND] = {{"w", "x", "lr", "decay"}, {"w"}},
    [OP_ADAMW] = {{"w", "g", "m", "v", "coef", "lr", "step"}, {"w", "m", "v"}},
};

const char *role_in(OpId op, int operand)
{
    return roles[op].in[operand];
}

const char *role_out(OpId op, int output)
{
    return roles[op].out[output];
}
