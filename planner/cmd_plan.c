/* cmd_plan.c - lplan plan: the fastest placement that fits, and the report that says why. */
#include "ir/base/cli.h"
#include "ir/base/str.h"
#include "planner/import_hf.h"
#include "planner/make.h"

static bool pins_of(Cli *cli, Pins *ret)
{
    *ret = pins_none();
    for (int i = 0; cli_value(cli, "pin", i); i++)
        if (!pins_parse(cli->diag, cli_value(cli, "pin", i), ret))
            return false;
    return true;
}

static bool problem_of(Cli *cli, Problem *ret)
{
    *ret = (Problem){.arena = cli->arena, .diag = cli->diag, .job = job_default()};
    int64_t gpus = 0;
    const char *recipe = cli_value(cli, "recipe", 0);
    if (!cli_int(cli, "gpus", 1, 1 << 20, &gpus) ||
        !cli_int(cli, "global-batch", 1, INT64_C(1) << 40, &ret->job.global_batch) ||
        !cli_int(cli, "seq", 1, INT64_C(1) << 30, &ret->job.sequence))
        return false;
    if (recipe && !recipe_by_name(recipe))
        return diag_error(cli->diag, NO_SPAN, "unknown recipe %s: fp32, bf16 or fp64", recipe);
    if (recipe)
        ret->job.recipe = recipe;
    ret->model = import_model(cli->arena, cli->diag, cli->args[0], NULL);
    ret->cluster = cluster_load(cli->arena, cli->diag, cli->args[1]);
    if (!ret->model || !ret->cluster)
        return false;
    if (gpus && !cluster_resize(cli->diag, ret->cluster, (int)gpus))
        return false;
    ret->ranks = ret->cluster->devices;
    return problem_read(ret);
}

int cmd_plan(int argc, char **argv)
{
    static const CliFlag flags[] = {
        {"gpus", "N", "how many devices of the cluster's kind (default: all it has)", false},
        {"global-batch", "B", "sequences per optimizer step", false},
        {"seq", "S", "tokens per sequence", false},
        {"recipe", "NAME", "fp32, bf16 or fp64", false},
        {"pin", "KEY=VALUE,...", "fix tp dp pp zero sp recompute mbs schedule layers", true},
    };
    static const CliSpec spec = {
        .verb = "plan",
        .arguments = "MODEL CLUSTER",
        .about = "the fastest placement that fits, and why (plan file: -o)",
        .flags = flags,
        .flag_count = sizeof flags / sizeof *flags,
        .min_args = 2,
        .max_args = 2,
    };
    Cli *cli = cli_begin(&spec, argc, argv);
    Problem problem;
    Pins pins;
    if (!cli->ready || !pins_of(cli, &pins))
        return cli_end(cli, CLI_USAGE);
    if (!problem_of(cli, &problem))
        return cli_end(cli, CLI_INPUT);
    pins = pins_complete(&problem, pins);
    Net *net;
    Plan *plan = plan_make(&problem, &pins, NULL, &net);
    if (!plan)
        return cli_end(cli, CLI_INPUT);
    json_t *json = plan_json(plan, net);
    bool good = cli_write(cli, arena_printf(cli->arena, "%s\n", json_text(cli->arena, json)));
    json_decref(json);
    return cli_end(cli, good ? CLI_OK : CLI_INPUT);
}
