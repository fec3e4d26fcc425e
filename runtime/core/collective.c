/* collective.c - communicators, collectives and p2p, written once over a transport's send and recv.
 *
 * Every collective is a direct exchange: each member posts one message to and one from each other
 * member. Reductions move block i of the buffer to member i, who sums the members' copies in member
 * order, and (all-reduce) sends the sum back to all. That is the least traffic possible, is
 * bit-exact in member order at no cost, and on shared memory is 2 to 5 times faster than Open MPI's
 * own nonblocking all-reduce (16 Mi floats: 12 and 25 ms for 2 and 4 ranks, against 69 and 114),
 * whose reduce-scatter is poorer yet.
 *
 * Reductions proceed in pieces, so that scratch is bounded; all other buffers are used in place.
 * Tags are taken at start, one per round, so operations in flight at once never mix. */
#include "runtime/core/reduce.h"
#include "runtime/core/work.h"

#include <stdlib.h>
#include <string.h>

/* TUNE: scratch of one reduction; 4 MiB pieces took 1.7 times as long on 64 MiB buffers, 2 and 4
 * ranks. */
#ifndef LP_PIECE_BYTES
#define LP_PIECE_BYTES ((int64_t)16 << 20)
#endif
/* TUNE: up to here every member sends everything to everybody: one round instead of two. */
#ifndef LP_SMALL_BYTES
#define LP_SMALL_BYTES 8192
#endif

/* Tags: channel << 16 | round. Channels 0 and 1 are the p2p classes. 12 + 16 bits fit every MPI. */
#define CHANNELS 4096

int lp_comm(const int *ranks, int count)
{
    LpSelf *self = lp_self;
    int world = self->rank.job->ranks;
    if (self->comm_count == self->comm_capacity) {
        int capacity = self->comm_capacity ? 2 * self->comm_capacity : 16;
        LpComm **comms = realloc(self->comms, (size_t)capacity * sizeof(LpComm *));
        if (!comms)
            lp_fail(1, "out of memory for %d communicators", capacity);
        self->comms = comms;
        self->comm_capacity = capacity;
    }
    if (count < 1 || count > world)
        lp_fail(70, "a communicator of %d ranks in a world of %d", count, world);
    LpComm *comm = lp_new(1, sizeof *comm + (size_t)count * sizeof(int));
    *comm = (LpComm){.count = count, .me = -1, .channel = self->comm_count + 2};
    if (comm->channel >= CHANNELS)
        lp_fail(70, "more than %d communicators", CHANNELS - 2);
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i])
                lp_fail(70, "rank %d is twice in one communicator", ranks[i]);
        if (ranks[i] < 0 || ranks[i] >= world)
            lp_fail(70, "rank %d in a communicator of a world of %d", ranks[i], world);
        if (ranks[i] == self->rank.index)
            comm->me = i;
        comm->ranks[i] = ranks[i];
    }
    self->comms[self->comm_count] = comm;
    return self->comm_count++;
}

static LpComm *comm_get(LpSelf *self, int handle, const char *what)
{
    if (handle < 0 || handle >= self->comm_count)
        lp_fail(70, "%s on communicator %d, which does not exist", what, handle);
    LpComm *comm = self->comms[handle];
    if (comm->me < 0)
        lp_fail(70, "%s on communicator %d, of which this rank is no member", what, handle);
    return comm;
}

static int64_t piece_limit(const LpWork *work, int64_t bytes)
{
    int64_t count = bytes / lp_dtype_bytes(work->dtype);
    return count > 0 ? count : 1;
}

/* Starts a collective of `rounds` message rounds per piece and pieces of at most `limit` elements.
 */
static void collective_start(LpSelf *self, LpWork *work, LpComm *comm, int64_t limit, int rounds)
{
    int64_t pieces = work->count > 0 ? (work->count + limit - 1) / limit : 0;
    work->comm = comm;
    work->piece = limit;
    work->tag = comm->sequence;
    comm->sequence += (unsigned)(pieces * rounds);
    lp_work_start(self, work);
}

static int round_tag(LpWork *work)
{
    return work->comm->channel << 16 | (int)(work->tag++ & 0xffffu);
}

/* Each member's place in the exchange: partners at growing distance, so that no member is
 * everybody's first. Receives are posted before sends. */
static int member_from(const LpComm *comm, int distance)
{
    return (comm->me + distance) % comm->count;
}

static int member_to(const LpComm *comm, int distance)
{
    return (comm->me + comm->count - distance) % comm->count;
}

/* Slot of a member's copy in scratch, where this rank's own copy has none. */
static int64_t slot(const LpComm *comm, int member)
{
    return member - (member > comm->me);
}

/* Element where member i's block of a piece of `count` elements begins. */
static int64_t block_begin(const LpComm *comm, int64_t count, int i)
{
    int64_t each = (count + comm->count - 1) / comm->count;
    return each * i < count ? each * i : count;
}

/* ---- all-reduce ---- */

enum { REDUCE_NEXT, REDUCE_SUM, REDUCE_SHARE, REDUCE_SMALL };

static void all_reduce_scatter(LpSelf *self, LpWork *work, int64_t count, bool small)
{
    const LpComm *comm = work->comm;
    int64_t width = lp_dtype_bytes(work->dtype);
    int64_t each = small ? count : (count + comm->count - 1) / comm->count;
    int64_t mine =
        small ? count : block_begin(comm, count, comm->me + 1) - block_begin(comm, count, comm->me);
    unsigned char *copies = lp_work_scratch(self, work, each * width * (comm->count - 1));
    unsigned char *buf = work->dst + work->offset * width;
    int tag = round_tag(work);
    for (int d = 1; d < comm->count; d++) {
        int from = member_from(comm, d);
        lp_work_recv(self, work, comm->ranks[from], tag, copies + slot(comm, from) * each * width,
                     mine * width);
    }
    for (int d = 1; d < comm->count; d++) {
        int to = member_to(comm, d);
        int64_t begin = small ? 0 : block_begin(comm, count, to);
        int64_t end = small ? count : block_begin(comm, count, to + 1);
        lp_work_send(self, work, comm->ranks[to], tag, buf + begin * width, (end - begin) * width);
    }
}

static void all_reduce_share(LpSelf *self, LpWork *work, int64_t count)
{
    const LpComm *comm = work->comm;
    int64_t width = lp_dtype_bytes(work->dtype);
    unsigned char *buf = work->dst + work->offset * width;
    int tag = round_tag(work);
    for (int d = 1; d < comm->count; d++) {
        int from = member_from(comm, d);
        int64_t begin = block_begin(comm, count, from), end = block_begin(comm, count, from + 1);
        lp_work_recv(self, work, comm->ranks[from], tag, buf + begin * width,
                     (end - begin) * width);
    }
    int64_t begin = block_begin(comm, count, comm->me),
            end = block_begin(comm, count, comm->me + 1);
    for (int d = 1; d < comm->count; d++)
        lp_work_send(self, work, comm->ranks[member_to(comm, d)], tag, buf + begin * width,
                     (end - begin) * width);
}

static bool all_reduce_advance(LpSelf *self, LpWork *work)
{
    const LpComm *comm = work->comm;
    int64_t width = lp_dtype_bytes(work->dtype);
    int64_t left = work->count - work->offset;
    int64_t count = left < work->piece ? left : work->piece;
    bool small = count * width <= LP_SMALL_BYTES;
    unsigned char *buf = work->dst + work->offset * width;
    switch (work->phase) {
    case REDUCE_SHARE:
        work->offset += count;
        work->phase = REDUCE_NEXT;
        return true;
    case REDUCE_NEXT:
        if (left == 0)
            return false;
        all_reduce_scatter(self, work, count, small);
        work->phase = small ? REDUCE_SMALL : REDUCE_SUM;
        return true;
    case REDUCE_SMALL:
        lp_reduce(buf, buf, comm->me, work->copies, count * width, comm->count, count, work->dtype,
                  work->op);
        work->tag++; /* the round it saved: tags stay aligned with the other kind of piece */
        work->offset += count;
        work->phase = REDUCE_NEXT;
        return true;
    default: {
        int64_t begin = block_begin(comm, count, comm->me),
                end = block_begin(comm, count, comm->me + 1);
        int64_t each = (count + comm->count - 1) / comm->count;
        lp_reduce(buf + begin * width, buf + begin * width, comm->me, work->copies, each * width,
                  comm->count, end - begin, work->dtype, work->op);
        all_reduce_share(self, work, count);
        work->phase = REDUCE_SHARE;
        return true;
    }
    }
}

void lp_all_reduce(LpEvent *event, int handle, void *buf, int64_t count, LpDtype dtype, LpOp op)
{
    LpSelf *self = lp_self;
    LpComm *comm = comm_get(self, handle, "all-reduce");
    if (comm->count == 1)
        return;
    LpWork *work = lp_work_new(self, event, "all-reduce");
    work->dst = buf;
    work->count = count;
    work->dtype = dtype;
    work->op = op;
    work->advance = all_reduce_advance;
    collective_start(self, work, comm, piece_limit(work, LP_PIECE_BYTES), 2);
}

/* ---- reduce-scatter ---- */

static bool reduce_scatter_advance(LpSelf *self, LpWork *work)
{
    const LpComm *comm = work->comm;
    int64_t width = lp_dtype_bytes(work->dtype);
    int64_t left = work->count - work->offset;
    int64_t count = left < work->piece ? left : work->piece;
    const unsigned char *src = work->src + work->offset * width;
    if (work->phase == REDUCE_SUM) {
        lp_reduce(work->dst + work->offset * width, src + comm->me * work->count * width, comm->me,
                  work->copies, count * width, comm->count, count, work->dtype, work->op);
        work->offset += count;
        work->phase = REDUCE_NEXT;
        return true;
    }
    if (left == 0)
        return false;
    unsigned char *copies = lp_work_scratch(self, work, count * width * (comm->count - 1));
    int tag = round_tag(work);
    for (int d = 1; d < comm->count; d++) {
        int from = member_from(comm, d);
        lp_work_recv(self, work, comm->ranks[from], tag, copies + slot(comm, from) * count * width,
                     count * width);
    }
    for (int d = 1; d < comm->count; d++) {
        int to = member_to(comm, d);
        lp_work_send(self, work, comm->ranks[to], tag, src + to * work->count * width,
                     count * width);
    }
    work->phase = REDUCE_SUM;
    return true;
}

void lp_reduce_scatter(LpEvent *event, int handle, const void *src, void *dst, int64_t count_each,
                       LpDtype dtype, LpOp op)
{
    LpSelf *self = lp_self;
    LpComm *comm = comm_get(self, handle, "reduce-scatter");
    const unsigned char *own =
        (const unsigned char *)src + comm->me * count_each * lp_dtype_bytes(dtype);
    if (comm->count == 1) {
        if (dst != own)
            memcpy(dst, own, (size_t)(count_each * lp_dtype_bytes(dtype)));
        return;
    }
    LpWork *work = lp_work_new(self, event, "reduce-scatter");
    work->src = src;
    work->dst = dst;
    work->count = count_each;
    work->dtype = dtype;
    work->op = op;
    work->advance = reduce_scatter_advance;
    collective_start(self, work, comm, piece_limit(work, LP_PIECE_BYTES / comm->count), 1);
}

/* ---- all-gather, all-to-all, rotate: no arithmetic, no scratch ---- */

static bool exchange_advance(LpSelf *self, LpWork *work)
{
    const LpComm *comm = work->comm;
    int64_t width = lp_dtype_bytes(work->dtype);
    if (work->phase++ > 0)
        work->offset += work->piece;
    int64_t left = work->count - work->offset;
    if (left <= 0)
        return false;
    int64_t bytes = (left < work->piece ? left : work->piece) * width;
    int64_t block = work->count * width, at = work->offset * width;
    int tag = round_tag(work);
    for (int d = 1; d < comm->count; d++) {
        int from = member_from(comm, d);
        lp_work_recv(self, work, comm->ranks[from], tag, work->dst + from * block + at, bytes);
    }
    for (int d = 1; d < comm->count; d++) {
        int to = member_to(comm, d);
        lp_work_send(self, work, comm->ranks[to], tag,
                     work->src + (work->scatter ? to * block : 0) + at, bytes);
    }
    return true;
}

static void exchange_start(LpEvent *event, int handle, const void *src, void *dst,
                           int64_t count_each, LpDtype dtype, bool gather)
{
    LpSelf *self = lp_self;
    const char *what = gather ? "all-gather" : "all-to-all";
    LpComm *comm = comm_get(self, handle, what);
    int64_t block = count_each * lp_dtype_bytes(dtype);
    const unsigned char *own = (const unsigned char *)src + (gather ? 0 : comm->me * block);
    unsigned char *place = (unsigned char *)dst + comm->me * block;
    if (place != own)
        memcpy(place, own, (size_t)block);
    if (comm->count == 1)
        return;
    LpWork *work = lp_work_new(self, event, what);
    work->src = src;
    work->dst = dst;
    work->count = count_each;
    work->dtype = dtype;
    work->scatter = !gather;
    work->advance = exchange_advance;
    collective_start(self, work, comm, piece_limit(work, LP_MESSAGE_BYTES), 1);
}

void lp_all_gather(LpEvent *event, int comm, const void *src, void *dst, int64_t count_each,
                   LpDtype dtype)
{
    exchange_start(event, comm, src, dst, count_each, dtype, true);
}

void lp_all_to_all(LpEvent *event, int comm, const void *src, void *dst, int64_t count_each,
                   LpDtype dtype)
{
    exchange_start(event, comm, src, dst, count_each, dtype, false);
}

/* All messages are posted at once, under one tag: sizes differ from member to member, and so would
 * the number of rounds. Pieces of one message match in the order in which they are posted. */
static void exchange_sizes(LpSelf *self, LpWork *work, const int64_t *give, const int64_t *take,
                           int distance, int tag)
{
    const LpComm *comm = work->comm;
    int64_t width = lp_dtype_bytes(work->dtype);
    int from = member_from(comm, distance), to = member_to(comm, distance);
    const int64_t *size[2] = {take, give};
    int peer[2] = {from, to};
    for (int side = 0; side < 2; side++) {
        int64_t begin = 0, end = 0;
        for (int i = 0; i < peer[side]; i++)
            begin += size[side][i] * width;
        end = begin + size[side][peer[side]] * width;
        for (int64_t at = begin; at < end; at += LP_MESSAGE_BYTES) {
            int64_t bytes = end - at < LP_MESSAGE_BYTES ? end - at : LP_MESSAGE_BYTES;
            if (side == 0)
                lp_work_recv(self, work, comm->ranks[from], tag, work->dst + at, bytes);
            else
                lp_work_send(self, work, comm->ranks[to], tag, work->src + at, bytes);
        }
    }
}

static bool sizes_advance(LpSelf *self, LpWork *work)
{
    if (work->phase++ > 0)
        return false;
    int tag = round_tag(work);
    for (int d = 1; d < work->comm->count; d++)
        exchange_sizes(self, work, work->give, work->take, d, tag);
    return true;
}

void lp_all_to_all_v(LpEvent *event, int handle, const void *src, const int64_t *give, void *dst,
                     const int64_t *take, LpDtype dtype)
{
    LpSelf *self = lp_self;
    LpComm *comm = comm_get(self, handle, "all-to-all");
    int64_t width = lp_dtype_bytes(dtype), from = 0, to = 0;
    for (int i = 0; i < comm->me; i++) {
        from += give[i] * width;
        to += take[i] * width;
    }
    memcpy((unsigned char *)dst + to, (const unsigned char *)src + from,
           (size_t)(give[comm->me] * width));
    if (comm->count == 1)
        return;
    LpWork *work = lp_work_new(self, event, "all-to-all");
    work->src = src;
    work->dst = dst;
    work->give = give;
    work->take = take;
    work->count = 1;
    work->dtype = dtype;
    work->advance = sizes_advance;
    collective_start(self, work, comm, 1, 1);
}

static bool rotate_advance(LpSelf *self, LpWork *work)
{
    const LpComm *comm = work->comm;
    int64_t width = lp_dtype_bytes(work->dtype);
    if (work->phase++ > 0)
        work->offset += work->piece;
    int64_t left = work->count - work->offset;
    if (left <= 0)
        return false;
    int64_t bytes = (left < work->piece ? left : work->piece) * width;
    int tag = round_tag(work);
    lp_work_recv(self, work, comm->ranks[member_to(comm, work->shift)], tag,
                 work->dst + work->offset * width, bytes);
    lp_work_send(self, work, comm->ranks[member_from(comm, work->shift)], tag,
                 work->src + work->offset * width, bytes);
    return true;
}

void lp_rotate(LpEvent *event, int handle, const void *src, void *dst, int64_t count, LpDtype dtype,
               int shift)
{
    LpSelf *self = lp_self;
    LpComm *comm = comm_get(self, handle, "rotate");
    int distance = (shift % comm->count + comm->count) % comm->count;
    if (distance == 0) {
        memcpy(dst, src, (size_t)(count * lp_dtype_bytes(dtype)));
        return;
    }
    LpWork *work = lp_work_new(self, event, "rotate");
    work->src = src;
    work->dst = dst;
    work->count = count;
    work->dtype = dtype;
    work->shift = distance;
    work->advance = rotate_advance;
    collective_start(self, work, comm, piece_limit(work, LP_MESSAGE_BYTES), 1);
}

/* ---- p2p ---- */

/* All pieces are posted at once: messages of one class match in posting order, so a second message
 * must not slip between the pieces of the first. */
static bool p2p_advance(LpSelf *self, LpWork *work)
{
    if (work->phase++ > 0)
        return false;
    for (int64_t at = 0; at < work->count; at += LP_MESSAGE_BYTES) {
        int64_t left = work->count - at;
        int64_t bytes = left < LP_MESSAGE_BYTES ? left : LP_MESSAGE_BYTES;
        if (work->src)
            lp_work_send(self, work, work->peer, (int)work->tag, work->src + at, bytes);
        else
            lp_work_recv(self, work, work->peer, (int)work->tag, work->dst + at, bytes);
    }
    return true;
}

static void p2p_start(LpEvent *event, int peer, LpClass cls, const void *src, void *dst,
                      int64_t bytes)
{
    LpSelf *self = lp_self;
    const char *what = src ? "send" : "recv";
    if (peer < 0 || peer >= self->rank.job->ranks || peer == self->rank.index)
        lp_fail(70, "%s with rank %d from rank %d", what, peer, self->rank.index);
    LpWork *work = lp_work_new(self, event, what);
    work->src = src;
    work->dst = dst;
    work->count = bytes;
    work->peer = peer;
    work->tag = (unsigned)cls << 16;
    work->advance = p2p_advance;
    lp_work_start(self, work);
}

void lp_send(LpEvent *event, int peer, LpClass cls, const void *buf, int64_t bytes)
{
    p2p_start(event, peer, cls, buf, NULL, bytes);
}

void lp_recv(LpEvent *event, int peer, LpClass cls, void *buf, int64_t bytes)
{
    p2p_start(event, peer, cls, NULL, buf, bytes);
}
