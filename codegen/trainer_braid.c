/* trainer_braid.c - rows that are two in one: functions of two bodies, and of the pairs of links of
 * two chunks. */
#include "codegen/trainer_body.h"
#include "ir/lower/braid.h"

static int class_of(const Trainer *t, const Body *body)
{
    int class = 0;
    while (t->program->body[class] != body)
        class ++;
    return class;
}

static const char *part_suffix(PartKind part)
{
    return part == PART_I ? "_input" : part == PART_W ? "_weight" : "";
}

static const char *braid_name(Trainer *t, const Braid *braid)
{
    return arena_printf(t->arena, "%s_beside_%s%s", t->class_name[class_of(t, braid->forward)],
                        t->class_name[class_of(t, braid->backward)], part_suffix(braid->part));
}

/* Accumulators of the two that begin with their first micro-batch. */
static bool takes_first(const Trainer *t, const Braid *braid, bool forward)
{
    int begin, end, class = class_of(t, forward ? braid->forward : braid->backward);
    bool takes = false;
    part_lists(forward ? PART_F : braid->part, &begin, &end);
    for (int l = begin; l < end; l++)
        takes = takes || t->takes_first[class][l];
    return takes;
}

/* ---- two bodies ---- */

static bool print_insts(BodyPrinter *list[BODY_LISTS], const Braid *braid)
{
    for (int i = 0; i < braid->n; i++) {
        BodyPrinter *p = list[braid->inst[i].list];
        if (i)
            emit_blank(p->emit);
        if (!body_print_inst(p, braid->inst[i].inst))
            return false;
        int next = braid->inst[i].inst + 1;
        if (next == body_list(p->body, p->which)->n)
            body_print_waits(p, next);
    }
    return true;
}

static void print_braid(Trainer *t, Emit *out, const Braid *braid)
{
    Emit statements = emit_new(t->arena);
    statements.depth = 1;
    Names *names = body_names(t);
    static const char *const reserved[] = {"back", "back_at", "back_first"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        names_take(names, reserved[i]);
    int ahead = class_of(t, braid->forward), back = class_of(t, braid->backward);
    BodyPrinter printer[BODY_LISTS], *list[BODY_LISTS];
    for (int l = 0; l < BODY_LISTS; l++) {
        printer[l] = body_printer(t, &statements, l ? back : ahead, l, names);
        printer[l].beside = l ? "backward" : "forward";
        list[l] = &printer[l];
        if (l == 0)
            continue;
        printer[l].link = "back";
        printer[l].at = "back_at";
        printer[l].first = "back_first";
        printer[l].var = printer[1].var; /* one body */
        printer[l].written = printer[1].written;
    }
    if (!print_insts(list, braid))
        return;
    const char *name = braid_name(t, braid);
    emit_comment(out, "Forward of %s, and beside it backward%s of %s for another micro-batch.",
                 emit_clean(t->arena, braid->forward->graph->name, CLEAN_NAME),
                 braid->part == PART_I   ? " to the input"
                 : braid->part == PART_W ? " to the weights"
                                         : "",
                 emit_clean(t->arena, braid->backward->graph->name, CLEAN_NAME));
    emit_open_function(out,
                       "static void %s(State *s, const %sLink *link, const LpSlots *at, const "
                       "%sLink *back, const LpSlots *back_at%s%s)",
                       name, trainer_camel(t, t->class_name[ahead]),
                       trainer_camel(t, t->class_name[back]),
                       takes_first(t, braid, true) ? ", bool first" : "",
                       takes_first(t, braid, false) ? ", bool back_first" : "");
    emit_text(out, body_pointers(&printer[0]));
    emit_text(out, body_pointers(&printer[1]));
    emit_line(out, "lp_at(\"%s\");", name);
    emit_blank(out);
    emit_text(out, statements.text.at);
    emit_close(out, "");
    emit_blank(out);
}

static bool is_pair(const PairLink *link)
{
    return link->forward != NONE && link->backward != NONE;
}

void trainer_print_braids(Trainer *t, Emit *out)
{
    VEC(const Braid *) done = {0};
    for (int s = 0; s < t->program->stages; s++)
        for (int i = 0; i < t->program->stage[s].pairings.n; i++) {
            const Pairing *pairing = t->program->stage[s].pairings.at[i];
            for (int k = 0; k < pairing->links; k++) {
                const Braid *braid = pairing->link[k].braid;
                bool known = !is_pair(&pairing->link[k]);
                for (int d = 0; d < done.n; d++)
                    known = known || done.at[d] == braid;
                if (known)
                    continue;
                vec_push(t->arena, &done) = braid;
                print_braid(t, out, braid);
            }
        }
}

/* ---- two rows ---- */

/* One of the two rows of a pairing, as its function has it. */
typedef struct Side {
    int chunk; /* of the stage */
    bool forward;
    PartKind part;
    const char *micro, *at, *first, *last; /* variables */
    bool begins, closes;                   /* has it the last two? */
} Side;

typedef struct RowPrinter {
    Trainer *t;
    Emit *out;
    int s;
    const StageProgram *stage;
    const Pairing *pairing;
    Side side[2]; /* the forward, the backward */
} RowPrinter;

const char *trainer_beside(Trainer *t, int s, const Entry *entry)
{
    const StageProgram *stage = &t->program->stage[s];
    const Pairing *pairing = entry_pairing(stage, entry);
    const char *chunk = trainer_chunk(t, s, pairing->forward);
    if (stage->chunks == 1)
        return arena_printf(t->arena, "%s_beside%s", chunk, part_suffix(pairing->part));
    return arena_printf(t->arena, "%s_beside_chunk%d%s", chunk,
                        stage->chunk[pairing->backward].index, part_suffix(pairing->part));
}

static int side_link(const RowPrinter *r, const Side *side, const PairLink *pair)
{
    int at = side->forward ? pair->forward : pair->backward;
    return at == NONE ? NONE : row_link(&r->stage->chunk[side->chunk], side->forward, at);
}

static bool side_alone(const RowPrinter *r, const Side *side, int link)
{
    int begin, end;
    bool alone = false;
    part_lists(side->part, &begin, &end);
    for (int l = begin; l < end; l++)
        alone = alone || trainer_stands_alone(r->t, r->s, l, link);
    return alone;
}

/* "12", or what a loop of the first `k` calls it. */
static const char *counted(const RowPrinter *r, int begin, const Side *side, bool loop)
{
    if (!loop)
        return arena_printf(r->t->arena, "%d", begin);
    if (side->forward && begin == 0)
        return "i";
    return arena_printf(r->t->arena, side->forward ? "i + %d" : "%d - i", begin);
}

static const char *link_text(const RowPrinter *r, const Side *side, int link, bool loop)
{
    int class = trainer_class_of(r->t, &r->stage->link[link]), before = 0;
    for (int i = 0; i < link; i++)
        before += trainer_class_of(r->t, &r->stage->link[i]) == class;
    return arena_printf(r->t->arena, "&stage%d_%s[%s], &%s", r->s, r->t->class_name[class],
                        counted(r, before, side, loop), side->at);
}

/* What a link waits for before any of its lists that run in the row. */
static void print_side_waits(const RowPrinter *r, const Side *side, int link, bool loop)
{
    int begin, end;
    part_lists(side->part, &begin, &end);
    end = r->t->split ? end : end < 2 ? end : 2;
    for (int l = begin; l < end; l++) {
        Place place = {.kind = PLACE_LINK, .stage = r->s, .which = l, .index = link};
        if (trainer_stands_alone(r->t, r->s, l, link))
            trainer_print_waits(r->t, r->out, &place, side->micro);
        else
            trainer_print_link_waits(r->t, r->out, r->s, &r->stage->chunk[side->chunk], l,
                                     counted(r, link, side, loop));
    }
}

/* What draws counts samples of the run; a body's own functions know one micro-batch at work. */
static void print_sample(const RowPrinter *r, const char *field, const char *micro)
{
    if (trainer_stage_draws(r->t, r->s))
        emit_line(r->out, "s->%s = s->begun + %s * %lldL;", field, micro,
                  (long long)r->t->net->dims.at[r->t->net->batch].extent);
}

/* A link by itself: its body's own functions. */
static void print_alone(const RowPrinter *r, const Side *side, int link)
{
    if (!side->forward)
        print_sample(r, "sample", side->micro);
    int begin, end, class = trainer_class_of(r->t, &r->stage->link[link]);
    part_lists(side->part, &begin, &end);
    end = r->t->split ? end : end < 2 ? end : 2;
    for (int l = begin; l < end; l++) {
        const char *first =
            r->t->takes_first[class][l] ? arena_printf(r->t->arena, ", %s", side->first) : "";
        emit_line(r->out, "%s_%s(s, %s%s);", r->t->class_name[class], trainer_part(r->t, l),
                  link_text(r, side, link, false), first);
    }
    if (!side->forward)
        print_sample(r, "sample", r->side[0].micro);
}

static void print_close(const RowPrinter *r, const Side *side, int link, int links, bool loop)
{
    bool closes = false;
    for (int i = 0; i < links; i++)
        closes = closes || link_closes(r->stage, link - i);
    if (!closes || !side->closes)
        return;
    const char *text = counted(r, link, side, loop);
    if (stage_scatters(r->stage)) {
        emit_line(r->out, "stage%d_close(s, %s, %s, %s);", r->s, text, side->first, side->last);
    } else {
        emit_line(r->out, "if (%s)", side->last);
        emit_line(r->out, "    stage%d_close(s, %s);", r->s, text);
    }
}

/* Pairs from number `k` on that a loop calls alike. */
static int run_length(const RowPrinter *r, int k)
{
    const PairLink *pair = r->pairing->link;
    int n = 1;
    while (is_pair(&pair[k]) && k + n < r->pairing->links && pair[k + n].braid == pair[k].braid &&
           is_pair(&pair[k + n]))
        n++;
    for (int i = 0; i < n; i++)
        for (int side = 0; side < 2; side++) {
            int link = side_link(r, &r->side[side], &pair[k + i]);
            if (link != NONE && side_alone(r, &r->side[side], link))
                return i ? i : 1;
        }
    return n;
}

/* Weights of the links behind n of them, one link ahead, from files two, but for the last of the
 * row. */
static void print_side_ahead(const RowPrinter *r, const Side *side, int link, int n)
{
    const Chunk *chunk = &r->stage->chunk[side->chunk];
    int last = side->forward ? chunk->end - 1 - link : link - chunk->begin; /* links behind it */
    for (int near = trainer_weight_hops(r->t, r->s) - 1; near >= 0; near--) {
        if (!stage_fetches(r->stage) || last <= near)
            continue;
        bool edge = last - (n - 1) <= near;
        if (edge)
            emit_line(r->out, "if (i < %d)", last - near);
        emit_line(r->out, "%sstage%d_%s(s, %s, %s);", edge ? "    " : "", r->s,
                  trainer_weight_hop(near), side->forward ? "true" : "false",
                  counted(r, link + (side->forward ? near + 1 : -near - 1), side, n > 1));
    }
}

static void print_pairs(const RowPrinter *r, int k, int n)
{
    const PairLink *pair = &r->pairing->link[k];
    int link[2];
    for (int side = 0; side < 2; side++)
        link[side] = side_link(r, &r->side[side], pair);
    if (n > 1)
        emit_open(r->out, "for (int i = 0; i < %d; i++)", n);
    for (int side = 0; side < 2; side++)
        if (link[side] != NONE)
            print_side_ahead(r, &r->side[side], link[side], n);
    if (link[1] != NONE)
        trainer_print_return(r->t, r->out, r->s, r->side[1].chunk, r->side[1].part != PART_W,
                             link[1], counted(r, link[1], &r->side[1], n > 1), "back, 0");
    for (int side = 0; side < 2; side++)
        if (link[side] != NONE)
            print_side_waits(r, &r->side[side], link[side], n > 1);
    if (is_pair(pair))
        emit_line(r->out, "%s(s, %s, %s%s%s);", braid_name(r->t, pair->braid),
                  link_text(r, &r->side[0], link[0], n > 1),
                  link_text(r, &r->side[1], link[1], n > 1),
                  takes_first(r->t, pair->braid, true) ? ", first" : "",
                  takes_first(r->t, pair->braid, false) ? ", back_first" : "");
    else
        print_alone(r, &r->side[link[0] == NONE], link[link[0] == NONE]);
    if (link[0] != NONE)
        trainer_print_leave(r->t, r->out, r->s, r->side[0].chunk, link[0],
                            counted(r, link[0], &r->side[0], n > 1), "micro, 0");
    if (link[1] != NONE)
        print_close(r, &r->side[1], link[1], n, n > 1);
    if (n > 1)
        emit_close_slim(r->out);
}

/* Whether the row is the first, or the last, of its chunk that adds to what it adds to. */
static void print_flags(const RowPrinter *r, const Side *side)
{
    if (side->begins)
        emit_line(r->out, "const bool %s = %s == %d;", side->first, side->micro,
                  flagged_micro(r->stage, side->chunk, side->forward, false));
    if (side->closes)
        emit_line(r->out, "const bool %s = %s == %d;", side->last, side->micro,
                  flagged_micro(r->stage, side->chunk, side->forward, true));
}

static Side side_of(const RowPrinter *r, bool forward)
{
    Side side = {forward ? r->pairing->forward : r->pairing->backward,
                 forward,
                 forward ? PART_F : r->pairing->part,
                 forward ? "micro" : "back",
                 forward ? "at" : "back_at",
                 forward ? "first" : "back_first",
                 "back_last",
                 false,
                 false};
    const Chunk *chunk = &r->stage->chunk[side.chunk];
    int begin, end;
    part_lists(side.part, &begin, &end);
    for (int i = chunk->begin; i < chunk->end; i++) {
        for (int l = begin; l < end; l++)
            side.begins =
                side.begins || r->t->takes_first[trainer_class_of(r->t, &r->stage->link[i])][l];
        side.closes = side.closes || (!forward && side.part != PART_I && link_closes(r->stage, i));
    }
    side.begins = side.begins || (side.closes && stage_scatters(r->stage));
    return side;
}

static void print_pairing(Trainer *t, Emit *out, int s, const Entry *entry)
{
    const StageProgram *stage = &t->program->stage[s];
    RowPrinter r = {
        .t = t, .out = out, .s = s, .stage = stage, .pairing = entry_pairing(stage, entry)};
    const Chunk *ahead = &stage->chunk[r.pairing->forward];
    r.side[0] = side_of(&r, true);
    r.side[1] = side_of(&r, false);
    emit_comment(out,
                 "Forward of micro-batch `micro`, and beside it backward of micro-batch `back`: "
                 "collectives of one run under kernels of the other.");
    emit_open_function(out, "static void %s(State *s, %sint micro, int back)",
                       trainer_beside(t, s, entry),
                       ahead->ring[RING_DATA].n ? "int64_t step, " : "");
    emit_line(out, "const LpSlots at = %s;",
              trainer_slots(t, s, r.pairing->forward, "micro", false));
    emit_line(out, "const LpSlots back_at = %s;",
              trainer_slots(t, s, r.pairing->backward, "back", true));
    print_flags(&r, &r.side[0]);
    print_flags(&r, &r.side[1]);
    trainer_print_load(t, out, s, ahead);
    print_sample(&r, "sample", "micro");
    print_sample(&r, "sample_back", "back");
    for (int side = 0; side < 2 && stage_fetches(stage); side++)
        trainer_print_first_weights(t, out, s, &stage->chunk[r.side[side].chunk], side == 0, false);
    for (int k = 0; k < r.pairing->links;) {
        int n = run_length(&r, k);
        print_pairs(&r, k, n);
        k += n;
    }
    emit_close(out, "");
    emit_blank(out);
}

void trainer_print_pairings(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    for (int p = 0; p < stage->pairings.n; p++)
        for (int i = 0; i < stage->table.n; i++)
            if (stage->table.at[i].braids &&
                entry_pairing(stage, &stage->table.at[i]) == stage->pairings.at[p]) {
                print_pairing(t, out, s, &stage->table.at[i]);
                break;
            }
}
