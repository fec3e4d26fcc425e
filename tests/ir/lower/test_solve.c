/* test_solve.c - the block solver against brute force, and what it finds for blocks people know. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "ir/lower/body.h"
#include "ir/lower/solve_in.h"
#include "tests/ir/lower/solve_world.h"

/* ---- brute force: every assignment, every set of copies ---- */

typedef struct Sum {
    int64_t ns, bytes, transient;
} Sum;

typedef struct SumList {
    int n, cap;
    Sum *at;
} SumList;

static int sum_compare(const void *a, const void *b)
{
    const Sum *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return x->transient < y->transient ? -1 : x->transient > y->transient;
}

static void sums_prune(SumList *list)
{
    int kept = 0;
    if (list->n > 1)
        qsort(list->at, (size_t)list->n, sizeof *list->at, sum_compare);
    for (int i = 0; i < list->n; i++) {
        bool beaten = false;
        for (int k = 0; k < kept && !beaten; k++)
            beaten = list->at[k].bytes <= list->at[i].bytes &&
                     list->at[k].transient <= list->at[i].transient;
        if (!beaten)
            list->at[kept++] = list->at[i];
    }
    list->n = kept;
}

static void sums_push(Arena *arena, SumList *list, Sum sum)
{
    if (list->n == list->cap) {
        int cap = list->cap == 0 ? 64 : 2 * list->cap;
        Sum *at = ARENA_ARRAY(arena, Sum, cap);
        if (list->n > 0)
            memcpy(at, list->at, (size_t)list->n * sizeof *at);
        list->at = at;
        list->cap = cap;
    }
    list->at[list->n++] = sum;
}

/* The factors that talk about the copies of one value, or about none. */
typedef struct Group {
    int id; /* value, or NONE */
    VEC(int) aux, factors;
} Group;

typedef struct Brute {
    Arena *arena, *scratch; /* scratch: of one assignment */
    const Problem *problem;
    VEC(Group) groups;
    VEC(int) real;
    uint16_t *value;
    SumList all;
} Brute;

static bool is_aux(const Var *var)
{
    return var->kind == VAR_COPIES || var->kind == VAR_SAVED;
}

static Group *brute_group(Brute *brute, int id)
{
    for (int g = 0; g < brute->groups.n; g++)
        if (brute->groups.at[g].id == id)
            return &brute->groups.at[g];
    vec_push(brute->arena, &brute->groups) = (Group){.id = id};
    return &brute->groups.at[brute->groups.n - 1];
}

static Brute brute_new(Arena *arena, const Problem *problem)
{
    Brute brute = {.arena = arena, .scratch = arena_new("assignment"), .problem = problem};
    brute.value = ARENA_ARRAY(arena, uint16_t, problem->vars.n);
    for (int v = 0; v < problem->vars.n; v++) {
        if (is_aux(&problem->vars.at[v]))
            vec_push(arena, &brute_group(&brute, problem->vars.at[v].id)->aux) = v;
        else
            vec_push(arena, &brute.real) = v;
    }
    for (int f = 0; f < problem->factors.n; f++) {
        const Factor *factor = &problem->factors.at[f];
        int id = NONE;
        for (int i = 0; i < factor->n; i++)
            if (is_aux(&problem->vars.at[factor->var[i]]))
                id = problem->vars.at[factor->var[i]].id;
        vec_push(arena, &brute_group(&brute, id)->factors) = f;
    }
    return brute;
}

/* Sum of the group's factors under the current assignment; false when forbidden. */
static bool group_sum(const Brute *brute, const Group *group, Sum *ret)
{
    const Problem *problem = brute->problem;
    *ret = (Sum){0};
    for (int i = 0; i < group->factors.n; i++) {
        const Factor *factor = &problem->factors.at[group->factors.at[i]];
        int64_t cell = brute->value[factor->var[0]];
        if (factor->n == 2)
            cell = cell * problem->vars.at[factor->var[1]].n + brute->value[factor->var[1]];
        const Label *label = &factor->table[cell];
        if (label_forbidden(label))
            return false;
        ret->ns += label->micro_ns * problem->setup.micro_batches + label->step_ns;
        ret->bytes += label->saved_bytes * problem->setup.live + label->state_bytes;
        if (label->transient_bytes > ret->transient)
            ret->transient = label->transient_bytes;
    }
    return true;
}

static void group_collect(Brute *brute, const Group *group, int k, SumList *ret)
{
    Sum sum;
    if (k == group->aux.n) {
        if (group_sum(brute, group, &sum))
            sums_push(brute->scratch, ret, sum);
        return;
    }
    int var = group->aux.at[k];
    for (int i = 0; i < brute->problem->vars.at[var].n; i++) {
        brute->value[var] = (uint16_t)i;
        group_collect(brute, group, k + 1, ret);
    }
}

static void brute_assignment(Brute *brute)
{
    SumList total = {0};
    sums_push(brute->scratch, &total, (Sum){0});
    for (int g = 0; g < brute->groups.n; g++) {
        SumList one = {0}, next = {0};
        group_collect(brute, &brute->groups.at[g], 0, &one);
        sums_prune(&one);
        for (int i = 0; i < total.n; i++) {
            for (int j = 0; j < one.n; j++) {
                Sum a = total.at[i], b = one.at[j];
                int64_t most = a.transient > b.transient ? a.transient : b.transient;
                sums_push(brute->scratch, &next, (Sum){a.ns + b.ns, a.bytes + b.bytes, most});
            }
        }
        sums_prune(&next);
        total = next;
    }
    for (int i = 0; i < total.n; i++)
        sums_push(brute->arena, &brute->all, total.at[i]);
}

static void brute_run(Brute *brute, int k)
{
    if (k == brute->real.n) {
        brute_assignment(brute);
        arena_reset(brute->scratch);
        if (brute->all.n > 2000)
            sums_prune(&brute->all);
        return;
    }
    int var = brute->real.at[k];
    for (int i = 0; i < brute->problem->vars.at[var].n; i++) {
        brute->value[var] = (uint16_t)i;
        brute_run(brute, k + 1);
    }
}

/* The frontier of (ns, bytes with transient), fastest first. */
static void brute_frontier(Brute *brute)
{
    int kept = 0;
    brute_run(brute, 0);
    for (int i = 0; i < brute->all.n; i++) {
        brute->all.at[i].bytes += brute->all.at[i].transient;
        brute->all.at[i].transient = 0;
    }
    sums_prune(&brute->all);
    for (int i = 0; i < brute->all.n; i++)
        brute->all.at[kept++] = brute->all.at[i];
    brute->all.n = kept;
}

static double real_assignments(const Problem *problem)
{
    double n = 1;
    for (int v = 0; v < problem->vars.n; v++)
        if (!is_aux(&problem->vars.at[v]))
            n *= problem->vars.at[v].n;
    return n;
}

enum { FRONT_CAP = 256 };

/* One random problem: frontier, hull and budgets equal brute force. False when it is too large. */
static bool check_random(Rng *rng, const SolveSetup *setup, int *ret_points)
{
    Arena *arena = arena_new("random");
    Problem *problem = problem_new(arena, setup);
    if (problem == NULL || real_assignments(problem) > (setup->mesh->n == 2 ? 600 : 4000)) {
        arena_free(arena);
        return false;
    }
    Brute brute = brute_new(arena, problem);
    brute_frontier(&brute);
    Solver *solver = solver_new(arena, setup);
    Solution *front = ARENA_ARRAY(arena, Solution, FRONT_CAP), one;
    int n = solver_front(solver, INT64_MAX / 4, front, FRONT_CAP);
    assert_int_equal(n, brute.all.n);
    for (int i = 0; i < n && i < FRONT_CAP; i++) {
        assert_int_equal(front[i].ns, brute.all.at[i].ns);
        assert_int_equal(front[i].bytes, brute.all.at[i].bytes);
    }
    /* between two points, at one, and below the smallest */
    int at = (int)rng_draw(rng, (uint64_t)n);
    int64_t budget = brute.all.at[at].bytes + (int64_t)rng_draw(rng, 3);
    assert_true(solver_within(solver, budget, &one));
    int best = n - 1;
    while (best > 0 && brute.all.at[best - 1].bytes <= budget)
        best--;
    assert_int_equal(one.ns, brute.all.at[best].ns);
    assert_true(one.bytes <= budget);
    assert_false(solver_within(solver, brute.all.at[n - 1].bytes - 1, &one));
    /* the fastest of all */
    assert_true(solver_at(solver, 1, 0, &one));
    assert_int_equal(one.ns, brute.all.at[0].ns);
    *ret_points += n;
    arena_free(brute.scratch);
    arena_free(arena);
    return true;
}

static void test_random(void **state)
{
    (void)state;
    Rng rng = {1, 0};
    int done = 0, points = 0, most = 0, tried = 0, twos = 0;
    while (done < 500) {
        Arena *arena = arena_new("net");
        int ops = 2 + (int)rng_draw(&rng, 5);
        /* differentiated ones grow threefold: keep those short */
        bool backward = ops <= 2 && rng_draw(&rng, 2) == 0;
        Net *net = random_net(arena, &rng, ops, backward);
        /* two atoms as one role: most letters divide by one of them only */
        bool two = rng_draw(&rng, 4) == 0;
        Mesh mesh = mesh_of(two ? 2 : 1, (int[]){2, 2}, (Role[]){ROLE_TP, ROLE_TP});
        PlainModel plain = {.net = net,
                            .mesh = &mesh,
                            .flops_per_us = 20 + (int64_t)rng_draw(&rng, 200),
                            .bytes_per_us = 40 + (int64_t)rng_draw(&rng, 400),
                            .link_bytes_per_us = 20 + (int64_t)rng_draw(&rng, 200),
                            .link_ns = (int64_t)rng_draw(&rng, 200),
                            .element_bytes = 2,
                            .state_bytes = (int)rng_draw(&rng, 40)};
        plain_model_bind(&plain);
        SolveSetup setup = {.net = net,
                            .graph = net->classes.at[0],
                            .mesh = &mesh,
                            .width = two ? 3 : 1,
                            .model = &plain.model,
                            .micro_batches = 1 + (int64_t)rng_draw(&rng, 8),
                            .live = 1 + (int64_t)rng_draw(&rng, 3),
                            .gather_weights = rng_draw(&rng, 2) == 0,
                            .recompute = rng_draw(&rng, 4) == 0};
        int before = points;
        tried++;
        bool small = check_random(&rng, &setup, &points);
        done += small;
        twos += small && two;
        most = points - before > most ? points - before : most;
        arena_free(arena);
    }
    print_message(
        "%d graphs of %d tried, %d over two atoms: %d frontier points, at most %d of one\n", done,
        tried, twos, points, most);
    assert_true(twos > 10);
}

/* ---- blocks people know ---- */

static const Recipe fp32 = {"fp32", DT_F32, DT_F32, DT_F32, DT_F32, false};

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
                            &fp32, &world->plain.model.price);
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
                            &world->plain.model.price);
    assert_int_equal(count_moves(body, &body->forward, MOVE_ALL_GATHER), 1);

    /* tied: the table lives where the head uses it, so the lookup is by rows and its sum is
     * scattered */
    world->graph = world->setup.graph = world->net->classes.at[0];
    world->setup.home = home;
    assert_true(solver_at(solver_new(world->arena, &world->setup), 1, 0, &embed));
    assert_letters(world, &embed, "lookup d.table", 'v');
    assert_home(world, &embed, "table", "{v:a0}");
    body = body_lower(world->arena, world->net, world->graph, &embed.plan, &world->mesh, &fp32,
                      &world->plain.model.price);
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
                                    &world->mesh, &fp32, &world->plain.model.price);
            assert_int_equal(hull[k].label.micro_ns, moved_bytes(body, &body->forward) +
                                                         moved_bytes(body, &body->backward));
            assert_int_equal(hull[k].label.saved_bytes, saved_bytes(body));
        }
        points += n;
        world_free(world);
    }
    print_message("%d plans lowered\n", points);
}

RUN(((const struct CMUnitTest[]){
    cmocka_unit_test(test_random), cmocka_unit_test(test_tight), cmocka_unit_test(test_state_free),
    cmocka_unit_test(test_parallel), cmocka_unit_test(test_renamed), cmocka_unit_test(test_grouped),
    cmocka_unit_test(test_ends), cmocka_unit_test(test_pins), cmocka_unit_test(test_bytes)}))
