/* graph.c - dims, values and nodes: how a Net is built and what it counts. */
#include "ir/graph.h"

#include <stdlib.h>
#include <string.h>

#include "ir/name_table.h"
#include "ir/sig.h"
#include "ir/wide.h"

static bool name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool name_is_identifier(const char *text, bool dots)
{
    if (!name_start(text[0]))
        return false;
    for (const char *at = text; *at; at++) {
        bool digit = *at >= '0' && *at <= '9';
        if (!name_start(*at) && !digit && !(dots && *at == '.'))
            return false;
    }
    return true;
}

Net *net_new(Arena *arena, const char *name)
{
    Net *net = ARENA_NEW(arena, Net);
    net->name = arena_strdup(arena, name);
    net->arena = arena;
    net->batch = net->sequence = NONE;
    return net;
}

/* The dim's own letters first, then the alphabet: small sheets of paper read best with the obvious
 * letter. */
static char letter_for(const Net *net, const char *name)
{
    static const char alphabet[] = "abcdefghijklmnopqrsuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const char *const sources[] = {name, alphabet};
    for (int i = 0; i < 2; i++) {
        for (const char *at = sources[i]; *at; at++) {
            if (!strchr(alphabet, *at))
                continue;
            bool taken = false;
            for (int d = 0; d < net->dims.n; d++)
                taken = taken || net->dims.at[d].letter == *at;
            if (!taken)
                return *at;
        }
    }
    return '\0';
}

DimId net_add_dim(Net *net, const char *name, DimKind kind, int64_t extent)
{
    if (!name_is_identifier(name, false))
        BUG("dim name \"%s\" is not an identifier", name);
    if (net_dim(net, name) != NONE)
        BUG("dim %s is added twice", name);
    if (extent < 1)
        BUG("dim %s has extent %lld", name, (long long)extent);
    char letter = letter_for(net, name);
    if (letter == '\0')
        BUG("more dims than letters: no letter is left for dim %s", name);
    DimId id = (DimId)net->dims.n;
    vec_push(net->arena, &net->dims) = (Dim){
        .name = arena_strdup(net->arena, name),
        .letter = letter,
        .kind = kind,
        .extent = extent,
        .used = extent,
    };
    if (kind == DIM_BATCH)
        net->batch = id;
    if (kind == DIM_SEQUENCE)
        net->sequence = id;
    return id;
}

DimId net_dim(const Net *net, const char *name)
{
    for (int i = 0; i < net->dims.n; i++) {
        if (strcmp(net->dims.at[i].name, name) == 0)
            return (DimId)i;
    }
    return NONE;
}

Graph *net_add_class(Net *net, const char *name)
{
    Graph *graph = ARENA_NEW(net->arena, Graph);
    graph->name = arena_strdup(net->arena, name);
    graph->arena = net->arena;
    graph->net = net;
    for (int i = 0; i < DATA_COUNT; i++)
        graph->data[i] = NONE;
    graph->chain_in = graph->chain_out = graph->grad_in = graph->grad_out = graph->loss = NONE;
    vec_push(net->arena, &net->classes) = graph;
    return graph;
}

int graph_losses(const Graph *graph)
{
    return graph->loss == NONE ? 0 : 1 + graph->beside.n;
}

ValueId graph_loss(const Graph *graph, int number)
{
    return number == 0 ? graph->loss : graph->beside.at[number - 1];
}

int net_losses(const Net *net)
{
    return graph_losses(net->classes.at[net->chain.at[net->chain.n - 1].class]);
}

ValueId graph_find(const Graph *graph, const char *name)
{
    for (int i = 0; i < graph->values.n; i++) {
        if (strcmp(graph->values.at[i].name, name) == 0)
            return i;
    }
    return NONE;
}

void graph_rename(Graph *graph, ValueId id, const char *name)
{
    if (graph_find(graph, name) != NONE || !name_is_identifier(name, true))
        BUG("no value of %s can be called %s", graph->name, name);
    Value *value = &graph->values.at[id];
    value->name = arena_strdup(graph->arena, name);
    if (value->kind == VALUE_NODE && value->out == 0)
        graph->nodes.at[value->made].name = value->name;
}

const char *graph_fresh_name(const Graph *graph, const char *stem)
{
    const char *name = stem;
    for (int i = 2; graph_find(graph, name) != NONE; i++)
        name = arena_printf(graph->arena, "%s.n%d", stem, i);
    return name;
}

const char *const data_text[DATA_COUNT] = {
    "ids",      "labels",   "weight",   "starts",   "labels.1",
    "weight.1", "labels.2", "weight.2", "labels.3", "weight.3",
};

DataId data_labels(int ahead)
{
    return ahead == 0 ? DATA_LABELS : (DataId)(DATA_FURTHER + 2 * (ahead - 1));
}

DataId data_weight(int ahead)
{
    return ahead == 0 ? DATA_WEIGHT : (DataId)(data_labels(ahead) + 1);
}

int data_ahead(int data)
{
    return data < (int)DATA_FURTHER ? 0 : (data - (int)DATA_FURTHER) / 2 + 1;
}

bool data_is_weight(int data)
{
    return data == (int)data_weight(data_ahead(data));
}

static void bind_data(Graph *graph, ValueId id)
{
    Value *value = &graph->values.at[id];
    for (int d = 0; d < DATA_COUNT; d++) {
        if (strcmp(value->name, data_text[d]) != 0)
            continue;
        graph->data[d] = id;
        value->out = d;
        value->number = data_is_weight(d) ? NUM_FLOAT : NUM_INDEX;
        value->wide = data_is_weight(d);
        return;
    }
    BUG("data value \"%s\" is none of ids, labels, weight, starts and further ones", value->name);
}

static void bind_param(Graph *graph, ValueId id)
{
    Value *value = &graph->values.at[id];
    value->out = graph->params.n;
    Param *param = &vec_push(graph->arena, &graph->params);
    *param = (Param){
        .name = value->name,
        .value = id,
        .grad = NONE,
        .init = INIT_NORMAL,
        .std = 0.02,
        .decay = value->axes >= 2,
        .stored = value->axes,
    };
    for (int a = 0; a < value->axes; a++)
        param->group[a] = 1;
}

static ValueId new_value(Graph *graph, ValueKind kind, const char *name, int axes, const DimId *dim)
{
    if (graph_find(graph, name) != NONE)
        BUG("value %s is made twice in %s", name, graph->name);
    if (!name_is_identifier(name, true))
        BUG("value name \"%s\" is not an identifier with dots", name);
    if (axes < 0 || axes > MAX_AXES)
        BUG("value %s has %d axes, at most %d are possible", name, axes, MAX_AXES);
    Value value = {
        .name = arena_strdup(graph->arena, name), .kind = kind, .axes = axes, .made = NONE};
    for (int a = 0; a < axes; a++) {
        if (dim[a] < 0 || dim[a] >= graph->net->dims.n)
            BUG("value %s: axis %d has no dim", name, a);
        value.dim[a] = dim[a];
    }
    ValueId id = graph->values.n;
    vec_push(graph->arena, &graph->values) = value;
    return id;
}

ValueId graph_value(Graph *graph, ValueKind kind, const char *name, int axes, const DimId *dim)
{
    if (kind == VALUE_NODE)
        BUG("value %s: graph_node makes the values of nodes", name);
    ValueId id = new_value(graph, kind, name, axes, dim);
    if (kind == VALUE_DATA)
        bind_data(graph, id);
    if (kind == VALUE_PARAM)
        bind_param(graph, id);
    if (kind == VALUE_CHAIN_IN)
        graph->chain_in = id;
    if (kind == VALUE_GRAD_IN)
        graph->grad_in = id;
    return id;
}

/* An axis may be read under the letter of its dim, or of a twin of it. */
static bool may_read(const Net *net, DimId letter, DimId axis)
{
    if (letter == NONE || letter == axis)
        return letter == axis;
    int a = net->dims.at[letter].twin_of, b = net->dims.at[axis].twin_of;
    return a - 1 == axis || b - 1 == letter || (a != 0 && a == b);
}

static const char *operand_fault(const Graph *graph, OpId op, const SigText *sig, const ValueId *in)
{
    const Net *net = graph->net;
    Arena *arena = graph->arena;
    for (int i = 0; i < sig->ins; i++) {
        if (in[i] < 0 || in[i] >= graph->values.n)
            return arena_printf(arena, "operand %d is no value", i);
        const Value *value = &graph->values.at[in[i]];
        if (value->axes != sig->axes[i])
            return arena_printf(arena, "operand %d (%s) has %d axes, its signature %d", i,
                                value->name, value->axes, sig->axes[i]);
        for (int a = 0; a < value->axes; a++) {
            if (!may_read(net, sig_dim(net, sig->letter[i][a]), value->dim[a]))
                return arena_printf(arena, "axis %d of operand %d (%s) is dim %s, its letter '%c'",
                                    a, i, value->name, net->dims.at[value->dim[a]].name,
                                    sig->letter[i][a]);
        }
        bool index = op_reads_index(op, sig, i);
        if (index != (value->number == NUM_INDEX))
            return arena_printf(arena, "operand %d (%s) must %s ids", i, value->name,
                                index ? "be" : "not be");
    }
    return NULL;
}

const char *graph_node_fault(const Graph *graph, OpId op, const char *sig, const ValueId *in,
                             int ins, SigText *ret_text, Sig *ret_sig)
{
    if (ins < 0 || ins > MAX_IN)
        return arena_printf(graph->arena, "%d operands, at most %d are possible", ins, MAX_IN);
    const char *why = sig_parse(sig, ins, ret_text);
    if (!why)
        why = operand_fault(graph, op, ret_text, in);
    if (!why)
        why = sig_resolve(graph->net, op, ret_text, ret_sig);
    if (!why)
        return NULL;
    return arena_printf(graph->arena, "signature \"%s\" of %s (%s): %s", sig, op_info[op].text,
                        op_info[op].pattern, why);
}

NodeId graph_node_named(Graph *graph, OpId op, const char *const name[MAX_OUT], const char *sig,
                        const Attrs *attrs, const ValueId *in, int ins)
{
    if (op < 0 || op >= OP_COUNT)
        BUG("node %s: no op %d", name[0], (int)op);
    Node node = {.op = op, .ins = ins};
    SigText text;
    const char *why = graph_node_fault(graph, op, sig, in, ins, &text, &node.sig);
    if (why)
        BUG("node %s of %s: %s", name[0], graph->name, why);
    node.outs = text.outs;
    if (attrs)
        node.attrs = *attrs;
    if (ins > 0)
        memcpy(node.in, in, (size_t)ins * sizeof *in);
    NodeId id = graph->nodes.n;
    for (int o = 0; o < text.outs; o++) {
        DimId dim[MAX_AXES];
        for (int a = 0; a < text.axes[MAX_IN + o]; a++)
            dim[a] = node.sig.dim[node.sig.out[o][a]];
        node.out[o] = new_value(graph, VALUE_NODE, name[o], text.axes[MAX_IN + o], dim);
        Value *value = &graph->values.at[node.out[o]];
        value->made = id;
        value->out = o;
        value->number = op_makes_index(op) ? NUM_INDEX : NUM_FLOAT;
    }
    node.name = graph->values.at[node.out[0]].name;
    vec_push(graph->arena, &graph->nodes) = node;
    graph_widen(graph);
    return id;
}

NodeId graph_node(Graph *graph, OpId op, const char *name, const char *sig, const Attrs *attrs,
                  const ValueId *in, int ins)
{
    const char *names[MAX_OUT] = {name};
    for (int o = 1; o < MAX_OUT; o++)
        names[o] = arena_printf(graph->arena, "%s.%d", name, o);
    return graph_node_named(graph, op, names, sig, attrs, in, ins);
}

ValueId graph_out(const Graph *graph, NodeId node)
{
    return graph->nodes.at[node].out[0];
}

void graph_put_sig(Str *str, const Graph *graph, const Node *node)
{
    SigText text = sig_of_node(graph, node);
    sig_put(str, &text);
}

bool param_name_rows(const char *text, size_t *ret_stem, int64_t *ret_from, int64_t *ret_to)
{
    const char *open = strchr(text, '[');
    char *end = NULL;
    if (!open || open[1] < '0' || open[1] > '9')
        return false;
    *ret_stem = (size_t)(open - text);
    *ret_from = strtoll(open + 1, &end, 10);
    if (*end != ':' || end[1] < '0' || end[1] > '9')
        return false;
    *ret_to = strtoll(end + 1, &end, 10);
    return strcmp(end, "]") == 0 && *ret_to > *ret_from;
}

const char *param_name_fault(const char *text)
{
    size_t length = strlen(text), stem;
    int64_t from, to;
    if (length == 0 || length > 200)
        return "a name has 1 to 200 characters";
    for (const char *c = text; *c; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_';
        bool other = (*c >= '0' && *c <= '9') || *c == '.' || *c == '-';
        if (*c == '[' && c > text)
            return param_name_rows(text, &stem, &from, &to) ? NULL : "rows are written [from:to]";
        if (*c == '{' && (strncmp(c, "{i}", 3) == 0 || strncmp(c, "{e}", 3) == 0)) {
            if (strstr(c + 3, c[1] == 'i' ? "{i}" : "{e}"))
                return "{i} and {e} stand once";
            c += 2;
            continue;
        }
        if (!letter && !other)
            return "a character that no name has";
    }
    return NULL;
}

const char *param_name(Arena *arena, const Param *param, int index)
{
    const char *hole = strstr(param->name, "{i}");
    if (!hole)
        return param->name;
    return arena_printf(arena, "%.*s%d%s", (int)(hole - param->name), param->name, index, hole + 3);
}

bool param_same_shape(const Net *net, const NetParam *param, int class, int index)
{
    const Graph *a = net->classes.at[param->class], *b = net->classes.at[class];
    const Param *p = &a->params.at[param->param], *q = &b->params.at[index];
    const Value *v = &a->values.at[p->value], *w = &b->values.at[q->value];
    return v->axes == w->axes && p->stored == q->stored && p->rate == q->rate &&
           memcmp(v->dim, w->dim, (size_t)v->axes * sizeof *v->dim) == 0 &&
           memcmp(p->group, q->group, (size_t)p->stored * sizeof *p->group) == 0;
}

const char *net_collect_fault(Net *net)
{
    net->params.n = 0;
    NameTable names = name_table_new(net->arena);
    for (int l = 0; l < net->chain.n; l++) {
        const Link *link = &net->chain.at[l];
        const Graph *graph = net->classes.at[link->class];
        for (int p = 0; p < graph->params.n; p++) {
            const char *name = param_name(net->arena, &graph->params.at[p], link->index);
            bool new;
            int index = name_table_add(&names, name, &new);
            if (new)
                vec_push(net->arena, &net->params) =
                    (NetParam){.name = name, .class = link->class, .param = p, .uses = 0};
            NetParam *known = &net->params.at[index];
            if (known->uses == 2)
                return arena_printf(net->arena, "parameter %s is used by more than two links",
                                    name);
            if (!param_same_shape(net, known, link->class, p))
                return arena_printf(net->arena, "parameter %s is used with two shapes", name);
            known->link[known->uses] = l;
            known->use_class[known->uses] = link->class;
            known->use_param[known->uses] = p;
            known->uses++;
        }
    }
    return NULL;
}

void net_collect_params(Net *net)
{
    const char *why = net_collect_fault(net);
    if (why)
        BUG("%s", why);
}

int64_t extent_product(int64_t a, int64_t b)
{
    if (a < 0 || b < 0 || (b > 0 && a > INT64_MAX / b))
        BUG("a product of extents passes 2^63: %lld x %lld", (long long)a, (long long)b);
    return a * b;
}

int64_t value_elements(const Net *net, const Value *value)
{
    int64_t elements = 1;
    for (int a = 0; a < value->axes; a++)
        elements = extent_product(elements, net->dims.at[value->dim[a]].extent);
    return elements;
}

int64_t net_param_count(const Net *net)
{
    int64_t total = 0;
    for (int i = 0; i < net->params.n; i++) {
        const Graph *graph = net->classes.at[net->params.at[i].class];
        const Value *value = &graph->values.at[graph->params.at[net->params.at[i].param].value];
        int64_t elements = 1;
        for (int a = 0; a < value->axes; a++)
            elements = extent_product(elements, net->dims.at[value->dim[a]].used);
        total += elements;
    }
    return total;
}

int64_t letter_extent(const Net *net, const Node *node, int letter)
{
    return net->dims.at[node->sig.dim[letter]].extent;
}

static uint16_t letters_of(const int8_t *letter, int axes)
{
    uint16_t set = 0;
    for (int a = 0; a < axes; a++)
        set |= (uint16_t)(1u << letter[a]);
    return set;
}

/* The letters of a part of a split or stack, and of the whole. */
static uint16_t part_letters(const Graph *graph, const Node *node, int part)
{
    bool split = node->op == OP_SPLIT;
    ValueId id = split ? node->out[part] : node->in[part];
    return letters_of(split ? node->sig.out[part] : node->sig.in[part], graph->values.at[id].axes);
}

static uint16_t whole_letters(const Graph *graph, const Node *node)
{
    bool split = node->op == OP_SPLIT;
    return letters_of(split ? node->sig.in[0] : node->sig.out[0],
                      graph->values.at[split ? node->in[0] : node->out[0]].axes);
}

int split_letter(const Graph *graph, const Node *node)
{
    uint16_t only = (uint16_t)(whole_letters(graph, node) & ~part_letters(graph, node, 0));
    int letter = 0;
    while (!(only >> letter & 1))
        letter++;
    return letter;
}

int64_t part_extent(const Graph *graph, const Node *node, int part, const int64_t *extent)
{
    uint16_t own = (uint16_t)(part_letters(graph, node, part) & ~whole_letters(graph, node));
    int64_t n = 1;
    for (int l = 0; l < node->sig.letters; l++) {
        if (own >> l & 1)
            n *= extent[l];
    }
    return n;
}

/* Slopes are numbers, begins whole numbers of rows, words of rows and heads. */
static int extra_operand(const Graph *graph, const Node *node, Number number, bool heads)
{
    for (int i = node->op == OP_ATTENTION ? 3 : 6; i < node->ins; i++) {
        const Value *value = &graph->values.at[node->in[i]];
        if (value->number == number && (number == NUM_FLOAT || (value->axes > 2) == heads))
            return i;
    }
    return NONE;
}

int attention_slopes(const Graph *graph, const Node *node)
{
    return extra_operand(graph, node, NUM_FLOAT, true);
}

int attention_starts(const Graph *graph, const Node *node)
{
    return extra_operand(graph, node, NUM_INDEX, false);
}

int attention_words(const Graph *graph, const Node *node)
{
    return extra_operand(graph, node, NUM_INDEX, true);
}

static bool has_all_letters(const Graph *graph, const Node *node, ValueId id, const int8_t *letter)
{
    uint32_t set = 0;
    for (int a = 0; a < graph->values.at[id].axes; a++)
        set |= 1u << letter[a];
    return set == (1u << node->sig.letters) - 1;
}

bool node_is_product(const Graph *graph, const Node *node)
{
    bool product = op_info[node->op].form == FORM_gemm && node->ins == 2;
    for (int k = 0; k < node->ins && product; k++)
        product = !has_all_letters(graph, node, node->in[k], node->sig.in[k]);
    return product && !has_all_letters(graph, node, node->out[0], node->sig.out[0]);
}

bool node_crosses(const Net *net, const Node *node)
{
    int letters = 0;
    for (int l = 0; l < node->sig.letters; l++)
        letters += net->dims.at[node->sig.dim[l]].kind == DIM_SEQUENCE;
    return letters > 1;
}

bool op_draws(OpId op)
{
    return op == OP_DROPOUT || op == OP_DRAW;
}

uint32_t draw_stream(int64_t layer, int64_t site)
{
    CHECK(layer < DRAW_LAYERS && site < DRAW_SITES);
    return (uint32_t)(layer * DRAW_SITES + site);
}
