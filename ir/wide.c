/* wide.c - inference of wide values, node by node, from operands to results. */
#include "ir/wide.h"

static bool has_letter(const int8_t *letters, int n, int letter)
{
    for (int i = 0; i < n; i++) {
        if (letters[i] == letter)
            return true;
    }
    return false;
}

static bool contains(const int8_t *large, int nlarge, const int8_t *small, int nsmall)
{
    for (int i = 0; i < nsmall; i++) {
        if (!has_letter(large, nlarge, small[i]))
            return false;
    }
    return true;
}

static bool has_batch(const Graph *graph, const Value *value)
{
    for (int a = 0; a < value->axes; a++) {
        if (graph->net->dims.at[value->dim[a]].kind == DIM_BATCH)
            return true;
    }
    return false;
}

/* One number of each row of an operand: its axes without the last one. */
static bool is_statistic(const Node *node, int k, int in_axes, int o, int out_axes)
{
    const int8_t *in = node->sig.in[k], *out = node->sig.out[o];
    return in_axes > 0 && !has_letter(out, out_axes, in[in_axes - 1]) &&
           contains(in, in_axes, out, out_axes);
}

static bool makes_wide(const Graph *graph, const Node *node, int o)
{
    const Value *out = &graph->values.at[node->out[o]];
    int alike = 0, alike_wide = 0, reals = 0, reals_wide = 0;
    bool sums_tokens = false;
    for (int k = 0; k < node->ins; k++) {
        const Value *in = &graph->values.at[node->in[k]];
        if (in->number == NUM_INDEX)
            continue;
        if (is_statistic(node, k, in->axes, o, out->axes))
            return true;
        sums_tokens = sums_tokens || has_batch(graph, in);
        reals++;
        reals_wide += in->wide;
        if (in->axes == out->axes &&
            contains(node->sig.in[k], in->axes, node->sig.out[o], out->axes)) {
            alike++;
            alike_wide += in->wide;
        }
    }
    if (sums_tokens && !has_batch(graph, out))
        return true;
    return alike ? alike_wide == alike : reals_wide == reals;
}

static void widen_node(Graph *graph, const Node *node)
{
    for (int o = 0; o < node->outs; o++) {
        Value *out = &graph->values.at[node->out[o]];
        if (out->number == NUM_FLOAT && makes_wide(graph, node, o))
            out->wide = true;
    }
}

static bool same_dims(const Value *x, const Value *y)
{
    bool same = x->axes == y->axes;
    for (int a = 0; same && a < x->axes; a++)
        same = x->dim[a] == y->dim[a];
    return same;
}

/* Marks a value and, as far as it was made of values of its own shape, those. */
static void widen_back(Graph *graph, ValueId id)
{
    while (id != NONE) {
        Value *value = &graph->values.at[id];
        if (value->kind != VALUE_NODE || value->number != NUM_FLOAT)
            return;
        value->wide = true;
        const Node *node = &graph->nodes.at[value->made];
        id = NONE;
        for (int k = 0; k < node->ins && id == NONE; k++) {
            if (same_dims(&graph->values.at[node->in[k]], value))
                id = node->in[k];
        }
    }
}

bool letter_counts_tokens(const Graph *graph, const Node *node, int letter)
{
    const Net *net = graph->net;
    for (int k = 0; k < node->ins; k++) {
        const Value *in = &graph->values.at[node->in[k]];
        for (int a = 0; a < in->axes; a++)
            if (node->sig.in[k][a] == letter)
                return net->dims.at[in->dim[a]].kind == DIM_BATCH || in->dim[a] == net->sequence;
    }
    return false;
}

void graph_widen(Graph *graph)
{
    const Node *last = &graph->nodes.at[graph->nodes.n - 1];
    if (last->op != OP_TOPK) {
        widen_node(graph, last);
        return;
    }
    widen_back(graph, last->in[0]);
    for (int n = 0; n < graph->nodes.n; n++)
        widen_node(graph, &graph->nodes.at[n]);
}
