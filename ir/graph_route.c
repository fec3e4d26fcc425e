/* graph_route.c - what is chosen per token: which nodes can run where the chosen things live, and
 * how many rows a rank gets. */
#include "ir/graph.h"

int value_routed_axis(const Net *net, const Value *value)
{
    for (int a = 0; a < value->axes; a++)
        if (net->dims.at[value->dim[a]].kind == DIM_ROUTED)
            return a;
    return NONE;
}

static bool is_among(const Net *net, const Node *node, DimId dim)
{
    for (int l = 0; l < node->sig.letters; l++) {
        const Dim *routed = &net->dims.at[node->sig.dim[l]];
        if (routed->kind == DIM_ROUTED && routed->among == dim)
            return true;
    }
    return false;
}

int node_naming_letter(const Net *net, const Node *node)
{
    for (int l = 0; l < node->sig.letters; l++)
        if ((node->sig.base >> l & 1) && is_among(net, node, node->sig.dim[l]))
            return l;
    return NONE;
}

/* Besides the choices, some operand has rows of their own for them. */
static bool has_rows(const Graph *graph, const Node *node)
{
    bool rows = false;
    for (int k = 0; k < node->ins + node->outs; k++) {
        ValueId id = k < node->ins ? node->in[k] : node->out[k - node->ins];
        const Value *value = &graph->values.at[id];
        rows |= value->number == NUM_FLOAT && value_routed_axis(graph->net, value) != NONE;
    }
    return rows;
}

static bool names(const Graph *graph, const Node *node)
{
    return node_naming_letter(graph->net, node) != NONE && has_rows(graph, node);
}

ValueId graph_route(const Graph *graph, DimId routed)
{
    ValueId route = NONE;
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        if (node->ins == 0 || !names(graph, node))
            continue;
        const Value *choice = &graph->values.at[node->in[0]];
        int axis = value_routed_axis(graph->net, choice);
        if (axis == NONE || choice->dim[axis] != routed)
            continue;
        if (route != NONE && route != node->in[0])
            return NONE;
        route = node->in[0];
    }
    return route;
}

/* All operands have the routed dim, and one of them comes from such a node. */
static bool goes_along(const Graph *graph, const Node *node, const bool *routed)
{
    bool all = true, any = false;
    for (int k = 0; k < node->ins + node->outs; k++) {
        ValueId id = k < node->ins ? node->in[k] : node->out[k - node->ins];
        const Value *value = &graph->values.at[id];
        all &= value_routed_axis(graph->net, value) != NONE;
        any |= k < node->ins && value->kind == VALUE_NODE && routed[value->made];
    }
    return all && any;
}

/* A constant with a row for each choice, of which only nodes that name something read. */
static bool is_made_there(const Graph *graph, const Node *node)
{
    const Value *made = &graph->values.at[node->out[0]];
    bool rows = node->ins == 0 && value_routed_axis(graph->net, made) != NONE;
    for (int n = 0; n < graph->nodes.n && rows; n++)
        for (int k = 0; k < graph->nodes.at[n].ins && rows; k++)
            rows = graph->nodes.at[n].in[k] != node->out[0] || names(graph, &graph->nodes.at[n]);
    return rows;
}

bool *graph_routed_nodes(Arena *arena, const Graph *graph)
{
    bool *routed = ARENA_ARRAY(arena, bool, graph->nodes.n + 1);
    for (int d = 0; d < graph->net->dims.n; d++) {
        if (graph->net->dims.at[d].kind != DIM_ROUTED || graph_route(graph, (DimId)d) == NONE)
            continue;
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            bool own = false;
            for (int l = 0; l < node->sig.letters; l++)
                own |= node->sig.dim[l] == d;
            routed[n] |= own && (names(graph, node) || is_made_there(graph, node) ||
                                 goes_along(graph, node, routed));
        }
    }
    return routed;
}

int64_t route_share(int64_t tokens, int64_t choices, int64_t ranks)
{
    return (extent_product(tokens, choices) + ranks - 1) / ranks;
}

int64_t route_room(const Net *net, int64_t tokens, int64_t choices, int64_t named, int64_t ranks)
{
    int64_t each = named / ranks, most = extent_product(tokens, choices < each ? choices : each);
    if (net->room_percent == 0)
        return most;
    int64_t room = extent_product(extent_product(tokens, choices), net->room_percent);
    room = (room + 100 * ranks - 1) / (100 * ranks);
    return room < most ? room : most;
}
