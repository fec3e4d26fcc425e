/* plans.c - plans and programs for tests. */
#include "tests/ir/lower/plans.h"

#include <stdlib.h>
#include <string.h>

#include "ir/plan_job.h"
#include "planner/import_hf.h"
#include "planner/make.h"
#include "tests/check.h"
#include "tests/ir/tiny_models.h"

const PlanCase plan_cases[] = {
    {tiny_llama, NULL, 1, 4, 6, "mbs=1", NULL, 0},
    {tiny_llama, NULL, 2, 4, 6, "pp=2,mbs=1", NULL, 0},
    {tiny_llama, NULL, 2, 4, 6, "pp=2,mbs=1,schedule=gpipe,recompute=full", NULL, 0},
    {tiny_llama, NULL, 4, 8, 8, "tp=2,dp=2,pp=1,sp=1,zero=1,mbs=1", NULL, 0},
    {tiny_llama, NULL, 8, 6, 8, "tp=2,dp=2,pp=2,sp=1,zero=1,mbs=1", "bf16", 0},
    {tiny_gpt2, NULL, 4, 8, 8, "tp=2,dp=2,pp=1,zero=0,mbs=2", NULL, 0},
    {tiny_gpt2, NULL, 8, 12, 8, "tp=2,dp=2,pp=2,zero=1,mbs=1,sp=1", NULL, 0},
    {tiny_gpt2, NULL, 4, 6, 8, "tp=1,dp=2,pp=2,zero=1,mbs=1,schedule=gpipe", "bf16", 0},
    {.model = NULL},
};

/* Several chunks on a stage, backward in two parts; blocks that pass by; steps that flow into each
 * other; layers that differ. */
static const PlanCase chunk_cases[] = {
    {tiny_llama, NULL, 2, 4, 6, "pp=2,mbs=1,schedule=interleaved", NULL, 0},
    {tiny_gpt2, NULL, 6, 10, 8, "tp=1,dp=2,pp=3,zero=1,mbs=1,schedule=zbh1", NULL, 0},
    {tiny_llama, NULL, 4, 5, 6, "tp=2,sp=1,pp=2,mbs=1,schedule=zbv,recompute=full", NULL, 0},
    {tiny_llama, NULL, 2, 4, 8, "tp=2,sp=1,tp_by=ring,mbs=2", "bf16", 0},
    {tiny_llama, NULL, 6, 2, 6, "tp=1,dp=2,pp=3,zero=1,mbs=1,schedule=pipedream", NULL, 0},
    {tiny_gpt2, NULL, 4, 5, 6, "tp=2,sp=1,pp=2,mbs=1,schedule=dualpipev,braid=1", NULL, 0},
    {tiny_llama, NULL, 4, 8, 6, "tp=1,dp=2,pp=2,zero=1,mbs=1,braid=1", "bf16", 0},
    {tiny_llama, NULL, 4, 3, 6, "tp=2,sp=1,pp=2,mbs=1,schedule=2bw,recompute=full", "bf16", 0},
    {tiny_llama, NULL, 4, 8, 8, "tp=1,dp=4,zero=1,mbs=1,0:tp=2:sp=1:recompute=full,last:zero=0",
     NULL, 0},
    {tiny_gpt2, NULL, 8, 8, 8, "tp=2,dp=2,pp=2,mbs=2,zero=1,0:zero=0,1:tp=1:cp=2", "bf16", 0},
};

const PlanCase *plan_case(int i)
{
    int plain = (int)(sizeof plan_cases / sizeof *plan_cases) - 1;
    int all = plain + (int)(sizeof chunk_cases / sizeof *chunk_cases);
    return i < plain ? &plan_cases[i] : i < all ? &chunk_cases[i - plain] : NULL;
}

/* What every rank does with a pin: tp, cp, dp and pp multiply. */
int pins_ranks(const char *pins)
{
    static const char *const keys[] = {"tp=", "cp=", "dp=", "pp="};
    int ranks = 1;
    for (const char *at = pins; *at; at += strcspn(at, ","), at += *at == ',')
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            if (strncmp(at, keys[i], 3) == 0)
                ranks *= atoi(at + 3);
    return ranks;
}

/* The first pin that cannot be read, or NULL: a later version of the planner may know it. */
static const char *unknown_pin(Arena *arena, const char *text)
{
    Diag *diag = diag_new(arena);
    for (const char *at = text; *at; at += strcspn(at, ","), at += *at == ',') {
        char *one = arena_printf(arena, "%.*s", (int)strcspn(at, ","), at);
        Pins pins = pins_none();
        if (!pins_parse(arena, diag, one, &pins))
            return one;
    }
    return NULL;
}

static Plan *try(Arena *arena, const PlanCase *what, Problem *problem, Net **ret_net,
                 PlanRefusal *ret)
{
    Diag *diag = ret->diag = diag_new(arena);
    ret->pin = unknown_pin(arena, what->pins);
    ret->model = false;
    if (ret->pin)
        return NULL;
    *problem = (Problem){.arena = arena, .diag = diag, .job = job_default()};
    problem->ranks = what->ranks ? what->ranks : pins_ranks(what->pins);
    problem->job.global_batch = what->batch;
    problem->job.sequence = what->sequence;
    const char *optimizer = what->recipe ? strchr(what->recipe, ' ') : NULL;
    if (optimizer && !job_set_optimizer(arena, diag, optimizer + 1, &problem->job))
        return NULL;
    if (what->recipe)
        problem->job.recipe =
            arena_printf(arena, "%.*s", (int)strcspn(what->recipe, " "), what->recipe);
    const char *root = getenv("LPLAN_SOURCE_ROOT");
    if (what->model[0] == '{')
        problem->model = json_parse(arena, diag, "model.json", what->model, strlen(what->model));
    else
        problem->model = import_model(
            arena, diag, arena_printf(arena, "%s/%s", root ? root : ".", what->model), NULL);
    problem->cluster = cluster_load(arena, diag, what->cluster ? what->cluster : "host");
    Pins pins = pins_none();
    if (!problem->model || !problem->cluster ||
        !cluster_resize(diag, problem->cluster, problem->ranks))
        return NULL;
    if (!problem_read(problem)) {
        ret->model = true;
        return NULL;
    }
    if (!pins_parse(arena, diag, what->pins, &pins))
        return NULL;
    pins = pins_complete(problem, pins);
    Plan *plan = plan_make(problem, &pins, NULL, ret_net);
    if (plan && what->bucket_bytes)
        plan->bucket_bytes = what->bucket_bytes;
    return plan;
}

static Plan *make(Arena *arena, const PlanCase *what, Problem *problem, Net **ret_net)
{
    PlanRefusal refusal;
    Plan *plan = try(arena, what, problem, ret_net, &refusal);
    if (!plan) {
        diag_print(refusal.diag, stderr, false);
        fail_msg("there is no plan with %s%s%s", what->pins, refusal.pin ? ": no pin " : "",
                 refusal.pin ? refusal.pin : "");
    }
    return plan;
}

Plan *plan_try(Arena *arena, const PlanCase *what, Net **ret_net, PlanRefusal *ret)
{
    Problem problem;
    return try(arena, what, &problem, ret_net, ret);
}

Plan *plan_of(Arena *arena, const PlanCase *what, Net **ret_net)
{
    Problem problem;
    return make(arena, what, &problem, ret_net);
}

Program *program_timed(Arena *arena, const PlanCase *what, const RowTimes *times)
{
    Problem problem;
    Net *net;
    Plan *plan = make(arena, what, &problem, &net);
    Pricer pricer = {problem.cluster,   net,        &plan->mesh, recipe_by_name(plan->job.recipe),
                     plan->state_atoms, &plan->job, NULL};
    MovePrice price = pricer_moves(&pricer);
    return program_build(arena, plan, net, &price, times);
}

Program *program_of(Arena *arena, const PlanCase *what)
{
    return program_timed(arena, what, NULL);
}

char *model_with_layers(Arena *arena, const char *model, int layers)
{
    static const char key[] = "\"repeat\":2";
    const char *at = strstr(model, key);
    assert_non_null(at);
    return arena_printf(arena, "%.*s\"repeat\":%d%s", (int)(at - model), model, layers,
                        at + sizeof key - 1);
}

void program_each(void (*body)(Arena *arena, Program *program, int at))
{
    for (int i = 0; plan_cases[i].model; i++) {
        Arena *arena = arena_new("case");
        body(arena, program_of(arena, &plan_cases[i]), i);
        arena_free(arena);
    }
}

static void assert_agree(bool good, const Diag *diag, const CheckReport *report)
{
    if (good != (diag_errors(diag) == 0) || good != (report->faults == 0))
        fail_msg("the verdict, %d faults and %d errors disagree", report->faults,
                 diag_errors(diag));
}

bool program_holds(const Program *program, const CheckTap *tap, CheckReport *ret)
{
    Arena *arena = arena_new("check");
    Diag *diag = diag_new(arena);
    bool good = program_check_tapped(arena, program, 2, tap, diag, ret);
    assert_agree(good, diag, ret);
    arena_free(arena);
    return good;
}

bool stage_holds(const Program *program, int stage, int coordinate, const CheckTap *tap,
                 CheckReport *ret)
{
    Arena *arena = arena_new("check");
    Diag *diag = diag_new(arena);
    bool good = stage_check_bytes(program, stage, coordinate, 2, tap, diag, ret);
    assert_agree(good, diag, ret);
    arena_free(arena);
    return good;
}
