/* model_ops.c - each op of a model file, expanded to nodes. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/model_reader.h"
#include "ir/sig.h"

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

static bool read_embedding(Reader *r, Json op)
{
    ValueId in = NONE, table;
    const char *out;
    int64_t offset = 0, further = 0;
    bool fine = model_whole(r, op, "offset", 0, INT64_C(1) << 30, &offset);
    fine = model_whole(r, op, "ahead", 0, MOST_AHEAD, &further) && fine;
    bool ahead = offset > 0 && str_eq(model_text(json_get(op, "in")), "positions");
    bool tokens = str_eq(model_text(json_get(op, "in")), "ids");
    if (further > 0 && !tokens) {
        json_fail(json_get(op, "ahead"), "only \"ids\" are looked up ahead");
        diag_help(r->diag, "read \"ids\", or leave \"ahead\" out");
        return false;
    }
    if (further > 0) /* the token at a place is the label of the one before it */
        in = model_data(r, data_labels((int)further - 1));
    fine = (ahead || further > 0 || model_operand(r, json_get(op, "in"), &in)) && fine;
    fine = model_new_name(r, json_get(op, "out"), &out) && fine;
    DimId rows;
    Shape cols;
    fine = model_dim(r, json_get(op, "rows"), &rows) && fine;
    if (!model_dims(r, json_get(op, "cols"), 1, &cols) || !fine)
        return false;
    if (ahead)
        in = model_positions(r, arena_printf(r->arena, "%s.rows", out), offset);
    if (r->graph->values.at[in].number != NUM_INDEX) {
        json_fail(json_get(op, "in"), "\"%s\" is not a list of ids", r->graph->values.at[in].name);
        diag_help(r->diag, "an embedding looks up \"ids\" or \"positions\"");
        return false;
    }
    bool placed = !tokens;
    if (offset > 0 && !placed) {
        json_fail(json_get(op, "offset"), "ids have no offset");
        diag_help(r->diag, "only \"positions\" may begin behind row 0");
        return false;
    }
    const Dim *sequence = &r->net->dims.at[r->net->sequence];
    const Dim *table_rows = &r->net->dims.at[rows];
    int64_t room = table_rows->used - offset;
    if (placed && sequence->extent > room) {
        json_fail(json_get(op, "rows"), "%lld positions are more than the %lld rows of dim %s",
                  (long long)sequence->extent, (long long)room, table_rows->name);
        diag_help(r->diag, "use a sequence of at most %lld tokens", (long long)room);
        return false;
    }
    Shape shape = model_shape_of(r, in), weight = {.axes = 2, .dim = {rows, cols.dim[0]}};
    if (model_has_dim(shape.dim, shape.axes, rows) ||
        model_has_dim(shape.dim, shape.axes, cols.dim[0]) || rows == cols.dim[0]) {
        json_fail(op, "the table's dims must be two that the ids do not have");
        diag_help(r->diag, "give rows and columns dims of their own");
        return false;
    }
    if (!model_param(r, json_get(op, "table"), weight, (int[]){1, 1}, 2, INIT_NORMAL, &table))
        return false;
    const char *sig =
        arena_printf(r->arena, "%s,%s->%s%s", model_letters(r, in), model_letters(r, table),
                     model_letters(r, in), model_shape_letters(r, cols.dim, 1));
    return model_emit_out(r, op, OP_LOOKUP, out, sig, NULL, (ValueId[]){in, table}, 2);
}

/* `value` + a parameter over its trailing axes. */
static bool add_bias(Reader *r, Json op, Json at, const char *out, ValueId value, int axes)
{
    Shape shape = model_shape_of(r, value), bias = {.axes = axes};
    memcpy(bias.dim, shape.dim + shape.axes - axes, (size_t)axes * sizeof *bias.dim);
    ValueId param;
    if (!model_param(r, at, bias, &axes, 1, INIT_ZEROS, &param))
        return false;
    const char *l = model_letters(r, value);
    const char *sig = arena_printf(r->arena, "%s,%s->%s", l, model_letters(r, param), l);
    return model_emit_out(r, op, OP_BIAS, out, sig, NULL, (ValueId[]){value, param}, 2);
}

/* The input's trailing axes must be `from`; *ret is the shape of what is made: the rest, then `to`.
 */
static bool linear_shape(Reader *r, Json op, ValueId in, Shape to, Shape from, Shape *ret)
{
    Shape x = model_shape_of(r, in);
    int rest = x.axes - from.axes;
    if (rest < 0 || memcmp(x.dim + rest, from.dim, (size_t)from.axes * sizeof *x.dim) != 0) {
        json_fail(json_get(op, "from"), "%s are not the last axes of \"%s\" %s",
                  model_shape(r, from.axes, from.dim), r->graph->values.at[in].name,
                  model_value_shape(r, in));
        diag_help(r->diag, "a linear contracts the last axes of its input");
        return false;
    }
    for (int i = 0; i < to.axes; i++) {
        if (!model_has_dim(x.dim, x.axes, to.dim[i]))
            continue;
        json_fail(json_get(op, "to"), "dim %s is in the input already",
                  model_dim_name(r, to.dim[i]));
        diag_help(r->diag, "give the output a dim of its own with the same extent");
        return false;
    }
    if (!model_axes_fit(r, op, rest + to.axes, "the output") ||
        !model_axes_fit(r, op, from.axes + to.axes, "the weight"))
        return false;
    *ret = (Shape){.axes = rest + to.axes};
    memcpy(ret->dim, x.dim, (size_t)rest * sizeof *x.dim);
    memcpy(ret->dim + rest, to.dim, (size_t)to.axes * sizeof *x.dim);
    return true;
}

static bool read_linear(Reader *r, Json op)
{
    ValueId in, weight;
    const char *out;
    Shape to, from = {0}, made;
    bool fine = model_in_out(r, op, &in, &out);
    fine = model_dims(r, json_get(op, "to"), MAX_AXES, &to) && fine;
    bool transposed = false;
    fine = json_opt_bool(op, "transposed", &transposed) && fine;
    if (json_has(op, "from"))
        fine = model_dims(r, json_get(op, "from"), MAX_AXES, &from) && fine;
    if (!fine)
        return false;
    Shape x = model_shape_of(r, in);
    if (from.axes == 0)
        from = (Shape){.axes = 1, .dim = {x.dim[x.axes - 1]}};
    if (!linear_shape(r, op, in, to, from, &made))
        return false;
    Shape first = transposed ? from : to, second = transposed ? to : from;
    Shape w = {.axes = to.axes + from.axes};
    memcpy(w.dim, first.dim, (size_t)first.axes * sizeof *w.dim);
    memcpy(w.dim + first.axes, second.dim, (size_t)second.axes * sizeof *w.dim);
    int group[2] = {first.axes, second.axes};
    if (!model_param(r, json_get(op, "weight"), w, group, 2, INIT_NORMAL, &weight))
        return false;
    const char *sig =
        arena_printf(r->arena, "%s,%s->%s", model_letters(r, in), model_letters(r, weight),
                     model_shape_letters(r, made.dim, made.axes));
    ValueId operands[2] = {in, weight};
    if (!json_has(op, "bias"))
        return model_emit_out(r, op, OP_EINSUM, out, sig, NULL, operands, 2);
    NodeId product;
    const char *name = arena_printf(r->arena, "%s.mm", out);
    if (!model_emit(r, op, OP_EINSUM, name, sig, NULL, operands, 2, &product))
        return false;
    return add_bias(r, op, json_get(op, "bias"), out, graph_out(r->graph, product), to.axes);
}

/* Parameter over the last axes of a value, or ones when the file names none. */
static bool norm_gain(Reader *r, Json op, Shape x, int axes, ValueId *ret)
{
    Shape gain = {.axes = axes};
    memcpy(gain.dim, x.dim + x.axes - axes, (size_t)axes * sizeof *gain.dim);
    int each = axes > 1 && !json_has(op, "axes"); /* a table: a gain for each vector */
    if (json_has(op, "gain"))
        return model_param(r, json_get(op, "gain"), gain, (int[]){axes - each, 1}, 1 + each,
                           INIT_ONES, ret);
    *ret = model_node(
        r, OP_ONES, arena_printf(r->arena, "%s.gain", model_text(json_get(op, "out"))),
        arena_printf(r->arena, "->%s", model_shape_letters(r, gain.dim, axes)), NULL, NULL, 0);
    return true;
}

/* Root mean square over several axes, as graph: a shard of them sums its own part. */
static ValueId wide_rms(Reader *r, ValueId in, const char *out, double eps, Shape x, int axes)
{
    double columns = 1;
    for (int a = x.axes - axes; a < x.axes; a++)
        columns *= (double)r->net->dims.at[x.dim[a]].extent;
    Attrs root = {.curve = {.kind = CURVE_RSQRT, .a = 1 / columns, .b = eps}};
    const char *l = model_letters(r, in), *row = model_shape_letters(r, x.dim, x.axes - axes);
    ValueId square =
        model_node(r, OP_EINSUM, arena_printf(r->arena, "%s.square", out),
                   arena_printf(r->arena, "%s,%s->%s", l, l, row), NULL, (ValueId[]){in, in}, 2);
    ValueId rate = model_node(r, OP_CURVE, arena_printf(r->arena, "%s.rate", out),
                              arena_printf(r->arena, "%s->%s", row, row), &root, &square, 1);
    return model_node(r, OP_EINSUM, arena_printf(r->arena, "%s.unit", out),
                      arena_printf(r->arena, "%s,%s->%s", l, row, l), NULL, (ValueId[]){in, rate},
                      2);
}

/* The axes that are normalised, and those over which the gain lies; usually the last one. */
static bool norm_axes(Reader *r, Json op, Shape x, const Attr_norm *norm, int64_t *ret_axes,
                      int64_t *ret_gain)
{
    *ret_axes = 1;
    if (!json_opt_int(op, "axes", 1, x.axes, ret_axes))
        return false;
    *ret_gain = *ret_axes;
    if (!json_opt_int(op, "gain_axes", 1, x.axes, ret_gain))
        return false;
    bool plain = *ret_axes == 1 && *ret_gain == 1;
    if (plain ||
        (norm->shift == 0 && !json_has(op, "bias") && (*ret_axes == 1 || norm->kind == NORM_RMS)))
        return true;
    json_fail(op, "a norm or gain over several axes has no bias and no shift, and is rms");
    diag_help(r->diag, "normalise the last axis alone");
    return false;
}

static bool read_norm(Reader *r, Json op)
{
    int words = 0, kind = 0;
    const char *const *word = op_words_norm(&words);
    ValueId in, gain;
    const char *out;
    Attrs attrs = {.norm = {.eps = 0}};
    int64_t axes, gain_axes;
    bool fine = model_in_out(r, op, &in, &out);
    fine = json_word(json_get(op, "kind"), word, words, &kind) && fine;
    fine = json_num(model_attribute(r, op, "eps"), DBL_MIN, 1, &attrs.norm.eps) && fine;
    fine = model_number(r, op, "shift", -1e3, 1e3, &attrs.norm.shift) && fine;
    if (!fine)
        return false;
    attrs.norm.kind = (NormKind)kind;
    Shape x = model_shape_of(r, in);
    if (!norm_axes(r, op, x, &attrs.norm, &axes, &gain_axes))
        return false;
    const char *l = model_letters(r, in);
    if (axes > 1 || gain_axes > 1) {
        Shape last = {.axes = 1, .dim = {x.dim[x.axes - 1]}};
        if (axes > 1)
            in = wide_rms(r, in, out, attrs.norm.eps, x, (int)axes);
        else {
            ValueId ones = model_node(
                r, OP_ONES, arena_printf(r->arena, "%s.ones", out),
                arena_printf(r->arena, "->%s", model_shape_letters(r, last.dim, 1)), NULL, NULL, 0);
            in = model_node(r, OP_NORM, arena_printf(r->arena, "%s.unit", out),
                            arena_printf(r->arena, "%s,%s->%s", l, model_letters(r, ones), l),
                            &attrs, (ValueId[]){in, ones}, 2);
        }
        if (!norm_gain(r, op, x, (int)gain_axes, &gain))
            return false;
        const char *sig = arena_printf(r->arena, "%s,%s->%s", l, model_letters(r, gain), l);
        return model_emit_out(r, op, OP_EINSUM, out, sig, NULL, (ValueId[]){in, gain}, 2);
    }
    if (!norm_gain(r, op, x, 1, &gain))
        return false;
    if (attrs.norm.shift != 0 && json_has(op, "gain")) /* as a whole the gain begins at one */
        r->graph->params.at[r->graph->values.at[gain].out].init = INIT_ZEROS;
    const char *sig = arena_printf(r->arena, "%s,%s->%s", l, model_letters(r, gain), l);
    if (!json_has(op, "bias"))
        return model_emit_out(r, op, OP_NORM, out, sig, &attrs, (ValueId[]){in, gain}, 2);
    NodeId norm;
    const char *name = arena_printf(r->arena, "%s.norm", out);
    if (!model_emit(r, op, OP_NORM, name, sig, &attrs, (ValueId[]){in, gain}, 2, &norm))
        return false;
    return add_bias(r, op, json_get(op, "bias"), out, graph_out(r->graph, norm), 1);
}

static bool pointwise(Reader *r, Json op, OpId id, const Attrs *attrs)
{
    ValueId in;
    const char *out;
    if (!model_in_out(r, op, &in, &out))
        return false;
    const char *l = model_letters(r, in);
    return model_emit_out(r, op, id, out, arena_printf(r->arena, "%s->%s", l, l), attrs, &in, 1);
}

/* Functions without parameters and those with "a" and "b" are one list of words to the file. */
static bool read_act(Reader *r, Json op)
{
    enum { MOST = ACT_KIND_COUNT + CURVE_KIND_COUNT };
    int acts = 0, curves = 0, kind = 0;
    const char *const *act = op_words_act(&acts), *const *curve = op_words_curve(&curves);
    const char *word[MOST];
    memcpy(word, act, (size_t)acts * sizeof *word);
    memcpy(word + acts, curve, (size_t)curves * sizeof *word);
    if (!json_word(model_attribute(r, op, "kind"), word, acts + curves, &kind))
        return false;
    if (kind < acts) {
        Attrs attrs = {.act = {.kind = (ActKind)kind}};
        return pointwise(r, op, OP_ACT, &attrs);
    }
    Attrs attrs = {.curve = {.kind = (CurveKind)(kind - acts)}};
    Attr_curve *c = &attrs.curve;
    if (!json_num(model_attribute(r, op, "a"), -1e30, 1e30, &c->a) ||
        !model_number(r, op, "b", -1e30, 1e30, &c->b))
        return false;
    if (c->kind == CURVE_CLAMP && c->b <= c->a) {
        json_fail(op, "a clamp from %g to %g", c->a, c->b);
        diag_help(r->diag, "\"b\" is the upper end, more than \"a\"");
        return false;
    }
    if ((c->kind == CURVE_SOFTCAP || c->kind == CURVE_SWISH) && c->a <= 0) {
        json_fail(model_attribute(r, op, "a"), "\"a\" must be more than 0");
        diag_help(r->diag, "it is the cap of softcap, the slope of swish");
        return false;
    }
    return pointwise(r, op, OP_CURVE, &attrs);
}

static bool read_scale(Reader *r, Json op)
{
    Attrs attrs = {.scale = {.factor = 1}};
    if (!json_num(model_attribute(r, op, "factor"), -1e30, 1e30, &attrs.scale.factor))
        return false;
    return pointwise(r, op, OP_SCALE, &attrs);
}

static bool read_mul(Reader *r, Json op)
{
    ValueId in[2];
    const char *out;
    bool fine = model_floats(r, json_get(op, "in"), 2, in);
    if (!model_new_name(r, json_get(op, "out"), &out) || !fine)
        return false;
    Shape a = model_shape_of(r, in[0]), b = model_shape_of(r, in[1]);
    const char *l = model_letters(r, in[0]);
    if (model_same_shape(a, b))
        return model_emit_out(r, op, OP_MUL, out, arena_printf(r->arena, "%s,%s->%s", l, l, l),
                              NULL, in, 2);
    if (model_is_part(a, b))
        return model_emit_out(r, op, OP_EINSUM, out,
                              arena_printf(r->arena, "%s,%s->%s", l, model_letters(r, in[1]), l),
                              NULL, in, 2);
    model_mismatch(r, json_get(op, "in"), "shapes do not multiply", in[0], in[1]);
    diag_help(r->diag, "the second has the dims of the first, or some of them in their order");
    return false;
}

static bool read_add(Reader *r, Json op)
{
    ValueId in[2];
    const char *out;
    bool fine = model_floats(r, json_get(op, "in"), 2, in);
    if (!model_new_name(r, json_get(op, "out"), &out) || !fine)
        return false;
    Shape a = model_shape_of(r, in[0]), b = model_shape_of(r, in[1]);
    const char *l = model_letters(r, in[0]);
    if (model_same_shape(a, b))
        return model_emit_out(r, op, OP_ADD, out, arena_printf(r->arena, "%s,%s->%s", l, l, l),
                              NULL, in, 2);
    int rest = a.axes - b.axes;
    if (rest > 0 && memcmp(a.dim + rest, b.dim, (size_t)b.axes * sizeof *b.dim) == 0)
        return model_emit_out(r, op, OP_BIAS, out,
                              arena_printf(r->arena, "%s,%s->%s", l, model_letters(r, in[1]), l),
                              NULL, in, 2);
    model_mismatch(r, json_get(op, "in"), "shapes do not add", in[0], in[1]);
    diag_help(r->diag, rest < 0 ? "put the operand with more axes first"
                                : "the second must be like the first, or its last axes");
    return false;
}

/* ---- the table ---- */

enum { MAX_KEYS = 20 };

typedef struct OpReader {
    const char *name;
    bool (*read)(Reader *r, Json op);
    int each; /* the first so many keys are attributes, which "each" may set */
    int keys;
    const char *key[MAX_KEYS];
} OpReader;

static const OpReader op_readers[] = {
    {"embedding", read_embedding, 2, 7, {"offset", "ahead", "in", "out", "rows", "cols", "table"}},
    {"linear", read_linear, 0, 7, {"in", "out", "to", "from", "weight", "bias", "transposed"}},
    {"norm",
     read_norm,
     2,
     9,
     {"eps", "shift", "kind", "in", "out", "gain", "bias", "axes", "gain_axes"}},
    {"act", read_act, 3, 5, {"kind", "a", "b", "in", "out"}},
    {"mul", read_mul, 0, 2, {"in", "out"}},
    {"add", read_add, 0, 2, {"in", "out"}},
    {"scale", read_scale, 1, 3, {"factor", "in", "out"}},
    {"split", model_read_split, 0, 4, {"in", "dim", "out", "parts"}},
    {"concat", model_read_concat, 0, 4, {"in", "dim", "out", "parts"}},
    {"broadcast", model_read_broadcast, 0, 3, {"in", "out", "dims"}},
    {"rope", model_read_rope, 2, 6, {"theta", "scaling", "interleaved", "rotary", "in", "out"}},
    {"temper", model_read_temper, 3, 5, {"scale", "length", "ahead", "in", "out"}},
    {"attention",
     model_read_attention,
     6,
     11,
     {"scale", "window", "chunk", "causal", "softcap", "dropout", "alibi", "alibi_scale", "sink",
      "in", "out"}},
    {"router",
     model_read_router,
     14,
     18,
     {"score", "after", "groups", "kept", "by", "renormalise", "epsilon", "scale", "capacity",
      "balance", "balance_over", "z", "bias_rate", "bias", "second", "k", "in", "out"}},
    {"expert_linear",
     model_read_expert_linear,
     0,
     10,
     {"in", "choice", "out", "experts", "to", "from", "weight", "bias", "transposed", "flat"}},
    {"combine", model_read_combine, 0, 2, {"in", "out"}},
    {"dropout", model_read_dropout, 1, 3, {"rate", "in", "out"}},
    {"frozen", model_read_frozen, 0, 2, {"param", "axes"}},
    {"cross_entropy", model_read_cross_entropy, 4, 5, {"smoothing", "z", "ahead", "factor", "in"}},
};

const char *const *model_op_attributes(const char *op, int *ret_count)
{
    for (int i = 0; i < COUNT_OF(op_readers); i++) {
        if (strcmp(op_readers[i].name, op) == 0) {
            *ret_count = op_readers[i].each;
            return op_readers[i].key;
        }
    }
    *ret_count = 0;
    return op_readers[0].key;
}

bool model_read_op(Reader *r, Json op)
{
    const char *words[COUNT_OF(op_readers)];
    int which = 0;
    for (int i = 0; i < COUNT_OF(op_readers); i++)
        words[i] = op_readers[i].name;
    if (!json_want_object(op) || !json_word(json_get(op, "op"), words, COUNT_OF(words), &which))
        return false;
    const OpReader *reader = &op_readers[which];
    const char *keys[MAX_KEYS + 1] = {"op"};
    for (int i = 0; i < reader->keys; i++)
        keys[i + 1] = reader->key[i];
    return json_only_keys(op, keys, reader->keys + 1) && reader->read(r, op);
}
