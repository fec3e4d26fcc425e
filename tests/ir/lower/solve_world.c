/* solve_world.c - setups for tests of the block solver. */
#include "tests/ir/lower/solve_world.h"

#include <string.h>

/* ---- the plain model ---- */

static int64_t local_extent(const PlainModel *plain, const Graph *graph, const Node *node,
                            int letter, const Placement *in, const Placement *out)
{
    for (int k = 0; k < node->ins + node->outs; k++) {
        bool read = k < node->ins;
        const Value *value = &graph->values.at[read ? node->in[k] : node->out[k - node->ins]];
        const int8_t *letters = read ? node->sig.in[k] : node->sig.out[k - node->ins];
        const Placement *place = read ? &in[k] : &out[k - node->ins];
        for (int i = 0; i < value->axes; i++)
            if (letters[i] == letter)
                return place_local(plain->mesh, plain->net, value, place, i);
    }
    return 1;
}

static int64_t plain_node_ns(const void *context, const Graph *graph, const Node *node,
                             const Placement *in, const Placement *out)
{
    const PlainModel *plain = context;
    int64_t extent[MAX_LETTERS], bytes = 0;
    for (int l = 0; l < node->sig.letters; l++)
        extent[l] = local_extent(plain, graph, node, l, in, out);
    for (int k = 0; k < node->ins; k++)
        bytes += plain->element_bytes *
                 place_elements(plain->mesh, plain->net, &graph->values.at[node->in[k]], &in[k]);
    for (int k = 0; k < node->outs; k++)
        bytes += plain->element_bytes *
                 place_elements(plain->mesh, plain->net, &graph->values.at[node->out[k]], &out[k]);
    int64_t compute = 0, memory = 0;
    if (plain->flops_per_us > 0)
        compute = node_flops_local(plain->net, node, extent) * 1000 / plain->flops_per_us;
    if (plain->bytes_per_us > 0)
        memory = bytes * 1000 / plain->bytes_per_us;
    return compute > memory ? compute : memory;
}

static int64_t plain_state(const void *context, const Graph *graph, int param,
                           const Placement *home)
{
    const PlainModel *plain = context;
    const Value *value = &graph->values.at[graph->params.at[param].value];
    return plain->state_bytes * place_elements(plain->mesh, plain->net, value, home);
}

static int64_t plain_move(const void *context, const Mesh *mesh, const Move *move, int64_t bytes)
{
    const PlainModel *plain = context;
    (void)mesh;
    (void)move;
    if (plain->link_bytes_per_us == 0)
        return plain->link_ns + bytes;
    return plain->link_ns + bytes * 1000 / plain->link_bytes_per_us;
}

void plain_model_bind(PlainModel *plain)
{
    plain->model = (SolveModel){
        .context = plain,
        .node_ns = plain_node_ns,
        .state_bytes = plain_state,
        .price = {.cost = plain_move, .context = plain, .element_bytes = plain->element_bytes}};
}

Mesh mesh_of(int atoms, const int *extent, const Role *role)
{
    Mesh mesh = {.n = atoms};
    for (int a = 0; a < atoms; a++)
        mesh.atom[a] = (Atom){extent[a], role[a], 0};
    return mesh;
}

/* ---- a Llama-like block ---- */

typedef struct Builder {
    Graph *graph;
    bool renamed;
    int named;
} Builder;

/* The given name, or one that says nothing and sorts otherwise. */
static const char *name_of(Builder *b, const char *name)
{
    int n = b->named++;
    return b->renamed ? arena_printf(b->graph->arena, "z%d", (n * 37 + 11) % 101) : name;
}

static ValueId param_of(Builder *b, const char *name, const char *dims)
{
    DimId dim[MAX_AXES];
    char text[2] = {0};
    int axes = (int)strlen(dims);
    for (int i = 0; i < axes; i++) {
        text[0] = dims[i];
        dim[i] = net_dim(b->graph->net, text);
    }
    return graph_value(b->graph, VALUE_PARAM, name_of(b, name), axes, dim);
}

static ValueId op_of(Builder *b, OpId op, const char *name, const char *sig, ValueId x, ValueId y)
{
    Attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    if (op == OP_NORM)
        attrs.norm.eps = 1e-5;
    if (op == OP_ROPE) {
        attrs.rope.theta = 100;
        for (int d = 0; d < b->graph->net->dims.n; d++)
            if (strcmp(b->graph->net->dims.at[d].name, "d") == 0)
                attrs.rope.rotary = b->graph->net->dims.at[d].extent;
    }
    return graph_out(b->graph, graph_node(b->graph, op, name_of(b, name), sig, &attrs,
                                          (ValueId[]){x, y}, y == NONE ? 1 : 2));
}

static ValueId linear_of(Builder *b, const char *name, const char *sig, ValueId x, const char *dims,
                         bool bias, const char *bias_dims)
{
    ValueId w = param_of(b, arena_printf(b->graph->arena, "w.%s", name), dims);
    ValueId y = op_of(b, OP_EINSUM, name, sig, x, w);
    if (!bias)
        return y;
    const char *out = strchr(sig, '>') + 1;
    ValueId add = param_of(b, arena_printf(b->graph->arena, "b.%s", name), bias_dims);
    return op_of(b, OP_BIAS, arena_printf(b->graph->arena, "%s.bias", name),
                 arena_printf(b->graph->arena, "%s,%s->%s", out, bias_dims, out), y, add);
}

static ValueId attention_of(Builder *b, ValueId x, bool bias)
{
    ValueId q = linear_of(b, "q", "bsh,grdh->bsgrd", x, "grdh", bias, "grd");
    ValueId k = linear_of(b, "k", "bsh,gdh->bsgd", x, "gdh", bias, "gd");
    ValueId v = linear_of(b, "v", "bsh,gdh->bsgd", x, "gdh", bias, "gd");
    q = op_of(b, OP_ROPE, "q.rope", "bsgrd->bsgrd", q, NONE);
    k = op_of(b, OP_ROPE, "k.rope", "bsgd->bsgd", k, NONE);
    Attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.attention.scale = 0.5;
    attrs.attention.causal = 1;
    ValueId a = graph_out(b->graph, graph_node(b->graph, OP_ATTENTION, name_of(b, "attention"),
                                               "bsgrd,btgd,btgd->bsgrd,bsgr", &attrs,
                                               (ValueId[]){q, k, v}, 3));
    return linear_of(b, "o", "bsgrd,hgrd->bsh", a, "hgrd", bias, "h");
}

static ValueId mlp_of(Builder *b, ValueId x, bool bias)
{
    ValueId up = linear_of(b, "up", "bsh,fh->bsf", x, "fh", false, NULL);
    ValueId gate = linear_of(b, "gate", "bsh,fh->bsf", x, "fh", false, NULL);
    gate = op_of(b, OP_ACT, "act", "bsf->bsf", gate, NONE);
    ValueId m = op_of(b, OP_MUL, "mul", "bsf,bsf->bsf", gate, up);
    return linear_of(b, "down", "bsf,hf->bsh", m, "hf", bias, "h");
}

Net *block_net(Arena *arena, const BlockShape *shape)
{
    Net *net = net_new(arena, "block");
    const int64_t extent[] = {shape->b, shape->s, shape->h, shape->g, shape->r, shape->d, shape->f};
    static const char *const name[] = {"b", "s", "h", "g", "r", "d", "f"};
    for (int i = 0; i < 7; i++)
        net_add_dim(net, name[i],
                    i == 0   ? DIM_BATCH
                    : i == 1 ? DIM_SEQUENCE
                             : DIM_OTHER,
                    extent[i]);
    Builder builder = {.graph = net_add_class(net, "layer"), .renamed = shape->renamed},
            *b = &builder;
    DimId bsh[] = {0, 1, 2};
    ValueId x = graph_value(b->graph, VALUE_CHAIN_IN, "x", 3, bsh);
    ValueId n1 = op_of(b, OP_NORM, "norm1", "bsh,h->bsh", x, param_of(b, "g.norm1", "h"));
    ValueId a = attention_of(b, n1, shape->bias), out;
    if (shape->parallel) {
        out = op_of(b, OP_ADD, "add1", "bsh,bsh->bsh", a, mlp_of(b, n1, shape->bias));
        out = op_of(b, OP_ADD, "add2", "bsh,bsh->bsh", x, out);
    } else {
        ValueId x1 = op_of(b, OP_ADD, "add1", "bsh,bsh->bsh", x, a);
        ValueId n2 = op_of(b, OP_NORM, "norm2", "bsh,h->bsh", x1, param_of(b, "g.norm2", "h"));
        out = op_of(b, OP_ADD, "add2", "bsh,bsh->bsh", x1, mlp_of(b, n2, shape->bias));
    }
    b->graph->chain_out = out;
    graph_differentiate(b->graph);
    vec_push(arena, &net->chain) = (Link){0, 0};
    net_collect_params(net);
    return net;
}

NodeId block_node(const Graph *graph, const char *name)
{
    for (int n = 0; n < graph->nodes.n; n++)
        if (strcmp(graph->nodes.at[n].name, name) == 0)
            return n;
    BUG("no node %s", name);
}

/* ---- the ends of a chain ---- */

static void loss_of(Builder *b, ValueId x, ValueId labels, ValueId weight)
{
    ValueId max = op_of(b, OP_VMAX, "max", "bsv->bs", x, NONE);
    ValueId sum = op_of(b, OP_SUMEXP, "sumexp", "bsv,bs->bs", x, max);
    ValueId pick = op_of(b, OP_PICK, "pick", "bs,bsv->bs", labels, x);
    NodeId nll =
        graph_node(b->graph, OP_NLL, "nll", "bs,bs,bs->bs", NULL, (ValueId[]){sum, max, pick}, 3);
    b->graph->loss = op_of(b, OP_EINSUM, "loss", "bs,bs->", graph_out(b->graph, nll), weight);
}

Net *ends_net(Arena *arena, int64_t b, int64_t s, int64_t h, int64_t v)
{
    Net *net = net_new(arena, "ends");
    net_add_dim(net, "b", DIM_BATCH, b);
    net_add_dim(net, "s", DIM_SEQUENCE, s);
    net_add_dim(net, "h", DIM_OTHER, h);
    net_add_dim(net, "v", DIM_OTHER, v);
    DimId bsh[] = {0, 1, 2};
    Builder embed = {.graph = net_add_class(net, "embed")};
    ValueId ids = graph_value(embed.graph, VALUE_DATA, "ids", 2, bsh);
    embed.graph->chain_out =
        op_of(&embed, OP_LOOKUP, "lookup", "bs,vh->bsh", ids, param_of(&embed, "table", "vh"));
    graph_differentiate(embed.graph);

    Builder head = {.graph = net_add_class(net, "head")};
    ValueId x = graph_value(head.graph, VALUE_CHAIN_IN, "x", 3, bsh);
    ValueId labels = graph_value(head.graph, VALUE_DATA, "labels", 2, bsh);
    ValueId weight = graph_value(head.graph, VALUE_DATA, "weight", 2, bsh);
    ValueId n = op_of(&head, OP_NORM, "norm", "bsh,h->bsh", x, param_of(&head, "gain", "h"));
    ValueId logits =
        op_of(&head, OP_EINSUM, "logits", "bsh,vh->bsv", n, param_of(&head, "head", "vh"));
    loss_of(&head, logits, labels, weight);
    graph_differentiate(head.graph);
    return net;
}

/* ---- random graphs ---- */

static const char *letters_of(Graph *graph, ValueId id)
{
    char text[MAX_AXES + 1] = {0};
    for (int i = 0; i < graph->values.at[id].axes; i++)
        text[i] = graph->net->dims.at[graph->values.at[id].dim[i]].letter;
    return arena_strdup(graph->arena, text);
}

/* Another value of the same axes, or NONE. */
static ValueId twin_of(Graph *graph, Rng *rng, ValueId x, const ValueId *made, int n)
{
    int from = (int)rng_draw(rng, (uint64_t)n);
    for (int i = 0; i < n; i++) {
        ValueId y = made[(from + i) % n];
        if (y != x && strcmp(letters_of(graph, x), letters_of(graph, y)) == 0)
            return y;
    }
    return NONE;
}

static ValueId random_einsum(Builder *b, Rng *rng, ValueId x, const char *name)
{
    const char *l = letters_of(b->graph, x);
    int n = (int)strlen(l);
    char next = "cde"[rng_draw(rng, 3)];
    if (next == l[n - 1])
        next = next == 'c' ? 'd' : 'c';
    char dims[3] = {next, l[n - 1], 0};
    ValueId w = param_of(b, arena_printf(b->graph->arena, "w.%s", name), dims);
    const char *sig = arena_printf(b->graph->arena, "%s,%s->%.*s%c", l, dims, n - 1, l, next);
    return op_of(b, OP_EINSUM, name, sig, x, w);
}

Net *random_net(Arena *arena, Rng *rng, int ops, bool backward)
{
    Net *net = net_new(arena, "random");
    static const char *const dim[] = {"a", "b", "c", "d", "e"};
    for (int i = 0; i < 5; i++)
        net_add_dim(net, dim[i], DIM_OTHER, 2 * (1 + (int64_t)rng_draw(rng, 3)));
    Builder builder = {.graph = net_add_class(net, "random")}, *b = &builder;
    ValueId made[16];
    int n = 0;
    made[n++] = graph_value(b->graph, VALUE_CHAIN_IN, "x", 3, (DimId[]){0, 1, 2});
    for (int i = 0; i < ops; i++) {
        /* mostly the latest value, so that little is left unread */
        ValueId x = made[rng_draw(rng, 3) > 0 ? n - 1 : (int)rng_draw(rng, (uint64_t)n)];
        const char *l = letters_of(b->graph, x), *name = arena_printf(arena, "n%d", i);
        const char *two = arena_printf(arena, "%s,%s->%s", l, l, l);
        ValueId y = twin_of(b->graph, rng, x, made, n);
        switch (rng_draw(rng, 5)) {
        case 0:
            made[n++] = op_of(b, OP_ACT, name, arena_printf(arena, "%s->%s", l, l), x, NONE);
            break;
        case 1:
            made[n++] = op_of(b, y == NONE ? OP_SCALE : OP_ADD, name,
                              y == NONE ? arena_printf(arena, "%s->%s", l, l) : two, x, y);
            break;
        case 2:
            made[n++] = op_of(b, y == NONE ? OP_ACT : OP_MUL, name,
                              y == NONE ? arena_printf(arena, "%s->%s", l, l) : two, x, y);
            break;
        default:
            made[n++] = random_einsum(b, rng, x, name);
        }
    }
    /* back to the axes of the input, so that the block can be a link of a chain */
    const char *l = letters_of(b->graph, made[n - 1]);
    if (strcmp(l, "abc") != 0) {
        ValueId w = param_of(b, "w.last", arena_printf(arena, "c%c", l[2]));
        made[n] = op_of(b, OP_EINSUM, "last", arena_printf(arena, "%s,c%c->abc", l, l[2]),
                        made[n - 1], w);
        n++;
    }
    b->graph->chain_out = made[n - 1];
    if (backward)
        graph_differentiate(b->graph);
    /* or the later half plays backward: values cross over all the same */
    for (int i = b->graph->nodes.n / 2 + 1; i < b->graph->nodes.n && !backward; i++)
        b->graph->nodes.at[i].seg = SEG_BACKWARD;
    return net;
}
