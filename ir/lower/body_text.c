/* body_text.c - a body as text, one instruction a line, and its verifier. */
#include "ir/lower/body.h"

static void put_copy(Str *str, const Body *body, int id)
{
    const Copy *copy = &body->copies.at[id];
    str_putf(str, "%s", copy->name);
    place_put(str, body->net, &body->graph->values.at[copy->value], &copy->place);
    if (copy->turn)
        str_putf(str, "@%d", copy->turn);
    if (copy->home != HOME_TEMP)
        str_putf(str, ":%s", home_text[copy->home]);
}

static void put_inst(Str *str, const Body *body, const Inst *inst)
{
    static const char *const flow[] = {"F", "I", "W"};
    str_putf(str, "  %s ", flow[inst->flow]);
    for (int k = 0; k < inst->outs; k++) {
        str_put(str, k ? ", " : "");
        put_copy(str, body, inst->out[k]);
    }
    str_put(str, " = ");
    if (inst->kind == INST_KERNEL)
        for (int i = 0; i < inst->nodes; i++) {
            const Node *node = &body->graph->nodes.at[inst->node[i]];
            str_putf(str, "%s%s", i ? " + " : "", op_info[node->op].text);
            if (inst->adds)
                str_put(str, " added");
            if (str_eq(op_info[node->op].pattern, "*")) {
                str_putc(str, ' ');
                graph_put_sig(str, body->graph, node);
            }
        }
    else if (inst->kind == INST_MOVE)
        str_putf(str, "%s%s", move_text[inst->move.kind],
                 body->copies.at[inst->in[0]].alias == inst->out[0] ? " in place" : "");
    else if (inst->kind == INST_MERGE)
        str_putf(str, "merge %s", monoid_text[inst->monoid]);
    else
        str_put(str, "accumulate");
    str_put(str, " (");
    for (int k = 0; k < inst->ins; k++) {
        str_put(str, k ? ", " : "");
        put_copy(str, body, inst->in[k]);
    }
    str_put(str, ")");
    if (inst->why)
        str_putf(str, "  # %s", inst->why);
    str_putc(str, '\n');
}

void body_put_text(Str *str, const Body *body)
{
    str_putf(str, "body %s  saved %lld B, scratch %lld B forward, %lld B backward\n",
             body->graph->name, (long long)body->saved_bytes[SAVED_I],
             (long long)body->forward_temp_bytes, (long long)body->backward_temp_bytes);
    str_put(str, " forward\n");
    for (int i = 0; i < body->forward.n; i++)
        put_inst(str, body, &body->forward.at[i]);
    str_put(str, " backward\n");
    for (int i = 0; i < body->backward.n; i++)
        put_inst(str, body, &body->backward.at[i]);
    if (body->weight.n == 0)
        return;
    str_putf(str,
             " weight  saved until here %lld B, from backward to here %lld B, scratch %lld B\n",
             (long long)body->saved_bytes[SAVED_W], (long long)body->saved_bytes[SAVED_IW],
             (long long)body->weight_temp_bytes);
    for (int i = 0; i < body->weight.n; i++)
        put_inst(str, body, &body->weight.at[i]);
}

/* ---- verifying
 * ---------------------------------------------------------------------------------------- */

static bool born_before(const Home home)
{
    return home == HOME_DATA || home == HOME_PARAM || home == HOME_IN || home == HOME_GRAD_IN ||
           home == HOME_ACC;
}

/* Inputs exist when they are read. `made` spans all lists: saved copies cross over. */
static bool verify_order(const Body *body, const InstList *list, bool *made, Diag *diag)
{
    bool good = true;
    for (int i = 0; i < list->n; i++) {
        const Inst *inst = &list->at[i];
        for (int k = 0; k < inst->ins; k++) {
            const Copy *copy = &body->copies.at[inst->in[k]];
            if (!made[inst->in[k]] && !born_before(copy->home))
                good = diag_error(diag, NO_SPAN, "%s of class %s is read before it is made",
                                  copy->name, body->graph->name);
        }
        for (int k = 0; k < inst->outs; k++)
            made[inst->out[k]] = true;
    }
    return good;
}

static bool verify_kernel(const Body *body, const Inst *inst, Diag *diag)
{
    bool good = true;
    for (int i = 0; i < inst->nodes; i++) {
        const Node *node = &body->graph->nodes.at[inst->node[i]];
        Placement in[MAX_IN], out[MAX_OUT];
        if (!place_node(body->mesh, body->net, body->graph, node,
                        &body->plan->choice[inst->node[i]], in, out))
            return diag_error(diag, NO_SPAN, "illegal placement of %s", node->name);
        for (int k = 0; k < node->ins; k++)
            if (!place_equal(&in[k], &body->copies.at[inst->bind_in[i][k]].place))
                good = diag_error(diag, NO_SPAN,
                                  "operand %d of %s is placed otherwise than its choice needs", k,
                                  node->name);
        for (int k = 0; k < node->outs; k++)
            if (!place_equal(&out[k], &body->copies.at[inst->bind_out[i][k]].place))
                good = diag_error(diag, NO_SPAN,
                                  "output %d of %s is placed otherwise than its choice makes", k,
                                  node->name);
    }
    return good;
}

/* Before temps have been placed they have no lives yet. */
static bool overlap(const Copy *a, const Copy *b)
{
    return a->first != NONE && b->first != NONE && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes && a->first <= b->last && b->first <= a->last;
}

/* Temps of one list share the scratch area; no two live ones overlap. */
static bool verify_temps(const Body *body, const InstList *list, Arena *arena, Diag *diag)
{
    bool good = true, *seen = ARENA_ARRAY(arena, bool, body->copies.n + 1);
    VEC(int) temps = {0};
    for (int i = 0; i < list->n; i++)
        for (int k = 0; k < list->at[i].outs; k++) {
            const Copy *copy = &body->copies.at[list->at[i].out[k]];
            if (copy->home == HOME_TEMP && copy->alias == NONE && !seen[list->at[i].out[k]]) {
                seen[list->at[i].out[k]] = true;
                vec_push(arena, &temps) = list->at[i].out[k];
            }
        }
    for (int i = 0; i < temps.n; i++)
        for (int j = 0; j < i; j++)
            if (overlap(&body->copies.at[temps.at[i]], &body->copies.at[temps.at[j]]))
                good = diag_error(diag, NO_SPAN, "temps %s and %s of class %s overlap",
                                  body->copies.at[temps.at[i]].name,
                                  body->copies.at[temps.at[j]].name, body->graph->name);
    return good;
}

bool body_verify(const Body *body, Diag *diag)
{
    Arena *scratch = arena_new("verify");
    bool *made = ARENA_ARRAY(scratch, bool, body->copies.n + 1);
    bool good = true;
    for (int l = 0; l < BODY_LISTS; l++) {
        const InstList *list = body_list(body, l);
        good &= verify_order(body, list, made, diag);
        for (int i = 0; i < list->n; i++)
            if (list->at[i].kind == INST_KERNEL)
                good &= verify_kernel(body, &list->at[i], diag);
        good &= verify_temps(body, list, scratch, diag);
    }
    arena_free(scratch);
    return good;
}
