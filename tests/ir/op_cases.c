/* op_cases.c - every op on small operands. */
#include "tests/ir/op_cases.h"

#include <math.h>
#include <string.h>

#include "ir/base/rng.h"
#include "ir/sig.h"

#define PLAIN(op, sig)                                                                             \
    {                                                                                              \
        op, sig, {.none = {0}}, 0, 0, false                                                        \
    }
#define ROPE(...)                                                                                  \
    {                                                                                              \
        .rope = {.theta = 50, __VA_ARGS__ }                                                        \
    }
#define RAMP .factor = 4, .low = 1, .high = 4, .original = 24
#define ATTENTION(...)                                                                             \
    {                                                                                              \
        .attention = {.scale = 0.6, __VA_ARGS__ }                                                  \
    }
#define HEADS "bsgrd,btgd,btgw"
#define ROWS "->bsgrw,bsgr"

const OpCase op_cases[] = {
    PLAIN(OP_EINSUM, "bsh,grdh->bsgrd"),
    PLAIN(OP_EINSUM, "bsh,hgrd->bsgrd"),
    PLAIN(OP_EINSUM, "bsgrd,hgrd->bsh"),
    PLAIN(OP_EINSUM, "bsh,bsf->bhf"),
    PLAIN(OP_EINSUM, "bsh,bsh->bs"),
    PLAIN(OP_EINSUM, "bs,h->bsh"),
    PLAIN(OP_EINSUM, "bskh,bsk->bsh"),
    PLAIN(OP_EINSUM, "bsgrd,bsgr->bsgrd"),
    PLAIN(OP_EINSUM, "bsh,->bsh"),
    PLAIN(OP_ADD, "bsh,bsh->bsh"),
    PLAIN(OP_BIAS, "bsh,h->bsh"),
    PLAIN(OP_BIAS, "bsh,sh->bsh"),
    PLAIN(OP_BIAS, "gr,gr->gr"),
    PLAIN(OP_MUL, "bsh,bsh->bsh"),
    {OP_SCALE, "bsh->bsh", {.scale = {.factor = -0.7}}, 0, 0, false},
    {OP_ACT, "bsh->bsh", {.act = {.kind = ACT_SILU}}, 0, 0, false},
    {OP_ACT, "bsh->bsh", {.act = {.kind = ACT_GELU_TANH}}, 0, 0, false},
    {OP_ACT, "bsh->bsh", {.act = {.kind = ACT_GELU_ERF}}, 0, 0, false},
    {OP_ACT, "bsh->bsh", {.act = {.kind = ACT_RELU}}, 0, 0, false},
    {OP_ACT, "bsh->bsh", {.act = {.kind = ACT_RELU2}}, 0, 0, false},
    {OP_ACT, "bsh->bsh", {.act = {.kind = ACT_SIGMOID}}, 0, 0, false},
    {OP_ACT, "bs->bs", {.act = {.kind = ACT_LOG}}, 0, 0, true},
    {OP_CURVE, "bsh->bsh", {.curve = {.kind = CURVE_SWISH, .a = 1.702}}, 0, 0, false},
    {OP_CURVE, "bsh->bsh", {.curve = {.kind = CURVE_SOFTCAP, .a = 0.8}}, 0, 0, false},
    {OP_CURVE, "bsh->bsh", {.curve = {.kind = CURVE_CLAMP, .a = -0.4, .b = 0.9}}, 0, 0, false},
    {OP_CURVE, "bsh->bsh", {.curve = {.kind = CURVE_SHIFT, .a = 1}}, 0, 0, false},
    {OP_CURVE, "bs->bs", {.curve = {.kind = CURVE_RECIP, .a = 0.3}}, 0, 0, true},
    {OP_CURVE, "bs->bs", {.curve = {.kind = CURVE_RSQRT, .a = 1.5, .b = 0.2}}, 0, 0, true},
    {OP_NORM, "bsgrd,d->bsgrd", {.norm = {.kind = NORM_RMS, .eps = 0.1}}, 0, 0, false},
    {OP_NORM, "bsh,h->bsh", {.norm = {.kind = NORM_LAYER, .eps = 0.1}}, 0, 0, false},
    {OP_NORM, "bsh,h->bsh", {.norm = {.kind = NORM_RMS, .eps = 0.1, .shift = 1}}, 0, 0, false},
    {OP_NORM, "bsh,h->bsh", {.norm = {.kind = NORM_LAYER, .eps = 0.1, .shift = 1}}, 0, 0, false},
    {OP_ROPE, "bsgrd->bsgrd", ROPE(.rotary = 6), 0, 0, false},
    {OP_ROPE, "bsd->bsd", ROPE(.rotary = 4), 0, 0, false},
    {OP_ROPE, "bsd,bs->bsd", ROPE(.rotary = 6), 0, 0, false},
    {OP_ROPE, "bsd->bsd", ROPE(.rotary = 6, .interleaved = 1), 0, 0, false},
    {OP_ROPE, "bsgd,bs->bsgd", ROPE(.rotary = 4, .interleaved = 1, .inverse = 1), 0, 0, false},
    {OP_ROPE, "bsd->bsd", ROPE(.rotary = 6, .scaling = ROPE_LINEAR, .factor = 3), 0, 0, false},
    {OP_ROPE, "bsd->bsd", ROPE(.rotary = 6, .scaling = ROPE_LLAMA3, RAMP), 0, 0, false},
    {OP_ROPE, "bsd->bsd", ROPE(.rotary = 6, .scaling = ROPE_YARN, RAMP, .gain = 1.3), 0, 0, false},
    {OP_ROPE, "bsd,bs->bsd",
     ROPE(.rotary = 6, .scaling = ROPE_YARN, RAMP, .exact = 1, .interleaved = 1), 0, 0, false},
    {OP_ROPE, "bsd->bsd",
     ROPE(.rotary = 6, .scaling = ROPE_LONG, .factor = 1, .gain = 1.2, .factors = "1.05,1.3,2"), 0,
     0, false},
    {OP_TEMPER, "bsgd->bsgd", {.temper = {.scale = 0.3, .length = 2}}, 0, 0, false},
    {OP_TEMPER, "bsd->bsd", {.temper = {.scale = 0.1, .length = 2, .ahead = 1}}, 0, 0, false},
    {OP_ATTENTION, "bsgrd,btgd,btgd->bsgrd,bsgr", ATTENTION(.causal = 0), 0, 0, false},
    {OP_ATTENTION, "bsgrd,btd,btd->bsgrd,bsgr", ATTENTION(.causal = 1), 0, 2, false},
    {OP_ATTENTION, "bsd,btd,btw->bsw,bs", ATTENTION(.causal = 1, .window = 2), 0, 0, false},
    {OP_ATTENTION, HEADS ROWS, ATTENTION(.causal = 1), 0, 2, false},
    {OP_ATTENTION, HEADS ROWS, ATTENTION(.causal = 1, .softcap = 0.7), 0, 0, false},
    {OP_ATTENTION, HEADS ROWS, ATTENTION(.causal = 1, .chunk = 2), 0, 0, false},
    {OP_ATTENTION, HEADS ",gr" ROWS, ATTENTION(.causal = 1), 8, 0, false},
    {OP_ATTENTION, HEADS ",bs" ROWS, ATTENTION(.causal = 1), 0, 0, false},
    {OP_ATTENTION, HEADS ",bs" ROWS, ATTENTION(.causal = 0, .softcap = 2), 0, 0, false},
    {OP_ATTENTION, HEADS ",gr,bs" ROWS,
     ATTENTION(.causal = 1, .softcap = 0.7, .window = 3, .chunk = 4), 8, 0, false},
    {OP_ATTENTION, HEADS ",bsgr" ROWS, ATTENTION(.causal = 1, .drop = 0.3), 0, 2, false},
    {OP_ATTENTION, HEADS ",gr,bs,bsgr" ROWS,
     ATTENTION(.causal = 1, .softcap = 0.7, .window = 3, .drop = 0.4), 8, 0, false},
    PLAIN(OP_SPLIT, "bsrd->bsd,bsd,bsd"),
    PLAIN(OP_SPLIT, "skd->sd,sd"),
    PLAIN(OP_SPLIT, "sch->sgrh,sfh,sh"),
    PLAIN(OP_SPLIT, "hc->h,hf,hgr"),
    PLAIN(OP_SPLIT, "bsu->bsf,bsh"),
    {OP_SPLIT, "sch->sgrh,sfh,sh", {.none = {0}}, 0, 2, false},
    PLAIN(OP_STACK, "bsd,bsd,bsd->bsrd"),
    PLAIN(OP_STACK, "gd,gd->kgd"),
    PLAIN(OP_STACK, "sgrh,sfh,sh->sch"),
    PLAIN(OP_STACK, "bsgf,bsgh->bsgu"),
    PLAIN(OP_REDUCE, "bsgrd->grd"),
    PLAIN(OP_REDUCE, "bskh->bsh"),
    PLAIN(OP_REDUCE, "bsh->"),
    PLAIN(OP_BROADCAST, "sd->bsgd"),
    PLAIN(OP_BROADCAST, "->bs"),
    PLAIN(OP_LOOKUP, "bs,vh->bsh"),
    PLAIN(OP_LOOKUP, "s,fh->sh"),
    PLAIN(OP_LOOKUP, "bsk,eh->bskh"),
    PLAIN(OP_ONES, "->gh"),
    PLAIN(OP_ZEROS, "->gh"),
    PLAIN(OP_SLOPES, "->gr"),
    {OP_DROPOUT, "->bsgh", {.dropout = {.rate = 0.3}}, 0, 0, false},
    {OP_DROPOUT, "->sb", {.dropout = {.rate = 0.5, .site = 3}}, 0, 0, false},
    {OP_DRAW, "->bsgr", {.draw = {.site = 2}}, 0, 0, false},
    {OP_IOTA, "->s", {.iota = {.offset = 2}}, 0, 0, false},
    {OP_PLACES, "bs->bs", {.iota = {.offset = 2}}, 0, 0, false},
    PLAIN(OP_SOFTMAX, "bse->bse"),
    PLAIN(OP_SOFTMAX, "bsk->bsk"),
    PLAIN(OP_TOPK, "bse->bsk"),
    {OP_TOPK, "bse->bsk", {.topk = {.groups = 2, .kept = 1, .by = GROUP_TOP2}}, 0, 0, false},
    {OP_TOPK, "be->bk", {.topk = {.groups = 2, .kept = 1, .by = GROUP_MAX}}, 0, 0, false},
    {OP_CAPACITY, "bsk->bsk", {.capacity = {.experts = 4, .bound = 1}}, 0, 0, false},
    {OP_DEAL,
     "bsk->bsk",
     {.deal = {.experts = 4, .ranks = 2, .room = 100, .rounds = 2, .round = 1}},
     0,
     0,
     false},
    {OP_CHANCE, "bsk,bsk,bs->bsk", {.none = {0}}, 0, 0, true},
    PLAIN(OP_TALLY, "bsk->e"),
    PLAIN(OP_TALLY, "bsk->be"),
    PLAIN(OP_TAKE, "bsk,bse->bsk"),
    PLAIN(OP_EXPERT, "bsk,bsh,efh->bskf"),
    PLAIN(OP_EXPERT, "bsk,bsh,ehf->bskf"),
    PLAIN(OP_EXPERT, "bsk,bskf,ehf->bskh"),
    PLAIN(OP_EXPERT, "bsk,bskf,efh->bskh"),
    PLAIN(OP_EXPERT, "bsk,bsh,egrh->bskgr"),
    PLAIN(OP_EXPERT, "sk,skgr,egrh->skh"),
    PLAIN(OP_EXPERT, "bsk,bs,egr->bskgr"),
    PLAIN(OP_VMAX, "bsv->bs"),
    {OP_SUMEXP, "bsv,bs->bs", {.none = {0}}, 2, 0, false},
    PLAIN(OP_PICK, "bs,bsv->bs"),
    PLAIN(OP_VSUM, "bsv->bs"),
    {OP_NLL, "bs,bs,bs->bs", {.none = {0}}, 2, 0, true},
    {OP_SIGN, "e,e->e", {.sign = {.rate = 0.001}}, 0, 0, false},
    {OP_SIGN, "e,e->e", {.sign = {.rate = 0.001, .linear = 1}}, 0, 0, false},
    PLAIN(OP_SUMSQ, "gh->"),
    {OP_CLIP, "->", {.clip = {.max_norm = 0.3}}, 0, 0, true},
    {OP_MOMENTUM, "gh,gh,->gh", {.momentum = {.momentum = 0.9}}, 0, 0, false},
    {OP_DESCEND, "gh,gh,,->gh", {.descend = {.ratio = 0.2}}, 0, 0, false},
    {OP_ADAMW,
     "gh,gh,gh,gh,,,->gh,gh,gh",
     {.adamw = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1}},
     0,
     0,
     true},
};
const int op_case_count = (int)(sizeof op_cases / sizeof *op_cases);

bool op_has_gradient(OpId op)
{
    return strcmp(op_info[op].grad, "none") != 0 && strcmp(op_info[op].grad, "constant") != 0;
}

/* Extents differ where a mistaken one would go unseen otherwise; v has padding. */
static Net *case_net(Arena *arena)
{
    static const char *const names[] = {"h", "g", "r", "d", "w", "f", "v", "e", "k", "c", "u"};
    static const int64_t extents[] = {4, 2, 3, 6, 5, 5, 7, 4, 2, 12, 9};
    Net *net = net_new(arena, "cases");
    net_add_dim(net, "b", DIM_BATCH, 2);
    net_add_dim(net, "s", DIM_SEQUENCE, 5);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        net_add_dim(net, names[i], DIM_OTHER, extents[i]);
    net->dims.at[net_dim(net, "v")].used = 5;
    return net;
}

static int64_t rows_addressed(const OpBench *b)
{
    const Node *node = &b->graph->nodes.at[b->node];
    int64_t rows = 4;
    for (int l = 0; l < node->sig.letters; l++) {
        if (node->sig.base >> l & 1)
            rows = b->net->dims.at[node->sig.dim[l]].used;
    }
    return rows;
}

static bool begins_documents(OpId op)
{
    return op == OP_ROPE || op == OP_ATTENTION || op == OP_PLACES;
}

static void fill(const OpBench *b, const OpCase *of, ValueId id)
{
    const Value *x = &b->graph->values.at[id];
    int64_t n = value_elements(b->net, x), rows = rows_addressed(b);
    int64_t sequence = b->net->dims.at[b->net->sequence].extent;
    b->value[id] = ARENA_ARRAY(b->arena, double, n);
    for (int64_t i = 0; i < n; i++) {
        uint64_t random = rng_u64(7, (uint64_t)id, (uint64_t)i);
        double *to = &b->value[id][i];
        if (x->number == NUM_FLOAT) {
            *to = rng_normal(3, (uint64_t)id, (uint64_t)i);
            *to = of->positive ? exp(*to) : *to;
        } else if ((x->axes > 2 && begins_documents(of->op)) ||
                   (of->op == OP_CHANCE && id == b->graph->nodes.at[b->node].in[2])) {
            *to = (double)(random >> 33); /* words that rows draw by */
        } else if (begins_documents(of->op)) {
            int64_t second = 2 + i / sequence;
            *to = i % sequence < second ? 0 : (double)second;
        } else {
            *to = (double)(random % (uint64_t)(rows + 1)) - 1;
        }
    }
}

/* The sum over all results of result times weights of its own. */
static ValueId weighted_sum(const OpBench *b, const OpCase *of, const SigText *text)
{
    ValueId sum = NONE, result[MAX_OUT];
    memcpy(result, b->graph->nodes.at[b->node].out, sizeof result);
    for (int o = 0; o < text->outs; o++) {
        if (of->unread >> o & 1)
            continue;
        Value value = b->graph->values.at[result[o]];
        ValueId in[2] = {result[o],
                         graph_value(b->graph, VALUE_INPUT, arena_printf(b->arena, "weight%d", o),
                                     value.axes, value.dim)};
        const char *letters = arena_strndup(b->arena, text->letter[MAX_IN + o], (size_t)value.axes);
        NodeId dot = graph_node(b->graph, OP_EINSUM, arena_printf(b->arena, "dot%d", o),
                                arena_printf(b->arena, "%s,%s->", letters, letters), NULL, in, 2);
        ValueId both[2] = {sum, graph_out(b->graph, dot)};
        sum = sum == NONE ? both[1]
                          : graph_out(b->graph, graph_node(b->graph, OP_ADD,
                                                           arena_printf(b->arena, "sum%d", o),
                                                           ",->", NULL, both, 2));
    }
    return sum;
}

OpBench op_bench(const OpCase *of)
{
    OpBench b = {.arena = arena_new("case")};
    b.net = case_net(b.arena);
    b.graph = net_add_class(b.net, "case");
    int ins = of->sig[0] == '-' ? 0 : 1;
    for (const char *c = of->sig; *c != '-'; c++)
        ins += *c == ',';
    if (of->op == OP_BROADCAST || of->op == OP_CLIP)
        ins = 1;
    SigText text;
    ValueId in[MAX_IN];
    const char *why = sig_parse(of->sig, ins, &text);
    if (why)
        fail_msg("%s of %s: %s", of->sig, op_info[of->op].text, why);
    for (int i = 0; i < ins; i++) {
        DimId dim[MAX_AXES];
        for (int a = 0; a < text.axes[i]; a++)
            dim[a] = sig_dim(b.net, text.letter[i][a]);
        bool index = op_reads_index(of->op, &text, i);
        in[i] = graph_value(b.graph, index || of->held >> i & 1 ? VALUE_INPUT : VALUE_PARAM,
                            arena_printf(b.arena, "in%d", i), text.axes[i], dim);
        if (index)
            b.graph->values.at[in[i]].number = NUM_INDEX;
    }
    b.node = graph_node(b.graph, of->op, "y", of->sig, &of->attrs, in, ins);
    if (op_has_gradient(of->op)) {
        b.graph->chain_out = weighted_sum(&b, of, &text);
        graph_differentiate(b.graph);
    }
    b.value = ARENA_ARRAY(b.arena, double *, b.graph->values.n);
    for (int v = 0; v < b.graph->values.n; v++) {
        if (b.graph->values.at[v].kind != VALUE_NODE)
            fill(&b, of, v);
    }
    return b;
}

const char *op_case_text(const OpBench *bench)
{
    const Node *node = &bench->graph->nodes.at[bench->node];
    Str text = str_new(bench->arena);
    str_putf(&text, "%s ", op_info[node->op].text);
    graph_put_sig(&text, bench->graph, node);
    op_put_attrs(&text, op_info[node->op].attrs, &node->attrs);
    return text.at;
}
