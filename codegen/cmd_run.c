/* cmd_run.c - lplan run: starts a built trainer with the plan's ranks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/launch.h"
#include "ir/base/cli.h"
#include "ir/base/str.h"

static const char usage[] =
    "lplan run DIR [--hosts FILE] [options of the trainer]\n\n"
    "Starts DIR/trainer with its plan's ranks: under mpirun, or alone when it has one rank or "
    "with\n"
    "--virtual. What happens is logged in DIR/run unless --log says otherwise.\n"
    "`DIR/trainer --help` lists the trainer's options.\n";

/* The number after `key` in what `trainer --describe` prints; -1 if it is not there. */
static int described(const char *text, const char *key)
{
    const char *found = strstr(text, key);
    return found ? atoi(found + strlen(key)) : -1;
}

static char *trainer_describe(Arena *arena, const char *trainer)
{
    char buffer[1024];
    Str text = str_new(arena);
    char *command = arena_printf(arena, "'%s' --describe", trainer);
    FILE *pipe = strchr(trainer, '\'') ? NULL : popen(command, "r");
    if (!pipe)
        return NULL;
    while (fgets(buffer, sizeof buffer, pipe))
        str_put(&text, buffer);
    return pclose(pipe) == 0 ? text.at : NULL;
}

static bool is_option(const char *argument, const char *name)
{
    size_t n = strlen(name);
    return strncmp(argument, name, n) == 0 && (argument[n] == '\0' || argument[n] == '=');
}

/* The value of an option at argv[*at], which moves past it; NULL if there is none. */
static const char *option_value(int argc, char **argv, int *at)
{
    const char *equals = strchr(argv[*at], '=');
    if (equals)
        return equals + 1;
    return *at + 1 < argc ? argv[++*at] : NULL;
}

static int fail(Arena *arena, Diag *diag, int code)
{
    diag_print(diag, stderr, isatty(STDERR_FILENO));
    arena_free(arena);
    return code;
}

int cmd_run(int argc, char **argv)
{
    if (argc < 2 || str_eq(argv[1], "-h") || str_eq(argv[1], "--help")) {
        fputs(usage, argc < 2 ? stderr : stdout);
        return argc < 2 ? CLI_USAGE : CLI_OK;
    }
    Arena *arena = arena_new("run");
    Diag *diag = diag_new(arena);
    const char *dir = argv[1];
    if (dir[0] == '-') {
        diag_error(diag, NO_SPAN, "'run' has no option %s before the folder", dir);
        diag_help(diag, "lplan run DIR [options of the trainer]; see lplan run --help");
        return fail(arena, diag, CLI_USAGE);
    }
    Launch launch = {.trainer = arena_printf(arena, "%s/trainer", dir)};
    const char **arguments = ARENA_ARRAY(arena, const char *, argc + 4);
    bool alone = false;
    for (int i = 2; i < argc; i++) {
        int first = i;
        if (is_option(argv[i], "--hosts")) {
            launch.hosts = option_value(argc, argv, &i);
            if (!launch.hosts) {
                diag_error(diag, NO_SPAN, "--hosts needs a file");
                return fail(arena, diag, CLI_USAGE);
            }
            continue;
        }
        if (is_option(argv[i], "--log")) {
            launch.log = option_value(argc, argv, &i);
        } else if (is_option(argv[i], "--timeout")) {
            const char *seconds = option_value(argc, argv, &i);
            launch.start_s = seconds ? atof(seconds) : 0;
        }
        alone = alone || str_eq(argv[i], "--virtual");
        for (; first <= i; first++)
            arguments[launch.argument_count++] = argv[first];
    }
    if (!launch.log) {
        launch.log = arena_printf(arena, "%s/run", dir);
        arguments[launch.argument_count++] = "--log";
        arguments[launch.argument_count++] = launch.log;
    }
    launch.arguments = arguments;
    if (launch.start_s < 5)
        launch.start_s = launch.start_s > 0 ? 5 : 20;
    if (access(launch.trainer, X_OK) != 0) {
        diag_error(diag, NO_SPAN, "%s: %s", launch.trainer, strerror(errno));
        diag_help(diag, "lplan build PLAN -o %s makes it", dir);
        return fail(arena, diag, CLI_INPUT);
    }
    if (launch.hosts && access(launch.hosts, R_OK) != 0) {
        diag_error(diag, NO_SPAN, "--hosts %s: %s", launch.hosts, strerror(errno));
        diag_help(diag, "a line a host, as mpirun reads it: node1 slots=8");
        return fail(arena, diag, CLI_INPUT);
    }
    const char *text = trainer_describe(arena, launch.trainer);
    launch.ranks = text ? described(text, "\"ranks\":") : -1;
    launch.ranks_per_stage = text ? described(text, "\"ranks_per_stage\":") : -1;
    if (launch.ranks < 1 || launch.ranks_per_stage < 1) {
        diag_error(diag, NO_SPAN, "%s does not say its ranks", launch.trainer);
        diag_help(diag, "it is no trainer of this version: build it again");
        return fail(arena, diag, CLI_INPUT);
    }
    launch.sharing = launch.ranks;
    if (alone)
        launch.ranks = 1;
    int code = launch_run(arena, &launch, stderr);
    arena_free(arena);
    return code;
}
