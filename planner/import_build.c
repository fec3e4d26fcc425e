/* import_build.c - Features to lplan-model/1: one graph for every family. */
#include <math.h>
#include <string.h>

#include "planner/import_features.h"

typedef struct Builder {
    Arena *arena;
    const Features *f;
    json_t *ops; /* of the block being built */
} Builder;

/* "NAME.weight" with the wrapper's renaming. */
static const char *param(const Builder *b, const char *name, const char *kind)
{
    const Wrapper *wrapper = b->f->wrapper;
    size_t length = wrapper ? strlen(wrapper->from) : 0;
    if (wrapper && strncmp(name, wrapper->from, length) == 0)
        return arena_printf(b->arena, "%s%s.%s", wrapper->to, name + length, kind);
    return arena_printf(b->arena, "%s.%s", name, kind);
}

static void put(Builder *b, json_t *op)
{
    json_array_append_new(b->ops, op);
}

/* "g r d" as ["g", "r", "d"]. */
static json_t *words(const char *text)
{
    json_t *list = json_array();
    for (; *text; text += *text == ' ') {
        size_t length = strcspn(text, " ");
        json_array_append_new(list, json_stringn(text, length));
        text += length;
    }
    return list;
}

/* Numbers that a config wrote as integers stay integers in the file. */
static json_t *number(double value)
{
    bool whole = value == floor(value) && fabs(value) < 1e15;
    return whole ? json_integer((json_int_t)value) : json_real(value);
}

static void norm(Builder *b, const char *in, const char *out, const char *name, NormKind kind,
                 bool bias)
{
    json_t *op = json_pack("{s:s, s:s, s:o, s:s, s:s, s:s}", "op", "norm", "kind",
                           kind == NORM_RMS ? "rms" : "layer", "eps", json_real(b->f->eps), "in",
                           in, "out", out, "gain", param(b, name, "weight"));
    if (bias)
        json_object_set_new(op, "bias", json_string(param(b, name, "bias")));
    put(b, op);
}

static void stream_norm(Builder *b, const char *in, const char *out, const char *name)
{
    norm(b, in, out, name, b->f->family->norm, b->f->family->norm_bias);
}

/* from NULL: the last axis. */
static void linear(Builder *b, const char *in, const char *out, const char *name, const char *from,
                   const char *to, bool bias)
{
    json_t *op = json_pack("{s:s, s:s, s:s}", "op", "linear", "in", in, "out", out);
    if (from)
        json_object_set_new(op, "from", words(from));
    json_object_set_new(op, "to", words(to));
    json_object_set_new(op, "weight", json_string(param(b, name, "weight")));
    if (bias)
        json_object_set_new(op, "bias", json_string(param(b, name, "bias")));
    if (b->f->family->transposed)
        json_object_set_new(op, "transposed", json_true());
    put(b, op);
}

static void binary(Builder *b, const char *kind, const char *left, const char *right,
                   const char *out)
{
    put(b, json_pack("{s:s, s:[s, s], s:s}", "op", kind, "in", left, right, "out", out));
}

static void split(Builder *b, const char *in, const char *dim, const char *parts)
{
    put(b, json_pack("{s:s, s:s, s:s, s:o}", "op", "split", "in", in, "dim", dim, "out",
                     words(parts)));
}

/* The value's name after multiplying it; the same name when there is nothing to do. */
static const char *scaled(Builder *b, const char *in, const char *out, double factor)
{
    if (factor == 1)
        return in;
    put(b, json_pack("{s:s, s:s, s:s, s:o}", "op", "scale", "in", in, "out", out, "factor",
                     number(factor)));
    return out;
}

static const char *const act_text[ACT_KIND_COUNT] = {
    [ACT_SILU] = "silu", [ACT_GELU_TANH] = "gelu_tanh", [ACT_GELU_ERF] = "gelu_erf",
    [ACT_RELU] = "relu", [ACT_RELU2] = "relu2",
};

static void act(Builder *b, const char *in, const char *out)
{
    put(b, json_pack("{s:s, s:s, s:s, s:s}", "op", "act", "kind", act_text[b->f->act], "in", in,
                     "out", out));
}

/* ---- attention ---- */

static const char *rotated(Builder *b, const char *in, const char *out)
{
    const Features *f = b->f;
    json_t *op = json_pack("{s:s, s:s, s:s, s:o}", "op", "rope", "in", in, "out", out, "theta",
                           number(f->theta));
    if (f->family->interleaved)
        json_object_set_new(op, "interleaved", json_true());
    if (f->rotary != f->head_dim)
        json_object_set_new(op, "rotary", json_integer(f->rotary));
    if (f->scale.kind == ROPE_LINEAR)
        json_object_set_new(
            op, "scaling",
            json_pack("{s:s, s:o}", "kind", "linear", "factor", number(f->scale.factor)));
    if (f->scale.kind == ROPE_LLAMA3)
        json_object_set_new(op, "scaling",
                            json_pack("{s:s, s:o, s:o, s:o, s:I}", "kind", "llama3", "factor",
                                      number(f->scale.factor), "low", number(f->scale.low), "high",
                                      number(f->scale.high), "original",
                                      (json_int_t)f->scale.original));
    put(b, op);
    return out;
}

static void projections(Builder *b, const char *in)
{
    const Features *f = b->f;
    const NameSet *names = f->family->names;
    const char *q_dims = f->family->plain_heads ? "g d" : "g r d";
    switch (f->family->fused) {
    case FUSED_NONE:
        linear(b, in, "q", names->q, NULL, q_dims, f->qkv_bias);
        linear(b, in, "k", names->k, NULL, "g d", f->qkv_bias);
        linear(b, in, "v", names->v, NULL, "g d", f->qkv_bias);
        return;
    case FUSED_PART_HEAD:
        linear(b, in, "qkv", names->qkv, NULL, "c g d", f->qkv_bias);
        break;
    case FUSED_HEAD_PART:
        linear(b, in, "qkv", names->qkv, NULL, "g c d", f->qkv_bias);
        break;
    }
    split(b, "qkv", "c", "q k v");
}

/* Reads `in`, makes "o". */
static void attention(Builder *b, const char *in, int64_t window, bool rotate)
{
    const Features *f = b->f;
    const NameSet *names = f->family->names;
    const char *q = "q", *k = "k";
    projections(b, in);
    if (names->q_norm) {
        norm(b, "q", "qn", names->q_norm, NORM_RMS, false);
        norm(b, "k", "kn", names->k_norm, NORM_RMS, false);
        q = "qn";
        k = "kn";
    }
    if (rotate) {
        q = rotated(b, q, "qr");
        k = rotated(b, k, "kr");
    }
    json_t *op =
        json_pack("{s:s, s:[s, s, s], s:s}", "op", "attention", "in", q, k, "v", "out", "a");
    if (f->attention_scale != 0)
        json_object_set_new(op, "scale", number(f->attention_scale));
    if (window > 0)
        json_object_set_new(op, "window", json_integer(window));
    put(b, op);
    linear(b, "a", "o", names->o, f->family->plain_heads ? "g d" : "g r d", "h", f->out_bias);
}

/* Reads `in`, makes "m". */
static void mlp(Builder *b, const char *in)
{
    const NameSet *names = b->f->family->names;
    bool bias = b->f->mlp_bias, gated = names->gate || names->gate_up;
    if (names->gate_up) {
        linear(b, in, "gate_up", names->gate_up, NULL, "e f", bias);
        split(b, "gate_up", "e", "gate up");
    } else {
        if (gated)
            linear(b, in, "gate", names->gate, NULL, "f", bias);
        linear(b, in, "up", names->up, NULL, "f", bias);
    }
    act(b, gated ? "gate" : "up", "active");
    if (gated)
        binary(b, "mul", "active", "up", "wide");
    linear(b, gated ? "wide" : "active", "m", names->down, NULL, "h", bias);
}

/* ---- blocks ---- */

static json_t *layer_block(Builder *b, int64_t window, bool rotate)
{
    const Features *f = b->f;
    const NameSet *names = f->family->names;
    b->ops = json_array();
    stream_norm(b, "x", "n1", names->norm1);
    attention(b, "n1", window, rotate);
    if (f->parallel) {
        bool one = f->family->parallel_one_norm;
        if (!one)
            stream_norm(b, "x", "n2", names->norm2);
        mlp(b, one ? "n1" : "n2");
        binary(b, "add", "o", "m", "both");
        binary(b, "add", "x", scaled(b, "both", "both_scaled", f->residual_scale), "x2");
    } else {
        binary(b, "add", "x", scaled(b, "o", "o_scaled", f->residual_scale), "x1");
        stream_norm(b, "x1", "n2", names->norm2);
        mlp(b, "n2");
        binary(b, "add", "x1", scaled(b, "m", "m_scaled", f->residual_scale), "x2");
    }
    return json_pack("{s:s, s:s, s:o}", "in", "x", "out", "x2", "ops", b->ops);
}

static json_t *embed_block(Builder *b)
{
    const NameSet *names = b->f->family->names;
    b->ops = json_array();
    put(b, json_pack("{s:s, s:s, s:s, s:s, s:[s], s:s}", "op", "embedding", "in", "ids", "out",
                     "token", "rows", "v", "cols", "h", "table", param(b, names->embed, "weight")));
    const char *out = scaled(b, "token", "token_scaled", b->f->embed_scale);
    if (names->positions) {
        put(b, json_pack("{s:s, s:s, s:s, s:s, s:[s], s:s}", "op", "embedding", "in", "positions",
                         "out", "place", "rows", "p", "cols", "h", "table",
                         param(b, names->positions, "weight")));
        binary(b, "add", out, "place", "x");
        out = "x";
    }
    return json_pack("{s:s, s:o}", "out", out, "ops", b->ops);
}

static json_t *head_block(Builder *b)
{
    const Family *family = b->f->family;
    const NameSet *names = family->names;
    b->ops = json_array();
    stream_norm(b, "x", "n", names->final_norm);
    const char *in = scaled(b, "n", "n_scaled", b->f->head_scale);
    json_t *op =
        json_pack("{s:s, s:s, s:s, s:[s], s:s}", "op", "linear", "in", in, "out", "logits", "to",
                  "v", "weight", param(b, b->f->tie ? names->embed : names->head, "weight"));
    if (family->head_bias)
        json_object_set_new(op, "bias", json_string(param(b, names->head, "bias")));
    put(b, op);
    put(b, json_pack("{s:s, s:s}", "op", "cross_entropy", "in", "logits"));
    return json_pack("{s:s, s:o}", "in", "x", "ops", b->ops);
}

static json_t *dims(const Features *f)
{
    const NameSet *names = f->family->names;
    json_t *all = json_pack("{s:I, s:I, s:I, s:I, s:I}", "h", (json_int_t)f->hidden, "f",
                            (json_int_t)f->ffn, "v", (json_int_t)f->vocab, "g",
                            (json_int_t)f->kv_heads, "d", (json_int_t)f->head_dim);
    if (!f->family->plain_heads)
        json_object_set_new(all, "r", json_integer(f->heads / f->kv_heads));
    if (f->family->fused != FUSED_NONE)
        json_object_set_new(all, "c", json_integer(3));
    if (names->gate_up)
        json_object_set_new(all, "e", json_integer(2));
    if (names->positions)
        json_object_set_new(all, "p", json_integer(f->positions));
    return all;
}

static const char *layer_name(const Features *f, int64_t layer)
{
    bool local = f->window[layer] > 0, still = f->rotary > 0 && !f->rotate[layer];
    return still ? (local ? "layer_local_still" : "layer_still") : local ? "layer_local" : "layer";
}

/* Runs of equal layers become one entry of the chain. */
static void layers(Builder *b, json_t *blocks, json_t *chain)
{
    const Features *f = b->f;
    for (int64_t i = 0, next; i < f->layers; i = next) {
        const char *name = layer_name(f, i);
        for (next = i + 1; next < f->layers && str_eq(layer_name(f, next), name); next++)
            ;
        if (!json_object_get(blocks, name))
            json_object_set_new(blocks, name, layer_block(b, f->window[i], f->rotate[i]));
        json_t *entry = json_pack("{s:s, s:I}", "block", name, "repeat", (json_int_t)(next - i));
        if (i > 0)
            json_object_set_new(entry, "first", json_integer(i));
        json_array_append_new(chain, entry);
    }
}

json_t *features_build(Arena *arena, const Features *features)
{
    Builder builder = {.arena = arena, .f = features};
    json_t *blocks = json_object(), *chain = json_array();
    json_object_set_new(blocks, "embed", embed_block(&builder));
    json_array_append_new(chain, json_pack("{s:s}", "block", "embed"));
    layers(&builder, blocks, chain);
    json_object_set_new(blocks, "head", head_block(&builder));
    json_array_append_new(chain, json_pack("{s:s}", "block", "head"));
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "format", "lplan-model/1", "name",
                     features->name, "init_std", json_real(features->init_std), "dims",
                     dims(features), "blocks", blocks, "chain", chain);
}
