/* check_order.c - the static proof of order between ranks: one sequence in every communicator,
 * messages in pairs, no deadlock. */
#include "ir/lower/check_in.h"

#include <stdlib.h>
#include <string.h>

/* ---- inside a stage ---- */

static bool communicates(const TraceStep *step)
{
    return step_is_collective(step) || step_crosses(step);
}

static int64_t moved_bytes(const Trace *trace, const TraceStep *step)
{
    return step->operands ? trace->operands.at[step->operand].bytes : 0;
}

static bool same_operation(const Trace *a, const TraceStep *x, const Trace *b, const TraceStep *y)
{
    return x->kind == y->kind && x->stream == y->stream && x->round == y->round &&
           x->entry == y->entry && x->link == y->link && x->micro == y->micro &&
           x->bucket == y->bucket && x->peer == y->peer && x->message == y->message &&
           x->boundary == y->boundary && x->inst == y->inst && x->move == y->move &&
           x->elements == y->elements && moved_bytes(a, x) == moved_bytes(b, y);
}

static const TraceStep *next_communication(const Trace *trace, int *at)
{
    while (*at < trace->steps.n && !communicates(&trace->steps.at[*at]))
        (*at)++;
    return *at < trace->steps.n ? &trace->steps.at[(*at)++] : NULL;
}

/* The first rank of the group in which a rank takes part in a collective. */
static int group_first(const Trace *trace, const TraceStep *step, int rank)
{
    const Mesh *mesh = &trace->program->plan->mesh;
    const AtomList *atoms = &step->move->atoms;
    return mesh_turned(mesh, atoms, rank, list_extent(mesh, atoms) - list_index(mesh, atoms, rank));
}

/* A collective of the first list that only other ranks have: does the group of this one do without
 * it, too? It is noted; check_absences asks whether all of that group do. */
static bool may_miss(Check *check, const Trace *first, const TraceStep *step, const Trace *other,
                     Absences *absences)
{
    if (!step_is_collective(step))
        return false;
    int own = group_first(first, step, other->coordinate);
    if (own == group_first(first, step, first->coordinate))
        return false;
    vec_push(check->arena, &absences->list) = (Absence){(int)(step - first->steps.at), own};
    return true;
}

bool check_same_communication(Check *check, const Trace *first, const Trace *other,
                              Absences *absences)
{
    int i = 0, j = 0;
    for (;;) {
        const TraceStep *x = next_communication(first, &i), *y = next_communication(other, &j);
        while (x && (!y || !same_operation(first, x, other, y)) &&
               may_miss(check, first, x, other, absences))
            x = next_communication(first, &i);
        if (!x && !y)
            return true;
        if (!x || !y || !same_operation(first, x, other, y))
            return check_fault(check,
                               "ranks %d and %d disagree about what they do together: %s, and %s",
                               trace_rank(first), trace_rank(other),
                               x ? trace_name(check->arena, first, x) : "nothing more",
                               y ? trace_name(check->arena, other, y) : "nothing more");
    }
}

static int by_step(const void *a, const void *b)
{
    const Absence *x = a, *y = b;
    return x->step != y->step ? (x->step > y->step) - (x->step < y->step)
                              : (x->group > y->group) - (x->group < y->group);
}

bool check_absences(Check *check, const Trace *first, Absences *absences)
{
    const Absence *at = absences->list.at;
    int n = absences->list.n;
    if (n > 0)
        qsort(absences->list.at, (size_t)n, sizeof *at, by_step);
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && by_step(&at[i], &at[end]) == 0;)
            end++;
        const TraceStep *step = &first->steps.at[at[i].step];
        int ranks = list_extent(&first->program->plan->mesh, &step->move->atoms);
        if (end - i != ranks)
            return check_fault(check, "%d of the %d ranks beside rank %d have no part in %s",
                               end - i, ranks, at[i].group, trace_name(check->arena, first, step));
    }
    return true;
}

typedef struct Communicator {
    Stream stream;
    AtomList atoms;
} Communicator;

static bool check_partition(Check *check, const Trace *trace, const AtomList *atoms)
{
    const Mesh *mesh = &trace->program->plan->mesh;
    Arena *scratch = arena_new("groups");
    int ranks = mesh_ranks(mesh);
    int *own = ARENA_ARRAY(scratch, int, ranks), *first = ARENA_ARRAY(scratch, int, ranks);
    bool good = true;
    for (int rank = 0; rank < ranks && good; rank++) {
        int n = mesh_group(mesh, atoms, rank, own, ranks), me = list_index(mesh, atoms, rank);
        int m = mesh_group(mesh, atoms, own[0], first, ranks);
        good = n == m && me < n && own[me] == rank &&
               memcmp(own, first, (size_t)n * sizeof own[0]) == 0;
        if (!good)
            check_fault(check,
                        "stage %d: rank %d and rank %d name different groups for one collective",
                        trace->stage->index, rank, own[0]);
    }
    arena_free(scratch);
    return good;
}

bool check_groups(Check *check, const Trace *trace)
{
    const Mesh *mesh = &trace->program->plan->mesh;
    Arena *scratch = arena_new("communicators");
    VEC(Communicator) known = {0};
    bool good = true;
    for (int i = 0; i < trace->steps.n; i++) {
        const TraceStep *step = &trace->steps.at[i];
        if (!step_is_collective(step))
            continue;
        check->report->collectives++;
        bool seen = false;
        for (int k = 0; k < known.n && !seen; k++)
            seen = known.at[k].stream == step->stream &&
                   memcmp(&known.at[k].atoms, &step->move->atoms, sizeof step->move->atoms) == 0;
        if (seen)
            continue;
        vec_push(scratch, &known) = (Communicator){step->stream, step->move->atoms};
        check->report->communicators += mesh_ranks(mesh) / list_extent(mesh, &step->move->atoms);
        good &= check_partition(check, trace, &step->move->atoms);
    }
    arena_free(scratch);
    return good;
}

/* ---- between stages ---- */

void take_crossings(Arena *arena, const Trace *trace, CrossingList *ret)
{
    for (int i = 0; i < trace->steps.n; i++) {
        const TraceStep *step = &trace->steps.at[i];
        if (!step_crosses(step))
            continue;
        const Operand *operand = &trace->operands.at[step->operand];
        vec_push(arena, &ret->list) = (Crossing){step->kind,
                                                 step->stream,
                                                 step->message,
                                                 step->peer,
                                                 step->micro,
                                                 step->round,
                                                 step->bucket,
                                                 step->boundary,
                                                 operand->bytes,
                                                 operand->copy,
                                                 i};
    }
}

static const char *crossing_name(Arena *arena, int stage, const Crossing *crossing)
{
    const char *what = crossing->message == MSG_ACTIVATION ? "activation" : "gradient";
    switch (crossing->kind) {
    case STEP_SEND:
        return arena_printf(arena, "stage %d's send of micro-batch %d's %s to stage %d in step %d",
                            stage, crossing->micro, what, crossing->peer, crossing->round);
    case STEP_RECV:
        return arena_printf(arena,
                            "stage %d's receive of micro-batch %d's %s from stage %d in step %d",
                            stage, crossing->micro, what, crossing->peer, crossing->round);
    case STEP_TIED:
        return arena_printf(arena, "stage %d's tied sum of bucket %d with stage %d in step %d",
                            stage, crossing->bucket, crossing->peer, crossing->round);
    default:
        return arena_printf(arena, "stage %d's sum over the world in step %d", stage,
                            crossing->round);
    }
}

/* The next crossing of this kind with this peer. */
static const Crossing *next_of(const CrossingList *list, int *at, StepKind kind, MsgKind message,
                               int peer)
{
    for (; *at < list->list.n; (*at)++) {
        const Crossing *crossing = &list->list.at[*at];
        if (crossing->kind == kind && crossing->peer == peer &&
            (kind == STEP_TIED || crossing->message == message))
            return &list->list.at[(*at)++];
    }
    return NULL;
}

static bool same_message(const Crossing *a, const Crossing *b)
{
    if (a->bytes != b->bytes || a->round != b->round || a->micro != b->micro ||
        a->boundary != b->boundary)
        return false;
    return !a->copy || !b->copy ||
           (place_equal(&a->copy->place, &b->copy->place) && a->copy->dtype == b->copy->dtype &&
            memcmp(a->copy->local, b->copy->local, sizeof a->copy->local) == 0);
}

/* What one stage sends to another and what that one receives, in order. */
static bool check_channel(Check *check, const CrossingList *stage, int from, int to, StepKind sends,
                          StepKind receives, MsgKind message)
{
    int i = 0, j = 0, n = 0;
    for (;; n++) {
        const Crossing *x = next_of(&stage[from], &i, sends, message, to);
        const Crossing *y = next_of(&stage[to], &j, receives, message, from);
        if (!x && !y)
            break;
        if (!x || !y || !same_message(x, y))
            return check_fault(check, "%s meets %s",
                               x ? crossing_name(check->arena, from, x) : "no send",
                               y ? crossing_name(check->arena, to, y) : "no receive");
    }
    if (sends == STEP_SEND && n > 0) {
        check->report->channels++;
        check->report->messages += n;
    } else if (n > 0) {
        check->report->communicators += mesh_ranks(&check->program->plan->mesh);
    }
    return true;
}

bool check_messages(Check *check, const CrossingList *stage)
{
    int stages = check->program->stages;
    bool good = true;
    for (int s = 0; s < stages; s++)
        for (int i = 0; i < stage[s].list.n; i++) {
            const Crossing *crossing = &stage[s].list.at[i];
            if (crossing->kind != STEP_WORLD &&
                (crossing->peer < 0 || crossing->peer >= stages || crossing->peer == s))
                return check_fault(check, "%s: there is no such stage",
                                   crossing_name(check->arena, s, crossing));
        }
    for (int a = 0; a < stages; a++)
        for (int b = 0; b < stages; b++) {
            good &= check_channel(check, stage, a, b, STEP_SEND, STEP_RECV, MSG_ACTIVATION);
            good &= check_channel(check, stage, a, b, STEP_SEND, STEP_RECV, MSG_GRADIENT);
            if (a < b)
                good &= check_channel(check, stage, a, b, STEP_TIED, STEP_TIED, MSG_ACTIVATION);
        }
    check->report->communicators++; /* the world's */
    return good;
}

/* ---- deadlock ---- */

/* Two crossings that meet. */
static bool meet(int a, const Crossing *x, int b, const Crossing *y)
{
    if (x->kind == STEP_WORLD || y->kind == STEP_WORLD || x->peer != b || y->peer != a)
        return false;
    if (x->kind == STEP_TIED || y->kind == STEP_TIED)
        return x->kind == y->kind;
    return x->kind != y->kind && x->message == y->message;
}

/* Every stage goes through its communication in the one order of its table, as if it had a single
 * stream. Waits and streams point back in that order on every rank, so when this run ends, every
 * run does. */
static bool run_in_order(Check *check, const CrossingList *stage)
{
    int stages = check->program->stages;
    int *at = ARENA_ARRAY(check->arena, int, stages);
    for (bool moved = true; moved;) {
        moved = false;
        int in_world = 0;
        for (int s = 0; s < stages; s++) {
            while (at[s] < stage[s].list.n) {
                const Crossing *own = &stage[s].list.at[at[s]];
                int peer = own->peer;
                if (own->kind == STEP_WORLD || at[peer] == stage[peer].list.n ||
                    !meet(s, own, peer, &stage[peer].list.at[at[peer]]))
                    break;
                at[s]++;
                at[peer]++;
                moved = true;
            }
            in_world += at[s] < stage[s].list.n && stage[s].list.at[at[s]].kind == STEP_WORLD;
        }
        for (int s = 0; s < stages && in_world == stages; s++) {
            at[s]++;
            moved = true;
        }
    }
    for (int s = 0; s < stages; s++)
        if (at[s] < stage[s].list.n)
            return false;
    return true;
}

/* One stage rank with its streams. */
typedef struct Runner {
    Trace *trace;
    VEC(int32_t) queue[STREAM_COUNT];
    int head[STREAM_COUNT];
} Runner;

static const TraceStep *ready_head(const Runner *runner, int stream)
{
    if (runner->head[stream] == runner->queue[stream].n)
        return NULL;
    const TraceStep *step =
        &runner->trace->steps.at[runner->queue[stream].at[runner->head[stream]]];
    for (int w = 0; w < step->waits; w++) {
        const Wait *wait = &runner->trace->waits.at[step->wait + w];
        if (wait->stream >= STREAM_COUNT || runner->head[wait->stream] <= wait->seq)
            return NULL;
    }
    return step;
}

static bool try_meeting(Runner *runner, int stages, int own, int stream, const TraceStep *step)
{
    if (step->peer < 0 || step->peer >= stages)
        return false;
    Runner *peer = &runner[step->peer];
    for (int s = 0; s < STREAM_COUNT; s++) {
        const TraceStep *other = ready_head(peer, s);
        if (!other || !step_crosses(other))
            continue;
        Crossing x = {.kind = step->kind, .message = step->message, .peer = step->peer};
        Crossing y = {.kind = other->kind, .message = other->message, .peer = other->peer};
        if (meet(own, &x, step->peer, &y)) {
            runner[own].head[stream]++;
            peer->head[s]++;
            return true;
        }
    }
    return false;
}

static bool try_world(Runner *runner, int stages)
{
    int found = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int s = 0; s < stages; s++)
            for (int k = 0; k < STREAM_COUNT; k++) {
                const TraceStep *step = ready_head(&runner[s], k);
                if (!step || step->kind != STEP_WORLD)
                    continue;
                found += pass == 0;
                if (pass == 1 && found == stages) {
                    runner[s].head[k]++;
                    break;
                }
            }
    return found == stages;
}

static bool run_heads(Runner *runner, int stages)
{
    bool moved = false;
    for (int s = 0; s < stages; s++)
        for (int k = 0; k < STREAM_COUNT; k++)
            for (const TraceStep *step; (step = ready_head(&runner[s], k)) != NULL; moved = true) {
                if (!step_crosses(step))
                    runner[s].head[k]++;
                else if (step->kind == STEP_WORLD || !try_meeting(runner, stages, s, k, step))
                    break;
            }
    return moved || try_world(runner, stages);
}

/* Where the first stages that are not at their end stand. */
static bool name_heads(Check *check, const Runner *runner, int stages)
{
    Str text = str_new(check->arena);
    int named = 0, left = 0;
    for (int s = 0; s < stages; s++)
        for (int k = 0; k < STREAM_COUNT; k++)
            if (runner[s].head[k] < runner[s].queue[k].n) {
                const Trace *trace = runner[s].trace;
                const TraceStep *step = &trace->steps.at[runner[s].queue[k].at[runner[s].head[k]]];
                if ((step_crosses(step) || left == 0) && named++ < 6)
                    str_putf(&text, "%s%s", named > 1 ? "; " : "",
                             trace_name(check->arena, trace, step));
                left++;
            }
    return left == 0 || check_fault(check, "deadlock: these wait for each other: %s", text.at);
}

/* With streams and events, on rank 0 of every stage: less strict than one order. */
static bool run_streams(Check *check)
{
    const Program *program = check->program;
    Arena *scratch = arena_new("streams");
    Runner *runner = ARENA_ARRAY(scratch, Runner, program->stages);
    for (int s = 0; s < program->stages; s++) {
        runner[s].trace = trace_take(check, scratch, program, s, 0, true);
        for (int i = 0; i < runner[s].trace->steps.n; i++)
            vec_push(scratch, &runner[s].queue[runner[s].trace->steps.at[i].stream]) = i;
    }
    while (run_heads(runner, program->stages))
        continue;
    bool good = name_heads(check, runner, program->stages);
    arena_free(scratch);
    return good;
}

bool check_deadlock(Check *check, const CrossingList *stage)
{
    return run_in_order(check, stage) || run_streams(check);
}
