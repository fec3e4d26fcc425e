/* graph_text.c - a Net as text, one thing a line, and back.
 *
 *     net llama-tiny
 *     dim b batch letter=b extent=4 used=4
 *     class layer
 *       chain_in x b s h
 *       param input_norm.weight h name=model.layers.{i}.input_norm.weight init=ones std=0 decay=0
 * groups=1 F n1 = norm bsh,h->bsh x input_norm.weight kind=rms eps=1e-05
 *       ...
 *       chain_out x2
 *       grad input_norm.weight d.input_norm.weight
 *     link layer 0
 *
 * Values and nodes stand in the order of their ids; a node's first letter is its flow: Forward,
 * Input or Weight. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/json_locate.h"
#include "ir/sig.h"

static const char *const kind_text[] = {"batch", "sequence", "other", "routed"};
static const char *const init_text[] = {"normal", "ones", "zeros"};
static const char *const flow_text[] = {"F", "I", "W"};

static const char *const source_text[] = {
    [VALUE_DATA] = "data",       [VALUE_PARAM] = "param", [VALUE_CHAIN_IN] = "chain_in",
    [VALUE_GRAD_IN] = "grad_in", [VALUE_NODE] = "node",   [VALUE_INPUT] = "input",
};

/* ---- printing ---- */

static void put_dims(Str *str, const Net *net, const Value *value)
{
    for (int a = 0; a < value->axes; a++)
        str_putf(str, " %s", net->dims.at[value->dim[a]].name);
}

static void put_param(Str *str, const Net *net, const Graph *graph, const Value *value)
{
    const Param *param = &graph->params.at[value->out];
    str_putf(str, "  param %s", value->name);
    put_dims(str, net, value);
    str_putf(str, " name=%s init=%s std=", param->name, init_text[param->init]);
    op_put_number(str, param->std);
    str_putf(str, " decay=%d groups=", param->decay);
    for (int i = 0; i < param->stored; i++)
        str_putf(str, "%s%d", i > 0 ? "," : "", param->group[i]);
    if (param->rate > 0) {
        str_put(str, " rate=");
        op_put_number(str, param->rate);
    }
    str_put(str, param->frozen ? " frozen\n" : "\n");
}

static void put_node(Str *str, const Graph *graph, const Node *node)
{
    str_putf(str, "  %s", flow_text[node->flow]);
    for (int i = 0; i < node->outs; i++)
        str_putf(str, " %s", graph->values.at[node->out[i]].name);
    str_putf(str, " = %s ", op_info[node->op].text);
    graph_put_sig(str, graph, node);
    for (int i = 0; i < node->ins; i++)
        str_putf(str, " %s", graph->values.at[node->in[i]].name);
    op_put_attrs(str, op_info[node->op].attrs, &node->attrs);
    str_putc(str, '\n');
}

static void put_mark(Str *str, const Graph *graph, const char *what, ValueId id)
{
    if (id != NONE)
        str_putf(str, "  %s %s\n", what, graph->values.at[id].name);
}

void graph_put_body(Str *str, const Graph *graph)
{
    const Net *net = graph->net;
    for (int v = 0; v < graph->values.n; v++) {
        const Value *value = &graph->values.at[v];
        switch (value->kind) {
        case VALUE_PARAM:
            put_param(str, net, graph, value);
            break;
        case VALUE_NODE:
            if (value->out == 0)
                put_node(str, graph, &graph->nodes.at[value->made]);
            break;
        case VALUE_DATA:
        case VALUE_CHAIN_IN:
        case VALUE_GRAD_IN:
        case VALUE_INPUT:
            str_putf(str, "  %s %s", source_text[value->kind], value->name);
            put_dims(str, net, value);
            str_putc(str, '\n');
            break;
        }
    }
    put_mark(str, graph, "chain_out", graph->chain_out);
    put_mark(str, graph, "grad_out", graph->grad_out);
    put_mark(str, graph, "loss", graph->loss);
    for (int i = 0; i < graph->beside.n; i++)
        put_mark(str, graph, "beside", graph->beside.at[i]);
    for (int i = 0; i < graph->seeds.n; i++)
        str_putf(str, "  seed %s %s\n", graph->values.at[graph->seeds.at[i].of].name,
                 graph->values.at[graph->seeds.at[i].by].name);
    for (int p = 0; p < graph->params.n; p++) {
        const Param *param = &graph->params.at[p];
        if (param->grad != NONE)
            str_putf(str, "  grad %s %s\n", graph->values.at[param->value].name,
                     graph->values.at[param->grad].name);
    }
}

void net_put_text(Str *str, const Net *net)
{
    str_putf(str, "net %s\n", net->name);
    for (int i = 0; i < net->dims.n; i++) {
        const Dim *dim = &net->dims.at[i];
        str_putf(str, "dim %s %s letter=%c extent=%" PRId64 " used=%" PRId64, dim->name,
                 kind_text[dim->kind], dim->letter, dim->extent, dim->used);
        if (dim->kind == DIM_ROUTED)
            str_putf(str, " among=%d", dim->among);
        str_putc(str, '\n');
    }
    for (int i = 0; i < net->classes.n; i++) {
        str_putf(str, "class %s\n", net->classes.at[i]->name);
        graph_put_body(str, net->classes.at[i]);
    }
    for (int i = 0; i < net->chain.n; i++)
        str_putf(str, "link %s %d\n", net->classes.at[net->chain.at[i].class]->name,
                 net->chain.at[i].index);
}

/* ---- parsing ---- */

enum { MAX_WORDS = 64 };

typedef struct Word {
    const char *text;
    size_t at; /* byte offset in the source */
} Word;

typedef struct Parser {
    Arena *arena;
    Diag *diag;
    const Source *source;
    Net *net;
    Graph *graph;
    int words; /* of the line */
    Word word[MAX_WORDS];
} Parser;

static bool fail(Parser *p, int word, const char *format, ...) LP_PRINTF(3, 4);

static bool fail(Parser *p, int word, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = arena_vprintf(p->arena, format, args);
    va_end(args);
    const Word *at = &p->word[word < p->words ? word : p->words - 1];
    return diag_error(p->diag, json_span_bytes(p->source, at->at, strlen(at->text)), "%s", text);
}

static bool parse_int(const char *text, int64_t min, int64_t max, int64_t *ret)
{
    char *end = NULL;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || value < min || value > max)
        return false;
    *ret = value;
    return true;
}

static int word_index(const char *text, const char *const *words, int count)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(words[i], text) == 0)
            return i;
    }
    return NONE;
}

/* The value of "key=value" at a word, or NULL after an error. */
static const char *keyed(Parser *p, int word, const char *key)
{
    size_t n = strlen(key);
    if (word < p->words && strncmp(p->word[word].text, key, n) == 0 && p->word[word].text[n] == '=')
        return p->word[word].text + n + 1;
    fail(p, word, "%s= expected", key);
    return NULL;
}

/* By its number, as it may still come. */
static bool parse_among(Parser *p, DimId *ret)
{
    const char *among = keyed(p, 6, "among");
    int64_t dim = 0;
    if (!among)
        return false;
    if (!parse_int(among, 0, INT16_MAX, &dim))
        return fail(p, 6, "among is the number of a dim, counted from 0");
    *ret = (DimId)dim;
    return true;
}

static bool line_dim(Parser *p)
{
    Net *net = p->net;
    if (p->words != 6 && p->words != 7)
        return fail(p, 0, "a dim has a name, a kind, letter=, extent= and used=");
    const char *name = p->word[1].text;
    int kind = word_index(p->word[2].text, kind_text, 4);
    const char *letter = keyed(p, 3, "letter"), *extent = keyed(p, 4, "extent");
    const char *used = keyed(p, 5, "used");
    if (!letter || !extent || !used)
        return false;
    if (!name_is_identifier(name, false) || net_dim(net, name) != NONE)
        return fail(p, 1, "\"%s\" is not a new identifier", name);
    if (kind == NONE)
        return fail(p, 2, "a dim is batch, sequence, other or routed");
    bool small = letter[0] >= 'a' && letter[0] <= 'z', big = letter[0] >= 'A' && letter[0] <= 'Z';
    if ((!small && !big) || letter[1] != '\0' || sig_dim(net, letter[0]) != NONE ||
        letter[0] == 't')
        return fail(p, 3, "\"%s\" is not a free letter", letter);
    if ((p->words == 7) != (kind == DIM_ROUTED))
        return fail(p, 6, "a routed dim, and no other, says among= which dim it chooses");
    Dim dim = {.name = name, .letter = letter[0], .kind = (DimKind)kind};
    if (kind == DIM_ROUTED && !parse_among(p, &dim.among))
        return false;
    if (!parse_int(extent, 1, INT64_C(1) << 40, &dim.extent))
        return fail(p, 4, "an extent is 1 to 2^40");
    if (!parse_int(used, 1, dim.extent, &dim.used))
        return fail(p, 5, "used is 1 to the extent");
    if ((kind == DIM_BATCH && net->batch != NONE) ||
        (kind == DIM_SEQUENCE && net->sequence != NONE))
        return fail(p, 2, "a second %s dim", kind_text[kind]);
    DimId id = (DimId)net->dims.n;
    vec_push(net->arena, &net->dims) = dim;
    if (kind == DIM_BATCH)
        net->batch = id;
    if (kind == DIM_SEQUENCE)
        net->sequence = id;
    return true;
}

static bool line_class(Parser *p)
{
    if (p->words != 2 || !name_is_identifier(p->word[1].text, false))
        return fail(p, 1, "a class has one name, an identifier");
    for (int i = 0; i < p->net->classes.n; i++) {
        if (strcmp(p->net->classes.at[i]->name, p->word[1].text) == 0)
            return fail(p, 1, "a second class %s", p->word[1].text);
    }
    p->graph = net_add_class(p->net, p->word[1].text);
    return true;
}

static bool new_name(Parser *p, int word)
{
    if (word >= p->words || !name_is_identifier(p->word[word].text, true))
        return fail(p, word, "an identifier is missing");
    if (graph_find(p->graph, p->word[word].text) != NONE)
        return fail(p, word, "%s is made twice", p->word[word].text);
    return true;
}

/* "KIND NAME dim...": up to the first word with '='. *ret_next is the word behind the dims. */
static bool line_value(Parser *p, ValueKind kind, ValueId *ret, int *ret_next)
{
    if (!new_name(p, 1))
        return false;
    DimId dim[MAX_AXES];
    int axes = 0, w = 2;
    for (; w < p->words && !strchr(p->word[w].text, '='); w++) {
        DimId id = net_dim(p->net, p->word[w].text);
        if (id == NONE)
            return fail(p, w, "unknown dim %s", p->word[w].text);
        if (axes == MAX_AXES)
            return fail(p, w, "more than %d axes", MAX_AXES);
        dim[axes++] = id;
    }
    *ret_next = w;
    const Graph *graph = p->graph;
    int data = word_index(p->word[1].text, data_text, DATA_COUNT);
    if (kind == VALUE_DATA && data == NONE)
        return fail(p, 1, "data is ids, labels, weight, starts, labels.N or weight.N");
    if ((kind == VALUE_DATA && graph->data[data] != NONE) ||
        (kind == VALUE_CHAIN_IN && graph->chain_in != NONE) ||
        (kind == VALUE_GRAD_IN && graph->grad_in != NONE))
        return fail(p, 0, "a second %s", p->word[0].text);
    *ret = graph_value(p->graph, kind, p->word[1].text, axes, dim);
    return true;
}

static bool line_param(Parser *p)
{
    ValueId id = NONE;
    int w = 0;
    if (!line_value(p, VALUE_PARAM, &id, &w))
        return false;
    Param *param = &p->graph->params.at[p->graph->params.n - 1];
    const char *name = keyed(p, w, "name"), *init = keyed(p, w + 1, "init");
    const char *std = keyed(p, w + 2, "std"), *decay = keyed(p, w + 3, "decay");
    const char *groups = keyed(p, w + 4, "groups");
    if (!name || !init || !std || !decay || !groups)
        return false;
    int how = word_index(init, init_text, 3);
    char *end = NULL;
    param->name = name;
    param->std = strtod(std, &end);
    if (how == NONE || end == std || *end != '\0')
        return fail(p, w + 1, "a parameter begins as normal, ones or zeros, with a number as std");
    param->init = (Init)how;
    if (strcmp(decay, "0") != 0 && strcmp(decay, "1") != 0)
        return fail(p, w + 3, "decay is 0 or 1");
    param->decay = decay[0] == '1';
    param->stored = 0;
    memset(param->group, 0, sizeof param->group);
    while (*groups != '\0') {
        long n = strtol(groups, &end, 10);
        if (end == groups || n < 1 || n > MAX_AXES || param->stored == MAX_AXES ||
            (*end != ',' && *end != '\0'))
            return fail(p, w + 4, "groups are counts of axes, \"2,1\"");
        param->group[param->stored++] = (int)n;
        groups = *end == ',' ? end + 1 : end;
    }
    if (w + 5 < p->words && strncmp(p->word[w + 5].text, "rate=", 5) == 0)
        param->rate = strtod(p->word[w++ + 5].text + 5, NULL);
    param->frozen = w + 5 < p->words && strcmp(p->word[w + 5].text, "frozen") == 0;
    return true;
}

static bool line_node(Parser *p, Flow flow)
{
    int equals = 1, w = 0;
    while (equals < p->words && strcmp(p->word[equals].text, "=") != 0)
        equals++;
    if (equals + 2 >= p->words || equals < 2)
        return fail(p, 0, "a node is \"F name = op signature operands attributes\"");
    OpId op = op_by_name(p->word[equals + 1].text);
    if (op == OP_COUNT)
        return fail(p, equals + 1, "unknown op %s", p->word[equals + 1].text);
    ValueId in[MAX_IN];
    int ins = 0;
    for (w = equals + 3; w < p->words && !strchr(p->word[w].text, '='); w++) {
        ValueId id = graph_find(p->graph, p->word[w].text);
        if (id == NONE)
            return fail(p, w, "unknown value %s", p->word[w].text);
        if (ins == MAX_IN)
            return fail(p, w, "more than %d operands", MAX_IN);
        in[ins++] = id;
    }
    Attrs attrs = {0};
    for (; w < p->words; w++) {
        char *text = arena_strdup(p->arena, p->word[w].text);
        char *value = strchr(text, '=');
        if (value)
            *value++ = '\0';
        if (!value || !op_parse_attr(op_info[op].attrs, &attrs, text, value))
            return fail(p, w, "%s has no such attribute", op_info[op].text);
    }
    SigText text;
    Sig sig;
    const char *sig_text = p->word[equals + 2].text;
    const char *why = graph_node_fault(p->graph, op, sig_text, in, ins, &text, &sig);
    if (why)
        return fail(p, equals + 2, "%s", why);
    if (text.outs != equals - 1)
        return fail(p, 1, "%d names for %d results", equals - 1, text.outs);
    for (int o = 0; o < text.outs; o++) {
        if (!new_name(p, o + 1))
            return false;
        for (int other = 0; other < o; other++) {
            if (strcmp(p->word[o + 1].text, p->word[other + 1].text) == 0)
                return fail(p, o + 1, "%s is made twice", p->word[o + 1].text);
        }
    }
    const char *names[MAX_OUT] = {0};
    for (int o = 0; o < text.outs; o++)
        names[o] = p->word[o + 1].text;
    NodeId id = graph_node_named(p->graph, op, names, sig_text, &attrs, in, ins);
    Node *node = &p->graph->nodes.at[id];
    node->flow = flow;
    node->seg = flow == FLOW_FORWARD ? SEG_FORWARD : SEG_BACKWARD;
    return true;
}

static bool known_value(Parser *p, int word, ValueId *ret)
{
    *ret = word < p->words ? graph_find(p->graph, p->word[word].text) : NONE;
    return *ret != NONE || fail(p, word, "no such value");
}

static bool line_mark(Parser *p)
{
    Graph *graph = p->graph;
    ValueId *const mark[] = {&graph->chain_out, &graph->grad_out, &graph->loss};
    static const char *const names[] = {"chain_out", "grad_out", "loss"};
    int which = word_index(p->word[0].text, names, 3);
    if (p->words != 2 || *mark[which] != NONE)
        return fail(p, 0, "%s names one value, once", names[which]);
    return known_value(p, 1, mark[which]);
}

static bool line_grad(Parser *p)
{
    ValueId of, grad;
    if (p->words != 3 || !known_value(p, 1, &of) || !known_value(p, 2, &grad))
        return fail(p, 0, "grad names a parameter and its gradient");
    const Value *value = &p->graph->values.at[of];
    if (value->kind != VALUE_PARAM)
        return fail(p, 1, "%s is no parameter", value->name);
    p->graph->params.at[value->out].grad = grad;
    return true;
}

static bool line_beside(Parser *p)
{
    ValueId id;
    if (p->words != 2 || p->graph->beside.n == MOST_AHEAD || !known_value(p, 1, &id))
        return fail(p, 0, "beside names one value, at most %d times", MOST_AHEAD);
    vec_push(p->arena, &p->graph->beside) = id;
    return true;
}

static bool line_seed(Parser *p)
{
    Seed seed;
    if (p->words != 3 || !known_value(p, 1, &seed.of) || !known_value(p, 2, &seed.by))
        return fail(p, 0, "seed names a value and its gradient");
    vec_push(p->arena, &p->graph->seeds) = seed;
    return true;
}

static bool line_link(Parser *p)
{
    int64_t index = 0;
    if (p->words != 3 || !parse_int(p->word[2].text, 0, INT32_MAX, &index))
        return fail(p, 0, "a link names a class and a number");
    for (int i = 0; i < p->net->classes.n; i++) {
        if (strcmp(p->net->classes.at[i]->name, p->word[1].text) == 0) {
            vec_push(p->net->arena, &p->net->chain) = (Link){i, (int)index};
            return true;
        }
    }
    return fail(p, 1, "unknown class %s", p->word[1].text);
}

static bool line_parse(Parser *p)
{
    static const char *const words[] = {"dim",   "class", "link", "data",  "chain_in",  "grad_in",
                                        "param", "F",     "I",    "W",     "chain_out", "grad_out",
                                        "loss",  "grad",  "seed", "beside"};
    int which = word_index(p->word[0].text, words, 16);
    if (which >= 3 && !p->graph)
        return fail(p, 0, "%s stands in a class", words[which]);
    ValueId id;
    int next = 0;
    switch (which) {
    case 0:
        return line_dim(p);
    case 1:
        return line_class(p);
    case 2:
        return line_link(p);
    case 3:
    case 4:
    case 5:
        return line_value(p,
                          which == 3   ? VALUE_DATA
                          : which == 4 ? VALUE_CHAIN_IN
                                       : VALUE_GRAD_IN,
                          &id, &next) &&
               (next == p->words || fail(p, next, "a dim is missing here"));
    case 6:
        return line_param(p);
    case 7:
    case 8:
    case 9:
        return line_node(p, (Flow)(which - 7));
    case 10:
    case 11:
    case 12:
        return line_mark(p);
    case 13:
        return line_grad(p);
    case 14:
        return line_seed(p);
    case 15:
        return line_beside(p);
    default:
        return fail(p, 0, "no line begins with \"%s\"", p->word[0].text);
    }
}

/* Splits the line at `at` into words; *ret_end is the end of the line. */
static bool line_split(Parser *p, size_t at, size_t *ret_end)
{
    const Source *source = p->source;
    p->words = 0;
    while (at < source->length && source->text[at] != '\n') {
        size_t begin = at;
        while (at < source->length && !strchr(" \t\r\n", source->text[at]))
            at++;
        if (at > begin) {
            if (p->words == MAX_WORDS)
                return fail(p, MAX_WORDS - 1, "more than %d words in a line", MAX_WORDS);
            p->word[p->words++] =
                (Word){arena_strndup(p->arena, source->text + begin, at - begin), begin};
        }
        while (at < source->length && strchr(" \t\r", source->text[at]) && source->text[at])
            at++;
        if (at < source->length && source->text[at] == '\0')
            return diag_error(p->diag, json_span_bytes(source, at, 1), "a NUL in the text");
    }
    *ret_end = at < source->length ? at + 1 : at;
    return true;
}

Net *net_parse_text(Arena *arena, Diag *diag, const char *path, const char *text, size_t length)
{
    Source *source = ARENA_NEW(arena, Source);
    *source = (Source){path, text, length};
    Parser p = {.arena = arena, .diag = diag, .source = source};
    for (size_t at = 0; at < length;) {
        if (!line_split(&p, at, &at))
            return NULL;
        if (p.words == 0)
            continue;
        if (!p.net) {
            if (p.words != 2 || strcmp(p.word[0].text, "net") != 0) {
                fail(&p, 0, "the text of a net begins with \"net NAME\"");
                return NULL;
            }
            p.net = net_new(arena, p.word[1].text);
            continue;
        }
        if (!line_parse(&p))
            return NULL;
    }
    if (!p.net || p.net->batch == NONE || p.net->sequence == NONE) {
        diag_error(diag, NO_SPAN, "%s: a net needs a name, a batch dim and a sequence dim", path);
        return NULL;
    }
    const char *why = net_collect_fault(p.net);
    if (why) {
        diag_error(diag, NO_SPAN, "%s: %s", path, why);
        return NULL;
    }
    return net_verify(p.net, diag) ? p.net : NULL;
}
