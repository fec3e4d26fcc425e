/* test_graph.c - building: letters, signatures bound to patterns, names, counts, and misuse that
 * must end the program. */
#include "ir/graph.h"

#include <stdlib.h>
#include <string.h>

#include "ir/name_table.h"
#include "ir/sig.h"
#include "tests/check.h"

static Net *small_net(Arena *arena)
{
    Net *net = net_new(arena, "small");
    net_add_dim(net, "b", DIM_BATCH, 2);
    net_add_dim(net, "s", DIM_SEQUENCE, 8);
    static const char *const names[] = {"h", "g", "r", "d", "v", "c"};
    static const int64_t extents[] = {6, 2, 3, 40, 11, 3};
    for (int i = 0; i < 6; i++)
        net_add_dim(net, names[i], DIM_OTHER, extents[i]);
    return net;
}

static ValueId value_of(Graph *graph, ValueKind kind, const char *name, const char *letters)
{
    DimId dim[MAX_AXES];
    for (int a = 0; letters[a]; a++)
        dim[a] = sig_dim(graph->net, letters[a]);
    return graph_value(graph, kind, name, (int)strlen(letters), dim);
}

static void test_letters(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Net *net = small_net(arena);
    assert_int_equal(net->dims.at[net->batch].letter, 'b');
    assert_int_equal(net->dims.at[net->sequence].letter, 's');
    assert_int_equal(net->dims.at[net_dim(net, "h")].letter, 'h');
    /* Taken letters pass on; t is never given away. */
    DimId heads = net_add_dim(net, "heads", DIM_OTHER, 2), t = net_add_dim(net, "t", DIM_OTHER, 2);
    assert_int_equal(net->dims.at[heads].letter, 'e');
    assert_int_not_equal(net->dims.at[t].letter, 't');
    for (int i = 0; i < net->dims.n; i++) {
        assert_int_equal(net->dims.at[i].used, net->dims.at[i].extent);
        for (int j = 0; j < i; j++)
            assert_int_not_equal(net->dims.at[i].letter, net->dims.at[j].letter);
    }
    assert_int_equal(net_dim(net, "nothing"), NONE);
    assert_int_equal(sig_dim(net, 't'), net->sequence);
    arena_free(arena);
}

static uint16_t letters_set(const Node *node, const char *letters)
{
    uint16_t set = 0;
    for (; *letters; letters++) {
        const char *at = memchr(node->sig.letter, *letters, (size_t)node->sig.letters);
        set |= (uint16_t)(1u << (at - node->sig.letter));
    }
    return set;
}

/* op, operands, signature, whole letters, base letters, letters of every output */
static void test_binding(void **state)
{
    (void)state;
    static const struct {
        OpId op;
        const char *sig, *nosplit, *base, *in_out;
    } cases[] = {
        {OP_EINSUM, "bsh,grdh->bsgrd", "", "", "bsgrd"},
        {OP_EINSUM, "bs,bs->", "", "", ""},
        {OP_REDUCE, "bsgrd->grd", "", "", "grd"},
        {OP_ADD, "bsh,bsh->bsh", "", "", "bsh"},
        {OP_BIAS, "bsgrd,grd->bsgrd", "", "", "bsgrd"},
        {OP_BIAS, "bsh,sh->bsh", "", "", "bsh"},
        {OP_NORM, "bsgrd,d->bsgrd", "d", "", "bsgrd"},
        {OP_NORM_DX, "bsh,h,bsh->bsh", "h", "", "bsh"},
        {OP_NORM_DG, "bsh,bsh->h", "h", "", "h"},
        {OP_ROPE, "bsgrd->bsgrd", "d", "s", "bsgrd"},
        {OP_ROPE, "bsd->bsd", "d", "s", "bsd"},
        {OP_ATTENTION, "bsgrd,btgd,btgd->bsgrd,bsgr", "dt", "st", "bsgr"},
        {OP_ATTENTION, "bsgrd,btd,btd->bsgrd,bsgr", "dt", "st", "bsgr"},
        {OP_ATTENTION, "bsd,btd,btd->bsd,bs", "dt", "st", "bs"},
        {OP_ATTENTION_GRAD, "bsgrd,btgd,btgd,bsgrd,bsgr,bsgr->bsgrd,btgd,btgd", "dt", "st", "bgd"},
        {OP_SPLIT, "bscgd->bsgd,bsgd,bsgd", "c", "", "bsgd"},
        {OP_SPLIT, "bsgdc->bsgd,bsgd", "c", "", "bsgd"},
        {OP_STACK, "gd,gd->cgd", "c", "", "cgd"},
        {OP_SPLIT, "bsvh->bsgrh,bsdh,bsh", "vgrd", "", "bsh"},
        {OP_STACK, "gr,d->v", "vgrd", "", "v"},
        {OP_BROADCAST, "sh->bsh", "", "", "bsh"},
        {OP_ROPE, "bsgd,bs->bsgd", "d", "s", "bsgd"},
        {OP_ATTENTION, "bsgd,btgd,btgh->bsgh,bsg", "dht", "st", "bsg"},
        {OP_ATTENTION, "bsgrd,btgd,btgh,gr->bsgrh,bsgr", "dht", "st", "bsgr"},
        {OP_ATTENTION, "bsgrd,btgd,btgh,gr,bs->bsgrh,bsgr", "dht", "st", "bsgr"},
        {OP_ATTENTION, "bsd,btd,bth,bs->bsh,bs", "dht", "st", "bs"},
        {OP_TOPK, "bsv->bsr", "vr", "", "bsr"},
        {OP_CAPACITY, "bsr->bsr", "sr", "", "bsr"},
        {OP_CHANCE, "bsr,bsr,bs->bsr", "r", "", "bsr"},
        {OP_TALLY, "bsr->v", "", "v", "v"},
        {OP_TALLY, "bsr->bv", "", "v", "bv"},
        {OP_TAKE, "bsr,bsv->bsr", "v", "", "bsr"},
        {OP_SPREAD, "bsr,bsr->bsv", "rv", "", "bsv"},
        {OP_EXPERT, "bsr,bsh,vgdh->bsrgd", "r", "v", "bsrgd"},
        {OP_EXPERT, "bsr,bsrh,vhg->bsrg", "r", "v", "bsrg"},
        {OP_EXPERT_DW, "bsr,bsrg,bsh->vgh", "r", "v", "vgh"},
        {OP_SLOPES, "->gr", "", "gr", "gr"},
        {OP_PLACES, "bs->bs", "", "s", "bs"},
        {OP_LOOKUP, "bs,vh->bsh", "", "v", "bsh"},
        {OP_SCATTER, "bs,bsh->vh", "", "v", "vh"},
        {OP_VMAX, "bsv->bs", "", "v", "bs"},
        {OP_SUMEXP, "bsv,bs->bs", "", "v", "bs"},
        {OP_PICK, "bs,bsv->bs", "", "v", "bs"},
        {OP_EXPMUL, "bsv,bs,bs->bsv", "", "v", "bsv"},
        {OP_ONEHOT, "bs,bs->bsv", "", "v", "bsv"},
        {OP_SUMSQ, "grdh->", "", "", ""},
        {OP_CLIP, "->", "", "", ""},
        {OP_MOMENTUM, "grd,grd,->grd", "", "", "grd"},
        {OP_DESCEND, "grd,grd,,->grd", "", "", "grd"},
        {OP_ADAMW, "grd,grd,grd,grd,,,->grd,grd,grd", "", "", "grd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new("test");
        Net *net = small_net(arena);
        Graph *graph = net_add_class(net, "test");
        ValueId in[MAX_IN];
        int ins = 1;
        for (const char *c = cases[i].sig; *c != '-'; c++)
            ins += *c == ',';
        SigText text;
        assert_null(sig_parse(cases[i].sig, ins, &text));
        for (int o = 0; o < ins; o++) {
            char letters[MAX_AXES + 1] = {0};
            memcpy(letters, text.letter[o], (size_t)text.axes[o]);
            in[o] = value_of(graph, VALUE_INPUT, arena_printf(arena, "in%d", o), letters);
            if (op_reads_index(cases[i].op, &text, o))
                graph->values.at[in[o]].number = NUM_INDEX;
        }
        NodeId id = graph_node(graph, cases[i].op, "y", cases[i].sig, NULL, in, ins);
        const Node *node = &graph->nodes.at[id];
        assert_int_equal(node->sig.nosplit, letters_set(node, cases[i].nosplit));
        assert_int_equal(node->sig.base, letters_set(node, cases[i].base));
        assert_int_equal(node->sig.in_out, letters_set(node, cases[i].in_out));
        Str back = str_new(arena);
        graph_put_sig(&back, graph, node);
        assert_string_equal(back.at, cases[i].sig);
        assert_int_equal(graph_out(graph, 0), node->out[0]);
        assert_string_equal(graph->values.at[node->out[0]].name, "y");
        if (node->outs > 1)
            assert_string_equal(graph->values.at[node->out[1]].name, "y.1");
        arena_free(arena);
    }
}

/* t gives an axis back as the sequence. */
static void test_key_positions(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Net *net = small_net(arena);
    Graph *graph = net_add_class(net, "test");
    ValueId in[6] = {
        value_of(graph, VALUE_PARAM, "q", "bsgrd"), value_of(graph, VALUE_PARAM, "k", "bsgd"),
        value_of(graph, VALUE_PARAM, "v", "bsgd"),  value_of(graph, VALUE_PARAM, "go", "bsgrd"),
        value_of(graph, VALUE_PARAM, "l", "bsgr"),  value_of(graph, VALUE_PARAM, "delta", "bsgr"),
    };
    NodeId id = graph_node(graph, OP_ATTENTION_GRAD, "y",
                           "bsgrd,btgd,btgd,bsgrd,bsgr,bsgr->bsgrd,btgd,btgd", NULL, in, 6);
    const Node *node = &graph->nodes.at[id];
    const Value *dk = &graph->values.at[node->out[1]];
    assert_int_equal(dk->dim[1], net->sequence);
    assert_int_not_equal(node->sig.out[0][1], node->sig.out[1][1]);
    assert_int_equal(letter_extent(net, node, node->sig.out[1][1]), 8);
    arena_free(arena);
}

static void test_counts(void **state)
{
    (void)state;
    static const struct {
        OpId op;
        const char *sig;
        int64_t flops;
    } cases[] = {
        {OP_EINSUM, "bsh,grdh->bsgrd", INT64_C(2) * 2 * 8 * 6 * 2 * 3 * 40},
        {OP_ADD, "bsh,bsh->bsh", 2 * 8 * 6},
        {OP_ATTENTION, "bsgrd,btgd,btgd->bsgrd,bsgr", INT64_C(4) * 2 * 8 * 8 * 6 * 40},
        {OP_ATTENTION_GRAD, "bsgrd,btgd,btgd,bsgrd,bsgr,bsgr->bsgrd,btgd,btgd",
         INT64_C(10) * 2 * 8 * 8 * 6 * 40},
        {OP_LOOKUP, "bs,vh->bsh", 0},
        {OP_SCATTER, "bs,bsh->vh", 2 * 8 * 6},
        {OP_PICK, "bs,bsv->bs", 2 * 8},
        {OP_SUMEXP, "bsv,bs->bs", 2 * 8 * 11},
        {OP_STACK, "gd,gd,gd->cgd", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new("test");
        Net *net = small_net(arena);
        Node node = {.op = cases[i].op};
        int ins = 1;
        for (const char *c = cases[i].sig; *c != '-'; c++)
            ins += *c == ',';
        SigText text;
        assert_null(sig_parse(cases[i].sig, ins, &text));
        assert_null(sig_resolve(net, cases[i].op, &text, &node.sig));
        assert_int_equal(node_flops(net, &node), cases[i].flops);
        arena_free(arena);
    }
}

static void test_names(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Param param = {.name = "model.layers.{i}.mlp.weight"};
    assert_string_equal(param_name(arena, &param, 31), "model.layers.31.mlp.weight");
    param.name = "lm_head.weight";
    assert_string_equal(param_name(arena, &param, 31), "lm_head.weight");
    static const struct {
        const char *name, *says; /* NULL: a fine name */
    } names[] = {
        {"a.{i}.b-c_d", NULL},
        {"a.{i}.experts.{e}.w1.weight", NULL},
        {"qkv.{i}.weight[0:12]", NULL},
        {"experts.{e}.w[12:24]", NULL},
        {"", "1 to 200"},
        {"a b", "no name has"},
        {"{i}{i}", "stand once"},
        {"{e}.{e}", "stand once"},
        {"{j}", "no name has"},
        {"[0:2]", "no name has"},
        {"w[2:2]", "[from:to]"},
        {"w[3:2]", "[from:to]"},
        {"w[-1:2]", "[from:to]"},
        {"w[0:]", "[from:to]"},
        {"w[:4]", "[from:to]"},
        {"w[0:4", "[from:to]"},
        {"w[0:4]x", "[from:to]"},
        {"w[ 0:4]", "[from:to]"},
        {"w[0:+4]", "[from:to]"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *why = param_name_fault(names[i].name);
        bool fine = names[i].says ? why && strstr(why, names[i].says) : !why;
        if (!fine)
            fail_msg("%s: %s", names[i].name, why ? why : "taken");
    }
    assert_true(name_is_identifier("_a9", false));
    assert_false(name_is_identifier("a.b", false));
    assert_true(name_is_identifier("a.b", true));
    assert_false(name_is_identifier("", true));
    assert_false(name_is_identifier("9a", false));
    assert_false(name_is_identifier("a-b", true));
    arena_free(arena);
}

static void test_name_table(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    NameTable table = name_table_new(arena);
    bool new;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 5000; i++) {
            assert_int_equal(name_table_add(&table, arena_printf(arena, "name.%d", i), &new), i);
            assert_int_equal(new, round == 0);
        }
    }
    assert_int_equal(table.names.n, 5000);
    arena_free(arena);
}

/* ---- misuse ---- */

typedef struct Misuse {
    int which;
    const char *text; /* part of what the message must say */
} Misuse;

static void misuse(void *argument)
{
    const Misuse *m = argument;
    Arena *arena = arena_new("test");
    Net *net = small_net(arena);
    Graph *graph = net_add_class(net, "test");
    ValueId x = value_of(graph, VALUE_PARAM, "x", "bsh"),
            w = value_of(graph, VALUE_PARAM, "w", "vh");
    ValueId ids = value_of(graph, VALUE_DATA, "ids", "bs"), none = NONE;
    ValueId both[2] = {x, w}, look[2] = {x, w};
    switch (m->which) {
    case 0:
        net_add_dim(net, "h", DIM_OTHER, 2);
        break;
    case 1:
        net_add_dim(net, "a-b", DIM_OTHER, 2);
        break;
    case 2:
        graph_node(graph, OP_EINSUM, "y", "bsh,vg->bsv", NULL, both, 2);
        break;
    case 3:
        graph_node(graph, OP_EINSUM, "y", "bsh,v->bsv", NULL, both, 2);
        break;
    case 4:
        graph_node(graph, OP_EINSUM, "y", "bsh,vh->bsg", NULL, both, 2);
        break;
    case 5:
        graph_node(graph, OP_ADD, "y", "bsh,vh->bsh", NULL, both, 2);
        break;
    case 6:
        graph_node(graph, OP_LOOKUP, "y", "bsh,vh->bshh", NULL, look, 2);
        break;
    case 7:
        graph_node(graph, OP_ACT, "y", "bs->bs", NULL, &ids, 1);
        break;
    case 8:
        graph_node(graph, OP_ACT, "y", "bsh->bsh", NULL, &none, 1);
        break;
    case 9:
        graph_node(graph, OP_ACT, "x", "bsh->bsh", NULL, &x, 1);
        break;
    case 10:
        graph_node(graph, OP_ACT, "y", "bsh", NULL, &x, 1);
        break;
    case 11:
        graph_value(graph, VALUE_DATA, "tokens", 0, NULL);
        break;
    case 12:
        graph_node(graph, OP_ACT, "y", "bsh,bsh->bsh", NULL, both, 1);
        break;
    case 13:
        extent_product(INT64_C(1) << 40, INT64_C(1) << 40);
        break;
    default:
        break;
    }
}

static void test_misuse(void **state)
{
    (void)state;
    static Misuse cases[] = {
        {0, "added twice"},
        {1, "not an identifier"},
        {2, "is dim h, its letter 'g'"},
        {3, "has 2 axes"},
        {4, "no operand has"},
        {5, "does not match"},
        {6, "a letter twice"},
        {7, "must not be ids"},
        {8, "is no value"},
        {9, "made twice"},
        {10, "nor '->'"},
        {11, "none of ids, labels, weight"},
        {12, "another number of operands"},
        {13, "passes 2^63"},
    };
    char text[2000];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(check_child(misuse, &cases[i], text, sizeof text), 70);
        if (!strstr(text, cases[i].text))
            fail_msg("case %d says %s", cases[i].which, text);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_letters),       cmocka_unit_test(test_binding),
    cmocka_unit_test(test_key_positions), cmocka_unit_test(test_counts),
    cmocka_unit_test(test_names),         cmocka_unit_test(test_name_table),
    cmocka_unit_test(test_misuse),
};

RUN(tests)
