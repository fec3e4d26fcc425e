/* execute.c - Steps of all ranks, executed as their events allow. */
#include "ir/lower/execute.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/rng.h"
#include "ir/lower/machine.h"

static Step *head(const Rank *rank, Stream stream)
{
    return rank->head[stream] < rank->queue[stream].n
               ? rank->steps.at[rank->queue[stream].at[rank->head[stream]]]
               : NULL;
}

static bool waits_done(const Rank *rank, const Step *step)
{
    for (int w = 0; w < step->waits; w++)
        if (rank->head[step->wait[w].stream] <= step->wait[w].seq)
            return false;
    return true;
}

/* Members of what a Step does together with other ranks; their number. */
static int partners(const Machine *machine, const Rank *rank, const Step *step, Rank **ret)
{
    int n = 0;
    if (step->kind == STEP_WORLD) {
        CHECK(machine->ranks <= MAX_GROUP);
        for (int r = 0; r < machine->ranks; r++)
            ret[n++] = &machine->rank[r];
    } else if (step->kind == STEP_TIED) {
        int low = step->stage < step->peer ? step->stage : step->peer,
            high = step->stage + step->peer - low;
        ret[n++] = machine_rank(machine, low, rank->coordinate);
        ret[n++] = machine_rank(machine, high, rank->coordinate);
    } else if (step->kind == STEP_SEND || step->kind == STEP_RECV) {
        int other = rank->coordinate;
        ret[n++] = machine_rank(machine, step->kind == STEP_SEND ? step->stage : step->peer, other);
        ret[n++] = machine_rank(machine, step->kind == STEP_SEND ? step->peer : step->stage, other);
    } else if (step_is_comm(step)) {
        int ranks[MAX_GROUP], count = mesh_group(machine_mesh(machine), &step->move->atoms,
                                                 rank->coordinate, ranks, MAX_GROUP);
        for (int k = 0; k < count; k++)
            ret[n++] = machine_rank(machine, rank->stage, ranks[k]);
    } else {
        ret[n++] = machine_rank(machine, rank->stage, rank->coordinate);
    }
    return n;
}

static Stream partner_stream(const Step *step, const Rank *own, const Rank *other)
{
    if (own == other || (step->kind != STEP_SEND && step->kind != STEP_RECV))
        return step->stream;
    return step->kind == STEP_SEND ? (Stream)(step->stream + 1) : (Stream)(step->stream - 1);
}

static bool same_operation(const Step *a, const Step *b)
{
    bool message = a->kind == STEP_SEND || a->kind == STEP_RECV;
    if (message)
        return (b->kind == STEP_SEND || b->kind == STEP_RECV) && a->message == b->message &&
               a->round == b->round && a->micro == b->micro && a->boundary == b->boundary &&
               a->evaluates == b->evaluates;
    return a->kind == b->kind && a->move == b->move && a->inst == b->inst && a->micro == b->micro &&
           a->round == b->round && a->link == b->link && a->elements == b->elements &&
           a->evaluates == b->evaluates &&
           (a->kind == STEP_TIED || a->kind == STEP_WORLD || a->bucket == b->bucket);
}

/* All members stand before the same operation with their waits done. */
static bool group_ready(const Rank *rank, const Step *step, Rank **member, Step **theirs, int n)
{
    for (int k = 0; k < n; k++) {
        Stream stream = partner_stream(step, rank, member[k]);
        theirs[k] = head(member[k], stream);
        if (!theirs[k] || !waits_done(member[k], theirs[k]))
            return false;
        /* before another operation: it may belong to another group, whose turn comes first */
        if (theirs[k] != step && !same_operation(step, theirs[k]))
            return false;
    }
    return true;
}

/* The stream has no Step of this table entry left to run. */
static bool entry_over(const Rank *rank, Stream stream, const Step *step)
{
    const Step *next = head(rank, stream);
    return !next || step_entry_before(step, next);
}

/* The stream has run a Step of a later entry. */
static bool begun_later(const Rank *rank, Stream stream, const Step *step)
{
    int done = rank->head[stream];
    if (done == 0)
        return false;
    const Step *latest = rank->steps.at[rank->queue[stream].at[done - 1]];
    return step_entry_before(step, latest);
}

/* Behind the last Step of a compute row, on either stream: what it leaves in the scratch area must
 * not be read again. A later row that has begun already owns the area, and then the events alone
 * must do. */
static void poison_scratch(const Machine *machine, Rank *rank, const Step *step)
{
    const StageProgram *stage = &machine->program->stage[rank->stage];
    bool row = stage_entry(stage, step->entry, step->evaluates)->kind == ENTRY_COMPUTE &&
               (step->stream == STREAM_COMPUTE || step->stream == STREAM_BLOCK);
    if (!row || !entry_over(rank, STREAM_COMPUTE, step) || !entry_over(rank, STREAM_BLOCK, step))
        return;
    if (begun_later(rank, STREAM_COMPUTE, step) || begun_later(rank, STREAM_BLOCK, step))
        return;
    double *scratch = rank_at(rank, stage->scratch);
    for (int64_t i = 0; i < stage->scratch_bytes / WIDTH; i++)
        scratch[i] = NAN;
}

/* Tries the head of one stream of one rank. */
static bool try_head(Machine *machine, Rank *rank, Stream stream)
{
    Step *step = head(rank, stream);
    if (!step || !waits_done(rank, step))
        return false;
    Rank *member[MAX_GROUP];
    Step *theirs[MAX_GROUP];
    int n = partners(machine, rank, step, member);
    if (!group_ready(rank, step, member, theirs, n))
        return false;
    machine_perform(machine, member, theirs, n);
    for (int k = 0; k < n; k++) {
        member[k]->head[theirs[k]->stream]++;
        poison_scratch(machine, member[k], theirs[k]);
    }
    return true;
}

static bool run_once(Machine *machine)
{
    int heads = machine->ranks * STREAM_COUNT;
    int start =
        machine->seed ? (int)(rng_u64(machine->seed, 1, machine->draws++) % (uint64_t)heads) : 0;
    for (int i = 0; i < heads && !machine->fault; i++) {
        int at = (start + i) % heads;
        if (try_head(machine, &machine->rank[at / STREAM_COUNT], (Stream)(at % STREAM_COUNT)))
            return true;
    }
    return false;
}

static void collect_steps(Machine *machine, int rounds)
{
    for (int r = 0; r < machine->ranks; r++) {
        Rank *rank = &machine->rank[r];
        rank->steps.n = 0;
        for (int s = 0; s < STREAM_COUNT; s++)
            rank->queue[s].n = rank->head[s] = 0;
        Arena *scratch = arena_new("walk");
        Walk *walk = (machine->evaluates ? walk_begin_evaluating : walk_begin)(
            scratch, machine->program, rank->stage, rank->coordinate, rounds);
        for (const Step *step; (step = walk_next(walk)) != NULL;) {
            size_t bytes = offsetof(Step, operand) + (size_t)step->operands * sizeof(Operand);
            Step *kept = arena_alloc(machine->arena, bytes);
            memcpy(kept, step, bytes);
            vec_push(machine->arena, &rank->queue[step->stream]) = rank->steps.n;
            vec_push(machine->arena, &rank->steps) = kept;
        }
        arena_free(scratch);
        rank->known = ARENA_ARRAY(machine->arena, Known *, rank->steps.n);
    }
}

bool machine_run(Machine *machine, const EvalBatch *batch, int rounds, double lr, uint64_t seed,
                 const Mutation *mutation, const char **ret_fault)
{
    if (machine->rounds != rounds) {
        collect_steps(machine, rounds);
        machine->rounds = rounds;
        machine->loss =
            ARENA_ARRAY(machine->arena, double, rounds *net_losses(machine->program->net));
        machine->norm2 = ARENA_ARRAY(machine->arena, double, rounds);
        machine->evaluated =
            ARENA_ARRAY(machine->arena, double, rounds *net_losses(machine->program->net));
    }
    for (int r = 0; r < machine->ranks; r++) {
        memset(machine->rank[r].head, 0, sizeof machine->rank[r].head);
        memset(machine->rank[r].stale, 0,
               (2 * (size_t)machine->program->chunks + 2) * sizeof(double *));
    }
    machine->batch = batch;
    machine->lr = lr;
    machine->seed = seed;
    machine->draws = 0;
    machine->fault = NULL;
    machine->differs = false;
    for (int r = 0; r < rounds; r++)
        machine->norm2[r] = NAN;
    for (int k = 0; k < rounds * net_losses(machine->program->net); k++)
        machine->loss[k] = machine->evaluated[k] = NAN;
    machine->site =
        mutation && mutation->kind != MUTATE_NONE ? &machine->sites.at[mutation->site] : NULL;
    machine->poisons = machine->site && mutation->poison;
    while (!machine->differs && run_once(machine))
        continue;
    for (int r = 0; r < machine->ranks; r++)
        for (int s = 0; s < STREAM_COUNT; s++) {
            Rank *rank = &machine->rank[r];
            if (!machine->fault && !machine->differs && rank->head[s] < rank->queue[s].n) {
                Str text = str_new(machine->arena);
                str_putf(&text, "deadlock: stage %d rank %d never runs ", rank->stage,
                         rank->coordinate);
                step_put(&text, machine->program, head(rank, (Stream)s));
                machine->fault = text.at;
            }
        }
    *ret_fault = machine->fault;
    return machine->fault == NULL;
}
