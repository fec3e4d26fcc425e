/* resize.c - another batch extent and vocabulary padding for a net. */
#include "planner/resize.h"

#include <string.h>

/* The vocabulary: rows of the table that the batch's ids address, and what the loss takes its
 * maximum over. */
static void mark_vocabulary(const Net *net, bool *ret)
{
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            bool ids = graph->values.at[node->in[0]].kind == VALUE_DATA;
            if (op_info[node->op].form == FORM_lookup && ids)
                ret[graph->values.at[node->in[1]].dim[0]] = true;
            if (op_info[node->op].monoid == MONOID_MAX) {
                const Value *logits = &graph->values.at[node->in[0]];
                ret[logits->dim[logits->axes - 1]] = true;
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
