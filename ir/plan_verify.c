/* plan_verify.c - is this plan one that can be lowered? Every fault is reported, by class and name.
 */
#include "ir/plan.h"

static bool verify_numbers(const Plan *plan, const Net *net, Diag *diag)
{
    bool good = true;
    int stage_ranks = mesh_ranks(&plan->mesh),
        dp = mesh_extent(&plan->mesh, role_atoms(&plan->mesh, ROLE_DP));
    if (plan->stages < 1 || stage_ranks * plan->stages != plan->ranks)
        good = diag_error(diag, NO_SPAN, "%d stages of %d ranks are not %d ranks", plan->stages,
                          stage_ranks, plan->ranks);
    if (plan->micro_batch * dp * plan->micro_batches != plan->job.global_batch)
        good =
            diag_error(diag, NO_SPAN,
                       "micro-batch %lld x dp %d x %d micro-batches is not the global batch %lld",
                       (long long)plan->micro_batch, dp, plan->micro_batches,
                       (long long)plan->job.global_batch);
    if (net->dims.at[net->batch].extent != plan->micro_batch * dp)
        good = diag_error(
            diag, NO_SPAN, "the model was read for %lld sequences, the plan says %lld",
            (long long)net->dims.at[net->batch].extent, (long long)(plan->micro_batch * dp));
    if (!recipe_by_name(plan->job.recipe))
        good = diag_error(diag, NO_SPAN, "unknown recipe %s", plan->job.recipe);
    for (int s = 0; s < plan->stages; s++)
        if (plan->first_link[s] >= plan->first_link[s + 1])
            good = diag_error(diag, NO_SPAN, "stage %d has no layer", s);
    if (plan->first_link[0] != 0 || plan->first_link[plan->stages] != net->chain.n)
        good = diag_error(diag, NO_SPAN, "the stages do not cover the chain of %d links",
                          net->chain.n);
    return good;
}

static bool verify_place(const Plan *plan, const Net *net, const Graph *graph, ValueId id,
                         const Placement *place, const char *what, bool partial, Diag *diag)
{
    if (id == NONE)
        return true;
    const Value *value = &graph->values.at[id];
    if (!place_fits(&plan->mesh, net, value, place))
        return diag_error(diag, NO_SPAN, "%s of %s in class %s does not divide by its atoms", what,
                          value->name, graph->name);
    if (!partial && place->partial)
        return diag_error(diag, NO_SPAN, "%s of %s in class %s is Partial", what, value->name,
                          graph->name);
    return true;
}

static bool verify_class(const Plan *plan, const Net *net, int c, Diag *diag)
{
    const Graph *graph = net->classes.at[c];
    const ClassPlan *choice = &plan->class[c];
    bool good = true;
    for (int n = 0; n < graph->nodes.n; n++) {
        Placement in[MAX_IN], out[MAX_OUT];
        if (!place_node(&plan->mesh, net, graph, &graph->nodes.at[n], &choice->choice[n], in, out))
            good = diag_error(diag, NO_SPAN, "node %s of class %s cannot be placed so",
                              graph->nodes.at[n].name, graph->name);
    }
    for (int p = 0; p < graph->params.n; p++)
        good &= verify_place(plan, net, graph, graph->params.at[p].value, &choice->home[p],
                             "the home", false, diag);
    good &= verify_place(plan, net, graph, graph->chain_in, &choice->boundary_in, "the boundary",
                         false, diag);
    good &= verify_place(plan, net, graph, graph->chain_out, &choice->boundary_out, "the boundary",
                         false, diag);
    for (int v = 0; v < graph->values.n; v++)
        if (choice->keep[v] == KEEP_SAVED)
            good &=
                verify_place(plan, net, graph, v, &choice->saved[v], "the saved copy", true, diag);
    return good;
}

bool plan_verify(const Plan *plan, const Net *net, Diag *diag)
{
    bool good = verify_numbers(plan, net, diag);
    for (int c = 0; c < net->classes.n; c++)
        good &= verify_class(plan, net, c, diag);
    for (int i = 0; good && i + 1 < net->chain.n; i++) {
        const ClassPlan *a = &plan->class[net->chain.at[i].class],
                        *b = &plan->class[net->chain.at[i + 1].class];
        if (!place_equal(&a->boundary_out, &b->boundary_in))
            good = diag_error(diag, NO_SPAN,
                              "link %d hands on another placement than link %d takes", i, i + 1);
    }
    for (int i = 0; good && i < net->params.n; i++) {
        const NetParam *param = &net->params.at[i];
        for (int use = 1; use < param->uses; use++)
            if (!place_equal(&plan->class[param->use_class[0]].home[param->use_param[0]],
                             &plan->class[param->use_class[use]].home[param->use_param[use]]))
                good = diag_error(diag, NO_SPAN,
                                  "the uses of the tied parameter %s have different homes",
                                  param->name);
    }
    return good;
}
