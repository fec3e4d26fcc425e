/* price.c - what the planner asks the prices of ir/lower for: copies between memories, callbacks of
 * the solver and the path search. */
#include "planner/price.h"

#include "ir/base/num.h"

static const int64_t second_ns = 1000000000;

int64_t price_copy(const Cluster *cluster, Memory from, Memory to, int64_t bytes)
{
    const Store *store = &cluster->store[from > to ? from : to];
    return store->latency_ns +
           num_scale_up(bytes, second_ns,
                        from > to ? store->read_bytes_per_s : store->write_bytes_per_s);
}

int64_t price_move(const void *context, const Mesh *mesh, const Move *move, int64_t bytes)
{
    MovePrice price = pricer_moves(context);
    return price.cost(price.context, mesh, move, bytes);
}

static Roofline roofline_of(const Pricer *pricer)
{
    return (Roofline){pricer->cluster, pricer->net, pricer->mesh, pricer->recipe};
}

int64_t price_node(const void *context, const Graph *graph, const Node *node, const Placement *in,
                   const Placement *out)
{
    const Roofline roof = roofline_of(context);
    return node_ns(&roof, graph, node, in, out);
}

int64_t price_inst(const Pricer *pricer, const Body *body, const Inst *inst)
{
    const Roofline roof = roofline_of(pricer);
    return inst_ns(&roof, body, inst);
}

int64_t price_state_bytes(const void *context, const Graph *graph, int param, const Placement *home)
{
    const Pricer *pricer = context;
    const Recipe *recipe = pricer->recipe;
    const Value *value = &graph->values.at[graph->params.at[param].value];
    int64_t elements = place_elements(pricer->mesh, pricer->net, value, home);
    int share = mesh_extent(pricer->mesh, (AtomSet)(pricer->state_atoms & ~place_used(home)));
    int state = (2 + recipe->has_master) * dtype_bytes(recipe->master);
    return elements * (dtype_bytes(recipe->weight) + dtype_bytes(recipe->gradient)) +
           (elements * state + share - 1) / share;
}

MovePrice pricer_moves(const Pricer *pricer)
{
    return link_price(pricer->cluster, pricer->recipe);
}

SolveModel pricer_model(const Pricer *pricer)
{
    return (SolveModel){pricer, price_node, price_state_bytes, pricer_moves(pricer)};
}
