/* resize.c - another batch extent and vocabulary padding for a net. */
#include "planner/resize.h"

#include <string.h>

/* The vocabulary: what ids and labels of the batch address. (Experts also have a largest score, and
 * tables that choices address: they are not padded.) */
static void mark_vocabulary(const Net *net, bool *ret)
{
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            if (node->ins < 2)
                continue;
            const Value *ids = &graph->values.at[node->in[0]];
            const Value *rows = &graph->values.at[node->in[1]];
            if (ids->kind != VALUE_DATA || ids->number != NUM_INDEX)
                continue;
            for (int a = 0; a < rows->axes; a++) {
                if (node->sig.base >> node->sig.in[1][a] & 1)
                    ret[rows->dim[a]] = true;
            }
        }
    }
}

Net *net_resize(Arena *arena, const Net *base, int64_t batch, int64_t pad_vocabulary)
{
    Net *net = ARENA_NEW(arena, Net);
    *net = *base;
    net->arena = arena;
    net->dims.at = ARENA_ARRAY(arena, Dim, base->dims.n);
    net->dims.cap = base->dims.n;
    memcpy(net->dims.at, base->dims.at, (size_t)base->dims.n * sizeof *base->dims.at);
    Dim *rows = &net->dims.at[net->batch];
    rows->extent = rows->used = batch;
    bool *vocabulary = ARENA_ARRAY(arena, bool, base->dims.n);
    mark_vocabulary(base, vocabulary);
    for (int d = 0; d < net->dims.n; d++) {
        Dim *dim = &net->dims.at[d];
        if (vocabulary[d])
            dim->extent = (dim->used + pad_vocabulary - 1) / pad_vocabulary * pad_vocabulary;
    }
    net->classes.at = ARENA_ARRAY(arena, Graph *, base->classes.n);
    net->classes.cap = base->classes.n;
    for (int c = 0; c < base->classes.n; c++) {
        net->classes.at[c] = ARENA_NEW(arena, Graph);
        *net->classes.at[c] = *base->classes.at[c];
        net->classes.at[c]->net = net;
    }
    return net;
}
