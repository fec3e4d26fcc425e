/* trainer_stage.c - what the chunks of a pipeline stage do for one micro-batch: their links in
 * order, their slots, their messages. */
#include <string.h>

#include "codegen/trainer.h"
#include "ir/lower/layout.h"

/* ---- waits ---- */

static const char *message_event(Stream stream)
{
    return stream == STREAM_SEND_ACT    ? "send_activation"
           : stream == STREAM_RECV_ACT  ? "recv_activation"
           : stream == STREAM_SEND_GRAD ? "send_gradient"
                                        : "recv_gradient";
}

/* Slots of a ring kind of the chunks before this one: all chunks share one array of events. */
static int slots_before(const StageProgram *stage, int chunk, RingKind kind)
{
    int n = 0;
    for (int c = 0; c < chunk; c++)
        n += stage->chunk[c].ring[kind].n;
    return n;
}

/* The event of a micro-batch's slot, as an index of State's arrays. */
static const char *slot_text(Trainer *t, int s, int chunk, RingKind kind, const char *micro)
{
    const StageProgram *stage = &t->program->stage[s];
    const Ring *ring = &stage->chunk[chunk].ring[kind];
    int before = slots_before(stage, chunk, kind);
    if (ring->n == 1)
        return arena_printf(t->arena, "%d", before);
    const char *slot = ring->slot ? arena_printf(t->arena, "%s_%s_slot[%s]",
                                                 trainer_chunk(t, s, chunk), ring_text[kind], micro)
                                  : arena_printf(t->arena, "%s %% %d", micro, ring->n);
    return before ? arena_printf(t->arena, "%d + %s", before, slot) : slot;
}

static void print_message_wait(Trainer *t, Emit *out, int s, const Event *event, const char *micro)
{
    const char *name = message_event(event->stream);
    RingKind kind = message_ring(event->stream);
    const StageProgram *stage = &t->program->stage[s];
    int n = stage->chunk[event->chunk].ring[kind].n,
        before = slots_before(stage, event->chunk, kind);
    if (n > 1 && (event->any_slot || !micro)) {
        emit_line(out, "for (int slot = %d; slot < %d; slot++)", before, before + n);
        emit_line(out, "    lp_wait(&s->%s[slot]);", name);
    } else {
        emit_line(out, "lp_wait(&s->%s[%s]);", name, slot_text(t, s, event->chunk, kind, micro));
    }
}

void trainer_print_waits(Trainer *t, Emit *out, const Place *place, const char *micro)
{
    const Event *events;
    int n = waits_at(t->waits, place, &events);
    for (int i = 0; i < n; i++) {
        const Event *event = &events[i];
        switch (event->kind) {
        case EVENT_INST:
            BUG("a body finishes what it starts");
        case EVENT_MESSAGE:
            print_message_wait(t, out, place->stage, event, micro);
            break;
        case EVENT_BUCKET:
            emit_line(out, "lp_wait(&s->bucket[%d]);", event->bucket);
            break;
        case EVENT_WORLD:
            emit_line(out, "lp_wait(&s->world);");
            break;
        }
    }
}

bool trainer_bucket_waits(Trainer *t, Emit *out, int stage, PlaceKind kind)
{
    const StageProgram *program = &t->program->stage[stage];
    bool own = false, other = false;
    for (int b = 0; b < program->buckets.n; b++) {
        const Event *events;
        Place place = {.kind = kind, .stage = stage, .index = b};
        int n = waits_at(t->waits, &place, &events);
        for (int i = 0; i < n; i++) {
            bool mine = events[i].kind == EVENT_BUCKET && events[i].bucket == b;
            own = own || mine;
            other = other || !mine;
        }
    }
    if (!other)
        return own;
    for (int b = 0; b < program->buckets.n; b++) {
        Place place = {.kind = kind, .stage = stage, .index = b};
        trainer_print_waits(t, out, &place, NULL);
    }
    return false;
}

/* ---- links in order ---- */

static int link_waits(const Trainer *t, int stage, int which, int link, const Event **ret)
{
    Place place = {.kind = PLACE_LINK, .stage = stage, .which = which, .index = link};
    return waits_at(t->waits, &place, ret);
}

static bool has_bucket_waits(const Trainer *t, int stage, const Chunk *chunk, int which)
{
    for (int i = chunk->begin; i < chunk->end; i++) {
        const Event *events;
        int n = link_waits(t, stage, which, i, &events);
        for (int e = 0; e < n; e++) {
            if (events[e].kind == EVENT_BUCKET)
                return true;
        }
    }
    return false;
}

/* Does the link wait for anything besides buckets? Then it stands alone. */
static bool has_other_waits(const Trainer *t, int stage, int which, int link)
{
    const Event *events;
    int n = link_waits(t, stage, which, link, &events);
    for (int e = 0; e < n; e++) {
        if (events[e].kind != EVENT_BUCKET)
            return true;
    }
    return false;
}

/* Which buckets each link waits for: gathers of updated weights that may still be under way. */
static void print_bucket_table(Trainer *t, Emit *out, int s, const Chunk *chunk, int which)
{
    const StageProgram *stage = &t->program->stage[s];
    int widest = 1, links = chunk->end - chunk->begin;
    for (int i = chunk->begin; i < chunk->end; i++) {
        const Event *events;
        int n = link_waits(t, s, which, i, &events), buckets = 0;
        for (int e = 0; e < n; e++)
            buckets += events[e].kind == EVENT_BUCKET;
        widest = buckets > widest ? buckets : widest;
    }
    Str rows = str_new(t->arena);
    for (int i = chunk->begin; i < chunk->end; i++) {
        const Event *events;
        int n = link_waits(t, s, which, i, &events), buckets = 0;
        str_put(&rows, i > chunk->begin ? ", " : "");
        str_put(&rows, widest > 1 ? "{" : "");
        for (int e = 0; e < n; e++) {
            if (events[e].kind == EVENT_BUCKET)
                str_putf(&rows, "%s%d", buckets++ ? ", " : "", events[e].bucket);
        }
        for (; buckets < widest; buckets++)
            str_putf(&rows, "%s-1", buckets ? ", " : "");
        str_put(&rows, widest > 1 ? "}" : "");
    }
    const char *part = trainer_part(t, which),
               *name = trainer_chunk(t, s, (int)(chunk - stage->chunk));
    emit_comment(out, "Buckets whose gathers each link waits for; -1: none.");
    const char *width = widest > 1 ? arena_printf(t->arena, "[%d]", widest) : "";
    emit_line(out, "static const int %s_%s_buckets[%d]%s = {%s};", name, part, links, width,
              rows.at);
    emit_blank(out);
    emit_open_function(out, "static void %s_%s_wait(State *s, int link)", name, part);
    if (widest > 1)
        emit_open(out, "for (int i = 0; i < %d; i++)", widest);
    const char *link = chunk->begin ? arena_printf(t->arena, "link - %d", chunk->begin) : "link";
    emit_line(out, "const int bucket = %s_%s_buckets[%s]%s;", name, part, link,
              widest > 1 ? "[i]" : "");
    emit_line(out, "if (bucket >= 0)");
    emit_line(out, "    lp_wait(&s->bucket[bucket]);");
    if (widest > 1)
        emit_close(out, "");
    emit_close(out, "");
    emit_blank(out);
}

static bool closes_bucket(const StageProgram *stage, int link)
{
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        if (bucket->close_link == link &&
            path_communicates(&stage->groups.at[bucket->group].reduce))
            return true;
    }
    return false;
}

static bool any_closes(const StageProgram *stage, int begin, int end)
{
    for (int i = begin; i < end; i++) {
        if (closes_bucket(stage, i))
            return true;
    }
    return false;
}

/* A pass through the links of a chunk: which lists of their bodies it runs. */
typedef struct Pass {
    int s;
    const Chunk *chunk;
    int first, last;          /* lists */
    bool buckets[BODY_LISTS]; /* some link of the list waits for a bucket */
} Pass;

static bool stands_alone(const Trainer *t, const Pass *pass, int link)
{
    for (int which = pass->first; which <= pass->last; which++) {
        if (has_other_waits(t, pass->s, which, link))
            return true;
    }
    return false;
}

/* Links [begin, end) of one class that are called the same way. */
static void print_run(Trainer *t, Emit *out, const Pass *pass, int begin, int end)
{
    const StageProgram *stage = &t->program->stage[pass->s];
    int class = trainer_class_of(t, &stage->link[begin]), before = 0;
    for (int i = 0; i < begin; i++)
        before += trainer_class_of(t, &stage->link[i]) == class;
    const char *name = t->class_name[class],
               *chunk = trainer_chunk(t, pass->s, (int)(pass->chunk - stage->chunk));
    bool backward = pass->first > 0, loop = end - begin > 1;
    /* a whole backward adds to gradients in its last list, and so does W */
    bool closes = backward && (pass->last == 2 || !t->split) && any_closes(stage, begin, end);
    const char *link = arena_printf(t->arena, "%d", begin),
               *at = arena_printf(t->arena, "%d", before);
    if (loop) {
        if (backward)
            emit_open(out, "for (int i = %d; i >= %d; i--)", end - 1, begin);
        else
            emit_open(out, "for (int i = %d; i < %d; i++)", begin, end);
        link = "i";
        at = begin == before ? "i" : arena_printf(t->arena, "i - %d", begin - before);
    }
    for (int which = pass->first; which <= pass->last; which++) {
        Place place = {.kind = PLACE_LINK, .stage = pass->s, .which = which, .index = begin};
        if (!loop && has_other_waits(t, pass->s, which, begin))
            trainer_print_waits(t, out, &place, "micro");
        else if (pass->buckets[which])
            emit_line(out, "%s_%s_wait(s, %s);", chunk, trainer_part(t, which), link);
        emit_line(out, "%s_%s(s, &stage%d_%s[%s], &at%s);", name, trainer_part(t, which), pass->s,
                  name, at, t->takes_first[class][which] ? ", first" : "");
    }
    if (closes) {
        emit_line(out, "if (last)");
        emit_line(out, "    stage%d_close(s, %s);", pass->s, link);
    }
    if (loop)
        emit_close_slim(out);
}

static void print_links(Trainer *t, Emit *out, const Pass *pass)
{
    const StageProgram *stage = &t->program->stage[pass->s];
    const Chunk *chunk = pass->chunk;
    int runs[256][2], n = 0;
    for (int i = chunk->begin; i < chunk->end;) {
        int end = i + 1;
        bool alone = stands_alone(t, pass, i);
        while (!alone && end < chunk->end &&
               trainer_class_of(t, &stage->link[end]) == trainer_class_of(t, &stage->link[i]) &&
               !stands_alone(t, pass, end))
            end++;
        CHECK(n < 256);
        runs[n][0] = i;
        runs[n++][1] = end;
        i = end;
    }
    for (int r = 0; r < n; r++) {
        int k = pass->first > 0 ? n - 1 - r : r;
        print_run(t, out, pass, runs[k][0], runs[k][1]);
    }
}

/* ---- functions of a chunk ---- */

static void print_slot_column(Trainer *t, Emit *out, const char *name, RingKind kind,
                              const Ring *ring)
{
    Str list = str_new(t->arena);
    for (int micro = 0; micro < t->plan->micro_batches; micro++)
        str_putf(&list, "%s%d", micro ? ", " : "", ring->slot[micro]);
    emit_comment(out, "Lives that end in no order: the slot of each micro-batch.");
    emit_line(out, "static const int %s_%s_slot[%d] = {%s};", name, ring_text[kind],
              t->plan->micro_batches, list.at);
    emit_blank(out);
}

/* The ring that this chunk finds as its own of this kind: what goes to a chunk of the same stage is
 * in a ring of that one. `ret_owner` is the chunk of the stage that has it. */
static const Ring *ring_of(const Trainer *t, const StageProgram *stage, const Chunk *chunk,
                           RingKind kind, int *ret_owner)
{
    *ret_owner = (int)(chunk - stage->chunk);
    int to = kind == RING_OUT ? chunk->index + 1 : kind == RING_GRAD_OUT ? chunk->index - 1 : NONE;
    if (to == NONE || chunk_stage(t->program, to) != stage->index)
        return &chunk->ring[kind];
    *ret_owner = chunk_of_stage(t->program, to);
    return &stage->chunk[*ret_owner].ring[kind == RING_OUT ? RING_IN : RING_GRAD_IN];
}

static void print_slots(Trainer *t, Emit *out, int s, const Chunk *chunk)
{
    const StageProgram *stage = &t->program->stage[s];
    const char *name = trainer_chunk(t, s, (int)(chunk - stage->chunk));
    if (stage->chunks == 1)
        emit_comment(out,
                     "Where stage %d keeps micro-batch `micro`: slot micro mod n of each ring.", s);
    else
        emit_comment(out,
                     "Where stage %d keeps micro-batch `micro` of chunk %d: a slot of each ring.",
                     s, chunk->index);
    emit_open_function(out, "static LpSlots %s_slots(const State *s, int micro)", name);
    emit_line(out, "LpSlots at = {{0}};");
    emit_line(out, "at.base[LP_AT_ARENA] = s->arena;");
    emit_line(out, "at.base[LP_AT_SCRATCH] = s->arena + %lldL;", (long long)stage->scratch);
    bool uses_micro = false;
    for (int r = 0; r < RING_COUNT; r++) {
        int owner;
        const Ring *ring = ring_of(t, stage, chunk, (RingKind)r, &owner);
        if (ring->n == 0)
            continue;
        RingKind kind = (RingKind)(ring - stage->chunk[owner].ring);
        if (ring->n == 1) {
            emit_line(out, "at.base[%s] = s->arena + %lldL;", trainer_ring_base[r],
                      (long long)ring->base);
            continue;
        }
        const char *slot = ring->slot ? arena_printf(t->arena, "%s_%s_slot[micro]",
                                                     trainer_chunk(t, s, owner), ring_text[kind])
                                      : arena_printf(t->arena, "micro %% %d", ring->n);
        emit_line(out, "at.base[%s] = s->arena + %lldL + %s * %lldL;", trainer_ring_base[r],
                  (long long)ring->base, slot, (long long)ring->stride);
        uses_micro = true;
    }
    if (!uses_micro)
        emit_line(out, "(void)micro;");
    emit_line(out, "return at;");
    emit_close(out, "");
    emit_blank(out);
}

static const Copy *find_data(const StageProgram *stage, const Chunk *chunk, int data)
{
    for (int i = chunk->begin; i < chunk->end && chunk->data_offset[data] != NONE; i++) {
        int copy = trainer_data_copy(stage->link[i].body, data);
        if (copy != NONE)
            return &stage->link[i].body->copies.at[copy];
    }
    return NULL;
}

static const char *begin_text(Trainer *t, const Copy *copy, int axis)
{
    const AtomList *list = &copy->place.shard[axis];
    if (list->n == 0)
        return "0";
    return arena_printf(t->arena, "s->index[%s] * %lld", trainer_list(t, list, false),
                        (long long)copy->local[axis]);
}

/* One call for all data that lie alike on the ranks. */
static void print_load(Trainer *t, Emit *out, int s, const Chunk *chunk)
{
    const StageProgram *stage = &t->program->stage[s];
    bool done[DATA_COUNT] = {false};
    Place place = {.kind = PLACE_LOAD, .stage = s, .chunk = (int)(chunk - stage->chunk)};
    if (chunk->ring[RING_DATA].n)
        trainer_print_waits(t, out, &place, "micro");
    for (int d = 0; d < DATA_COUNT; d++) {
        const Copy *copy = find_data(stage, chunk, d);
        if (!copy || done[d])
            continue;
        Str args = str_new(t->arena);
        for (int e = 0; e < DATA_COUNT; e++) {
            const Copy *other = find_data(stage, chunk, e);
            bool together = e >= d && other && place_equal(&copy->place, &other->place);
            done[e] = done[e] || together;
            if (together)
                str_putf(&args, ", (%s *)(at.base[LP_AT_DATA] + %lld)",
                         e == DATA_WEIGHT ? "float" : "int32_t", (long long)chunk->data_offset[e]);
            else
                str_put(&args, ", NULL");
        }
        emit_line(out, "lp_batch(step, micro, %s, %lld, %s, %lld%s);", begin_text(t, copy, 0),
                  (long long)copy->local[0], begin_text(t, copy, 1), (long long)copy->local[1],
                  args.at);
    }
    const Copy *weight = find_data(stage, chunk, DATA_WEIGHT);
    if (t->program->recipe->scales_loss && weight)
        emit_line_comment(out,
                          arena_printf(t->arena,
                                       "lp_scale(%lld, (float *)(at.base[LP_AT_DATA] + %lld), "
                                       "(float)lp_loss_scale());",
                                       (long long)weight->elements,
                                       (long long)chunk->data_offset[DATA_WEIGHT]),
                          "loss and gradients, so that small ones do not become zero");
}

/* The micro-batch whose row is flagged first, or last: of forwards, or of rows that add to
 * gradients. */
static int flagged_micro(const StageProgram *stage, int chunk, bool forward, bool last)
{
    for (int i = 0; i < stage->table.n; i++) {
        const Entry *entry = &stage->table.at[i];
        if (entry->kind == ENTRY_COMPUTE && entry->chunk == chunk &&
            (entry->part == PART_F) == forward && (last ? entry->last : entry->first))
            return entry->micro;
    }
    return NONE;
}

static bool any_takes_first(const Trainer *t, const Pass *pass)
{
    const StageProgram *stage = &t->program->stage[pass->s];
    for (int i = pass->chunk->begin; i < pass->chunk->end; i++) {
        for (int which = pass->first; which <= pass->last; which++) {
            if (t->takes_first[trainer_class_of(t, &stage->link[i])][which])
                return true;
        }
    }
    return false;
}

static void print_sample(Trainer *t, Emit *out, int s)
{
    if (trainer_stage_draws(t, s))
        emit_line(out, "s->sample = s->begun + micro * %lldL;",
                  (long long)t->net->dims.at[t->net->batch].extent);
}

/* One part of a chunk for one micro-batch: forward, backward, or I and W of it. */
static void print_part(Trainer *t, Emit *out, const Pass *pass, const char *part)
{
    const StageProgram *stage = &t->program->stage[pass->s];
    const Chunk *chunk = pass->chunk;
    int own = (int)(chunk - stage->chunk);
    bool forward = pass->first == 0, adds = !forward && (pass->last == 2 || !t->split);
    const char *name = trainer_chunk(t, pass->s, own);
    emit_open_function(out, "static void %s_%s(State *s, %sint micro)", name, part,
                       forward && chunk->ring[RING_DATA].n ? "int64_t step, " : "");
    emit_line(out, "const LpSlots at = %s_slots(s, micro);", name);
    if (any_takes_first(t, pass))
        emit_line(out, "const bool first = micro == %d;",
                  flagged_micro(stage, own, forward, false));
    if (adds && any_closes(stage, chunk->begin, chunk->end))
        emit_line(
            out,
            "const bool last = micro == %d; /* gradients are complete: their buckets may go */",
            flagged_micro(stage, own, false, true));
    if (forward)
        print_load(t, out, pass->s, chunk);
    print_sample(t, out, pass->s);
    print_links(t, out, pass);
    emit_close(out, "");
    emit_blank(out);
}

static bool has_part(const StageProgram *stage, int chunk, PartKind part)
{
    for (int i = 0; i < stage->table.n; i++) {
        const Entry *entry = &stage->table.at[i];
        if (entry->kind == ENTRY_COMPUTE && entry->chunk == chunk && entry->part == part)
            return true;
    }
    return false;
}

static void print_parts(Trainer *t, Emit *out, int s, const Chunk *chunk)
{
    const StageProgram *stage = &t->program->stage[s];
    static const char *const name[PART_COUNT] = {"forward", "backward", "input", "weight"};
    static const int first[PART_COUNT] = {0, 1, 1, 2};
    const int last[PART_COUNT] = {0, t->split ? 2 : 1, 1, 2};
    Pass pass = {.s = s, .chunk = chunk};
    for (int which = 0; which < (t->split ? BODY_LISTS : 2); which++) {
        pass.buckets[which] = has_bucket_waits(t, s, chunk, which);
        if (pass.buckets[which])
            print_bucket_table(t, out, s, chunk, which);
    }
    for (int part = 0; part < PART_COUNT; part++) {
        pass.first = first[part];
        pass.last = last[part];
        if (has_part(stage, (int)(chunk - stage->chunk), (PartKind)part))
            print_part(t, out, &pass, name[part]);
    }
}

static const Entry *find_message(const StageProgram *stage, int chunk, EntryKind kind,
                                 MsgKind message)
{
    for (int i = 0; i < stage->table.n; i++) {
        const Entry *entry = &stage->table.at[i];
        if (entry->kind == kind && entry->message == message && entry->chunk == chunk)
            return entry;
    }
    return NULL;
}

static void print_message(Trainer *t, Emit *out, int s, const Chunk *chunk, EntryKind kind,
                          MsgKind message)
{
    const StageProgram *stage = &t->program->stage[s];
    int own = (int)(chunk - stage->chunk);
    const Entry *entry = find_message(stage, own, kind, message);
    if (!entry)
        return;
    bool send = kind == ENTRY_SEND, act = message == MSG_ACTIVATION;
    int link = send == act ? chunk->end - 1 : chunk->begin;
    const Body *body = stage->link[link].body;
    int id = send ? act ? body->out : body->grad_out : act ? body->in : body->grad_in;
    RingKind ring = send ? act ? RING_OUT : RING_GRAD_OUT : act ? RING_IN : RING_GRAD_IN;
    const char *verb = send ? "send" : "recv", *what = act ? "activation" : "gradient",
               *name = trainer_chunk(t, s, own);
    emit_comment(out, "%s stage %d: %s.", send ? "To" : "From", entry->peer,
                 shape_comment(t, body, id));
    emit_open_function(out, "static void %s_%s_%s(State *s, int micro)", name, verb, what);
    emit_line(out, "const LpSlots at = %s_slots(s, micro);", name);
    Place place = {
        .kind = send ? PLACE_SEND : PLACE_RECV, .stage = s, .index = message, .chunk = own};
    trainer_print_waits(t, out, &place, "micro");
    emit_line(out, "lp_%s(&s->%s_%s[%s], peer_of(s, %d), %s, at.base[%s], %lldL);", verb, verb,
              what, slot_text(t, s, own, ring, "micro"), entry->peer,
              act ? "LP_ACTIVATION" : "LP_GRADIENT", trainer_ring_base[ring],
              (long long)body->copies.at[id].bytes);
    emit_close(out, "");
    emit_blank(out);
}

void trainer_print_stage(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    for (int c = 0; c < stage->chunks; c++) {
        for (int r = 0; r < RING_COUNT; r++) {
            if (stage->chunk[c].ring[r].slot)
                print_slot_column(t, out, trainer_chunk(t, s, c), (RingKind)r,
                                  &stage->chunk[c].ring[r]);
        }
    }
    for (int c = 0; c < stage->chunks; c++)
        print_slots(t, out, s, &stage->chunk[c]);
    trainer_print_update(t, out, s);
    for (int c = 0; c < stage->chunks; c++) {
        print_parts(t, out, s, &stage->chunk[c]);
        for (int kind = ENTRY_SEND; kind <= ENTRY_RECV; kind++) {
            for (int message = MSG_ACTIVATION; message <= MSG_GRADIENT; message++)
                print_message(t, out, s, &stage->chunk[c], (EntryKind)kind, (MsgKind)message);
        }
    }
}
