/* graph_verify.c - every invariant of graph.h and of the op table, checked from scratch. */
#include <math.h>
#include <string.h>

#include "ir/sig.h"

typedef struct Verifier {
    const Net *net;
    const Graph *graph; /* NULL outside classes */
    Diag *diag;
    bool fine;
} Verifier;

static void fault(Verifier *v, const char *format, ...) LP_PRINTF(2, 3);

static void fault(Verifier *v, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = arena_vprintf(v->net->arena, format, args);
    va_end(args);
    v->fine = false;
    if (v->graph)
        diag_error(v->diag, NO_SPAN, "%s: %s", v->graph->name, text);
    else
        diag_error(v->diag, NO_SPAN, "%s", text);
}

static bool is_value(const Verifier *v, ValueId id)
{
    return id >= 0 && id < v->graph->values.n;
}

/* Of a value known to exist. */
static const char *name_of(const Verifier *v, ValueId id)
{
    return v->graph->values.at[id].name;
}

static bool same_shape(const Value *a, const Value *b)
{
    return a->axes == b->axes && memcmp(a->dim, b->dim, (size_t)a->axes * sizeof *a->dim) == 0;
}

static void verify_dims(Verifier *v)
{
    const Net *net = v->net;
    int batches = 0, sequences = 0;
    for (int i = 0; i < net->dims.n; i++) {
        const Dim *dim = &net->dims.at[i];
        bool small = dim->letter >= 'a' && dim->letter <= 'z' && dim->letter != 't';
        bool big = dim->letter >= 'A' && dim->letter <= 'Z';
        if (!dim->name || !name_is_identifier(dim->name, false))
            fault(v, "dim %d has a name that is no identifier", i);
        if (!small && !big)
            fault(v, "dim %s has no letter of its own", dim->name);
        if (dim->extent < 1 || dim->extent > INT64_C(1) << 40)
            fault(v, "dim %s has extent %lld", dim->name, (long long)dim->extent);
        if (dim->used < 1 || dim->used > dim->extent)
            fault(v, "dim %s uses %lld of %lld", dim->name, (long long)dim->used,
                  (long long)dim->extent);
        batches += dim->kind == DIM_BATCH && i == net->batch;
        sequences += dim->kind == DIM_SEQUENCE && i == net->sequence;
        if (dim->kind == DIM_ROUTED && (dim->among < 0 || dim->among >= net->dims.n ||
                                        net->dims.at[dim->among].kind != DIM_OTHER))
            fault(v, "dim %s chooses among no dim", dim->name);
        if (dim->kind < DIM_OTHER && i != net->batch && i != net->sequence)
            fault(v, "dim %s is a second batch or sequence", dim->name);
        for (int j = 0; j < i; j++) {
            if (str_eq(net->dims.at[j].name, dim->name))
                fault(v, "two dims are called %s", dim->name);
            if (net->dims.at[j].letter == dim->letter)
                fault(v, "dims %s and %s share letter %c", net->dims.at[j].name, dim->name,
                      dim->letter);
        }
    }
    if (batches != 1 || sequences != 1)
        fault(v, "the net needs one batch dim and one sequence dim");
}

static void verify_made(Verifier *v, ValueId id, const Value *value)
{
    const Graph *graph = v->graph;
    if (value->kind != VALUE_NODE) {
        if (value->made != NONE)
            fault(v, "value %s is made by a node, but is no node's value", value->name);
        return;
    }
    bool made = value->made >= 0 && value->made < graph->nodes.n;
    const Node *node = made ? &graph->nodes.at[value->made] : NULL;
    if (!made || value->out < 0 || value->out >= node->outs || node->out[value->out] != id) {
        fault(v, "value %s is not the output of its node", value->name);
        return;
    }
    if ((value->number == NUM_INDEX) != op_makes_index(node->op))
        fault(v, "value %s has the wrong kind of number", value->name);
}

/* Values that no node makes are known to the graph in exactly one place. */
static void verify_role(Verifier *v, ValueId id, const Value *value)
{
    const Graph *graph = v->graph;
    bool known = true;
    switch (value->kind) {
    case VALUE_DATA:
        known = value->out >= 0 && value->out < DATA_COUNT && graph->data[value->out] == id;
        if (known && (value->number == NUM_INDEX) == data_is_weight(value->out))
            fault(v, "data value %s has the wrong kind of number", value->name);
        break;
    case VALUE_PARAM:
        known = value->out >= 0 && value->out < graph->params.n &&
                graph->params.at[value->out].value == id && value->number == NUM_FLOAT;
        break;
    case VALUE_CHAIN_IN:
        known = graph->chain_in == id;
        break;
    case VALUE_GRAD_IN:
        known = graph->grad_in == id;
        break;
    case VALUE_NODE:
        break;
    case VALUE_INPUT:
        known = false; /* the optimizer's graphs have them, and no place in a net */
        break;
    }
    if (!known)
        fault(v, "the graph does not know value %s in its role", value->name);
}

static void verify_values(Verifier *v)
{
    const Graph *graph = v->graph;
    for (int i = 0; i < graph->values.n; i++) {
        const Value *value = &graph->values.at[i];
        if (!value->name || !name_is_identifier(value->name, true)) {
            fault(v, "value %d has a name that is no identifier", i);
            continue;
        }
        if (value->axes < 0 || value->axes > MAX_AXES) {
            fault(v, "value %s has %d axes", value->name, value->axes);
            continue;
        }
        for (int a = 0; a < value->axes; a++) {
            if (value->dim[a] < 0 || value->dim[a] >= v->net->dims.n)
                fault(v, "axis %d of value %s has no dim", a, value->name);
        }
        for (int j = 0; j < i; j++) {
            if (str_eq(graph->values.at[j].name, value->name))
                fault(v, "two values are called %s", value->name);
        }
        verify_made(v, i, value);
        verify_role(v, i, value);
    }
}

/* The signature, made again from its own letters. */
static void verify_sig(Verifier *v, const Node *node)
{
    const Graph *graph = v->graph;
    const Sig *sig = &node->sig;
    if (sig->letters < 0 || sig->letters > MAX_LETTERS) {
        fault(v, "node %s has %d letters", node->name, sig->letters);
        return;
    }
    for (int o = 0; o < node->ins + node->outs; o++) {
        bool input = o < node->ins;
        const int8_t *letter = input ? sig->in[o] : sig->out[o - node->ins];
        int axes = graph->values.at[input ? node->in[o] : node->out[o - node->ins]].axes;
        for (int a = 0; a < axes; a++) {
            if (letter[a] < 0 || letter[a] >= sig->letters) {
                fault(v, "node %s uses a letter it does not have", node->name);
                return;
            }
        }
    }
    Str text = str_new(graph->arena);
    graph_put_sig(&text, graph, node);
    SigText parts;
    Sig again;
    const char *why =
        graph_node_fault(graph, node->op, text.at, node->in, node->ins, &parts, &again);
    if (why) {
        fault(v, "node %s: %s", node->name, why);
        return;
    }
    if (memcmp(&again, sig, sizeof again) != 0)
        fault(v, "node %s: its signature is not the one its text means", node->name);
    for (int o = 0; o < node->outs; o++) {
        const Value *value = &graph->values.at[node->out[o]];
        for (int a = 0; a < value->axes; a++) {
            if (value->dim[a] != again.dim[again.out[o][a]])
                fault(v, "axis %d of %s is not the dim its letter has", a, value->name);
        }
    }
    if (node->op == OP_SPLIT || node->op == OP_STACK) {
        int64_t extent[MAX_LETTERS], sum = 0, whole;
        for (int l = 0; l < sig->letters; l++)
            extent[l] = letter_extent(v->net, node, l);
        for (int p = 0; p < (node->op == OP_SPLIT ? node->outs : node->ins); p++)
            sum += part_extent(graph, node, p, extent);
        whole = extent[split_letter(graph, node)];
        if (sum != whole)
            fault(v, "node %s has parts of %lld together, its letter has %lld", node->name,
                  (long long)sum, (long long)whole);
    }
    if (!node_attrs_fine(graph, node))
        fault(v, "node %s has attributes out of range", node->name);
}

static bool check_node_ids(Verifier *v, NodeId id, const Node *node)
{
    if (node->op < 0 || node->op >= OP_COUNT) {
        fault(v, "node %d has no op", id);
        return false;
    }
    if (node->ins < 0 || node->ins > MAX_IN || node->outs < 1 || node->outs > MAX_OUT) {
        fault(v, "node %d has %d operands and %d results", id, node->ins, node->outs);
        return false;
    }
    bool fine = true;
    for (int i = 0; i < node->ins; i++)
        fine = fine && is_value(v, node->in[i]);
    for (int o = 0; o < node->outs; o++)
        fine = fine && is_value(v, node->out[o]);
    if (!fine)
        fault(v, "node %d reads or makes no value", id);
    return fine;
}

static void verify_order(Verifier *v, NodeId id, const Node *node)
{
    const Graph *graph = v->graph;
    for (int i = 0; i < node->ins; i++) {
        const Value *value = &graph->values.at[node->in[i]];
        if (value->kind == VALUE_NODE && value->made >= id)
            fault(v, "node %s reads %s before it is made", node->name, value->name);
        if (value->kind == VALUE_GRAD_IN && node->seg == SEG_FORWARD)
            fault(v, "forward node %s reads a gradient", node->name);
        for (int k = 0; k < graph_losses(graph); k++)
            if (node->in[i] == graph_loss(graph, k))
                fault(v, "node %s reads the loss", node->name);
    }
    for (int o = 0; o < node->outs; o++) {
        const Value *value = &graph->values.at[node->out[o]];
        if (value->kind != VALUE_NODE || value->made != id || value->out != o)
            fault(v, "node %s does not make %s", node->name, value->name);
        if (o > 0 && node->out[o] != node->out[0] + o)
            fault(v, "the results of node %s are not consecutive", node->name);
    }
    if (node->seg != SEG_FORWARD && node->seg != SEG_BACKWARD)
        fault(v, "node %s has no segment", node->name);
    if (id == 0)
        return;
    const Node *before = &graph->nodes.at[id - 1];
    if (node->seg == SEG_FORWARD && before->seg == SEG_BACKWARD)
        fault(v, "forward node %s stands behind a backward node", node->name);
    if (before->outs > 0 && before->out[0] >= node->out[0])
        fault(v, "node %s is not in the order of its results", node->name);
}

/* Flow, found again by a walk from grad_out that shares nothing with graph_mark_flow. */
static bool leads_to(const Graph *graph, ValueId from, ValueId to, bool *seen)
{
    if (from == to)
        return true;
    if (seen[from])
        return false;
    seen[from] = true;
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        bool reads = false;
        for (int i = 0; i < node->ins; i++)
            reads = reads || node->in[i] == from;
        for (int o = 0; reads && o < node->outs; o++) {
            if (leads_to(graph, node->out[o], to, seen))
                return true;
        }
    }
    return false;
}

static void verify_flow(Verifier *v, const Node *node)
{
    const Graph *graph = v->graph;
    Flow flow = FLOW_FORWARD;
    if (node->seg == SEG_BACKWARD) {
        bool input = false;
        for (int o = 0; graph->grad_out != NONE && o < node->outs; o++) {
            bool *seen = ARENA_ARRAY(graph->arena, bool, graph->values.n);
            input = input || leads_to(graph, node->out[o], graph->grad_out, seen);
        }
        flow = input ? FLOW_INPUT : FLOW_WEIGHT;
    }
    if (node->flow != flow)
        fault(v, "node %s has the wrong flow", node->name);
}

/* A result that nothing reads and nobody asks for is a mistake of whoever built the graph. */
static void verify_read(Verifier *v, const Node *node)
{
    const Graph *graph = v->graph;
    bool read = false;
    for (int o = 0; o < node->outs; o++) {
        ValueId id = node->out[o];
        read = read || id == graph->chain_out || id == graph->grad_out;
        for (int k = 0; k < graph_losses(graph); k++)
            read = read || graph_loss(graph, k) == id;
        for (int p = 0; p < graph->params.n; p++)
            read = read || graph->params.at[p].grad == id;
        for (int i = 0; i < graph->seeds.n; i++)
            read = read || graph->seeds.at[i].by == id;
        for (int n = 0; n < graph->nodes.n; n++) {
            for (int i = 0; i < graph->nodes.at[n].ins; i++)
                read = read || graph->nodes.at[n].in[i] == id;
        }
    }
    if (!read)
        fault(v, "nothing reads what node %s makes", node->name);
}

static void verify_nodes(Verifier *v)
{
    const Graph *graph = v->graph;
    for (int n = 0; n < graph->nodes.n; n++) {
        if (!check_node_ids(v, n, &graph->nodes.at[n]))
            return;
    }
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        if (!str_eq(node->name, name_of(v, node->out[0])))
            fault(v, "node %d is not called after its first result", n);
        verify_order(v, n, node);
        verify_sig(v, node);
        verify_flow(v, node);
        verify_read(v, node);
    }
}

static void verify_param(Verifier *v, int index)
{
    const Graph *graph = v->graph;
    const Param *param = &graph->params.at[index];
    if (!param->name || param_name_fault(param->name)) {
        fault(v, "parameter %d has no proper name", index);
        return;
    }
    for (int p = 0; p < index; p++) {
        if (str_eq(graph->params.at[p].name, param->name))
            fault(v, "two parameters are called %s", param->name);
    }
    if (!is_value(v, param->value) || graph->values.at[param->value].kind != VALUE_PARAM ||
        graph->values.at[param->value].out != index) {
        fault(v, "parameter %s is not the value it names", param->name);
        return;
    }
    const Value *value = &graph->values.at[param->value];
    int axes = 0;
    bool groups = param->stored >= 0 && param->stored <= MAX_AXES;
    for (int g = 0; groups && g < param->stored; g++) {
        groups = param->group[g] >= 1;
        axes += param->group[g];
    }
    if (!groups || axes != value->axes)
        fault(v, "the stored axes of %s do not group those of its value", param->name);
    if (param->decay != (param->stored >= 2 && !param->frozen && param->rate == 0))
        fault(v, "parameter %s: decay goes with two or more stored axes that are trained",
              param->name);
    if ((int)param->init < 0 || param->init > INIT_ZEROS || !isfinite(param->std) ||
        param->std < 0 || !isfinite(param->rate) || param->rate < 0 ||
        (param->rate > 0 && param->decay))
        fault(v, "parameter %s has no proper start", param->name);
    if (param->grad == NONE)
        return;
    if (!is_value(v, param->grad)) {
        fault(v, "the gradient of %s is no value", param->name);
        return;
    }
    const Value *grad = &graph->values.at[param->grad];
    if (param->frozen && (grad->kind != VALUE_NODE || graph->nodes.at[grad->made].op != OP_ZEROS))
        fault(v, "parameter %s is frozen, but has a gradient", param->name);
    if (!same_shape(value, grad) || grad->number != NUM_FLOAT)
        fault(v, "the gradient of %s has another shape", param->name);
    if (grad->kind == VALUE_NODE && grad->made >= 0 && grad->made < graph->nodes.n &&
        graph->nodes.at[grad->made].seg != SEG_BACKWARD)
        fault(v, "the gradient of %s is made in forward", param->name);
}

static bool check_end(Verifier *v, const char *what, ValueId id, int kind)
{
    if (id == NONE)
        return false;
    if (!is_value(v, id) || (kind >= 0 && (int)v->graph->values.at[id].kind != kind)) {
        fault(v, "%s is no such value", what);
        return false;
    }
    return true;
}

static void verify_ends(Verifier *v)
{
    const Graph *graph = v->graph;
    const Value *values = graph->values.at;
    for (int d = 0; d < DATA_COUNT; d++)
        check_end(v, data_text[d], graph->data[d], VALUE_DATA);
    bool in = check_end(v, "chain_in", graph->chain_in, VALUE_CHAIN_IN);
    bool out = check_end(v, "chain_out", graph->chain_out, VALUE_NODE);
    bool grad_in = check_end(v, "grad_in", graph->grad_in, VALUE_GRAD_IN);
    bool grad_out = check_end(v, "grad_out", graph->grad_out, -1);
    bool loss = check_end(v, "loss", graph->loss, VALUE_NODE);
    if (out != grad_in)
        fault(v, "chain_out and its gradient come together");
    if (in != grad_out)
        fault(v, "chain_in and its gradient come together");
    if (out && grad_in && !same_shape(&values[graph->chain_out], &values[graph->grad_in]))
        fault(v, "the gradient of chain_out has another shape");
    if (in && grad_out && !same_shape(&values[graph->chain_in], &values[graph->grad_out]))
        fault(v, "the gradient of chain_in has another shape");
    for (int i = 0; i < graph->seeds.n; i++) {
        const Seed *seed = &graph->seeds.at[i];
        if (check_end(v, "seed", seed->of, -1) && check_end(v, "seed", seed->by, -1) &&
            !same_shape(&values[seed->of], &values[seed->by]))
            fault(v, "the seed of %s has another shape", values[seed->of].name);
    }
    if (loss && values[graph->loss].axes != 0)
        fault(v, "the loss is no scalar");
    for (int i = 0; i < graph->beside.n; i++)
        if (!loss || !check_end(v, "beside", graph->beside.at[i], VALUE_NODE) ||
            values[graph->beside.at[i]].axes != 0)
            fault(v, "what is logged beside the loss is no scalar, or there is no loss");
    if (loss == out)
        fault(v, "a class hands on a value or makes the loss, one of the two");
}

static void verify_chain(Verifier *v)
{
    const Net *net = v->net;
    v->graph = NULL;
    if (net->chain.n == 0)
        fault(v, "the chain is empty");
    const Value *handed = NULL;
    for (int l = 0; l < net->chain.n; l++) {
        const Link *link = &net->chain.at[l];
        if (link->class < 0 || link->class >= net->classes.n || link->index < 0) {
            fault(v, "link %d has no class", l);
            return;
        }
        const Graph *graph = net->classes.at[link->class];
        bool last = l + 1 == net->chain.n;
        if (last != (graph->loss != NONE))
            fault(v, "link %d (%s): the last link, and only it, makes the loss", l, graph->name);
        const Value *in = graph->chain_in == NONE ? NULL : &graph->values.at[graph->chain_in];
        if ((in == NULL) != (handed == NULL) || (in && !same_shape(in, handed)))
            fault(v, "link %d (%s) does not take what the one before it hands on", l, graph->name);
        handed = graph->chain_out == NONE ? NULL : &graph->values.at[graph->chain_out];
    }
    for (int c = 0; c < net->classes.n; c++) {
        bool used = false;
        for (int l = 0; l < net->chain.n; l++)
            used = used || net->chain.at[l].class == c;
        if (!used)
            fault(v, "no link is of class %s", net->classes.at[c]->name);
        for (int d = 0; d < c; d++) {
            if (str_eq(net->classes.at[d]->name, net->classes.at[c]->name))
                fault(v, "two classes are called %s", net->classes.at[c]->name);
        }
    }
}

static bool same_use(const NetParam *a, const NetParam *b)
{
    bool same = str_eq(a->name, b->name) && a->class == b->class && a->param == b->param &&
                a->uses == b->uses;
    for (int u = 0; same && u < a->uses; u++)
        same = a->link[u] == b->link[u] && a->use_class[u] == b->use_class[u] &&
               a->use_param[u] == b->use_param[u];
    return same;
}

static void verify_net_params(Verifier *v)
{
    Net again = *v->net;
    again.params.at = NULL;
    again.params.n = again.params.cap = 0;
    const char *why = net_collect_fault(&again);
    if (why) {
        fault(v, "%s", why);
        return;
    }
    bool same = again.params.n == v->net->params.n;
    for (int i = 0; same && i < again.params.n; i++)
        same = same_use(&again.params.at[i], &v->net->params.at[i]);
    if (!same)
        fault(v, "the parameters of the net are not those of its chain");
}

bool net_verify(const Net *net, Diag *diag)
{
    Verifier v = {.net = net, .diag = diag, .fine = true};
    verify_dims(&v);
    if (!v.fine)
        return false;
    for (int c = 0; c < net->classes.n; c++) {
        v.graph = net->classes.at[c];
        verify_values(&v);
        if (!v.fine)
            continue;
        verify_ends(&v);
        verify_nodes(&v);
        for (int p = 0; p < v.graph->params.n; p++)
            verify_param(&v, p);
    }
    v.graph = NULL;
    if (!v.fine)
        return false;
    verify_chain(&v);
    if (v.fine)
        verify_net_params(&v);
    return v.fine;
}
