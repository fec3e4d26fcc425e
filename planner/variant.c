/* variant.c - solves the classes of a model for one width, and lifts the answer to a plan's mesh. */
#include "planner/variant.h"

#include "ir/lower/keep.h"

#include "planner/resize.h"

/* For how many micro-batches a step, and in flight, classes are solved: a plan's own numbers would
 * tie its layers to its pipeline. A byte kept is worth a nanosecond of the step: that keeps shards and
 * gathers them again where backward has the time. */
enum { TYPICAL_MICRO_BATCHES = 32, TYPICAL_LIVE = 4, TIME_WEIGHT = 1, BYTE_WEIGHT = 1 };

int64_t model_kv_heads(const Net *net)
{
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            if (node->op != OP_ATTENTION)
                continue;
            const Value *key = &graph->values.at[node->in[1]];
            return key->axes > 3 ? net->dims.at[key->dim[2]].extent : 1;
        }
    }
    return 0;
}

/* The class whose boundary rules the others: the one with most links. */
static int main_class(const Net *net)
{
    int best = 0, most = 0;
    for (int c = 0; c < net->classes.n; c++) {
        int links = 0;
        for (int i = 0; i < net->chain.n; i++)
            links += net->chain.at[i].class == c;
        bool inner = net->classes.at[c]->chain_in != NONE && net->classes.at[c]->chain_out != NONE;
        if (links > most && inner) {
            most = links;
            best = c;
        }
    }
    return best;
}

static const Placement **tied_homes(Arena *arena, const Variant *variant, int c, const bool *solved)
{
    const Net *net = variant->net;
    const Placement **home =
        ARENA_ARRAY(arena, const Placement *, net->classes.at[c]->params.n + 1);
    for (int i = 0; i < net->params.n; i++) {
        const NetParam *param = &net->params.at[i];
        for (int use = 0; use < param->uses && param->uses == 2; use++) {
            int other = param->use_class[1 - use];
            if (param->use_class[use] == c && solved[other])
                home[param->use_param[use]] =
                    &variant->class[other].home[param->use_param[1 - use]];
        }
    }
    return home;
}

static bool solve_class(Arena *arena, Diag *diag, Variant *variant, int c,
                        const Placement *boundary, const bool *solved)
{
    const Net *net = variant->net;
    const VariantKey *key = &variant->key;
    SolveModel model = pricer_model(&variant->pricer);
    SolveSetup setup = {.net = net,
                        .graph = net->classes.at[c],
                        .mesh = &variant->mesh,
                        .width = role_atoms(&variant->mesh, ROLE_TP),
                        .tokens = role_atoms(&variant->mesh, ROLE_DP),
                        .model = &model,
                        .micro_batches = TYPICAL_MICRO_BATCHES,
                        .live = TYPICAL_LIVE,
                        .recompute = key->recompute,
                        .boundary_rule = key->sp ? BOUNDARY_SEQUENCE : BOUNDARY_WHOLE,
                        .weight_rule = WEIGHTS_SHARDED,
                        .boundary = boundary,
                        .home = tied_homes(arena, variant, c, solved)};
    Solver *solver = solver_new(arena, &setup);
    Solution solution;
    if (!solver || !solver_at(solver, TIME_WEIGHT, BYTE_WEIGHT, &solution)) {
        diag_error(diag, NO_SPAN, "class %s of %s has no legal placement on tp %d%s",
                   net->classes.at[c]->name, net->name, key->tp,
                   key->sp ? " with the sequence on tp" : "");
        diag_help(diag, "heads, feed-forward width, vocabulary and sequence must divide by tp");
        return false;
    }
    variant->class[c] = solution.plan;
    plan_keep_cheap(net->classes.at[c], &variant->class[c]);
    return true;
}

static bool solve_classes(Arena *arena, Diag *diag, Variant *variant)
{
    const Net *net = variant->net;
    bool *solved = ARENA_ARRAY(arena, bool, net->classes.n);
    int first = main_class(net);
    variant->class = ARENA_ARRAY(arena, ClassPlan, net->classes.n);
    if (!solve_class(arena, diag, variant, first, NULL, solved))
        return false;
    solved[first] = true;
    Placement boundary = net->classes.at[first]->chain_in != NONE
                             ? variant->class[first].boundary_in
                             : variant->class[first].boundary_out;
    for (int c = 0; c < net->classes.n; c++) {
        if (c == first)
            continue;
        if (!solve_class(arena, diag, variant, c, &boundary, solved))
            return false;
        solved[c] = true;
    }
    return true;
}

bool problem_read(Problem *problem)
{
    problem->net = model_read(problem->arena, problem->diag, json_root(problem->model), 1,
                              problem->job.sequence, 1);
    return problem->net != NULL;
}

Variant *variant_solve(Arena *arena, Diag *diag, const Problem *problem, const VariantKey *key)
{
    Variant *variant = ARENA_NEW(arena, Variant);
    variant->key = *key;
    Net *net = net_resize(arena, problem->net, 2 * key->micro_batch, key->tp);
    if (!mesh_build(diag, problem->cluster, key->tp, 2, model_kv_heads(net), &variant->mesh))
        return NULL;
    variant->net = net;
    variant->pricer = (Pricer){problem->cluster, net, &variant->mesh,
                               recipe_by_name(problem->job.recipe),
                               role_atoms(&variant->mesh, ROLE_DP)};
    return solve_classes(arena, diag, variant) ? variant : NULL;
}

/* ---- lifting ---------------------------------------------------------------------------------- */

static AtomSet lift_set(AtomSet set, int dp, int atoms)
{
    if (!(set >> dp & 1))
        return set;
    AtomSet lifted = (AtomSet)(set & ~(1u << dp));
    for (int a = dp; a < atoms; a++)
        lifted |= (AtomSet)(1u << a);
    return lifted;
}

/* The highest atom is the slowest link, hence major. */
static AtomList lift_list(const AtomList *list, int dp, int atoms)
{
    AtomList lifted = {0};
    for (int i = 0; i < list->n; i++) {
        if (list->at[i] != dp) {
            lifted.at[lifted.n++] = list->at[i];
            continue;
        }
        for (int a = atoms - 1; a >= dp; a--) {
            CHECK(lifted.n < MAX_PER_AXIS);
            lifted.at[lifted.n++] = (int8_t)a;
        }
    }
    return lifted;
}

static Placement lift_place(const Placement *place, int dp, int atoms)
{
    Placement lifted = *place;
    for (int a = 0; a < MAX_AXES; a++)
        lifted.shard[a] = lift_list(&place->shard[a], dp, atoms);
    lifted.partial = lift_set(place->partial, dp, atoms);
    if (!lifted.partial)
        lifted.monoid = MONOID_NONE;
    return lifted;
}

void variant_lift(Arena *arena, const Variant *variant, const Mesh *mesh, int c, ClassPlan *ret)
{
    const Graph *graph = variant->net->classes.at[c];
    const ClassPlan *plan = &variant->class[c];
    int dp = variant->mesh.n - 1, atoms = mesh->n;
    class_plan_alloc(arena, graph, ret);
    ret->boundary_in = lift_place(&plan->boundary_in, dp, atoms);
    ret->boundary_out = lift_place(&plan->boundary_out, dp, atoms);
    for (int n = 0; n < graph->nodes.n; n++)
        for (int a = 0; a < atoms; a++)
            ret->choice[n].atom[a] = plan->choice[n].atom[a < dp ? a : dp];
    for (int p = 0; p < graph->params.n; p++)
        ret->home[p] = lift_place(&plan->home[p], dp, atoms);
    for (int v = 0; v < graph->values.n; v++) {
        ret->keep[v] = plan->keep[v];
        ret->saved[v] = lift_place(&plan->saved[v], dp, atoms);
    }
}
