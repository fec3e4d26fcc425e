/* handmade.c - plans for tests, and what they compute. */
#include "tests/ir/lower/handmade.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/lower/check.h"
#include "ir/lower/execute.h"

Plan *handmade_plan(Arena *arena, const Net *net, const Mesh *mesh, int micro_batches)
{
    Plan *plan = ARENA_NEW(arena, Plan);
    int dp = mesh_extent(mesh, role_atoms(mesh, ROLE_DP));
    *plan = (Plan){.arena = arena,
                   .job = job_default(),
                   .ranks = mesh_ranks(mesh),
                   .stages = 1,
                   .mesh = *mesh,
                   .micro_batch = net->dims.at[net->batch].extent / dp,
                   .micro_batches = micro_batches,
                   .pad_vocabulary = 1,
                   .schedule = SCHEDULE_1F1B,
                   .bucket_bytes = 2000};
    plan->job.recipe = "fp64";
    plan->job.clip = 0.05;
    /* Far above the rounding of gradients that are zero on paper, such as those of key biases. */
    plan->job.eps = 1e-5;
    plan->job.sequence = net->dims.at[net->sequence].extent;
    plan->job.global_batch = plan->micro_batch * dp * micro_batches;
    plan->first_link = ARENA_ARRAY(arena, int, 2);
    plan->first_link[1] = net->chain.n;
    plan_chunk_per_stage(arena, plan);
    plan->class = ARENA_ARRAY(arena, ClassPlan, net->classes.n);
    for (int c = 0; c < net->classes.n; c++) {
        class_plan_alloc(arena, net->classes.at[c], &plan->class[c]);
        handmade_keep(&plan->class[c], net, net -> classes.at[c], mesh);
    }
    return plan;
}

NodeId handmade_node(const Graph *graph, const char *name)
{
    for (int n = 0; n < graph->nodes.n; n++)
        if (strcmp(graph->nodes.at[n].name, name) == 0)
            return n;
    BUG("no node %s in class %s", name, graph->name);
}

static Choice choice_of(const Node *node, const char *word)
{
    if (word[0] == '+')
        return (Choice)(CHOICE_LINEAR + atoi(word + 1));
    if (word[0] == 'R')
        return CHOICE_REPLICATE;
    for (int l = 0; l < node->sig.letters; l++)
        if (node->sig.letter[l] == word[0])
            return (Choice)(CHOICE_LETTER + l);
    BUG("node %s has no letter %c", node->name, word[0]);
}

void handmade_choose(ClassPlan *plan, const Graph *graph, const char *name, const char *words)
{
    NodeId id = handmade_node(graph, name);
    int atom = 0;
    for (const char *at = words; *at; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (*at)
            plan->choice[id].atom[atom++] = choice_of(&graph->nodes.at[id], at);
    }
}

void handmade_home(ClassPlan *plan, const Net *net, const Graph *graph, const char *param,
                   const char *place)
{
    for (int p = 0; p < graph->params.n; p++)
        if (strcmp(graph->params.at[p].name, param) == 0) {
            if (!place_parse(net, &graph->values.at[graph->params.at[p].value], place,
                             &plan->home[p]))
                BUG("%s is no placement of %s", place, param);
            return;
        }
    BUG("no parameter %s in class %s", param, graph->name);
}

void handmade_keep(ClassPlan *plan, const Net *net, const Graph *graph, const Mesh *mesh)
{
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        Placement in[MAX_IN], out[MAX_OUT];
        if (!place_node(mesh, net, graph, node, &plan->choice[n], in, out))
            BUG("node %s of class %s cannot be placed so", node->name, graph->name);
        for (int k = 0; k < node->outs; k++)
            plan->saved[node->out[k]] = out[k];
    }
}

/* ---- executed ---- */

typedef struct Want {
    double *loss, *norm, **param;
} Want;

static Want run_oracle(Arena *arena, const Plan *plan, const Net *net, double **initial,
                       EvalBatch **batch, int rounds, double lr)
{
    const Job *job = &plan->job;
    double **set[4];
    for (int k = 0; k < 4; k++)
        set[k] = net_zero_params(arena, net);
    for (int p = 0; p < net->params.n; p++)
        memcpy(set[0][p], initial[p], (size_t)eval_param_elements(net, p) * sizeof(double));
    EvalAdam adam = {job->beta1, job->beta2, job->eps, job->decay, job->clip, job->muon, true};
    Want want = {ARENA_ARRAY(arena, double, rounds), ARENA_ARRAY(arena, double, rounds), set[0]};
    for (int r = 0; r < rounds; r++) {
        for (int p = 0; p < net->params.n; p++)
            memset(set[3][p], 0, (size_t)eval_param_elements(net, p) * sizeof(double));
        want.loss[r] =
            eval_net(net, (const double *const *)set[0], batch[r], plan->micro_batches, set[3]);
        want.norm[r] =
            eval_step(net, &adam, lr, r + 1, set[0], set[1], set[2], (const double *const *)set[3]);
    }
    return want;
}

static void note(double error, const char *what, double *worst, const char **ret_what)
{
    if (isnan(error))
        error = INFINITY;
    if (error >= *worst) {
        *worst = error;
        *ret_what = what;
    }
}

double handmade_error(Arena *arena, const Plan *plan, const Net *net, uint64_t seed,
                      const char **ret_what)
{
    enum { ROUNDS = 2 };
    const double lr = 0.05;
    double **initial = net_random_params(arena, net, seed), worst = 0;
    EvalBatch *batch[ROUNDS], *all = ARENA_ARRAY(arena, EvalBatch, ROUNDS * plan->micro_batches);
    for (int r = 0; r < ROUNDS; r++) {
        batch[r] =
            net_random_batches(arena, net, plan->micro_batches, seed + 7919 * (uint64_t)(r + 1));
        memcpy(all + r * plan->micro_batches, batch[r],
               (size_t)plan->micro_batches * sizeof(EvalBatch));
    }
    Want want = run_oracle(arena, plan, net, initial, batch, ROUNDS, lr);
    MovePrice price = path_plain_price(8);
    const Program *program = program_build(arena, plan, net, &price, NULL);
    CheckReport report;
    Diag *diag = diag_new(arena);
    if (!program_check(arena, program, ROUNDS, diag, &report)) {
        *ret_what = arena_printf(arena, "static proof: %s", diag_item(diag, 0)->text);
        return INFINITY;
    }
    Machine *machine = machine_new(arena, program);
    for (uint64_t order = 0; order < 2; order++) {
        const char *fault = NULL;
        machine_set_params(machine, (const double *const *)initial);
        if (!machine_run(machine, all, ROUNDS, lr, order * seed, NULL, &fault)) {
            *ret_what = fault;
            return INFINITY;
        }
        for (int r = 0; r < ROUNDS; r++) {
            note(fabs(machine_loss(machine, r, 0) - want.loss[r]) / fabs(want.loss[r]), "loss",
                 &worst, ret_what);
            note(fabs(sqrt(machine_norm2(machine, r)) - want.norm[r]) / want.norm[r],
                 "gradient norm", &worst, ret_what);
        }
        for (int p = 0; p < net->params.n; p++)
            note(machine_param_error(machine, p, want.param[p]), net->params.at[p].name, &worst,
                 ret_what);
    }
    return worst;
}
