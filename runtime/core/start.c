/* start.c - the life of a rank, from main() to the exit status. */
#include "runtime/core/lanes.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/core/options.h"
#include "runtime/core/scale.h"
#include "runtime/core/step.h"
#include "runtime/core/trace.h"
#include "runtime/core/watch.h"
#include "runtime/core/work.h"
#include "runtime/io/data.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Thread_local LpSelf *lp_self;

/* Present when the trainer is linked with OpenMP. */
extern void omp_set_num_threads(int threads) __attribute__((weak));

int64_t lp_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void lp_sleep_ns(int64_t ns)
{
    struct timespec span = {.tv_sec = (time_t)(ns / 1000000000),
                            .tv_nsec = (long)(ns % 1000000000)};
    while (nanosleep(&span, &span) != 0 && errno == EINTR)
        ;
}

void *lp_new(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory)
        lp_fail(1, "out of memory for %zu bytes", count * size);
    return memory;
}

/* Names out of files reach the terminal without what moves its cursor or forges a line of ours; the
 * indented lines of a list stay. */
static void clean(char *text)
{
    for (; *text; text++)
        if (((unsigned char)*text < 0x20 && strncmp(text, "\n  ", 3) != 0) || *text == 0x7F)
            *text = '?';
}

void lp_fail(int code, const char *format, ...)
{
    LpSelf *self = lp_self;
    char message[900], text[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    clean(message);
    const char *at = atomic_load_explicit(&self->track.at, memory_order_relaxed);
    int64_t step = atomic_load_explicit(&self->track.step, memory_order_relaxed);
    if (step < 0)
        snprintf(text, sizeof text, "rank %d (stage %d): %s", self->rank.index, self->rank.stage,
                 message);
    else
        snprintf(text, sizeof text, "rank %d (stage %d), step %lld, `%s`: %s", self->rank.index,
                 self->rank.stage, (long long)step, at ? at : "start", message);
    lp_watch_end(self, code, text);
}

void lp_must_fit(const char *what, long rows, long room)
{
    if (rows > room)
        lp_fail(1,
                "%s: %ld rows for the experts of one rank, which has room for %ld; plan again with "
                "more (--pin room=...), or with room for all that can come (room=0)",
                what, rows, room);
}

void lp_fail_all(int code, const char *format, ...)
{
    LpSelf *self = lp_self;
    char message[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    clean(message);
    if (self->rank.index != 0 && lp_pause_ns(5000000000))
        self->transport->stop(code); /* rank 0 has spoken, and its launcher ends us */
    lp_watch_end(self, code, message);
}

int lp_agree(int error)
{
    LpEvent event = {0};
    double most = error;
    lp_all_reduce(&event, LP_WORLD, &most, 1, LP_F64, LP_MAX);
    lp_wait(&event);
    return (int)most;
}

/* Returns when all ranks have come here. */
static void world_meet(void)
{
    (void)lp_agree(0);
}

static void rank_begin(LpSelf *self, int64_t host_arena_bytes)
{
    const LpJob *job = self->rank.job;
    const LpOptions *options = self->rank.options;
    int *world = lp_new((size_t)job->ranks, sizeof *world);
    for (int i = 0; i < job->ranks; i++)
        world[i] = i;
    lp_comm(world, job->ranks);
    free(world);
    lp_watch_clear(self);
    world_meet();
    /* Virtual ranks share the cores; each on one thread unless told otherwise. */
    int threads = options->threads > 0                                   ? options->threads
                  : options->virtual_ranks && !getenv("OMP_NUM_THREADS") ? 1
                                                                         : 0;
    if (threads > 0 && omp_set_num_threads)
        omp_set_num_threads(threads);
    int64_t available = lp_memory_available();
    if (available >= 0 && host_arena_bytes > available)
        lp_fail_all(3,
                    "not enough memory: the arenas of this machine's ranks need %lld bytes, %lld "
                    "are available",
                    (long long)host_arena_bytes, (long long)available);
    self->rank.arena = lp_arena_map(job->arena_bytes[self->rank.stage]);
    if (!self->rank.arena)
        lp_fail(3, "the system refuses an arena of %lld bytes",
                (long long)job->arena_bytes[self->rank.stage]);
    lp_watch_start(self);
    self->data = lp_data_open(job, options);
    self->evaluation = lp_data_open_evaluation(job, options);
    lp_log_open(self);
    lp_lanes_open(self);
    world_meet();
    lp_trace_open(self);
}

static void rank_end(LpSelf *self)
{
    if (self->active)
        lp_fail(70, "the trainer ended with its %s in flight", self->active->what);
    lp_trace_close(self);
    lp_at("end");
    world_meet();
    lp_watch_stop(self);
    lp_lanes_close(self);
    lp_log_close(self);
    lp_data_close(self->data);
    lp_data_close(self->evaluation);
    lp_arena_unmap(self->rank.arena, self->rank.job->arena_bytes[self->rank.stage]);
    for (int i = 0; i < self->comm_count; i++)
        free(self->comms[i]);
    free(self->comms);
    free(self->tally);
    lp_work_free(self);
    lp_self = NULL;
}

void lp_rank_run(LpSelf *self, const LpJob *job, const LpOptions *options, int index,
                 int64_t host_arena_bytes)
{
    self->rank = (LpRank){.index = index,
                          .stage = index / job->ranks_per_stage,
                          .stage_rank = index % job->ranks_per_stage,
                          .job = job,
                          .options = options};
    self->active_end = &self->active;
    atomic_store(&self->track.step, -1);
    atomic_store(&self->track.at, "start");
    atomic_store(&self->track.waits_for, -1);
    atomic_store(&self->track.moved_ns, lp_now_ns());
    lp_self = self;
    lp_scaler_begin(self);
    rank_begin(self, host_arena_bytes);
    job->run(&self->rank);
    rank_end(self);
}

/* How many processes the launcher says it started, and which one this is; 1 and 0 without a
 * launcher. */
static int launched(const char *const names[], int otherwise)
{
    for (int i = 0; names[i]; i++) {
        const char *value = getenv(names[i]);
        if (value)
            return atoi(value);
    }
    return otherwise;
}

int lp_main(int argc, char **argv, const LpJob *job)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", NULL};
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", NULL};
    int world = launched(sizes, 1);
    bool speaks = launched(ranks, 0) == 0;
    LpOptions options;
    int status = lp_options_parse(job, argc, argv, speaks ? stderr : NULL, &options);
    if (status >= 0)
        return status;
    if (options.virtual_ranks && world > 1) {
        if (speaks)
            fprintf(stderr, "lplan: --virtual runs all ranks in one process, but %d were started\n",
                    world);
        return 2;
    }
    lp_signals_catch();
    /* One rank needs no MPI: threads with a single member is a plain process. */
    if (options.virtual_ranks || (job->ranks == 1 && world == 1))
        return lp_threads_main(job, &options);
    return lp_mpi_main(&argc, &argv, job, &options);
}
