/* cmd_ops.c - lplan ops: the op table. */
#include "ir/base/cli.h"
#include "ir/op.h"

int cmd_ops(int argc, char **argv)
{
    static const CliFlag flags[] = {{"md", NULL, "as a Markdown table", false}};
    static const CliSpec spec = {
        .verb = "ops",
        .arguments = "",
        .about = "the op table: signatures, linear operands, what may be split, gradients, kernels",
        .flags = flags,
        .flag_count = 1,
        .min_args = 0,
        .max_args = 0,
    };
    Cli *cli = cli_begin(&spec, argc, argv);
    if (!cli->ready)
        return cli_end(cli, CLI_USAGE);
    Str text = str_new(cli->arena);
    op_put_table(&text, cli_has(cli, "md"));
    return cli_end(cli, cli_write(cli, text.at) ? CLI_OK : CLI_INPUT);
}
