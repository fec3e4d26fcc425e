/* lplan.c - the command table. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ir/base/cli.h"
#include "ir/base/str.h"

/* One row a verb; its function is int cmd_NAME(int argc, char **argv), in a file of its own. */
#define VERBS(VERB)                                                                                \
    VERB(import, "a Hugging Face config.json becomes a model file")                                \
    VERB(plan, "the fastest placement that fits, and why")                                         \
    VERB(explain, "why this plan: what bounds it, what stands beside it")                          \
    VERB(whatif, "a plan under a change of cluster, job or pins")                                  \
    VERB(diff, "plans side by side")                                                               \
    VERB(prove, "a plan computes what the model means: static and numeric proof")                  \
    VERB(build, "a plan becomes the source of its trainer, checked and compiled")                  \
    VERB(run, "starts a built trainer with the ranks of its plan")                                 \
    VERB(ops, "the op table")                                                                      \
    VERB(help, "this list, or the options of a verb")                                              \
    VERB(version, "the version of this program")

#define VERB_PROTOTYPE(name, about) int cmd_##name(int argc, char **argv);
VERBS(VERB_PROTOTYPE)

typedef struct Verb {
    const char *name, *about;
    int (*run)(int argc, char **argv);
} Verb;

#define VERB_ROW(name, about) {#name, about, cmd_##name},
static const Verb verbs[] = {VERBS(VERB_ROW)};
enum { VERB_COUNT = sizeof verbs / sizeof *verbs };

static const Verb *verb_find(const char *name)
{
    for (int i = 0; i < VERB_COUNT; i++) {
        if (str_eq(verbs[i].name, name))
            return &verbs[i];
    }
    return NULL;
}

static int verb_unknown(const char *name)
{
    const char *names[VERB_COUNT];
    for (int i = 0; i < VERB_COUNT; i++)
        names[i] = verbs[i].name;
    const char *nearest = str_nearest(name, names, VERB_COUNT);
    Arena *arena = arena_new("verb");
    Diag *diag = diag_new(arena);
    diag_error(diag, NO_SPAN, "lplan has no verb '%s'", name);
    if (nearest)
        diag_help(diag, "did you mean '%s'?", nearest);
    else
        diag_help(diag, "lplan help lists the verbs");
    diag_print(diag, stderr, isatty(STDERR_FILENO));
    arena_free(arena);
    return CLI_USAGE;
}

static const char *verbs_text(Arena *arena)
{
    Str text = str_new(arena);
    str_put(&text, "lplan finds the fastest placement of a training run, says why, and prints its "
                   "trainer.\n\nusage: lplan VERB [arguments] [options]\n\n");
    for (int i = 0; i < VERB_COUNT; i++)
        str_putf(&text, "  %-10s %s\n", verbs[i].name, verbs[i].about);
    str_put(&text,
            "\nlplan help VERB tells the options of a verb.\n"
            "exit code: 0 good, 1 bad input, 2 bad usage, 3 nothing fits, 70 a bug in lplan\n");
    return text.at;
}

int cmd_help(int argc, char **argv)
{
    static const CliSpec spec = {
        .verb = "help",
        .arguments = "[VERB]",
        .about = "the verbs, or the options of one",
        .max_args = 1,
    };
    Cli *cli = cli_begin(&spec, argc, argv);
    if (!cli->ready)
        return cli_end(cli, CLI_USAGE);
    if (cli->arg_count == 0) {
        cli_write(cli, verbs_text(cli->arena));
        return cli_end(cli, CLI_OK);
    }
    const Verb *verb = verb_find(cli->args[0]);
    if (!verb)
        return cli_end(cli, verb_unknown(cli->args[0]));
    cli_end(cli, CLI_OK);
    char *verb_argv[] = {(char *)verb->name, (char *)"--help", NULL};
    return verb->run(2, verb_argv);
}

int cmd_version(int argc, char **argv)
{
    static const CliSpec spec = {
        .verb = "version",
        .arguments = "",
        .about = "the version of this program",
    };
    Cli *cli = cli_begin(&spec, argc, argv);
    if (!cli->ready)
        return cli_end(cli, CLI_USAGE);
    cli_write(cli,
              cli->json ? "{\"version\": \"" LPLAN_VERSION "\"}\n" : "lplan " LPLAN_VERSION "\n");
    return cli_end(cli, CLI_OK);
}

int main(int argc, char **argv)
{
    bug_command(LPLAN_VERSION, argc, argv);
    if (argc < 2) {
        Arena *arena = arena_new("usage");
        fputs(verbs_text(arena), stderr);
        arena_free(arena);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (str_eq(name, "-h") || str_eq(name, "--help"))
        name = "help";
    else if (str_eq(name, "--version"))
        name = "version";
    const Verb *verb = verb_find(name);
    return verb ? verb->run(argc - 1, argv + 1) : verb_unknown(argv[1]);
}
