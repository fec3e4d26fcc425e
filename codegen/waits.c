/* waits.c - walks every stage and names its waits. */
#include "codegen/waits.h"

#include <string.h>

#include "ir/base/vec.h"

typedef struct Entries {
    Place place;
    VEC(Event) events;
} Entries;

struct Waits {
    Arena *arena;
    const Program *program;
    VEC(Entries) places;
};

/* A communication Step under way. */
typedef struct Flying {
    Event event;
    int micro;
    int64_t seq;
    int operands;
    Operand operand[2 * MAX_OPERANDS];
} Flying;

typedef struct Flight {
    VEC(Flying) steps; /* of one stream, not yet waited for */
} Flight;

static bool place_same(const Place *a, const Place *b)
{
    return a->kind == b->kind && a->stage == b->stage && a->class == b->class &&
           a->which == b->which && a->inst == b->inst && a->index == b->index &&
           a->chunk == b->chunk;
}

static Entries *entries_at(Waits *waits, Place place)
{
    for (int i = 0; i < waits->places.n; i++) {
        if (place_same(&waits->places.at[i].place, &place))
            return &waits->places.at[i];
    }
    vec_push(waits->arena, &waits->places) = (Entries){.place = place};
    return &waits->places.at[waits->places.n - 1];
}

static void add_event(Waits *waits, Place place, Event event)
{
    Entries *entries = entries_at(waits, place);
    for (int i = 0; i < entries->events.n; i++) {
        Event *known = &entries->events.at[i];
        if (known->kind == event.kind && known->class == event.class &&
            known->which == event.which && known->inst == event.inst &&
            known->stream == event.stream && known->chunk == event.chunk &&
            known->bucket == event.bucket) {
            known->any_slot = known->any_slot || event.any_slot;
            return;
        }
    }
    vec_push(waits->arena, &entries->events) = event;
}

int waits_at(const Waits *waits, const Place *place, const Event **ret_events)
{
    for (int i = 0; i < waits->places.n; i++) {
        if (place_same(&waits->places.at[i].place, place)) {
            *ret_events = waits->places.at[i].events.at;
            return waits->places.at[i].events.n;
        }
    }
    return 0;
}

/* Which instruction of which class the Step runs. */
static void find_inst(const Program *program, const Step *step, int *ret_class, int *ret_which,
                      int *ret_inst)
{
    const Body *body = step->body;
    for (int c = 0; c < program->bodies; c++) {
        if (program->body[c] == body)
            *ret_class = c;
    }
    *ret_which = body_list_with(body, step->inst);
    *ret_inst = (int)(step->inst - body_list(body, *ret_which)->at);
}

static Event event_of(const Program *program, const Step *step)
{
    Event event = {.kind = EVENT_WORLD};
    switch (step->kind) {
    case STEP_SEND:
    case STEP_RECV:
        event.kind = EVENT_MESSAGE;
        event.stream = step->stream;
        event.chunk =
            stage_entry(&program->stage[step->stage], step->entry, step->evaluates)->chunk;
        break;
    case STEP_MOVE:
    case STEP_TIED:
        if (step->inst) {
            event.kind = EVENT_INST;
            find_inst(program, step, &event.class, &event.which, &event.inst);
        } else {
            event.kind = step->stream == STREAM_WEIGHT ? EVENT_FETCH : EVENT_BUCKET;
            event.bucket = step->bucket;
        }
        break;
    case STEP_COPY:
        event.kind = EVENT_HOP;
        event.stream = step->stream;
        event.bucket = step->bucket;
        if (step_carries(step) == KEPT_SAVED) {
            bool out = step->operand[0].address < step->operand[1].address;
            event.kind = out ? EVENT_SPILL : EVENT_FILL;
            event.bucket = program->stage[step->stage].link[step->link].block;
        }
        if (step_carries(step) == KEPT_WEIGHTS)
            event.kind = EVENT_CARRY;
        if (step_carries(step) == KEPT_GRADIENTS)
            event.kind =
                step->operand[0].address < step->operand[1].address ? EVENT_TAKEN : EVENT_BROUGHT;
        break;
    default:
        break;
    }
    return event;
}

/* The move brings a micro-batch's gradients home. */
static bool scatters(const Program *program, const Step *step)
{
    const StageProgram *stage = &program->stage[step->stage];
    const Path *path = &stage->groups.at[stage->buckets.at[step->bucket].group].scatter;
    return step->move >= path->move && step->move < path->move + path->n;
}

/* Messages, buckets and the world belong to a stage: a link waits for them before its body.
 * Collectives of bodies are waited for at the instruction. */
static Place place_of(const Program *program, const Step *step, EventKind kind)
{
    Place place = {.stage = step->stage};
    const Entry *entry = stage_entry(&program->stage[step->stage], step->entry, step->evaluates);
    if (step->inst) {
        find_inst(program, step, &place.class, &place.which, &place.inst);
        place.kind = PLACE_INST;
        if (kind == EVENT_INST) {
            place.stage = NONE;
            return place;
        }
        if (step->link == NONE)
            return (Place){.kind = PLACE_UPDATE, .stage = step->stage, .index = step->bucket};
        return (Place){
            .kind = PLACE_LINK, .stage = step->stage, .which = place.which, .index = step->link};
    }
    place.index = step->bucket == NONE ? 0 : step->bucket;
    switch (step->kind) {
    case STEP_LOAD:
        place.kind = PLACE_LOAD;
        place.chunk = entry->chunk;
        break;
    case STEP_SEND:
    case STEP_RECV:
        place.kind = step->kind == STEP_SEND ? PLACE_SEND : PLACE_RECV;
        place.index = step->message;
        place.chunk = entry->chunk;
        break;
    case STEP_TIED:
        place.kind = PLACE_TIED;
        break;
    case STEP_OWN_LOSS:
    case STEP_WORLD:
        place.kind = step->evaluates ? PLACE_EVALUATED : PLACE_WORLD;
        break;
    case STEP_COPY:
        place.kind = step->bucket == NONE                   ? PLACE_SPILL
                     : step_carries(step) == KEPT_WEIGHTS   ? PLACE_CARRY
                     : step_carries(step) == KEPT_GRADIENTS ? PLACE_SUMS
                                                            : PLACE_HOP;
        place.which = (int)(step->stream - STREAM_COPY_IN);
        if (step->bucket == NONE)
            place.index = program->stage[step->stage].link[step->link].block;
        break;
    case STEP_MOVE:
        place.kind = step->stream == STREAM_WEIGHT ? PLACE_FETCH
                     : entry->kind == ENTRY_UPDATE ? PLACE_GATHER
                     : scatters(program, step)     ? PLACE_SCATTER
                                                   : PLACE_REDUCE;
        break;
    case STEP_CLEAR:
    case STEP_ACCUMULATE:
        place.kind = PLACE_FOLD;
        break;
    default:
        place.kind = step->node->op == OP_SUMSQ  ? PLACE_NORM
                     : step->node->op == OP_CLIP ? PLACE_CLIP
                                                 : PLACE_UPDATE;
        break;
    }
    return place;
}

RingKind message_ring(Stream stream)
{
    return stream == STREAM_SEND_ACT    ? RING_OUT
           : stream == STREAM_RECV_ACT  ? RING_IN
           : stream == STREAM_SEND_GRAD ? RING_GRAD_OUT
                                        : RING_GRAD_IN;
}

static bool same_slot(const Program *program, const Step *step, const Event *event, int micro)
{
    const Chunk *chunk = &program->stage[step->stage].chunk[event->chunk];
    const Ring *ring = &chunk->ring[message_ring(event->stream)];
    return step->micro != NONE && ring->n > 0 &&
           ring_slot(ring, micro_number(program, step->round, step->micro), false) ==
               ring_slot(ring, micro, false);
}

/* Of its micro-batch, by which rings go. */
static int number_of(const Program *program, const Step *step)
{
    return step->micro == NONE ? NONE : micro_number(program, step->round, step->micro);
}

static bool is_spill(const Event *event)
{
    return event->kind >= EVENT_CARRY && event->kind <= EVENT_FILL;
}

/* Lanes between memories run in order, so that one wait is enough; hops of state are named one by
 * one, and stand for themselves. */
static bool wants_spill(const Flight *flight, int64_t seq)
{
    bool wants = false;
    for (int i = 0; i < flight->steps.n; i++)
        wants = wants || (flight->steps.at[i].seq == seq && is_spill(&flight->steps.at[i].event));
    return wants;
}

/* The Step waits for everything of the stream up to seq. */
static void wait_until(Waits *waits, const Step *step, Flight *flight, int64_t seq)
{
    bool wanted = wants_spill(flight, seq);
    int kept = 0;
    for (int i = 0; i < flight->steps.n; i++) {
        Flying *flying = &flight->steps.at[i];
        bool spill = is_spill(&flying->event);
        if (flying->seq > seq || (wanted && !spill)) {
            flight->steps.at[kept++] = *flying;
            continue;
        }
        Event event = flying->event;
        if (spill && flying->seq < seq)
            continue;
        event.any_slot =
            event.kind == EVENT_MESSAGE && !same_slot(waits->program, step, &event, flying->micro);
        add_event(waits, place_of(waits->program, step, event.kind), event);
    }
    flight->steps.n = kept;
}

static bool conflicts(const Flying *flying, const Step *step)
{
    for (int i = 0; i < flying->operands; i++) {
        for (int k = 0; k < step->operands; k++) {
            const Operand *a = &flying->operand[i], *b = &step->operand[k];
            bool apart = a->address + a->bytes <= b->address || b->address + b->bytes <= a->address;
            if (!apart && a->bytes && b->bytes && (a->write || b->write))
                return true;
        }
    }
    return false;
}

static void walk_rank(Waits *waits, int stage, int coordinate, bool evaluates)
{
    Arena *scratch = arena_new("waits");
    Flight flight[STREAM_COUNT];
    memset(flight, 0, sizeof flight);
    Walk *walk = (evaluates ? walk_begin_evaluating : walk_begin)(
        scratch, waits->program, stage, coordinate, program_rounds(waits->program));
    for (const Step *step = walk_next(walk); step; step = walk_next(walk)) {
        for (int w = 0; w < step->waits; w++) {
            if (step->wait[w].stream != STREAM_COMPUTE)
                wait_until(waits, step, &flight[step->wait[w].stream], step->wait[w].seq);
        }
        if (step->stream == STREAM_COMPUTE)
            continue;
        Flight *own = &flight[step->stream];
        for (int i = own->steps.n - 1; i >= 0; i--) {
            if (conflicts(&own->steps.at[i], step)) {
                wait_until(waits, step, own, own->steps.at[i].seq);
                break;
            }
        }
        if (step->kind == STEP_WORLD && !waits->program->flows)
            continue; /* waited for where it is issued */
        Flying *flying = &vec_push(scratch, &own->steps);
        *flying = (Flying){event_of(waits->program, step),
                           number_of(waits->program, step),
                           step->seq,
                           step->operands,
                           {{0}}};
        memcpy(flying->operand, step->operand, (size_t)step->operands * sizeof step->operand[0]);
    }
    arena_free(scratch);
}

static bool in_several(const Path *path)
{
    int n = 0;
    for (int i = 0; i < path->n; i++)
        n += path->move[i].kind <= MOVE_PERMUTE;
    return n > 1;
}

/* One text serves all ranks of a stage. Behind the first collective of a way between a buffer and a
 * home each of them holds another part of the bucket, and other links wait for it: then it waits
 * where any rank has to. */
static void walk_stage(Waits *waits, int stage)
{
    const StageProgram *at = &waits->program->stage[stage];
    bool apart = false;
    for (int g = 0; g < at->groups.n; g++)
        apart =
            apart || in_several(&at->groups.at[g].scatter) || in_several(&at->groups.at[g].fetch);
    for (int c = 0; c < (apart ? mesh_ranks(&waits->program->plan->mesh) : 1); c++) {
        walk_rank(waits, stage, c, false);
        walk_rank(waits, stage, c, true);
    }
}

bool inst_communicates(const Inst *inst)
{
    return inst->kind == INST_MOVE && inst->move.kind <= MOVE_PERMUTE;
}

static bool waits_for(const Waits *waits, const Place *place, const Event *event)
{
    const Event *events;
    int n = waits_at(waits, place, &events);
    for (int i = 0; i < n; i++) {
        if (events[i].kind == EVENT_INST && events[i].class == event->class &&
            events[i].which == event->which && events[i].inst == event->inst)
            return true;
    }
    return false;
}

static void drop_inst_events(Waits *waits)
{
    for (int p = 0; p < waits->places.n; p++) {
        Entries *entries = &waits->places.at[p];
        int kept = 0;
        for (int i = 0; i < entries->events.n; i++) {
            if (entries->events.at[i].kind != EVENT_INST)
                entries->events.at[kept++] = entries->events.at[i];
        }
        entries->events.n = kept;
    }
}

static bool reads(const Inst *inst, int copy)
{
    for (int k = 0; k < inst->ins; k++) {
        if (inst->in[k] == copy)
            return true;
    }
    return false;
}

/* One wait for each collective of a body, where the walk first waits for it or its result is read
 * (of two bodies in one the other's wait for a later one may come first in the walk). Behind it its
 * event is idle wherever else the walk waits for it: a body runs all of its instructions, every
 * time. */
static void settle(Waits *waits)
{
    Arena *scratch = arena_new("waits");
    Waits settled = {.arena = scratch, .program = waits->program};
    for (int c = 0; c < waits->program->bodies; c++) {
        for (int which = 0; which < BODY_LISTS; which++) {
            const InstList *list = body_list(waits->program->body[c], which);
            for (int i = 0; i < list->n; i++) {
                if (!inst_communicates(&list->at[i]))
                    continue;
                Event event = {.kind = EVENT_INST, .class = c, .which = which, .inst = i};
                Place place = {
                    .kind = PLACE_INST, .stage = NONE, .class = c, .which = which, .inst = i + 1};
                while (place.inst < list->n && !waits_for(waits, &place, &event) &&
                       !reads(&list->at[place.inst], list->at[i].out[0]))
                    place.inst++;
                add_event(&settled, place, event);
            }
        }
    }
    drop_inst_events(waits);
    for (int p = 0; p < settled.places.n; p++) {
        const Entries *entries = &settled.places.at[p];
        for (int i = 0; i < entries->events.n; i++)
            add_event(waits, entries->place, entries->events.at[i]);
    }
    arena_free(scratch);
}

Waits *waits_collect(Arena *arena, const Program *program)
{
    Waits *waits = ARENA_NEW(arena, Waits);
    *waits = (Waits){.arena = arena, .program = program};
    for (int s = 0; s < program->stages; s++)
        walk_stage(waits, s);
    settle(waits);
    return waits;
}
