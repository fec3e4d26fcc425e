/* test_price.c - what a price must do: grow with work, see the slow link and share it, and take the
 * faster algorithm. */
#include "planner/price.h"
#include "planner/resize.h"
#include "tests/check.h"
#include "tests/planner/made.h"

static const int64_t gib = INT64_C(1) << 30;

static Mesh mesh_of(const Cluster *cluster, Diag *diag, int tp, int dp)
{
    Mesh mesh;
    Degrees degrees = {.tp = tp, .cp = 1, .dp = dp, .cp_heads = 1, .ep = 1};
    assert_true(mesh_build(diag, cluster, &degrees, &mesh));
    return mesh;
}

static AtomList all_atoms(const Mesh *mesh)
{
    AtomList list = {0};
    for (int a = mesh->n - 1; a >= 0; a--)
        list.at[list.n++] = (int8_t)a;
    return list;
}

static void test_compute_grows(void **state)
{
    (void)state;
    Arena *arena = arena_new("price");
    Problem *problem = problem_example(arena, "llama-10m", "dgx-h100", 8, 8, 128, "bf16");
    const Device *device = &problem->cluster->device;
    const DType half = DT_BF16, full = DT_F32;
    assert_int_equal(price_flops(device, half, 0), 0);
    int64_t before = 0;
    for (int64_t flops = 1000; flops < INT64_C(1000000000000000); flops *= 10) {
        int64_t ns = price_flops(device, half, flops);
        assert_true(ns > before || flops <= 1000000000);
        assert_true(price_flops(device, full, flops) >= ns);
        before = ns;
    }
    /* 692 TFLOP/s at best: a quadrillion takes 1.445 ms a trillion */
    assert_true(before > 140000000 && before < 150000000);
    assert_int_equal(price_stream(device, 0), 0);
    assert_true(price_stream(device, 3015000000) >= 999000 &&
                price_stream(device, 3015000000) <= 1001000);
    problem_free(problem);
    arena_free(arena);
}

/* One launch of attention whose mask leaves so many pairs of a sequence. */
static int64_t attention_ns(const Device *device, int64_t batch, int64_t length, int64_t heads,
                            int64_t pairs)
{
    int64_t all = length * length, full = 4 * 128 * batch * heads * all;
    return price_attention(device, DT_BF16, attention_flops(device, full, length, pairs, all)) +
           device->launch_ns;
}

/* Public times of causal forward attention (aiconfigurator; heads of 128, as many of keys): the
 * price of what the mask leaves is within a fifth of each, and within 7 % of them together. */
static void test_attention_takes_what_was_measured(void **state)
{
    (void)state;
    static const struct {
        const char *cluster;
        int64_t batch, length, heads, microseconds;
    } run[] = {{"dgx-a100", 4, 1024, 96, 1180},  {"dgx-a100", 1, 2048, 32, 371},
               {"dgx-a100", 2, 4096, 64, 4261},  {"dgx-a100", 1, 8192, 96, 11862},
               {"dgx-a100", 4, 8192, 32, 15686}, {"dgx-a100", 2, 16384, 96, 89869},
               {"dgx-h100", 4, 1024, 64, 305},   {"dgx-h100", 2, 2048, 96, 664},
               {"dgx-h100", 1, 4096, 32, 394},   {"dgx-h100", 4, 4096, 96, 3977},
               {"dgx-h100", 1, 8192, 32, 1235},  {"dgx-h100", 4, 16384, 96, 50186},
               {"dgx-h200", 2, 1024, 96, 221},   {"dgx-h200", 4, 2048, 32, 426},
               {"dgx-h200", 1, 4096, 96, 1143},  {"dgx-h200", 2, 8192, 96, 7171},
               {"dgx-h200", 1, 16384, 32, 4472}};
    enum { RUNS = sizeof run / sizeof *run };
    int64_t off = 0;
    for (int i = 0; i < RUNS; i++) {
        Arena *arena = arena_new("attention");
        const Cluster *cluster = cluster_load(arena, diag_new(arena), run[i].cluster);
        const Device *device = &cluster->device;
        int64_t length = run[i].length, seen = length * (length + 1) / 2;
        int64_t ns = attention_ns(device, run[i].batch, length, run[i].heads, seen);
        int64_t permille = (ns - 1000 * run[i].microseconds) / run[i].microseconds;
        off += permille < 0 ? -permille : permille;
        assert_true(permille > -200 && permille < 200);
        /* all pairs take longer, as long as the mask hides most: nearly twice as long */
        int64_t whole = attention_ns(device, run[i].batch, length, run[i].heads, length * length);
        assert_true(whole > ns && whole < 2 * ns);
        assert_true(length < 16384 || whole > 19 * ns / 10);
        json_doc_free(cluster->doc);
        arena_free(arena);
    }
    assert_true(off / RUNS < 70);
}

static void test_a_group_uses_the_links_of_all_its_ranks(void **state)
{
    (void)state;
    Arena *arena = arena_new("price");
    Problem *problem = problem_example(arena, "llama-10m", "dgx-h100", 64, 64, 128, "bf16");
    const Cluster *cluster = problem->cluster;
    Mesh inside = mesh_of(cluster, problem->diag, 1, 8),
         spread = mesh_of(cluster, problem->diag, 8, 8);
    Mesh whole = mesh_of(cluster, problem->diag, 1, 64);
    AtomList near = all_atoms(&inside), wide = all_atoms(&whole), far = {0};
    for (int a = spread.n - 1; a >= 0; a--)
        if (spread.atom[a].role == ROLE_DP)
            far.at[far.n++] = (int8_t)a;
    int64_t in = price_collective(cluster, &inside, MOVE_ALL_GATHER, &near, gib);
    int64_t one = price_collective(cluster, &spread, MOVE_ALL_GATHER, &far, gib);
    int64_t eight = price_collective(cluster, &whole, MOVE_ALL_GATHER, &wide, gib);
    assert_true(one > 6 * in);    /* 46 GB/s against 320 */
    assert_true(eight < one / 5); /* eight network ports a node instead of one */
    assert_true(eight >= in);
    /* an exchange sends every pair its own bytes over the sender's one port */
    assert_true(price_collective(cluster, &whole, MOVE_ALL_TO_ALL, &wide, gib) > 4 * eight);
    problem_free(problem);
    arena_free(arena);
}

static void test_small_messages_take_trees(void **state)
{
    (void)state;
    Arena *arena = arena_new("price");
    Problem *problem = problem_example(arena, "llama-10m", "dgx-h100", 2048, 2048, 128, "bf16");
    const Cluster *cluster = problem->cluster;
    Mesh mesh = mesh_of(cluster, problem->diag, 8, 256);
    AtomList dp = {0};
    for (int a = mesh.n - 1; a >= 0; a--)
        if (mesh.atom[a].role == ROLE_DP)
            dp.at[dp.n++] = (int8_t)a;
    int64_t small = price_collective(cluster, &mesh, MOVE_ALL_REDUCE, &dp, 1000);
    assert_true(small <
                255 * 2 * cluster->level[1].latency_ns); /* a ring would pass 255 hops twice */
    assert_true(small >= 16 * cluster->level[1].latency_ns);
    assert_true(price_world(cluster, 2048, 16) < 1000000);
    assert_int_equal(price_world(cluster, 1, 16), 0);
    /* gathering is never dearer than adding to zeros */
    for (int64_t bytes = 1; bytes < 64 * gib; bytes *= 4)
        assert_true(price_collective(cluster, &mesh, MOVE_ALL_GATHER, &dp, bytes) <=
                    price_collective(cluster, &mesh, MOVE_ALL_REDUCE, &dp, 2 * bytes));
    problem_free(problem);
    arena_free(arena);
}

static int64_t reduce_ns(Cluster *cluster, const Mesh *mesh, AlgorithmSet set, MoveKind kind,
                         int64_t bytes)
{
    AtomList all = all_atoms(mesh);
    cluster->collectives = set;
    Move move = {.kind = kind, .atoms = all, .monoid = MONOID_SUM};
    return price_collective(cluster, mesh, kind, &all, wire_bytes(mesh, &move, bytes, 1));
}

/* Against the formulas by hand: 4 nodes of 8, 320 and 46 GB/s. */
static void test_one_table_of_algorithms(void **state)
{
    (void)state;
    Arena *arena = arena_new("price");
    Problem *problem = problem_example(arena, "llama-10m", "dgx-h100", 32, 32, 128, "bf16");
    Cluster *cluster = problem->cluster;
    assert_int_equal(cluster->collectives, ALGORITHMS_USUAL);
    Mesh mesh = mesh_of(cluster, problem->diag, 1, 32);
    const double near = 320e9, far = 46e9, s = 32.0 * 1048576 * 32;
    const double ring = 1e9 * (2 * s * 31 / 32 + 2e6) / near;
    assert_true(ring > 1e9 * (2 * s * 31 / 32 + 32e6) / (far * 8));
    const struct {
        Algorithm algorithm;
        double ns;
    } rows[] = {
        /* 28 hops inside and 3 across, twice; eight ports share what crosses, so that the links
         * inside are the slower ones */
        {ALGORITHM_RING, 2 * (28 * 1000 + 3 * 8000) + ring},
        {ALGORITHM_TREE, 2 * (3 * 1000 + 2 * 8000) + ring * (1 + 1.0 / 9)},
        {ALGORITHM_HIERARCHICAL, 2 * (7 * 1000 + 1e9 * (s * 7 / 8 + 2e6) / near + 3 * 8000 +
                                      1e9 * (s / 8 * 3 / 4 + 4e6) / far)},
        {ALGORITHM_NVLS, 25000 + 1e9 * (s + 2e6) / near / 0.85 +
                             2 * (3 * 8000 + 1e9 * (s / 8 * 3 / 4 + 4e6) / far)},
        {ALGORITHM_SERVER, 2 * (1000 + 8000) + 1e9 * (s * 24 + 4e6) / far},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t ns =
            reduce_ns(cluster, &mesh, 1u << rows[i].algorithm, MOVE_ALL_REDUCE, (int64_t)s);
        if ((double)ns < rows[i].ns * 0.999 || (double)ns > rows[i].ns * 1.001)
            fail_msg("%s: %lld ns, by hand %.0f", algorithm_text[rows[i].algorithm], (long long)ns,
                     rows[i].ns);
    }
    /* the fastest of a set is taken, and named */
    AtomList all = all_atoms(&mesh);
    for (int64_t bytes = 1024; bytes <= gib; bytes *= 32) {
        int64_t best = INT64_MAX;
        for (int a = 0; a < ALGORITHM_COUNT; a++) {
            int64_t ns = reduce_ns(cluster, &mesh, 1u << a, MOVE_REDUCE_SCATTER, bytes);
            best = ns < best ? ns : best;
        }
        AlgorithmSet every = (1u << ALGORITHM_COUNT) - 1;
        assert_int_equal(reduce_ns(cluster, &mesh, every, MOVE_REDUCE_SCATTER, bytes), best);
        Algorithm named =
            collective_algorithm(cluster, &mesh, MOVE_REDUCE_SCATTER, &all, bytes / 32 * 31);
        assert_int_equal(reduce_ns(cluster, &mesh, 1u << named, MOVE_REDUCE_SCATTER, bytes), best);
    }
    assert_int_equal(collective_algorithm(cluster, &mesh, MOVE_ALL_TO_ALL, &all, 1),
                     ALGORITHM_COUNT);
    /* a switch joins nobody where each node has one rank: rings are always there */
    Mesh spread = mesh_of(cluster, problem->diag, 8, 4);
    AtomList across = {0};
    for (int a = spread.n - 1; a >= 0; a--)
        if (spread.atom[a].role == ROLE_DP)
            across.at[across.n++] = (int8_t)a;
    cluster->collectives = 1u << ALGORITHM_NVLS;
    assert_int_equal(collective_algorithm(cluster, &spread, MOVE_ALL_REDUCE, &across, gib),
                     ALGORITHM_RING);
    problem_free(problem);
    arena_free(arena);
}

static void test_boundaries_between_stages(void **state)
{
    (void)state;
    Arena *arena = arena_new("price");
    Problem *problem = problem_example(arena, "llama-10m", "dgx-h100", 32, 32, 128, "bf16");
    const Cluster *cluster = problem->cluster;
    /* two stages of four ranks share a node, the next two the next */
    assert_int_equal(stage_level(cluster, 4, 0, 1), 0);
    assert_int_equal(stage_level(cluster, 4, 1, 2), 1);
    assert_int_equal(stage_level(cluster, 4, 2, 3), 0);
    assert_int_equal(stage_level(cluster, 8, 0, 1), 1);
    assert_int_equal(stage_level(cluster, 1, 6, 7), 0);
    assert_int_equal(stage_level(cluster, 1, 7, 8), 1);
    assert_true(price_p2p(cluster, 0, gib) < price_p2p(cluster, 1, gib));
    problem_free(problem);
    arena_free(arena);
}

/* A net for another batch and padding is what reading the model for them gives. */
static void test_resize_is_reading_again(void **state)
{
    (void)state;
    static const char *const models[] = {"llama-10m", "gpt2", "qwen2.5-7b", "pythia-160m"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        Arena *arena = arena_new("resize");
        Problem *problem = problem_example(arena, models[i], "dgx-h100", 8, 8, 64, "bf16");
        for (int64_t batch = 1; batch <= 12; batch += 11)
            for (int64_t pad = 1; pad <= 96; pad += 95) {
                Str a = str_new(arena), b = str_new(arena);
                net_put_text(&a, net_resize(arena, problem->net, batch, pad));
                net_put_text(&b, model_read(arena, problem->diag, json_root(problem->model), batch,
                                            64, pad));
                assert_string_equal(a.at, b.at);
            }
        problem_free(problem);
        arena_free(arena);
    }
}

/* Segments and Steps of steps that flow, with homes that are cut: of one micro-batch nothing is
 * added to the gradients of those before it, and what a stage does between two steps is in its turn
 * once. */
static const Case flowing[] = {
    {"llama-10m", "host", 4, 2, 128, "fp32", "dp=2,pp=2,zero=2,mbs=1,schedule=pipedream"},
    {"llama-10m", "host", 8, 2, 128, "fp32", "dp=2,pp=4,zero=3,mbs=1,schedule=pipedream"},
    {"llama-3-8b", "dgx-h100", 32, 4, 4096, "bf16", "dp=4,pp=8,zero=3,mbs=1,schedule=pipedream"},
    {"llama-10m", "host", 4, 8, 128, "fp32", "dp=2,pp=2,zero=2,schedule=2bw"},
};

static void test_flowing_steps_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof flowing / sizeof *flowing; i++) {
        Made made = make(&flowing[i]);
        int64_t *end = ARENA_ARRAY(made.arena, int64_t, made.family->order->n);
        int64_t segment = family_segment(made.family, made.plan->first_link, end);
        StepTimes *steps = simulate_program(made.arena, made.program, NULL);
        if (off(segment, steps->step_ns) > 0.005)
            fail_msg("%s %s: segments %lld ns, Steps %lld ns", flowing[i].model, flowing[i].pins,
                     (long long)segment, (long long)steps->step_ns);
        for (int s = 0; s < made.plan->stages;
             s++) /* no stage does more than a step has room for */
            assert_int_equal(spent_sum(&steps->stage[s]), steps->step_ns);
        done(&made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compute_grows),
        cmocka_unit_test(test_attention_takes_what_was_measured),
        cmocka_unit_test(test_a_group_uses_the_links_of_all_its_ranks),
        cmocka_unit_test(test_small_messages_take_trees),
        cmocka_unit_test(test_one_table_of_algorithms),
        cmocka_unit_test(test_boundaries_between_stages),
        cmocka_unit_test(test_resize_is_reading_again),
        cmocka_unit_test(test_flowing_steps_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
