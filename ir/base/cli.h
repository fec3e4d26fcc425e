/* cli.h - what every verb does with its command line.
 *
 *     int cmd_explain(int argc, char **argv)
 *     {
 *         static const CliFlag flags[] = {{"html", NULL, "a web page instead of text", false},
 *                                         {"top", "N", "how many runners-up", false}};
 *         static const CliSpec spec = {"explain", "PLAN", "why this plan", flags, 2, 1, 1};
 *         Cli *cli = cli_begin(&spec, argc, argv);
 *         int64_t top = 3;
 *         if (!cli->ready || !cli_int(cli, "top", 1, 100, &top))
 *             return cli_end(cli, CLI_USAGE);
 *         ...
 *         return cli_end(cli, good ? CLI_OK : CLI_INPUT);
 *     }
 *
 * Every verb takes -o FILE, -q, --json and -h besides its own flags. A flag's value is written
 * --key=value or --key value; `--` ends the flags; `-` alone is a file name, standard input or
 * output. argv[0] is the verb. */
#ifndef LPLAN_IR_BASE_CLI_H
#define LPLAN_IR_BASE_CLI_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

/* The exit codes of the program. */
enum { CLI_OK = 0, CLI_INPUT = 1, CLI_USAGE = 2, CLI_NOTHING_FITS = 3, CLI_BUG = 70 };

typedef struct CliFlag {
    const char *name;  /* without the dashes */
    const char *value; /* its name in the help, such as "N" or "KEY=VALUE"; NULL: a switch */
    const char *about; /* one line */
    bool many;         /* may be given several times */
} CliFlag;

typedef struct CliSpec {
    const char *verb;
    const char *arguments; /* as in the help: "MODEL CLUSTER" */
    const char *about;     /* one line */
    const CliFlag *flags;
    int flag_count;
    int min_args, max_args; /* max -1: any number */
} CliSpec;

typedef struct Cli {
    Arena *arena; /* lives until cli_end */
    Diag *diag;
    const CliSpec *spec;
    const char *const *args; /* what is not a flag */
    int arg_count;
    const char *output; /* -o; "-" when not given */
    bool quiet, json;
    bool ready; /* false: the verb must not run: usage error, or help was asked for and printed */
    struct CliGiven *given;
} Cli;

Cli *cli_begin(const CliSpec *spec, int argc, char **argv);
/* Prints the diagnostics to stderr, frees everything and returns the exit code: `code`, raised to
 * CLI_INPUT when errors were reported and code is CLI_OK; CLI_OK when help was asked for. */
int cli_end(Cli *cli, int code);

bool cli_has(const Cli *cli, const char *flag);
/* The value of the flag's occurrence number `index` (0 first), or NULL. */
const char *cli_value(const Cli *cli, const char *flag, int index);
/* Absent leaves *ret and gives true; a wrong value appends an error and gives false. Integers may
 * be written 1e12. */
bool cli_int(Cli *cli, const char *flag, int64_t min, int64_t max, int64_t *ret);
bool cli_num(Cli *cli, const char *flag, double min, double max, double *ret);
/* The product of the verb: to -o, or to standard output. */
bool cli_write(Cli *cli, const char *text);

#endif
