/* threads.c - ranks as threads of one process (--virtual, and jobs of one rank).
 *
 * Each rank has a mailbox: sends not yet received, and receives not yet sent, both in posting
 * order. Who comes second copies the bytes, outside the lock. Nothing above this file knows the
 * difference to MPI. */
#include "runtime/core/lanes.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)64 << 20)

typedef struct Message {
    struct Message *next;
    int peer; /* sender of a receive, sender of a send: what matching compares */
    int tag;
    unsigned char *buf;
    int64_t bytes;
    atomic_bool done;
} Message;

typedef struct Port Port;

struct Port {
    pthread_mutex_t lock;
    Message *sends, *recvs; /* guarded by lock: what nobody matched yet, oldest first */
    Message *spare;         /* the owner's alone */
    Port *world;            /* [ranks] */
};

typedef struct Member {
    LpSelf self;
    const LpJob *job;
    const LpOptions *options;
    int index;
    pthread_t thread;
} Member;

static Message *message_new(Port *port, int peer, int tag, void *buf, int64_t bytes)
{
    Message *message = port->spare;
    if (message)
        port->spare = message->next;
    else
        message = lp_new(1, sizeof *message);
    message->next = NULL;
    message->peer = peer;
    message->tag = tag;
    message->buf = buf;
    message->bytes = bytes;
    atomic_init(&message->done, false);
    return message;
}

static Message *list_take(Message **list, int peer, int tag)
{
    for (; *list; list = &(*list)->next)
        if ((*list)->peer == peer && (*list)->tag == tag) {
            Message *found = *list;
            *list = found->next;
            return found;
        }
    return NULL;
}

static void list_append(Message **list, Message *message)
{
    while (*list)
        list = &(*list)->next;
    *list = message;
}

static void deliver(Message *send, Message *recv)
{
    if (send->bytes != recv->bytes)
        lp_fail(70, "rank %d sent %lld bytes where %lld are received", send->peer,
                (long long)send->bytes, (long long)recv->bytes);
    memcpy(recv->buf, send->buf, (size_t)send->bytes);
    atomic_store_explicit(&send->done, true, memory_order_release);
    atomic_store_explicit(&recv->done, true, memory_order_release);
}

static void threads_send(LpSelf *self, int peer, int tag, const void *buf, int64_t bytes,
                         LpRequest *ret_request)
{
    Port *mine = self->port, *box = &mine->world[peer];
    Message *send = message_new(mine, self->rank.index, tag, (void *)(uintptr_t)buf, bytes);
    ret_request->pointer = send;
    pthread_mutex_lock(&box->lock);
    Message *recv = list_take(&box->recvs, self->rank.index, tag);
    if (!recv)
        list_append(&box->sends, send);
    pthread_mutex_unlock(&box->lock);
    if (recv)
        deliver(send, recv);
}

static void threads_recv(LpSelf *self, int peer, int tag, void *buf, int64_t bytes,
                         LpRequest *ret_request)
{
    Port *box = self->port;
    Message *recv = message_new(box, peer, tag, buf, bytes);
    ret_request->pointer = recv;
    pthread_mutex_lock(&box->lock);
    Message *send = list_take(&box->sends, peer, tag);
    if (!send)
        list_append(&box->recvs, recv);
    pthread_mutex_unlock(&box->lock);
    if (send)
        deliver(send, recv);
}

static bool threads_test(LpSelf *self, LpRequest *request)
{
    Message *message = request->pointer;
    if (!atomic_load_explicit(&message->done, memory_order_acquire))
        return false;
    Port *port = self->port;
    message->next = port->spare;
    port->spare = message;
    return true;
}

static void threads_stop(int code)
{
    fflush(NULL);
    _exit(code);
}

static const LpTransport threads_transport = {
    .name = "threads",
    .send = threads_send,
    .recv = threads_recv,
    .test = threads_test,
    .stop = threads_stop,
};

static void *member_run(void *argument)
{
    Member *member = argument;
    const LpJob *job = member->job;
    int64_t arenas = 0;
    for (int stage = 0; stage < job->stages; stage++)
        arenas += (job->arena_bytes[stage] + lp_dram_bytes(job, stage)) * job->ranks_per_stage;
    lp_rank_run(&member->self, job, member->options, member->index, arenas);
    return NULL;
}

int lp_threads_main(const LpJob *job, const LpOptions *options)
{
    int ranks = job->ranks;
    Member *members = calloc((size_t)ranks, sizeof *members);
    Port *ports = calloc((size_t)ranks, sizeof *ports);
    pthread_attr_t attributes;
    if (!members || !ports || pthread_attr_init(&attributes) ||
        pthread_attr_setstacksize(&attributes, STACK_BYTES)) {
        fprintf(stderr, "lplan: out of memory for %d virtual ranks\n", ranks);
        return 1;
    }
    for (int i = 0; i < ranks; i++) {
        pthread_mutex_init(&ports[i].lock, NULL);
        ports[i].world = ports;
        members[i].self.transport = &threads_transport;
        members[i].self.port = &ports[i];
        members[i].job = job;
        members[i].options = options;
        members[i].index = i;
    }
    for (int i = 0; i < ranks; i++)
        if (pthread_create(&members[i].thread, &attributes, member_run, &members[i])) {
            fprintf(stderr, "lplan: cannot start virtual rank %d of %d\n", i, ranks);
            return 1;
        }
    for (int i = 0; i < ranks; i++)
        pthread_join(members[i].thread, NULL);
    for (int i = 0; i < ranks; i++) {
        for (Message *message = ports[i].spare, *next; message; message = next) {
            next = message->next;
            free(message);
        }
        pthread_mutex_destroy(&ports[i].lock);
    }
    pthread_attr_destroy(&attributes);
    free(ports);
    free(members);
    return 0;
}
