/* import_build.c - Features to lplan-model/1: one graph for every family. */
#include <math.h>
#include <string.h>

#include "planner/import_builder.h"

const char *build_name(const Builder *b, const char *name)
{
    const Wrapper *wrapper = b->f->wrapper;
    size_t length = wrapper ? strlen(wrapper->from) : 0;
    if (wrapper && strncmp(name, wrapper->from, length) == 0)
        return arena_printf(b->arena, "%s%s", wrapper->to, name + length);
    return name;
}

const char *build_param(const Builder *b, const char *name, const char *kind)
{
    return arena_printf(b->arena, "%s.%s", build_name(b, name), kind);
}

void build_put(Builder *b, json_t *op)
{
    json_array_append_new(b->ops, op);
}

json_t *build_words(const char *text)
{
    json_t *list = json_array();
    for (; *text; text += *text == ' ') {
        size_t length = strcspn(text, " ");
        json_array_append_new(list, json_stringn(text, length));
        text += length;
    }
    return list;
}

json_t *build_number(double value)
{
    bool whole = value == floor(value) && fabs(value) < 1e15;
    return whole ? json_integer((json_int_t)value) : json_real(value);
}

/* "r;;" as [["r"], [], []]. */
static json_t *dims_of_parts(Builder *b, const char *text)
{
    json_t *list = json_array();
    for (;; text++) {
        size_t length = strcspn(text, ";");
        json_array_append_new(list, build_words(arena_strndup(b->arena, text, length)));
        text += length;
        if (*text == '\0')
            return list;
    }
}

/* ---- ops ---- */

const char *build_norm_over(Builder *b, const char *in, const char *out, const char *name,
                            NormKind kind, bool bias, int axes, int gain_axes)
{
    const Family *family = b->f->family;
    json_t *op = json_pack("{s:s, s:s, s:o, s:s, s:s}", "op", "norm", "kind",
                           kind == NORM_RMS ? "rms" : "layer", "eps", json_real(b->eps), "in", in,
                           "out", out);
    if (axes > 1)
        json_object_set_new(op, "axes", json_integer(axes));
    if (gain_axes > 1 && gain_axes != axes)
        json_object_set_new(op, "gain_axes", json_integer(gain_axes));
    const char *kind_of_gain = family->norm_suffix ? family->norm_suffix : "weight";
    if (name) {
        if (family->norm_shift)
            json_object_set_new(op, "shift", json_integer(1));
        json_object_set_new(op, "gain", json_string(build_param(b, name, kind_of_gain)));
    }
    if (name && bias)
        json_object_set_new(op, "bias", json_string(build_param(b, name, "bias")));
    build_put(b, op);
    return out;
}

const char *build_norm(Builder *b, const char *in, const char *out, const char *name)
{
    const Family *family = b->f->family;
    if (!name)
        return in;
    return build_norm_over(b, in, out, family->norm_bare ? NULL : name, family->norm,
                           family->norm_bias, 1, 1);
}

void build_linear(Builder *b, const char *in, const char *out, const char *name, const char *rows,
                  const char *from, const char *to, bool bias)
{
    const char *part = rows ? rows : "";
    json_t *op = json_pack("{s:s, s:s, s:s}", "op", "linear", "in", in, "out", out);
    if (from)
        json_object_set_new(op, "from", build_words(from));
    json_object_set_new(op, "to", build_words(to));
    json_object_set_new(
        op, "weight",
        json_string(arena_printf(b->arena, "%s%s", build_param(b, name, "weight"), part)));
    if (bias)
        json_object_set_new(
            op, "bias",
            json_string(arena_printf(b->arena, "%s%s", build_param(b, name, "bias"), part)));
    if (b->f->family->transposed)
        json_object_set_new(op, "transposed", json_true());
    build_put(b, op);
}

const char *build_binary(Builder *b, const char *kind, const char *left, const char *right,
                         const char *out)
{
    build_put(b, json_pack("{s:s, s:[s, s], s:s}", "op", kind, "in", left, right, "out", out));
    return out;
}

void build_split(Builder *b, const char *in, const char *dim, const char *names, const char *parts)
{
    json_t *op = json_pack("{s:s, s:s, s:s, s:o}", "op", "split", "in", in, "dim", dim, "out",
                           build_words(names));
    if (parts)
        json_object_set_new(op, "parts", dims_of_parts(b, parts));
    build_put(b, op);
}

const char *build_concat(Builder *b, const char *ins, const char *dim, const char *parts,
                         const char *out)
{
    build_put(b, json_pack("{s:s, s:o, s:s, s:o, s:s}", "op", "concat", "in", build_words(ins),
                           "dim", dim, "parts", dims_of_parts(b, parts), "out", out));
    return out;
}

const char *build_scaled(Builder *b, const char *in, const char *out, double factor)
{
    if (factor == 1)
        return in;
    build_put(b, json_pack("{s:s, s:s, s:s, s:o}", "op", "scale", "in", in, "out", out, "factor",
                           build_number(factor)));
    return out;
}

const char *build_dropped(Builder *b, const char *in, const char *out, DropSite site)
{
    if (b->f->drop[site] == 0)
        return in;
    build_put(b, json_pack("{s:s, s:s, s:s, s:o}", "op", "dropout", "in", in, "out", out, "rate",
                           json_real(b->f->drop[site])));
    return out;
}

const char *build_curve(Builder *b, const char *in, const char *out, const char *kind, double a,
                        double c)
{
    json_t *op = json_pack("{s:s, s:s, s:o, s:s, s:s}", "op", "act", "kind", kind, "a",
                           build_number(a), "in", in, "out", out);
    if (str_eq(kind, "clamp"))
        json_object_set_new(op, "b", build_number(c));
    build_put(b, op);
    return out;
}

const char *build_act(Builder *b, const char *in, const char *out)
{
    static const char *const text[ACT_KIND_COUNT] = {
        [ACT_SILU] = "silu", [ACT_GELU_TANH] = "gelu_tanh", [ACT_GELU_ERF] = "gelu_erf",
        [ACT_RELU] = "relu", [ACT_RELU2] = "relu2",
    };
    build_put(b, json_pack("{s:s, s:s, s:s, s:s}", "op", "act", "kind", text[b->f->act], "in", in,
                           "out", out));
    return out;
}

/* ---- blocks ---- */

/* What a layer makes of x: x2. */
static void layer_ops(Builder *b, const Layer *layer, const char *x)
{
    const Features *f = b->f;
    const NameSet *names = f->names;
    const char *n1 = build_norm(b, x, "n1", names->norm1);
    const char *o = build_dropped(b, build_attention(b, n1, layer), "o_dropped", DROP_ATTENTION);
    o = build_norm(b, o, "o_norm", names->post1);
    if (f->parallel) {
        const char *n2 = f->one_norm ? n1 : build_norm(b, x, "n2", names->norm2);
        const char *m = build_mlp(b, n2, layer);
        m = build_norm(b, build_dropped(b, m, "m_dropped", DROP_MLP), "m_norm", names->post2);
        const char *both = build_binary(b, "add", o, m, "both");
        build_binary(b, "add", x, build_scaled(b, both, "both_scaled", f->residual_scale), "x2");
    } else {
        build_binary(b, "add", x, build_scaled(b, o, "o_scaled", f->residual_scale), "x1");
        const char *n2 = build_norm(b, "x1", "n2", names->norm2);
        const char *m = build_mlp(b, n2, layer);
        m = build_norm(b, build_dropped(b, m, "m_dropped", DROP_MLP), "m_norm", names->post2);
        build_binary(b, "add", "x1", build_scaled(b, m, "m_scaled", f->residual_scale), "x2");
    }
}

static json_t *layer_block(Builder *b, const Layer *layer)
{
    b->ops = json_array();
    layer_ops(b, layer, "x");
    return json_pack("{s:s, s:s, s:o}", "in", "x", "out", "x2", "ops", b->ops);
}

/* The tokens, or those so many places further, as the first layer takes them. */
static const char *token_ops(Builder *b, int ahead)
{
    const NameSet *names = b->f->names;
    json_t *op = json_pack("{s:s, s:s, s:s, s:s, s:[s], s:s}", "op", "embedding", "in", "ids",
                           "out", "token", "rows", "v", "cols", "h", "table",
                           build_param(b, names->embed, "weight"));
    if (ahead > 0)
        json_object_set_new(op, "ahead", json_integer(ahead));
    build_put(b, op);
    const char *out = build_scaled(b, "token", "token_scaled", b->f->embed_scale);
    return build_norm(b, out, "token_norm", names->embed_norm);
}

static json_t *embed_block(Builder *b)
{
    const NameSet *names = b->f->names;
    int offset = b->f->family->positions_offset;
    b->ops = json_array();
    const char *out = token_ops(b, 0);
    if (names->positions) {
        json_t *op = json_pack("{s:s, s:s, s:s, s:s, s:[s], s:s}", "op", "embedding", "in",
                               "positions", "out", "place", "rows", "p", "cols", "h", "table",
                               build_param(b, names->positions, "weight"));
        if (offset > 0)
            json_object_set_new(op, "offset", json_integer(offset));
        build_put(b, op);
        out = build_binary(b, "add", out, "place", "x");
    }
    out = build_dropped(b, out, "x_dropped", DROP_EMBED);
    return json_pack("{s:s, s:o}", "out", out, "ops", b->ops);
}

/* Of a normed state: the loss of the token `ahead` places after the next. */
static void loss_ops(Builder *b, const char *n, int ahead)
{
    const Features *f = b->f;
    const NameSet *names = f->names;
    const char *end = ahead ? arena_printf(b->arena, "_%d", ahead) : "",
               *made = arena_printf(b->arena, "logits%s", end),
               *raw = arena_printf(b->arena, "raw%s", end), *logits = f->logit_cap > 0 ? raw : made;
    const char *in = build_scaled(b, n, arena_printf(b->arena, "n_scaled%s", end), f->head_scale);
    json_t *op =
        json_pack("{s:s, s:s, s:s, s:[s], s:s}", "op", "linear", "in", in, "out", logits, "to", "v",
                  "weight", build_param(b, f->tie ? names->embed : names->head, "weight"));
    if (f->family->head_bias)
        json_object_set_new(op, "bias", json_string(build_param(b, names->head, "bias")));
    build_put(b, op);
    if (f->logit_cap > 0)
        build_curve(b, logits, made, "softcap", f->logit_cap, 0);
    op = json_pack("{s:s, s:s}", "op", "cross_entropy", "in", made);
    if (ahead > 0) {
        json_object_set_new(op, "ahead", json_integer(ahead));
        json_object_set_new(op, "factor", json_real(f->further));
    }
    build_put(b, op);
}

/* Multi-token prediction (DeepSeek-V3 technical report, section 2.2): the state, as the head takes
 * it, and the next token's embedding, each normed, are joined and projected, and a layer of its own
 * follows. Both states go on to the head, which serves both. */
static json_t *further_block(Builder *b)
{
    const Features *f = b->f;
    const NameSet *names = f->names;
    b->ops = json_array();
    const char *state = build_norm(b, "x", "state", names->final_norm);
    const char *token = build_norm(b, token_ops(b, 1), "token_n", names->token_norm);
    const char *before = build_norm(b, state, "state_n", names->state_norm);
    build_concat(b, arena_printf(b->arena, "%s %s", token, before), "hh", "h;h", "pair");
    build_linear(b, "pair", "joined", names->join, NULL, NULL, "h", false);
    layer_ops(b, &f->layer[f->layers - 1], "joined");
    const char *further = build_norm(b, "x2", "further", names->further_norm);
    build_concat(b, arena_printf(b->arena, "%s %s", state, further), "hh", "h;h", "both");
    return json_pack("{s:s, s:s, s:o}", "in", "x", "out", "both", "ops", b->ops);
}

static json_t *head_block(Builder *b)
{
    b->ops = json_array();
    if (b->f->further == 0) {
        loss_ops(b, build_norm(b, "x", "n", b->f->names->final_norm), 0);
        return json_pack("{s:s, s:o}", "in", "x", "ops", b->ops);
    }
    build_split(b, "both", "hh", "n further", "h;h");
    loss_ops(b, "n", 0);
    loss_ops(b, "further", 1);
    return json_pack("{s:s, s:o}", "in", "both", "ops", b->ops);
}

static void dim(json_t *all, const char *name, int64_t extent)
{
    json_object_set_new(all, name, json_integer((json_int_t)extent));
}

static void latent_dims(json_t *all, const Features *f)
{
    const Latent *latent = &f->latent;
    dim(all, "c", f->head_dim);
    dim(all, "n", latent->still);
    dim(all, "m", latent->rotated);
    dim(all, "w", latent->v);
    dim(all, "y", latent->still + latent->v);
    dim(all, "l", latent->kv_rank);
    dim(all, "z", latent->kv_rank + latent->rotated);
    if (latent->q_rank > 0)
        dim(all, "q", latent->q_rank);
}

static json_t *dims(const Features *f)
{
    const NameSet *names = f->names;
    const Experts *experts = &f->experts;
    bool dense = experts->count == 0, pairs = names->gate_up != NULL;
    for (int64_t i = 0; i < f->layers; i++)
        dense = dense || !f->layer[i].experts;
    json_t *all = json_pack("{s:I, s:I, s:I}", "h", (json_int_t)f->hidden, "v",
                            (json_int_t)f->vocab, "g", (json_int_t)f->kv_heads);
    if (dense)
        dim(all, "f", f->ffn);
    if (f->latent.kv_rank > 0)
        latent_dims(all, f);
    else
        dim(all, "d", f->head_dim);
    if (f->index_heads > 0) {
        dim(all, "index_heads", f->index_heads);
        dim(all, "index_dim", f->index_dim);
    }
    if (!f->plain_heads)
        dim(all, "r", f->heads / f->kv_heads);
    bool grouped = f->family->fused == FUSED_GROUP && f->kv_heads > 1;
    if (grouped || (f->family->fused == FUSED_PART && f->plain_heads))
        dim(all, "c", f->heads / f->kv_heads + 2);
    if (experts->count > 0) {
        dim(all, "e", experts->count);
        dim(all, "k", experts->chosen);
        dim(all, "i", experts->ffn);
        pairs = (pairs && dense) || names->expert_gate_up;
        if (experts->shared_ffn > 0)
            dim(all, "j", experts->shared_ffn);
        if (experts->shared_ffn > 0 && names->shared_share)
            dim(all, "one", 1);
    }
    if (pairs)
        dim(all, "u", 2);
    if (f->further > 0)
        dim(all, "hh", 2 * f->hidden);
    if (names->positions)
        dim(all, "p", f->positions + f->family->positions_offset);
    return all;
}

static const char *layer_name(Arena *arena, const Features *f, int64_t i)
{
    const Layer *layer = &f->layer[i];
    bool still = f->rotary > 0 && !layer->rotate;
    return arena_printf(
        arena, "layer%s%s%s%s%s", layer->experts ? "_experts" : "",
        layer->window > 0 || layer->local_turn ? "_local" : "", layer->chunk > 0 ? "_chunk" : "",
        layer->choosy && !f->layer[0].choosy ? "_choosy" : "", still ? "_still" : "");
}

/* Runs of equal layers become one entry of the chain. */
static void layers(Builder *b, json_t *blocks, json_t *chain)
{
    const Features *f = b->f;
    for (int64_t i = 0, next; i < f->layers; i = next) {
        const char *name = layer_name(b->arena, f, i);
        for (next = i + 1; next < f->layers && str_eq(layer_name(b->arena, f, next), name); next++)
            ;
        if (!json_object_get(blocks, name))
            json_object_set_new(blocks, name, layer_block(b, &f->layer[i]));
        json_t *entry = json_pack("{s:s, s:I}", "block", name, "repeat", (json_int_t)(next - i));
        if (i > 0)
            json_object_set_new(entry, "first", json_integer(i));
        json_array_append_new(chain, entry);
    }
}

json_t *features_build(Arena *arena, const Features *features)
{
    Builder builder = {.arena = arena, .f = features, .eps = features->eps};
    json_t *blocks = json_object(), *chain = json_array();
    json_object_set_new(blocks, "embed", embed_block(&builder));
    json_array_append_new(chain, json_pack("{s:s}", "block", "embed"));
    layers(&builder, blocks, chain);
    if (features->further > 0) {
        json_object_set_new(blocks, "further", further_block(&builder));
        json_array_append_new(chain, json_pack("{s:s, s:I}", "block", "further", "first",
                                               (json_int_t)features->layers));
    }
    json_object_set_new(blocks, "head", head_block(&builder));
    json_array_append_new(chain, json_pack("{s:s}", "block", "head"));
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "format", "lplan-model/1", "name",
                     features->name, "init_std", json_real(features->init_std), "dims",
                     dims(features), "blocks", blocks, "chain", chain);
}
