/* model_block.c - one block of a model file becomes a class, with its gradients. */
#include <string.h>

#include "ir/model_reader.h"

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

static bool check_each(Reader *r, Json ops, Json each)
{
    if (!each.value)
        return true;
    if (!json_want_object(each))
        return false;
    bool fine = true;
    for (int m = 0; m < json_len(each); m++) {
        const char *out = NULL;
        Json set = json_member(each, m, &out);
        bool found = false;
        VEC(const char *) known = {0};
        for (int i = 0; i < json_len(ops); i++) {
            const char *name = model_text(json_get(json_at(ops, i), "out"));
            vec_push(r->arena, &known) = name;
            if (strcmp(name, out) != 0)
                continue;
            found = true;
            int count = 0;
            const char *const *keys =
                model_op_attributes(model_text(json_get(json_at(ops, i), "op")), &count);
            fine = json_want_object(set) && json_only_keys(set, keys, count) && fine;
        }
        if (found)
            continue;
        fine = json_fail_key(each, out, "no op of the block makes \"%s\"", out);
        const char *near = str_nearest(out, known.at, known.n);
        if (near)
            diag_help(r->diag, "did you mean \"%s\"?", near);
        else
            diag_help(r->diag, "name the \"out\" of the op whose attributes change");
    }
    return fine;
}

static bool block_input(Reader *r, Json block, Json entry, const Handed *handed)
{
    Json in = json_get(block, "in");
    const char *name = NULL;
    if (!json_has(block, "in")) {
        if (!handed->any)
            return true;
        json_fail(entry, "this block reads nothing from the one before it");
        diag_help(r->diag, "give the block an \"in\"; only the first of the chain has none");
        return false;
    }
    if (!handed->any) {
        json_fail(in, "the first block of the chain has no block before it");
        diag_help(r->diag, "remove \"in\" and begin with an embedding of \"ids\"");
        return false;
    }
    if (!model_new_name(r, in, &name))
        return false;
    model_define(r, graph_value(r->graph, VALUE_CHAIN_IN, name, handed->axes, handed->dim), in);
    return true;
}

static bool block_output(Reader *r, Json block, bool last)
{
    Json out = json_get(block, "out");
    Graph *graph = r->graph;
    if (json_has(block, "out") && last) {
        json_fail(out, "the last block of the chain hands nothing on");
        diag_help(r->diag, "remove \"out\" and end with cross_entropy");
        return false;
    }
    if (last && graph->loss == NONE) {
        json_fail(block, "the last block of the chain makes no loss");
        diag_help(r->diag, "end it with {\"op\": \"cross_entropy\", \"in\": \"logits\"}");
        return false;
    }
    if (last)
        return true;
    if (graph->loss != NONE) {
        json_fail(block, "a loss before the end of the chain");
        diag_help(r->diag, "cross_entropy stands in the last block, which runs once");
        return false;
    }
    ValueId id = NONE;
    if (!model_operand(r, out, &id))
        return false;
    if (graph->values.at[id].kind != VALUE_NODE || graph->values.at[id].number != NUM_FLOAT) {
        json_fail(out, "the block hands on \"%s\", which it does not make",
                  graph->values.at[id].name);
        diag_help(r->diag, "name the result of an op");
        return false;
    }
    graph->chain_out = id;
    return true;
}

static bool all_used(Reader *r)
{
    bool fine = true;
    for (int v = 0; v < r->defined.n; v++) {
        if (!r->defined.at[v].value || r->used.at[v])
            continue;
        fine = json_fail(r->defined.at[v], "nothing reads \"%s\"", r->graph->values.at[v].name);
        diag_help(r->diag, "remove the op, or use its result");
    }
    return fine;
}

/* Every parameter must be trained: an op between it and the loss may be missing. */
static bool all_trained(Reader *r)
{
    bool fine = true;
    for (int p = 0; p < r->graph->params.n; p++) {
        if (r->graph->params.at[p].grad != NONE || r->graph->params.at[p].frozen)
            continue;
        fine = json_fail(r->param_at.at[p], "no gradient reaches parameter \"%s\"",
                         r->graph->params.at[p].name);
        diag_help(r->diag, "its value must lead to the block's \"out\" or the loss");
    }
    if (r->graph->chain_in != NONE && r->graph->grad_out == NONE) {
        fine =
            json_fail(r->defined.at[r->graph->chain_in], "no gradient reaches the block's input");
        diag_help(r->diag, "the input must lead to the block's \"out\" or the loss");
    }
    return fine;
}

Graph *model_read_block(Reader *r, Json block, const char *name, Json entry, const Handed *handed,
                        bool last)
{
    static const char *const keys[] = {"in", "out", "ops"};
    Json ops = json_get(block, "ops");
    if (!json_want_object(block) || !json_only_keys(block, keys, COUNT_OF(keys)) ||
        !json_want_array(ops) || !check_each(r, ops, r->each))
        return NULL;
    r->graph = net_add_class(r->net, name);
    r->defined.n = r->used.n = r->param_at.n = 0;
    if (!block_input(r, block, entry, handed))
        return NULL;
    for (int i = 0; i < json_len(ops); i++) {
        if (!model_read_op(r, json_at(ops, i)))
            return NULL;
    }
    if (!block_output(r, block, last) || !all_used(r))
        return NULL;
    graph_differentiate(r->graph);
    graph_mark_late(r->graph);
    return all_trained(r) ? r->graph : NULL;
}
