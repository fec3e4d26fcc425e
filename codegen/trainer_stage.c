/* trainer_stage.c - what one pipeline stage does for one micro-batch: its links in order, its
 * slots, its messages. */
#include <string.h>

#include "codegen/trainer.h"
#include "ir/lower/layout.h"

static const char *const ring_name[RING_COUNT] = {"LP_AT_DATA", "LP_AT_SAVED",   "LP_AT_IN",
                                                  "LP_AT_OUT",  "LP_AT_GRAD_IN", "LP_AT_GRAD_OUT"};

/* Where a copy of a link is, for every micro-batch: an offset in a ring's slot, or in the arena. */
static const char *where_text(Trainer *t, const StageProgram *stage, int link, int copy)
{
    if (copy == NONE)
        return "{LP_AT_ARENA, 0}";
    int64_t address = copy_address(t->program, stage, link, copy, 0);
    for (int r = 0; r < RING_COUNT; r++) {
        const Ring *ring = &stage->ring[r];
        if (ring->n == 0 || address < ring->base || address >= ring->base + ring->stride * ring->n)
            continue;
        for (int micro = 0; micro < t->plan->micro_batches; micro++)
            CHECK(copy_address(t->program, stage, link, copy, micro) -
                      ring->stride * (micro % ring->n) ==
                  address);
        return arena_printf(t->arena, "{%s, %lld}", ring_name[r],
                            (long long)(address - ring->base));
    }
    return arena_printf(t->arena, "{LP_AT_ARENA, %lld}", (long long)address);
}

static int class_of(const Trainer *t, const StageLink *link)
{
    return t->net->chain.at[link->link].class;
}

static int data_copy(const Body *body, int data)
{
    for (int c = 0; c < body->copies.n; c++) {
        const Copy *copy = &body->copies.at[c];
        if (copy->home == HOME_DATA && body->graph->data[data] == copy->value)
            return c;
    }
    return NONE;
}

static bool reads_data(const Body *body)
{
    for (int d = 0; d < DATA_COUNT; d++) {
        if (data_copy(body, d) != NONE)
            return true;
    }
    return false;
}

void trainer_print_link_types(Trainer *t, Emit *out)
{
    for (int c = 0; c < t->net->classes.n; c++) {
        const Graph *graph = t->net->classes.at[c];
        const char *upper = trainer_upper(t, t->class_name[c]),
                   *camel = trainer_camel(t, t->class_name[c]);
        Str list = str_new(t->arena);
        for (int p = 0; p < graph->params.n; p++)
            str_putf(&list, "%s, ", trainer_param(t, c, p));
        str_putf(&list, "%s_PARAMS", upper);
        emit_comment(out, "Where one instance of %s has its values.", t->class_name[c]);
        emit_line(out, "enum { %s };", list.at);
        emit_line(out, "typedef struct %sLink {", camel);
        out->depth++;
        emit_line(out, "LpWhere in, out, grad_in, grad_out, saved;");
        if (trainer_class_draws(t, c))
            emit_line(out, "long layer; /* place in the chain */");
        if (reads_data(t->program->body[c]))
            emit_line(out, "LpWhere data[4];");
        if (graph->params.n)
            emit_line(out, "int64_t weight[%s_PARAMS], gradient[%s_PARAMS];", upper, upper);
        out->depth--;
        emit_line(out, "} %sLink;", camel);
        emit_blank(out);
    }
}

/* Which part of the model a row is. */
static void print_link_name(Trainer *t, Emit *out, int link)
{
    const Link *at = &t->net->chain.at[link];
    int alike = 0;
    for (int l = 0; l < t->net->chain.n; l++)
        alike += t->net->chain.at[l].class == at->class;
    const char *name = t->class_name[at->class];
    if (alike > 1)
        emit_comment(out, "%s %d, link %d of the chain", name, at->index, link);
    else
        emit_comment(out, "%s, link %d of the chain", name, link);
}

static void print_link_row(Trainer *t, Emit *out, const StageProgram *stage, int i)
{
    static const char *const field[] = {"in", "out", "grad_in", "grad_out"};
    static const char *const data_index[DATA_COUNT] = {"IDS", "LABELS", "WEIGHT", "STARTS"};
    const StageLink *link = &stage->link[i];
    const Body *body = link->body;
    const int copy[] = {body->in, body->out, body->grad_in, body->grad_out};
    Str row = str_new(t->arena);
    str_put(&row, "{");
    for (int k = 0; k < 4; k++) {
        if (copy[k] != NONE)
            str_putf(&row, ".%s = %s, ", field[k], where_text(t, stage, i, copy[k]));
    }
    str_putf(&row, ".saved = {LP_AT_SAVED, %lld}", (long long)link->saved_offset);
    if (trainer_class_draws(t, class_of(t, link)))
        str_putf(&row, ", .layer = %d", link->link);
    for (int d = 0; d < DATA_COUNT; d++) {
        int read = data_copy(body, d);
        if (read != NONE)
            str_putf(&row, ", .data[%s] = %s", data_index[d], where_text(t, stage, i, read));
    }
    for (int which = 0; which < 2 && body->graph->params.n; which++) {
        str_put(&row, which ? ", .gradient = {" : ", .weight = {");
        for (int p = 0; p < body->graph->params.n; p++) {
            int64_t address = (which ? link->gradient : link->weight)[p];
            str_putf(&row, "%s%lld", p ? ", " : "", address == NONE ? 0LL : (long long)address);
        }
        str_put(&row, "}");
    }
    str_put(&row, "},");
    print_link_name(t, out, link->link);
    emit_line(out, "%s", row.at);
}

void trainer_print_link_tables(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    for (int c = 0; c < t->net->classes.n; c++) {
        bool open = false;
        for (int i = 0; i < stage->links; i++) {
            if (class_of(t, &stage->link[i]) != c)
                continue;
            if (!open) {
                emit_line(out, "static const %sLink stage%d_%s[] = {",
                          trainer_camel(t, t->class_name[c]), s, t->class_name[c]);
                out->depth++;
                open = true;
            }
            print_link_row(t, out, stage, i);
        }
        if (open) {
            out->depth--;
            emit_line(out, "};");
            emit_blank(out);
        }
    }
}

/* ---- waits ---- */

static const char *message_event(Stream stream)
{
    return stream == STREAM_SEND_ACT    ? "send_activation"
           : stream == STREAM_RECV_ACT  ? "recv_activation"
           : stream == STREAM_SEND_GRAD ? "send_gradient"
                                        : "recv_gradient";
}

static RingKind message_ring(Stream stream)
{
    return stream == STREAM_SEND_ACT    ? RING_OUT
           : stream == STREAM_RECV_ACT  ? RING_IN
           : stream == STREAM_SEND_GRAD ? RING_GRAD_OUT
                                        : RING_GRAD_IN;
}

static void print_message_wait(Trainer *t, Emit *out, int stage, const Event *event,
                               const char *micro)
{
    const char *name = message_event(event->stream);
    int n = t->program->stage[stage].ring[message_ring(event->stream)].n;
    if (n == 1) {
        emit_line(out, "lp_wait(&s->%s[0]);", name);
    } else if (event->any_slot || !micro) {
        emit_line(out, "for (int slot = 0; slot < %d; slot++)", n);
        emit_line(out, "    lp_wait(&s->%s[slot]);", name);
    } else {
        emit_line(out, "lp_wait(&s->%s[%s %% %d]);", name, micro, n);
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

static int link_waits(const Trainer *t, int stage, bool backward, int link, const Event **ret)
{
    Place place = {.kind = PLACE_LINK, .stage = stage, .backward = backward, .index = link};
    return waits_at(t->waits, &place, ret);
}

static bool has_bucket_waits(const Trainer *t, int stage, bool backward)
{
    for (int i = 0; i < t->program->stage[stage].links; i++) {
        const Event *events;
        int n = link_waits(t, stage, backward, i, &events);
        for (int e = 0; e < n; e++) {
            if (events[e].kind == EVENT_BUCKET)
                return true;
        }
    }
    return false;
}

/* Does the link wait for anything besides buckets? Then it stands alone. */
static bool has_other_waits(const Trainer *t, int stage, bool backward, int link)
{
    const Event *events;
    int n = link_waits(t, stage, backward, link, &events);
    for (int e = 0; e < n; e++) {
        if (events[e].kind != EVENT_BUCKET)
            return true;
    }
    return false;
}

/* Which buckets each link waits for: gathers of updated weights that may still be under way. */
static void print_bucket_table(Trainer *t, Emit *out, int s, bool backward)
{
    const StageProgram *stage = &t->program->stage[s];
    int widest = 1;
    for (int i = 0; i < stage->links; i++) {
        const Event *events;
        int n = link_waits(t, s, backward, i, &events), buckets = 0;
        for (int e = 0; e < n; e++)
            buckets += events[e].kind == EVENT_BUCKET;
        widest = buckets > widest ? buckets : widest;
    }
    Str rows = str_new(t->arena);
    for (int i = 0; i < stage->links; i++) {
        const Event *events;
        int n = link_waits(t, s, backward, i, &events), buckets = 0;
        str_put(&rows, i ? ", " : "");
        str_put(&rows, widest > 1 ? "{" : "");
        for (int e = 0; e < n; e++) {
            if (events[e].kind == EVENT_BUCKET)
                str_putf(&rows, "%s%d", buckets++ ? ", " : "", events[e].bucket);
        }
        for (; buckets < widest; buckets++)
            str_putf(&rows, "%s-1", buckets ? ", " : "");
        str_put(&rows, widest > 1 ? "}" : "");
    }
    const char *part = backward ? "backward" : "forward";
    emit_comment(out, "Buckets whose gathers each link waits for; -1: none.");
    const char *width = widest > 1 ? arena_printf(t->arena, "[%d]", widest) : "";
    emit_line(out, "static const int stage%d_%s_buckets[%d]%s = {%s};", s, part, stage->links,
              width, rows.at);
    emit_blank(out);
    emit_open_function(out, "static void stage%d_%s_wait(State *s, int link)", s, part);
    if (widest > 1)
        emit_open(out, "for (int i = 0; i < %d; i++)", widest);
    emit_line(out, "const int bucket = stage%d_%s_buckets[link]%s;", s, part,
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

/* Links [begin, end) of one class that are called the same way. */
static void print_run(Trainer *t, Emit *out, int s, bool backward, int begin, int end, bool buckets)
{
    const StageProgram *stage = &t->program->stage[s];
    int class = class_of(t, &stage->link[begin]), before = 0;
    for (int i = 0; i < begin; i++)
        before += class_of(t, &stage->link[i]) == class;
    const char *part = backward ? "backward" : "forward", *name = t->class_name[class];
    Place place = {.kind = PLACE_LINK, .stage = s, .backward = backward, .index = begin};
    bool closes = backward && any_closes(stage, begin, end), loop = end - begin > 1;
    const char *link = arena_printf(t->arena, "%d", begin),
               *at = arena_printf(t->arena, "%d", before);
    if (!loop && has_other_waits(t, s, backward, begin)) {
        trainer_print_waits(t, out, &place, "micro");
        buckets = false;
    }
    if (loop) {
        if (backward)
            emit_open(out, "for (int i = %d; i >= %d; i--)", end - 1, begin);
        else
            emit_open(out, "for (int i = %d; i < %d; i++)", begin, end);
        link = "i";
        at = begin == before ? "i" : arena_printf(t->arena, "i - %d", begin - before);
    }
    if (buckets)
        emit_line(out, "stage%d_%s_wait(s, %s);", s, part, link);
    emit_line(out, "%s_%s(s, &stage%d_%s[%s], &at%s);", name, part, s, name, at,
              t->takes_first[class][backward] ? ", first" : "");
    if (closes) {
        emit_line(out, "if (last)");
        emit_line(out, "    stage%d_close(s, %s);", s, link);
    }
    if (loop)
        emit_close_slim(out);
}

static void print_links(Trainer *t, Emit *out, int s, bool backward, bool buckets)
{
    const StageProgram *stage = &t->program->stage[s];
    int runs[256][2], n = 0;
    for (int i = 0; i < stage->links;) {
        int end = i + 1;
        bool alone = has_other_waits(t, s, backward, i);
        while (!alone && end < stage->links &&
               class_of(t, &stage->link[end]) == class_of(t, &stage->link[i]) &&
               !has_other_waits(t, s, backward, end))
            end++;
        CHECK(n < 256);
        runs[n][0] = i;
        runs[n++][1] = end;
        i = end;
    }
    for (int r = 0; r < n; r++) {
        int k = backward ? n - 1 - r : r;
        print_run(t, out, s, backward, runs[k][0], runs[k][1], buckets);
    }
}

/* ---- functions of the stage ---- */

static void print_slots(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    emit_comment(out, "Where stage %d keeps micro-batch `micro`: slot micro mod n of each ring.",
                 s);
    emit_open_function(out, "static LpSlots stage%d_slots(const State *s, int micro)", s);
    emit_line(out, "LpSlots at = {{0}};");
    emit_line(out, "at.base[LP_AT_ARENA] = s->arena;");
    emit_line(out, "at.base[LP_AT_SCRATCH] = s->arena + %lldL;", (long long)stage->scratch);
    bool uses_micro = false;
    for (int r = 0; r < RING_COUNT; r++) {
        const Ring *ring = &stage->ring[r];
        if (ring->n == 0)
            continue;
        if (ring->n == 1) {
            emit_line(out, "at.base[%s] = s->arena + %lldL;", ring_name[r], (long long)ring->base);
        } else {
            emit_line(out, "at.base[%s] = s->arena + %lldL + micro %% %d * %lldL;", ring_name[r],
                      (long long)ring->base, ring->n, (long long)ring->stride);
            uses_micro = true;
        }
    }
    if (!uses_micro)
        emit_line(out, "(void)micro;");
    emit_line(out, "return at;");
    emit_close(out, "");
    emit_blank(out);
}

static const Copy *find_data(const StageProgram *stage, int data)
{
    for (int i = 0; i < stage->links; i++) {
        int copy = data_copy(stage->link[i].body, data);
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
static void print_load(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    bool done[DATA_COUNT] = {false};
    Place place = {.kind = PLACE_LOAD, .stage = s};
    if (stage->ring[RING_DATA].n)
        trainer_print_waits(t, out, &place, "micro");
    for (int d = 0; d < DATA_COUNT; d++) {
        const Copy *copy = stage->data_offset[d] == NONE ? NULL : find_data(stage, d);
        if (!copy || done[d])
            continue;
        Str args = str_new(t->arena);
        for (int e = 0; e < DATA_COUNT; e++) {
            const Copy *other = stage->data_offset[e] == NONE ? NULL : find_data(stage, e);
            bool together = e >= d && other && place_equal(&copy->place, &other->place);
            done[e] = done[e] || together;
            if (together)
                str_putf(&args, ", (%s *)(at.base[LP_AT_DATA] + %lld)",
                         e == DATA_WEIGHT ? "float" : "int32_t", (long long)stage->data_offset[e]);
            else
                str_put(&args, ", NULL");
        }
        emit_line(out, "lp_batch(step, micro, %s, %lld, %s, %lld%s);", begin_text(t, copy, 0),
                  (long long)copy->local[0], begin_text(t, copy, 1), (long long)copy->local[1],
                  args.at);
    }
}

/* The micro-batch whose row is flagged first, or last. */
static int flagged_micro(const StageProgram *stage, PartKind part, bool last)
{
    for (int i = 0; i < stage->table.n; i++) {
        const Entry *entry = &stage->table.at[i];
        if (entry->kind == ENTRY_COMPUTE && (entry->part == PART_F) == (part == PART_F) &&
            (last ? entry->last : entry->first))
            return entry->micro;
    }
    return NONE;
}

static bool any_takes_first(const Trainer *t, int s, bool backward)
{
    const StageProgram *stage = &t->program->stage[s];
    for (int i = 0; i < stage->links; i++) {
        if (t->takes_first[class_of(t, &stage->link[i])][backward])
            return true;
    }
    return false;
}

static void print_sample(Trainer *t, Emit *out, int s)
{
    if (trainer_stage_draws(t, s))
        emit_line(out, "s->sample = s->begun + micro * %lldL;",
                  (long long)t->net->dims.at[t->net->batch].extent);
}

static void print_parts(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    bool forward_waits = has_bucket_waits(t, s, false),
         backward_waits = has_bucket_waits(t, s, true);
    if (forward_waits)
        print_bucket_table(t, out, s, false);
    if (backward_waits)
        print_bucket_table(t, out, s, true);
    emit_open_function(out, "static void stage%d_forward(State *s, %sint micro)", s,
                       stage->ring[RING_DATA].n ? "int64_t step, " : "");
    emit_line(out, "const LpSlots at = stage%d_slots(s, micro);", s);
    if (any_takes_first(t, s, false))
        emit_line(out, "const bool first = micro == %d;", flagged_micro(stage, PART_F, false));
    print_load(t, out, s);
    print_sample(t, out, s);
    print_links(t, out, s, false, forward_waits);
    emit_close(out, "");
    emit_blank(out);
    emit_open_function(out, "static void stage%d_backward(State *s, int micro)", s);
    emit_line(out, "const LpSlots at = stage%d_slots(s, micro);", s);
    if (any_takes_first(t, s, true))
        emit_line(out, "const bool first = micro == %d;", flagged_micro(stage, PART_B, false));
    if (any_closes(stage, 0, stage->links))
        emit_line(
            out,
            "const bool last = micro == %d; /* gradients are complete: their buckets may go */",
            flagged_micro(stage, PART_B, true));
    print_sample(t, out, s);
    print_links(t, out, s, true, backward_waits);
    emit_close(out, "");
    emit_blank(out);
}

static const Entry *find_message(const StageProgram *stage, EntryKind kind, MsgKind message)
{
    for (int i = 0; i < stage->table.n; i++) {
        if (stage->table.at[i].kind == kind && stage->table.at[i].message == message)
            return &stage->table.at[i];
    }
    return NULL;
}

static void print_message(Trainer *t, Emit *out, int s, EntryKind kind, MsgKind message)
{
    const StageProgram *stage = &t->program->stage[s];
    const Entry *entry = find_message(stage, kind, message);
    if (!entry)
        return;
    bool send = kind == ENTRY_SEND, act = message == MSG_ACTIVATION;
    int link = send == act ? stage->links - 1 : 0;
    const Body *body = stage->link[link].body;
    int id = send ? act ? body->out : body->grad_out : act ? body->in : body->grad_in;
    RingKind ring = send ? act ? RING_OUT : RING_GRAD_OUT : act ? RING_IN : RING_GRAD_IN;
    const char *verb = send ? "send" : "recv", *what = act ? "activation" : "gradient";
    emit_comment(out, "%s stage %d: %s.", send ? "To" : "From", entry->peer,
                 shape_comment(t, body, id));
    emit_open_function(out, "static void stage%d_%s_%s(State *s, int micro)", s, verb, what);
    emit_line(out, "const LpSlots at = stage%d_slots(s, micro);", s);
    Place place = {.kind = send ? PLACE_SEND : PLACE_RECV, .stage = s, .index = message};
    trainer_print_waits(t, out, &place, "micro");
    const char *slot =
        stage->ring[ring].n == 1 ? "0" : arena_printf(t->arena, "micro %% %d", stage->ring[ring].n);
    emit_line(out, "lp_%s(&s->%s_%s[%s], peer_of(s, %d), %s, at.base[%s], %lldL);", verb, verb,
              what, slot, entry->peer, act ? "LP_ACTIVATION" : "LP_GRADIENT", ring_name[ring],
              (long long)body->copies.at[id].bytes);
    emit_close(out, "");
    emit_blank(out);
}

void trainer_print_stage(Trainer *t, Emit *out, int s)
{
    print_slots(t, out, s);
    trainer_print_update(t, out, s);
    print_parts(t, out, s);
    for (int kind = ENTRY_SEND; kind <= ENTRY_RECV; kind++) {
        for (int message = MSG_ACTIVATION; message <= MSG_GRADIENT; message++)
            print_message(t, out, s, (EntryKind)kind, (MsgKind)message);
    }
}
