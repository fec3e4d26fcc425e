/* test_kernel.c - the scratch of kernels.def is what the templates ask for. */
#include "ir/sig.h"
#include "templates/host/attention.c"
#include "tests/check.h"

/* What the price reserves is what the templates ask for. */
static void test_workspace(void **state)
{
    (void)state;
    for (int64_t d = 1; d <= 256; d += 15) {
        Arena *arena = arena_new("test");
        Net *net = net_new(arena, "test");
        net_add_dim(net, "b", DIM_BATCH, 2);
        net_add_dim(net, "s", DIM_SEQUENCE, 8);
        net_add_dim(net, "g", DIM_OTHER, 2);
        net_add_dim(net, "r", DIM_OTHER, 3);
        net_add_dim(net, "d", DIM_OTHER, d);
        static const char *const sigs[] = {"bsgrd,btgd,btgd->bsgrd,bsgr",
                                           "bsgrd,btgd,btgd,bsgrd,bsgr,bsgr->bsgrd,btgd,btgd"};
        for (int i = 0; i < 2; i++) {
            Node node = {.op = i == 0 ? OP_ATTENTION : OP_ATTENTION_GRAD};
            SigText text;
            int64_t extent[MAX_LETTERS] = {0};
            assert_null(sig_parse(sigs[i], i == 0 ? 3 : 6, &text));
            assert_null(sig_resolve(net, node.op, &text, &node.sig));
            for (int l = 0; l < node.sig.letters; l++)
                extent[l] = letter_extent(net, &node, l);
            size_t want =
                i == 0 ? LP_ATTENTION_FORWARD_BYTES(d, 3) : LP_ATTENTION_BACKWARD_BYTES(d, 3);
            assert_int_equal(node_workspace_bytes(&node, extent, 3), want);
        }
        Node other = {.op = OP_ADD};
        int64_t extent[MAX_LETTERS] = {0};
        assert_int_equal(node_workspace_bytes(&other, extent, 3), 0);
        arena_free(arena);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_workspace),
};

RUN(tests)
