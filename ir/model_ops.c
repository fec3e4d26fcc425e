/* model_ops.c - each op of a model file, expanded to nodes. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/model_reader.h"
#include "ir/sig.h"

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

static bool read_embedding(Reader *r, Json op)
{
    ValueId in, table;
    const char *out;
    bool fine = model_operand(r, json_get(op, "in"), &in);
    fine = model_new_name(r, json_get(op, "out"), &out) && fine;
    DimId rows;
    Shape cols;
    fine = model_dim(r, json_get(op, "rows"), &rows) && fine;
    if (!model_dims(r, json_get(op, "cols"), 1, &cols) || !fine)
        return false;
    if (r->graph->values.at[in].number != NUM_INDEX) {
        json_fail(json_get(op, "in"), "\"%s\" is not a list of ids", r->graph->values.at[in].name);
        diag_help(r->diag, "an embedding looks up \"ids\" or \"positions\"");
        return false;
    }
    const Dim *sequence = &r->net->dims.at[r->net->sequence];
    const Dim *table_rows = &r->net->dims.at[rows];
    if (in != r->graph->data[DATA_IDS] && sequence->extent > table_rows->used) {
        json_fail(json_get(op, "rows"), "%lld positions are more than the %lld rows of dim %s",
                  (long long)sequence->extent, (long long)table_rows->used, table_rows->name);
        diag_help(r->diag, "use a sequence of at most %lld tokens", (long long)table_rows->used);
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
    if (rest + to.axes > MAX_AXES || from.axes + to.axes > MAX_AXES) {
        json_fail(op, "the output or the weight has more than %d axes", MAX_AXES);
        diag_help(r->diag, "join dims that are not split apart anywhere");
        return false;
    }
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

static bool read_norm(Reader *r, Json op)
{
    int words = 0, kind = 0;
    const char *const *word = op_words_norm(&words);
    ValueId in, gain;
    const char *out;
    Attrs attrs = {.norm = {.eps = 0}};
    bool fine = model_in_out(r, op, &in, &out);
    fine = json_word(json_get(op, "kind"), word, words, &kind) && fine;
    fine = json_num(model_attribute(r, op, "eps"), DBL_MIN, 1, &attrs.norm.eps) && fine;
    if (!fine)
        return false;
    attrs.norm.kind = (NormKind)kind;
    Shape x = model_shape_of(r, in), g = {.axes = 1, .dim = {x.dim[x.axes - 1]}};
    if (!model_param(r, json_get(op, "gain"), g, (int[]){1}, 1, INIT_ONES, &gain))
        return false;
    const char *l = model_letters(r, in);
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

static bool read_act(Reader *r, Json op)
{
    int words = 0, kind = 0;
    const char *const *word = op_words_act(&words);
    if (!json_word(model_attribute(r, op, "kind"), word, words, &kind))
        return false;
    Attrs attrs = {.act = {.kind = (ActKind)kind}};
    return pointwise(r, op, OP_ACT, &attrs);
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
    if (!model_same_shape(model_shape_of(r, in[0]), model_shape_of(r, in[1]))) {
        model_mismatch(r, json_get(op, "in"), "a product needs one shape", in[0], in[1]);
        diag_help(r->diag, "make both of the same dims in the same order");
        return false;
    }
    const char *l = model_letters(r, in[0]);
    return model_emit_out(r, op, OP_MUL, out, arena_printf(r->arena, "%s,%s->%s", l, l, l), NULL,
                          in, 2);
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

static bool rope_scaling(Reader *r, Json at, Attr_rope *rope)
{
    static const char *const keys[] = {"kind", "factor", "low", "high", "original"};
    if (!model_present(at))
        return true;
    int words = 0, kind = 0;
    const char *const *word = op_words_rope(&words);
    bool fine = json_want_object(at) && json_only_keys(at, keys, COUNT_OF(keys));
    if (!fine || !json_word(json_get(at, "kind"), word, words, &kind))
        return false;
    rope->scaling = (RopeScaling)kind;
    if (kind == ROPE_PLAIN)
        return true;
    fine = json_num(json_get(at, "factor"), 1e-6, 1e6, &rope->factor);
    if (kind == ROPE_LINEAR)
        return fine;
    fine = json_num(json_get(at, "low"), 1e-6, 1e6, &rope->low) && fine;
    fine = json_num(json_get(at, "high"), 1e-6, 1e6, &rope->high) && fine;
    fine = json_int(json_get(at, "original"), 1, INT64_C(1) << 40, &rope->original) && fine;
    if (fine && rope->high <= rope->low) {
        json_fail(json_get(at, "high"), "\"high\" must be more than \"low\"");
        diag_help(r->diag, "Llama 3.1 has low 1 and high 4");
        return false;
    }
    return fine;
}

static bool read_rope(Reader *r, Json op)
{
    ValueId in;
    const char *out;
    Attrs attrs = {.rope = {.theta = 0}};
    Attr_rope *rope = &attrs.rope;
    bool fine = model_in_out(r, op, &in, &out);
    fine = json_num(model_attribute(r, op, "theta"), 1, 1e15, &rope->theta) && fine;
    bool interleaved = false;
    fine = json_opt_bool(op, "interleaved", &interleaved) && fine;
    fine = rope_scaling(r, model_attribute(r, op, "scaling"), rope) && fine;
    if (!fine)
        return false;
    rope->interleaved = interleaved;
    Shape x = model_shape_of(r, in);
    if (x.axes < 3 || x.dim[0] != r->net->batch || x.dim[1] != r->net->sequence) {
        json_fail(json_get(op, "in"), "rope turns [b, s, ..., d], \"%s\" is %s",
                  r->graph->values.at[in].name, model_value_shape(r, in));
        diag_help(r->diag, "apply it to the heads, before attention");
        return false;
    }
    int64_t width = r->net->dims.at[x.dim[x.axes - 1]].extent;
    rope->rotary = width;
    if (!json_opt_int(op, "rotary", 2, width, &rope->rotary))
        return false;
    if (rope->rotary % 2 != 0) {
        json_fail(json_has(op, "rotary") ? json_get(op, "rotary") : op,
                  "%lld rotary features do not pair up", (long long)rope->rotary);
        diag_help(r->diag, "use an even head width, or an even \"rotary\"");
        return false;
    }
    const char *l = model_letters(r, in);
    return model_emit_out(r, op, OP_ROPE, out, arena_printf(r->arena, "%s->%s", l, l), &attrs, &in,
                          1);
}

/* The letters of keys: those of the value with t for s. */
static const char *key_letters(const Reader *r, ValueId id)
{
    char *text = arena_strdup(r->arena, model_letters(r, id));
    text[1] = 't';
    return text;
}

static bool attention_shapes(Reader *r, Json at, const ValueId in[3])
{
    Shape q = model_shape_of(r, in[0]), k = model_shape_of(r, in[1]), v = model_shape_of(r, in[2]);
    for (int i = 0; i < 3; i++) {
        Shape x = model_shape_of(r, in[i]);
        if (x.axes >= 3 && x.dim[0] == r->net->batch && x.dim[1] == r->net->sequence)
            continue;
        json_fail(json_at(at, i), "attention reads [b, s, ..., d], \"%s\" is %s",
                  r->graph->values.at[in[i]].name, model_value_shape(r, in[i]));
        diag_help(r->diag, "make heads with \"to\": [\"g\", \"r\", \"d\"]");
        return false;
    }
    if (!model_same_shape(k, v)) {
        model_mismatch(r, at, "keys and values need one shape", in[1], in[2]);
        diag_help(r->diag, "project both to the same dims");
        return false;
    }
    bool heads = k.axes <= q.axes && q.dim[q.axes - 1] == k.dim[k.axes - 1] &&
                 memcmp(q.dim, k.dim, (size_t)(k.axes - 1) * sizeof *q.dim) == 0;
    if (!heads) {
        model_mismatch(r, at, "the heads of the keys must begin those of the queries", in[0],
                       in[1]);
        diag_help(r->diag, "queries [b, s, g, r, d] go with keys [b, s, g, d]");
    }
    return heads;
}

static bool read_attention(Reader *r, Json op)
{
    ValueId in[3];
    const char *out;
    bool fine = model_floats(r, json_get(op, "in"), 3, in);
    if (!model_new_name(r, json_get(op, "out"), &out) || !fine)
        return false;
    if (!attention_shapes(r, json_get(op, "in"), in))
        return false;
    Shape q = model_shape_of(r, in[0]);
    Attrs attrs = {.attention = {.causal = true}};
    Attr_attention *a = &attrs.attention;
    a->scale = 1 / sqrt((double)r->net->dims.at[q.dim[q.axes - 1]].extent);
    bool causal = true;
    Json scale = model_attribute(r, op, "scale"), window = model_attribute(r, op, "window");
    Json masked = model_attribute(r, op, "causal");
    if (model_present(scale))
        fine = json_num(scale, DBL_MIN, 1e6, &a->scale) && fine;
    if (model_present(window))
        fine = json_int(window, 1, INT64_C(1) << 40, &a->window) && fine;
    if (model_present(masked))
        fine = json_bool(masked, &causal) && fine;
    if (!fine)
        return false;
    a->causal = causal;
    if (a->window > 0 && !causal) {
        json_fail(window, "a window without a causal mask");
        diag_help(r->diag, "a window counts back from the query: leave \"causal\" true");
        return false;
    }
    const char *ql = model_letters(r, in[0]), *kl = key_letters(r, in[1]);
    const char *sig =
        arena_printf(r->arena, "%s,%s,%s->%s,%.*s", ql, kl, kl, ql, (int)strlen(ql) - 1, ql);
    return model_emit_out(r, op, OP_ATTENTION, out, sig, &attrs, in, 3);
}

static bool read_split(Reader *r, Json op)
{
    ValueId in;
    DimId dim;
    bool fine = model_float(r, json_get(op, "in"), &in);
    fine = model_dim(r, json_get(op, "dim"), &dim) && fine;
    Json out = json_get(op, "out");
    if (!json_want_array(out) || !fine)
        return false;
    Shape x = model_shape_of(r, in);
    int axis = 0;
    while (axis < x.axes && x.dim[axis] != dim)
        axis++;
    if (axis == x.axes) {
        json_fail(json_get(op, "dim"), "\"%s\" %s has no dim %s", r->graph->values.at[in].name,
                  model_value_shape(r, in), model_dim_name(r, dim));
        diag_help(r->diag, "split over a dim of the value");
        return false;
    }
    int64_t extent = r->net->dims.at[dim].extent;
    if (extent < 2 || extent > MAX_OUT || json_len(out) != extent) {
        json_fail(out, "%d names for a split of %s into %lld parts", json_len(out),
                  model_dim_name(r, dim), (long long)extent);
        diag_help(r->diag, "a split makes 2 or %d parts, one name each", MAX_OUT);
        return false;
    }
    const char *name[MAX_OUT] = {0};
    for (int i = 0; i < (int)extent; i++) {
        fine = model_new_name(r, json_at(out, i), &name[i]) && fine;
        for (int j = 0; fine && j < i; j++) {
            if (strcmp(name[i], name[j]) == 0)
                fine = json_fail(json_at(out, i), "\"%s\" names two parts", name[i]);
        }
    }
    if (!fine)
        return false;
    const char *l = model_letters(r, in);
    Str sig = str_new(r->arena);
    str_putf(&sig, "%s->", l);
    for (int i = 0; i < (int)extent; i++)
        str_putf(&sig, "%s%.*s%s", i > 0 ? "," : "", axis, l, l + axis + 1);
    NodeId node = graph_node_named(r->graph, OP_SPLIT, name, sig.at, NULL, &in, 1);
    for (int i = 0; i < (int)extent; i++)
        model_define(r, r->graph->nodes.at[node].out[i], json_at(out, i));
    return model_check_size(r, op, &r->graph->nodes.at[node]);
}

/* log softmax and pick, as graph: m = max z, Z = sum exp(z - m), nll = log Z + m - z[label], loss =
 * sum nll * weight. */
static bool read_cross_entropy(Reader *r, Json op)
{
    ValueId z;
    if (!model_float(r, json_get(op, "in"), &z))
        return false;
    Graph *graph = r->graph;
    Shape x = model_shape_of(r, z);
    if (x.axes != 3 || x.dim[0] != r->net->batch || x.dim[1] != r->net->sequence) {
        json_fail(json_get(op, "in"), "cross_entropy reads [b, s, v], \"%s\" is %s",
                  graph->values.at[z].name, model_value_shape(r, z));
        diag_help(r->diag, "project to one vocabulary dim first");
        return false;
    }
    if (graph->loss != NONE) {
        json_fail(op, "a second cross_entropy in this block");
        diag_help(r->diag, "keep one loss");
        return false;
    }
    DimId row[2] = {r->net->batch, r->net->sequence};
    ValueId labels = graph_value(graph, VALUE_DATA, data_text[DATA_LABELS], 2, row);
    ValueId weight = graph_value(graph, VALUE_DATA, data_text[DATA_WEIGHT], 2, row);
    const char *zl = model_letters(r, z), *rl = model_letters(r, labels);
    NodeId max, sum, pick, nll, loss;
    const char *sig = arena_printf(r->arena, "%s->%s", zl, rl);
    if (!model_emit(r, op, OP_VMAX, "loss.max", sig, NULL, &z, 1, &max))
        return false;
    ValueId m = graph_out(graph, max);
    sig = arena_printf(r->arena, "%s,%s->%s", zl, rl, rl);
    if (!model_emit(r, op, OP_SUMEXP, "loss.sumexp", sig, NULL, (ValueId[]){z, m}, 2, &sum))
        return false;
    sig = arena_printf(r->arena, "%s,%s->%s", rl, zl, rl);
    if (!model_emit(r, op, OP_PICK, "loss.pick", sig, NULL, (ValueId[]){labels, z}, 2, &pick))
        return false;
    ValueId three[3] = {graph_out(graph, sum), m, graph_out(graph, pick)};
    sig = arena_printf(r->arena, "%s,%s,%s->%s", rl, rl, rl, rl);
    if (!model_emit(r, op, OP_NLL, "loss.nll", sig, NULL, three, 3, &nll))
        return false;
    sig = arena_printf(r->arena, "%s,%s->", rl, rl);
    if (!model_emit(r, op, OP_EINSUM, "loss", sig, NULL, (ValueId[]){graph_out(graph, nll), weight},
                    2, &loss))
        return false;
    graph->loss = graph_out(graph, loss);
    return true;
}

/* ---- the table ---- */

typedef struct OpReader {
    const char *name;
    bool (*read)(Reader *r, Json op);
    int each; /* the first so many keys are attributes, which "each" may set */
    int keys;
    const char *key[8];
} OpReader;

static const OpReader op_readers[] = {
    {"embedding", read_embedding, 0, 5, {"in", "out", "rows", "cols", "table"}},
    {"linear", read_linear, 0, 7, {"in", "out", "to", "from", "weight", "bias", "transposed"}},
    {"norm", read_norm, 1, 6, {"eps", "kind", "in", "out", "gain", "bias"}},
    {"act", read_act, 1, 3, {"kind", "in", "out"}},
    {"mul", read_mul, 0, 2, {"in", "out"}},
    {"add", read_add, 0, 2, {"in", "out"}},
    {"scale", read_scale, 1, 3, {"factor", "in", "out"}},
    {"rope", read_rope, 2, 6, {"theta", "scaling", "interleaved", "rotary", "in", "out"}},
    {"attention", read_attention, 3, 5, {"scale", "window", "causal", "in", "out"}},
    {"split", read_split, 0, 3, {"in", "dim", "out"}},
    {"cross_entropy", read_cross_entropy, 0, 1, {"in"}},
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
    const char *keys[9] = {"op"};
    for (int i = 0; i < reader->keys; i++)
        keys[i + 1] = reader->key[i];
    return json_only_keys(op, keys, reader->keys + 1) && reader->read(r, op);
}
