/* trainer_waits.c - waits as text: the events of a place, and tables of what each link waits for.
 */
#include "codegen/trainer.h"

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

const char *trainer_slot(Trainer *t, int s, int chunk, RingKind kind, const char *micro)
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
        emit_line(out, "lp_wait(&s->%s[%s]);", name, trainer_slot(t, s, event->chunk, kind, micro));
    }
}

/* Fields of State whose events links wait for by tables, from EVENT_BUCKET on. */
static const char *const table_event[] = {"bucket",
                                          "fetch",
                                          "carry[LP_COPY_IN]",
                                          "sums[LP_COPY_OUT]",
                                          "sums[LP_COPY_IN]",
                                          "spill[LP_COPY_OUT]",
                                          "spill[LP_COPY_IN]"};

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
        case EVENT_FETCH:
        case EVENT_CARRY:
        case EVENT_TAKEN:
        case EVENT_BROUGHT:
        case EVENT_SPILL:
        case EVENT_FILL:
            emit_line(out, "lp_wait(&s->%s[%d]);", table_event[event->kind - EVENT_BUCKET],
                      event->bucket);
            break;
        case EVENT_WORLD:
            emit_line(out, "lp_wait(&s->world);");
            break;
        case EVENT_HOP:
            break; /* trainer_print_hop_waits */
        }
    }
}

bool trainer_bucket_waits(Trainer *t, Emit *out, int stage, PlaceKind kind)
{
    const StageProgram *program = &t->program->stage[stage];
    bool own = false, other = false, buckets = true;
    for (int b = 0; b < program->buckets.n; b++) {
        const Event *events;
        Place place = {.kind = kind, .stage = stage, .index = b};
        int n = waits_at(t->waits, &place, &events);
        for (int i = 0; i < n; i++) {
            EventKind other_kind = events[i].kind; /* printed by those who print the hops */
            if (other_kind == EVENT_HOP ||
                (other_kind >= EVENT_CARRY && other_kind <= EVENT_BROUGHT))
                continue;
            EventKind kind_of = kind == PLACE_FETCH ? EVENT_FETCH : EVENT_BUCKET;
            bool mine = events[i].kind == kind_of && events[i].bucket == b;
            own = own || mine;
            other = other || !mine;
            buckets = buckets && events[i].kind == EVENT_BUCKET;
        }
    }
    if (!other || (kind == PLACE_NORM && buckets)) /* the norm reads one bucket after the other */
        return own || other;
    for (int b = 0; b < program->buckets.n; b++) {
        Place place = {.kind = kind, .stage = stage, .index = b};
        trainer_print_waits(t, out, &place, NULL);
    }
    return false;
}

/* ---- before a link ---- */

static int link_waits(const Trainer *t, int stage, int which, int link, const Event **ret)
{
    Place place = {.kind = PLACE_LINK, .stage = stage, .which = which, .index = link};
    return waits_at(t->waits, &place, ret);
}

static int count_waits(const Trainer *t, int stage, int which, int link, EventKind kind)
{
    const Event *events;
    int n = link_waits(t, stage, which, link, &events), found = 0;
    for (int e = 0; e < n; e++)
        found += events[e].kind == kind;
    return found;
}

bool trainer_stands_alone(const Trainer *t, int stage, int which, int link)
{
    const Event *events;
    int n = link_waits(t, stage, which, link, &events);
    for (int e = 0; e < n; e++) {
        if (events[e].kind < EVENT_BUCKET || events[e].kind > EVENT_FILL)
            return true;
    }
    return false;
}

/* Of links that are called alike; the others name their events themselves. */
static bool has_bucket_waits(const Trainer *t, int stage, const Chunk *chunk, int which,
                             EventKind kind)
{
    for (int i = chunk->begin; i < chunk->end; i++) {
        if (!trainer_stands_alone(t, stage, which, i) && count_waits(t, stage, which, i, kind))
            return true;
    }
    return false;
}

/* "stage0_forward_wait", "stage0_forward_fetched". */
static const char *wait_name(Trainer *t, int s, const Chunk *chunk, int which, EventKind kind)
{
    int own = (int)(chunk - t->program->stage[s].chunk);
    static const char *const word[] = {"wait",    "fetched", "carried", "taken",
                                       "brought", "free",    "filled"};
    return arena_printf(t->arena, "%s_%s_%s", trainer_chunk(t, s, own), trainer_part(t, which),
                        word[kind - EVENT_BUCKET]);
}

void trainer_print_link_waits(Trainer *t, Emit *out, int s, const Chunk *chunk, int which,
                              const char *link)
{
    for (int kind = EVENT_BUCKET; kind <= EVENT_FILL; kind++) {
        if (has_bucket_waits(t, s, chunk, which, (EventKind)kind))
            emit_line(out, "%s(s, %s);", wait_name(t, s, chunk, which, (EventKind)kind), link);
    }
}

/* Which buckets each link waits for: gathers of updated weights that may still be under way,
 * gradients that leave a buffer; or weights that are fetched. */
static void print_wait_table(Trainer *t, Emit *out, int s, const Chunk *chunk, int which,
                             EventKind kind)
{
    static const char *const what[] = {"buckets",  "fetches", "carries", "leavings",
                                       "arrivals", "spills",  "fills"};
    static const char *const says[] = {
        "Buckets whose gathers each link waits for; -1: none.",
        "Buckets whose weights each link waits for; -1: none.",
        "Buckets whose weights must have come from the host before each link; -1: none.",
        "Buckets whose gradients must have left the arena before each link; -1: none.",
        "Buckets whose gradients each link adds to, once they have come; -1: none.",
        "%ss whose saved values must have left before each link; -1: none.",
        "%ss whose saved values each link waits for; -1: none."};
    int widest = 1, links = chunk->end - chunk->begin;
    for (int i = chunk->begin; i < chunk->end; i++) {
        int buckets = count_waits(t, s, which, i, kind);
        widest = buckets > widest ? buckets : widest;
    }
    Str rows = str_new(t->arena);
    for (int i = chunk->begin; i < chunk->end; i++) {
        const Event *events;
        int n = link_waits(t, s, which, i, &events), buckets = 0;
        str_put(&rows, i > chunk->begin ? ", " : "");
        str_put(&rows, widest > 1 ? "{" : "");
        for (int e = 0; e < n; e++) {
            if (events[e].kind == kind)
                str_putf(&rows, "%s%d", buckets++ ? ", " : "", events[e].bucket);
        }
        for (; buckets < widest; buckets++)
            str_putf(&rows, "%s-1", buckets ? ", " : "");
        str_put(&rows, widest > 1 ? "}" : "");
    }
    int own = (int)(chunk - t->program->stage[s].chunk);
    const char *table = arena_printf(t->arena, "%s_%s_%s", trainer_chunk(t, s, own),
                                     trainer_part(t, which), what[kind - EVENT_BUCKET]);
    const StageProgram *stage = &t->program->stage[s];
    emit_comment(out, says[kind - EVENT_BUCKET], stage->blocks < stage->links ? "Block" : "Link");
    const char *width = widest > 1 ? arena_printf(t->arena, "[%d]", widest) : "";
    emit_line(out, "static const int %s[%d]%s = {%s};", table, links, width, rows.at);
    emit_blank(out);
    emit_open_function(out, "static void %s(State *s, int link)",
                       wait_name(t, s, chunk, which, kind));
    if (widest > 1)
        emit_open(out, "for (int i = 0; i < %d; i++)", widest);
    const char *link = chunk->begin ? arena_printf(t->arena, "link - %d", chunk->begin) : "link";
    const char *index = kind >= EVENT_SPILL ? "other" : "bucket";
    emit_line(out, "const int %s = %s[%s]%s;", index, table, link, widest > 1 ? "[i]" : "");
    emit_line(out, "if (%s >= 0)", index);
    emit_line(out, "    lp_wait(&s->%s[%s]);", table_event[kind - EVENT_BUCKET], index);
    if (widest > 1)
        emit_close(out, "");
    emit_close(out, "");
    emit_blank(out);
}

void trainer_print_wait_tables(Trainer *t, Emit *out, int s, const Chunk *chunk)
{
    for (int which = 0; which < (t->split ? BODY_LISTS : 2); which++) {
        for (int kind = EVENT_BUCKET; kind <= EVENT_FILL; kind++) {
            if (has_bucket_waits(t, s, chunk, which, (EventKind)kind))
                print_wait_table(t, out, s, chunk, which, (EventKind)kind);
        }
    }
}
