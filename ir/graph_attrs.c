/* graph_attrs.c - the ranges of the attributes of nodes. */
#include <math.h>

#include "ir/sig.h"

static int count_numbers(const char *list)
{
    int n = list && *list ? 1 : 0;
    for (; n > 0 && *list; list++)
        n += *list == ',';
    return n;
}

/* Groups share the experts evenly, and those kept have enough of them. */
static bool topk_fine(const Graph *graph, const Node *node)
{
    const Attr_topk *a = &node->attrs.topk;
    const Value *in = &graph->values.at[node->in[0]], *out = &graph->values.at[node->out[0]];
    int64_t experts = graph->net->dims.at[in->dim[in->axes - 1]].extent;
    int64_t chosen = graph->net->dims.at[out->dim[out->axes - 1]].extent;
    int64_t groups = a->groups > 0 ? a->groups : 1, kept = a->groups > 0 ? a->kept : 1;
    return (int)a->by >= 0 && a->by < GROUP_SCORE_COUNT && a->groups >= 0 && kept >= 1 &&
           kept <= groups && experts % groups == 0 && chosen <= kept * (experts / groups);
}

bool node_attrs_fine(const Graph *graph, const Node *node)
{
    const Attrs *a = &node->attrs;
    bool fine = true;
    switch (op_info[node->op].attrs) {
    case ATTRS_none:
    case ATTRS_COUNT:
        break;
    case ATTRS_norm:
        fine = (int)a->norm.kind >= 0 && a->norm.kind < NORM_KIND_COUNT && a->norm.eps > 0 &&
               isfinite(a->norm.eps);
        break;
    case ATTRS_act:
        fine = (int)a->act.kind >= 0 && a->act.kind < ACT_KIND_COUNT;
        break;
    case ATTRS_curve:
        fine = (int)a->curve.kind >= 0 && a->curve.kind < CURVE_KIND_COUNT &&
               isfinite(a->curve.a) && isfinite(a->curve.b);
        if (a->curve.kind == CURVE_SOFTCAP)
            fine = fine && a->curve.a > 0;
        if (a->curve.kind == CURVE_CLAMP)
            fine = fine && a->curve.a < a->curve.b;
        break;
    case ATTRS_temper:
        fine = isfinite(a->temper.scale) && a->temper.length > 0 && a->temper.ahead >= 0;
        break;
    case ATTRS_iota:
        fine = a->iota.offset >= 0;
        break;
    case ATTRS_topk:
        fine = topk_fine(graph, node);
        break;
    case ATTRS_capacity:
        fine = a->capacity.experts >= 1 && a->capacity.bound >= 1;
        break;
    case ATTRS_deal:
        fine = a->deal.ranks >= 1 && a->deal.experts >= 1 && a->deal.room >= 0 &&
               a->deal.experts % a->deal.ranks == 0 && a->deal.round >= 0 &&
               a->deal.round < a->deal.rounds;
        break;
    case ATTRS_rope: {
        int last = graph->values.at[node->in[0]].axes - 1;
        int64_t width = letter_extent(graph->net, node, node->sig.in[0][last]);
        const Attr_rope *r = &a->rope;
        fine = r->theta > 0 && isfinite(r->theta) && r->rotary >= 2 && r->rotary <= width &&
               r->rotary % 2 == 0 && r->interleaved >= 0 && r->interleaved <= 1 &&
               r->inverse >= 0 && r->inverse <= 1 && (int)r->scaling >= 0 &&
               r->scaling < ROPE_SCALING_COUNT;
        if (fine && r->scaling != ROPE_PLAIN && r->scaling != ROPE_LONG)
            fine = r->factor > 0 && isfinite(r->factor);
        if (fine && (r->scaling == ROPE_LLAMA3 || r->scaling == ROPE_YARN))
            fine = r->low > 0 && r->high >= r->low && r->original >= 1;
        if (fine && r->scaling == ROPE_LONG)
            fine = count_numbers(r->factors) == r->rotary / 2;
        fine = fine && isfinite(r->gain) && r->gain >= 0;
        break;
    }
    case ATTRS_attention:
        fine = isfinite(a->attention.scale) && a->attention.scale > 0 && a->attention.causal >= 0 &&
               a->attention.causal <= 1 && a->attention.window >= 0 && a->attention.chunk >= 0 &&
               isfinite(a->attention.softcap) && a->attention.softcap >= 0 &&
               a->attention.drop >= 0 && a->attention.drop < 1 &&
               (a->attention.drop > 0) == (attention_words(graph, node) != NONE);
        break;
    case ATTRS_scale:
        fine = isfinite(a->scale.factor);
        break;
    case ATTRS_dropout:
        fine = a->dropout.rate > 0 && a->dropout.rate < 1 && a->dropout.site >= 0 &&
               a->dropout.site < DRAW_SITES;
        break;
    case ATTRS_draw:
        fine = a->draw.site >= 0 && a->draw.site < DRAW_SITES;
        break;
    case ATTRS_sign:
        fine = isfinite(a->sign.rate) && a->sign.linear >= 0 && a->sign.linear <= 1;
        break;
    case ATTRS_clip:
        fine = isfinite(a->clip.max_norm);
        break;
    case ATTRS_momentum:
        fine = a->momentum.momentum >= 0 && a->momentum.momentum < 1;
        break;
    case ATTRS_descend:
        fine = isfinite(a->descend.ratio) && a->descend.ratio > 0;
        break;
    case ATTRS_adamw:
        fine = a->adamw.beta1 >= 0 && a->adamw.beta1 < 1 && a->adamw.beta2 >= 0 &&
               a->adamw.beta2 < 1 && a->adamw.eps > 0 && a->adamw.decay >= 0;
        break;
    }
    return fine;
}
