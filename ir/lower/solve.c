/* solve.c - the block solver's answers: at one price of a byte, along the hull, within a budget,
 * and the frontier. */
#include "ir/lower/solve.h"

#include <string.h>

#include "ir/lower/solve_in.h"

struct Solver {
    Arena *arena;
    Problem *problem;
    SolveStats stats;
    int64_t most_ns, most_bytes; /* no solution has more */
};

static void solver_bounds(const Solver *solver, int64_t *ret_ns, int64_t *ret_bytes);

Solver *solver_new(Arena *arena, const SolveSetup *setup)
{
    CHECK((setup->width & setup->tokens) == 0);
    Problem *problem = problem_new(arena, setup);
    if (problem == NULL)
        return NULL;
    Solver *solver = ARENA_NEW(arena, Solver);
    solver->arena = arena;
    solver->problem = problem;
    solver_bounds(solver, &solver->most_ns, &solver->most_bytes);
    solver->stats.variables = problem->vars.n;
    solver->stats.factors = problem->factors.n;
    return solver;
}

SolveStats solver_stats(const Solver *solver)
{
    return solver->stats;
}

/* ---- a plan from values of the variables ---- */

static const Placement *boundary_place(const Solver *solver, const uint16_t *value)
{
    const Problem *problem = solver->problem;
    if (problem->boundary_var == NONE)
        return NULL;
    return &problem->vars.at[problem->boundary_var].place[value[problem->boundary_var]];
}

static void plan_fill(const Solver *solver, const uint16_t *value, ClassPlan *ret)
{
    const Problem *problem = solver->problem;
    const Graph *graph = problem->setup.graph;
    const Placement *boundary = boundary_place(solver, value);
    *ret = (ClassPlan){0};
    ret->choice = ARENA_ARRAY(solver->arena, NodeChoice, graph->nodes.n);
    ret->home = ARENA_ARRAY(solver->arena, Placement, graph->params.n);
    ret->keep = ARENA_ARRAY(solver->arena, Keep, graph->values.n);
    ret->saved = ARENA_ARRAY(solver->arena, Placement, graph->values.n);
    if (boundary != NULL)
        ret->boundary_in = ret->boundary_out = *boundary;
    for (int n = 0; n < graph->nodes.n; n++) {
        int var = problem->node_var[n];
        ret->choice[n] = problem->vars.at[var].option[value[var]].choice;
    }
    for (int p = 0; p < graph->params.n; p++) {
        int var = problem->home_var[p];
        ret->home[p] = problem->vars.at[var].place[value[var]];
    }
    for (int v = 0; v < graph->values.n; v++) {
        const Value *info = &graph->values.at[v];
        int var = problem->saved_var[v];
        bool forward = info->kind == VALUE_NODE && graph->nodes.at[info->made].seg == SEG_FORWARD;
        ret->keep[v] = forward && (problem->setup.recompute || info->late) ? KEEP_NONE : KEEP_SAVED;
        if (var != NONE)
            ret->saved[v] = problem->vars.at[var].place[value[var]];
        else if (boundary != NULL && (v == graph->chain_in || v == graph->grad_in))
            ret->saved[v] = *boundary;
        else if (info->kind == VALUE_PARAM)
            ret->saved[v] = ret->home[info->out];
        else
            ret->saved[v] = problem->spot[v].places.at[problem->spot[v].whole];
    }
}

static void solution_fill(const Solver *solver, const uint16_t *value, Solution *ret)
{
    const Problem *problem = solver->problem;
    int n = problem->vars.n;
    *ret = (Solution){.label = problem_label(problem, value)};
    ret->ns = label_ns(&problem->setup, &ret->label);
    ret->bytes = cost_add(label_bytes(&problem->setup, &ret->label), ret->label.transient_bytes);
    ret->value = ARENA_ARRAY(solver->arena, uint16_t, n);
    memcpy(ret->value, value, (size_t)n * sizeof *value);
    plan_fill(solver, value, &ret->plan);
}

/* ---- one pair of weights ---- */

enum { WEIGHT_BITS = 56 }; /* of the largest cost a solve may reach */

/* Upper bounds of ns and bytes of any solution. */
static void solver_bounds(const Solver *solver, int64_t *ret_ns, int64_t *ret_bytes)
{
    const Problem *problem = solver->problem;
    *ret_ns = *ret_bytes = 1;
    for (int f = 0; f < problem->factors.n; f++) {
        const Factor *factor = &problem->factors.at[f];
        int64_t n = problem->vars.at[factor->var[0]].n, ns = 0, bytes = 0;
        n *= factor->n == 2 ? problem->vars.at[factor->var[1]].n : 1;
        for (int64_t i = 0; i < n; i++) {
            const Label *label = &factor->table[i];
            if (label_forbidden(label))
                continue;
            ns = label_ns(&problem->setup, label) > ns ? label_ns(&problem->setup, label) : ns;
            bytes = label_bytes(&problem->setup, label) > bytes
                        ? label_bytes(&problem->setup, label)
                        : bytes;
        }
        *ret_ns = cost_add(*ret_ns, ns);
        *ret_bytes = cost_add(*ret_bytes, bytes);
    }
}

/* The same ratio in numbers small enough that no sum overflows. */
static Weights weights_scale(const Solver *solver, int64_t ns_weight, int64_t byte_weight)
{
    Weights weights = {ns_weight, byte_weight};
    while (weights_cost(weights, solver->most_ns, solver->most_bytes) >= INT64_C(1)
                                                                             << WEIGHT_BITS) {
        weights.ns = (weights.ns + 1) / 2;
        weights.byte = (weights.byte + 1) / 2;
    }
    return weights;
}

/* The factor by which one of two numbers may outweigh the other. */
static int64_t weight_most(int64_t bound)
{
    int64_t most = (INT64_C(1) << (WEIGHT_BITS - 2)) / bound;
    return most > 1 ? most : 1;
}

static bool solve_weighted(Solver *solver, Weights weights, Solution *ret)
{
    Arena *scratch = arena_new("solve");
    Tree *tree = tree_new(scratch, solver->problem, weights, true);
    if (tree == NULL) {
        solver->stats.too_wide = true;
        arena_free(scratch);
        return false;
    }
    bool found = tree->best < COST_MAX;
    solver->stats.width = tree->width;
    solver->stats.rows = tree->rows;
    if (found) {
        uint16_t *value = ARENA_ARRAY(scratch, uint16_t, tree->n);
        tree_values(tree, value);
        solution_fill(solver, value, ret);
    }
    arena_free(scratch);
    return found;
}

bool solver_at(Solver *solver, int64_t ns_weight, int64_t byte_weight, Solution *ret)
{
    CHECK(ns_weight >= 0 && byte_weight >= 0);
    return solve_weighted(solver, weights_scale(solver, ns_weight, byte_weight), ret);
}

/* ---- the hull ---- */

static int64_t solution_additive(const Solver *solver, const Solution *solution)
{
    return label_bytes(&solver->problem->setup, &solution->label);
}

/* The fastest, and of those the smallest; the smallest, and of those the fastest. */
static bool solve_ends(Solver *solver, Solution *fast, Solution *small)
{
    Solution tie;
    if (!solver_at(solver, 1, 0, fast) || !solver_at(solver, 0, 1, small))
        return false;
    if (solver_at(solver, weight_most(solver->most_ns), 1, &tie) && tie.ns == fast->ns)
        *fast = tie;
    if (solver_at(solver, 1, weight_most(solver->most_bytes), &tie) &&
        solution_additive(solver, &tie) == solution_additive(solver, small))
        *small = tie;
    return true;
}

static int64_t solution_cost(const Solver *solver, Weights weights, const Solution *solution)
{
    return weights_cost(weights, solution->ns, solution_additive(solver, solution));
}

/* A corner below the line through two others, and the weights that found it. `fast` has fewer ns
 * and more bytes. */
static bool hull_between(Solver *solver, const Solution *fast, const Solution *small, Solution *ret,
                         Weights *ret_weights)
{
    int64_t ns = small->ns - fast->ns;
    int64_t bytes = solution_additive(solver, fast) - solution_additive(solver, small);
    if (ns <= 0 || bytes <= 0)
        return false;
    *ret_weights = weights_scale(solver, bytes, ns);
    if (!solve_weighted(solver, *ret_weights, ret))
        return false;
    int64_t cost = solution_cost(solver, *ret_weights, ret);
    return cost < solution_cost(solver, *ret_weights, fast) &&
           cost < solution_cost(solver, *ret_weights, small);
}

static int hull_fill(Solver *solver, const Solution *fast, const Solution *small, Solution *ret,
                     int n, int cap)
{
    Solution middle;
    Weights weights;
    if (n >= cap || !hull_between(solver, fast, small, &middle, &weights))
        return n;
    n = hull_fill(solver, fast, &middle, ret, n, cap);
    if (n < cap)
        ret[n++] = middle;
    return hull_fill(solver, &middle, small, ret, n, cap);
}

int solver_hull(Solver *solver, Solution *ret, int cap)
{
    Solution fast, small;
    if (cap < 1 || !solve_ends(solver, &fast, &small))
        return 0;
    int n = 0;
    ret[n++] = fast;
    n = hull_fill(solver, &fast, &small, ret, n, cap);
    if (n < cap && solution_additive(solver, &small) < solution_additive(solver, &ret[n - 1]))
        ret[n++] = small;
    return n;
}

/* ---- exact ---- */

/* The frontier's number of points; NONE when the tables would be too large. */
static int exact_points(Solver *solver, Arena *scratch, Weights weights, int64_t limit,
                        int64_t cost_limit, Point **ret)
{
    Tree *tree = tree_new(scratch, solver->problem, weights, false);
    if (tree == NULL)
        return NONE;
    solver->stats.width = tree->width;
    solver->stats.rows = tree->rows;
    if (tree->best >= COST_MAX)
        return 0;
    tree_down(tree);
    return front_find(scratch, tree, limit, cost_limit, ret, &solver->stats.labels);
}

int solver_front(Solver *solver, int64_t limit_bytes, Solution *ret, int cap)
{
    Arena *scratch = arena_new("front");
    Point *point;
    int n = exact_points(solver, scratch, (Weights){1, 0}, limit_bytes, COST_MAX, &point);
    for (int i = 0; i < n && i < cap; i++)
        solution_fill(solver, point[i].value, &ret[i]);
    arena_free(scratch);
    return n;
}

bool solver_within(Solver *solver, int64_t budget_bytes, Solution *ret)
{
    Solution fast, small, middle, best;
    Weights weights = {1, 0};
    if (!solve_ends(solver, &fast, &small) || solution_additive(solver, &small) > budget_bytes)
        return false;
    if (fast.bytes <= budget_bytes) {
        solver->stats.exact = true;
        *ret = fast;
        return true;
    }
    /* Walk along the hull towards the budget. What fits bounds the time from above. */
    bool fits = small.bytes <= budget_bytes;
    best = small;
    while (hull_between(solver, &fast, &small, &middle, &weights)) {
        if (middle.bytes > budget_bytes) {
            fast = middle;
            continue;
        }
        if (!fits || middle.ns < best.ns)
            best = middle;
        small = middle;
        fits = true;
    }
    int64_t cost_limit = fits ? weights_cost(weights, best.ns, budget_bytes) : COST_MAX;
    Arena *scratch = arena_new("within");
    Point *point;
    int n = exact_points(solver, scratch, weights, budget_bytes, cost_limit, &point);
    solver->stats.exact = n != NONE;
    if (n > 0)
        solution_fill(solver, point[0].value, ret);
    else if (n == NONE && fits)
        *ret = best;
    arena_free(scratch);
    return n > 0 || (n == NONE && fits);
}
