/* work.c - operations in flight, waiting and giving up.
 *
 * The runtime never blocks in MPI: a waiter spins for SPIN_NS, then tests and sleeps, which leaves
 * the cores to the ranks that compute and lets every other operation progress meanwhile. The waiter
 * carries its own clock; when nothing has moved for --timeout it names whom it waits for and ends
 * the job. */
#include "runtime/core/work.h"

#include "runtime/core/lanes.h"
#include "runtime/core/shake.h"
#include "runtime/core/trace.h"
#include "runtime/core/watch.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPIN_NS 20000
#define SLEEP_NS 50000
#define SMALL_SCRATCH 65536

struct LpScratch {
    LpScratch *next;
    int64_t bytes;
    _Alignas(64) unsigned char data[];
};

LpWork *lp_work_new(LpSelf *self, LpEvent *event, const char *what)
{
    if (event->work)
        lp_fail(70, "an event was reused while its %s is in flight", event->work->what);
    LpWork *work = self->idle;
    if (work)
        self->idle = work->next;
    else
        work = lp_new(1, sizeof *work);
    *work = (LpWork){
        .event = event,
        .what = what,
        .requests = work->requests,
        .peers = work->peers,
        .request_capacity = work->request_capacity,
    };
    if (self->trace)
        work->begin_ns = lp_now_ns();
    event->work = work;
    return work;
}

static void work_finish(LpSelf *self, LpWork *work)
{
    if (self->trace)
        lp_trace_span(self, LP_LANE_COMM, work->what, work->begin_ns, lp_now_ns());
    if (work->errand)
        lp_errand_free(self, work->errand);
    if (work->scratch) {
        work->scratch->next = self->scratch;
        self->scratch = work->scratch;
    }
    work->event->work = NULL;
    work->next = self->idle;
    self->idle = work;
}

static LpRequest *request_add(LpWork *work, int peer)
{
    if (work->request_count == work->request_capacity) {
        int capacity = work->request_capacity ? 2 * work->request_capacity : 8;
        LpRequest *requests = realloc(work->requests, (size_t)capacity * sizeof *requests);
        int *peers = realloc(work->peers, (size_t)capacity * sizeof *peers);
        if (!requests || !peers)
            lp_fail(1, "out of memory for %d requests", capacity);
        work->requests = requests;
        work->peers = peers;
        work->request_capacity = capacity;
    }
    work->peers[work->request_count] = peer;
    return &work->requests[work->request_count++];
}

void lp_work_send(LpSelf *self, LpWork *work, int peer, int tag, const void *buf, int64_t bytes)
{
    if (bytes > 0)
        self->transport->send(self, peer, tag, buf, bytes, request_add(work, peer));
}

void lp_work_recv(LpSelf *self, LpWork *work, int peer, int tag, void *buf, int64_t bytes)
{
    if (bytes > 0)
        self->transport->recv(self, peer, tag, buf, bytes, request_add(work, peer));
}

static LpScratch *scratch_take(LpSelf *self, int64_t bytes)
{
    bool small = bytes <= SMALL_SCRATCH;
    for (LpScratch **link = &self->scratch; *link; link = &(*link)->next) {
        LpScratch *scratch = *link;
        if (scratch->bytes >= bytes && small == (scratch->bytes == SMALL_SCRATCH)) {
            *link = scratch->next;
            return scratch;
        }
    }
    /* Small ones are a class of their own, so that a scalar never holds a large buffer. */
    int64_t size = small ? SMALL_SCRATCH : bytes;
    LpScratch *scratch = aligned_alloc(64, (sizeof *scratch + (size_t)size + 63) / 64 * 64);
    if (!scratch)
        lp_fail(1, "out of memory for %lld bytes of communication scratch", (long long)size);
    scratch->bytes = size;
    self->scratch_bytes += size;
    return scratch;
}

unsigned char *lp_work_scratch(LpSelf *self, LpWork *work, int64_t bytes)
{
    /* Only the last piece differs from the first in size, and it is smaller. */
    if (!work->scratch)
        work->scratch = scratch_take(self, bytes);
    work->copies = work->scratch->data;
    return work->copies;
}

/* True when the work is finished. Requests are tested in posting order: one test per call suffices
 * to drive the transport, and a round ends only when its last message has. */
static bool work_drive(LpSelf *self, LpWork *work)
{
    for (;;) {
        if (work->errand && !lp_errand_done(self, work->errand))
            return false;
        while (work->request_done < work->request_count) {
            if (!self->transport->test(self, &work->requests[work->request_done]))
                return false;
            work->request_done++;
            self->moved = true;
        }
        if (lp_shake_holds(self, work))
            return false;
        work->request_count = work->request_done = 0;
        if (!work->advance(self, work))
            return true;
    }
}

void lp_work_start(LpSelf *self, LpWork *work)
{
    if (work_drive(self, work)) {
        work_finish(self, work);
        return;
    }
    work->next = NULL;
    *self->active_end = work;
    self->active_end = &work->next;
}

static void self_drive(LpSelf *self)
{
    LpWork **link = &self->active;
    while (*link) {
        LpWork *work = *link;
        if (!work_drive(self, work)) {
            link = &work->next;
            continue;
        }
        *link = work->next;
        if (self->active_end == &work->next)
            self->active_end = link;
        work_finish(self, work);
    }
}

void lp_poll(void)
{
    LpSelf *self = lp_self;
    if (self->active)
        self_drive(self);
}

void lp_at(const char *text)
{
    lp_watch_at(lp_self, text);
    lp_trace_at(lp_self, text);
    lp_poll();
}

/* The first member that has not answered: tests in order, so the others may have. */
static int work_waits_for(const LpWork *work)
{
    return work->request_done < work->request_count ? work->peers[work->request_done] : -1;
}

static void work_give_up(LpSelf *self, const LpWork *work, double waited_s)
{
    char doing[192];
    if (work->comm)
        snprintf(doing, sizeof doing, "%s of %lld %s among %d ranks", work->what,
                 (long long)work->count, lp_dtype_name(work->dtype), work->comm->count);
    else
        snprintf(doing, sizeof doing, "%s of %lld bytes", work->what, (long long)work->count);
    lp_watch_give_up(self, doing, work_waits_for(work), waited_s);
}

void lp_wait(LpEvent *event)
{
    LpSelf *self = lp_self;
    if (!event->work)
        return;
    self_drive(self);
    if (!event->work)
        return;
    LpTrack *track = &self->track;
    double timeout_s = self->rank.options->timeout_s;
    const char *what = event->work->what;
    int64_t begin_ns = lp_now_ns(), moved_ns = begin_ns;
    atomic_store_explicit(&track->moved_ns, begin_ns, memory_order_relaxed);
    atomic_store_explicit(&track->waits_in, event->work->what, memory_order_relaxed);
    self->moved = false;
    while (event->work) {
        int64_t now_ns = lp_now_ns();
        atomic_store_explicit(&track->waits_for, work_waits_for(event->work), memory_order_relaxed);
        if (self->moved) {
            self->moved = false;
            moved_ns = now_ns;
            atomic_store_explicit(&track->moved_ns, now_ns, memory_order_relaxed);
        }
        double silent_s = (double)(now_ns - moved_ns) * 1e-9;
        if (silent_s > timeout_s)
            work_give_up(self, event->work, silent_s);
        if (now_ns - moved_ns < SPIN_NS)
            sched_yield();
        else
            lp_sleep_ns(SLEEP_NS);
        self_drive(self);
    }
    atomic_store_explicit(&track->waits_in, NULL, memory_order_relaxed);
    lp_trace_span(self, LP_LANE_WAIT, what, begin_ns, lp_now_ns());
}

void lp_work_free(LpSelf *self)
{
    for (LpWork *work = self->idle, *next; work; work = next) {
        next = work->next;
        free(work->requests);
        free(work->peers);
        free(work);
    }
    for (LpScratch *scratch = self->scratch, *next; scratch; scratch = next) {
        next = scratch->next;
        free(scratch);
    }
}
