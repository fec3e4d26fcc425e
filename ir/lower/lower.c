/* lower.c - a class and its plan become a body: nodes placed, moves derived, backward fed.
 *
 * One walk over the nodes in order. A value is a set of copies; each use takes the cheapest
 * existing one and the moves in between become instructions. Between the lists only saved copies,
 * parameters and data survive; what is not kept is made again by a clone at its first use. */
#include "ir/lower/lower_in.h"

#include <string.h>

#include "ir/lower/keep.h"
#include "ir/lower/order.h"
#include "ir/plan_parts.h"

const char *const home_text[HOME_COUNT] = {"data",    "param",    "acc",      "in",
                                           "out",     "grad_in",  "grad_out", "saved",
                                           "saved_w", "saved_iw", "temp",     "fused"};

const InstList *body_list(const Body *body, int which)
{
    return which == 0 ? &body->forward : which == 1 ? &body->backward : &body->weight;
}

int body_list_with(const Body *body, const Inst *inst)
{
    for (int which = 0; which < BODY_LISTS; which++) {
        const InstList *list = body_list(body, which);
        if (inst >= list->at && inst < list->at + list->n)
            return which;
    }
    BUG("an instruction of another body");
}

DType value_dtype(const Graph *graph, ValueId id, const Recipe *recipe)
{
    const Value *value = &graph->values.at[id];
    if (value->number == NUM_INDEX)
        return recipe->activation == DT_F64 ? DT_F64 : DT_I32;
    if (value->wide && id != graph->chain_out && id != graph->grad_out)
        return recipe->gradient;
    return value->kind == VALUE_PARAM ? recipe->weight : recipe->activation;
}

int lower_copy(Lowering *lo, ValueId id, const Placement *place, Home home)
{
    Body *body = lo->body;
    const Value *value = &body->graph->values.at[id];
    Copy copy = {.value = id,
                 .place = *place,
                 .home = home,
                 .alias = NONE,
                 .param = NONE,
                 .first = NONE,
                 .last = NONE};
    copy.dtype =
        home == HOME_ACC ? body->recipe->gradient : value_dtype(body->graph, id, body->recipe);
    copy.elements = 1;
    for (int a = 0; a < value->axes; a++) {
        copy.local[a] = place_local(body->mesh, body->net, value, place, a);
        copy.elements *= copy.local[a];
    }
    copy.bytes = copy.elements * dtype_bytes(copy.dtype);
    int twins = 0;
    for (int i = 0; i < body->copies.n; i++)
        twins += body->copies.at[i].value == id;
    copy.name = twins == 0 ? value->name : arena_printf(lo->arena, "%s.at%d", value->name, twins);
    vec_push(lo->arena, &body->copies) = copy;
    return body->copies.n - 1;
}

void lower_remember(Lowering *lo, ValueId value, int copy)
{
    vec_push(lo->arena, &lo->have[value]) = copy;
}

Inst *lower_inst(Lowering *lo, InstKind kind)
{
    Inst *inst = &vec_push(lo->arena, &lo->insts);
    *inst = (Inst){.kind = kind, .flow = FLOW_FORWARD};
    return inst;
}

void lower_widen(Lowering *lo, int copy)
{
    Copy *wide = &lo->body->copies.at[copy];
    wide->dtype = lo->body->recipe->gradient;
    wide->bytes = wide->elements * dtype_bytes(wide->dtype);
}

/* A slice that cuts nothing. */
int lower_own_copy(Lowering *lo, ValueId id, int copy, Home home)
{
    Placement place = lo->body->copies.at[copy].place;
    int own = lower_copy(lo, id, &place, home);
    Inst *inst = lower_inst(lo, INST_MOVE);
    inst->move = (Move){.kind = MOVE_SLICE, .from = NONE, .to = NONE};
    inst->ins = inst->outs = 1;
    inst->in[0] = copy;
    inst->out[0] = own;
    return own;
}

/* The choices that a move of rows goes by; `source` where they themselves are cut. */
static int deliver_route(Lowering *lo, ValueId id, int source, const Path *path, int step)
{
    const Body *body = lo->body;
    const Value *value = &body->graph->values.at[id];
    ValueId route = graph_route(body->graph, id);
    Placement from = body->copies.at[source].place;
    Placement place =
        place_of_route(body->net, value, &from, &path->after[step], &path->move[step]);
    lower_materialise(lo, route);
    return route == id && place_equal(&place, &from) ? source : lower_deliver(lo, route, &place);
}

int lower_deliver(Lowering *lo, ValueId id, const Placement *want)
{
    Body *body = lo->body;
    const Value *value = &body->graph->values.at[id];
    const CopySet *set = &lo->have[id];
    Placement *places = ARENA_ARRAY(lo->arena, Placement, set->n + 1);
    for (int i = 0; i < set->n; i++) {
        places[i] = body->copies.at[set->at[i]].place;
        if (place_equal(&places[i], want))
            return set->at[i];
    }
    Path path;
    int from;
    if (set->n == 0 || !path_nearest(lo->paths, value, places, set->n, want, &from, &path))
        BUG("no way to deliver %s of class %s", value->name, body->graph->name);
    int source = set->at[from];
    for (int i = 0; i < path.n; i++) {
        bool routed = move_is_routed(body->net, value, &path.move[i]);
        int by = routed ? deliver_route(lo, id, source, &path, i) : source;
        int target = lower_copy(lo, id, &path.after[i], HOME_TEMP);
        Inst *inst = lower_inst(lo, INST_MOVE);
        inst->move = path.move[i];
        inst->ins = by == source ? 1 : 2;
        inst->outs = 1;
        inst->in[0] = source;
        inst->in[1] = by;
        inst->out[0] = target;
        lower_remember(lo, id, target);
        source = target;
    }
    return source;
}

Inst *lower_kernel(Lowering *lo, NodeId id, const int *operand, const int *result)
{
    const Node *node = &lo->body->graph->nodes.at[id];
    Inst *inst = lower_inst(lo, INST_KERNEL);
    inst->form = op_info[node->op].form;
    inst->flow = node->flow;
    inst->nodes = 1;
    inst->node[0] = id;
    inst->bind_in = arena_array(lo->arena, MAX_FUSED, sizeof *inst->bind_in);
    inst->bind_out = arena_array(lo->arena, MAX_FUSED, sizeof *inst->bind_out);
    for (int k = 0; k < node->ins; k++) {
        inst->bind_in[0][k] = operand[k];
        bool seen = false;
        for (int j = 0; j < inst->ins; j++)
            seen |= inst->in[j] == operand[k];
        if (!seen)
            inst->in[inst->ins++] = operand[k];
    }
    for (int k = 0; k < node->outs; k++) {
        inst->bind_out[0][k] = result[k];
        inst->out[inst->outs++] = result[k];
    }
    return inst;
}

static void emit_node(Lowering *lo, NodeId id)
{
    Body *body = lo->body;
    const Graph *graph = body->graph;
    const Node *node = &graph->nodes.at[id];
    Placement in[MAX_IN], out[MAX_OUT];
    if (!place_node(body->mesh, body->net, graph, node, &body->plan->choice[id], in, out))
        BUG("illegal placement of %s in class %s", node->name, graph->name);
    int operand[MAX_IN];
    for (int k = 0; k < node->ins; k++) {
        lower_materialise(lo, node->in[k]);
        operand[k] = lower_deliver(lo, node->in[k], &in[k]);
    }
    AtomList ring = node_ring(body->mesh, &body->plan->choice[id]);
    int result[MAX_OUT];
    if (ring.n > 0) {
        lower_turns(lo, id, &ring, operand, out, result);
    } else {
        for (int k = 0; k < node->outs; k++)
            result[k] = lower_copy(lo, node->out[k], &out[k], HOME_TEMP);
        lower_kernel(lo, id, operand, result);
    }
    for (int k = 0; k < node->outs; k++)
        lower_remember(lo, node->out[k], result[k]);
}

/* What is made of nothing is made for each reader, inside its kernel, rather than stored until the
 * next. */
void lower_materialise(Lowering *lo, ValueId id)
{
    const Value *value = &lo->body->graph->values.at[id];
    bool anew = lo->seg == SEG_BACKWARD && value->kind == VALUE_NODE &&
                lo->body->graph->nodes.at[value->made].seg == SEG_FORWARD &&
                lo->body->graph->nodes.at[value->made].ins == 0 && lo->made[id].n == 0;
    if (anew)
        lo->have[id].n = 0;
    if (lo->have[id].n > 0)
        return;
    if (value->kind != VALUE_NODE)
        BUG("%s of class %s does not exist where it is read", value->name, lo->body->graph->name);
    emit_node(lo, value->made);
}

static void take_insts(Lowering *lo, InstList *ret)
{
    ret->n = lo->insts.n;
    ret->at = lo->insts.at;
    lo->insts.at = NULL;
    lo->insts.n = lo->insts.cap = 0;
}

/* True when the value's only purpose is to be this parameter's gradient, so that its maker can add
 * into the accumulator; a maker that reads the parameter may find it there. */
static bool only_gradient(const Graph *graph, ValueId id, ValueId param)
{
    for (int n = 0; n < graph->nodes.n; n++)
        for (int k = 0; k < graph->nodes.at[n].ins; k++)
            if (graph->nodes.at[n].in[k] == id ||
                (n == graph->values.at[id].made && graph->nodes.at[n].in[k] == param))
                return false;
    int owners = id == graph->grad_out;
    for (int p = 0; p < graph->params.n; p++)
        owners += graph->params.at[p].grad == id;
    return owners == 1 && graph->values.at[id].kind == VALUE_NODE;
}

/* True when two links, of this class or of another, add to one accumulator. */
static bool is_tied(const Body *body, int param)
{
    const Net *net = body->net;
    for (int i = 0; i < net->params.n; i++)
        for (int use = 0; use < net->params.at[i].uses; use++)
            if (net->params.at[i].uses == 2 && net->params.at[i].use_param[use] == param &&
                net->classes.at[net->params.at[i].use_class[use]] == body->graph)
                return true;
    return false;
}

/* Where a gradient is added up over micro-batches: the shards of its home, and Partial where it
 * arises so. Terms of the uses of a tied parameter meet in one accumulator, whatever each class
 * chose: they are Partial on every other atom, which costs nothing (own). */
static Placement accumulator_place(const Body *body, int param, const Placement *made)
{
    Placement place = body->plan->home[param];
    AtomSet whole = (AtomSet)(((1u << body->mesh->n) - 1) & ~place_sharded(&place));
    place.partial = is_tied(body, param) ? whole : made->partial & whole;
    place.monoid = place.partial ? MONOID_SUM : MONOID_NONE;
    return place;
}

/* Of two lists of backward, is the value made in the one that is being built? */
static bool runs_here(const Lowering *lo, ValueId id)
{
    const Graph *graph = lo->body->graph;
    return !lo->split || graph->nodes.at[graph->values.at[id].made].flow != FLOW_INPUT;
}

static void accumulate_gradient(Lowering *lo, int param)
{
    Body *body = lo->body;
    const Param *info = &body->graph->params.at[param];
    int source = lo->have[info->grad].at[0];
    Placement want = accumulator_place(body, param, &body->copies.at[source].place);
    bool direct = place_equal(&want, &body->copies.at[source].place) &&
                  only_gradient(body->graph, info->grad, info->value) && runs_here(lo, info->grad);
    if (direct) {
        Copy *copy = &body->copies.at[source];
        copy->home = HOME_ACC;
        lower_widen(lo, source);
        copy->param = param;
        body->acc_copy[param] = source;
        return;
    }
    source = lower_deliver(lo, info->grad, &want);
    int acc = lower_copy(lo, info->grad, &want, HOME_ACC);
    body->copies.at[acc].param = param;
    body->acc_copy[param] = acc;
    Inst *inst = lower_inst(lo, INST_ACCUMULATE);
    inst->flow = FLOW_WEIGHT;
    inst->ins = inst->outs = 1;
    inst->in[0] = source;
    inst->out[0] = acc;
}

/* The copy of a forward value that survives until backward, chosen by the plan: one that forward
 * makes or a free view. */
static void save_value(Lowering *lo, ValueId id)
{
    Body *body = lo->body;
    const Placement *want = &body->plan->saved[id];
    int copy = lower_deliver(lo, id, want);
    Copy *saved = &body->copies.at[copy];
    if (saved->home == HOME_TEMP)
        saved->home = HOME_SAVED;
    else if (saved->home == HOME_OUT)
        copy = lower_own_copy(lo, id, copy, HOME_SAVED); /* the next link owns that buffer */
    vec_push(lo->arena, &lo->made[id]) = copy;
}

static bool is_saved(const Body *body, const bool *needed, ValueId id)
{
    const Value *value = &body->graph->values.at[id];
    return needed[id] && body->plan->keep[id] == KEEP_SAVED && value->kind == VALUE_NODE &&
           body->graph->nodes.at[value->made].seg == SEG_FORWARD;
}

/* Forward nodes that what the link hands on, the loss or a saved value depends on. The others are
 * for backward alone, which makes them anew. */
static bool *forward_runs(Lowering *lo, const bool *needed)
{
    const Graph *graph = lo->body->graph;
    bool *want = ARENA_ARRAY(lo->arena, bool, graph->values.n),
         *runs = ARENA_ARRAY(lo->arena, bool, graph->nodes.n);
    for (int v = 0; v < graph->values.n; v++)
        want[v] = v == graph->chain_out || is_saved(lo->body, needed, v);
    for (int k = 0; k < graph_losses(graph); k++)
        want[graph_loss(graph, k)] = true;
    for (int n = graph->nodes.n - 1; n >= 0; n--) {
        const Node *node = &graph->nodes.at[n];
        for (int k = 0; k < node->outs; k++)
            runs[n] = runs[n] || (node->seg == SEG_FORWARD && want[node->out[k]]);
        for (int k = 0; runs[n] && k < node->ins; k++)
            want[node->in[k]] = true;
    }
    return runs;
}

static void lower_forward(Lowering *lo, const bool *needed)
{
    Body *body = lo->body;
    const Graph *graph = body->graph;
    const bool *runs = forward_runs(lo, needed);
    lo->seg = SEG_FORWARD;
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        if (!runs[n])
            continue;
        emit_node(lo, n);
        /* a shard to keep is cut at once, so that the whole may go after its last reader */
        for (int k = 0; k < node->outs; k++) {
            ValueId id = node->out[k];
            const Copy *made = &body->copies.at[lo->have[id].at[0]];
            if (is_saved(body, needed, id) && id != graph->chain_out &&
                place_is_view(&made->place, &body->plan->saved[id]))
                save_value(lo, id);
        }
    }
    if (graph->chain_out != NONE) {
        body->out = lower_deliver(lo, graph->chain_out, &body->plan->boundary_out);
        if (body->copies.at[body->out].home != HOME_TEMP)
            BUG("class %s hands its input on unchanged", graph->name);
        body->copies.at[body->out].home = HOME_OUT;
    }
    for (int k = 0; k < graph_losses(graph); k++) {
        int id = body->loss[body->losses++] = lo->have[graph_loss(graph, k)].at[0];
        body->copies.at[id].home = HOME_ACC;
        body->copies.at[id].number = k;
        lower_widen(lo, id);
    }
    for (int v = 0; v < graph->values.n; v++)
        if (is_saved(body, needed, v) && lo->made[v].n == 0)
            save_value(lo, v);
    take_insts(lo, &body->forward);
}

static bool writes_in(const InstList *list, int copy)
{
    for (int i = 0; i < list->n; i++)
        for (int k = 0; k < list->at[i].outs; k++)
            if (list->at[i].out[k] == copy)
                return true;
    return false;
}

/* Does a node that makes gradients of weights alone read the value, or is it such a gradient? */
static bool read_by_weights(const Graph *graph, ValueId id)
{
    bool read = false;
    for (int n = 0; n < graph->nodes.n; n++)
        for (int k = 0; k < graph->nodes.at[n].ins && graph->nodes.at[n].flow == FLOW_WEIGHT; k++)
            read |= graph->nodes.at[n].in[k] == id;
    for (int p = 0; p < graph->params.n; p++)
        read |= graph->params.at[p].grad == id;
    return read;
}

/* Nodes of one segment's flows, and the accumulators that they feed. */
static void emit_backward(Lowering *lo, bool inputs, bool weights)
{
    const Graph *graph = lo->body->graph;
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        bool mine = !lo->split || (node->flow == FLOW_INPUT ? inputs : weights);
        if (node->seg != SEG_BACKWARD || !mine)
            continue;
        emit_node(lo, n);
        for (int p = 0; p < graph->params.n && weights; p++)
            for (int k = 0; k < node->outs; k++)
                if (graph->params.at[p].grad == node->out[k])
                    accumulate_gradient(lo, p);
    }
    for (int p = 0; p < graph->params.n && weights; p++)
        if (graph->params.at[p].grad != NONE && lo->body->acc_copy[p] == NONE)
            accumulate_gradient(lo, p);
}

static void hand_gradient_back(Lowering *lo)
{
    Body *body = lo->body;
    const Graph *graph = body->graph;
    if (graph->grad_out == NONE)
        return;
    int made = lower_deliver(lo, graph->grad_out, &body->plan->boundary_in);
    /* a link that only adds to its input hands its gradient on as it came, and what W reads again
     * must not lie in a buffer that is sent and then taken by others */
    bool again = lo->split && read_by_weights(graph, graph->grad_out);
    if (body->copies.at[made].home == HOME_TEMP && !again)
        body->copies.at[made].home = HOME_GRAD_OUT;
    else
        made = lower_own_copy(lo, graph->grad_out, made, HOME_GRAD_OUT);
    body->grad_out = made;
}

/* Parameters and data are what they were at the start, whatever was moved since. */
static void forget_moved(Lowering *lo)
{
    const Graph *graph = lo->body->graph;
    for (int v = 0; v < graph->values.n; v++) {
        const Value *value = &graph->values.at[v];
        if (value->kind != VALUE_NODE && value->kind != VALUE_GRAD_IN)
            lo->have[v].n = lo->have[v].n > 0 ? 1 : 0;
    }
}

/* W after I: what it reads of I lives on, and so does what it reads of forward. */
static void keep_for_weights(Body *body)
{
    for (int i = 0; i < body->weight.n; i++)
        for (int k = 0; k < body->weight.at[i].ins; k++) {
            int id = body->weight.at[i].in[k];
            Copy *copy = &body->copies.at[id];
            body->saves_in_late |= copy->home == HOME_IN;
            body->saves_grad_in |= copy->home == HOME_GRAD_IN;
            if (copy->home == HOME_SAVED)
                copy->home = HOME_SAVED_W;
            else if (copy->home == HOME_TEMP && writes_in(&body->backward, id))
                copy->home = HOME_SAVED_IW;
        }
}

static void lower_backward(Lowering *lo, const bool *needed)
{
    Body *body = lo->body;
    const Graph *graph = body->graph;
    lo->seg = SEG_BACKWARD;
    for (int v = 0; v < graph->values.n; v++)
        if (graph->values.at[v].kind == VALUE_NODE)
            lo->have[v] = lo->made[v];
    forget_moved(lo);
    body->saves_in = graph->chain_in != NONE && needed[graph->chain_in];
    if (graph->grad_in != NONE) {
        body->grad_in = lower_copy(lo, graph->grad_in, &body->plan->boundary_out, HOME_GRAD_IN);
        lower_remember(lo, graph->grad_in, body->grad_in);
    }
    emit_backward(lo, true, !lo->split);
    hand_gradient_back(lo);
    take_insts(lo, &body->backward);
    if (!lo->split)
        return;
    forget_moved(lo);
    emit_backward(lo, false, true);
    take_insts(lo, &body->weight);
    keep_for_weights(body);
}

/* Ids, labels and weights are read by the rows of the data-parallel ranks. Whatever else the chain
 * cuts tokens by is a free slice of that: other ranks read the same rows. */
static Placement data_place(const Body *body)
{
    Placement data = place_replicate();
    data.shard[0] = class_rows(body->graph, body->plan, body->mesh);
    return data;
}

/* What stands must be right after every pass: a fault here is ours. */
static void verify_pass(const Body *body, Passes *passes, LowerPass pass)
{
    Arena *scratch = arena_new("verify");
    Diag *diag = diag_new(scratch);
    if (!body_verify(body, diag))
        BUG("after %s: %s", pass_text[pass], diag_item(diag, 0)->text);
    arena_free(scratch);
    Str *dump = pass_dump(passes, pass, body->graph->name);
    if (dump)
        body_put_text(dump, body);
}

Body *body_lower(Arena *arena, const Net *net, const Graph *graph, const ClassPlan *plan,
                 const Mesh *mesh, const Recipe *recipe, const MovePrice *price, bool split)
{
    return body_lower_passes(arena, net, graph, plan, mesh, recipe, price, split, NULL);
}

Body *body_lower_passes(Arena *arena, const Net *net, const Graph *graph, const ClassPlan *plan,
                        const Mesh *mesh, const Recipe *recipe, const MovePrice *price, bool split,
                        Passes *passes)
{
    Body *body = ARENA_NEW(arena, Body);
    *body = (Body){.net = net,
                   .graph = graph,
                   .plan = plan,
                   .mesh = class_mesh(plan, mesh),
                   .recipe = recipe,
                   .in = NONE,
                   .out = NONE,
                   .grad_in = NONE,
                   .grad_out = NONE};
    body->param_copy = ARENA_ARRAY(arena, int, graph->params.n + 1);
    body->acc_copy = ARENA_ARRAY(arena, int, graph->params.n + 1);
    Lowering lo = {.arena = arena,
                   .body = body,
                   .paths = path_table_new(arena, body->mesh, net, price),
                   .split = split};
    lo.have = ARENA_ARRAY(arena, CopySet, graph->values.n);
    lo.made = ARENA_ARRAY(arena, CopySet, graph->values.n);
    Placement data = data_place(body);
    for (int v = 0; v < graph->values.n; v++) {
        const Value *value = &graph->values.at[v];
        if (value->kind == VALUE_DATA) {
            lower_remember(&lo, v, lower_copy(&lo, v, &data, HOME_DATA));
        } else if (value->kind == VALUE_PARAM) {
            int copy = lower_copy(&lo, v, &plan->home[value->out], HOME_PARAM);
            body->copies.at[copy].param = value->out;
            body->param_copy[value->out] = copy;
            body->acc_copy[value->out] = NONE;
            lower_remember(&lo, v, copy);
        } else if (value->kind == VALUE_CHAIN_IN) {
            body->in = lower_copy(&lo, v, &plan->boundary_in, HOME_IN);
            lower_remember(&lo, v, body->in);
        }
    }
    pass_begin(passes, PASS_PLACE);
    bool *needed = ARENA_ARRAY(arena, bool, graph->values.n + 1);
    while (plan_grow_needed(graph, plan, needed))
        continue;
    lower_forward(&lo, needed);
    lower_backward(&lo, needed);
    body_explain(arena, body);
    verify_pass(body, passes, PASS_PLACE);
    if (pass_begin(passes, PASS_FUSE)) {
        body_fuse(arena, body);
        verify_pass(body, passes, PASS_FUSE);
    }
    if (pass_begin(passes, PASS_ORDER)) {
        body_order(body, price->cluster);
        verify_pass(body, passes, PASS_ORDER);
    }
    if (pass_begin(passes, PASS_TEMPS)) {
        body_place_temps(body);
        verify_pass(body, passes, PASS_TEMPS);
    }
    return body;
}
