/* made.c - plans on example models for tests. */
#include "tests/planner/made.h"

#include <stdlib.h>
#include <string.h>

#include "ir/plan_job.h"
#include "tests/check.h"

Problem *case_problem(Arena *arena, const Case *at)
{
    char *recipe = arena_strdup(arena, at->recipe), *optimizer = strchr(recipe, ' ');
    if (optimizer)
        *optimizer++ = 0;
    Problem *problem = problem_example(arena, at->model, at->cluster, at->devices, at->batch,
                                       at->sequence, recipe);
    if (optimizer)
        assert_true(job_set_optimizer(arena, problem->diag, optimizer, &problem->job));
    return problem;
}

Made make(const Case *at)
{
    Made made = {.arena = arena_new("agree")};
    made.problem = case_problem(made.arena, at);
    Pins pins = pins_given(made.problem, at->pins);
    made.search = search_new(made.problem);
    made.family = search_family(made.search, made.arena, &pins);
    if (made.family)
        made.plan = plan_make(made.problem, &pins, search_variant(made.search, &pins), &made.net);
    if (!made.plan)
        fail_msg("%s %s: no plan", at->model, at->pins);
    if (pins.ranges > 0) { /* of layers that differ only their plan knows */
        Problem *own = ARENA_NEW(made.arena, Problem);
        *own = problem_of_plan(made.arena, made.plan, made.net);
        made.family = family_of_plan(made.arena, own, made.plan, made.net);
    }
    made.program = program_build(made.arena, made.plan, made.net, NULL, NULL);
    return made;
}

void done(Made *made)
{
    search_free(made->search);
    problem_free(made->problem);
    arena_free(made->arena);
}

double off(int64_t a, int64_t b)
{
    return b ? (double)llabs(a - b) / (double)b : a != 0;
}

int64_t spent_sum(const StageTimes *at)
{
    int64_t sum = 0;
    for (int k = 0; k < SPENT_COUNT; k++) {
        assert_true(at->spent_ns[k] >= 0);
        sum += at->spent_ns[k];
    }
    return sum;
}
