/* cmd_diff.c - lplan diff: plans side by side. */
#include <stdio.h>
#include <unistd.h>

#include "ir/base/cli.h"
#include "planner/compare.h"

static bool diff_plans(Cli *cli)
{
    Columns columns = {0};
    for (int i = 0; i < cli->arg_count; i++) {
        Net *net;
        Problem problem;
        Plan *plan = compare_load(cli->arena, cli->diag, cli->args[i], &net, &problem);
        if (!plan)
            return false;
        const Assessment *it = assess_plan(cli->arena, plan, net, ASSESS_STEPS);
        vec_push(cli->arena, &columns) = (Column){.title = cli->args[i], .it = it};
    }
    Style style = style_for(str_eq(cli->output, "-") && isatty(STDOUT_FILENO));
    if (cli->json) {
        json_t *json = compare_json(cli->arena, &columns);
        bool good = cli_write(cli, json_text(cli->arena, json));
        json_decref(json);
        return good;
    }
    Str text = str_new(cli->arena);
    columns_put(&text, cli->arena, &columns, &style);
    return cli_write(cli, text.at);
}

int cmd_diff(int argc, char **argv)
{
    static const CliSpec spec = {
        .verb = "diff",
        .arguments = "A B...",
        .about = "plans side by side: placement, memory, time, bytes per link",
        .min_args = 2,
        .max_args = 12,
    };
    Cli *cli = cli_begin(&spec, argc, argv);
    if (!cli->ready)
        return cli_end(cli, CLI_USAGE);
    return cli_end(cli, diff_plans(cli) ? CLI_OK : CLI_INPUT);
}
