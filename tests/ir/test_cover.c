/* test_cover.c - places and positions of a sequence that is dealt out, and how many pairs meet. */
#include "ir/base/rng.h"
#include "ir/sig.h"
#include "tests/check.h"

enum { SEQUENCE = 48 };

typedef struct Scene {
    Arena *arena;
    Net *net;
    Node node;
    int64_t origin[MAX_LETTERS], extent[MAX_LETTERS];
} Scene;

static Scene scene_new(const Attr_attention *mask, int64_t runs)
{
    static const char *const names[] = {"g", "d"};
    Scene scene = {.arena = arena_new("cover")};
    scene.net = net_new(scene.arena, "cover");
    net_add_dim(scene.net, "b", DIM_BATCH, 2);
    net_add_dim(scene.net, "s", DIM_SEQUENCE, SEQUENCE);
    for (int i = 0; i < 2; i++)
        net_add_dim(scene.net, names[i], DIM_OTHER, 2);
    scene.net->runs = runs;
    SigText text;
    scene.node = (Node){.op = OP_ATTENTION, .ins = 3, .attrs = {.attention = *mask}};
    assert_null(sig_parse("bsgd,btgd,btgd->bsgd,bsg", 3, &text));
    assert_null(sig_resolve(scene.net, OP_ATTENTION, &text, &scene.node.sig));
    return scene;
}

/* Shard i of n has run i, then run 2n - 1 - i: written as the list that it is. */
static void test_order(void **state)
{
    (void)state;
    for (int64_t shards = 1; shards <= 8; shards *= 2) {
        Scene scene = scene_new(&(Attr_attention){.causal = 1}, 2 * shards);
        int64_t run = SEQUENCE / (2 * shards), place = 0;
        for (int64_t i = 0; i < shards; i++) {
            for (int64_t x = 0; x < run; x++)
                assert_int_equal(dim_position(scene.net, scene.net->sequence, place++),
                                 i * run + x);
            for (int64_t x = 0; x < run; x++)
                assert_int_equal(dim_position(scene.net, scene.net->sequence, place++),
                                 (2 * shards - 1 - i) * run + x);
        }
        assert_int_equal(dim_position(scene.net, scene.net->batch, 1), 1);
        arena_free(scene.arena);
    }
}

static int64_t counted(const Scene *scene)
{
    const Attr_attention *mask = &scene->node.attrs.attention;
    int s = scene->node.sig.in[0][1], t = scene->node.sig.in[1][1];
    int64_t pairs = 0;
    for (int64_t i = 0; i < scene->extent[s]; i++)
        for (int64_t j = 0; j < scene->extent[t]; j++) {
            DimId dim = scene->net->sequence;
            int64_t q = dim_position(scene->net, dim, scene->origin[s] + i),
                    k = dim_position(scene->net, dim, scene->origin[t] + j);
            pairs += (!mask->causal || k <= q) && (mask->window <= 0 || q - k < mask->window) &&
                     (mask->chunk <= 0 || q / mask->chunk == k / mask->chunk);
        }
    return pairs;
}

/* Against the pairs one by one, on blocks of every kind. */
static void test_pairs(void **state)
{
    (void)state;
    static const Attr_attention masks[] = {{.causal = 0},
                                           {.causal = 1},
                                           {.causal = 1, .window = 1},
                                           {.causal = 1, .window = 7},
                                           {.causal = 1, .window = 100},
                                           {.causal = 1, .chunk = 10},
                                           {.causal = 0, .chunk = 7},
                                           {.causal = 1, .chunk = 20, .window = 6}};
    static const int64_t runs[] = {0, 2, 4, 8, 12};
    uint64_t drawn = 0;
    int covers[3] = {0};
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
            Scene scene = scene_new(&masks[m], runs[r]);
            int s = scene.node.sig.in[0][1], t = scene.node.sig.in[1][1];
            for (int i = 0; i < 60; i++) {
                const int letter[] = {s, t};
                for (int k = 0; k < 2; k++) {
                    scene.extent[letter[k]] = 1 + (int64_t)(rng_u64(7, 0, drawn++) % SEQUENCE);
                    scene.origin[letter[k]] =
                        (int64_t)(rng_u64(7, 1, drawn++) %
                                  (uint64_t)(SEQUENCE - scene.extent[letter[k]] + 1));
                }
                int64_t pairs = counted(&scene), all = scene.extent[s] * scene.extent[t];
                assert_int_equal(node_pairs(scene.net, &scene.node, scene.origin, scene.extent),
                                 pairs);
                Cover cover = node_cover(scene.net, &scene.node, scene.origin, scene.extent);
                assert_int_equal(cover, pairs == 0     ? COVER_EMPTY
                                        : pairs == all ? COVER_FULL
                                                       : COVER_DIAGONAL);
                covers[cover]++;
            }
            arena_free(scene.arena);
        }
    for (int i = 0; i < 3; i++)
        assert_true(covers[i] > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_pairs),
    };
    return cmocka_run_group_tests_name("cover", tests, NULL, NULL);
}
