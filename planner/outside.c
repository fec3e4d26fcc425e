/* outside.c - the figures behind what lies outside the arena, for each kind of device.
 *
 * A cluster file says how much is kept free in all (margin_bytes); these are its parts. Those of a
 * host were measured with trainers of this repository: resident bytes beside the arena of one rank
 * alone, of ranks under MPI, and after products of many shapes. Those of a GPU are estimates from
 * public reports: a context of the 1 GB class; 512 to 688 MiB for a communicator, which is 32
 * channels with 4 connections (to and from the neighbours of a ring and of a tree) of 4 MiB each.
 */
#include "planner/outside.h"

#define MIB (INT64_C(1) << 20)

/* ---- what the plan's communication asks for ---- */

/* Of one stage: every set of atoms that a collective runs over is a communicator, each neighbour
 * stage is one for activations and one for gradients. */
typedef struct Comms {
    int groups, pairs;
    int64_t reduce_bytes; /* the largest message of a gradient's reduction */
    int reduce_ranks;     /* that take part in it */
} Comms;

static bool new_group(const StepTimes *times, int at, int stage)
{
    const Traffic *traffic = &times->traffic.at[at];
    for (int i = 0; i < at; i++) {
        const Traffic *other = &times->traffic.at[i];
        if (other->count[stage] && other->step == traffic->step && other->atoms == traffic->atoms)
            return false;
    }
    return true;
}

static Comms comms_of(const Assessment *it, int stage)
{
    Comms comms = {.reduce_ranks = 1};
    const Plan *plan = it->plan;
    for (int i = 0; i < it->times->traffic.n; i++) {
        const Traffic *traffic = &it->times->traffic.at[i];
        if (!traffic->count[stage] || traffic->step == STEP_SEND || traffic->step == STEP_COPY)
            continue;
        comms.groups += new_group(it->times, i, stage);
        bool flat = traffic->stream == STREAM_GRADIENT || traffic->stream == STREAM_WEIGHT;
        if (traffic->step != STEP_MOVE || !flat)
            continue;
        int ranks = mesh_extent(&plan->mesh, traffic->atoms);
        comms.reduce_ranks = ranks > comms.reduce_ranks ? ranks : comms.reduce_ranks;
    }
    comms.reduce_bytes = plan->bucket_bytes;
    comms.pairs = 2 * ((stage > 0) + (stage + 1 < plan->stages));
    return comms;
}

/* ---- a GPU ---- */

enum { CHANNELS = 32, CONNECTIONS = 4, PAIR_CHANNELS = 16, BUFFER_MIB = 4 };

static void gpu_lines(Arena *arena, const Assessment *it, const Comms *comms, OutsideLine *ret)
{
    int nodes = 0;
    for (int c = 0; c < it->net->classes.n; c++)
        nodes += it->net->classes.at[c]->nodes.n;
    ret[0] = (OutsideLine){"context", "1024 MiB of driver and runtime", 1024 * MIB, TAG_ESTIMATED};
    ret[1] = (OutsideLine){"code", arena_printf(arena, "%d kernels at most x 64 KiB", nodes),
                           nodes * (MIB / 16), TAG_ESTIMATED};
    ret[2] = (OutsideLine){"libraries", "256 MiB for products; workspaces are in the arena",
                           256 * MIB, TAG_ESTIMATED};
    ret[3] = (OutsideLine){
        "communicators",
        arena_printf(arena, "%d x %d channels x %d links x %d MiB + %d pairs x %d x %d MiB",
                     comms->groups, CHANNELS, CONNECTIONS, BUFFER_MIB, comms->pairs, PAIR_CHANNELS,
                     BUFFER_MIB),
        ((int64_t)comms->groups * CHANNELS * CONNECTIONS + comms->pairs * PAIR_CHANNELS) *
            BUFFER_MIB * MIB,
        TAG_ESTIMATED};
}

/* ---- a host ---- */

enum { PROGRAM_MIB = 8, MPI_MIB = 10, MOST_INNER = 384, PIECE_MIB = 16, IN_FLIGHT = 4 };

/* The product with most rows packs them all: of all parameters, the longest axis that a rank has.
 */
static int64_t most_rows(const Assessment *it)
{
    int64_t most = 1;
    for (int c = 0; c < it->net->classes.n; c++) {
        const Graph *graph = it->net->classes.at[c];
        for (int p = 0; p < graph->params.n; p++) {
            const Value *value = &graph->values.at[graph->params.at[p].value];
            const Placement *home = &it->plan->class[c].home[p];
            for (int a = 0; a < value->axes && value->axes > 1; a++) {
                int64_t own = it->net->dims.at[value->dim[a]].extent /
                              list_extent(&it->plan->mesh, &home->shard[a]);
                most = own > most ? own : most;
            }
        }
    }
    return most;
}

static void host_lines(Arena *arena, const Assessment *it, const Comms *comms, OutsideLine *ret)
{
    const Plan *plan = it->plan;
    int64_t rows = most_rows(it), tokens = plan->micro_batch * plan->job.sequence;
    int64_t inner = tokens < MOST_INNER ? tokens : MOST_INNER;
    int64_t bucket = comms->reduce_bytes;
    int64_t piece = bucket < PIECE_MIB * MIB ? bucket : PIECE_MIB * MIB;
    int n = comms->reduce_ranks;
    bool mpi = plan->ranks > 1;
    ret[0] = (OutsideLine){"context", "none: a rank is a process", 0, TAG_MEASURED};
    ret[1] = (OutsideLine){
        "code", arena_printf(arena, "%d MiB of program, libraries and their heap", PROGRAM_MIB),
        PROGRAM_MIB * MIB, TAG_MEASURED};
    ret[2] = (OutsideLine){
        "libraries",
        arena_printf(arena, "BLAS packs %s x %lld floats%s", str_commas(arena, rows),
                     (long long)inner,
                     mpi ? arena_printf(arena, "; MPI, shared memory %d MiB", MPI_MIB) : ""),
        4 * rows * inner + (mpi ? MPI_MIB * MIB : 0), TAG_MEASURED};
    ret[3] = (OutsideLine){
        "communicators",
        n > 1 ? arena_printf(arena, "%d; scratch of %d reductions x %s x %d/%d", comms->groups,
                             IN_FLIGHT, str_gib(arena, piece), n - 1, n)
              : arena_printf(arena, "%d, and none reduces gradients", comms->groups),
        IN_FLIGHT * (piece / n * (n - 1)), TAG_ESTIMATED};
}

Outside outside_of(Arena *arena, const Assessment *it)
{
    Outside most = {.bytes = -1};
    bool gpu = str_eq(it->plan->cluster->device.target, "cuda");
    for (int s = 0; s < it->plan->stages; s++) {
        Outside own = {.bytes = 0};
        Comms comms = comms_of(it, s);
        (gpu ? gpu_lines : host_lines)(arena, it, &comms, own.line);
        own.line[4] = (OutsideLine){"graphs", "none is captured", 0, TAG_MEASURED};
        for (int i = 0; i < OUTSIDE_LINES; i++)
            own.bytes += own.line[i].bytes;
        if (own.bytes > most.bytes)
            most = own;
    }
    return most;
}
