/* taps.c - faults of single ranks, for the static proof to find and to name. */
#include <string.h>

#include "ir/lower/check.h"
#include "tests/bugs/bug.h"

typedef struct Tap {
    TapKind kind;
    const Program *program;
    bool hit;
    bool gathers[STREAM_COUNT]; /* streams on which updated weights are gathered */
    bool held;                  /* ORDER: the first of the two was taken out */
    Step first;
    Step owner; /* OWNERS: the first sum of an owner */
} Tap;

static bool accumulates(const Operand *operand)
{
    return operand->write && operand->copy && operand->copy->home == HOME_ACC;
}

static void drop_waits(Tap *tap, Step *step, unsigned streams)
{
    int kept = 0;
    for (int w = 0; w < step->waits; w++) {
        if (streams >> step->wait[w].stream & 1)
            tap->hit = true;
        else
            step->wait[kept++] = step->wait[w];
    }
    step->waits = kept;
}

static unsigned gather_streams(Tap *tap, const Step *step)
{
    unsigned streams = 0;
    if (step->kind == STEP_MOVE && step->bucket != NONE && step->move->kind == MOVE_ALL_GATHER)
        tap->gathers[step->stream] = true;
    for (int s = 0; s < STREAM_COUNT; s++)
        streams |= tap->gathers[s] ? 1u << s : 0;
    return streams;
}

/* Takes the first collective of coordinate 1 out and puts it in place of the next one. */
static bool swap_order(Tap *tap, Step *step)
{
    if (step->coordinate != 1 || step->kind != STEP_MOVE || step->move->kind > MOVE_PERMUTE ||
        tap->hit)
        return true;
    if (!tap->held) {
        tap->held = true;
        tap->first = *step;
        return false;
    }
    if (step->move == tap->first.move && step->micro == tap->first.micro)
        return true;
    int64_t seq = step->seq;
    *step = tap->first;
    step->seq = seq;
    tap->hit = true;
    return true;
}

static bool is_optimizer(const Tap *tap, const Step *step, NodeId node)
{
    return step->node == &tap->program->optimizer->nodes.at[node];
}

static bool tap_step(void *context, Step *step)
{
    Tap *tap = context;
    int last = mesh_ranks(&tap->program->plan->mesh) - 1;
    unsigned received = 1u << STREAM_RECV_ACT | 1u << STREAM_RECV_GRAD;
    switch (tap->kind) {
    case TAP_ADD:
    case TAP_OVERWRITE:
        for (int k = 0; k < step->operands; k++)
            if (accumulates(&step->operand[k]) &&
                step->operand[k].read == (tap->kind == TAP_OVERWRITE)) {
                step->operand[k].read = tap->kind == TAP_ADD;
                tap->hit = true;
            }
        return true;
    case TAP_NO_SUM:
        if (tap->hit || step->coordinate != last || step->stage != tap->program->stages - 1 ||
            !is_optimizer(tap, step, tap->program->sumsq))
            return true;
        tap->hit = true;
        return false;
    case TAP_NO_UPDATE:
        if (tap->hit || step->coordinate != last || !is_optimizer(tap, step, tap->program->adamw))
            return true;
        tap->hit = true;
        return false;
    case TAP_SHARD:
        if (tap->hit || step->coordinate != last || !step->inst || step->bucket == NONE)
            return true;
        step->from_element += step->count / 2;
        tap->hit = true;
        return true;
    case TAP_OWNERS: /* a rank that owns nothing counts what the bucket's owner counts */
        if (is_optimizer(tap, step, tap->program->sumsq) && step->count > 0 &&
            tap->owner.count == 0)
            tap->owner = *step;
        if (tap->hit || step->coordinate == 0 || step->count > 0 ||
            !is_optimizer(tap, step, tap->program->sumsq) || tap->owner.bucket != step->bucket ||
            tap->owner.stage != step->stage || tap->owner.round != step->round)
            return true;
        step->waits = tap->owner.waits;
        memcpy(step->wait, tap->owner.wait, sizeof step->wait);
        step->count = tap->owner.count;
        step->from_element = tap->owner.from_element;
        for (int k = 0; k < step->operands; k++)
            step->operand[k] = tap->owner.operand[k];
        tap->hit = true;
        return true;
    case TAP_UPDATE:
        if (is_optimizer(tap, step, tap->program->adamw) ||
            is_optimizer(tap, step, tap->program->sumsq))
            drop_waits(tap, step, ~0u);
        return true;
    case TAP_GATHER: {
        unsigned streams = gather_streams(tap, step);
        if (step->inst)
            drop_waits(tap, step, streams);
        return true;
    }
    case TAP_RECV:
        if (step->inst)
            drop_waits(tap, step, received);
        return true;
    case TAP_ORDER:
        return swap_order(tap, step);
    default:
        return true;
    }
}

/* What one fault's words must all hold: who, when, which bytes, and what is wrong with them. */
enum { PIECES = 5 };
static const char *const says[TAP_COUNT][PIECES] = {
    [TAP_ADD] = {"rank ", "step ", "bytes ", "adds to what an earlier step left"},
    [TAP_OVERWRITE] = {"rank ", "micro-batch 1", "overwrites what earlier micro-batches added"},
    [TAP_NO_SUM] = {"rank ", "step ", "bucket ", "counted in the norm 0 times"},
    [TAP_NO_UPDATE] = {"rank ", "step ", "bucket ", "elements are updated"},
    [TAP_UPDATE] = {"rank ", "step ", "bytes ", "of group ", "does not wait for"},
    [TAP_GATHER] = {"rank ", "step 1", "of group ", "does not wait for"},
    [TAP_RECV] = {"rank ", "step ", "ring, slot ", "does not wait for"},
    [TAP_ORDER] = {"ranks ", "micro-batch ", "disagree about what they do together"},
    [TAP_OWNERS] = {"elements ", "of group ", "have two owners in the norm, ranks "},
    [TAP_SHARD] = {"rank ", "bucket ", "step ",
                   "steps another matrix than the next of this rank's"},
    [TAP_OVERLAP] = {"stage 0", "scratch", "share bytes "},
};

/* The same of weights that come together for each use. */
static const char *const says_fetched[PIECES] = {"rank ", "bytes ", "of the fetched weights",
                                                 "all_gather", "does not wait for"};

static bool has_pieces(const char *text, const char *const *piece)
{
    for (int k = 0; k < PIECES && piece[k]; k++)
        if (!strstr(text, piece[k]))
            return false;
    return true;
}

static bool says_all(const char *text, TapKind kind)
{
    return has_pieces(text, says[kind]) || (kind == TAP_GATHER && has_pieces(text, says_fetched));
}

/* The scratch area begins where the area before it still goes on. */
static bool check_overlapping(const Program *program, Diag *diag)
{
    CheckReport report;
    StageProgram *stage = &program->stage[0];
    stage->scratch -= 64;
    bool holds = program_check(program->arena, program, 2, diag, &report);
    stage->scratch += 64;
    return holds;
}

bool tap_caught(const Program *program, TapKind kind, bool *ret_hit, const char **ret_said)
{
    Tap *tap = ARENA_NEW(program->arena, Tap);
    *tap = (Tap){.kind = kind, .program = program};
    CheckTap look = {tap_step, tap};
    CheckReport report;
    Diag *diag = diag_new(program->arena);
    bool holds = kind == TAP_OVERLAP
                     ? check_overlapping(program, diag)
                     : program_check_tapped(program->arena, program, 2, &look, diag, &report);
    *ret_hit = tap->hit || kind == TAP_OVERLAP;
    *ret_said = holds ? "nothing" : diag_item(diag, 0)->text;
    for (int i = 0; !holds && i < diag_count(diag); i++)
        if (says_all(diag_item(diag, i)->text, kind)) {
            *ret_said = diag_item(diag, i)->text;
            return true;
        }
    return false;
}
