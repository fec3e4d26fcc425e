/* mpi.c - ranks as processes under MPI: point-to-point only, nonblocking only.
 *
 * MPI carries messages and starts and stops processes; the collectives are ours
 * (core/collective.c). Only the rank's own thread calls MPI, so MPI_THREAD_FUNNELED is enough. */
#include "runtime/core/lanes.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "an MPI request fits a request");

static void mpi_check(int status, const char *call)
{
    if (status == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(status, text, &length);
    lp_fail(1, "%s: %s", call, text);
}

static void mpi_send(LpSelf *self, int peer, int tag, const void *buf, int64_t bytes,
                     LpRequest *ret_request)
{
    /* ranks as threads hand over, which is the same; what MPI buffers may hide a circle of waits */
    bool held = self->rank.options->synchronous_sends;
    MPI_Request request;
    mpi_check((held ? MPI_Issend : MPI_Isend)(buf, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                                              &request),
              held ? "MPI_Issend" : "MPI_Isend");
    ret_request->bits = 0;
    memcpy(&ret_request->bits, &request, sizeof request);
    ret_request->bytes = -1;
}

static void mpi_recv(LpSelf *self, int peer, int tag, void *buf, int64_t bytes,
                     LpRequest *ret_request)
{
    (void)self;
    MPI_Request request;
    mpi_check(MPI_Irecv(buf, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &request),
              "MPI_Irecv");
    ret_request->bits = 0;
    memcpy(&ret_request->bits, &request, sizeof request);
    ret_request->bytes = bytes;
}

static bool mpi_test(LpSelf *self, LpRequest *request)
{
    (void)self;
    MPI_Request handle;
    MPI_Status status;
    int done = 0, bytes = 0;
    memcpy(&handle, &request->bits, sizeof handle);
    mpi_check(MPI_Test(&handle, &done, &status), "MPI_Test");
    memcpy(&request->bits, &handle, sizeof handle);
    if (!done || request->bytes < 0)
        return done;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (bytes != request->bytes)
        lp_fail(70, "rank %d sent %d bytes where %lld are received", status.MPI_SOURCE, bytes,
                (long long)request->bytes);
    return true;
}

static void mpi_stop(int code)
{
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, code);
    abort();
}

static const LpTransport mpi_transport = {
    .name = "mpi",
    .send = mpi_send,
    .recv = mpi_recv,
    .test = mpi_test,
    .stop = mpi_stop,
};

/* Arenas of all ranks that share this machine's memory. */
static int64_t host_arena_bytes(const LpJob *job, int index)
{
    MPI_Comm host;
    int stage = index / job->ranks_per_stage;
    int64_t mine = job->arena_bytes[stage] + lp_dram_bytes(job, stage), sum = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, host);
    MPI_Comm_free(&host);
    return sum;
}

int lp_mpi_main(int *argc, char ***argv, const LpJob *job, const LpOptions *options)
{
    int provided = 0, world = 0, index = 0;
    if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
        fprintf(stderr, "lplan: MPI does not start\n");
        return 1;
    }
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(MPI_COMM_WORLD, &index);
    if (world != job->ranks) {
        if (index == 0)
            fprintf(stderr,
                    "lplan: this plan has %d ranks, but %d %s started: run `lplan run DIR`, or "
                    "`mpirun -np %d "
                    "%s ...`, or add --virtual\n",
                    job->ranks, world, world == 1 ? "was" : "were", job->ranks, (*argv)[0]);
        MPI_Finalize();
        return 2;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    LpSelf self = {.transport = &mpi_transport};
    lp_rank_run(&self, job, options, index, host_arena_bytes(job, index));
    MPI_Finalize();
    return 0;
}
