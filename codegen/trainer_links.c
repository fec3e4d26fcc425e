/* trainer_links.c - where the links of a stage have their values: a type for each class, a row for
 * each link. */
#include "codegen/trainer.h"
#include "ir/lower/layout.h"
#include "ir/lower/spill.h"

const char *const trainer_ring_base[RING_COUNT] = {
    "LP_AT_DATA",    "LP_AT_SAVED", "LP_AT_SAVED_W", "LP_AT_SAVED_IW", "LP_AT_STAYS",
    "LP_AT_STAYS_W", "LP_AT_IN",    "LP_AT_OUT",     "LP_AT_GRAD_IN",  "LP_AT_GRAD_OUT"};

/* Where a copy of a link is, for every micro-batch: an offset in a slot of its chunk, or in the
 * arena. What the next chunk of the same stage reads is the out slot of this one. */
static const char *where_text(Trainer *t, const StageProgram *stage, int link, int copy)
{
    if (copy == NONE)
        return "{LP_AT_ARENA, 0}";
    int64_t offset, address = copy_address(t->program, stage, link, copy, 0, 0, false);
    const Ring *ring = copy_ring(t->program, stage, link, copy, &offset);
    if (!ring)
        return arena_printf(t->arena, "{LP_AT_ARENA, %lld}", (long long)address);
    for (int micro = 0; micro < t->plan->micro_batches; micro++)
        for (int back = 0; back < 2; back++)
            CHECK(copy_address(t->program, stage, link, copy, 0, micro, back) ==
                  ring->base + ring->stride * ring_slot(ring, micro, back) + offset);
    const Chunk *chunk = &stage->chunk[stage->link[link].chunk];
    bool own = ring >= chunk->ring && ring < chunk->ring + RING_COUNT;
    int kind = own                                   ? (int)(ring - chunk->ring)
               : copy == stage->link[link].body->out ? RING_OUT
                                                     : RING_GRAD_OUT;
    return arena_printf(t->arena, "{%s, %lld}", trainer_ring_base[kind], (long long)offset);
}

int trainer_class_of(const Trainer *t, const StageLink *link)
{
    return t->net->chain.at[link->link].class;
}

int trainer_data_copy(const Body *body, int data)
{
    for (int c = 0; c < body->copies.n; c++) {
        const Copy *copy = &body->copies.at[c];
        if (copy->home == HOME_DATA && body->graph->data[data] == copy->value)
            return c;
    }
    return NONE;
}

int trainer_data_kinds(const Trainer *t)
{
    int n = DATA_FURTHER;
    for (int c = 0; c < t->net->classes.n; c++)
        for (int d = n; d < DATA_COUNT; d++)
            n = t->net->classes.at[c]->data[d] != NONE ? d + 1 : n;
    return n;
}

const char *trainer_data(Trainer *t, int data)
{
    static const char *const near[DATA_FURTHER] = {"IDS", "LABELS", "WEIGHT", "STARTS"};
    if (data < (int)DATA_FURTHER)
        return near[data];
    return arena_printf(t->arena, "%s_%d", data_is_weight(data) ? "WEIGHT" : "LABELS",
                        data_ahead(data));
}

static bool reads_data(const Body *body)
{
    for (int d = 0; d < DATA_COUNT; d++) {
        if (trainer_data_copy(body, d) != NONE)
            return true;
    }
    return false;
}

void trainer_print_link_types(Trainer *t, Emit *out)
{
    for (int c = 0; c < t->program->bodies; c++) {
        const Graph *graph = t->program->body[c]->graph;
        bool links = !trainer_is_matrix(t, c);
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
        if (links)
            emit_line(out, t->split
                               ? "LpWhere in, out, grad_in, grad_out, saved, saved_w, saved_iw;"
                               : "LpWhere in, out, grad_in, grad_out, saved;");
        if (links && trainer_class_draws(t, c))
            emit_line(out, "long layer; /* place in the chain */");
        if (reads_data(t->program->body[c]))
            emit_line(out, "LpWhere data[%d];", trainer_data_kinds(t));
        if (graph->params.n)
            emit_line(out, "int64_t weight[%s_PARAMS], gradient[%s_PARAMS];", upper, upper);
        if (graph->params.n && t->apart && links)
            emit_line_comment(out, arena_printf(t->arena, "int64_t weight_back[%s_PARAMS];", upper),
                              "weights as backward finds them");
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
    const StageLink *link = &stage->link[i];
    const Body *body = link->body;
    const int copy[] = {body->in, body->out, body->grad_in, body->grad_out};
    Str row = str_new(t->arena);
    str_put(&row, "{");
    for (int k = 0; k < 4; k++) {
        if (copy[k] != NONE)
            str_putf(&row, ".%s = %s, ", field[k], where_text(t, stage, i, copy[k]));
    }
    static const char *const saved[SAVED_KINDS] = {"saved", "saved_w", "saved_iw"};
    for (int kind = 0; kind < (t->split ? SAVED_KINDS : 1); kind++)
        str_putf(&row, "%s.%s = {%s, %lld}", kind ? ", " : "", saved[kind],
                 trainer_ring_base[spill_ring(t->program, link, (SavedKind)kind)],
                 (long long)link->saved_offset[kind]);
    if (trainer_class_draws(t, trainer_class_of(t, link)))
        str_putf(&row, ", .layer = %d", link->link);
    for (int d = 0; d < DATA_COUNT; d++) {
        int read = trainer_data_copy(body, d);
        if (read != NONE)
            str_putf(&row, ", .data[%s] = %s", trainer_data(t, d), where_text(t, stage, i, read));
    }
    for (int which = 0; which < 2 && body->graph->params.n; which++) {
        str_put(&row, which ? ", .gradient = {" : ", .weight = {");
        for (int p = 0; p < body->graph->params.n; p++) {
            int64_t address = (which ? link->gradient : link->weight)[p];
            str_putf(&row, "%s%lld", p ? ", " : "", address == NONE ? 0LL : (long long)address);
        }
        str_put(&row, "}");
    }
    for (int p = 0; t->apart && p < body->graph->params.n; p++) {
        int64_t address = link->weight[p] == NONE ? 0 : link->weight[p];
        bool moved = link->bucket[p] != NONE && stage->buckets.at[link->bucket[p]].fetch != NONE;
        str_putf(&row, "%s%lld", p ? ", " : ", .weight_back = {",
                 (long long)(address + (moved ? stage->fetched_back : 0)));
        str_put(&row, p + 1 == body->graph->params.n ? "}" : "");
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
            if (trainer_class_of(t, &stage->link[i]) != c)
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

bool trainer_adds_always(const Trainer *t, const Body *body, int param)
{
    int yes = 0, no = 0;
    for (int s = 0; s < t->program->stages; s++) {
        const StageProgram *stage = &t->program->stage[s];
        for (int i = 0; i < stage->links; i++) {
            if (stage->link[i].body != body)
                continue;
            bool shared = !link_opens(stage, i, param);
            yes += shared;
            no += !shared;
        }
    }
    if (yes && no && diag_errors(t->diag) == 0) {
        diag_error(t->diag, NO_SPAN,
                   "links of class %s that share a weight stand in one stage with others that do "
                   "not: no trainer is printed of that",
                   body->graph->name);
        diag_help(t->diag, "give the shared layers a block of another name, or another stage");
    }
    return yes > 0;
}

bool trainer_begins_anew(const Trainer *t, const Body *body, int param)
{
    for (int s = 0; s < t->program->stages; s++) {
        const StageProgram *stage = &t->program->stage[s];
        for (int i = 0; i < stage->links; i++) {
            int bucket = stage->link[i].body == body ? stage->link[i].bucket[param] : NONE;
            if (bucket != NONE)
                return stage->groups.at[stage->buckets.at[bucket].group].buffered;
        }
    }
    return false;
}
