/* ask.c - reads models, clusters, jobs and pins for the verbs. */
#include "planner/ask.h"

#include <stdlib.h>

#include "planner/import_hf.h"

bool ask_pins(Cli *cli, Pins *ret)
{
    *ret = pins_none();
    for (int i = 0; cli_value(cli, "pin", i); i++)
        if (!pins_parse(cli->diag, cli_value(cli, "pin", i), ret))
            return false;
    return true;
}

static bool ask_recipe(Cli *cli, Problem *problem)
{
    const char *recipe = cli_value(cli, "recipe", 0);
    if (!recipe)
        recipe = str_eq(problem->cluster->device.target, "cuda") ? "bf16" : "fp32";
    if (!recipe_by_name(recipe)) {
        diag_error(cli->diag, NO_SPAN, "unknown recipe %s", recipe);
        diag_help(cli->diag, "use fp32, bf16 or fp64");
        return false;
    }
    problem->job.recipe = recipe;
    return true;
}

bool ask_problem(Cli *cli, Problem *ret)
{
    *ret = (Problem){.arena = cli->arena, .diag = cli->diag, .job = job_default()};
    int64_t gpus = 0;
    if (!cli_int(cli, "gpus", 1, 1 << 20, &gpus) ||
        !cli_int(cli, "global-batch", 1, INT64_C(1) << 40, &ret->job.global_batch) ||
        !cli_int(cli, "seq", 1, INT64_C(1) << 30, &ret->job.sequence))
        return false;
    ret->model = import_model(cli->arena, cli->diag, cli->args[0], NULL);
    ret->cluster = cluster_load(cli->arena, cli->diag, cli->args[1]);
    if (!ret->model || !ret->cluster || !ask_recipe(cli, ret))
        return false;
    if (gpus && !cluster_resize(cli->diag, ret->cluster, (int)gpus))
        return false;
    ret->ranks = ret->cluster->devices;
    return problem_read(ret);
}

bool ask_time(Cli *cli, const char *flag, int64_t *ret_ns)
{
    static const struct {
        const char *text;
        double ns;
    } unit[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"m", 60e9}, {"min", 60e9}};
    const char *text = cli_value(cli, flag, 0);
    if (!text)
        return true;
    char *end;
    double value = strtod(text, &end);
    for (size_t i = 0; end != text && value >= 0 && value < 1e6 && i < sizeof unit / sizeof *unit;
         i++)
        if (str_eq(end, unit[i].text)) {
            *ret_ns = (int64_t)(value * unit[i].ns);
            return true;
        }
    diag_error(cli->diag, NO_SPAN, "--%s=%s is not a time", flag, text);
    diag_help(cli->diag, "write 500ms, 2s or 1m");
    return false;
}
