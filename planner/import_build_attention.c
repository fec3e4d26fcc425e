/* import_build_attention.c - the attention of a layer: projections, norms of queries and keys,
 * rotation, latent forms. */
#include "planner/import_builder.h"

static json_t *scaling_of(const Rotation *turn)
{
    static const char *const kinds[] = {"plain", "linear", "llama3", "yarn", "long", "dynamic"};
    json_t *all = json_pack("{s:s}", "kind", kinds[turn->kind]);
    if (turn->kind != TURN_LONG)
        json_object_set_new(all, "factor", build_number(turn->factor));
    if (turn->kind == TURN_LLAMA3 || turn->kind == TURN_YARN) {
        json_object_set_new(all, "low", build_number(turn->low));
        json_object_set_new(all, "high", build_number(turn->high));
    }
    if (turn->kind != TURN_LINEAR)
        json_object_set_new(all, "original", json_integer((json_int_t)turn->original));
    if (turn->exact)
        json_object_set_new(all, "exact", json_true());
    if (turn->kind == TURN_LONG) {
        json_object_set(all, "near", turn->near.value);
        json_object_set(all, "far", turn->far.value);
    }
    if (turn->gain != 1)
        json_object_set_new(all, "gain", json_real(turn->gain));
    return all;
}

static const char *rotated(Builder *b, const char *in, const char *out, const Layer *layer)
{
    const Features *f = b->f;
    const Rotation *turn = layer->local_turn ? &f->local_turn : &f->turn;
    int64_t width = f->latent.kv_rank > 0 ? f->latent.rotated : f->head_dim;
    json_t *op = json_pack("{s:s, s:s, s:s, s:o}", "op", "rope", "in", in, "out", out, "theta",
                           build_number(turn->theta));
    if (f->interleaved)
        json_object_set_new(op, "interleaved", json_true());
    if (f->rotary != width)
        json_object_set_new(op, "rotary", json_integer(f->rotary));
    if (turn->kind != TURN_PLAIN)
        json_object_set_new(op, "scaling", scaling_of(turn));
    build_put(b, op);
    return out;
}

static const char *query_dims(const Features *f)
{
    return f->plain_heads ? "g d" : "g r d";
}

/* Rows of one stored matrix, one tensor after the other. */
static void projections_of_rows(Builder *b, const char *in)
{
    const Features *f = b->f;
    const char *name = f->names->qkv;
    long long q = f->heads * f->head_dim, kv = f->kv_heads * f->head_dim;
    build_linear(b, in, "q", name, arena_printf(b->arena, "[0:%lld]", q), NULL, query_dims(f),
                 f->qkv_bias);
    build_linear(b, in, "k", name, arena_printf(b->arena, "[%lld:%lld]", q, q + kv), NULL, "g d",
                 f->qkv_bias);
    build_linear(b, in, "v", name, arena_printf(b->arena, "[%lld:%lld]", q + kv, q + 2 * kv), NULL,
                 "g d", f->qkv_bias);
}

static void projections(Builder *b, const char *in)
{
    const Features *f = b->f;
    const NameSet *names = f->names;
    Fused fused = f->family->fused;
    if (fused == FUSED_NONE) {
        build_linear(b, in, "q", names->q, NULL, NULL, query_dims(f), f->qkv_bias);
        build_linear(b, in, "k", names->k, NULL, NULL, "g d", f->qkv_bias);
        build_linear(b, in, "v", names->v, NULL, NULL, "g d", f->qkv_bias);
    } else if (fused == FUSED_PART && f->plain_heads) {
        build_linear(b, in, "qkv", names->qkv, NULL, NULL, "c g d", f->qkv_bias);
        build_split(b, "qkv", "c", "q k v", NULL);
    } else if (fused == FUSED_PART || f->kv_heads == 1) { /* one group is all of the queries */
        projections_of_rows(b, in);
    } else {
        build_linear(b, in, "qkv", names->qkv, NULL, NULL, "g c d", f->qkv_bias);
        build_split(b, "qkv", "c", "q k v", f->plain_heads ? NULL : "r;;");
    }
}

/* Norm of queries or keys, whose heads have `axes` dims. */
static const char *head_norm(Builder *b, const char *in, const char *out, const char *name,
                             int axes)
{
    const Family *family = b->f->family;
    switch (family->qk) {
    case QK_HEAD:
        return build_norm_over(b, in, out, name, family->norm, family->norm_bias, 1, 1);
    case QK_EACH:
        return build_norm_over(b, in, out, name, family->norm, false, 1, axes);
    case QK_WIDE:
        return build_norm_over(b, in, out, name, family->norm, false, axes, axes);
    case QK_BARE:
        return build_norm_over(b, in, out, NULL, family->norm, false, 1, 1);
    }
    return in;
}

static void head_norms(Builder *b, const char **q, const char **k)
{
    const Features *f = b->f;
    *q = head_norm(b, *q, "qn", f->names->q_norm, f->plain_heads ? 2 : 3);
    *k = head_norm(b, *k, "kn", f->names->k_norm, 2);
}

static const char *clipped(Builder *b, const char *in, const char *out)
{
    double most = b->f->clip;
    return most > 0 ? build_curve(b, in, out, "clamp", -most, most) : in;
}

static const char *tempered(Builder *b, const char *in, const char *out, const Layer *layer)
{
    const Features *f = b->f;
    if (!layer->temper)
        return in;
    json_t *op =
        json_pack("{s:s, s:s, s:s, s:o, s:o}", "op", "temper", "in", in, "out", out, "scale",
                  build_number(f->temper_scale), "length", build_number(f->temper_length));
    if (f->temper_ahead)
        json_object_set_new(op, "ahead", json_integer(1));
    build_put(b, op);
    return out;
}

static void attend(Builder *b, const char *q, const char *k, const char *v, const Layer *layer)
{
    const Features *f = b->f;
    json_t *op = json_pack("{s:s, s:[s, s, s], s:s}", "op", "attention", "in", q, k, v, "out", "a");
    if (f->attention_scale != 0)
        json_object_set_new(op, "scale", build_number(f->attention_scale));
    if (layer->window > 0)
        json_object_set_new(op, "window", json_integer(layer->window));
    if (layer->chunk > 0)
        json_object_set_new(op, "chunk", json_integer(layer->chunk));
    if (f->softcap > 0)
        json_object_set_new(op, "softcap", build_number(f->softcap));
    if (f->alibi)
        json_object_set_new(op, "alibi", json_true());
    if (f->alibi && f->alibi_scale != 1)
        json_object_set_new(op, "alibi_scale", json_real(f->alibi_scale));
    if (f->drop[DROP_SCORES] > 0)
        json_object_set_new(op, "dropout", json_real(f->drop[DROP_SCORES]));
    if (f->names->sink)
        json_object_set_new(op, "sink", json_string(build_name(b, f->names->sink)));
    build_put(b, op);
}

static void frozen(Builder *b, const char *name, const char *kind, const char *first,
                   const char *second)
{
    json_t *axes = json_array();
    json_array_append_new(axes, build_words(first));
    if (second)
        json_array_append_new(axes, build_words(second));
    build_put(b, json_pack("{s:s, s:s, s:o}", "op", "frozen", "param", build_param(b, name, kind),
                           "axes", axes));
}

/* Parameters of a chooser of keys: kept, but not trained here. */
static void frozen_chooser(Builder *b, const Layer *layer)
{
    const NameSet *names = b->f->names;
    if (!layer->choosy)
        return;
    frozen(b, names->index_q, "weight", "index_heads index_dim",
           b->f->latent.kv_rank > 0 ? "q" : "h");
    frozen(b, names->index_k, "weight", "index_dim", "h");
    if (names->index_weight)
        frozen(b, names->index_weight, "weight", "index_heads", "h");
    if (names->index_q_norm)
        frozen(b, names->index_q_norm, "weight", "index_dim", NULL);
    else /* a norm with a bias */
        frozen(b, names->index_k_norm, "bias", "index_dim", NULL);
    frozen(b, names->index_k_norm, "weight", "index_dim", NULL);
}

/* Queries and keys come from narrow values; a part of each head carries the position, which all
 * heads of the keys share (DeepSeek-V2, 2024). */
static void latent(Builder *b, const char *in, const Layer *layer)
{
    const Features *f = b->f;
    const NameSet *names = f->names;
    b->eps = 1e-6; /* the code's own, whatever the config says */
    if (f->latent.q_rank > 0) {
        build_linear(b, in, "q_down", names->q_down, NULL, NULL, "q", f->qkv_bias);
        build_norm(b, "q_down", "q_low", names->q_down_norm);
        build_linear(b, "q_low", "q_whole", names->q_up, NULL, NULL, "g c", false);
    } else {
        build_linear(b, in, "q_whole", names->q, NULL, NULL, "g c", false);
    }
    build_split(b, "q_whole", "c", "q_still q_place", "n;m");
    build_linear(b, in, "kv_down", names->kv_down, NULL, NULL, "z", f->qkv_bias);
    build_split(b, "kv_down", "z", "kv_still k_place", "l;m");
    build_norm(b, "kv_still", "kv_low", names->kv_down_norm);
    b->eps = f->eps;
    build_linear(b, "kv_low", "kv", names->kv_up, NULL, NULL, "g y", false);
    build_split(b, "kv", "y", "k_still v", "n;w");
    const char *q_place = rotated(b, "q_place", "q_turned", layer);
    const char *k_place = rotated(b, "k_place", "k_turned", layer);
    build_put(b, json_pack("{s:s, s:s, s:s, s:[s, s, s, s]}", "op", "broadcast", "in", k_place,
                           "out", "k_spread", "dims", "b", "s", "g", "m"));
    build_concat(b, arena_printf(b->arena, "q_still %s", q_place), "c", "n;m", "q");
    build_concat(b, "k_still k_spread", "c", "n;m", "k");
    frozen_chooser(b, layer);
    attend(b, "q", "k", "v", layer);
    build_linear(b, "a", "o", names->o, NULL, "g w", "h", f->out_bias);
}

const char *build_attention(Builder *b, const char *in, const Layer *layer)
{
    const Features *f = b->f;
    const NameSet *names = f->names;
    if (f->latent.kv_rank > 0) {
        latent(b, in, layer);
        return "o";
    }
    bool late = f->family->qk_after || f->family->qk == QK_BARE;
    const char *q = "q", *k = "k", *v = "v";
    projections(b, in);
    if (f->qk_norm && !late)
        head_norms(b, &q, &k);
    q = clipped(b, q, "q_clipped");
    k = clipped(b, k, "k_clipped");
    v = clipped(b, v, "v_clipped");
    if (layer->rotate) {
        q = rotated(b, q, "qr", layer);
        k = rotated(b, k, "kr", layer);
    }
    if (f->qk_norm && late && (layer->rotate || f->family->qk != QK_BARE))
        head_norms(b, &q, &k);
    frozen_chooser(b, layer);
    attend(b, tempered(b, q, "qt", layer), k, v, layer);
    build_linear(b, "a", "o", names->o, NULL, query_dims(f), "h", f->out_bias);
    return "o";
}
