/* test_solve_brute.c - the block solver against every assignment of small random graphs. */
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

RUN(((const struct CMUnitTest[]){cmocka_unit_test(test_random)}))
