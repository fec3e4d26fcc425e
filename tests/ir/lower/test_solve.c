/* test_solve.c - what the block solver finds for blocks people know; its bytes are those of
 * lowering. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "ir/lower/body.h"
#include "ir/lower/solve_in.h"
#include "tests/ir/lower/solve_world.h"

/* ---- blocks people know ---- */

static const Recipe fp32 = {"fp32", DT_F32, DT_F32, DT_F32, DT_F32, false, false};

/* Everything one solve needs, kept together. */
typedef struct World {
    Arena *arena;
    Net *net;
    const Graph *graph;
    Mesh mesh;
    PlainModel plain;
    SolveSetup setup;
} World;

/* A 70B-like layer on one node of eight fast devices. */
static World *world_big(BlockShape shape, int state_bytes)
{
    World *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->arena = arena_new("world");
    world->net = block_net(world->arena, &shape);
    world->graph = world->net->classes.at[0];
    world->mesh = mesh_of(1, (int[]){8}, (Role[]){ROLE_TP});
    world->plain = (PlainModel){.net = world->net,
                                .mesh = &world->mesh,
                                .flops_per_us = 400000000,
                                .bytes_per_us = 3000000,
                                .link_bytes_per_us = 360000,
                                .link_ns = 1000,
                                .element_bytes = 2,
                                .state_bytes = state_bytes};
    plain_model_bind(&world->plain);
    world->setup = (SolveSetup){.net = world->net,
                                .graph = world->graph,
                                .mesh = &world->mesh,
                                .width = 1,
                                .model = &world->plain.model,
                                .micro_batches = 64,
                                .live = 1};
    return world;
}

static void world_free(World *world)
{
    arena_free(world->arena);
    free(world);
}

static const BlockShape big = {1, 8192, 8192, 8, 8, 128, 28672, false, false, false};

static int64_t param_total(const World *world)
{
    return net_param_count(world->net);
}

/* The letter that a node's choice puts on an atom; '-' for Replicate, '+' for a linear set. */
static char chosen(const World *world, const Solution *solution, const char *name, int atom)
{
    NodeId id = block_node(world->graph, name);
    int c = solution->plan.choice[id].atom[atom];
    if (c == CHOICE_REPLICATE)
        return '-';
    return c >= CHOICE_LINEAR ? '+' : world->graph->nodes.at[id].sig.letter[c - CHOICE_LETTER];
}

static void assert_place(const World *world, ValueId id, const Placement *place, const char *want)
{
    Str str = str_new(world->arena);
    place_put(&str, world->net, &world->graph->values.at[id], place);
    assert_string_equal(str.at, want);
}

static void assert_home(const World *world, const Solution *solution, const char *name,
                        const char *want)
{
    for (int p = 0; p < world->graph->params.n; p++) {
        if (strcmp(world->graph->params.at[p].name, name) != 0)
            continue;
        assert_place(world, world->graph->params.at[p].value, &solution->plan.home[p], want);
        return;
    }
    fail_msg("no parameter %s", name);
}

static void assert_letters(const World *world, const Solution *solution, const char *names,
                           char letter)
{
    char name[32];
    for (const char *c = names; *c != '\0';) {
        size_t n = strcspn(c, " ");
        memcpy(name, c, n);
        name[n] = '\0';
        if (chosen(world, solution, name, 0) != letter)
            fail_msg("%s is on %c, not on %c", name, chosen(world, solution, name, 0), letter);
        c += n + (c[n] == ' ');
    }
}

/* With little memory for state: column then row, heads, and the boundary on the sequence. */
static void test_tight(void **state)
{
    (void)state;
    World *world = world_big(big, 18);
    Solver *solver = solver_new(world->arena, &world->setup);
    Solution solution;
    assert_true(solver_within(solver, param_total(world) * 18 / 5, &solution));
    assert_true(solution.bytes <= param_total(world) * 18 / 5);
    assert_letters(world, &solution, "up gate act mul down d.mul d.up d.gate d.w.down", 'f');
    assert_letters(world, &solution, "q q.rope attention o grad.attention d.attention d.q d.w.o",
                   'g');
    assert_letters(world, &solution, "norm1 norm2 add1 add2 d.x d.add1", 's');
    assert_place(world, world->graph->chain_in, &solution.plan.boundary_in, "{s:a0}");
    assert_home(world, &solution, "w.up", "{f:a0}");
    assert_home(world, &solution, "w.down", "{f:a0}");
    assert_home(world, &solution, "w.q", "{g:a0}");
    assert_home(world, &solution, "w.o", "{g:a0}");
    assert_home(world, &solution, "g.norm1", "{}");
    world_free(world);
}

/* With state for nothing the width is spent on tokens: no weight is sharded, every product is. */
static void test_state_free(void **state)
{
    (void)state;
    World *world = world_big(big, 0);
    Solver *solver = solver_new(world->arena, &world->setup);
    Solution solution;
    assert_true(solver_at(solver, 1, 0, &solution));
    assert_letters(world, &solution, "norm1 q k v o add1 norm2 up gate act mul down add2", 's');
    for (int p = 0; p < world->graph->params.n; p++)
        assert_int_equal(place_sharded(&solution.plan.home[p]), 0);
    world_free(world);
}

/* Moves of values of activation size. */
static int count_moves(const Body *body, const InstList *list, MoveKind kind)
{
    int n = 0;
    for (int i = 0; i < list->n; i++)
        n += list->at[i].kind == INST_MOVE && list->at[i].move.kind == kind &&
             body->copies.at[list->at[i].in[0]].elements >= big.s * big.h / 8;
    return n;
}

/* Of whole activations; keys and values may be summed too, they are small. */
static int count_reductions(const Body *body, const InstList *list)
{
    int n = 0;
    for (int i = 0; i < list->n; i++) {
        const Inst *inst = &list->at[i];
        n += inst->kind == INST_MOVE && body->copies.at[inst->in[0]].elements == big.s * big.h &&
             (inst->move.kind == MOVE_ALL_REDUCE || inst->move.kind == MOVE_REDUCE_SCATTER);
    }
    return n;
}

static void check_reductions(bool parallel, WeightRule weights, int want)
{
    BlockShape shape = big;
    shape.parallel = parallel;
    World *world = world_big(shape, 18);
    world->setup.weight_rule = weights;
    Solver *solver = solver_new(world->arena, &world->setup);
    Solution solution;
    assert_true(solver_at(solver, 1, 0, &solution));
    Body *body = body_lower(world->arena, world->net, world->graph, &solution.plan, &world->mesh,
                            &fp32, &world->plain.model.price, false);
    assert_int_equal(count_reductions(body, &body->forward), want);
    world_free(world);
}

/* Both branches of a parallel block are added before they are reduced. */
static void test_parallel(void **state)
{
    (void)state;
    check_reductions(false, WEIGHTS_SHARDED, 2);
    check_reductions(true, WEIGHTS_SHARDED, 1);
    check_reductions(false, WEIGHTS_WHOLE, 0);
}

/* No name decides anything. */
static void test_renamed(void **state)
{
    (void)state;
    static const int64_t weights[][2] = {{1, 0}, {10, 1}, {1, 10}};
    for (int i = 0; i < 3; i++) {
        BlockShape shape = big;
        World *one = world_big(shape, 18);
        shape.renamed = true;
        World *two = world_big(shape, 18);
        Solution a, b;
        assert_string_not_equal(one->graph->nodes.at[0].name, two->graph->nodes.at[0].name);
        assert_true(
            solver_at(solver_new(one->arena, &one->setup), weights[i][0], weights[i][1], &a));
        assert_true(
            solver_at(solver_new(two->arena, &two->setup), weights[i][0], weights[i][1], &b));
        assert_memory_equal(&a.label, &b.label, sizeof a.label);
        assert_memory_equal(a.plan.choice, b.plan.choice,
                            sizeof(NodeChoice) * (size_t)one->graph->nodes.n);
        assert_memory_equal(a.plan.home, b.plan.home,
                            sizeof(Placement) * (size_t)one->graph->params.n);
        world_free(one);
        world_free(two);
    }
}

/* Fewer groups of keys than ranks: groups on the atom they divide by, their queries on the other,
 * keys whole there. */
static void test_grouped(void **state)
{
    (void)state;
    BlockShape shape = big;
    shape.b = 2;
    shape.g = 2;
    shape.r = 32;
    World *world = world_big(shape, 18);
    world->mesh = mesh_of(3, (int[]){4, 2, 2}, (Role[]){ROLE_TP, ROLE_TP, ROLE_DP});
    world->setup.width = 3;
    world->setup.tokens = 4;
    world->setup.boundary_rule = BOUNDARY_WHOLE;
    world->setup.weight_rule = WEIGHTS_SHARDED;
    Solver *solver = solver_new(world->arena, &world->setup);
    Solution solution;
    assert_true(solver_at(solver, 1, 0, &solution));
    assert_int_equal(chosen(world, &solution, "attention", 1), 'g');
    assert_int_equal(chosen(world, &solution, "attention", 0), 'r');
    assert_int_equal(chosen(world, &solution, "attention", 2), 'b');
    assert_int_equal(chosen(world, &solution, "up", 0), 'f');
    assert_int_equal(chosen(world, &solution, "up", 1), 'f');
    assert_home(world, &solution, "w.q", "{g:a1 r:a0}");
    assert_home(world, &solution, "w.o", "{g:a1 r:a0}");
    assert_home(world, &solution, "w.up", "{f:a1.a0}");
    world_free(world);
}

/* The ends of the chain, one class after another, with the boundary that the blocks chose. */
static void test_ends(void **state)
{
    (void)state;
    World *world = world_big(big, 18);
    world->net = ends_net(world->arena, 1, 8192, 8192, 128256);
    world->plain.net = world->setup.net = world->net;
    Placement boundary = place_replicate(), rows = place_replicate();
    const Placement *home[] = {&rows};
    boundary.shard[1] = (AtomList){1, {0}};
    rows.shard[0] = (AtomList){1, {0}};
    world->setup.boundary = &boundary;
    world->setup.weight_rule = WEIGHTS_SHARDED;

    world->graph = world->setup.graph = world->net->classes.at[1];
    Solution head, embed;
    assert_true(solver_at(solver_new(world->arena, &world->setup), 1, 0, &head));
    assert_letters(world, &head, "logits max sumexp pick d.logits d.norm", 'v');
    assert_home(world, &head, "head", "{v:a0}");
    Body *body = body_lower(world->arena, world->net, world->graph, &head.plan, &world->mesh, &fp32,
                            &world->plain.model.price, false);
    assert_int_equal(count_moves(body, &body->forward, MOVE_ALL_GATHER), 1);

    /* tied: the table lives where the head uses it, so the lookup is by rows and its sum is
     * scattered */
    world->graph = world->setup.graph = world->net->classes.at[0];
    world->setup.home = home;
    assert_true(solver_at(solver_new(world->arena, &world->setup), 1, 0, &embed));
    assert_letters(world, &embed, "lookup d.table", 'v');
    assert_home(world, &embed, "table", "{v:a0}");
    body = body_lower(world->arena, world->net, world->graph, &embed.plan, &world->mesh, &fp32,
                      &world->plain.model.price, false);
    assert_int_equal(count_moves(body, &body->forward, MOVE_REDUCE_SCATTER), 1);
    assert_int_equal(count_moves(body, &body->backward, MOVE_ALL_GATHER), 1);
    world_free(world);
}

/* Rules and pins only narrow; what they leave without a choice is no solution. */
static void test_pins(void **state)
{
    (void)state;
    World *world = world_big(big, 18);
    Solution at_large, pinned;
    assert_true(solver_at(solver_new(world->arena, &world->setup), 3, 1, &at_large));
    for (int rule = BOUNDARY_FREE; rule <= BOUNDARY_WHOLE; rule++) {
        for (int weights = WEIGHTS_FREE; weights <= WEIGHTS_WHOLE; weights++) {
            world->setup.boundary_rule = (BoundaryRule)rule;
            world->setup.weight_rule = (WeightRule)weights;
            Solver *solver = solver_new(world->arena, &world->setup);
            assert_true(solver_at(solver, 3, 1, &pinned));
            int64_t more = 3 * (pinned.ns - at_large.ns) + pinned.bytes -
                           pinned.label.transient_bytes - at_large.bytes +
                           at_large.label.transient_bytes;
            assert_true(more >= 0);
            AtomSet sharded = place_sharded(&pinned.plan.boundary_in);
            assert_true(rule == BOUNDARY_FREE || sharded == (rule == BOUNDARY_SEQUENCE));
        }
    }
    /* a home that does not fit */
    Placement odd = place_replicate();
    const Placement **home = ARENA_ARRAY(world->arena, const Placement *, world->graph->params.n);
    odd.shard[5] = (AtomList){1, {0}};
    home[0] = &odd;
    world->setup.home = home;
    assert_null(solver_new(world->arena, &world->setup));
    /* a norm's gain that would have to be gathered */
    odd = place_replicate();
    odd.shard[0] = (AtomList){1, {0}};
    assert_null(solver_new(world->arena, &world->setup));
    world->setup.gather_weights = true;
    assert_non_null(solver_new(world->arena, &world->setup));
    /* a batch that does not divide */
    world->setup.home = NULL;
    world->setup.width = 0;
    world->setup.tokens = 1;
    assert_null(solver_new(world->arena, &world->setup));
    world_free(world);
}

/* ---- what is predicted is what is executed ---- */

static int64_t moved_bytes(const Body *body, const InstList *list)
{
    int64_t sum = 0;
    for (int i = 0; i < list->n; i++)
        if (list->at[i].kind == INST_MOVE)
            sum += wire_bytes(body->mesh, &list->at[i].move,
                              body->copies.at[list->at[i].in[0]].elements, 4);
    return sum;
}

static int64_t saved_bytes(const Body *body)
{
    int64_t sum = body->saves_in ? body->copies.at[body->in].bytes : 0;
    for (int i = 0; i < body->copies.n; i++)
        if (body->copies.at[i].home == HOME_SAVED)
            sum += body->copies.at[i].bytes;
    return sum;
}

static BlockShape shape_random(Rng *rng)
{
    return (BlockShape){.b = 2 * (1 + (int64_t)rng_draw(rng, 2)),
                        .s = 4 * (1 + (int64_t)rng_draw(rng, 3)),
                        .h = 4 * (1 + (int64_t)rng_draw(rng, 3)),
                        .g = 2,
                        .r = 4,
                        .d = 2,
                        .f = 8,
                        .parallel = rng_draw(rng, 3) == 0,
                        .bias = rng_draw(rng, 2) == 0};
}

/* Time is bytes on the wire: every corner of the hull is lowered and its moves and saved copies are
 * counted. */
static void test_bytes(void **state)
{
    (void)state;
    Rng rng = {5, 0};
    int points = 0;
    for (int i = 0; i < 16; i++) {
        BlockShape shape = shape_random(&rng);
        bool two = rng_draw(&rng, 4) == 0;
        World *world = world_big(shape, 16);
        world->mesh = two ? mesh_of(3, (int[]){2, 2, 2}, (Role[]){ROLE_TP, ROLE_TP, ROLE_DP})
                          : mesh_of(2, (int[]){2, 2}, (Role[]){ROLE_TP, ROLE_DP});
        world->plain = (PlainModel){
            .net = world->net, .mesh = &world->mesh, .element_bytes = 4, .state_bytes = 16};
        plain_model_bind(&world->plain);
        world->setup.width = two ? 3 : 1;
        world->setup.tokens = two ? 4 : 2;
        world->setup.micro_batches = 1;
        world->setup.gather_weights = rng_draw(&rng, 2) == 0;
        world->setup.recompute = rng_draw(&rng, 4) == 0;
        world->setup.boundary_rule = (BoundaryRule)rng_draw(&rng, 3);
        Solution hull[16];
        int n = solver_hull(solver_new(world->arena, &world->setup), hull, 16);
        assert_true(n > 0);
        for (int k = 0; k < n; k++) {
            Body *body = body_lower(world->arena, world->net, world->graph, &hull[k].plan,
                                    &world->mesh, &fp32, &world->plain.model.price, false);
            assert_int_equal(hull[k].label.micro_ns, moved_bytes(body, &body->forward) +
                                                         moved_bytes(body, &body->backward));
            assert_int_equal(hull[k].label.saved_bytes, saved_bytes(body));
        }
        points += n;
        world_free(world);
    }
    print_message("%d plans lowered\n", points);
}

RUN(((const struct CMUnitTest[]){cmocka_unit_test(test_tight), cmocka_unit_test(test_state_free),
                                 cmocka_unit_test(test_parallel), cmocka_unit_test(test_renamed),
                                 cmocka_unit_test(test_grouped), cmocka_unit_test(test_ends),
                                 cmocka_unit_test(test_pins), cmocka_unit_test(test_bytes)}))
