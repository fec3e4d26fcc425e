/* simulate.c - runs the Steps of all stages on the clock. */
#include "planner/simulate.h"

#include <string.h>

#include "ir/lower/braid.h"
#include "ir/lower/state.h"
#include "planner/card.h"

const char *const spent_text[SPENT_COUNT] = {"compute", "block", "gradient", "message",
                                             "world",   "copy",  "bubble"};

bool spent_shown(const Plan *plan, Spent spent)
{
    return spent != SPENT_COPY || plan_farthest(plan) != MEMORY_HBM;
}

/* One Step that has ended, and the one that it started behind. */
typedef struct Ended {
    int64_t end, ns;
    int traffic; /* NONE for work on the compute stream */
    Stream cause_stream;
    int64_t cause; /* sequence number, NONE when nothing held it up */
} Ended;

typedef struct Lane {
    Walk *walk;
    const Step *pending; /* waits for its partner */
    int *tied; /* tied sums done, by the other stage: both homes have theirs in one order */
    VEC(Ended) ended[STREAM_COUNT];
    bool done;
} Lane;

/* Where ranks of several stages meet. */
typedef struct Meeting {
    int arrived, wanted;
    int64_t ready;
} Meeting;

typedef struct Simulation {
    Arena *arena, *scratch;
    const Program *program;
    Pricer pricer;
    int64_t **price, **flops; /* per class, per instruction */
    Lane *lane;
    int rounds;       /* optimizer steps */
    Meeting *message; /* [(boundary * 2 + kind) * micros of all rounds + micro] */
    Meeting *tied; /* [(lower home stage * stages + the other) * most_tied + their sums in order] */
    int most_tied;
    Meeting *world; /* per round */
    StepTimes *times;
    TraceEvents *trace;
    bool splits; /* backward has two lists */
} Simulation;

/* ---- lengths ---- */

static int class_of_body(const Program *program, const Body *body)
{
    int c = 0;
    while (program->body[c] != body)
        c++;
    return c;
}

static int64_t inst_index(const Body *body, const Inst *inst)
{
    int64_t before = 0;
    for (int l = 0; l < BODY_LISTS; l++) {
        const InstList *list = body_list(body, l);
        if (inst >= list->at && inst < list->at + list->n)
            return before + (inst - list->at);
        before += list->n;
    }
    BUG("no instruction of class %s", body->graph->name);
}

static int64_t operand_bytes(const Step *step)
{
    int64_t bytes = 0;
    for (int k = 0; k < step->operands; k++)
        bytes += step->operand[k].bytes * (step->operand[k].read + step->operand[k].write);
    return bytes;
}

static int64_t sent_bytes(const Simulation *sim, const Step *step)
{
    const Recipe *recipe = sim->program->recipe;
    switch (step->kind) {
    case STEP_MOVE:
        if (step->inst)
            return inst_is_collective(step->inst) ? inst_wire_bytes(step->body, step->inst) : 0;
        /* of bucket moves: gradients on their way down, weights on their way home */
        return wire_bytes(&sim->program->plan->mesh, step->move, step->elements,
                          step->move->kind == MOVE_ALL_GATHER ? dtype_bytes(recipe->weight)
                                                              : dtype_bytes(recipe->gradient));
    case STEP_SEND:
    case STEP_TIED:
        return step->operand[0].bytes;
    case STEP_WORLD:
        return 2 * step->operand[0].bytes;
    case STEP_COPY:
        return operand_bytes(step) / 2;
    default:
        return 0;
    }
}

static int boundary_level(const Simulation *sim, const Step *step)
{
    const Plan *plan = sim->program->plan;
    return stage_level(plan->cluster, mesh_ranks(&plan->mesh), step->stage, step->peer);
}

static int64_t step_ns(const Simulation *sim, const Step *step)
{
    const Plan *plan = sim->program->plan;
    const Device *device = &plan->cluster->device;
    switch (step->kind) {
    case STEP_KERNEL:
    case STEP_MERGE:
    case STEP_ACCUMULATE:
        if (step->inst)
            return sim->price[class_of_body(sim->program, step->body)]
                             [inst_index(step->body, step->inst)];
        return price_stream(device, operand_bytes(step)) + device->launch_ns;
    case STEP_MOVE:
        if (step->inst)
            return sim->price[class_of_body(sim->program, step->body)]
                             [inst_index(step->body, step->inst)];
        return price_move(&sim->pricer, &plan->mesh, step->move, sent_bytes(sim, step));
    case STEP_CLEAR:
    case STEP_LOAD:
        return price_stream(device, operand_bytes(step)) + device->launch_ns;
    case STEP_SEND:
    case STEP_RECV:
        return price_p2p(plan->cluster, boundary_level(sim, step), step->operand[0].bytes);
    case STEP_OWN_LOSS:
        return device->launch_ns;
    case STEP_TIED:
        return price_pair(plan->cluster, boundary_level(sim, step), step->operand[0].bytes);
    case STEP_WORLD:
        return price_world(plan->cluster, plan->ranks, step->operand[0].bytes);
    case STEP_COPY: {
        Memory from = address_memory(step->operand[0].address),
               to = address_memory(step->operand[1].address);
        return price_copy(plan->cluster, from, to, sent_bytes(sim, step));
    }
    case STEP_COUNT:
        break;
    }
    BUG("no such Step");
}

/* ---- traffic ---- */

static bool in_backward(const Step *step)
{
    return step->inst && step->bucket == NONE &&
           !(step->inst >= step->body->forward.at &&
             step->inst < step->body->forward.at + step->body->forward.n);
}

const char *const traffic_matrices = "blocks of matrices";

const char *inst_traffic(const Body *body, const Inst *inst)
{
    return inst_moves_gradient(body, inst) ? "activation gradients" : "activations";
}

static const char *what_moves(const Step *step)
{
    switch (step->kind) {
    case STEP_WORLD:
        return "norm and loss";
    case STEP_TIED:
        return "tied gradients";
    case STEP_COPY:
        return step_carries(step) == KEPT_STATE ? "optimizer state" : kept_text[step_carries(step)];
    case STEP_MOVE:
        if (step->inst)
            return step->bucket == NONE ? inst_traffic(step->body, step->inst) : traffic_matrices;
        return step->move->kind == MOVE_ALL_GATHER ? "weights" : "weight gradients";
    default:
        return step->message == MSG_ACTIVATION ? "activations" : "activation gradients";
    }
}

static bool communicates(const Step *step)
{
    return step->stream != STREAM_COMPUTE;
}

int traffic_row(Arena *arena, StepTimes *times, const Traffic *want)
{
    for (int i = 0; i < times->traffic.n; i++) {
        const Traffic *at = &times->traffic.at[i];
        if (at->step == want->step && at->move == want->move && at->atoms == want->atoms &&
            at->level == want->level && at->stream == want->stream && at->memory == want->memory &&
            at->backward == want->backward && str_eq(at->what, want->what))
            return i;
    }
    Traffic *row = &vec_push(arena, &times->traffic);
    *row = *want;
    row->count = ARENA_ARRAY(arena, int64_t, times->stages);
    row->bytes = ARENA_ARRAY(arena, int64_t, times->stages);
    row->ns = ARENA_ARRAY(arena, int64_t, times->stages);
    row->exposed_ns = ARENA_ARRAY(arena, int64_t, times->stages);
    return times->traffic.n - 1;
}

Algorithm traffic_algorithm(const Plan *plan, const Traffic *traffic, int stage)
{
    AtomList atoms = {0};
    for (int a = 0; a < plan->mesh.n && atoms.n < MAX_PER_AXIS; a++)
        if (traffic->atoms >> a & 1)
            atoms.at[atoms.n++] = (int8_t)a;
    if (traffic->step != STEP_MOVE || !traffic->count[stage])
        return ALGORITHM_COUNT;
    return collective_algorithm(plan->cluster, &plan->mesh, traffic->move, &atoms,
                                traffic->bytes[stage] / traffic->count[stage]);
}

static int traffic_of(Simulation *sim, const Step *step)
{
    const Mesh *mesh = &sim->program->plan->mesh;
    const Cluster *cluster = sim->program->plan->cluster;
    Traffic want = {.step = step->kind == STEP_RECV ? STEP_SEND : step->kind,
                    .stream = step->stream,
                    .what = what_moves(step),
                    .backward = in_backward(step)};
    if (step->kind == STEP_COPY) {
        Memory from = address_memory(step->operand[0].address),
               to = address_memory(step->operand[1].address);
        want.memory = from > to ? from : to;
    } else if (step->move) {
        want.move = step->move->kind;
        want.atoms = list_set(&step->move->atoms);
        want.level = atoms_level(mesh, &step->move->atoms);
    } else {
        want.level = step->kind == STEP_WORLD ? cluster->levels - 1 : boundary_level(sim, step);
    }
    return traffic_row(sim->arena, sim->times, &want);
}

/* ---- the clock ---- */

static int64_t stream_end(const Lane *lane, Stream stream)
{
    return lane->ended[stream].n ? lane->ended[stream].at[lane->ended[stream].n - 1].end : 0;
}

/* When a Step may start; *ret_cause is what it waited for, NONE when nothing. */
static int64_t ready_time(const Lane *lane, const Step *step, Wait *ret_cause)
{
    int64_t start = stream_end(lane, step->stream);
    *ret_cause = (Wait){step->stream, lane->ended[step->stream].n - 1};
    for (int w = 0; w < step->waits; w++) {
        const Wait *wait = &step->wait[w];
        int64_t end = lane->ended[wait->stream].at[wait->seq].end;
        if (end > start) {
            start = end;
            *ret_cause = *wait;
        }
    }
    return start;
}

static Spent spent_on(Stream stream, StepKind kind)
{
    if (kind == STEP_WORLD)
        return SPENT_WORLD;
    if (kind == STEP_COPY)
        return SPENT_COPY;
    return stream == STREAM_BLOCK      ? SPENT_BLOCK
           : stream == STREAM_GRADIENT ? SPENT_GRADIENT
           : stream == STREAM_WEIGHT   ? SPENT_GRADIENT
                                       : SPENT_MESSAGE;
}

/* The compute stream stood still from t0 to t1, held up by `cause`. While that ran the time is its
 * own; before, it is what held that up in turn. Where stages meet, the wait for the other one is
 * the bubble. */
static void blame(Simulation *sim, int stage, Wait cause, int64_t t0, int64_t t1)
{
    StageTimes *own = &sim->times->stage[stage];
    while (t1 > t0 && cause.seq >= 0) {
        const Ended *ended = &sim->lane[stage].ended[cause.stream].at[cause.seq];
        if (ended->traffic == NONE)
            break;
        Traffic *traffic = &sim->times->traffic.at[ended->traffic];
        int64_t begin = ended->end - ended->ns > t0 ? ended->end - ended->ns : t0;
        int64_t fault = t1 > begin ? t1 - begin : 0;
        own->spent_ns[spent_on(cause.stream, traffic->step)] += fault;
        traffic->exposed_ns[stage] += fault;
        t1 -= fault;
        if (traffic->step != STEP_MOVE && traffic->step != STEP_COPY)
            break;
        cause = (Wait){ended->cause_stream, ended->cause};
    }
    if (t1 > t0)
        own->spent_ns[SPENT_BUBBLE] += t1 - t0;
}

/* As a trainer's trace has them, which is of the runtime. */
static const char *hop_text(Stream stream)
{
    return stream == STREAM_COPY_IN     ? "copy to the device"
           : stream == STREAM_COPY_OUT  ? "copy from the device"
           : stream == STREAM_FILE_READ ? "read of a file"
                                        : "write of a file";
}

static const char *event_name(const Step *step)
{
    if (step->node)
        return step->node->name;
    if (step->inst && step->inst->kind == INST_KERNEL)
        return step->body->graph->nodes.at[step->inst->node[step->inst->nodes - 1]].name;
    if (step->move)
        return move_text[step->move->kind];
    if (step->kind == STEP_COPY)
        return hop_text(step->stream);
    return step->kind == STEP_TIED || step->kind == STEP_WORLD ? move_text[MOVE_ALL_REDUCE]
                                                               : step_text[step->kind];
}

static const char *event_part(const Simulation *sim, const Step *step)
{
    const Entry *entry = &sim->program->stage[step->stage].table.at[step->entry];
    if (entry->kind != ENTRY_COMPUTE)
        return entry_text[entry->kind];
    return part_name[step->inst && step->body
                         ? list_part(body_list_with(step->body, step->inst), sim->splits)
                         : entry->part];
}

static void end_step(Simulation *sim, int stage, const Step *step, int64_t start, int64_t ns,
                     Wait cause)
{
    Lane *lane = &sim->lane[stage];
    StageTimes *own = &sim->times->stage[stage];
    int64_t before = stream_end(lane, step->stream);
    int row = NONE;
    if (communicates(step)) {
        row = traffic_of(sim, step);
        Traffic *traffic = &sim->times->traffic.at[row];
        int64_t bytes = sent_bytes(sim, step);
        traffic->count[stage]++;
        traffic->bytes[stage] += bytes;
        traffic->ns[stage] += ns;
        bool far = traffic->memory != MEMORY_HBM;
        *(far ? &own->store_bytes[traffic->memory] : &own->level_bytes[traffic->level]) += bytes;
        if (step->kind != STEP_RECV)
            *(far ? &own->store_ns[traffic->memory] : &own->level_ns[traffic->level]) += ns;
    } else {
        own->spent_ns[SPENT_COMPUTE] += ns;
        blame(sim, stage, cause, before, start);
        if (step->inst)
            own->flops += sim->flops[class_of_body(sim->program, step->body)]
                                    [inst_index(step->body, step->inst)];
    }
    if (step->kind == STEP_TIED)
        lane->tied[step->peer]++;
    own->busy_ns[step->stream] += ns;
    vec_push(sim->scratch, &lane->ended[step->stream]) =
        (Ended){start + ns, ns, row, cause.stream, cause.seq};
    sim->times->steps++;
    if (sim->trace)
        vec_push(sim->arena, sim->trace) = (TraceEvent){
            stage,
            step->stream,
            start,
            ns,
            event_name(step),
            event_part(sim, step),
            step->link == NONE ? NONE : sim->program->stage[stage].link[step->link].link,
            step->micro,
            in_backward(step)};
}

static Meeting *meeting_of(Simulation *sim, const Step *step)
{
    int micros = sim->program->plan->micro_batches;
    int number = step->round * micros + step->micro;
    int low = step->stage < step->peer ? step->stage : step->peer,
        high = step->stage + step->peer - low;
    switch (step->kind) {
    case STEP_SEND:
    case STEP_RECV:
        return &sim->message[(step->boundary * 2 + (int)step->message) * micros * sim->rounds +
                             number];
    case STEP_TIED:
        return &sim->tied[(low * sim->program->stages + high) * sim->most_tied * sim->rounds +
                          sim->lane[step->stage].tied[step->peer]];
    case STEP_WORLD:
        return &sim->world[step->round];
    default:
        return NULL;
    }
}

/* True when the Step has ended; false when it waits for others. */
static bool run_step(Simulation *sim, int stage, const Step *step, bool posted)
{
    Wait cause;
    int64_t start = ready_time(&sim->lane[stage], step, &cause);
    Meeting *meeting = meeting_of(sim, step);
    if (meeting) {
        if (!posted) {
            meeting->arrived++;
            meeting->ready = start > meeting->ready ? start : meeting->ready;
        }
        int wanted = step->kind == STEP_WORLD ? sim->program->stages : 2;
        if (meeting->arrived < wanted)
            return false;
        start = meeting->ready;
    }
    end_step(sim, stage, step, start, step_ns(sim, step), cause);
    return true;
}

/* True when the stage got on. */
static bool run_stage(Simulation *sim, int stage)
{
    Lane *lane = &sim->lane[stage];
    bool moved = false;
    while (!lane->done) {
        const Step *step = lane->pending ? lane->pending : walk_next(lane->walk);
        if (!step) {
            lane->done = true;
            return true;
        }
        bool posted = lane->pending != NULL;
        lane->pending = step;
        if (!run_step(sim, stage, step, posted))
            return moved || !posted;
        lane->pending = NULL;
        moved = true;
    }
    return moved;
}

/* The step ends when every stage's last Step does; what is left on the compute stream is waiting.
 */
static void close_step(Simulation *sim)
{
    StepTimes *times = sim->times;
    for (int s = 0; s < times->stages; s++)
        for (int stream = 0; stream < STREAM_COUNT; stream++) {
            int64_t end = stream_end(&sim->lane[s], (Stream)stream);
            times->step_ns = end > times->step_ns ? end : times->step_ns;
        }
    for (int s = 0; s < times->stages; s++) {
        Lane *lane = &sim->lane[s];
        int64_t compute = stream_end(lane, STREAM_COMPUTE);
        static const Stream behind[] = {STREAM_GRADIENT, STREAM_COPY_OUT, STREAM_FILE_WRITE};
        for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
            int64_t end = stream_end(lane, behind[i]);
            if (end <= compute)
                continue;
            blame(sim, s, (Wait){behind[i], lane->ended[behind[i]].n - 1}, compute, end);
            compute = end;
        }
        times->stage[s].spent_ns[SPENT_BUBBLE] += times->step_ns - compute;
    }
}

static void fill_prices(Simulation *sim)
{
    const Program *program = sim->program;
    int classes = program->bodies;
    sim->price = ARENA_ARRAY(sim->scratch, int64_t *, classes);
    sim->flops = ARENA_ARRAY(sim->scratch, int64_t *, classes);
    for (int c = 0; c < classes; c++) {
        const Body *body = program->body[c];
        sim->price[c] = card_prices(sim->scratch, &sim->pricer, body);
        int n = 0;
        sim->flops[c] = ARENA_ARRAY(sim->scratch, int64_t,
                                    body->forward.n + body->backward.n + body->weight.n + 1);
        for (int l = 0; l < BODY_LISTS; l++)
            for (int i = 0; i < body_list(body, l)->n; i++)
                sim->flops[c][n++] = inst_flops(body, &body_list(body, l)->at[i]);
    }
}

static int most_buckets(const Program *program)
{
    int most = 1;
    for (int s = 0; s < program->stages; s++)
        most = program->stage[s].buckets.n > most ? program->stage[s].buckets.n : most;
    return most;
}

StepTimes *simulate_rounds(Arena *arena, const Program *program, int rounds, TraceEvents *trace)
{
    Arena *scratch = arena_new("simulate");
    const Plan *plan = program->plan;
    StepTimes *times = ARENA_NEW(arena, StepTimes);
    *times = (StepTimes){.stages = program->stages, .simulated_micros = plan->micro_batches};
    times->stage = ARENA_ARRAY(arena, StageTimes, program->stages);
    Simulation sim = {.arena = arena,
                      .scratch = scratch,
                      .program = program,
                      .times = times,
                      .trace = trace,
                      .splits = program_splits(program),
                      .rounds = rounds};
    sim.pricer = (Pricer){plan->cluster,     program->net, &plan->mesh, program->recipe,
                          plan->state_atoms, &plan->job,   NULL};
    fill_prices(&sim);
    sim.message = ARENA_ARRAY(scratch, Meeting, 2 * program->chunks * plan->micro_batches * rounds);
    sim.world = ARENA_ARRAY(scratch, Meeting, rounds);
    sim.most_tied = most_buckets(program);
    sim.tied =
        ARENA_ARRAY(scratch, Meeting, program->stages * program->stages * sim.most_tied * rounds);
    sim.lane = ARENA_ARRAY(scratch, Lane, program->stages);
    for (int s = 0; s < program->stages; s++) {
        sim.lane[s].walk = walk_begin(scratch, program, s, 0, rounds);
        sim.lane[s].tied = ARENA_ARRAY(scratch, int, program->stages);
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < program->stages; s++)
            moved |= run_stage(&sim, s);
    }
    for (int s = 0; s < program->stages; s++)
        if (!sim.lane[s].done)
            BUG("stage %d waits for ever", s);
    close_step(&sim);
    arena_free(scratch);
    return times;
}
