/* test_kernel.c - the scratch of kernels.def is what the templates ask for. */
#include "ir/sig.h"
#include "templates/host/attention.c"
#include "tests/check.h"

static ValueId input(Graph *graph, const char *name, const char *letters, int axes)
{
    DimId dim[MAX_AXES];
    for (int a = 0; a < axes; a++)
        dim[a] = sig_dim(graph->net, letters[a]);
    return graph_value(graph, VALUE_INPUT, name, axes, dim);
}

/* What the price reserves is what the templates ask for. */
static void test_workspace(void **state)
{
    (void)state;
    for (int64_t d = 1; d <= 256; d += 15) {
        int64_t e = 1 + d * 7 % 131;
        Arena *arena = arena_new("test");
        Net *net = net_new(arena, "test");
        net_add_dim(net, "b", DIM_BATCH, 2);
        net_add_dim(net, "s", DIM_SEQUENCE, 8);
        net_add_dim(net, "g", DIM_OTHER, 2);
        net_add_dim(net, "r", DIM_OTHER, 3);
        net_add_dim(net, "d", DIM_OTHER, d);
        net_add_dim(net, "e", DIM_OTHER, e);
        static const char *const sigs[] = {"bsgrd,btgd,btge->bsgre,bsgr",
                                           "bsgrd,btgd,btge,bsgre,bsgr,bsgr->bsgrd,btgd,btge"};
        Graph *graph = net_add_class(net, "test");
        for (int i = 0; i < 2; i++) {
            ValueId in[6];
            SigText text;
            int64_t extent[MAX_LETTERS] = {0};
            assert_null(sig_parse(sigs[i], i == 0 ? 3 : 6, &text));
            for (int o = 0; o < text.ins; o++)
                in[o] = input(graph, arena_printf(arena, "in%d.%d", i, o), text.letter[o],
                              text.axes[o]);
            NodeId id = graph_node(graph, i == 0 ? OP_ATTENTION : OP_ATTENTION_GRAD,
                                   i == 0 ? "forward" : "backward", sigs[i], NULL, in, text.ins);
            const Node *node = &graph->nodes.at[id];
            for (int l = 0; l < node->sig.letters; l++)
                extent[l] = letter_extent(net, node, l);
            size_t want =
                i == 0 ? LP_ATTENTION_FORWARD_BYTES(d, e, 3) : LP_ATTENTION_BACKWARD_BYTES(d, e, 3);
            assert_int_equal(node_workspace_bytes(graph, node, extent, 3), want);
        }
        ValueId x = input(graph, "x", "bs", 2);
        NodeId sum = graph_node(graph, OP_ADD, "sum", "bs,bs->bs", NULL, (ValueId[]){x, x}, 2);
        int64_t extent[MAX_LETTERS] = {2, 8};
        assert_int_equal(node_workspace_bytes(graph, &graph->nodes.at[sum], extent, 3), 0);
        arena_free(arena);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_workspace),
};

RUN(tests)
