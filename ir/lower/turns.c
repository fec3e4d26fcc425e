/* turns.c - which ranks see something of the block that passes by in a turn. */
#include "ir/lower/turns.h"

/* Queries are operand 0 and keys operand 1, both [batch, sequence, ..]. */
enum { QUERIES, KEYS, SEQUENCE_AXIS = 1 };

static const Value *operand_value(const Meeting *m, int operand)
{
    return &m->graph->values.at[m->node->in[operand]];
}

/* Of any other node all is seen. */
static bool is_masked(const Meeting *m)
{
    return node_crosses(m->net, m->node);
}

int64_t turn_pairs(const Meeting *m, int turn, int rank)
{
    int64_t origin[MAX_LETTERS] = {0}, extent[MAX_LETTERS] = {0};
    for (int k = QUERIES; k <= KEYS; k++) {
        int letter = m->node->sig.in[k][SEQUENCE_AXIS];
        int at = k == KEYS ? mesh_turned(m->mesh, &m->ring, rank, -turn) : rank;
        const Value *value = operand_value(m, k);
        extent[letter] = place_local(m->mesh, m->net, value, &m->in[k], SEQUENCE_AXIS);
        origin[letter] = place_origin(m->mesh, m->net, value, &m->in[k], SEQUENCE_AXIS, at);
    }
    return node_pairs(m->net, m->node, origin, extent);
}

/* The atoms over which a sequence is cut. */
static AtomSet cut_atoms(const Meeting *m)
{
    return (AtomSet)(list_set(&m->in[QUERIES].shard[SEQUENCE_AXIS]) |
                     list_set(&m->in[KEYS].shard[SEQUENCE_AXIS]));
}

/* Ranks that differ only by the others see the same. */
static bool is_first(const Meeting *m, int rank)
{
    AtomSet cut = cut_atoms(m);
    for (int a = 0; a < m->mesh->n; a++)
        if (!(cut >> a & 1) && mesh_coordinate(m->mesh, rank, a) != 0)
            return false;
    return true;
}

int64_t turn_most_pairs(const Meeting *m, int turn)
{
    int64_t most = 0;
    if (!is_masked(m))
        return 1;
    int ranks = cut_atoms(m) ? mesh_ranks(m->mesh) : 1;
    for (int rank = 0; rank < ranks; rank++) {
        int64_t pairs = is_first(m, rank) ? turn_pairs(m, turn, rank) : 0;
        most = pairs > most ? pairs : most;
    }
    return most;
}

int turn_next(const Meeting *m, int turn)
{
    int n = list_extent(m->mesh, &m->ring);
    do
        turn++;
    while (turn < n && turn_most_pairs(m, turn) == 0);
    return turn;
}

uint64_t turns_set(const Meeting *m)
{
    uint64_t set = 0;
    CHECK(list_extent(m->mesh, &m->ring) <= MAX_TURNS);
    for (int turn = 0; turn < list_extent(m->mesh, &m->ring); turn = turn_next(m, turn))
        set |= UINT64_C(1) << turn;
    return set;
}

/* The node of a kernel, or of the results that a merge joins; NONE for other instructions. */
static NodeId node_of(const Body *body, const Inst *inst)
{
    if (inst->kind == INST_KERNEL)
        return inst->node[0];
    if (inst->kind == INST_MERGE)
        return body->graph->values.at[body->copies.at[inst->in[inst->outs]].value].made;
    return NONE;
}

AtomList inst_ring(const Body *body, const Inst *inst)
{
    NodeId id = node_of(body, inst);
    return id == NONE ? (AtomList){0} : node_ring(body->mesh, &body->plan->choice[id]);
}

bool inst_idle(const Body *body, const Inst *inst, int rank)
{
    const Graph *graph = body->graph;
    NodeId id = node_of(body, inst);
    if (inst->turn == 0 || id == NONE || !node_crosses(body->net, &graph->nodes.at[id]))
        return false;
    const Node *node = &graph->nodes.at[id];
    Placement in[MAX_IN], out[MAX_OUT];
    CHECK(place_node(body->mesh, body->net, graph, node, &body->plan->choice[id], in, out));
    Meeting meeting = {body->mesh, body->net, graph,
                       node,       in,        node_ring(body->mesh, &body->plan->choice[id])};
    return turn_pairs(&meeting, inst->turn, rank) == 0;
}
