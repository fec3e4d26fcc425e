/* trainer_stage.c - what the chunks of a pipeline stage do for one micro-batch: their links in
 * order, their slots, their messages. */
#include <string.h>

#include "codegen/trainer.h"
#include "ir/lower/layout.h"

/* ---- links in order ---- */

bool link_closes(const StageProgram *stage, int link)
{
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        const Group *group = &stage->groups.at[bucket->group];
        if (bucket->close_link == link && (group->buffered || path_communicates(&group->reduce)))
            return true;
    }
    return false;
}

static bool any_closes(const StageProgram *stage, int begin, int end)
{
    for (int i = begin; i < end; i++) {
        if (link_closes(stage, i))
            return true;
    }
    return false;
}

/* A pass through the links of a chunk: which lists of their bodies it runs. */
typedef struct Pass {
    int s;
    const Chunk *chunk;
    int first, last; /* lists */
} Pass;

static bool stands_alone(const Trainer *t, const Pass *pass, int link)
{
    for (int which = pass->first; which <= pass->last; which++) {
        if (trainer_stands_alone(t, pass->s, which, link))
            return true;
    }
    return false;
}

/* Does the pass add to gradients? A whole backward does in its last list, and so does W. */
static bool pass_adds(const Trainer *t, const Pass *pass)
{
    return pass->first > 0 && (pass->last == 2 || !t->split);
}

/* Links [begin, end) fetch one link ahead, from files two, but for the last of their chunk. */
static void print_ahead(Trainer *t, Emit *out, const Pass *pass, int begin, int end)
{
    bool backward = pass->first > 0, loop = end - begin > 1;
    const Chunk *chunk = pass->chunk;
    int behind = backward ? begin - chunk->begin : chunk->end - end; /* links behind these */
    const char *way = backward ? "false" : "true";
    for (int near = trainer_weight_hops(t, pass->s) - 1;
         near >= 0 && stage_fetches(&t->program->stage[pass->s]); near--) {
        const char *name = trainer_weight_hop(near);
        if (behind + end - begin - 1 <= near)
            continue;
        bool edge = behind <= near;
        if (edge && backward)
            emit_line(out, "if (i > %d)", chunk->begin + near);
        else if (edge)
            emit_line(out, "if (i < %d)", chunk->end - 1 - near);
        if (loop)
            emit_line(out, "%sstage%d_%s(s, %s, i %c %d);", edge ? "    " : "", pass->s, name, way,
                      backward ? '-' : '+', near + 1);
        else
            emit_line(out, "stage%d_%s(s, %s, %d);", pass->s, name, way,
                      backward ? begin - 1 - near : end + near);
    }
}

/* Links [begin, end) of one class that are called the same way. */
static void print_run(Trainer *t, Emit *out, const Pass *pass, int begin, int end)
{
    const StageProgram *stage = &t->program->stage[pass->s];
    int class = trainer_class_of(t, &stage->link[begin]), before = 0;
    for (int i = 0; i < begin; i++)
        before += trainer_class_of(t, &stage->link[i]) == class;
    const char *name = t->class_name[class];
    bool backward = pass->first > 0, loop = end - begin > 1;
    bool closes = pass_adds(t, pass) && any_closes(stage, begin, end);
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
    print_ahead(t, out, pass, begin, end);
    int own = (int)(pass->chunk - stage->chunk);
    if (backward)
        trainer_print_return(t, out, pass->s, own, pass->first == 1, end - 1, link, "micro, stay");
    if (pass_adds(t, pass))
        trainer_print_sums_in(t, out, pass->s, pass->chunk, begin, end);
    for (int which = pass->first; which <= pass->last; which++) {
        Place place = {.kind = PLACE_LINK, .stage = pass->s, .which = which, .index = begin};
        if (!loop && trainer_stands_alone(t, pass->s, which, begin))
            trainer_print_waits(t, out, &place, "micro");
        else
            trainer_print_link_waits(t, out, pass->s, pass->chunk, which, link);
        emit_line(out, "%s_%s(s, &stage%d_%s[%s], &at%s);", name, trainer_part(t, which), pass->s,
                  name, at, t->takes_first[class][which] ? ", first" : "");
    }
    if (!backward)
        trainer_print_leave(t, out, pass->s, own, begin, link, "micro, stay");
    if (closes && (stage_scatters(stage) || stage_sums(stage))) {
        emit_line(out, "stage%d_close(s, %s, first, last);", pass->s, link);
    } else if (closes) {
        emit_line(out, "if (last)");
        emit_line(out, "    stage%d_close(s, %s);", pass->s, link);
    }
    if (pass_adds(t, pass))
        trainer_print_sums_out(t, out, pass->s, pass->chunk, begin, end);
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

static bool chunk_has_sides(const Chunk *chunk)
{
    bool any = false;
    for (int r = 0; r < RING_COUNT; r++)
        any = any || chunk->ring[r].sides;
    return any;
}

const char *trainer_slots(Trainer *t, int s, int c, const char *micro, bool back)
{
    bool sides = chunk_has_sides(&t->program->stage[s].chunk[c]);
    return arena_printf(t->arena, "%s_slots(s, %s%s)", trainer_chunk(t, s, c), micro,
                        !sides ? ""
                        : back ? ", true"
                               : ", false");
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
    bool sides = chunk_has_sides(chunk);
    if (sides)
        emit_comment(out, "`back`: for backward, which runs beside a forward of this chunk.");
    emit_open_function(out, "static LpSlots %s_slots(const State *s, int micro%s)", name,
                       sides ? ", bool back" : "");
    emit_line(out, "LpSlots at = {{0}};");
    emit_line(out, "at.base[LP_AT_ARENA] = s->arena;");
    emit_line(out, "at.base[LP_AT_SCRATCH] = s->arena + %lldL;", (long long)stage->scratch);
    if (t->braids)
        emit_line(out, "at.base[LP_AT_SCRATCH_BACK] = s->arena + %lldL;",
                  (long long)stage->scratch_back);
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
        const char *slot = ring->sides  ? "back"
                           : ring->slot ? arena_printf(t->arena, "%s_%s_slot[micro]",
                                                       trainer_chunk(t, s, owner), ring_text[kind])
                                        : arena_printf(t->arena, "micro %% %d", ring->n);
        emit_line(out, "at.base[%s] = s->arena + %lldL + %s * %lldL;", trainer_ring_base[r],
                  (long long)ring->base, slot, (long long)ring->stride);
        uses_micro = uses_micro || !ring->sides;
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
    const char *index = trainer_list(t, list, false);
    if (copy->local[axis] == 1)
        return arena_printf(t->arena, "s->index[%s]", index);
    return arena_printf(t->arena, "s->index[%s] * %lld", index, (long long)copy->local[axis]);
}

/* A shard of a sequence that is dealt out: where each of its runs begins, or the part of a run that
 * it has. */
static void print_runs(Trainer *t, Emit *out, const Copy *copy, const char *which, const char *args)
{
    long long run = t->net->dims.at[t->net->sequence].extent / t->net->runs,
              each = copy->local[1] < run ? copy->local[1] : run, n = copy->local[1] / each;
    Str begin = str_new(t->arena);
    const char *base = begin_text(t, copy, 1);
    for (int i = 0; i < n; i++)
        str_putf(&begin, "%s(int)lp_position(%s + %lld, %lld, %lld)", i ? ", " : "", base, i * each,
                 run, (long long)t->net->runs);
    emit_line(out, "lp_batch%s_runs(%s%s, %s, %s, %lld, %lld, %lld, (const int[]){%s}%s);",
              *which ? "_ahead" : "", which, trainer_step(t), trainer_micro(t),
              begin_text(t, copy, 0), (long long)copy->local[0], n, each, begin.at, args);
}

/* One call for all data that lie alike on the ranks. */
void trainer_print_load(Trainer *t, Emit *out, int s, const Chunk *chunk)
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
        int ahead = data_ahead(d);
        for (int e = 0; e < DATA_COUNT; e++) {
            if (data_ahead(e) != ahead)
                continue;
            const Copy *other = find_data(stage, chunk, e);
            bool together = e >= d && other && place_equal(&copy->place, &other->place);
            done[e] = done[e] || together;
            if (together)
                str_putf(&args, ", (%s *)(at.base[LP_AT_DATA] + %lld)",
                         data_is_weight(e) ? "float" : "int32_t", (long long)chunk->data_offset[e]);
            else
                str_put(&args, ", NULL");
        }
        const char *which = ahead == 0 ? "" : arena_printf(t->arena, "%d, ", ahead);
        if (t->net->runs)
            print_runs(t, out, copy, which, args.at);
        else
            emit_line(out, "lp_batch%s(%s%s, %s, %s, %lld, %s, %lld%s);", *which ? "_ahead" : "",
                      which, trainer_step(t), trainer_micro(t), begin_text(t, copy, 0),
                      (long long)copy->local[0], begin_text(t, copy, 1), (long long)copy->local[1],
                      args.at);
    }
    for (int d = 0; t->program->recipe->scales_loss && d < DATA_COUNT; d++) {
        const Copy *weight = data_is_weight(d) ? find_data(stage, chunk, d) : NULL;
        if (weight)
            emit_line_comment(out,
                              arena_printf(t->arena,
                                           "lp_scale(%lld, (float *)(at.base[LP_AT_DATA] + %lld), "
                                           "(float)lp_loss_scale());",
                                           (long long)weight->elements,
                                           (long long)chunk->data_offset[d]),
                              "loss and gradients, so that small ones do not become zero");
    }
}

int flagged_micro(const StageProgram *stage, int chunk, bool forward, bool last)
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
    long long batch = t->net->dims.at[t->net->batch].extent;
    if (trainer_stage_draws(t, s) && t->program->flows)
        emit_line(out, "s->sample = (s->begin * %d + micro) * %lldL;", t->plan->micro_batches,
                  batch);
    else if (trainer_stage_draws(t, s))
        emit_line(out, "s->sample = s->begun + micro * %lldL;", batch);
}

/* One part of a chunk for one micro-batch: forward, backward, or I and W of it. */
static void print_part(Trainer *t, Emit *out, const Pass *pass, const char *part)
{
    const StageProgram *stage = &t->program->stage[pass->s];
    const Chunk *chunk = pass->chunk;
    int own = (int)(chunk - stage->chunk);
    bool forward = pass->first == 0, fetches = stage_fetches(stage);
    bool closes = pass_adds(t, pass) && any_closes(stage, chunk->begin, chunk->end);
    const char *name = trainer_chunk(t, pass->s, own);
    emit_open_function(
        out, "static void %s_%s(State *s, %sint micro%s%s)", name, part,
        forward && chunk->ring[RING_DATA].n && !t->program->flows ? "int64_t step, " : "",
        fetches ? ", bool resumes" : "", trainer_chunk_spills(t, pass->s, own) ? ", int stay" : "");
    emit_line(out, "const LpSlots at = %s;", trainer_slots(t, pass->s, own, "micro", !forward));
    bool sums = pass_adds(t, pass) && stage_sums(stage);
    if (any_takes_first(t, pass) || (closes && stage_scatters(stage)) || sums)
        emit_line(out, "const bool first = %s == %d;", trainer_micro(t),
                  flagged_micro(stage, own, forward, false));
    if (closes || sums)
        emit_line(out,
                  "const bool last = %s == %d; /* gradients are complete: their buckets may go */",
                  trainer_micro(t), flagged_micro(stage, own, false, true));
    if (t->program->flows)
        trainer_print_version(t, out, pass->s);
    if (forward)
        trainer_print_load(t, out, pass->s, chunk);
    print_sample(t, out, pass->s);
    if (fetches)
        trainer_print_first_weights(t, out, pass->s, chunk, forward, true);
    if (pass_adds(t, pass))
        trainer_print_sums_begin(t, out, pass->s, chunk);
    print_links(t, out, pass);
    emit_close(out, "");
    emit_blank(out);
}

static bool has_part(const StageProgram *stage, int chunk, PartKind part)
{
    for (int i = 0; i < stage->table.n; i++) {
        const Entry *entry = &stage->table.at[i];
        if (entry->kind == ENTRY_COMPUTE && entry->chunk == chunk && entry->part == part &&
            (part == PART_F || !entry->braided)) /* evaluations run forwards by themselves */
            return true;
    }
    return false;
}

static void print_parts(Trainer *t, Emit *out, int s, const Chunk *chunk)
{
    const StageProgram *stage = &t->program->stage[s];
    static const int first[PART_COUNT] = {0, 1, 1, 2};
    const int last[PART_COUNT] = {0, t->split ? 2 : 1, 1, 2};
    Pass pass = {.s = s, .chunk = chunk};
    trainer_print_wait_tables(t, out, s, chunk);
    for (int part = 0; part < PART_COUNT; part++) {
        pass.first = first[part];
        pass.last = last[part];
        if (has_part(stage, (int)(chunk - stage->chunk), (PartKind)part))
            print_part(t, out, &pass, part_name[part]);
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
    emit_line(out, "const LpSlots at = %s;", trainer_slots(t, s, own, "micro", !act));
    Place place = {
        .kind = send ? PLACE_SEND : PLACE_RECV, .stage = s, .index = message, .chunk = own};
    trainer_print_waits(t, out, &place, "micro");
    emit_line(out, "lp_%s(&s->%s_%s[%s], peer_of(s, %d), %s, at.base[%s], %lldL);", verb, verb,
              what, trainer_slot(t, s, own, ring, "micro"), entry->peer,
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
    trainer_print_spills(t, out, s);
    for (int c = 0; c < stage->chunks; c++) {
        print_parts(t, out, s, &stage->chunk[c]);
        for (int kind = ENTRY_SEND; kind <= ENTRY_RECV; kind++) {
            for (int message = MSG_ACTIVATION; message <= MSG_GRADIENT; message++)
                print_message(t, out, s, &stage->chunk[c], (EntryKind)kind, (MsgKind)message);
        }
    }
    trainer_print_pairings(t, out, s);
}
