/* lanes.c - memories behind the arena of a rank: the machine's own memory, and a file. Each
 * direction between two of them is a lane with a thread of its own, which does its errands in
 * order; the rank's thread only asks whether they are done.
 *
 * The file is read and written past the page cache where its file system allows, so that state
 * larger than memory does not push everything else out of it. It has no name once it is open: the
 * system removes it however the trainer ends. Checkpoints read and fill it through a mapping, which
 * the system keeps coherent with direct reads and writes as long as they do not overlap in time.
 */
#define _GNU_SOURCE /* O_DIRECT */
#include "runtime/core/lanes.h"

#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/core/work.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef O_DIRECT
#define O_DIRECT 0
#endif

#define MOST_BYTES ((int64_t)64 << 20) /* of one read or write: progress shows between them */

struct LpErrand {
    LpErrand *next;
    LpCarry piece[LP_MAX_CARRIES];
    int count;
    _Atomic int64_t moved; /* bytes so far */
    _Atomic int error;     /* errno, -1: the file ended */
    atomic_bool done;
    int64_t seen; /* of moved, by the rank's thread */
    LpHop lane;
};

typedef struct Lane {
    LpLanes *lanes;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    LpErrand *first, **end;
    bool started, stop;
} Lane;

struct LpLanes {
    Lane lane[LP_HOPS];
    LpErrand *idle;
    int buffered, direct; /* the file, twice; direct -1: its file system does not allow it */
    unsigned char *file;
    char path[4096]; /* for messages */
};

int64_t lp_dram_bytes(const LpJob *job, int stage)
{
    return job->dram_bytes ? job->dram_bytes[stage] : 0;
}

int64_t lp_file_bytes(const LpJob *job, int stage)
{
    return job->file_bytes ? job->file_bytes[stage] : 0;
}

/* ---- on a lane's thread ---- */

/* One read or write of at most MOST_BYTES; bytes done, or -1 with errno. */
static int64_t transfer(int fd, bool writes, unsigned char *memory, int64_t bytes, int64_t offset)
{
    size_t n = (size_t)(bytes < MOST_BYTES ? bytes : MOST_BYTES);
    for (;;) {
        ssize_t done =
            writes ? pwrite(fd, memory, n, (off_t)offset) : pread(fd, memory, n, (off_t)offset);
        if (done >= 0 || errno != EINTR)
            return (int64_t)done;
    }
}

/* 0, or an errno. */
static int run_file(LpLanes *lanes, LpErrand *errand, const LpCarry *piece)
{
    bool writes = errand->lane == LP_FILE_WRITE;
    unsigned char *memory = writes ? (unsigned char *)(uintptr_t)piece->from : piece->to;
    int64_t offset = (const unsigned char *)(writes ? piece->to : piece->from) - lanes->file;
    int fd = lanes->direct >= 0 ? lanes->direct : lanes->buffered;
    for (int64_t at = 0; at < piece->bytes;) {
        int64_t done = transfer(fd, writes, memory + at, piece->bytes - at, offset + at);
        if (done < 0 && errno == EINVAL && fd == lanes->direct) {
            fd = lanes->buffered; /* it asks for a coarser grain than ours */
            continue;
        }
        if (done <= 0)
            return done < 0 ? errno : -1;
        at += done;
        atomic_fetch_add_explicit(&errand->moved, done, memory_order_relaxed);
    }
    return 0;
}

static void run_errand(LpLanes *lanes, LpErrand *errand)
{
    int error = 0;
    for (int i = 0; i < errand->count && error == 0; i++) {
        const LpCarry *piece = &errand->piece[i];
        if (errand->lane == LP_FILE_READ || errand->lane == LP_FILE_WRITE)
            error = run_file(lanes, errand, piece);
        else
            memcpy(piece->to, piece->from, (size_t)piece->bytes);
        atomic_fetch_add_explicit(&errand->moved, 1, memory_order_relaxed);
    }
    atomic_store_explicit(&errand->error, error, memory_order_relaxed);
    atomic_store_explicit(&errand->done, true, memory_order_release);
}

static void *lane_main(void *argument)
{
    Lane *lane = argument;
    pthread_mutex_lock(&lane->lock);
    for (;;) {
        while (!lane->first && !lane->stop)
            pthread_cond_wait(&lane->wanted, &lane->lock);
        LpErrand *errand = lane->first;
        if (!errand)
            break;
        lane->first = errand->next;
        if (!lane->first)
            lane->end = &lane->first;
        pthread_mutex_unlock(&lane->lock);
        run_errand(lane->lanes, errand);
        pthread_mutex_lock(&lane->lock);
    }
    pthread_mutex_unlock(&lane->lock);
    return NULL;
}

/* ---- on the rank's ---- */

static const char *const lane_text[LP_HOPS] = {"copy to the device", "copy from the device",
                                               "read of a file", "write of a file"};

bool lp_errand_done(LpSelf *self, LpErrand *errand)
{
    bool done = atomic_load_explicit(&errand->done, memory_order_acquire);
    int64_t moved = atomic_load_explicit(&errand->moved, memory_order_relaxed);
    if (moved != errand->seen)
        self->moved = true;
    errand->seen = moved;
    int error = done ? atomic_load_explicit(&errand->error, memory_order_relaxed) : 0;
    if (error != 0)
        lp_fail(1, "%s, %s: %s", lane_text[errand->lane], self->lanes->path,
                error > 0 ? strerror(error) : "the file ends early");
    return done;
}

void lp_errand_free(LpSelf *self, LpErrand *errand)
{
    errand->next = self->lanes->idle;
    self->lanes->idle = errand;
}

static bool lane_over(LpSelf *self, LpWork *work)
{
    (void)self;
    (void)work;
    return false;
}

static void lane_start(LpSelf *self, Lane *lane)
{
    lane->lanes = self->lanes;
    lane->end = &lane->first;
    if (pthread_mutex_init(&lane->lock, NULL) != 0 || pthread_cond_init(&lane->wanted, NULL) != 0 ||
        pthread_create(&lane->thread, NULL, lane_main, lane) != 0)
        lp_fail(1, "no thread for a %s: %s", lane_text[lane - self->lanes->lane], strerror(errno));
    lane->started = true;
}

void lp_copy(LpEvent *event, LpHop which, const LpCarry *pieces, int count)
{
    LpSelf *self = lp_self;
    Lane *lane = &self->lanes->lane[which];
    if (!lane->started)
        lane_start(self, lane);
    LpWork *work = lp_work_new(self, event, lane_text[which]);
    LpErrand *errand = self->lanes->idle;
    if (errand)
        self->lanes->idle = errand->next;
    else
        errand = lp_new(1, sizeof *errand);
    errand->next = NULL;
    errand->count = count;
    errand->lane = which;
    errand->seen = 0;
    atomic_store(&errand->moved, 0);
    atomic_store(&errand->error, 0);
    atomic_store(&errand->done, false);
    work->count = 0;
    for (int i = 0; i < count; i++) {
        errand->piece[i] = pieces[i];
        work->count += pieces[i].bytes;
    }
    work->errand = errand;
    work->advance = lane_over;
    pthread_mutex_lock(&lane->lock);
    *lane->end = errand;
    lane->end = &errand->next;
    pthread_cond_signal(&lane->wanted);
    pthread_mutex_unlock(&lane->lock);
    lp_work_start(self, work);
}

/* ---- the memories ---- */

static void file_open(LpSelf *self, int64_t bytes)
{
    LpLanes *lanes = self->lanes;
    const char *dir = self->rank.options->offload_dir;
    if (!dir)
        lp_fail_all(2, "this plan keeps memory in files: give --offload-dir a "
                       "folder with room for them");
    snprintf(lanes->path, sizeof lanes->path, "%s/lplan-%ld-rank-%d.state", dir, (long)getpid(),
             self->rank.index);
    lanes->buffered = open(lanes->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (lanes->buffered < 0)
        lp_fail(1, "--offload-dir, %s: %s", lanes->path, strerror(errno));
    lanes->direct = O_DIRECT ? open(lanes->path, O_RDWR | O_DIRECT | O_CLOEXEC) : -1;
    unlink(lanes->path);
    int error = posix_fallocate(lanes->buffered, 0, (off_t)bytes);
    if (error != 0)
        lp_fail(1, "--offload-dir, %s: %lld bytes for the state of rank %d: %s", dir,
                (long long)bytes, self->rank.index, strerror(error));
    lanes->file = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, lanes->buffered, 0);
    if (lanes->file == MAP_FAILED)
        lp_fail(1, "--offload-dir, %s: %s", lanes->path, strerror(errno));
    self->rank.file = lanes->file;
    lp_log_lanes(self, bytes, lanes->direct >= 0);
}

void lp_lanes_open(LpSelf *self)
{
    const LpJob *job = self->rank.job;
    int64_t dram = lp_dram_bytes(job, self->rank.stage),
            file = lp_file_bytes(job, self->rank.stage);
    if (dram == 0 && file == 0)
        return;
    self->lanes = lp_new(1, sizeof *self->lanes);
    self->lanes->buffered = self->lanes->direct = -1;
    snprintf(self->lanes->path, sizeof self->lanes->path, "memory");
    if (dram > 0) {
        self->rank.dram = lp_arena_map(dram);
        if (!self->rank.dram)
            lp_fail(3, "the system refuses %lld bytes for what lives in the host's memory",
                    (long long)dram);
    }
    if (file > 0)
        file_open(self, file);
}

int64_t lp_lanes_resident(LpSelf *self)
{
    LpLanes *lanes = self->lanes;
    if (!lanes)
        return 0;
    if (lanes->file) /* what the mapping was read or filled through goes back to its file */
        (void)madvise(lanes->file, (size_t)lp_file_bytes(self->rank.job, self->rank.stage),
                      MADV_DONTNEED);
    int64_t dram = lp_dram_bytes(self->rank.job, self->rank.stage);
    int64_t bytes = dram > 0 ? lp_memory_resident(self->rank.dram, dram) : 0;
    return bytes > 0 ? bytes : 0;
}

void lp_lanes_measure(LpSelf *self)
{
    const LpJob *job = self->rank.job;
    if (!job->dram_bytes && !job->file_bytes)
        return;
    int64_t dram = lp_dram_bytes(job, self->rank.stage),
            file = lp_file_bytes(job, self->rank.stage);
    struct stat at = {0};
    if (file > 0 && fstat(self->lanes->buffered, &at) != 0)
        at.st_blocks = 0;
    LpFar *far = lp_new((size_t)job->ranks, sizeof *far);
    far[self->rank.index] =
        (LpFar){.asked = {(double)dram, (double)file},
                .found = {(double)lp_lanes_resident(self), 512.0 * (double)at.st_blocks}};
    LpEvent gathered = {0};
    lp_all_gather(&gathered, LP_WORLD, (double *)&far[self->rank.index], (double *)far,
                  sizeof *far / sizeof(double), LP_F64);
    lp_wait(&gathered);
    LpFar most = far[0];
    for (int i = 1; i < job->ranks; i++)
        for (int k = 0; k < 2; k++)
            if (far[i].asked[k] > most.asked[k]) {
                most.asked[k] = far[i].asked[k];
                most.found[k] = far[i].found[k];
            }
    lp_log_far(self, &most);
    free(far);
}

void lp_lanes_close(LpSelf *self)
{
    LpLanes *lanes = self->lanes;
    if (!lanes)
        return;
    for (int i = 0; i < LP_HOPS; i++) {
        Lane *lane = &lanes->lane[i];
        if (!lane->started)
            continue;
        pthread_mutex_lock(&lane->lock);
        lane->stop = true;
        pthread_cond_signal(&lane->wanted);
        pthread_mutex_unlock(&lane->lock);
        pthread_join(lane->thread, NULL);
        pthread_cond_destroy(&lane->wanted);
        pthread_mutex_destroy(&lane->lock);
    }
    for (LpErrand *errand = lanes->idle, *next; errand; errand = next) {
        next = errand->next;
        free(errand);
    }
    if (self->rank.dram)
        lp_arena_unmap(self->rank.dram, lp_dram_bytes(self->rank.job, self->rank.stage));
    if (lanes->file)
        munmap(lanes->file, (size_t)lp_file_bytes(self->rank.job, self->rank.stage));
    if (lanes->buffered >= 0)
        close(lanes->buffered);
    if (lanes->direct >= 0)
        close(lanes->direct);
    free(lanes);
    self->lanes = NULL;
}
