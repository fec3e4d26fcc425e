/* self.h - what the runtime knows about the rank that runs on this thread.
 *
 * One LpSelf per rank: under MPI one in the process, under --virtual one per thread. It is reached
 * only through lp_self, the single thread-local of the runtime, so ranks in one process share
 * nothing but the const job and the transport. */
#ifndef LPLAN_RUNTIME_CORE_SELF_H
#define LPLAN_RUNTIME_CORE_SELF_H

#include "runtime/lp.h"

#include <stdatomic.h>
#include <stddef.h>

typedef struct LpSelf LpSelf;
typedef struct LpWork LpWork;

/* A transport's handle of one message in flight. */
typedef struct LpRequest {
    union {
        void *pointer;
        uint64_t bits;
    };
    int64_t bytes; /* that a receive must get; -1: a send */
} LpRequest;

/* How bytes get from rank to rank. Everything above it (collectives, waiting, failing) is one code.
 * Messages match by (sender, receiver, tag), in posting order where those are equal; at most
 * LP_MESSAGE_BYTES each. */
typedef struct LpTransport {
    const char *name;
    void (*send)(LpSelf *self, int peer, int tag, const void *buf, int64_t bytes,
                 LpRequest *ret_request);
    void (*recv)(LpSelf *self, int peer, int tag, void *buf, int64_t bytes, LpRequest *ret_request);
    bool (*test)(LpSelf *self, LpRequest *request); /* true: finished, the request is gone */
    void (*stop)(int code);                         /* ends every rank; does not return */
} LpTransport;

/* More turns than lie between a step's update and the world's sum of its loss. */
enum { LP_TURNS = 128 };

#ifndef LP_MESSAGE_BYTES /* a test makes it small */
#define LP_MESSAGE_BYTES ((int64_t)1 << 30)
#endif

typedef struct LpComm {
    int count;
    int me;            /* this rank's place in ranks, or -1 */
    int channel;       /* upper part of its tags */
    unsigned sequence; /* of the next operation: equal on all members */
    int ranks[];
} LpComm;

/* Read by the watchdog thread while the rank works, hence atomic; `at` and `waits_in` are literals.
 */
typedef struct LpTrack {
    _Atomic(const char *) at;
    _Atomic(const char *) waits_in; /* operation being waited for, or NULL */
    _Atomic int waits_for;          /* world rank */
    _Atomic int64_t step;           /* -1: before the first */
    _Atomic int64_t moved_ns;  /* last time this rank marked, finished a message or began to wait */
    _Atomic int64_t ending_ns; /* when it began to end the job; 0: it has not */
    _Atomic int end_code;
    char *file_step, *file_at; /* this thread's places in the mapped status file, or NULL */
} LpTrack;

typedef struct LpScratch LpScratch;
typedef struct LpData LpData;
typedef struct LpLog LpLog;
typedef struct LpWatch LpWatch;
typedef struct LpTrace LpTrace;
typedef struct LpLanes LpLanes;
typedef struct LpErrand LpErrand; /* of a lane: see lanes.c */

/* Of a trainer that scales its loss; see scale.c. */
typedef struct LpScaler {
    double scale;
    int64_t good;     /* steps in a row without an overflow */
    int64_t patience; /* overflows until the scale is halved */
    int64_t skipped;  /* steps without an update since the beginning of training */
    bool bad;         /* the last step had one */
} LpScaler;

/* Tokens by which the labels of a loss may be further than the next one. */
#define LP_MAX_AHEAD 3

struct LpSelf {
    LpRank rank;
    const LpTransport *transport;
    void *port; /* the transport's own */
    LpTrack track;

    LpComm **comms;
    int comm_count, comm_capacity;

    LpWork *active; /* operations in flight, oldest first */
    LpWork **active_end;
    LpWork *idle;       /* for reuse: nothing is allocated once a step has run */
    LpScratch *scratch; /* buffers for reuse */
    int64_t scratch_bytes;
    uint64_t shaken; /* delays drawn so far, under --shake */
    bool moved;      /* some message finished since the waiter last looked */
    bool measured;   /* what lies outside the arena, and it fits */

    const char *sparse_state; /* a kind of state that not every tensor has, or NULL */

    LpData *data, *evaluation;                            /* NULL without --eval-data */
    bool evaluating;                                      /* batches are of that one */
    int64_t first_step;                                   /* where the run began */
    double evaluated[1 + LP_MAX_AHEAD], evaluated_tokens; /* sums over the batches so far */
    int evaluated_losses;
    int64_t evaluated_batches;
    LpLog *log;
    LpWatch *watch;
    LpLanes *lanes;      /* NULL where there is nothing behind the arena */
    LpTrace *trace;      /* NULL without --trace */
    struct Tally *tally; /* [ranks] */
    int64_t step_begin_ns;
    int64_t turn_ns[LP_TURNS]; /* where steps flow: when the turns of the latest steps began */
    int64_t turn;              /* the latest of them */
    bool stop;                 /* the ranks agreed to end after this step */
    LpScaler scaler;
    int besides; /* losses of further tokens, which are logged beside the loss */
    double beside[LP_MAX_AHEAD];
};

extern _Thread_local LpSelf *lp_self;

/* Whole life of a rank; called by the transports once ranks exist. `host_arena_bytes`: arenas of
 * all ranks on this machine. */
void lp_rank_run(LpSelf *self, const LpJob *job, const LpOptions *options, int index,
                 int64_t host_arena_bytes);

/* host/threads.c and host/mpi.c: start ranks, lp_rank_run on each, exit status. */
int lp_threads_main(const LpJob *job, const LpOptions *options);
int lp_mpi_main(int *argc, char ***argv, const LpJob *job, const LpOptions *options);

int64_t lp_now_ns(void);
void lp_sleep_ns(int64_t ns);

/* Like lp_fail, for what every rank finds out alike (a bad file): rank 0 speaks, the others wait.
 */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3), noreturn))
#endif
void lp_fail_all(int code, const char *format, ...);

/* The largest of what the ranks bring (collective): what one of them finds, an errno, all know. */
int lp_agree(int error);

/* malloc or lp_fail. Zeroed. */
void *lp_new(size_t count, size_t size);

static inline int64_t lp_dtype_bytes(LpDtype dtype)
{
    return dtype == LP_F64 ? 8 : dtype == LP_BF16 || dtype == LP_F16 ? 2 : 4;
}

static inline const char *lp_dtype_name(LpDtype dtype)
{
    return dtype == LP_F64    ? "f64"
           : dtype == LP_BF16 ? "bf16"
           : dtype == LP_F16  ? "f16"
           : dtype == LP_I32  ? "i32"
                              : "f32";
}

#endif
