/* model_rounds.c - experts in rounds: what runs between a choice and its combination runs once a
 * round, on the rows that are dealt out to it; the results add up, for a row has one round.
 *
 * So a rank needs room for the rows of a round, and no number of rows stops a job: further rounds
 * are more nodes like the first ones, with gradients like theirs. */
#include <string.h>

#include "ir/model_reader.h"

bool model_deals(const Reader *r)
{
    return r->routed && r->reading->rounds > 1;
}

ValueId model_deal(Reader *r, ValueId choice, int64_t experts, int round)
{
    Attrs attrs = {.deal = {.experts = experts,
                            .ranks = r->reading->sharing,
                            .room = r->reading->room_percent,
                            .rounds = r->reading->rounds,
                            .round = round}};
    const char *letters = model_letters(r, choice);
    return model_node(
        r, OP_DEAL,
        graph_fresh_name(r->graph, arena_printf(r->arena, "%s.round%d",
                                                r->graph->values.at[choice].name, round)),
        arena_printf(r->arena, "%s->%s", letters, letters), &attrs, &choice, 1);
}

/* A row of a choice, not a number of it: it has axes behind those of the choices. */
static bool is_row(const Graph *graph, ValueId id)
{
    const Value *value = &graph->values.at[id];
    int axis = value_routed_axis(graph->net, value);
    return value->kind == VALUE_NODE && value->number == NUM_FLOAT && axis != NONE &&
           axis + 1 < value->axes;
}

/* The nodes that make a row, back to its tokens, its choice and constants of choices. */
static void mark_rows(const Graph *graph, ValueId id, bool *ret)
{
    const Value *value = &graph->values.at[id];
    bool constant = value->kind == VALUE_NODE && graph->nodes.at[value->made].ins == 0;
    if ((!constant && !is_row(graph, id)) || ret[value->made])
        return;
    ret[value->made] = true;
    for (int k = 0; k < graph->nodes.at[value->made].ins; k++)
        mark_rows(graph, graph->nodes.at[value->made].in[k], ret);
}

/* Copies of the marked nodes that read `to` where these read `from`; the copy of `id`. */
static ValueId copy_rows(Reader *r, const bool *marked, int nodes, int round, ValueId from,
                         ValueId to, ValueId id)
{
    Graph *graph = r->graph;
    ValueId *copy = ARENA_ARRAY(r->arena, ValueId, graph->values.n);
    for (int v = 0; v < graph->values.n; v++)
        copy[v] = v == from ? to : v;
    for (int n = 0; n < nodes; n++) {
        Node node = graph->nodes.at[n];
        ValueId in[MAX_IN];
        Str sig = str_new(r->arena);
        if (!marked[n])
            continue;
        for (int k = 0; k < node.ins; k++)
            in[k] = copy[node.in[k]];
        graph_put_sig(&sig, graph, &node);
        NodeId made = graph_node(
            graph, node.op,
            graph_fresh_name(graph, arena_printf(r->arena, "%s.round%d", node.name, round)), sig.at,
            &node.attrs, in, node.ins);
        for (int k = 0; k < node.outs; k++)
            copy[node.out[k]] = graph->nodes.at[made].out[k];
    }
    return copy[id];
}

bool model_combine_rounds(Reader *r, Json op, const char *out, const ValueId in[2])
{
    Graph *graph = r->graph;
    int nodes = graph->nodes.n;
    bool *marked = ARENA_ARRAY(r->arena, bool, nodes + 1);
    ValueId first = graph_route(graph, in[0]), sum = NONE;
    Shape y = model_shape_of(r, in[0]), w = model_shape_of(r, in[1]), made = {.axes = y.axes - 1};
    const NodeId deals = first != NONE ? graph->values.at[first].made : NONE;
    if (deals == NONE || graph->nodes.at[deals].op != OP_DEAL) {
        json_fail(op, "what is combined was made by no experts");
        diag_help(r->diag, "combine what expert linears made with the weights of their router");
        return false;
    }
    const Attr_deal dealt = graph->nodes.at[deals].attrs.deal;
    ValueId choice = graph->nodes.at[deals].in[0];
    mark_rows(graph, in[0], marked);
    memcpy(made.dim, y.dim, (size_t)(w.axes - 1) * sizeof *y.dim);
    memcpy(made.dim + w.axes - 1, y.dim + w.axes, (size_t)(y.axes - w.axes) * sizeof *y.dim);
    const char *to = model_shape_letters(r, made.dim, made.axes);
    const char *sig =
        arena_printf(r->arena, "%s,%s->%s", model_letters(r, in[0]), model_letters(r, in[1]), to);
    for (int round = 0; round < r->reading->rounds; round++) {
        ValueId rows = in[0];
        if (round > 0) {
            ValueId own = model_deal(r, choice, dealt.experts, round);
            rows = copy_rows(r, marked, nodes, round, first, own, in[0]);
        }
        const char *name = graph_fresh_name(graph, arena_printf(r->arena, "%s.part%d", out, round));
        ValueId part = model_node(r, OP_EINSUM, name, sig, NULL, (ValueId[]){rows, in[1]}, 2);
        if (round == 0)
            sum = part;
        else if (round + 1 < r->reading->rounds)
            sum = model_node(
                r, OP_ADD, graph_fresh_name(graph, arena_printf(r->arena, "%s.sum%d", out, round)),
                arena_printf(r->arena, "%s,%s->%s", to, to, to), NULL, (ValueId[]){sum, part}, 2);
        else
            return model_emit_out(r, op, OP_ADD, out,
                                  arena_printf(r->arena, "%s,%s->%s", to, to, to), NULL,
                                  (ValueId[]){sum, part}, 2);
    }
    return false;
}
