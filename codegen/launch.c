/* launch.c - starts a trainer with its ranks and says in one line how it died.
 *
 * mpirun knows which rank died of what; the rank's status file (runtime/core/watch.c) knows what it
 * was doing. mpirun runs in a process group of its own, so that ^C reaches only us: it would kill
 * the ranks before they can save, while it passes SIGUSR1 on to them. */
#include "codegen/launch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ir/base/str.h"

/* Ranks more than cores, as root, unpinned, and no search for networks; the user's own settings
 * win. */
static const char *const settings[][2] = {
    {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
    {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
    {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
    {"OMPI_MCA_hwloc_base_binding_policy", "none"},
    {"OMPI_MCA_pml", "ob1"},
    {"OMPI_MCA_mpi_yield_when_idle", "1"},
};

/* What mpirun wrote between two lines of dashes. */
typedef struct Listener {
    Arena *arena;
    FILE *err;
    Str line, block;
    bool in_block;
    bool spoken; /* a rank has said why the job ended */
    int rank;    /* that died, as mpirun says; -1 */
    int signal_number, exit_code;
} Listener;

/* The start of a job: until every rank has its status file, no rank's watchdog sees one that died,
 * and mpirun may wait for ever for a rank that ended before it was registered. */
typedef struct Start {
    const Launch *launch;
    int seen;       /* ranks below it have shown themselves */
    int64_t end_ns; /* when the job is ended; 0: not watched, or all have shown themselves */
    int64_t kill_ns;
} Start;

/* ---- the child ---- */

static void environment_set(const Launch *launch)
{
    char threads[32];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        setenv(settings[i][0], settings[i][1], 0);
    setenv("OMPI_MCA_btl", launch->hosts ? "self,vader,tcp" : "self,vader", 0);
    snprintf(threads, sizeof threads, "%ld", cores > launch->sharing ? cores / launch->sharing : 1);
    setenv("OMP_NUM_THREADS", threads, 0);
    if (isatty(STDOUT_FILENO))
        setenv("LPLAN_TERMINAL", "1", 0);
}

static char **command_of(Arena *arena, const Launch *launch)
{
    char **command = ARENA_ARRAY(arena, char *, launch->argument_count + 8);
    int n = 0;
    if (launch->ranks > 1) {
        command[n++] = arena_strdup(arena, "mpirun");
        command[n++] = arena_strdup(arena, "-np");
        command[n++] = arena_printf(arena, "%d", launch->ranks);
        if (launch->hosts) {
            command[n++] = arena_strdup(arena, "--hostfile");
            command[n++] = arena_strdup(arena, launch->hosts);
        }
    }
    command[n++] = arena_strdup(arena, launch->trainer);
    for (int i = 0; i < launch->argument_count; i++)
        command[n++] = arena_strdup(arena, launch->arguments[i]);
    return command;
}

static _Noreturn void child_run(const Launch *launch, char **command, int err_end,
                                const sigset_t *mask)
{
    setpgid(0, 0);
    dup2(err_end, STDERR_FILENO);
    /* A background group that reads the terminal is stopped. */
    if (!freopen("/dev/null", "r", stdin))
        _exit(127);
    sigprocmask(SIG_SETMASK, mask, NULL);
    environment_set(launch);
    execvp(command[0], command);
    dprintf(STDERR_FILENO, "lplan: cannot start %s: %s%s\n", command[0], strerror(errno),
            launch->ranks > 1 ? ": install Open MPI, or train in one process with --virtual" : "");
    _exit(127);
}

/* ---- the start ---- */

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static char *status_path(Arena *arena, const Launch *launch, int rank)
{
    return arena_printf(arena, "%s/rank-%d.status", launch->log, rank);
}

/* Other hosts may keep the directory to themselves: only ranks of this one are watched. */
static Start start_begin(Arena *arena, const Launch *launch)
{
    Start start = {.launch = launch};
    if (launch->ranks == 1 || launch->hosts)
        return start;
    for (int rank = 0; rank < launch->ranks; rank++)
        unlink(status_path(arena, launch, rank));
    start.end_ns = now_ns() + (int64_t)(launch->start_s * 1e9);
    return start;
}

/* Ends a job whose ranks have not all begun in time: mpirun is asked to, then made to. */
static void start_check(Start *start, Listener *listener, pid_t child)
{
    const Launch *launch = start->launch;
    if (start->kill_ns != 0 && now_ns() > start->kill_ns)
        kill(-child, SIGKILL);
    if (start->end_ns == 0)
        return;
    while (start->seen < launch->ranks &&
           access(status_path(listener->arena, launch, start->seen), F_OK) == 0)
        start->seen++;
    if (start->seen == launch->ranks)
        start->end_ns = 0;
    else if (now_ns() > start->end_ns) {
        fprintf(listener->err,
                "lplan: %d of %d ranks have begun %.0f s after mpirun was started: the job is "
                "ended (--timeout sets the limit)\n",
                start->seen, launch->ranks, launch->start_s);
        listener->spoken = true;
        start->end_ns = 0;
        start->kill_ns = now_ns() + 2000000000;
        kill(child, SIGTERM);
    }
}

/* ---- listening ---- */

static bool is_rule(const char *line)
{
    size_t n = strspn(line, "-");
    return n > 60 && line[n] == '\0';
}

/* mpirun about its own help messages and the signal that we send it; a rank about the memory of
 * one that is dead; mpirun's event loop about the pipe of a rank that ended first. */
static bool is_noise(const char *line)
{
    static const char *const marks[] = {
        "more process has sent help message",
        "more processes have sent help message",
        "orte_base_help_aggregate",
        "orte/util/show_help.c",
        "mpirun: Forwarding signal",
        "Read -1, expected ",
        "[warn] Epoll ",
    };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (strstr(line, marks[i]))
            return true;
    return false;
}

static const char *after(const char *text, const char *words)
{
    const char *found = strstr(text, words);
    return found ? found + strlen(words) : NULL;
}

/* A block between rules: how a rank ended is taken out; what else mpirun has to say passes. */
static void block_end(Listener *listener)
{
    const char *text = listener->block.at, *rank = after(text, "mpirun noticed that process rank ");
    const char *by_signal = after(text, "exited on signal "),
               *name = after(text, "Process name: [[");
    const char *code = after(text, "Exit code:"), *comma = name ? strstr(name, "],") : NULL;
    if (rank && by_signal) {
        listener->rank = atoi(rank);
        listener->signal_number = atoi(by_signal);
    } else if (comma && code) {
        listener->rank = atoi(comma + 2);
        listener->exit_code = atoi(code);
    } else if (!strstr(text, "MPI_ABORT was invoked") && !strstr(text, "Primary job")) {
        fputs(text, listener->err);
    }
    listener->block = str_new(listener->arena);
}

static void line_end(Listener *listener)
{
    const char *line = listener->line.at;
    if (is_rule(line)) {
        if (listener->in_block)
            block_end(listener);
        listener->in_block = !listener->in_block;
    } else if (listener->in_block) {
        str_putf(&listener->block, "%s\n", line);
    } else if (!is_noise(line)) {
        listener->spoken = listener->spoken || strncmp(line, "lplan: ", 7) == 0;
        fprintf(listener->err, "%s\n", line);
    }
    listener->line = str_new(listener->arena);
}

static void listen_to(Listener *listener, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\n')
            line_end(listener);
        else
            str_putc(&listener->line, text[i]);
}

/* Passes the pipe on until it closes, and signals to the job until then. */
static void job_follow(Listener *listener, Start *start, int pipe_end, pid_t child,
                       const sigset_t *signals)
{
    bool mpi = start->launch->ranks > 1;
    char buffer[4096];
    int asked = 0;
    for (;;) {
        struct pollfd ready = {.fd = pipe_end, .events = POLLIN};
        const struct timespec now = {0, 0};
        int got = poll(&ready, 1, 100);
        int signal_number = sigtimedwait(signals, NULL, &now);
        if (signal_number > 0)
            kill(child, asked++ > 0 ? SIGTERM : mpi ? SIGUSR1 : SIGTERM);
        start_check(start, listener, child);
        if (got <= 0)
            continue;
        ssize_t n = read(pipe_end, buffer, sizeof buffer);
        if (n <= 0)
            break;
        listen_to(listener, buffer, (size_t)n);
        fflush(listener->err);
    }
    if (listener->line.n > 0)
        line_end(listener);
}

/* ---- the one line ---- */

/* A text field of a status file, without the blanks that pad it. */
static const char *field(Arena *arena, const char *status, const char *key)
{
    const char *begin = after(status, key);
    size_t n = begin ? strcspn(begin, "\",}") : 0;
    while (n > 0 && begin[n - 1] == ' ')
        n--;
    return n > 0 ? arena_strndup(arena, begin, n) : "?";
}

/* With what a trainer ends whose options are wrong (runtime/core/options.c). */
enum { OPTIONS_WRONG = 2 };

static void say_death(Listener *listener, const Launch *launch, int status)
{
    Arena *arena = listener->arena;
    Str text = str_new(arena);
    if (listener->rank < 0) {
        /* mpirun ends as the rank did, and may have lost it before it knew which one it was */
        if (status > 128 && status <= 128 + 64)
            fprintf(listener->err,
                    "lplan: a rank died of signal %d (%s) before it was known which\n",
                    status - 128, strsignal(status - 128));
        else if (status == OPTIONS_WRONG) /* mpirun may lose what a rank says that ends at once */
            fprintf(listener->err, "lplan: the trainer did not take its options; see `%s --help`\n",
                    launch->trainer);
        else
            fprintf(listener->err, "lplan: the job ended with status %d\n", status);
        return;
    }
    const char *file = file_read(arena, status_path(arena, launch, listener->rank), NULL);
    str_putf(&text, "rank %d (stage %d", listener->rank, listener->rank / launch->ranks_per_stage);
    if (file)
        str_putf(&text, ", host %s, pid %s", field(arena, file, "\"host\":\""),
                 field(arena, file, "\"pid\":"));
    if (listener->signal_number > 0)
        str_putf(&text, ") died of signal %d (%s)", listener->signal_number,
                 strsignal(listener->signal_number));
    else
        str_putf(&text, ") ended with status %d", listener->exit_code);
    if (file)
        str_putf(&text, " at step %s, `%s`", field(arena, file, "\"step\":"),
                 field(arena, file, "\"at\":\""));
    fprintf(listener->err, "lplan: %s\n", text.at);
}

int launch_run(Arena *arena, const Launch *launch, FILE *err)
{
    int ends[2];
    sigset_t signals, before;
    char **command = command_of(arena, launch);
    Listener listener = {
        .arena = arena, .err = err, .line = str_new(arena), .block = str_new(arena), .rank = -1};
    Start start = start_begin(arena, launch);
    if (pipe(ends) != 0) {
        fprintf(err, "lplan: no pipe: %s\n", strerror(errno));
        return 1;
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, &before);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        child_run(launch, command, ends[1], &before);
    }
    close(ends[1]);
    int status = 0;
    if (child > 0) {
        job_follow(&listener, &start, ends[0], child, &signals);
        waitpid(child, &status, 0);
    }
    close(ends[0]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    int code = child < 0 ? 1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (launch->ranks == 1) {
        listener.rank = 0;
        listener.exit_code = code;
        listener.signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    }
    if (start.kill_ns != 0)
        code = 124;
    if (code != 0 && !listener.spoken)
        say_death(&listener, launch, code);
    return code;
}
