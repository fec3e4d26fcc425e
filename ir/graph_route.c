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

/* The choices of what a value was made of. */
static ValueId route_back(const Graph *graph, ValueId id)
{
    const Value *value = &graph->values.at[id];
    if (value->kind != VALUE_NODE || value_routed_axis(graph->net, value) == NONE)
        return NONE;
    const Node *made = &graph->nodes.at[value->made];
    if (made->ins > 0 && names(graph, made))
        return made->in[0];
    ValueId route = NONE;
    for (int k = 0; k < made->ins && route == NONE; k++)
        route = route_back(graph, made->in[k]);
    return route;
}

/* Of what is made of it. */
static ValueId route_ahead(const Graph *graph, ValueId id)
{
    ValueId route = NONE;
    for (int n = 0; n < graph->nodes.n && route == NONE; n++) {
        const Node *node = &graph->nodes.at[n];
        for (int k = 0; k < node->ins && route == NONE; k++)
            if (node->in[k] == id)
                route = node->ins > 0 && names(graph, node) ? node->in[0]
                        : value_routed_axis(graph->net, &graph->values.at[node->out[0]]) != NONE
                            ? route_ahead(graph, node->out[0])
                            : NONE;
    }
    return route;
}

ValueId graph_route(const Graph *graph, ValueId value)
{
    if (graph->values.at[value].number == NUM_INDEX)
        return value;
    ValueId route = route_back(graph, value);
    return route != NONE ? route : route_ahead(graph, value);
}

void graph_mark_late(Graph *graph)
{
    for (int v = 0; v < graph->values.n; v++) {
        Value *value = &graph->values.at[v];
        int axis = value_routed_axis(graph->net, value);
        if (axis == NONE || (value->number != NUM_INDEX && axis + 1 == value->axes))
            continue; /* numbers of choices, such as shares, serve all rounds */
        ValueId route = graph_route(graph, v);
        const Value *choice = route != NONE ? &graph->values.at[route] : value;
        const Node *made = choice->kind == VALUE_NODE ? &graph->nodes.at[choice->made] : NULL;
        value->late = made && op_info[made->op].attrs == ATTRS_deal && made->attrs.deal.round > 0;
    }
    for (int n = 0; n < graph->nodes.n; n++) {
        Node *node = &graph->nodes.at[n];
        for (int k = 0; k < node->ins + node->outs; k++)
            node->late |=
                graph->values.at[k < node->ins ? node->in[k] : node->out[k - node->ins]].late;
    }
}

int64_t deal_bound(const Attr_deal *attrs, int64_t rows)
{
    int64_t bound =
        attrs->room > 0 ? extent_product(rows, attrs->room) / (100 * attrs->ranks) : rows;
    return bound > 0 ? bound : 1;
}

/* All operands have the routed dim, and one of them comes from such a node. */
static bool goes_along(const Graph *graph, const Node *node, const bool *routed)
{
    bool all = true;
    ValueId route = NONE;
    for (int k = 0; k < node->ins + node->outs; k++) {
        ValueId id = k < node->ins ? node->in[k] : node->out[k - node->ins];
        const Value *value = &graph->values.at[id];
        all &= value_routed_axis(graph->net, value) != NONE;
        if (k >= node->ins || value->kind != VALUE_NODE || !routed[value->made])
            continue;
        ValueId own = graph_route(graph, id);
        all &= route == NONE || route == own; /* rows of two rounds lie otherwise */
        route = own;
    }
    return all && route != NONE;
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
        if (graph->net->dims.at[d].kind != DIM_ROUTED)
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
    if (net->exchange == EXCHANGE_PADDED)
        room = (room + ranks - 1) / ranks * ranks;
    return room < most ? room : most;
}

int64_t rounds_room(int64_t tokens, int64_t choices, int64_t named, int64_t ranks, int rounds)
{
    int64_t each = named / ranks, rows = extent_product(tokens, choices),
            most = extent_product(tokens, choices < each ? choices : each),
            bound = (most + rounds - 1) / rounds;
    int64_t percent = (extent_product(bound, 100 * ranks) + rows - 1) / rows;
    return percent > 100 ? percent : 100;
}
