/* test_graph_verify.c - a net broken in one place must be reported, whatever the place. */
#include <math.h>
#include <string.h>

#include "tests/ir/nets.h"
#include "tests/ir/tiny_models.h"

enum { EMBED, LAYER, HEAD };

static Node *node_named(Graph *graph, const char *name)
{
    for (int i = 0; i < graph->nodes.n; i++) {
        if (strcmp(graph->nodes.at[i].name, name) == 0)
            return &graph->nodes.at[i];
    }
    fail_msg("no node %s", name);
    return NULL;
}

static Value *value_named(Graph *graph, const char *name)
{
    ValueId id = graph_find(graph, name);
    assert_true(id != NONE);
    return &graph->values.at[id];
}

typedef struct Mutation {
    void (*apply)(Net *net);
    const char *says; /* part of one of the errors */
} Mutation;

#define LAYER_OF(net) ((net)->classes.at[LAYER])
#define MUTATION(name, says_, body)                                                                \
    static void name(Net *net)                                                                     \
    {                                                                                              \
        Graph *g = LAYER_OF(net);                                                                  \
        (void)g;                                                                                   \
        body                                                                                       \
    }
#define MUTATIONS                                                                                  \
    MUTATION(dim_name, "no identifier", net->dims.at[2].name = "a b";)                             \
    MUTATION(dim_twice, "two dims", net->dims.at[2].name = net->dims.at[3].name;)                  \
    MUTATION(dim_letter, "share letter", net->dims.at[2].letter = net->dims.at[3].letter;)         \
    MUTATION(dim_no_letter, "no letter", net->dims.at[2].letter = 't';)                            \
    MUTATION(dim_zero, "has extent", net->dims.at[2].extent = 0;)                                  \
    MUTATION(dim_huge, "has extent", net->dims.at[2].extent = INT64_MAX;)                          \
    MUTATION(dim_used, "uses", net->dims.at[2].used = 1000;)                                       \
    MUTATION(dim_kind, "second batch", net->dims.at[2].kind = DIM_BATCH;)                          \
    MUTATION(dim_no_batch, "one batch dim", net->batch = NONE;)                                    \
    MUTATION(value_name, "no identifier", value_named(g, "q")->name = "9";)                        \
    MUTATION(value_twice, "two values", value_named(g, "q")->name = "k";)                          \
    MUTATION(value_axes, "has 7 axes", value_named(g, "q")->axes = 7;)                             \
    MUTATION(value_dim, "has no dim", value_named(g, "q")->dim[1] = 99;)                           \
    MUTATION(value_other_dim, "is dim", value_named(g, "q")->dim[1] = 2;)                          \
    MUTATION(value_made, "not the output", value_named(g, "q")->made = 0;)                         \
    MUTATION(value_out, "not the output", value_named(g, "q")->out = 1;)                           \
    MUTATION(value_kind, "does not know", value_named(g, "q")->kind = VALUE_PARAM;)                \
    MUTATION(value_input, "does not know", value_named(g, "x")->kind = VALUE_INPUT;)               \
    MUTATION(value_number, "kind of number", value_named(g, "q")->number = NUM_INDEX;)             \
    MUTATION(data_number, "kind of number",                                                        \
             value_named(net->classes.at[HEAD], "labels")->number = NUM_FLOAT;)                    \
    MUTATION(data_unknown, "does not know", net->classes.at[EMBED]->data[DATA_IDS] = NONE;)        \
    MUTATION(chain_in_made, "no node's value", value_named(g, "x")->made = 3;)                     \
    MUTATION(node_op, "has no op", node_named(g, "q")->op = OP_COUNT;)                             \
    MUTATION(node_wrong_op, "does not match", node_named(g, "s1")->op = OP_MUL;)                   \
    MUTATION(node_name, "not called after", node_named(g, "q")->name = "z";)                       \
    MUTATION(node_outs, "not the output", node_named(g, "q")->outs = 0;)                           \
    MUTATION(node_ins, "10 operands", node_named(g, "q")->ins = 10;)                               \
    MUTATION(node_no_value, "reads or makes no value", node_named(g, "q")->in[0] = 9999;)          \
    MUTATION(node_late, "before it is made", node_named(g, "q")->in[0] = graph_find(g, "q1");)     \
    MUTATION(node_shape, "is dim h, its letter",                                                   \
             node_named(g, "q")->in[0] = graph_find(g, "input_layernorm.weight");)                 \
    MUTATION(node_grad_read, "reads a gradient",                                                   \
             node_named(g, "x2")->in[0] = graph_find(g, "grad_in");)                               \
    MUTATION(node_segment, "no segment", node_named(g, "q")->seg = (Segment)7;)                    \
    MUTATION(node_backward, "behind a backward", node_named(g, "q")->seg = SEG_BACKWARD;)          \
    MUTATION(node_flow, "wrong flow", node_named(g, "d.m")->flow = FLOW_WEIGHT;)                   \
    MUTATION(node_flow2, "wrong flow",                                                             \
             node_named(g, "d.mlp.down_proj.weight")->flow = FLOW_INPUT;)                          \
    MUTATION(node_flow3, "wrong flow", node_named(g, "q")->flow = FLOW_INPUT;)                     \
    MUTATION(node_unread, "nothing reads", node_named(g, "x1")->in[1] = graph_find(g, "x");)       \
    MUTATION(sig_letters, "has 13 letters", node_named(g, "q")->sig.letters = 13;)                 \
    MUTATION(sig_index, "does not have", node_named(g, "q")->sig.in[0][1] = 11;)                   \
    MUTATION(sig_letter, "its letter", node_named(g, "q")->sig.letter[0] = 'f';)                   \
    MUTATION(sig_dim_, "not the one its text means", node_named(g, "q")->sig.dim[1] = 0;)          \
    MUTATION(sig_nosplit, "not the one its text means", node_named(g, "q1")->sig.nosplit = 0;)     \
    MUTATION(sig_base, "not the one its text means", node_named(g, "q1")->sig.base = 0;)           \
    MUTATION(sig_in_out, "not the one its text means", node_named(g, "a")->sig.in_out ^= 1;)       \
    MUTATION(attr_eps, "out of range", node_named(g, "n1")->attrs.norm.eps = 0;)                   \
    MUTATION(attr_nan, "out of range", node_named(g, "n1")->attrs.norm.eps = NAN;)                 \
    MUTATION(attr_act, "out of range", node_named(g, "s1")->attrs.act.kind = ACT_KIND_COUNT;)      \
    MUTATION(attr_rotary, "out of range", node_named(g, "q1")->attrs.rope.rotary = 3;)             \
    MUTATION(attr_rotary2, "out of range", node_named(g, "q1")->attrs.rope.rotary = 6;)            \
    MUTATION(attr_theta, "out of range", node_named(g, "q1")->attrs.rope.theta = -1;)              \
    MUTATION(attr_ramp, "out of range", node_named(g, "q1")->attrs.rope.high = 0.5;)               \
    MUTATION(attr_scale, "out of range", node_named(g, "a")->attrs.attention.scale = 0;)           \
    MUTATION(attr_window, "out of range", node_named(g, "a")->attrs.attention.window = -1;)        \
    MUTATION(param_name_, "no proper name", g->params.at[0].name = "a b";)                         \
    MUTATION(param_twice, "two parameters", g->params.at[0].name = g->params.at[1].name;)          \
    MUTATION(param_value, "does not know", g->params.at[0].value = g->params.at[1].value;)         \
    MUTATION(param_group, "do not group", g->params.at[1].group[0] = 2;)                           \
    MUTATION(param_stored, "do not group", g->params.at[1].stored = 1;)                            \
    MUTATION(param_decay, "decay goes", g->params.at[1].decay = false;)                            \
    MUTATION(param_std, "proper start", g->params.at[1].std = -1;)                                 \
    MUTATION(param_grad_shape, "another shape", g->params.at[1].grad = g->params.at[0].grad;)      \
    MUTATION(param_grad_none, "is no value", g->params.at[1].grad = 9999;)                         \
    MUTATION(param_grad_forward, "made in forward", g->params.at[9].grad = graph_find(g, "a");     \
             g->params.at[9].group[0] = 1; g->params.at[9].group[1] = 4;)                          \
    MUTATION(end_no_out, "come together", g->chain_out = NONE;)                                    \
    MUTATION(end_no_grad, "come together", g->grad_out = NONE;)                                    \
    MUTATION(end_bad_out, "no such value", g->chain_out = 9999;)                                   \
    MUTATION(end_shape, "gradient of chain_in has another shape",                                  \
             g->grad_out = graph_find(g, "d.m");)                                                  \
    MUTATION(end_loss, "the loss", g->loss = graph_find(g, "x2");)                                 \
    MUTATION(end_no_loss, "one of the two", net->classes.at[HEAD]->loss = NONE;)                   \
    MUTATION(chain_empty, "chain is empty", net->chain.n = 0;)                                     \
    MUTATION(chain_class, "has no class", net->chain.at[1].class = 7;)                             \
    MUTATION(chain_order, "does not take", net->chain.at[0].class = LAYER;)                        \
    MUTATION(chain_short, "only it, makes the loss", net->chain.n--;)                              \
    MUTATION(chain_middle, "only it, makes the loss", net->chain.at[1].class = HEAD;)              \
    MUTATION(chain_unused, "no link is of class", net->chain.at[1].class = HEAD;                   \
             net->chain.at[2].class = HEAD;)                                                       \
    MUTATION(class_twice, "two classes", g->name = "head";)                                        \
    MUTATION(chain_repeated, "more than two links", net->chain.at[2].index = 0;                    \
             Link last = net->chain.at[3]; net->chain.at[3] = net->chain.at[2];                    \
             vec_push(net->arena, &net->chain) = last;)                                            \
    MUTATION(net_param_lost, "not those of its chain", net->params.n--;)                           \
    MUTATION(net_param_link, "not those of its chain", net->params.at[0].link[0] = 1;)             \
    MUTATION(net_param_name, "not those of its chain", net->params.at[0].name = "other";)

MUTATIONS
#undef MUTATION
#define MUTATION(name, says_, body) {name, says_},
static const Mutation mutations[] = {MUTATIONS};

static bool says(const Diag *diag, const char *part)
{
    for (int i = 0; i < diag_count(diag); i++) {
        if (strstr(diag_item(diag, i)->text, part))
            return true;
    }
    return false;
}

static void test_mutations(void **state)
{
    (void)state;
    int count = (int)(sizeof mutations / sizeof *mutations), missed = 0;
    for (int i = 0; i < count; i++) {
        Arena *arena = arena_new("test");
        Diag *diag = diag_new(arena);
        Net *net = net_from(arena, tiny_llama, 2, 5, 8);
        assert_true(net_verify(net, diag));
        mutations[i].apply(net);
        bool fine = net_verify(net, diag);
        if (fine || !says(diag, mutations[i].says)) {
            fprintf(stderr, "mutation %d (%s) is not reported so:\n", i, mutations[i].says);
            diag_print(diag, stderr, false);
            missed++;
        }
        arena_free(arena);
    }
    assert_int_equal(missed, 0);
}

/* Several faults are all listed. */
static void test_all_listed(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Diag *diag = diag_new(arena);
    Net *net = net_from(arena, tiny_llama, 2, 5, 8);
    attr_eps(net);
    node_flow(net);
    param_decay(net);
    assert_false(net_verify(net, diag));
    assert_int_equal(diag_errors(diag), 3);
    arena_free(arena);
}

/* Parts of a split make up its letter. */
static void test_split_parts(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Diag *diag = diag_new(arena);
    Net *net = net_from(arena, tiny_gpt2, 2, 5, 8);
    Dim *c = &net->dims.at[net_dim(net, "c")];
    c->extent = c->used = 4;
    assert_false(net_verify(net, diag));
    assert_true(says(diag, "parts of 3 together, its letter has 4"));
    arena_free(arena);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_mutations),
    cmocka_unit_test(test_all_listed),
    cmocka_unit_test(test_split_parts),
};

RUN(tests)
