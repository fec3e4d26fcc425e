/* work.h - operations in flight: a list of small state machines driven by polling.
 *
 * A work posts messages, waits until all of them are done, is asked what comes next (`advance`),
 * and so on until `advance` says false. Operations of one rank progress independently of each
 * other; what keeps them apart on the wire is the tag, taken when the operation starts. */
#ifndef LPLAN_RUNTIME_CORE_WORK_H
#define LPLAN_RUNTIME_CORE_WORK_H

#include "runtime/core/self.h"

struct LpWork {
    LpWork *next;
    LpEvent *event;
    int64_t begin_ns;                            /* under --trace */
    int64_t held_until_ns;                       /* under --shake; 0: not held back */
    bool (*advance)(LpSelf *self, LpWork *work); /* posts more, or false: finished */
    const char *what;                            /* "all-reduce", for messages */
    const LpComm *comm;                          /* NULL for p2p */
    const unsigned char *src;
    unsigned char *dst;
    int64_t count;  /* elements: of the buffer, or of each member's block */
    int64_t offset; /* first element of the piece in flight */
    int64_t piece;  /* its elements */
    LpDtype dtype;
    LpOp op;
    const int64_t *give, *take; /* of all-to-all with sizes, read at its start: per member */
    LpErrand *errand;           /* of a lane, or NULL */
    int peer;                   /* of p2p */
    int shift;                  /* of rotate */
    bool scatter; /* all-to-all: another block for every member; all-gather: one for all */
    int phase;
    unsigned tag; /* of the next message round */

    LpRequest *requests;
    int *peers; /* world rank of each request */
    int request_count, request_done, request_capacity;
    LpScratch *scratch;
    unsigned char *copies; /* its bytes: the other members' copies, in member order */
};

/* A fresh work, tied to `event`, which must be idle. */
LpWork *lp_work_new(LpSelf *self, LpEvent *event, const char *what);

/* Runs it as far as it goes now, and keeps it in flight if it is not finished. */
void lp_work_start(LpSelf *self, LpWork *work);

/* Posts one message of the present round. */
void lp_work_send(LpSelf *self, LpWork *work, int peer, int tag, const void *buf, int64_t bytes);
void lp_work_recv(LpSelf *self, LpWork *work, int peer, int tag, void *buf, int64_t bytes);

/* A buffer of at least `bytes` that lives as long as the work, also in work->copies. */
unsigned char *lp_work_scratch(LpSelf *self, LpWork *work, int64_t bytes);

/* At the end of the rank: frees what was kept for reuse. */
void lp_work_free(LpSelf *self);

#endif
