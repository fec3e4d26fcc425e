/* model_attention.c - rotations and attention of a model file, expanded to nodes. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/model_reader.h"
#include "ir/sig.h"

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Lists of numbers as the text that an attribute keeps, "1.05,1.1"; one per pair of the rotation.
 */
static bool rope_factors(Reader *r, Json at, const char **ret)
{
    if (!json_want_array(at))
        return false;
    Str text = str_new(r->arena);
    for (int i = 0; i < json_len(at); i++) {
        double factor = 1;
        if (!json_num(json_at(at, i), 1e-6, 1e6, &factor))
            return false;
        if (i > 0)
            str_putc(&text, ',');
        op_put_number(&text, factor);
    }
    *ret = text.at;
    return true;
}

/* Dynamic NTK is a base of its own once the sequence is longer than what the model was made for. */
static bool rope_dynamic(Reader *r, Json at, Attr_rope *rope)
{
    double factor = 1;
    int64_t original = 1;
    if (!json_num(json_get(at, "factor"), 1e-6, 1e6, &factor) ||
        !json_int(json_get(at, "original"), 1, INT64_C(1) << 40, &original))
        return false;
    double sequence = (double)r->net->dims.at[r->net->sequence].extent, d = (double)rope->rotary;
    if (sequence > (double)original && d > 2)
        rope->theta *= pow(factor * sequence / (double)original - (factor - 1), d / (d - 2));
    return true;
}

static bool rope_ramp(Reader *r, Json at, Attr_rope *rope)
{
    bool fine = json_num(json_get(at, "factor"), 1e-6, 1e6, &rope->factor);
    fine = json_num(json_get(at, "low"), 1e-6, 1e6, &rope->low) && fine;
    fine = json_num(json_get(at, "high"), 1e-6, 1e6, &rope->high) && fine;
    fine = json_int(json_get(at, "original"), 1, INT64_C(1) << 40, &rope->original) && fine;
    bool step = rope->scaling == ROPE_YARN && rope->high == rope->low;
    if (fine && rope->high <= rope->low && !step) {
        json_fail(json_get(at, "high"), "\"high\" must be more than \"low\"");
        diag_help(r->diag, "Llama 3.1 has low 1 and high 4, YaRN 1 and 32");
        return false;
    }
    bool exact = false;
    if (!fine || !json_opt_bool(at, "exact", &exact))
        return false;
    rope->exact = exact;
    return true;
}

static bool rope_long(Reader *r, Json at, Attr_rope *rope)
{
    int64_t original = 1;
    if (!json_int(json_get(at, "original"), 1, INT64_C(1) << 40, &original))
        return false;
    bool far = r->net->dims.at[r->net->sequence].extent > original;
    Json list = json_get(at, far ? "far" : "near");
    if (!rope_factors(r, list, &rope->factors))
        return false;
    if (json_len(list) == rope->rotary / 2)
        return true;
    json_fail(list, "%d factors for %lld pairs", json_len(list), (long long)(rope->rotary / 2));
    diag_help(r->diag, "one factor for each pair of rotated features");
    return false;
}

static bool rope_scaling(Reader *r, Json at, Attr_rope *rope)
{
    static const char *const keys[] = {"kind",  "factor", "low",  "high", "original",
                                       "exact", "gain",   "near", "far"};
    enum { DYNAMIC = ROPE_SCALING_COUNT };
    if (!model_present(at))
        return true;
    int words = 0, kind = 0;
    const char *const *known = op_words_rope(&words);
    const char *word[DYNAMIC + 1];
    memcpy(word, known, (size_t)words * sizeof *word);
    word[DYNAMIC] = "dynamic";
    bool fine = json_want_object(at) && json_only_keys(at, keys, COUNT_OF(keys));
    if (!fine || !json_word(json_get(at, "kind"), word, words + 1, &kind) ||
        !json_opt_num(at, "gain", 0, 1e3, &rope->gain))
        return false;
    if (rope->gain == 1)
        rope->gain = 0; /* what it means when it is not said */
    if (kind == DYNAMIC)
        return rope_dynamic(r, at, rope);
    rope->scaling = (RopeScaling)kind;
    switch (rope->scaling) {
    case ROPE_PLAIN:
    case ROPE_SCALING_COUNT:
        return true;
    case ROPE_LINEAR:
        return json_num(json_get(at, "factor"), 1e-6, 1e6, &rope->factor);
    case ROPE_LLAMA3:
    case ROPE_YARN:
        return rope_ramp(r, at, rope);
    case ROPE_LONG:
        return rope_long(r, at, rope);
    }
    return false;
}

bool model_read_rope(Reader *r, Json op)
{
    ValueId in;
    const char *out;
    Attrs attrs = {.rope = {.theta = 0}};
    Attr_rope *rope = &attrs.rope;
    bool fine = model_in_out(r, op, &in, &out);
    fine = json_num(model_attribute(r, op, "theta"), 1, 1e15, &rope->theta) && fine;
    bool interleaved = false;
    fine = json_opt_bool(op, "interleaved", &interleaved) && fine;
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
    if (!rope_scaling(r, model_attribute(r, op, "scaling"), rope))
        return false;
    const char *l = model_letters(r, in), *sig = arena_printf(r->arena, "%s->%s", l, l);
    ValueId operand[2] = {in, NONE};
    if (r->packed) {
        operand[1] = model_data(r, DATA_STARTS);
        sig = arena_printf(r->arena, "%s,%s->%s", l, model_letters(r, operand[1]), l);
    }
    return model_emit_out(r, op, OP_ROPE, out, sig, &attrs, operand, r->packed ? 2 : 1);
}

bool model_read_temper(Reader *r, Json op)
{
    ValueId in;
    const char *out;
    Attrs attrs = {.temper = {.scale = 0}};
    bool fine = model_in_out(r, op, &in, &out);
    fine = json_num(model_attribute(r, op, "scale"), -1e6, 1e6, &attrs.temper.scale) && fine;
    fine = json_num(model_attribute(r, op, "length"), 1, 1e15, &attrs.temper.length) && fine;
    fine = model_whole(r, op, "ahead", 0, 1, &attrs.temper.ahead) && fine;
    if (!fine)
        return false;
    Shape x = model_shape_of(r, in);
    if (x.axes < 2 || x.dim[0] != r->net->batch || x.dim[1] != r->net->sequence) {
        json_fail(json_get(op, "in"), "temper reads [b, s, ...], \"%s\" is %s",
                  r->graph->values.at[in].name, model_value_shape(r, in));
        diag_help(r->diag, "apply it to the queries");
        return false;
    }
    if (r->packed) {
        json_fail(op, "temper counts positions from the sequence's beginning, not the document's");
        diag_help(r->diag, "plan without packed documents");
        return false;
    }
    const char *l = model_letters(r, in);
    return model_emit_out(r, op, OP_TEMPER, out, arena_printf(r->arena, "%s->%s", l, l), &attrs,
                          &in, 1);
}

/* ---- attention ---- */

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
    if (k.axes != v.axes || memcmp(k.dim, v.dim, (size_t)(k.axes - 1) * sizeof *k.dim) != 0) {
        model_mismatch(r, at, "keys and values need the same heads", in[1], in[2]);
        diag_help(r->diag, "project both to the same dims; their widths may differ");
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

static bool attention_attrs(Reader *r, Json op, Attr_attention *a)
{
    bool causal = true;
    if (!model_number(r, op, "scale", DBL_MIN, 1e6, &a->scale) ||
        !model_whole(r, op, "window", 1, INT64_C(1) << 40, &a->window) ||
        !model_whole(r, op, "chunk", 1, INT64_C(1) << 40, &a->chunk) ||
        !model_number(r, op, "softcap", DBL_MIN, 1e6, &a->softcap) ||
        !model_number(r, op, "dropout", 0, 0.999, &a->drop) ||
        !model_flag(r, op, "causal", &causal))
        return false;
    a->causal = causal;
    if (a->window == 0 || causal)
        return true;
    json_fail(model_attribute(r, op, "window"), "a window without a causal mask");
    diag_help(r->diag, "a window counts back from the query: leave \"causal\" true");
    return false;
}

/* A sink is one more score per head that takes weight and gives no value: with l the log-sum-exp of
 * the others, the output shrinks by e^l / (e^l + e^sink) = sigmoid(l - sink). */
static bool attention_sink(Reader *r, Json op, NodeId attention, const char *out, Shape q)
{
    ValueId sink, o = r->graph->nodes.at[attention].out[0],
                  l = r->graph->nodes.at[attention].out[1];
    Shape heads = {.axes = q.axes - 3};
    memcpy(heads.dim, q.dim + 2, (size_t)heads.axes * sizeof *heads.dim);
    if (heads.axes < 1) {
        json_fail(json_get(op, "sink"), "a sink for no heads");
        diag_help(r->diag, "make heads of the queries first: [b, s, g, d]");
        return false;
    }
    if (!model_param(r, json_get(op, "sink"), heads, &heads.axes, 1, INIT_NORMAL, &sink))
        return false;
    const char *rows = model_letters(r, l), *each = model_letters(r, sink),
               *wide = model_letters(r, o);
    Attrs minus = {.scale = {.factor = -1}}, sigmoid = {.act = {.kind = ACT_SIGMOID}};
    ValueId less = model_node(r, OP_SCALE, arena_printf(r->arena, "%s.minus_sink", out),
                              arena_printf(r->arena, "%s->%s", each, each), &minus, &sink, 1);
    ValueId above = model_node(r, OP_BIAS, arena_printf(r->arena, "%s.above_sink", out),
                               arena_printf(r->arena, "%s,%s->%s", rows, each, rows), NULL,
                               (ValueId[]){l, less}, 2);
    ValueId share = model_node(r, OP_ACT, arena_printf(r->arena, "%s.share", out),
                               arena_printf(r->arena, "%s->%s", rows, rows), &sigmoid, &above, 1);
    return model_emit_out(r, op, OP_EINSUM, out,
                          arena_printf(r->arena, "%s,%s->%s", wide, rows, wide), NULL,
                          (ValueId[]){o, share}, 2);
}

bool model_read_attention(Reader *r, Json op)
{
    ValueId in[6];
    const char *out;
    double alibi_scale = 1;
    bool alibi = false, fine = model_floats(r, json_get(op, "in"), 3, in);
    if (!model_new_name(r, json_get(op, "out"), &out) || !fine)
        return false;
    if (!attention_shapes(r, json_get(op, "in"), in))
        return false;
    Shape q = model_shape_of(r, in[0]), v = model_shape_of(r, in[2]), o = q;
    o.dim[o.axes - 1] = v.dim[v.axes - 1];
    Attrs attrs = {.attention = {.causal = true}};
    attrs.attention.scale = 1 / sqrt((double)r->net->dims.at[q.dim[q.axes - 1]].extent);
    if (!attention_attrs(r, op, &attrs.attention) || !model_flag(r, op, "alibi", &alibi) ||
        !model_number(r, op, "alibi_scale", 1e-9, 1e9, &alibi_scale))
        return false;
    const char *ql = model_letters(r, in[0]), *kl = key_letters(r, in[1]),
               *vl = key_letters(r, in[2]), *more = "";
    int heads = q.axes - 3, ins = 3;
    if (alibi) {
        const char *each = model_shape_letters(r, q.dim + 2, heads);
        in[ins++] = model_node(r, OP_SLOPES, arena_printf(r->arena, "%s.slopes", out),
                               arena_printf(r->arena, "->%s", each), NULL, NULL, 0);
        Attrs scale = {.scale = {.factor = alibi_scale}};
        if (alibi_scale != 1)
            in[ins - 1] =
                model_node(r, OP_SCALE, arena_printf(r->arena, "%s.slopes_scaled", out),
                           arena_printf(r->arena, "%s->%s", each, each), &scale, &in[ins - 1], 1);
        more = arena_printf(r->arena, ",%s", each);
    }
    if (r->packed && attrs.attention.chunk > 0) {
        json_fail(op, "chunks count from the sequence's beginning, not the document's");
        diag_help(r->diag, "plan without packed documents");
        return false;
    }
    if (r->packed) {
        in[ins++] = model_data(r, DATA_STARTS);
        more = arena_printf(r->arena, "%s,%s", more, model_letters(r, in[ins - 1]));
    }
    if (attrs.attention.drop > 0 && heads < 1) {
        json_fail(model_attribute(r, op, "dropout"), "dropout of attention without heads");
        diag_help(r->diag, "make heads of the queries first: [b, s, g, d]");
        return false;
    }
    if (attrs.attention.drop > 0) {
        const char *rows = model_shape_letters(r, q.dim, q.axes - 1);
        Attrs draw = {.draw = {.site = model_draw_sites(r->graph)}};
        in[ins++] = model_node(r, OP_DRAW, arena_printf(r->arena, "%s.words", out),
                               arena_printf(r->arena, "->%s", rows), &draw, NULL, 0);
        more = arena_printf(r->arena, "%s,%s", more, rows);
    }
    const char *sig = arena_printf(r->arena, "%s,%s,%s%s->%s,%.*s", ql, kl, vl, more,
                                   model_shape_letters(r, o.dim, o.axes), q.axes - 1, ql);
    if (!json_has(op, "sink"))
        return model_emit_out(r, op, OP_ATTENTION, out, sig, &attrs, in, ins);
    NodeId attention;
    const char *name = arena_printf(r->arena, "%s.scores", out);
    return model_emit(r, op, OP_ATTENTION, name, sig, &attrs, in, ins, &attention) &&
           attention_sink(r, op, attention, out, q);
}
