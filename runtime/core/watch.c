/* watch.c - signs of life, and the end of a job that has stopped moving.
 *
 * Under --log every rank keeps DIR/rank-N.status, one JSON object in STATUS_BYTES bytes, mapped:
 * the rank writes its step and place as they change, so they are exact even after a kill -9; the
 * watchdog thread writes the rest each BEAT_NS. A launcher reads there what a dead rank did last,
 * and a rank that gives up follows the chain of who waits for whom to the rank that does not wait.
 * DIR/failure is created by the one rank that speaks. */
#include "runtime/core/watch.h"

#include "runtime/core/step.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define BEAT_NS 250000000
#define STATUS_BYTES 512
#define STEP_CHARS 20
#define AT_CHARS 120
#define PATH_BYTES 4096
/* How much later than the rank's own thread the watchdog thread acts: only when that one is stuck,
 * in a call while it waits or in ending the job. */
#define GRACE_S 2.0
#define ENDING_S 8.0
/* So many missed beats are no delay of the scheduler. */
#define SILENT_S 3.0

struct LpWatch {
    LpSelf *self;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stopped;
    bool stop;   /* guarded by lock */
    char *file;  /* mapped rank-N.status, or NULL */
    char *pulse; /* the part of it that the watchdog thread writes */
};

/* What a status file says; text fields point into `line`. */
typedef struct Status {
    char line[STATUS_BYTES];
    int waits_for;
    long long pid, step;
    double beat_s, moved_s;
} Status;

static double unix_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void path_of(const LpSelf *self, const char *format, int rank, char ret_path[PATH_BYTES])
{
    char name[64];
    snprintf(name, sizeof name, format, rank);
    snprintf(ret_path, PATH_BYTES, "%s/%s", self->rank.options->log, name);
}

/* `text` as the inside of a JSON string, padded to `chars`. What would need escaping, or three
 * characters, does not occur in literals of ours. */
static void put_text(char *dst, int chars, const char *text)
{
    int n = 0;
    for (; text && text[n] && n < chars; n++)
        dst[n] = (unsigned char)text[n] < ' ' || text[n] == '"' || text[n] == '\\' ? '_' : text[n];
    memset(dst + n, ' ', (size_t)(chars - n));
}

void lp_watch_at(LpSelf *self, const char *text)
{
    LpTrack *track = &self->track;
    atomic_store_explicit(&track->at, text, memory_order_relaxed);
    atomic_store_explicit(&track->moved_ns, lp_now_ns(), memory_order_relaxed);
    if (track->file_at)
        put_text(track->file_at, AT_CHARS, text);
}

void lp_watch_step(LpSelf *self, int64_t step)
{
    LpTrack *track = &self->track;
    atomic_store_explicit(&track->step, step, memory_order_relaxed);
    if (track->file_step) {
        char digits[STEP_CHARS + 1];
        snprintf(digits, sizeof digits, "%lld", (long long)step);
        put_text(track->file_step, STEP_CHARS, digits);
    }
}

/* The pulse: everything that the rank's own thread does not write. */
static void pulse_write(LpWatch *watch, bool ended)
{
    const LpTrack *track = &watch->self->track;
    const char *waits_in = atomic_load_explicit(&track->waits_in, memory_order_relaxed);
    int64_t moved_ns = atomic_load_explicit(&track->moved_ns, memory_order_relaxed);
    double now_s = unix_now_s();
    char line[STATUS_BYTES];
    int n = snprintf(
        line, sizeof line,
        "\"state\":\"%s\",\"waits_in\":\"%s\",\"waits_for\":%d,\"beat_s\":%.3f,\"moved_s\":%.3f}",
        ended      ? "ended"
        : waits_in ? "waiting"
                   : "working",
        waits_in ? waits_in : "",
        waits_in ? atomic_load_explicit(&track->waits_for, memory_order_relaxed) : -1, now_s,
        now_s - (double)(lp_now_ns() - moved_ns) * 1e-9);
    int room = (int)(watch->file + STATUS_BYTES - 1 - watch->pulse);
    if (n < 0 || n > room)
        return;
    memset(line + n, ' ', (size_t)(room - n));
    memcpy(watch->pulse, line, (size_t)room);
}

/* Lays out the file: {"rank"..."step":<STEP_CHARS>,"at":"<AT_CHARS>",<pulse>}. */
static void status_open(LpWatch *watch)
{
    LpSelf *self = watch->self;
    char path[PATH_BYTES], host[64] = "";
    path_of(self, "rank-%d.status", self->rank.index, path);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (file < 0)
        lp_fail(1, "%s: %s", path, strerror(errno));
    /* A mapped page without a block on disk would be a SIGBUS. */
    int error = posix_fallocate(file, 0, STATUS_BYTES);
    if (error != 0)
        lp_fail(1, "%s: %s", path, strerror(error));
    void *map = mmap(NULL, STATUS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED)
        lp_fail(1, "%s: %s", path, strerror(errno));
    close(file);
    if (gethostname(host, sizeof host - 1) != 0 || strpbrk(host, "\"\\"))
        host[0] = '\0';
    char *at = watch->file = map;
    memset(at, ' ', STATUS_BYTES);
    at[STATUS_BYTES - 1] = '\n';
    char line[STATUS_BYTES];
    int n = snprintf(line, sizeof line,
                     "{\"rank\":%d,\"stage\":%d,\"pid\":%lld,\"host\":\"%s\",\"step\":",
                     self->rank.index, self->rank.stage, (long long)getpid(), host);
    memcpy(at, line, (size_t)n);
    self->track.file_step = at + n;
    at += n + STEP_CHARS;
    memcpy(at, ",\"at\":\"", 7);
    self->track.file_at = at + 7;
    at += 7 + AT_CHARS;
    memcpy(at, "\",", 2);
    watch->pulse = at + 2;
    lp_watch_step(self, -1);
    lp_watch_at(self, "start");
    pulse_write(watch, false);
}

static const char *status_field(const Status *status, const char *key)
{
    const char *found = strstr(status->line, key);
    return found ? found + strlen(key) : "";
}

static bool status_read(const LpSelf *self, int rank, Status *ret_status)
{
    char path[PATH_BYTES];
    path_of(self, "rank-%d.status", rank, path);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    size_t length = fread(ret_status->line, 1, STATUS_BYTES - 1, file);
    fclose(file);
    ret_status->line[length] = '\0';
    ret_status->waits_for = atoi(status_field(ret_status, "\"waits_for\":"));
    ret_status->pid = atoll(status_field(ret_status, "\"pid\":"));
    ret_status->step = atoll(status_field(ret_status, "\"step\":"));
    ret_status->beat_s = atof(status_field(ret_status, "\"beat_s\":"));
    ret_status->moved_s = atof(status_field(ret_status, "\"moved_s\":"));
    return length > 0;
}

void lp_watch_end(LpSelf *self, int code, const char *text)
{
    atomic_store(&self->track.end_code, code);
    atomic_store(&self->track.ending_ns, lp_now_ns());
    if (self->rank.options->log) {
        char path[PATH_BYTES];
        path_of(self, "failure", 0, path);
        int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
        if (file < 0 && errno == EEXIST) {
            /* Another rank speaks for the job; it ends us too, or we do after it had time to. */
            lp_pause_ns(3000000000);
            self->transport->stop(code);
        }
        if (file >= 0) {
            dprintf(file, "%s\n", text);
            close(file);
        }
    } else if (lp_pause_ns((int64_t)300000000 * (self->rank.index < 10 ? self->rank.index : 10))) {
        /* Without a directory nothing elects the speaker: the lowest rank is first, and ends us. */
        self->transport->stop(code);
    }
    fprintf(stderr, "lplan: %s\n", text);
    fflush(stderr);
    self->transport->stop(code);
    abort();
}

/* Follows the status files from the rank that has not answered to one that is dead or does not
 * wait. */
static int blamed_rank(LpSelf *self, int peer, Status *ret_status)
{
    int rank = peer;
    for (int hop = 0; hop < self->rank.job->ranks; hop++) {
        if (!status_read(self, rank, ret_status))
            return -1;
        int next = ret_status->waits_for;
        bool dead = unix_now_s() - ret_status->beat_s > SILENT_S;
        if (dead || next < 0 || next >= self->rank.job->ranks || next == self->rank.index)
            return rank;
        rank = next;
    }
    return -1; /* they wait for each other */
}

static void stuck_text(LpSelf *self, const char *doing, int peer, double waited_s, char *text,
                       size_t size)
{
    LpTrack *track = &self->track;
    const char *at = atomic_load_explicit(&track->at, memory_order_relaxed);
    int each = self->rank.job->ranks_per_stage;
    int n = snprintf(text, size, "rank %d (stage %d), step %lld, `%s`: %s has not moved for %.0f s",
                     self->rank.index, self->rank.stage,
                     (long long)atomic_load_explicit(&track->step, memory_order_relaxed),
                     at ? at : "start", doing, waited_s);
    if (peer >= 0 && n > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, ", waiting for rank %d (stage %d)", peer,
                      peer / each);
    Status status;
    int blamed = peer >= 0 && self->rank.options->log ? blamed_rank(self, peer, &status) : -1;
    if (blamed >= 0 && n > 0 && (size_t)n < size) {
        double now_s = unix_now_s(), silent_s = now_s - status.beat_s;
        const char *where = status_field(&status, "\"at\":\"");
        int length = (int)strcspn(where, "\"");
        while (length > 0 && where[length - 1] == ' ')
            length--;
        n += snprintf(text + n, size - (size_t)n,
                      "; rank %d (pid %lld) is at step %lld, `%.*s`, %s for %.0f s", blamed,
                      status.pid, status.step, length, where,
                      silent_s > SILENT_S ? "silent" : "busy",
                      silent_s > SILENT_S ? silent_s : now_s - status.moved_s);
    }
    if (n > 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, " (--timeout sets the limit)");
}

void lp_watch_give_up(LpSelf *self, const char *doing, int peer, double waited_s)
{
    char text[1024];
    stuck_text(self, doing, peer, waited_s, text, sizeof text);
    lp_watch_end(self, 124, text);
}

/* True when the rank has ended; false after a beat. */
static bool beat_wait(LpWatch *watch)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += BEAT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&watch->lock);
    if (!watch->stop)
        pthread_cond_timedwait(&watch->stopped, &watch->lock, &until);
    bool stop = watch->stop;
    pthread_mutex_unlock(&watch->lock);
    return stop;
}

static double age_s(const _Atomic int64_t *since_ns)
{
    return (double)(lp_now_ns() - atomic_load_explicit(since_ns, memory_order_relaxed)) * 1e-9;
}

/* Acts for a rank whose own thread sits in a call; the launcher then ends the others. */
static void stuck_end(LpSelf *self)
{
    const LpTrack *track = &self->track;
    if (atomic_load(&track->ending_ns) != 0) {
        if (age_s(&track->ending_ns) > ENDING_S)
            _exit(atomic_load(&track->end_code));
        return;
    }
    const char *waits_in = atomic_load_explicit(&track->waits_in, memory_order_relaxed);
    double still_s = age_s(&track->moved_ns);
    if (!waits_in || still_s < self->rank.options->timeout_s + GRACE_S)
        return;
    char text[1024];
    stuck_text(self, waits_in, atomic_load_explicit(&track->waits_for, memory_order_relaxed),
               still_s, text, sizeof text);
    fprintf(stderr, "lplan: %s\n", text);
    fflush(stderr);
    _exit(124);
}

static void *watch_run(void *argument)
{
    LpWatch *watch = argument;
    do {
        if (watch->file)
            pulse_write(watch, false);
        stuck_end(watch->self);
    } while (!beat_wait(watch));
    return NULL;
}

void lp_watch_clear(LpSelf *self)
{
    char path[PATH_BYTES];
    if (!self->rank.options->log || self->rank.index != 0)
        return;
    path_of(self, "failure", 0, path);
    unlink(path);
}

void lp_watch_start(LpSelf *self)
{
    const char *dir = self->rank.options->log;
    if (!dir && self->rank.job->ranks == 1)
        return;
    LpWatch *watch = lp_new(1, sizeof *watch);
    watch->self = self;
    if (dir) {
        if (strlen(dir) > PATH_BYTES - 80)
            lp_fail_all(2, "--log: the name is too long");
        if (mkdir(dir, 0777) != 0 && errno != EEXIST)
            lp_fail_all(1, "--log %s: %s", dir, strerror(errno));
        status_open(watch);
    }
    self->watch = watch;
    if (pthread_mutex_init(&watch->lock, NULL) || pthread_cond_init(&watch->stopped, NULL) ||
        pthread_create(&watch->thread, NULL, watch_run, watch))
        lp_fail(1, "cannot start the watchdog thread");
}

void lp_watch_stop(LpSelf *self)
{
    LpWatch *watch = self->watch;
    if (!watch)
        return;
    pthread_mutex_lock(&watch->lock);
    watch->stop = true;
    pthread_cond_signal(&watch->stopped);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->stopped);
    pthread_mutex_destroy(&watch->lock);
    if (watch->file) {
        pulse_write(watch, true);
        self->track.file_step = self->track.file_at = NULL;
        munmap(watch->file, STATUS_BYTES);
    }
    free(watch);
    self->watch = NULL;
}
