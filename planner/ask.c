/* ask.c - reads models, clusters, jobs and pins for the verbs. */
#include "planner/ask.h"

#include <stdio.h>
#include <stdlib.h>

#include "ir/plan_job.h"
#include "planner/import_hf.h"

bool ask_pins(Cli *cli, Pins *ret)
{
    *ret = pins_none();
    for (int i = 0; cli_value(cli, "pin", i); i++)
        if (!pins_parse(cli->arena, cli->diag, cli_value(cli, "pin", i), ret))
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
        diag_help(cli->diag, "use fp32, bf16, fp16 or fp64");
        return false;
    }
    problem->job.recipe = recipe;
    return true;
}

static bool ask_optimizer(Cli *cli, Problem *problem)
{
    const char *optimizer = cli_value(cli, "optimizer", 0);
    return !optimizer || job_set_optimizer(cli->arena, cli->diag, optimizer, &problem->job);
}

/* The model's own length when none was asked for; and a word when the one asked for is longer. */
static void ask_sequence(Cli *cli, Problem *problem, const Import *import)
{
    enum { MOST = 4096, UNKNOWN = 2048 };
    int64_t own = import->positions;
    if (!cli_has(cli, "seq")) {
        problem->job.sequence = own == 0 ? UNKNOWN : own < MOST ? own : MOST;
    } else if (own && problem->job.sequence > own) {
        diag_warning(cli->diag, NO_SPAN,
                     "--seq %lld is longer than the %lld tokens the model is for",
                     (long long)problem->job.sequence, (long long)own);
        diag_help(cli->diag, "its config says max_position_embeddings %lld", (long long)own);
    }
    bool batch = !cli_has(cli, "global-batch"), sequence = !cli_has(cli, "seq");
    if (batch || sequence)
        problem->defaulted = batch && sequence ? "--seq, --global-batch"
                             : batch           ? "--global-batch"
                                               : "--seq";
}

/* One domain is one machine: more devices do not come with more machines. */
static bool ask_devices(Cli *cli, Problem *problem, int64_t devices)
{
    const Cluster *cluster = problem->cluster;
    int have = cluster->devices;
    if (devices > have && cluster->levels == 1)
        diag_warning(
            cli->diag, NO_SPAN,
            "%s is one machine of %d devices: a plan of %lld assumes a larger one of its kind",
            cluster->name, have, (long long)devices);
    return devices == 0 || cluster_resize(cli->diag, problem->cluster, (int)devices);
}

static bool ask_collectives(Cli *cli, Cluster *cluster)
{
    const char *names = cli_value(cli, "collectives", 0);
    return !names || algorithms_parse(cli->diag, names, &cluster->collectives);
}

bool ask_problem(Cli *cli, Problem *ret)
{
    *ret = (Problem){.arena = cli->arena, .diag = cli->diag, .job = job_default()};
    int64_t gpus = 0, imbalance = USUAL_IMBALANCE;
    if (!cli_int(cli, "imbalance", 100, 100000, &imbalance) ||
        !cli_int(cli, "gpus", 1, 1 << 20, &gpus) ||
        !cli_int(cli, "global-batch", 1, INT64_C(1) << 40, &ret->job.global_batch) ||
        !cli_int(cli, "seq", 1, INT64_C(1) << 30, &ret->job.sequence))
        return false;
    ret->imbalance = (int)imbalance;
    Import import;
    ret->model = import_model(cli->arena, cli->diag, cli->args[0], &import);
    ret->cluster = cluster_load(cli->arena, cli->diag, cli->args[1]);
    if (!ret->model || !ret->cluster || !ask_recipe(cli, ret) || !ask_optimizer(cli, ret) ||
        !ask_collectives(cli, ret->cluster))
        return false;
    for (int i = 0; i < import.notes.n && !cli->quiet; i++)
        fprintf(stderr, "note: %s\n", import.notes.at[i]);
    if (cli_has(cli, "packed"))
        json_object_set_new(ret->model->root, "packed", json_true());
    ask_sequence(cli, ret, &import);
    if (!ask_devices(cli, ret, gpus))
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
