/* grad.c - reverse mode as graph building: one rule per gradient family of ops.def.
 *
 * Backward is ordinary Graph. A value's terms are added as soon as the second one arrives, before
 * anybody reads the sum, so that a placement may add them while they are Partial. An op's gradient
 * for activations comes before that for its weights: what the previous link waits for goes first.
 */
#include <string.h>

#include "ir/sig.h"

enum { SEED = -2 }; /* the gradient of the loss: an implicit scalar 1 that no node makes */

typedef struct Backward {
    Graph *graph;
    int forward;   /* number of forward nodes */
    ValueId *grad; /* per forward value: its gradient so far, NONE or SEED */
    bool *needs;   /* per forward value: a parameter or the chain's input reaches it */
} Backward;

/* Name of a new node that makes a gradient of the value. */
static const char *grad_name(const Backward *b, ValueId of)
{
    const char *stem = arena_printf(b->graph->arena, "d.%s", b->graph->values.at[of].name);
    return graph_fresh_name(b->graph, stem);
}

static const char *letters(Backward *b, const SigText *sig, int operand)
{
    return arena_strndup(b->graph->arena, sig->letter[operand], (size_t)sig->axes[operand]);
}

static const char *value_letters(Backward *b, ValueId id)
{
    const Value *value = &b->graph->values.at[id];
    char text[MAX_AXES];
    for (int a = 0; a < value->axes; a++)
        text[a] = b->graph->net->dims.at[value->dim[a]].letter;
    return arena_strndup(b->graph->arena, text, (size_t)value->axes);
}

static ValueId emit(Backward *b, OpId op, const char *name, const char *sig, const Attrs *attrs,
                    const ValueId *in, int ins)
{
    return graph_out(b->graph, graph_node(b->graph, op, name, sig, attrs, in, ins));
}

static void add_term(Backward *b, ValueId of, ValueId term)
{
    if (!b->needs[of])
        return;
    if (b->grad[of] == NONE) {
        b->grad[of] = term;
        return;
    }
    if (term == SEED || b->grad[of] == SEED)
        BUG("the loss of %s is used twice", b->graph->name);
    const char *l = value_letters(b, of);
    const char *sig = arena_printf(b->graph->arena, "%s,%s->%s", l, l, l);
    const char *stem = arena_printf(b->graph->arena, "d.%s.sum", b->graph->values.at[of].name);
    b->grad[of] = emit(b, OP_ADD, graph_fresh_name(b->graph, stem), sig, NULL,
                       (ValueId[]){b->grad[of], term}, 2);
}

/* The rules. Each gets a copy of the node (emitting moves the array) and the gradient dy of output
 * 0. */
static ValueId not_seed(const Backward *b, const Node *node, ValueId dy)
{
    if (dy == SEED)
        BUG("the loss of %s must be made by an einsum, not by %s", b->graph->name,
            op_info[node->op].text);
    return dy;
}

/* Which of two operands goes first in a product that makes `target`: the one whose letters lead
 * there, so that the product of two matrices stays one without a transposed result. */
static bool leads(const char *target, const char *a, const char *b, bool otherwise)
{
    for (; *target; target++) {
        bool in_a = strchr(a, *target) != NULL, in_b = strchr(b, *target) != NULL;
        if (in_a != in_b)
            return in_a;
    }
    return otherwise;
}

static void grad_einsum(Backward *b, const Node *node, ValueId dy)
{
    SigText sig = sig_of_node(b->graph, node);
    if (node->ins != 2)
        BUG("node %s: only an einsum of two operands has a gradient", node->name);
    const char *in[2] = {letters(b, &sig, 0), letters(b, &sig, 1)};
    const char *out = letters(b, &sig, MAX_IN);
    for (int i = 0; i < 2; i++) {
        ValueId of = node->in[i], other = node->in[1 - i];
        if (!b->needs[of])
            continue;
        if (dy == SEED) {
            if (strcmp(in[0], in[1]) != 0)
                BUG("node %s: the operands of the loss differ in shape", node->name);
            add_term(b, of, other);
            continue;
        }
        const char *target = in[i], *known = in[1 - i];
        bool dy_first = leads(target, out, known, i == 0);
        const char *text = dy_first
                               ? arena_printf(b->graph->arena, "%s,%s->%s", out, known, target)
                               : arena_printf(b->graph->arena, "%s,%s->%s", known, out, target);
        ValueId operands[2] = {dy_first ? dy : other, dy_first ? other : dy};
        add_term(b, of, emit(b, OP_EINSUM, grad_name(b, of), text, NULL, operands, 2));
    }
}

static void grad_add(Backward *b, const Node *node, ValueId dy)
{
    add_term(b, node->in[0], dy);
    add_term(b, node->in[1], dy);
}

static void grad_bias(Backward *b, const Node *node, ValueId dy)
{
    not_seed(b, node, dy);
    SigText sig = sig_of_node(b->graph, node);
    add_term(b, node->in[0], dy);
    ValueId of = node->in[1];
    if (!b->needs[of])
        return;
    if (sig.axes[0] == sig.axes[1]) {
        add_term(b, of, dy);
        return;
    }
    const char *text =
        arena_printf(b->graph->arena, "%s->%s", letters(b, &sig, MAX_IN), letters(b, &sig, 1));
    add_term(b, of, emit(b, OP_REDUCE, grad_name(b, of), text, NULL, &dy, 1));
}

/* One operand's gradient by a pointwise op of (first, second). */
static void pointwise(Backward *b, OpId op, const Node *node, int operand, const Attrs *attrs,
                      ValueId first, ValueId second)
{
    ValueId of = node->in[operand];
    if (!b->needs[of])
        return;
    SigText sig = sig_of_node(b->graph, node);
    const char *l = letters(b, &sig, MAX_IN);
    const char *text = second == NONE ? arena_printf(b->graph->arena, "%s->%s", l, l)
                                      : arena_printf(b->graph->arena, "%s,%s->%s", l, l, l);
    add_term(b, of,
             emit(b, op, grad_name(b, of), text, attrs, (ValueId[]){first, second},
                  second == NONE ? 1 : 2));
}

static void grad_mul(Backward *b, const Node *node, ValueId dy)
{
    not_seed(b, node, dy);
    pointwise(b, OP_MUL, node, 0, NULL, dy, node->in[1]);
    pointwise(b, OP_MUL, node, 1, NULL, dy, node->in[0]);
}

static void grad_scale(Backward *b, const Node *node, ValueId dy)
{
    pointwise(b, OP_SCALE, node, 0, &node->attrs, not_seed(b, node, dy), NONE);
}

static void grad_act(Backward *b, const Node *node, ValueId dy)
{
    pointwise(b, OP_ACT_GRAD, node, 0, &node->attrs, node->in[0], not_seed(b, node, dy));
}

static void grad_curve(Backward *b, const Node *node, ValueId dy)
{
    pointwise(b, OP_CURVE_GRAD, node, 0, &node->attrs, node->in[0], not_seed(b, node, dy));
}

/* Its own inverse turn, of the same positions. */
static void grad_rope(Backward *b, const Node *node, ValueId dy)
{
    if (!b->needs[node->in[0]])
        return;
    Attrs attrs = node->attrs;
    attrs.rope.inverse = !attrs.rope.inverse;
    SigText sig = sig_of_node(b->graph, node);
    Str text = str_new(b->graph->arena);
    sig_put(&text, &sig);
    add_term(b, node->in[0],
             emit(b, OP_ROPE, grad_name(b, node->in[0]), text.at, &attrs,
                  (ValueId[]){not_seed(b, node, dy), node->in[1]}, node->ins));
}

static void grad_temper(Backward *b, const Node *node, ValueId dy)
{
    pointwise(b, OP_TEMPER, node, 0, &node->attrs, not_seed(b, node, dy), NONE);
}

static void grad_norm(Backward *b, const Node *node, ValueId dy)
{
    not_seed(b, node, dy);
    SigText sig = sig_of_node(b->graph, node);
    const char *x = letters(b, &sig, 0), *g = letters(b, &sig, 1);
    if (b->needs[node->in[0]])
        add_term(b, node->in[0],
                 emit(b, OP_NORM_DX, grad_name(b, node->in[0]),
                      arena_printf(b->graph->arena, "%s,%s,%s->%s", x, g, x, x), &node->attrs,
                      (ValueId[]){node->in[0], node->in[1], dy}, 3));
    if (b->needs[node->in[1]])
        add_term(b, node->in[1],
                 emit(b, OP_NORM_DG, grad_name(b, node->in[1]),
                      arena_printf(b->graph->arena, "%s,%s->%s", x, x, g), &node->attrs,
                      (ValueId[]){node->in[0], dy}, 2));
}

/* The gradient by the log-sum-exp l enters every score like -delta: d score = p (do.v - delta +
 * dl).
 */
static ValueId attention_delta(Backward *b, const Node *node, ValueId dy)
{
    Graph *graph = b->graph;
    SigText sig = sig_of_node(graph, node);
    const char *o = letters(b, &sig, MAX_IN), *l = letters(b, &sig, MAX_IN + 1);
    ValueId dl = b->grad[node->out[1]];
    const char *name = graph_fresh_name(graph, arena_printf(graph->arena, "delta.%s", node->name));
    ValueId delta = emit(b, OP_EINSUM, name, arena_printf(graph->arena, "%s,%s->%s", o, o, l), NULL,
                         (ValueId[]){node->out[0], dy}, 2);
    if (dl == NONE)
        return delta;
    Attrs minus = {.scale = {.factor = -1}};
    ValueId less =
        emit(b, OP_SCALE, graph_fresh_name(graph, arena_printf(graph->arena, "%s.less", name)),
             arena_printf(graph->arena, "%s->%s", l, l), &minus, &dl, 1);
    return emit(b, OP_ADD, graph_fresh_name(graph, arena_printf(graph->arena, "%s.all", name)),
                arena_printf(graph->arena, "%s,%s->%s", l, l, l), NULL, (ValueId[]){delta, less},
                2);
}

static void grad_attention(Backward *b, const Node *node, ValueId dy)
{
    not_seed(b, node, dy);
    Graph *graph = b->graph;
    SigText sig = sig_of_node(graph, node);
    const char *in[MAX_IN], *o = letters(b, &sig, MAX_IN), *l = letters(b, &sig, MAX_IN + 1);
    Str extra = str_new(graph->arena);
    ValueId operand[MAX_IN] = {node->in[0], node->in[1], node->in[2], dy, node->out[1], NONE};
    for (int i = 0; i < node->ins; i++) {
        in[i] = letters(b, &sig, i);
        if (i < 3)
            continue;
        operand[i + 3] = node->in[i];
        str_putf(&extra, ",%s", in[i]);
    }
    operand[5] = attention_delta(b, node, dy);
    const char *text = arena_printf(graph->arena, "%s,%s,%s,%s,%s,%s%s->%s,%s,%s", in[0], in[1],
                                    in[2], o, l, l, extra.at, in[0], in[1], in[2]);
    NodeId made =
        graph_node(graph, OP_ATTENTION_GRAD,
                   graph_fresh_name(graph, arena_printf(graph->arena, "grad.%s", node->name)), text,
                   &node->attrs, operand, node->ins + 3);
    ValueId out[3];
    memcpy(out, graph->nodes.at[made].out, sizeof out);
    for (int i = 0; i < 3; i++)
        add_term(b, node->in[i], out[i]);
}

/* What forward counted for the parameter, as a value of backward. */
static ValueId seed_grad(Backward *b, ValueId of)
{
    const char *l = value_letters(b, of);
    Attrs same = {.scale = {.factor = 1}};
    return emit(b, OP_SCALE, grad_name(b, of), arena_printf(b->graph->arena, "%s->%s", l, l), &same,
                &b->grad[of], 1);
}

static ValueId zero_grad(Backward *b, ValueId of)
{
    return emit(b, OP_ZEROS, grad_name(b, of),
                arena_printf(b->graph->arena, "->%s", value_letters(b, of)), NULL, NULL, 0);
}

/* Letters of all parts, comma-separated: outputs of a split, operands of a stack. */
static const char *part_list(Backward *b, const SigText *sig, int first, int count)
{
    Str text = str_new(b->graph->arena);
    for (int i = 0; i < count; i++)
        str_putf(&text, "%s%s", i > 0 ? "," : "", letters(b, sig, first + i));
    return text.at;
}

static void grad_split(Backward *b, const Node *node, ValueId dy)
{
    not_seed(b, node, dy);
    SigText sig = sig_of_node(b->graph, node);
    ValueId part[MAX_OUT];
    for (int i = 0; i < node->outs; i++) {
        part[i] = b->grad[node->out[i]];
        if (part[i] == NONE)
            part[i] = zero_grad(b, node->out[i]);
    }
    const char *text = arena_printf(b->graph->arena, "%s->%s",
                                    part_list(b, &sig, MAX_IN, node->outs), letters(b, &sig, 0));
    add_term(b, node->in[0],
             emit(b, OP_STACK, grad_name(b, node->in[0]), text, NULL, part, node->outs));
}

static void grad_stack(Backward *b, const Node *node, ValueId dy)
{
    not_seed(b, node, dy);
    SigText sig = sig_of_node(b->graph, node);
    const char *name[MAX_OUT] = {0};
    for (int i = 0; i < node->ins; i++) {
        name[i] = grad_name(b, node->in[i]);
        for (int j = 0; j < i; j++) {
            if (strcmp(name[i], name[j]) == 0)
                name[i] = arena_printf(b->graph->arena, "%s.p%d", name[i], i);
        }
    }
    const char *text = arena_printf(b->graph->arena, "%s->%s", letters(b, &sig, MAX_IN),
                                    part_list(b, &sig, 0, node->ins));
    NodeId made = graph_node_named(b->graph, OP_SPLIT, name, text, NULL, &dy, 1);
    ValueId out[MAX_OUT];
    memcpy(out, b->graph->nodes.at[made].out, sizeof out);
    for (int i = 0; i < node->ins; i++)
        add_term(b, node->in[i], out[i]);
}

/* Sums and copies along letters are each other's gradients. */
static void resized(Backward *b, OpId op, const Node *node, int operand, ValueId dy)
{
    SigText sig = sig_of_node(b->graph, node);
    ValueId of = node->in[operand];
    if (!b->needs[of])
        return;
    const char *text = arena_printf(b->graph->arena, "%s->%s", letters(b, &sig, MAX_IN),
                                    letters(b, &sig, operand));
    add_term(b, of, emit(b, op, grad_name(b, of), text, NULL, &dy, 1));
}

static void grad_reduce(Backward *b, const Node *node, ValueId dy)
{
    resized(b, OP_BROADCAST, node, 0, not_seed(b, node, dy));
}

static void grad_broadcast(Backward *b, const Node *node, ValueId dy)
{
    resized(b, OP_REDUCE, node, 0, not_seed(b, node, dy));
}

static void grad_vsum(Backward *b, const Node *node, ValueId dy)
{
    resized(b, OP_VFILL, node, 0, not_seed(b, node, dy));
}

static void grad_lookup(Backward *b, const Node *node, ValueId dy)
{
    not_seed(b, node, dy);
    SigText sig = sig_of_node(b->graph, node);
    const char *text = arena_printf(b->graph->arena, "%s,%s->%s", letters(b, &sig, 0),
                                    letters(b, &sig, MAX_IN), letters(b, &sig, 1));
    add_term(b, node->in[1],
             emit(b, OP_SCATTER, grad_name(b, node->in[1]), text, NULL,
                  (ValueId[]){node->in[0], dy}, 2));
}

static void grad_constant(Backward *b, const Node *node, ValueId dy)
{
    (void)b;
    (void)node;
    (void)dy;
}

/* z = sum exp(x - m): dx = exp(x - m) dz. m is a constant: it cancels in the loss. */
static void grad_sumexp(Backward *b, const Node *node, ValueId dy)
{
    not_seed(b, node, dy);
    SigText sig = sig_of_node(b->graph, node);
    const char *x = letters(b, &sig, 0), *row = letters(b, &sig, 1);
    add_term(b, node->in[0],
             emit(b, OP_EXPMUL, grad_name(b, node->in[0]),
                  arena_printf(b->graph->arena, "%s,%s,%s->%s", x, row, row, x), NULL,
                  (ValueId[]){node->in[0], node->in[1], dy}, 3));
}

static void grad_pick(Backward *b, const Node *node, ValueId dy)
{
    not_seed(b, node, dy);
    SigText sig = sig_of_node(b->graph, node);
    const char *row = letters(b, &sig, 0);
    add_term(b, node->in[1],
             emit(b, OP_ONEHOT, grad_name(b, node->in[1]),
                  arena_printf(b->graph->arena, "%s,%s->%s", row, row, letters(b, &sig, 1)), NULL,
                  (ValueId[]){node->in[0], dy}, 2));
}

static void grad_softmax(Backward *b, const Node *node, ValueId dy)
{
    pointwise(b, OP_SOFTMAX_GRAD, node, 0, NULL, node->out[0], not_seed(b, node, dy));
}

static void grad_take(Backward *b, const Node *node, ValueId dy)
{
    not_seed(b, node, dy);
    SigText sig = sig_of_node(b->graph, node);
    const char *choice = letters(b, &sig, 0);
    const char *text =
        arena_printf(b->graph->arena, "%s,%s->%s", choice, choice, letters(b, &sig, 1));
    add_term(
        b, node->in[1],
        emit(b, OP_SPREAD, grad_name(b, node->in[1]), text, NULL, (ValueId[]){node->in[0], dy}, 2));
}

/* y[A k C] = sum over B of x[A (k) B] w[choice[A k], B C]: by x the same with the weights turned
 * round, then summed over the choices when one x serves them all. */
static void grad_expert(Backward *b, const Node *node, ValueId dy)
{
    not_seed(b, node, dy);
    Arena *arena = b->graph->arena;
    SigText sig = sig_of_node(b->graph, node);
    const char *choice = letters(b, &sig, 0), *x = letters(b, &sig, 1);
    const char *w = letters(b, &sig, 2), *y = letters(b, &sig, MAX_IN);
    size_t tokens = strlen(choice) - 1;
    bool shared = x[tokens] != choice[tokens];
    if (b->needs[node->in[1]]) {
        const char *per = shared ? arena_printf(arena, "%s%s", choice, x + tokens) : x;
        const char *name = grad_name(b, node->in[1]);
        if (shared)
            name = graph_fresh_name(b->graph, arena_printf(arena, "%s.each", name));
        ValueId dx =
            emit(b, OP_EXPERT, name, arena_printf(arena, "%s,%s,%s->%s", choice, y, w, per), NULL,
                 (ValueId[]){node->in[0], dy, node->in[2]}, 3);
        if (shared)
            dx = emit(b, OP_REDUCE, grad_name(b, node->in[1]),
                      arena_printf(arena, "%s->%s", per, x), NULL, &dx, 1);
        add_term(b, node->in[1], dx);
    }
    if (b->needs[node->in[2]])
        add_term(b, node->in[2],
                 emit(b, OP_EXPERT_DW, grad_name(b, node->in[2]),
                      arena_printf(arena, "%s,%s,%s->%s", choice, y, x, w), NULL,
                      (ValueId[]){node->in[0], dy, node->in[1]}, 3));
}

/* nll(z, m, p) = log z + m - p. */
static void grad_nll(Backward *b, const Node *node, ValueId dy)
{
    not_seed(b, node, dy);
    pointwise(b, OP_DIV, node, 0, NULL, dy, node->in[0]);
    Attrs minus = {.scale = {.factor = -1}};
    pointwise(b, OP_SCALE, node, 2, &minus, dy, NONE);
}

static void grad_none(Backward *b, const Node *node, ValueId dy)
{
    (void)dy;
    BUG("node %s of %s: %s has no gradient", node->name, b->graph->name, op_info[node->op].text);
}

static void grad_node(Backward *b, const Node *node, ValueId dy)
{
    switch (node->op) {
#define OP(id, text, pattern, attrs, linear, nosplit, base, monoid, grad, form)                    \
    case OP_##id:                                                                                  \
        grad_##grad(b, node, dy);                                                                  \
        return;
#include "ir/ops.def"
#undef OP
    case OP_COUNT:
        return;
    }
}

static bool is_constant(OpId op)
{
    return str_eq(op_info[op].grad, "constant");
}

static void find_needs(Backward *b)
{
    const Graph *graph = b->graph;
    for (int v = 0; v < graph->values.n; v++) {
        ValueKind kind = graph->values.at[v].kind;
        const Param *param =
            kind == VALUE_PARAM ? &graph->params.at[graph->values.at[v].out] : NULL;
        bool trained = param && !param->frozen && param->rate == 0;
        b->needs[v] = trained || kind == VALUE_CHAIN_IN;
    }
    for (int n = 0; n < b->forward; n++) {
        const Node *node = &graph->nodes.at[n];
        bool needs = false;
        for (int i = 0; i < node->ins; i++)
            needs = needs || b->needs[node->in[i]];
        for (int o = 0; o < node->outs; o++)
            b->needs[node->out[o]] = needs && !is_constant(node->op);
    }
}

void graph_mark_flow(Graph *graph)
{
    bool *reaches = ARENA_ARRAY(graph->arena, bool, graph->values.n);
    if (graph->grad_out != NONE)
        reaches[graph->grad_out] = true;
    for (int n = graph->nodes.n - 1; n >= 0; n--) {
        Node *node = &graph->nodes.at[n];
        if (node->seg == SEG_FORWARD) {
            node->flow = FLOW_FORWARD;
            continue;
        }
        bool input = false;
        for (int o = 0; o < node->outs; o++)
            input = input || reaches[node->out[o]];
        node->flow = input ? FLOW_INPUT : FLOW_WEIGHT;
        for (int i = 0; input && i < node->ins; i++)
            reaches[node->in[i]] = true;
    }
}

void graph_differentiate(Graph *graph)
{
    if (graph->grad_in != NONE || graph->grad_out != NONE)
        BUG("%s is differentiated twice", graph->name);
    if (graph->chain_out != NONE) {
        Value out = graph->values.at[graph->chain_out];
        graph_value(graph, VALUE_GRAD_IN, graph_fresh_name(graph, "grad_in"), out.axes, out.dim);
    }
    Backward b = {.graph = graph, .forward = graph->nodes.n};
    int values = graph->values.n;
    b.grad = ARENA_ARRAY(graph->arena, ValueId, values);
    b.needs = ARENA_ARRAY(graph->arena, bool, values);
    for (int v = 0; v < values; v++)
        b.grad[v] = NONE;
    find_needs(&b);
    if (graph->chain_out != NONE)
        b.grad[graph->chain_out] = graph->grad_in;
    if (graph->loss != NONE)
        b.grad[graph->loss] = SEED;
    for (int i = 0; i < graph->seeds.n; i++) {
        if (b.grad[graph->seeds.at[i].of] != NONE)
            BUG("%s has two seeds on one value", graph->name);
        b.grad[graph->seeds.at[i].of] = graph->seeds.at[i].by;
    }
    for (int n = b.forward - 1; n >= 0; n--) {
        Node node = graph->nodes.at[n];
        ValueId dy = NONE;
        for (int o = 0; o < node.outs; o++) {
            if (dy == NONE && b.needs[node.out[o]])
                dy = b.grad[node.out[o]];
        }
        if (dy == NONE)
            continue;
        if (node.op == OP_ATTENTION && b.grad[node.out[0]] == NONE)
            BUG("node %s: only the log-sum-exp of attention is used", node.name);
        grad_node(&b, &node, dy);
    }
    for (int p = 0; p < graph->params.n; p++) {
        Param *param = &graph->params.at[p];
        param->grad = param->frozen     ? zero_grad(&b, param->value)
                      : param->rate > 0 ? seed_grad(&b, param->value)
                                        : b.grad[param->value];
    }
    for (int n = b.forward; n < graph->nodes.n; n++)
        graph->nodes.at[n].seg = SEG_BACKWARD;
    if (graph->chain_in != NONE)
        graph->grad_out = b.grad[graph->chain_in];
    graph_mark_flow(graph);
}
