/* trainer_homes.c - homes that are cut: buckets that are whole for a while, and files of shares. */
#include <string.h>

#include "codegen/trainer.h"
#include "ir/lower/home.h"

bool stage_fetches(const StageProgram *stage)
{
    bool any = false;
    for (int g = 0; g < stage->groups.n; g++)
        any = any || group_fetches(&stage->groups.at[g]);
    return any;
}

const char *trainer_back(const StageProgram *stage, const char *back)
{
    return stage->fetched_back ? back : "";
}

bool stage_scatters(const StageProgram *stage)
{
    bool any = false;
    for (int g = 0; g < stage->groups.n; g++)
        any = any || stage->groups.at[g].buffered;
    return any;
}

bool any_cut(const Trainer *t)
{
    bool any = false;
    for (int s = 0; s < t->program->stages; s++)
        any = any || stage_fetches(&t->program->stage[s]) ||
              stage_scatters(&t->program->stage[s]) || stage_sums(&t->program->stage[s]);
    return any;
}

/* ---- tables ---- */

static const char *cut_text(Trainer *t, const AtomList *list)
{
    if (list->n == 0)
        return "{0}";
    return arena_printf(t->arena, "{%s, %d}", trainer_list(t, list, false),
                        list_extent(&t->plan->mesh, list));
}

const char *trainer_group_cuts(Trainer *t, const Group *group)
{
    if (!any_cut(t))
        return "";
    AtomSet mine = (AtomSet)(group->sharded | list_set(&group->weight_share)), rest = 0;
    for (int a = 0; a < t->plan->mesh.n; a++)
        rest |= mine >> a & 1 ? 0 : (AtomSet)(1u << a);
    AtomList owner = atoms_as_list(rest);
    return arena_printf(
        t->arena, "%s%s, .weight_cut = %s, .gradient_cut = %s, .weight_owner = %s, .buffered = %s",
        group->far ? ", .far = true" : "", group->far_gradients ? ", .far_gradients = true" : "",
        cut_text(t, &group->weight_share), cut_text(t, &group->gradient_share),
        trainer_list(t, &owner, false), group->buffered ? "true" : "false");
}

const char *trainer_bucket_buffers(Trainer *t, const StageProgram *stage, int b)
{
    if (!any_cut(t))
        return "";
    const Bucket *bucket = &stage->buckets.at[b];
    int before = 0;
    for (int i = 0; i < b; i++)
        before += stage->buckets.at[i].gaps.n;
    Str text = str_new(t->arena);
    str_putf(&text, ", .open_link = %d", bucket->open_link);
    if (bucket->fetch != NONE)
        str_putf(&text, ", .fetch = %lldL", (long long)bucket->fetch);
    if (bucket->buffer != NONE)
        str_putf(&text, ", .buffer = %lldL", (long long)bucket->buffer);
    str_put(&text, trainer_bucket_between(t, stage, bucket));
    str_put(&text, trainer_bucket_sums(t, bucket));
    if (bucket->gaps.n)
        str_putf(&text, ", .gaps = %d, .gap_count = %d", before, bucket->gaps.n);
    return text.at;
}

static int print_gaps(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    Str rows = str_new(t->arena);
    int n = 0;
    for (int b = 0; b < stage->buckets.n; b++)
        for (int i = 0; i < stage->buckets.at[b].gaps.n; i++) {
            const FlatGap *gap = &stage->buckets.at[b].gaps.at[i];
            str_putf(&rows, "%s{%lld, %lld}", n++ ? ", " : "", (long long)gap->begin,
                     (long long)gap->elements);
        }
    if (n == 0)
        return 0;
    emit_comment(out, "Padding of buffers in which other buckets leave numbers.");
    emit_line(out, "static const LpGap stage%d_gaps[] = {%s};", s, rows.at);
    emit_blank(out);
    return n;
}

/* ---- weights for a use ---- */

static void print_fetch_path(Trainer *t, Emit *out, const Group *group)
{
    bool started = false;
    for (int i = 0; i < group->fetch.n; i++) {
        const Move *move = &group->fetch.move[i];
        bool slice = move->kind == MOVE_SLICE, last = i + 1 == group->fetch.n;
        CHECK(move->kind == MOVE_ALL_GATHER || (slice && !started && !last));
        const char *list = trainer_list(t, &move->atoms, !slice);
        int ranks = list_extent(&t->plan->mesh, &move->atoms);
        if (slice) { /* ranks that hold the same each bring a part of it */
            emit_line(out, "count /= %d;", ranks);
            emit_line(out, "own += s->index[%s] * count;", list);
            emit_line(out, "from += s->index[%s] * count;", list);
            continue;
        }
        if (started)
            emit_line(out, "lp_wait(event);");
        started = true;
        emit_line(out, "from -= s->index[%s] * count;", list);
        emit_line(out, "lp_all_gather(event, s->comm[%s], own, whole + from, count, %s);", list,
                  dtype_constant(t->program->recipe->weight));
        if (last)
            break;
        emit_line(out, "own = whole + from;");
        emit_line(out, "count *= %d;", ranks);
    }
}

/* Copies and collectives of a bucket. */
static void print_together(Trainer *t, Emit *out, int s, const char *carry)
{
    const StageProgram *stage = &t->program->stage[s];
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    emit_line(out, "const LpGroup *group = &stage%d_groups[bucket->group];", s);
    emit_line(out, "const LpCut cut = group->weight_cut;");
    emit_line(out, "LpEvent *event = &s->fetch[b];");
    emit_line(out, "const int64_t begin = lp_block_begin(s->index, bucket, cut);");
    emit_line(out, "int64_t count = lp_block_count(bucket, cut), from = begin - bucket->begin;");
    emit_line(out,
              "const LpReal *own = lp_home_weight(s->arena%s, s->index, group, bucket, begin);",
              t->program->flows ? " + s->version" : "");
    if (stage->fetched_back)
        emit_line(out, "LpReal *whole = arena_at(s, bucket->fetch + (back ? %lldL : 0));",
                  (long long)stage->fetched_back);
    else
        emit_line(out, "LpReal *whole = arena_at(s, bucket->fetch);");
    if (trainer_carries(t)) {
        emit_open(out, "if (group->far)");
        emit_line(out, "%s", carry);
        emit_line(out, "own = whole + from;");
        emit_line(out, "if (cut.ranks)");
        emit_line(out, "    lp_wait(&s->carry[LP_COPY_IN][b]);");
        emit_close_slim(out);
        trainer_print_carry_waits(t, out, s, PLACE_FETCH, 0);
    }
    if (trainer_bucket_waits(t, out, s, PLACE_FETCH) || stage->fetched_back)
        emit_line(out, "lp_wait(event);");
    emit_open(out, "switch (bucket->group)");
    for (int g = 0; g < stage->groups.n; g++) {
        const Group *group = &stage->groups.at[g];
        if (group->fetch.n == 0)
            continue;
        out->depth--;
        emit_line(out, "case %d:", g);
        out->depth++;
        print_fetch_path(t, out, group);
        emit_line(out, "break;");
    }
    out->depth--;
    emit_line(out, "default: /* at home */");
    out->depth++;
    emit_line(out, "break;");
    emit_close(out, "");
}

static void print_fetch_ahead(Trainer *t, Emit *out, int s)
{
    emit_comment(out, "All buckets that a link is the first to use, one link ahead of it.");
    emit_open_function(out, "static void stage%d_ahead(State *s, bool forward, int link)", s);
    emit_open(out, "for (int b = 0; b < LP_COUNT(stage%d_buckets); b++)", s);
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    emit_line(out, "const int first = forward ? bucket->close_link : bucket->open_link;");
    emit_line(out, "if (first == link && (stage%d_groups[bucket->group].weight_cut.ranks%s)", s,
              trainer_carries(t)
                  ? arena_printf(t->arena, " || stage%d_groups[bucket->group].far)", s)
                  : ")");
    emit_line(out, "    stage%d_fetch(s, b%s);", s,
              trainer_back(&t->program->stage[s], ", !forward"));
    emit_close(out, "");
    emit_close(out, "");
    emit_blank(out);
}

static void print_fetch(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    emit_comment(out, "Starts to bring the weights of a bucket together for their next use.");
    if (stage->fetched_back)
        emit_comment(out, "`back`: of backward, for a row may hold those of forward as well.");
    emit_open_function(out, "static void stage%d_fetch(State *s, int b%s)", s,
                       trainer_back(stage, ", bool back"));
    const char *carry = trainer_carry_call(t, s, MEMORY_HBM, true, "back", "s->version");
    bool together = false;
    for (int g = 0; g < stage->groups.n; g++)
        together = together || stage->groups.at[g].fetch.n > 0;
    if (together)
        print_together(t, out, s, carry);
    else
        emit_line(out, "%s", carry);
    emit_close(out, "");
    emit_blank(out);
    print_fetch_ahead(t, out, s);
    trainer_print_read_ahead(t, out, s);
}

/* ---- gradients on their way home ---- */

static void print_scatter_path(Trainer *t, Emit *out, const Group *group)
{
    bool started = false;
    for (int i = 0; i < group->scatter.n; i++) {
        const Move *move = &group->scatter.move[i];
        bool slice = move->kind == MOVE_SLICE, last = i + 1 == group->scatter.n;
        CHECK(slice || move->kind == MOVE_REDUCE_SCATTER);
        const char *list = trainer_list(t, &move->atoms, !slice);
        if (started && !slice)
            emit_line(out, "lp_wait(event);");
        started = started || !slice;
        if (last && slice)
            break;
        emit_line(out, "count /= %d;", list_extent(&t->plan->mesh, &move->atoms));
        if (!slice)
            emit_line(
                out, "lp_reduce_scatter(event, s->comm[%s], flat, %s, count, LP_F32, LP_SUM);",
                list, last ? "home" : arena_printf(t->arena, "flat + s->index[%s] * count", list));
        if (!last)
            emit_line(out, "flat += s->index[%s] * count;", list);
    }
    if (!group_folds_ahead(group)) {
        if (started)
            emit_line(out, "lp_wait(event);");
        emit_line(out, "lp_accumulate(n, home, buffer, first);");
    }
}

static void print_scatter(Trainer *t, Emit *out, int s, bool gaps)
{
    const StageProgram *stage = &t->program->stage[s];
    bool any_ahead = false;
    for (int g = 0; g < stage->groups.n; g++) {
        bool ahead = group_folds_ahead(&stage->groups.at[g]);
        any_ahead = any_ahead || (stage->groups.at[g].buffered && ahead);
    }
    emit_comment(out,
                 "A micro-batch's gradients of a bucket join those of the micro-batches before: "
                 "what is at home is added to this rank's own terms, and the sums of all ranks "
                 "come home.");
    emit_open_function(out, "static void stage%d_scatter(State *s, int b, bool first)", s);
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    emit_line(out, "const LpGroup *group = &stage%d_groups[bucket->group];", s);
    emit_line(out, "const LpCut cut = group->gradient_cut;");
    emit_line(out, "LpEvent *event = &s->bucket[b];");
    emit_line(out, "const int64_t begin = lp_block_begin(s->index, bucket, cut);");
    emit_line(out, "const int64_t n = lp_block_count(bucket, cut);");
    emit_line(out, "int64_t count = bucket->elements;");
    emit_line(out, "float *flat = (float *)arena_at(s, bucket->buffer);");
    if (trainer_sums(t))
        emit_line(out, "float *home = %s;", trainer_gradient_at(t, "begin"));
    else
        emit_line(
            out, "float *home = lp_home(s->arena, group->gradient, s->index, bucket, cut, begin);");
    emit_line(out, "float *buffer = flat + (begin - bucket->begin);");
    if (trainer_bucket_waits(t, out, s, PLACE_FOLD))
        emit_line(out, "lp_wait(event);");
    trainer_print_sums_waits(t, out, s, PLACE_FOLD, 0);
    if (t->program->recipe->scales_loss)
        emit_line(out, "lp_inject(flat);");
    if (gaps) {
        emit_open(out, "for (int i = bucket->gaps; i < bucket->gaps + bucket->gap_count; i++)");
        emit_line(out, "const LpGap *gap = &stage%d_gaps[i];", s);
        emit_line(out,
                  "memset(flat + (gap->begin - bucket->begin), 0, (size_t)gap->elements * 4);");
        emit_close(out, "");
    }
    /* steps that flow: weights of the bucket may be under way */
    if (trainer_bucket_waits(t, out, s, PLACE_SCATTER) || t->program->flows)
        emit_line(out, "lp_wait(event);");
    trainer_print_sums_waits(t, out, s, PLACE_SCATTER, 0);
    emit_open(out, "switch (bucket->group)");
    for (int g = 0; g < stage->groups.n; g++) {
        const Group *group = &stage->groups.at[g];
        if (!group->buffered)
            continue;
        out->depth--;
        emit_line(out, "case %d:", g);
        out->depth++;
        if (group_folds_ahead(group)) {
            emit_line(out, "if (!first)");
            emit_line(out, "    lp_accumulate(n, buffer, home, false);");
        }
        print_scatter_path(t, out, group);
        emit_line(out, "break;");
    }
    out->depth--;
    emit_line(out, "default: /* accumulated at home */");
    out->depth++;
    emit_line(out, "break;");
    emit_close(out, "");
    if (!any_ahead)
        emit_line(out, "(void)event;");
    emit_close(out, "");
    emit_blank(out);
}

/* The first micro-batch of a step finds what others left between the members of a bucket. */
static void print_clear(Emit *out, int s)
{
    emit_comment(out, "Padding of a bucket whose gradients are added to where they were brought.");
    emit_open_function(out, "static void stage%d_clear(State *s, int b)", s);
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    emit_line(out, "float *flat = (float *)arena_at(s, bucket->sums[0]);");
    emit_open(out, "for (int i = bucket->gaps; i < bucket->gaps + bucket->gap_count; i++)");
    emit_line(out, "const LpGap *gap = &stage%d_gaps[i];", s);
    emit_line(out, "memset(flat + (gap->begin - bucket->begin), 0, (size_t)gap->elements * 4);");
    emit_close(out, "");
    emit_close(out, "");
    emit_blank(out);
}

void trainer_print_homes(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    trainer_print_carry(t, out, s);
    if (stage_fetches(stage))
        print_fetch(t, out, s);
    trainer_print_sums(t, out, s);
    bool gaps = (stage_scatters(stage) || stage_sums(stage)) && print_gaps(t, out, s) > 0;
    if (stage_scatters(stage))
        print_scatter(t, out, s, gaps);
    if (stage_clears(stage))
        print_clear(out, s);
}

/* ---- files ---- */

/* Where homes are that live in an arena, or their field's. */
static const char *field_base(Trainer *t)
{
    return trainer_carries(t) && !t->program->recipe->has_master
               ? arena_printf(t->arena, "field == WEIGHTS && group->far ? %s : s->arena",
                              trainer_memory[t->plan->memory[KEPT_WEIGHTS]])
               : "s->arena";
}

void trainer_print_boxes(Trainer *t, Emit *out)
{
    bool master = t->program->recipe->has_master;
    trainer_print_sums_home(t, out);
    emit_comment(out, "What this rank holds at home, as the runtime's files know it: boxes of its "
                      "block of each bucket.");
    emit_line(out, "typedef enum { WEIGHTS, GRADIENTS, MASTER, MOMENT1, MOMENT2 } Field;");
    emit_open_function(
        out, "static int boxes_of(State *s, const Moments *m, Field field, LpPart *ret_parts)");
    emit_line(out, "int n = 0;");
    emit_open(out, "for (int b = 0; b < m->bucket_count; b++)");
    emit_line(out, "const LpBucket *bucket = &m->buckets[b];");
    emit_line(out, "const LpGroup *group = &m->groups[bucket->group];");
    if (t->program->matrices.n > 0) {
        emit_line(out, "if (group->matrix && field == MOMENT2)");
        emit_line(out, "    continue; /* a matrix has one moment */");
    }
    emit_line(out, "const LpCut share = {group->share, (int)(bucket->elements / "
                   "bucket->share_elements)};");
    if (!master)
        emit_line(out, "const LpCut cut = field == WEIGHTS ? group->weight_cut : share;");
    emit_line(out, "const LpCut home = field == GRADIENTS ? group->gradient_cut : %s;",
              master ? "share" : "cut");
    emit_line(out,
              "const int64_t address = %sfield == GRADIENTS ? group->gradient : %sfield == "
              "MOMENT1 ? group->moment1 : group->moment2;",
              master ? "" : "field == WEIGHTS ? group->weight : ",
              master ? "field == MASTER ? group->master : " : "");
    if (!master)
        emit_line(out, "const int owner = field == WEIGHTS ? group->weight_owner : group->owner;");
    emit_line(out, "const int64_t begin = lp_block_begin(s->index, bucket, %s);",
              master ? "share" : "cut");
    emit_line(out, "const int64_t end = begin + lp_block_count(bucket, %s);",
              master ? "share" : "cut");
    emit_open(out, "for (int i = 0; i < m->block_count; i++)");
    emit_line(out, "const LpBlock *block = &m->blocks[i];");
    emit_line(out, "LpPart whole = part_of(s, block, %s);", master ? "true" : "false");
    emit_line(out, "const int64_t first = block->offset, stop = first + lp_block_elements(block);");
    emit_line(out, "const int64_t from = first > begin ? first : begin;");
    emit_line(out, "const int64_t to = stop < end ? stop : end;");
    emit_line(out, "if (block->group != bucket->group || from >= to)");
    emit_line(out, "    continue;");
    emit_line(out, "whole.owner = group->home && s->index[%s] == 0;",
              master ? "group->owner" : "owner");
    const char *gradients =
        trainer_sums(t) ? "field == GRADIENTS ? gradient_home(s, group, bucket, from) : " : "";
    if (trainer_weights_in_file(t) && !master) /* where buckets begin at grains */
        gradients = arena_printf(t->arena,
                                 "%sfield == WEIGHTS ? lp_home_weight(%s, s->index, group, bucket, "
                                 "from) : ",
                                 gradients, trainer_weight_base(t));
    if (trainer_state_away(t))
        emit_line(
            out,
            "n += lp_part_cut(&whole, from - first, to - first, field >= MASTER ? (float *)(%s "
            "+ address) + bucket->share_begin + (from - begin) : %slp_home(%s, address, "
            "s->index, bucket, home, from), ret_parts + n);",
            trainer_state_base(t), gradients, field_base(t));
    else
        emit_line(out,
                  "n += lp_part_cut(&whole, from - first, to - first, %slp_home(%s, address, "
                  "s->index, bucket, home, from), ret_parts + n);",
                  gradients, field_base(t));
    emit_close(out, "");
    emit_close(out, "");
    emit_line(out, "return n;");
    emit_close(out, "");
    emit_blank(out);
}

bool trainer_fetches(const Trainer *t)
{
    bool any = false;
    for (int s = 0; s < t->program->stages; s++)
        any = any || stage_fetches(&t->program->stage[s]);
    return any;
}
