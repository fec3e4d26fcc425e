/* solve_turns.c - what a node costs that sees blocks pass by. */
#include "ir/lower/solve_in.h"
#include "ir/lower/turns.h"

/* How many products of its segment may share the blocks of an operand that passes by (rotate.c). */
static int sharers(const Graph *graph, const Node *node, ValueId id, bool once)
{
    int n = 0;
    for (int i = 0; i < graph->nodes.n && once; i++) {
        const Node *other = &graph->nodes.at[i];
        bool reads = false;
        for (int k = 0; k < other->ins; k++)
            reads |= other->in[k] == id;
        n += reads && other->seg == node->seg && node_is_product(graph, other);
    }
    return n > 1 ? n : 1;
}

/* A node that sees blocks pass by runs once for each, while the next one comes and the sums of the
 * last one go on. */
int64_t turns_ns(const Problem *problem, const Node *node, const NodeChoice *choice,
                 const Placement *in, const Placement *out, int64_t ns)
{
    const SolveSetup *setup = &problem->setup;
    Move hop = {.kind = MOVE_ROTATE, .from = NONE, .to = NONE, .by = 1};
    hop.atoms = node_ring(setup->mesh, choice);
    Meeting meeting = {setup->mesh, setup->net, setup->graph, node, in, hop.atoms};
    int64_t hops = 0;
    if (list_extent(setup->mesh, &hop.atoms) < 2)
        return ns;
    int turns = __builtin_popcountll(turns_set(&meeting));
    int stay = choice->atom[hop.atoms.at[0]] - CHOICE_LETTER;
    int pass = choice->travel[hop.atoms.at[0]] - CHOICE_LETTER;
    bool once = !(node->sig.nosplit >> pass & 1);
    for (int k = 0; k < node->ins + node->outs; k++) {
        bool output = k >= node->ins;
        const Placement *place = output ? &out[k - node->ins] : &in[k];
        const Value *value =
            &setup->graph->values.at[output ? node->out[k - node->ins] : node->in[k]];
        const int8_t *letters = output ? node->sig.out[k - node->ins] : node->sig.in[k];
        bool stays = false;
        for (int a = 0; a < value->axes; a++)
            stays |= letters[a] == stay;
        if (stays || (place_sharded(place) & list_set(&hop.atoms)) == 0)
            continue;
        int64_t bytes = place_elements(setup->mesh, setup->net, value, place) *
                        setup->model->price.element_bytes;
        int64_t ways = (turns - !output) * setup->model->price.cost(setup->model->price.context,
                                                                    setup->mesh, &hop, bytes);
        hops += output ? ways : ways / sharers(setup->graph, node, node->in[k], once);
    }
    return turns * ns + (hops > (turns - 1) * ns ? hops - (turns - 1) * ns : 0);
}
