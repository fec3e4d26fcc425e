/* test_model.c - model files: what they mean, and every way of getting one wrong. */
#include <stdlib.h>
#include <string.h>

#include "tests/ir/nets.h"
#include "tests/ir/tiny_models.h"

/* ---- what they mean ---- */

static const Graph *class_named(const Net *net, const char *name)
{
    for (int i = 0; i < net->classes.n; i++) {
        if (strcmp(net->classes.at[i]->name, name) == 0)
            return net->classes.at[i];
    }
    fail_msg("no class %s", name);
    return NULL;
}

static const Param *param_named(const Graph *graph, const char *name)
{
    for (int i = 0; i < graph->params.n; i++) {
        if (strcmp(graph->params.at[i].name, name) == 0)
            return &graph->params.at[i];
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

static void test_llama(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Net *net = net_from(arena, tiny_llama, 3, 7, 8);
    assert_int_equal(net->classes.n, 3);
    assert_int_equal(net->chain.n, 4);
    assert_int_equal(net->chain.at[2].index, 1);
    assert_int_equal(net->dims.at[net->batch].extent, 3);
    assert_int_equal(net->dims.at[net->sequence].extent, 7);
    const Dim *v = &net->dims.at[net_dim(net, "v")];
    assert_int_equal(v->used, 11);
    assert_int_equal(v->extent, 16);
    const Graph *layer = class_named(net, "layer");
    const Param *q = param_named(layer, "model.layers.{i}.self_attn.q_proj.weight");
    assert_int_equal(q->stored, 2);
    assert_int_equal(q->group[0], 3);
    assert_int_equal(q->group[1], 1);
    assert_true(q->decay && q->init == INIT_NORMAL && q->std == 0.3);
    const Param *bias = param_named(layer, "model.layers.{i}.self_attn.q_proj.bias");
    assert_true(!bias->decay && bias->init == INIT_ZEROS && bias->stored == 1 &&
                bias->group[0] == 3);
    const Param *gain = param_named(layer, "model.layers.{i}.input_layernorm.weight");
    assert_true(!gain->decay && gain->init == INIT_ONES && gain->stored == 1);
    /* h 6, f 5, v 11, g 2, r 2, d 4, two layers */
    int64_t layer_params = 2 * 6 + 16 * 6 + 16 + 2 * 8 * 6 + 6 * 16 + 3 * 6 * 5;
    assert_int_equal(net_param_count(net), 2 * 11 * 6 + 6 + 2 * layer_params);
    arena_free(arena);
}

static void test_gpt2(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Net *net = net_from(arena, tiny_gpt2, 3, 7, 1);
    const Param *qkv = param_named(class_named(net, "layer"), "h.{i}.attn.c_attn.weight");
    assert_int_equal(qkv->group[0], 1);
    assert_int_equal(qkv->group[1], 3);
    int64_t layer = 4 * 6 + (6 * 18 + 18) + (6 * 6 + 6) + (6 * 8 + 8) + (8 * 6 + 6);
    assert_int_equal(net_param_count(net), 11 * 6 + 9 * 6 + 2 * 6 + 2 * layer);
    arena_free(arena);
}

/* A model of published size from its shapes alone: Llama 3.1 8B and GPT-2 XL. */
static char *sized(Arena *arena, const char *model, const char *from, const char *to,
                   const char *from2, const char *to2)
{
    const char *pairs[4] = {from, to, from2, to2};
    char *text = arena_strdup(arena, model);
    for (int i = 0; i < 4; i += 2) {
        char *at = strstr(text, pairs[i]);
        assert_non_null(at);
        text = arena_printf(arena, "%.*s%s%s", (int)(at - text), text, pairs[i + 1],
                            at + strlen(pairs[i]));
    }
    return text;
}

static void test_published_counts(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    char *text = sized(arena, tiny_llama, "\"h\":6,\"f\":5,\"v\":11,\"g\":2,\"r\":2,\"d\":4",
                       "\"h\":4096,\"f\":14336,\"v\":128256,\"g\":8,\"r\":4,\"d\":128",
                       "\"repeat\":2", "\"repeat\":32");
    Net *llama = net_from(arena, text, 8, 8192, 512);
    /* The tiny model has biases on q: 4,096 a layer more than the published count. */
    assert_int_equal(net_param_count(llama) - 32 * 4096, INT64_C(8030261248));
    text = sized(arena, tiny_gpt2, "\"h\":6,\"f\":8,\"v\":11,\"p\":9,\"c\":3,\"g\":2,\"d\":3",
                 "\"h\":1600,\"f\":6400,\"v\":50257,\"p\":1024,\"c\":3,\"g\":25,\"d\":64",
                 "\"repeat\":2", "\"repeat\":48");
    assert_int_equal(net_param_count(net_from(arena, text, 8, 1024, 128)), INT64_C(1557611200));
    arena_free(arena);
}

/* Instances with other attributes are other classes; equal ones share one. */
static void test_each(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    char *text = sized(arena, tiny_llama, "\"repeat\":2",
                       "\"repeat\":5,\"first\":10,\"each\":[{},{\"a\":{\"window\":3}},{},"
                       "{\"a\":{\"window\":3},\"n1\":{\"eps\":1e-6}},{\"a\":{\"window\":3}}]",
                       "llama-tiny", "windows");
    Net *net = net_from(arena, text, 2, 5, 1);
    static const char *const names[] = {"embed",   "layer",   "layer_2", "layer",
                                        "layer_3", "layer_2", "head"};
    assert_int_equal(net->chain.n, 7);
    assert_int_equal(net->classes.n, 5);
    for (int i = 0; i < 7; i++)
        assert_string_equal(net->classes.at[net->chain.at[i].class]->name, names[i]);
    assert_int_equal(net->chain.at[5].index, 14);
    assert_string_equal(net->params.at[1].name, "model.layers.10.input_layernorm.weight");
    arena_free(arena);
}

/* Two entries of one block are one class; one weight used twice in a block gets the sum of two
 * gradients. */
static void test_sharing(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    char *text = sized(arena, tiny_llama, "{\"block\":\"layer\",\"repeat\":2}",
                       "{\"block\":\"layer\",\"repeat\":2},{\"block\":\"layer\",\"first\":2}",
                       "\"weight\":\"model.layers.{i}.mlp.up_proj.weight\"",
                       "\"weight\":\"model.layers.{i}.mlp.gate_proj.weight\"");
    Net *net = net_from(arena, text, 2, 5, 1);
    assert_int_equal(net->classes.n, 3);
    assert_int_equal(net->chain.n, 5);
    const Graph *layer = class_named(net, "layer");
    const Param *shared = param_named(layer, "model.layers.{i}.mlp.gate_proj.weight");
    const Node *sum = &layer->nodes.at[layer->values.at[shared->grad].made];
    assert_int_equal(sum->op, OP_ADD);
    arena_free(arena);
}

/* ---- what is wrong with them ---- */

#define MODEL(dims, blocks, chain)                                                                 \
    "{\"format\":\"lplan-model/1\",\"name\":\"m\",\n\"dims\":{" dims "},\n\"blocks\":{" blocks     \
    "},\n\"chain\":[" chain "]}"
#define DIMS "\"h\":4,\"v\":8,\"f\":4,\"d\":4"
#define EMBED                                                                                      \
    "\"embed\":{\"out\":\"x\",\"ops\":[{\"op\":\"embedding\",\"in\":\"ids\",\"out\":\"x\","        \
    "\"rows\":\"v\",\"cols\":[\"h\"],\"table\":\"wte\"}]}"
#define LOGITS                                                                                     \
    "{\"op\":\"linear\",\"in\":\"x\",\"out\":\"z\",\"to\":[\"v\"],\"weight\":\"head\"},"           \
    "{\"op\":\"cross_entropy\",\"in\":\"z\"}"
#define HEAD "\"head\":{\"in\":\"x\",\"ops\":[" LOGITS "]}"
#define CHAIN "{\"block\":\"embed\"},{\"block\":\"head\"}"
/* A middle block with these ops, repeated. */
#define MIDDLE(ops)                                                                                \
    MODEL(DIMS, EMBED ",\n\"mid\":{\"in\":\"x\",\"out\":\"y\",\"ops\":[\n" ops "]},\n" HEAD,       \
          "{\"block\":\"embed\"},{\"block\":\"mid\",\"repeat\":2},{\"block\":\"head\"}")
#define LINEAR(in, out, to, name)                                                                  \
    "{\"op\":\"linear\",\"in\":\"" in "\",\"out\":\"" out "\",\"to\":[\"" to                       \
    "\"],\"weight\":\"" name "\"}"
#define ADD(a, b, out) "{\"op\":\"add\",\"in\":[\"" a "\",\"" b "\"],\"out\":\"" out "\"}"
#define UP LINEAR("x", "u", "f", "w.{i}.u")
#define DOWN(in) LINEAR(in, "o", "h", "w.{i}.o")

/* The same with dims for experts, d as many as h. */
#define EXPERTS(ops)                                                                               \
    MODEL(DIMS ",\"e\":4,\"k\":2",                                                                 \
          EMBED ",\n\"mid\":{\"in\":\"x\",\"out\":\"y\",\"ops\":[\n" ops "]},\n" HEAD,             \
          "{\"block\":\"embed\"},{\"block\":\"mid\",\"repeat\":2},{\"block\":\"head\"}")
#define GATE LINEAR("x", "l", "e", "g.{i}")
#define ROUTER(score, k, more)                                                                     \
    "{\"op\":\"router\",\"in\":\"l\",\"out\":[\"c\",\"w\"],\"k\":\"" k "\",\"score\":\"" score     \
    "\"" more "}"
#define EXPERT(choice, experts, to, more)                                                          \
    "{\"op\":\"expert_linear\",\"in\":\"x\",\"choice\":\"" choice                                  \
    "\",\"out\":\"o\",\"experts\":\"" experts "\",\"to\":[\"" to                                   \
    "\"],\"weight\":\"w.{i}.{e}\"" more "}"

typedef struct Bad {
    const char *text, *says, *helps; /* parts of the first error and of its remedy */
} Bad;

static const Bad bad_models[] = {
    {"{\"format\":\"lplan-model/2\"}", "lplan-model/2", NULL},
    {"[]", "object", NULL},
    {"{}", "format", NULL},
    {"{\"model_type\":\"llama\",\"hidden_size\":4}", "Hugging Face", "lplan import"},
    {"{\"format\":\"lplan-model/1\",\"name\":\"a b\",\"dims\":{},\"blocks\":{},\"chain\":[]}",
     "no model name", "letters"},
    {"{\"format\":\"lplan-model/1\",\"name\":\"m\",\"dim\":{},\"blocks\":{},\"chain\":[]}", "dim",
     "dims"},
    {MODEL("\"h\":0", EMBED, CHAIN), "0", NULL},
    {MODEL("\"h\":1099511627777", EMBED, CHAIN), "1099511627777", NULL},
    {MODEL("\"h\":\"4\"", EMBED, CHAIN), "integer", NULL},
    {MODEL("\"h-1\":4", EMBED, CHAIN), "not an identifier", "letters"},
    {MODEL("\"b\":4", EMBED, CHAIN), "always there", "remove"},
    {MODEL("\"h\":4,\"h\":4", EMBED, CHAIN), "duplicate", NULL},
    {MODEL(DIMS, EMBED "," HEAD, ""), "empty chain", "list"},
    {MODEL(DIMS, EMBED "," HEAD, "{\"block\":\"embed\"},{\"block\":\"haed\"}"), "unknown block",
     "\"head\""},
    {MODEL(DIMS, EMBED "," HEAD, "{\"block\":\"embed\"}"), "hands nothing on", "cross_entropy"},
    {MODEL(DIMS,
           "\"embed\":{\"ops\":[{\"op\":\"embedding\",\"in\":\"ids\",\"out\":\"x\","
           "\"rows\":\"v\",\"cols\":[\"h\"],\"table\":\"wte\"}]}",
           "{\"block\":\"embed\"}"),
     "makes no loss", "cross_entropy"},
    {MODEL(DIMS, EMBED "," HEAD, "{\"block\":\"head\"}"), "no block before", "embedding"},
    {MODEL(DIMS, EMBED "," HEAD,
           "{\"block\":\"embed\"},{\"block\":\"embed\"},{\"block\":\"head\"}"),
     "reads nothing", "\"in\""},
    {MODEL(DIMS, EMBED "," HEAD, "{\"block\":\"embed\"},{\"block\":\"head\",\"repeat\":0}"), "0",
     NULL},
    {MODEL(DIMS, EMBED "," HEAD, "{\"block\":\"embed\"},{\"block\":\"head\",\"times\":2}"), "times",
     NULL},
    {MODEL(DIMS, EMBED ",\"spare\":{\"ops\":[]}," HEAD, CHAIN), "no link", "chain"},
    {MODEL(DIMS, EMBED ",\"head\":{\"in\":\"x\",\"out\":\"z\",\"ops\":[" LOGITS "]}", CHAIN),
     "hands nothing on", "remove"},
    {MODEL(DIMS,
           EMBED ",\"head\":{\"in\":\"x\",\"ops\":[" LOGITS
                 ",{\"op\":\"cross_entropy\",\"in\":\"z\"}]}",
           CHAIN),
     "second cross_entropy", "one loss"},
    {MODEL(DIMS,
           EMBED ",\"head\":{\"in\":\"x\",\"ops\":[{\"op\":\"cross_entropy\",\"in\":\"labels\"}]}",
           CHAIN),
     "labels", "cross_entropy"},
    {MODEL(DIMS,
           EMBED
           ",\"head\":{\"in\":\"x\",\"ops\":[{\"op\":\"linear\",\"in\":\"x\",\"out\":\"z\","
           "\"to\":[\"v\",\"f\"],\"weight\":\"head\"},{\"op\":\"cross_entropy\",\"in\":\"z\"}]}",
           CHAIN),
     "[b, s, v, f]", "vocabulary"},
    {MIDDLE("{\"op\":\"linaer\",\"in\":\"x\"}"), "linaer", "linear"},
    {MIDDLE("7"), "object", NULL},
    {MIDDLE("{\"op\":\"act\",\"kind\":\"silu\",\"in\":\"xx\",\"out\":\"y\"}"), "\"xx\"", "\"x\""},
    {MIDDLE("{\"op\":\"act\",\"kind\":\"swosh\",\"in\":\"x\",\"out\":\"y\"}"), "swosh", "swish"},
    {MIDDLE("{\"op\":\"act\",\"kind\":\"swish\",\"in\":\"x\",\"out\":\"y\"}"), "\"a\"", "add it"},
    {MIDDLE("{\"op\":\"act\",\"kind\":\"softcap\",\"a\":0,\"in\":\"x\",\"out\":\"y\"}"),
     "more than 0", "cap of softcap"},
    {MIDDLE("{\"op\":\"act\",\"kind\":\"clamp\",\"a\":1,\"b\":1,\"in\":\"x\",\"out\":\"y\"}"),
     "clamp from 1 to 1", "upper end"},
    {MIDDLE("{\"op\":\"act\",\"kind\":\"gelu\",\"in\":\"x\",\"out\":\"y\"}"), "gelu", NULL},
    {MIDDLE("{\"op\":\"act\",\"kind\":\"silu\",\"in\":\"x\",\"out\":\"y\",\"slope\":1}"), "slope",
     NULL},
    {MIDDLE("{\"op\":\"act\",\"kind\":\"silu\",\"in\":\"x\",\"out\":\"x\"}"), "defined twice",
     "another name"},
    {MIDDLE("{\"op\":\"act\",\"kind\":\"silu\",\"in\":\"x\",\"out\":\"loss\"}"), "of its own",
     "another name"},
    {MIDDLE("{\"op\":\"act\",\"kind\":\"silu\",\"in\":\"x\",\"out\":\"a.b\"}"), "not an identifier",
     "letters"},
    {MIDDLE("{\"op\":\"act\",\"kind\":\"silu\",\"in\":\"ids\",\"out\":\"y\"}"), "whole numbers",
     "embedding"},
    {MIDDLE("{\"op\":\"embedding\",\"in\":\"x\",\"out\":\"y\",\"rows\":\"v\",\"cols\":[\"f\"],"
            "\"table\":\"w{i}\"}"),
     "not a list of ids", "positions"},
    {MIDDLE(
         "{\"op\":\"embedding\",\"in\":\"positions\",\"out\":\"y\",\"rows\":\"d\",\"cols\":[\"h\"],"
         "\"table\":\"w{i}\"}"),
     "5 positions", "at most 4"},
    {MIDDLE("{\"op\":\"embedding\",\"in\":\"ids\",\"out\":\"y\",\"rows\":\"h\",\"cols\":[\"h\"],"
            "\"table\":\"w{i}\"}"),
     "two that the ids", "of their own"},
    {MIDDLE(UP), "\"y\"", NULL},
    {MIDDLE(UP "," DOWN("u") "," ADD("x", "x", "y")), "nothing reads \"o\"", "remove"},
    {MIDDLE(UP "," ADD("x", "u", "y")), "[b, s, f]", "like the first"},
    {MIDDLE(UP ",{\"op\":\"mul\",\"in\":[\"x\",\"u\"],\"out\":\"y\"}"), "[b, s, f]",
     "some of them"},
    {MIDDLE("{\"op\":\"add\",\"in\":[\"x\"],\"out\":\"y\"}"), "1 operands", "2 values"},
    {MIDDLE(LINEAR("x", "y", "h", "w.{i}")), "in the input already", "of its own"},
    {MIDDLE(LINEAR("x", "y", "q", "w.{i}")), "unknown dim \"q\"", "dims"},
    {MIDDLE(LINEAR("x", "y", "f", "w.{i}.u")), "must hand on what it takes", "same dims"},
    {MIDDLE(LINEAR("x", "y", "f", "w")), "no {i}", "layer number"},
    {MIDDLE(LINEAR("x", "y", "f", "w {i}")), "no parameter name", "letters"},
    {MIDDLE(LINEAR("x", "y", "f", "w{i}{i}")), "no parameter name", "one {i}"},
    {MIDDLE(LINEAR("x", "y", "f", "w{j}{i}")), "no parameter name", "letters"},
    {MIDDLE(UP "," LINEAR("u", "o", "h", "w.{i}.u") "," ADD("x", "o", "y")), "and [f, h] before",
     "another name"},
    {MIDDLE("{\"op\":\"linear\",\"in\":\"x\",\"out\":\"u\",\"from\":[\"f\"],\"to\":[\"d\"],"
            "\"weight\":\"w{i}\"}"),
     "not the last axes", "contracts"},
    {MIDDLE("{\"op\":\"linear\",\"in\":\"x\",\"out\":\"u\",\"to\":[],\"weight\":\"w{i}\"}"),
     "0 dims", "axes"},
    {MIDDLE(
         "{\"op\":\"linear\",\"in\":\"x\",\"out\":\"u\",\"to\":[\"f\",\"f\"],\"weight\":\"w{i}\"}"),
     "twice", "of its own"},
    {MIDDLE("{\"op\":\"linear\",\"in\":\"x\",\"out\":\"u\",\"to\":[\"f\"]}"), "weight", NULL},
    {MIDDLE("{\"op\":\"norm\",\"kind\":\"rms\",\"eps\":0,\"in\":\"x\",\"out\":\"y\",\"gain\":\"g{i}"
            "\"}"),
     "0", NULL},
    {MIDDLE("{\"op\":\"norm\",\"kind\":\"rms\",\"in\":\"x\",\"out\":\"y\",\"gain\":\"g{i}\"}"),
     "eps", NULL},
    {MIDDLE("{\"op\":\"rope\",\"theta\":100,\"in\":\"x\",\"out\":\"y\",\"rotary\":3}"), "pair up",
     "even"},
    {MIDDLE("{\"op\":\"rope\",\"theta\":100,\"in\":\"x\",\"out\":\"y\",\"rotary\":8}"), "8", NULL},
    {MIDDLE("{\"op\":\"rope\",\"theta\":100,\"in\":\"x\",\"out\":\"y\",\"scaling\":{\"kind\":"
            "\"yarn\"}}"),
     "factor", "add it"},
    {MIDDLE("{\"op\":\"rope\",\"theta\":100,\"in\":\"x\",\"out\":\"y\",\"scaling\":{\"kind\":"
            "\"yarm\"}}"),
     "yarm", "yarn"},
    {MIDDLE("{\"op\":\"rope\",\"theta\":100,\"in\":\"x\",\"out\":\"y\",\"scaling\":{\"kind\":"
            "\"long\",\"original\":8,\"near\":[1,1,1],\"far\":[1,1]}}"),
     "3 factors for 2 pairs", "each pair"},
    {MIDDLE("{\"op\":\"rope\",\"theta\":100,\"in\":\"x\",\"out\":\"y\",\"scaling\":{\"kind\":"
            "\"llama3\","
            "\"factor\":8,\"low\":4,\"high\":1,\"original\":8}}"),
     "more than", "Llama"},
    {MIDDLE("{\"op\":\"attention\",\"in\":[\"x\",\"x\",\"ids\"],\"out\":\"y\"}"), "whole numbers",
     "embedding"},
    {MIDDLE(
         "{\"op\":\"linear\",\"in\":\"x\",\"out\":\"u\",\"to\":[\"f\",\"d\"],\"weight\":\"w{i}\"},"
         "{\"op\":\"attention\",\"in\":[\"x\",\"x\",\"u\"],\"out\":\"y\"}"),
     "need the same heads", "widths may differ"},
    {MIDDLE("{\"op\":\"attention\",\"in\":[\"x\",\"x\",\"x\"],\"out\":\"y\",\"sink\":\"k{i}\"}"),
     "a sink for no heads", "heads"},
    {MIDDLE("{\"op\":\"attention\",\"in\":[\"x\",\"x\",\"x\"],\"out\":\"y\",\"softcap\":0}"), "0",
     NULL},
    {MIDDLE(UP ",{\"op\":\"attention\",\"in\":[\"x\",\"u\",\"u\"],\"out\":\"y\"}"), "begin those",
     "[b, s, g, r, d]"},
    {MIDDLE("{\"op\":\"attention\",\"in\":[\"x\",\"x\",\"x\"],\"out\":\"y\",\"causal\":false,"
            "\"window\":4}"),
     "without a causal", "causal"},
    {MIDDLE("{\"op\":\"split\",\"in\":\"x\",\"dim\":\"h\",\"out\":[\"p\",\"q\",\"r\",\"y\"]}"),
     "4 parts", "2 or 3"},
    {MIDDLE("{\"op\":\"split\",\"in\":\"x\",\"dim\":\"f\",\"out\":[\"p\",\"y\"]}"), "no dim f",
     "dim of the value"},
    {MODEL("\"h\":2,\"v\":8",
           EMBED ",\"mid\":{\"in\":\"x\",\"out\":\"y\",\"ops\":[{\"op\":\"split\","
                 "\"in\":\"x\",\"dim\":\"h\",\"out\":[\"y\",\"y\"]}]}," HEAD,
           "{\"block\":\"embed\"},{\"block\":\"mid\"},{\"block\":\"head\"}"),
     "two parts", NULL},
    {MIDDLE("{\"op\":\"split\",\"in\":\"x\",\"dim\":\"h\",\"out\":[\"p\",\"y\"],"
            "\"parts\":[[\"f\"],[]]}"),
     "parts of 5 together, dim h has 4", "make up the whole"},
    {MIDDLE("{\"op\":\"split\",\"in\":\"x\",\"dim\":\"h\",\"out\":[\"p\",\"y\"],"
            "\"parts\":[[\"f\"]]}"),
     "1 parts for 2 names", "list the dims"},
    {MIDDLE("{\"op\":\"split\",\"in\":\"x\",\"dim\":\"h\",\"out\":[\"p\",\"y\"],"
            "\"parts\":[[\"s\"],[]]}"),
     "dim s is in the whole already", "of its own"},
    {MIDDLE(UP ",{\"op\":\"concat\",\"in\":[\"x\",\"u\"],\"dim\":\"d\",\"out\":\"y\"}"),
     "\"u\" is [b, s, f], the part would be [b, s, h]", "own dims"},
    {MIDDLE(UP ",{\"op\":\"concat\",\"in\":[\"x\",\"u\"],\"dim\":\"d\",\"out\":\"y\","
               "\"parts\":[[\"h\"],[\"f\"]]}"),
     "parts of 8 together, dim d has 4", "make up the whole"},
    {MODEL("\"h\":2,\"v\":8",
           EMBED ",\"mid\":{\"in\":\"x\",\"out\":\"y\",\"ops\":[{\"op\":\"concat\","
                 "\"in\":[\"x\",\"x\"],\"dim\":\"h\",\"out\":\"y\"}]}," HEAD,
           "{\"block\":\"embed\"},{\"block\":\"mid\"},{\"block\":\"head\"}"),
     "dim h is in the parts already", "of its own"},
    {MIDDLE("{\"op\":\"broadcast\",\"in\":\"x\",\"out\":\"y\",\"dims\":[\"b\",\"h\",\"f\"]}"),
     "is no part of", "list all dims"},
    {MIDDLE(LINEAR("x", "y", "f", "w{i}[3:2]")), "[from:to]", "[a:b]"},
    {MIDDLE(LINEAR("x", "y", "f", "w{i}[0:4]x")), "[from:to]", "[a:b]"},
    {MIDDLE(LINEAR("x", "y", "f", "w{i}.{e}.{e}")), "stand once", "{e}"},
    {EXPERTS(ROUTER("softmax", "k", "")), "no value \"l\"", "order"},
    {EXPERTS(GATE "," ROUTER("softnax", "k", "")), "softnax", "softmax"},
    {EXPERTS(GATE "," ROUTER(
         "sigmoid", "k",
         ",\"bias\":\"t{i}\",\"bias_rate\":0.1") ","
                                                 "{\"op\":\"router\",\"in\":\"l\",\"out\":[\"c2\","
                                                 "\"p2\"],\"k\":\"k\",\"score\":\"sigmoid\","
                                                 "\"bias\":\"t{i}\"}"),
     "not trained by gradients", "of its own"},
    {EXPERTS(GATE "," ROUTER("softmax", "v", "")), "8 experts are chosen", "\"kept\""},
    {EXPERTS(GATE "," ROUTER("softmax", "e", "")), "has not", "add a dim"},
    {EXPERTS(GATE "," ROUTER("sigmoid", "k", ",\"groups\":3,\"kept\":1")),
     "4 experts do not make 3", "divisor"},
    {EXPERTS(GATE "," ROUTER("sigmoid", "k", ",\"groups\":4,\"kept\":1")),
     "2 experts are chosen out of 1 groups with 1", "1 to 4"},
    {EXPERTS(GATE "," ROUTER("sigmoid", "k", ",\"groups\":2,\"kept\":1,\"by\":\"min\"")), "min",
     "max"},
    {EXPERTS("{\"op\":\"linear\",\"in\":\"x\",\"out\":\"l\",\"to\":[\"f\",\"e\"],"
             "\"weight\":\"g{i}\"}," ROUTER("softmax", "k", ",\"capacity\":1")),
     "tokens of a sequence", "[b, s, h]"},
    {EXPERTS(GATE "," ROUTER("softmax", "f", ",\"second\":\"random\"")), "one of two",
     "\"k\" of 2"},
    {EXPERTS(GATE "," ROUTER("softmax", "k", ",\"second\":\"rarely\"")), "rarely", "random"},
    {EXPERTS(GATE "," ROUTER("softmax", "k", ",\"after\":true,\"balance\":0.1")),
     "scores of all experts", "\"after\""},
    {EXPERTS(GATE ",{\"op\":\"router\",\"in\":\"l\",\"out\":[\"c\"],\"k\":\"k\","
                  "\"score\":\"softmax\"}"),
     "makes two values", "share"},
    {EXPERTS(GATE "," ROUTER("softmax", "k", "") "," EXPERT("ids", "e", "f", "")), "no choice",
     "router"},
    {EXPERTS(GATE "," ROUTER("softmax", "k", "") "," EXPERT("x", "e", "f", "")), "no choice",
     "router"},
    {EXPERTS(GATE "," ROUTER("softmax", "k", "") "," EXPERT("c", "d", "f", "")),
     "the router has 4 experts of dim e", "\"e\""},
    {EXPERTS(GATE "," ROUTER("softmax", "k", "") "," EXPERT("c", "e", "h", "")),
     "dim h is in the input already", "of its own"},
    {EXPERTS(GATE "," ROUTER("softmax", "k", "") ",{\"op\":\"combine\",\"in\":[\"w\",\"w\"],"
                                                 "\"out\":\"y\"}"),
     "combine reads", "second result"},
    {MODEL(DIMS,
           EMBED ",\"mid\":{\"in\":\"x\",\"out\":\"x\",\"ops\":[" ADD("x", "x", "y") "]}," HEAD,
           "{\"block\":\"embed\"},{\"block\":\"mid\"},{\"block\":\"head\"}"),
     "does not make", "result of an op"},
    {MODEL(DIMS,
           EMBED ",\"mid\":{\"in\":\"x\",\"out\":\"y\",\"ops\":[" ADD("x", "x", "y") "]}," HEAD,
           "{\"block\":\"embed\"},{\"block\":\"mid\",\"repeat\":2,\"each\":[{}]},{\"block\":"
           "\"head\"}"),
     "one object per repeat", "empty object"},
    {MODEL(DIMS,
           EMBED ",\"mid\":{\"in\":\"x\",\"out\":\"y\",\"ops\":[" ADD("x", "x", "y") "]}," HEAD,
           "{\"block\":\"embed\"},{\"block\":\"mid\",\"each\":[{\"yy\":{}}]},{\"block\":\"head\"}"),
     "no op of the block makes", "\"y\""},
    {MODEL(DIMS,
           EMBED ",\"mid\":{\"in\":\"x\",\"out\":\"y\",\"ops\":[" ADD("x", "x", "y") "]}," HEAD,
           "{\"block\":\"embed\"},{\"block\":\"mid\",\"each\":[{\"y\":{\"in\":3}}]},{\"block\":"
           "\"head\"}"),
     "in", NULL},
    {MODEL(DIMS,
           EMBED ",\"mid\":{\"in\":\"x\",\"out\":\"y\",\"ops\":[" UP
                 "," DOWN("u") "," ADD("x", "o", "y") "]}," HEAD,
           "{\"block\":\"embed\"},{\"block\":\"mid\"},{\"block\":\"mid\"},{\"block\":\"mid\"},"
           "{\"block\":\"head\"}"),
     "more than two links", "first"},
    {MODEL(DIMS,
           EMBED ",\"head\":{\"in\":\"x\",\"ops\":[{\"op\":\"linear\",\"in\":\"x\",\"out\":\"z\","
                 "\"to\":[\"f\"],\"weight\":\"wte\"},{\"op\":\"cross_entropy\",\"in\":\"z\"}]}",
           CHAIN),
     "another shape", "same dims"},
    {MODEL("\"h\":1099511627776,\"v\":1099511627776", EMBED "," HEAD, CHAIN), "2^59", "smaller"},
};

static Net *read_text(Arena *arena, Diag *diag, const char *text)
{
    JsonDoc *doc = json_parse(arena, diag, "bad.json", text, strlen(text));
    Net *net = doc ? model_read(arena, diag, json_root(doc), 2, 5, 1) : NULL;
    json_doc_free(doc);
    return net;
}

static void test_bad_models(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof bad_models / sizeof *bad_models; i++) {
        Arena *arena = arena_new("test");
        Diag *diag = diag_new(arena);
        const Bad *bad = &bad_models[i];
        Net *net = read_text(arena, diag, bad->text);
        const DiagItem *item = diag_count(diag) > 0 ? diag_item(diag, 0) : NULL;
        bool fine = !net && item && strstr(item->text, bad->says) && item->span.line >= 1 &&
                    item->span.column >= 1;
        fine = fine && (!bad->helps || (item->help && strstr(item->help, bad->helps)));
        if (!fine) {
            fprintf(stderr, "case %zu, \"%s\":\n", i, bad->says);
            diag_print(diag, stderr, false);
            wrong++;
        }
        arena_free(arena);
    }
    assert_int_equal(wrong, 0);
}

/* The smallest good model of these macros, so that the bad ones are bad in one place only. */
static void test_good_models(void **state)
{
    (void)state;
    static const char *const good[] = {
        MODEL(DIMS, EMBED "," HEAD, CHAIN),
        MIDDLE(UP "," DOWN("u") "," ADD("x", "o", "y")),
        MIDDLE("{\"op\":\"attention\",\"in\":[\"x\",\"x\",\"x\"],\"out\":\"y\",\"window\":4}"),
        MIDDLE("{\"op\":\"scale\",\"factor\":2,\"in\":\"x\",\"out\":\"y\"}"),
        EXPERTS(
            GATE
            "," ROUTER("softmax", "k", ",\"balance\":0.1,\"z\":0.1,\"capacity\":1.5") "," EXPERT(
                "c", "e", "f",
                ",\"bias\":\"b.{i}.{e}\"") ",{\"op\":\"combine\",\"in\":[\"o\",\"w\"],\"out\":"
                                           "\"u\"}," LINEAR("u", "y", "h", "w.{i}.o")),
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        Arena *arena = arena_new("test");
        Diag *diag = diag_new(arena);
        Net *net = read_text(arena, diag, good[i]);
        if (!net)
            diag_print(diag, stderr, false);
        assert_non_null(net);
        assert_int_equal(diag_count(diag), 0);
        arena_free(arena);
    }
}

static void test_bad_job(void **state)
{
    (void)state;
    static const int64_t jobs[][3] = {{0, 5, 1}, {2, 0, 1}, {2, 5, 0}, {-1, 5, 1}, {2, 5, 1 << 21}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        Arena *arena = arena_new("test");
        Diag *diag = diag_new(arena);
        JsonDoc *doc = json_parse(arena, diag, "m.json", tiny_llama, sizeof tiny_llama - 1);
        assert_null(model_read(arena, diag, json_root(doc), jobs[i][0], jobs[i][1], jobs[i][2]));
        assert_int_equal(diag_errors(diag), 1);
        assert_non_null(diag_item(diag, 0)->help);
        json_doc_free(doc);
        arena_free(arena);
    }
}

/* A good model with any run of bytes taken out never crashes the reader. */
static void test_torn_models(void **state)
{
    (void)state;
    static const char *const models[] = {tiny_llama, tiny_gpt2, tiny_everything};
    for (int m = 0; m < 3; m++) {
        const char *text = models[m];
        size_t length = strlen(text);
        for (size_t at = 0; at < length; at++) {
            if (!strchr("\"{}[],:", text[at]))
                continue;
            Arena *arena = arena_new("test");
            Diag *diag = diag_new(arena);
            size_t end = at + 1 + strcspn(text + at + 1, ",}]");
            char *torn =
                arena_printf(arena, "%.*s%s", (int)at, text, text + (end < length ? end : length));
            Net *net = read_text(arena, diag, torn);
            assert_true((net == NULL) == (diag_errors(diag) > 0));
            arena_free(arena);
        }
    }
}

static void test_load(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Diag *diag = diag_new(arena);
    assert_null(model_load(arena, diag, "/nonexistent/model.json", 2, 5, 1, NULL));
    assert_int_equal(diag_errors(diag), 1);
    char path[] = "/tmp/lplan-test-model-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_true(file_write(path, tiny_gpt2, sizeof tiny_gpt2 - 1));
    JsonDoc *doc = NULL;
    diag = diag_new(arena);
    Net *net = model_load(arena, diag, path, 2, 5, 1, &doc);
    assert_non_null(net);
    assert_non_null(doc);
    assert_true(json_has(json_root(doc), "blocks"));
    json_doc_free(doc);
    remove(path);
    arena_free(arena);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_llama),
    cmocka_unit_test(test_gpt2),
    cmocka_unit_test(test_published_counts),
    cmocka_unit_test(test_each),
    cmocka_unit_test(test_sharing),
    cmocka_unit_test(test_good_models),
    cmocka_unit_test(test_bad_models),
    cmocka_unit_test(test_bad_job),
    cmocka_unit_test(test_torn_models),
    cmocka_unit_test(test_load),
};

RUN(tests)
