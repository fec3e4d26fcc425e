/* solve_turns.c - what a node costs that sees blocks pass by. */
#include "ir/lower/solve_in.h"

/* A node that sees blocks pass by runs once for each, while the next one comes and the sums of the
 * last one go on. */
int64_t turns_ns(const Problem *problem, const Node *node, const NodeChoice *choice,
                 const Placement *in, const Placement *out, int64_t ns)
{
    const SolveSetup *setup = &problem->setup;
    Move hop = {.kind = MOVE_ROTATE, .from = NONE, .to = NONE, .by = 1};
    hop.atoms = node_ring(setup->mesh, choice);
    int turns = list_extent(setup->mesh, &hop.atoms);
    int64_t hops = 0;
    if (turns < 2)
        return ns;
    int stay = choice->atom[hop.atoms.at[0]] - CHOICE_LETTER;
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
        hops += (turns - !output) *
                setup->model->price.cost(setup->model->price.context, setup->mesh, &hop, bytes);
    }
    return turns * ns + (hops > (turns - 1) * ns ? hops - (turns - 1) * ns : 0);
}
