/* why.c - for each move of a body: which flow it belongs to, and why it is there, in words.
 *
 * Runs before fusion, while every kernel is one node. */
#include "ir/lower/body.h"

typedef struct Explain {
    Arena *arena;
    const Body *body;
    const InstList *list;
} Explain;

static bool reads(const Inst *inst, int copy)
{
    for (int k = 0; k < inst->ins; k++)
        if (inst->in[k] == copy)
            return true;
    return false;
}

/* ---- flow ---- */

/* The gradient of the input is waited for first, what is made again comes before that, weights can
 * wait. */
static Flow earlier(Flow a, Flow b)
{
    static const int rank[] = {[FLOW_INPUT] = 0, [FLOW_FORWARD] = 1, [FLOW_WEIGHT] = 2};
    return rank[a] <= rank[b] ? a : b;
}

/* Readers stand behind what they read: from the end on, their flows are known. */
static void mark_flows(const Body *body, InstList *list)
{
    for (int i = list->n - 1; i >= 0; i--) {
        Inst *inst = &list->at[i];
        if (inst->kind != INST_MOVE)
            continue;
        inst->flow = inst->out[0] == body->grad_out ? FLOW_INPUT : FLOW_WEIGHT;
        for (int k = i + 1; k < list->n; k++)
            if (reads(&list->at[k], inst->out[0]))
                inst->flow = earlier(inst->flow, list->at[k].flow);
    }
}

/* ---- words ---- */

static void put_roles(Str *text, const Mesh *mesh, AtomSet atoms)
{
    bool said[ROLE_COUNT] = {false};
    const char *gap = "";
    for (int a = 0; a < mesh->n; a++) {
        Role role = mesh->atom[a].role;
        if (!(atoms >> a & 1) || said[role])
            continue;
        said[role] = true;
        str_putf(text, "%s%s", gap, role_text[role]);
        gap = " x ";
    }
}

static void put_dim(Str *text, const Body *body, ValueId value, int axis)
{
    const Dim *dim = &body->net->dims.at[body->graph->values.at[value].dim[axis]];
    str_put(text, dim->name);
}

/* The dim whose contraction made a value Partial on an atom: the letter that its maker splits
 * there, or, where Partial flows through, that of an operand which is not merely owned. */
static DimId contracted_dim(const Body *body, ValueId id, int atom)
{
    const Graph *graph = body->graph;
    const Value *value = &graph->values.at[id];
    if (value->kind != VALUE_NODE)
        return NONE;
    const Node *node = &graph->nodes.at[value->made];
    Choice choice = body->plan->choice[value->made].atom[atom];
    if (choice == CHOICE_REPLICATE)
        return NONE;
    if (choice < CHOICE_LINEAR)
        return node->sig.dim[choice - CHOICE_LETTER];
    uint8_t set = node_linear_set(node, choice - CHOICE_LINEAR);
    DimId dim = NONE;
    /* of terms that meet, the last is named: earlier ones are the residual stream */
    for (int k = node->ins - 1; k >= 0 && dim == NONE; k--)
        if (set >> k & 1)
            dim = contracted_dim(body, node->in[k], atom);
    return dim;
}

static void put_contracted(Str *text, const Body *body, ValueId id, AtomSet atoms)
{
    DimId said[MAX_ATOMS];
    int n = 0;
    for (int a = 0; a < body->mesh->n; a++) {
        DimId dim = atoms >> a & 1 ? contracted_dim(body, id, a) : NONE;
        for (int i = 0; i < n && dim != NONE; i++)
            if (said[i] == dim)
                dim = NONE;
        if (dim == NONE)
            continue;
        str_putf(text, "%s%s", n ? ", " : " (contracted over ", body->net->dims.at[dim].name);
        said[n++] = dim;
    }
    str_put(text, n ? ")" : "");
}

/* Who needs the copy: its first reader behind all moves, or what happens to it at the end. */
static const char *served(const Explain *at, int from, int copy)
{
    for (int i = from + 1; i < at->list->n; i++) {
        const Inst *inst = &at->list->at[i];
        if (!reads(inst, copy))
            continue;
        if (inst->kind == INST_KERNEL)
            return at->body->graph->nodes.at[inst->node[0]].name;
        if (inst->kind == INST_ACCUMULATE)
            return "the accumulator";
        if (inst->kind == INST_MERGE) {
            const Value *value =
                &at->body->graph->values.at[at->body->copies.at[inst->in[0]].value];
            return at->body->graph->nodes.at[value->made].name;
        }
        return served(at, i, inst->out[0]);
    }
    switch (at->body->copies.at[copy].home) {
    case HOME_OUT:
        return "the next layer";
    case HOME_GRAD_OUT:
        return "the previous layer";
    case HOME_SAVED:
    case HOME_SAVED_W:
    case HOME_SAVED_IW:
        return "backward";
    default:
        return NULL;
    }
}

static const char *explain(const Explain *at, int index)
{
    const Body *body = at->body;
    const Inst *inst = &at->list->at[index];
    const Move *move = &inst->move;
    const Copy *copy = &body->copies.at[inst->in[0]], *into = &body->copies.at[inst->out[0]];
    const char *name = body->graph->values.at[copy->value].name;
    AtomSet atoms = list_set(&move->atoms);
    Str text = str_new(at->arena);
    switch (move->kind) {
    case MOVE_ALL_REDUCE:
    case MOVE_REDUCE_SCATTER:
        str_putf(&text, "%s %s",
                 move->monoid == MONOID_MAX ? "take the maximum of" : "sum the partial terms of",
                 name);
        put_contracted(&text, body, copy->value, atoms);
        break;
    case MOVE_ALL_GATHER:
    case MOVE_PERMUTE:
        str_putf(&text, "%s the shards of %s along ",
                 move->kind == MOVE_PERMUTE ? "reorder" : "gather", name);
        put_dim(&text, body, copy->value, move->from);
        break;
    case MOVE_ROTATE:
        str_putf(&text, "pass the block of %s on by %d", name, move->by);
        break;
    case MOVE_ALL_TO_ALL:
        if (move_is_routed(body->net, &body->graph->values.at[copy->value], move)) {
            str_putf(&text,
                     move->from == 0 ? "send the rows of %s to those whom their choices name"
                                     : "send the rows of %s back to their tokens",
                     name);
            if (body->net->exchange == EXCHANGE_PADDED)
                str_put(&text, ", in messages of one size,");
            break;
        }
        str_putf(&text, "exchange shards of %s along ", name);
        put_dim(&text, body, copy->value, move->from);
        str_put(&text, " for shards along ");
        put_dim(&text, body, copy->value, move->to);
        break;
    case MOVE_SLICE:
        str_putf(&text,
                 move->to != NONE             ? "keep this rank's shard of %s along "
                 : copy->dtype != into->dtype ? "round %s, in which all blocks are now"
                                              : "keep %s, which the next layer will overwrite",
                 name);
        if (move->to != NONE)
            put_dim(&text, body, copy->value, move->to);
        break;
    case MOVE_OWN:
        str_putf(&text, "let one rank own %s, as a term of a sum", name);
        break;
    case MOVE_PAD:
        str_putf(&text, "make the shard of %s along ", name);
        put_dim(&text, body, copy->value, move->from);
        str_put(&text, " a term of a sum");
        break;
    case MOVE_KIND_COUNT:
        break;
    }
    if (atoms) {
        str_put(&text, " over ");
        put_roles(&text, body->mesh, atoms);
    }
    if (move->kind == MOVE_REDUCE_SCATTER) {
        str_put(&text, ", each its shard along ");
        put_dim(&text, body, copy->value, move->to);
    }
    const char *whom = served(at, index, inst->out[0]);
    if (whom)
        str_putf(&text, ", for %s", whom);
    return text.at;
}

static void explain_list(Arena *arena, const Body *body, InstList *list)
{
    Explain at = {.arena = arena, .body = body, .list = list};
    for (int i = 0; i < list->n; i++) {
        Inst *inst = &list->at[i];
        if (inst->kind == INST_MOVE)
            inst->why = explain(&at, i);
        else if (inst->kind == INST_MERGE)
            inst->why = arena_printf(
                arena, "join what %s makes of the blocks so far",
                body->graph->nodes
                    .at[body->graph->values.at[body->copies.at[inst->in[0]].value].made]
                    .name);
        else if (inst->kind == INST_ACCUMULATE)
            inst->why =
                arena_printf(arena, "add to the gradient of %s, which had to move first",
                             body->graph->params.at[body->copies.at[inst->out[0]].param].name);
    }
}

void body_explain(Arena *arena, Body *body)
{
    mark_flows(body, &body->backward);
    mark_flows(body, &body->weight);
    explain_list(arena, body, &body->forward);
    explain_list(arena, body, &body->backward);
    explain_list(arena, body, &body->weight);
}
