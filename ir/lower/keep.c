/* keep.c - which forward values are remade in backward although the plan has room: see keep.h. */
#include "ir/lower/keep.h"

static bool reads(const Node *node, ValueId id)
{
    for (int k = 0; k < node->ins; k++)
        if (node->in[k] == id)
            return true;
    return false;
}

static bool read_in_backward(const Graph *graph, ValueId id)
{
    for (int n = 0; n < graph->nodes.n; n++)
        if (graph->nodes.at[n].seg == SEG_BACKWARD && reads(&graph->nodes.at[n], id))
            return true;
    return false;
}

static bool only_row_readers(const Graph *graph, ValueId id)
{
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        if (node->seg == SEG_BACKWARD && reads(node, id) && op_info[node->op].form != FORM_rows)
            return false;
    }
    return true;
}

void plan_keep_cheap(const Graph *graph, ClassPlan *plan)
{
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        if (node->seg != SEG_FORWARD || node->outs != 1 || !read_in_backward(graph, node->out[0]))
            continue;
        bool constant = node->ins == 0;
        bool pointwise = node->ins == 1 && str_eq(op_info[node->op].pattern, "A->A") &&
                         only_row_readers(graph, node->out[0]) &&
                         read_in_backward(graph, node->in[0]) &&
                         plan->keep[node->in[0]] == KEEP_SAVED;
        if (constant || pointwise)
            plan->keep[node->out[0]] = KEEP_NONE;
    }
}

bool plan_grow_needed(const Graph *graph, const ClassPlan *plan, bool *ret)
{
    bool changed = false;
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        bool runs = node->seg == SEG_BACKWARD;
        if (!runs)
            for (int k = 0; k < node->outs; k++)
                runs |= ret[node->out[k]] && plan->keep[node->out[k]] == KEEP_NONE;
        for (int k = 0; runs && k < node->ins; k++)
            if (!ret[node->in[k]]) {
                ret[node->in[k]] = true;
                changed = true;
            }
    }
    return changed;
}
