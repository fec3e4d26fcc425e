/* import_build_mlp.c - what follows the attention of a layer: an MLP, or experts with their router.
 */
#include "planner/import_builder.h"

/* Gate and up become what goes down. A limit clamps both and adds one to up: gate sigmoid(1.702
 * gate) (up + 1), as GPT-OSS has it. */
static const char *gated(Builder *b, const char *gate, const char *up, const char *stem)
{
    double limit = b->f->act_limit;
    const char *wide = arena_printf(b->arena, "%swide", stem);
    const char *active = arena_printf(b->arena, "%sactive", stem);
    if (limit == 0)
        return build_binary(b, "mul", build_act(b, gate, active), up, wide);
    gate =
        build_curve(b, gate, arena_printf(b->arena, "%sgate_below", stem), "clamp", -1e30, limit);
    up = build_curve(b, up, arena_printf(b->arena, "%sup_within", stem), "clamp", -limit, limit);
    up = build_curve(b, up, arena_printf(b->arena, "%sup_one", stem), "shift", 1, 0);
    return build_binary(b, "mul", build_curve(b, gate, active, "swish", b->f->act_slope, 0), up,
                        wide);
}

/* Makes `out` [.., `to`] over the inner dim `inner`. */
static void plain_mlp(Builder *b, const char *in, const char *stem, const NameSet *names,
                      const char *inner, const char *to, const char *out)
{
    bool bias = b->f->mlp_bias;
    const char *gate = arena_printf(b->arena, "%sgate", stem);
    const char *up = arena_printf(b->arena, "%sup", stem);
    const char *wide;
    if (names->gate_up) {
        const char *both = arena_printf(b->arena, "%sgate_up", stem);
        build_linear(b, in, both, names->gate_up, NULL, NULL, arena_printf(b->arena, "u %s", inner),
                     bias);
        build_split(b, both, "u", arena_printf(b->arena, "%s %s", gate, up), NULL);
        wide = gated(b, gate, up, stem);
    } else if (names->gate) {
        build_linear(b, in, gate, names->gate, NULL, NULL, inner, bias);
        build_linear(b, in, up, names->up, NULL, NULL, inner, bias);
        wide = gated(b, gate, up, stem);
    } else {
        build_linear(b, in, up, names->up, NULL, NULL, inner, bias);
        wide = build_act(b, up, arena_printf(b->arena, "%sactive", stem));
    }
    build_linear(b, wide, out, names->down, NULL, inner, to, bias);
}

/* ---- experts ---- */

static void router(Builder *b, const char *in)
{
    const Features *f = b->f;
    const Experts *e = &f->experts;
    build_linear(b, in, "router", f->names->router, NULL, NULL, "e", f->family->router_linear_bias);
    json_t *op =
        json_pack("{s:s, s:s, s:[s, s], s:s, s:s}", "op", "router", "in", "router", "out", "choice",
                  "share", "k", "k", "score", e->sigmoid ? "sigmoid" : "softmax");
    if (f->family->choose_first)
        json_object_set_new(op, "after", json_true());
    if (e->groups > 1) {
        json_object_set_new(op, "groups", json_integer(e->groups));
        json_object_set_new(op, "kept", json_integer(e->kept));
        json_object_set_new(op, "by", json_string(e->by_two ? "top2" : "max"));
    }
    if (e->bias)
        json_object_set_new(op, "bias", json_string(build_name(b, f->names->router_bias)));
    if (e->renormalise) {
        json_object_set_new(op, "renormalise", json_true());
        if (f->family->renorm_epsilon > 0)
            json_object_set_new(op, "epsilon", json_real(f->family->renorm_epsilon));
    }
    if (e->scale != 1)
        json_object_set_new(op, "scale", build_number(e->scale));
    if (e->balance > 0)
        json_object_set_new(op, "balance", json_real(e->balance));
    if (e->balance > 0 && e->balance_each)
        json_object_set_new(op, "balance_over", json_string("sequence"));
    build_put(b, op);
}

/* One linear of the chosen experts. */
static void expert_linear(Builder *b, const char *in, const char *out, const char *name,
                          const char *from, const char *to, bool down)
{
    Stored stored = b->f->family->stored;
    bool joined = stored == STORED_STACK || stored == STORED_PAIRS;
    bool suffixed = stored == STORED_EACH || stored == STORED_ROWS;
    const char *weight = suffixed ? build_param(b, name, "weight") : build_name(b, name);
    json_t *op = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:s}", "op", "expert_linear", "in",
                           in, "choice", "choice", "out", out, "experts", "e", "from",
                           build_words(from), "to", build_words(to), "weight", weight);
    if (joined || (stored == STORED_FLAT && down))
        json_object_set_new(op, "transposed", json_true());
    if (stored == STORED_FLAT)
        json_object_set_new(op, "flat", json_true());
    if (stored == STORED_PAIRS && b->f->mlp_bias)
        json_object_set_new(op, "bias",
                            json_string(arena_printf(b->arena, "%s_bias", build_name(b, name))));
    build_put(b, op);
}

/* Reads `in` with `choice` and `share`, gives [.., h]. */
static const char *experts(Builder *b, const char *in)
{
    const Features *f = b->f;
    const NameSet *names = f->names;
    const char *gate = "expert_gate", *up = "expert_up";
    if (names->expert_gate_up) {
        bool turns = f->family->stored == STORED_PAIRS;
        expert_linear(b, in, "expert_gate_up", names->expert_gate_up, "h", turns ? "i u" : "u i",
                      false);
        build_split(b, "expert_gate_up", "u", "expert_gate expert_up", NULL);
    } else {
        expert_linear(b, in, gate, names->expert_gate, "h", "i", false);
        expert_linear(b, in, up, names->expert_up, "h", "i", false);
    }
    /* A token that is scaled by s before its expert: s down(act(s gate) up). */
    if (f->family->share_first)
        gate = build_binary(b, "mul", gate, "share", "expert_gate_share");
    const char *wide = gated(b, gate, up, "expert_");
    expert_linear(b, wide, "expert_down", names->expert_down, "i", "h", true);
    return "expert_down";
}

/* Every token's own expert; its weight, where it has one, is a sigmoid. */
static const char *shared(Builder *b, const char *in)
{
    const NameSet *names = b->f->names;
    NameSet inner = {
        .gate = names->shared_gate, .up = names->shared_up, .down = names->shared_down};
    if (!names->shared_share) {
        plain_mlp(b, in, "shared_", &inner, "j", "h", "shared");
        return "shared";
    }
    plain_mlp(b, in, "shared_", &inner, "j", "one h", "shared_down");
    build_linear(b, in, "shared_gate_raw", names->shared_share, NULL, NULL, "one", false);
    build_put(b, json_pack("{s:s, s:s, s:s, s:s}", "op", "act", "kind", "sigmoid", "in",
                           "shared_gate_raw", "out", "shared_share"));
    return build_binary(b, "combine", "shared_down", "shared_share", "shared");
}

static const char *routed(Builder *b, const char *in)
{
    router(b, in);
    const char *all = experts(b, in);
    build_binary(b, "combine", all, "share", "routed");
    if (b->f->experts.shared_ffn == 0)
        return "routed";
    return build_binary(b, "add", "routed", shared(b, in), "m");
}

const char *build_mlp(Builder *b, const char *in, const Layer *layer)
{
    if (layer->experts)
        return routed(b, in);
    plain_mlp(b, in, "", b->f->names, "f", "h", "m");
    return "m";
}
