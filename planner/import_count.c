/* import_count.c - parameters, active ones and FLOPs of a model, from its graph. */
#include "planner/import_count.h"

static bool reads_param(const Graph *graph, const Node *node)
{
    for (int i = 0; i < node->ins; i++) {
        if (graph->values.at[node->in[i]].kind == VALUE_PARAM)
            return true;
    }
    return false;
}

static int64_t class_forward(const Net *net, const Graph *graph)
{
    int64_t flops = 0;
    for (int i = 0; i < graph->nodes.n; i++) {
        const Node *node = &graph->nodes.at[i];
        if (node->seg != SEG_FORWARD)
            continue;
        Form form = op_info[node->op].form;
        bool product = form == FORM_gemm || form == FORM_expert;
        if (form == FORM_attention || (product && reads_param(graph, node)))
            flops += node_flops(net, node);
    }
    return flops;
}

/* The last dim of a choice that a node made: how many rows of its table a token meets; NONE for
 * parameters that no choice picks from. */
static DimId choice_dim(const Graph *graph, ValueId param)
{
    for (int i = 0; i < graph->nodes.n; i++) {
        const Node *node = &graph->nodes.at[i];
        if (node->seg != SEG_FORWARD || node->ins < 2)
            continue;
        const Value *first = &graph->values.at[node->in[0]];
        bool chosen = first->number == NUM_INDEX && first->kind == VALUE_NODE && first->axes > 0 &&
                      graph->nodes.at[first->made].ins > 0;
        for (int j = 1; chosen && j < node->ins; j++) {
            if (node->in[j] == param)
                return first->dim[first->axes - 1];
        }
    }
    return NONE;
}

static int64_t active_of(const Net *net, const Graph *graph, ValueId param, int64_t elements)
{
    DimId k = choice_dim(graph, param);
    if (k == NONE)
        return elements;
    int64_t experts = net->dims.at[graph->values.at[param].dim[0]].used;
    return elements / experts * net->dims.at[k].used;
}

Count net_count(Arena *arena, const Net *net)
{
    Count count = {.row = ARENA_ARRAY(arena, CountRow, net->classes.n)};
    const Dim *sequence = &net->dims.at[net->sequence], *batch = &net->dims.at[net->batch];
    for (int i = 0; i < net->chain.n; i++)
        count.row[net->chain.at[i].class].links++;
    for (int i = 0; i < net->params.n; i++) {
        const NetParam *param = &net->params.at[i];
        const Graph *graph = net->classes.at[param->class];
        ValueId value = graph->params.at[param->param].value;
        int64_t elements = value_elements(net, &graph->values.at[value]);
        count.row[param->class].params += elements;
        count.row[param->class].active += active_of(net, graph, value, elements);
    }
    count.params = net_param_count(net);
    for (int i = 0; i < net->classes.n; i++) {
        CountRow *row = &count.row[i];
        count.active += row->active;
        if (row->links > 0) {
            row->params /= row->links;
            row->active /= row->links;
        }
        row->forward = class_forward(net, net->classes.at[i]) / sequence->extent / batch->extent;
        count.forward += row->forward * row->links;
    }
    count.backward = 2 * count.forward;
    return count;
}
