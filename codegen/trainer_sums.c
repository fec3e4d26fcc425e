/* trainer_sums.c - gradients that live in another memory: copies between their home and the place
 * in the arena where layers add to them. Nothing of it is printed where they live in the arena. */
#include "codegen/trainer.h"
#include "ir/lower/home.h"
#include "ir/lower/state.h"

bool stage_sums(const StageProgram *stage)
{
    bool any = false;
    for (int g = 0; g < stage->groups.n; g++)
        any = any || stage->groups.at[g].far_gradients;
    return any;
}

bool trainer_sums(const Trainer *t)
{
    bool any = false;
    for (int s = 0; s < t->program->stages; s++)
        any = any || stage_sums(&t->program->stage[s]);
    return any;
}

bool stage_clears(const StageProgram *stage)
{
    bool clears = false;
    for (int b = 0; b < stage->buckets.n; b++) {
        const Group *group = &stage->groups.at[stage->buckets.at[b].group];
        clears =
            clears || (group->far_gradients && !group->buffered && stage->buckets.at[b].gaps.n);
    }
    return clears;
}

static Memory home_of(const Trainer *t)
{
    return t->plan->memory[KEPT_GRADIENTS];
}

const char *trainer_bucket_sums(Trainer *t, const Bucket *bucket)
{
    if (bucket->gradient[MEMORY_HBM] == NONE)
        return "";
    Str text = str_new(t->arena);
    for (int m = 0; m <= (int)home_of(t); m++)
        str_putf(&text, "%s%lldL", m ? ", " : ", .sums = {",
                 (long long)address_offset(bucket->gradient[m]));
    str_put(&text, "}");
    return text.at;
}

/* ---- hops ---- */

/* Hops of other buckets that share bytes with b's, and sums over ranks that read them. */
static int field_of(const Place *place, const Event *event)
{
    if (event->kind == EVENT_TAKEN || event->kind == EVENT_BROUGHT)
        return 1 + (int)(event->stream - STREAM_COPY_IN);
    return event->kind == EVENT_BUCKET && place->kind == PLACE_SUMS ? 0 : NONE;
}

void trainer_print_sums_waits(Trainer *t, Emit *out, int s, PlaceKind kind, int lane)
{
    static const char *const field[] = {"bucket", "sums[LP_COPY_IN]", "sums[LP_COPY_OUT]",
                                        "sums[LP_FILE_READ]", "sums[LP_FILE_WRITE]"};
    HopWaits waits = trainer_bucket_hops(t, s, kind, lane);
    waits.field = field;
    waits.fields = 1 + 2 * (int)home_of(t);
    waits.field_of = field_of;
    trainer_print_distant_waits(t, out, &waits);
}

static const char *hop_name(Trainer *t, int s, Memory near, bool in)
{
    return arena_printf(t->arena, "stage%d_sums_%s", s, stream_text[hop_stream(near, in)]);
}

static const char *place_text(Trainer *t, Memory memory, const char *from)
{
    return arena_printf(t->arena, "%s + bucket->sums[%d]%s", trainer_memory[memory], (int)memory,
                        from);
}

static void print_hop(Trainer *t, Emit *out, int s, Memory near, bool in)
{
    int lane = hop_stream(near, in) - STREAM_COPY_IN;
    bool share = gradient_share_hops(home_of(t));
    const char *from = share ? " + from * 4" : "";
    emit_open_function(out, "static void %s(State *s, int b%s)", hop_name(t, s, near, in),
                       share ? ", bool share" : "");
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    emit_line(out, "const LpGroup *group = &stage%d_groups[bucket->group];", s);
    emit_line(out, "if (!group->far_gradients)");
    emit_line(out, "    return;");
    if (share) {
        emit_line(out, "const int64_t begin = lp_block_begin(s->index, bucket, "
                       "group->gradient_cut);");
        emit_line(out,
                  "const int64_t from = share ? lp_bucket_share(s->index, stage%d_groups, "
                  "bucket) - begin : 0;",
                  s);
        emit_line(out, "const int64_t bytes = 4 * (share ? bucket->share_elements : "
                       "lp_block_count(bucket, group->gradient_cut));");
    } else {
        emit_line(out,
                  "const int64_t bytes = (4 * lp_block_count(bucket, group->gradient_cut) + %d) / "
                  "%d * %d;",
                  FILE_GRAIN - 1, FILE_GRAIN, FILE_GRAIN);
    }
    trainer_print_sums_waits(t, out, s, PLACE_SUMS, lane);
    emit_line(out, "lp_wait(&s->sums[%s][b]);", trainer_lane[lane]);
    const char *near_at = place_text(t, near, from),
               *far_at = place_text(t, (Memory)(near + 1), from);
    emit_line(out, "const LpCarry piece = {%s, %s, bytes};", in ? near_at : far_at,
              in ? far_at : near_at);
    emit_line(out, "lp_copy(&s->sums[%s][b], %s, &piece, 1);", trainer_lane[lane],
              trainer_lane[lane]);
    emit_close(out, "");
    emit_blank(out);
}

static void print_hops_of(Trainer *t, Emit *out, int s, bool in)
{
    bool share = gradient_share_hops(home_of(t));
    const char *last = in || !share ? "" : ", last";
    emit_open_function(out, "static void stage%d_sums_%s(State *s, int link, int near%s)", s,
                       in ? "in" : "out", *last ? ", bool last" : "");
    emit_open(out, "for (int b = 0; b < LP_COUNT(stage%d_buckets); b++)", s);
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    if (in)
        emit_line(out,
                  "if ((stage%d_groups[bucket->group].buffered ? bucket->close_link : "
                  "bucket->open_link) != link)",
                  s);
    else
        emit_line(out, "if (bucket->close_link != link)");
    emit_line(out, "    continue;");
    for (int near = 0; near < (int)home_of(t); near++) {
        emit_line(out, "if (near == %d)", near);
        emit_line(out, "    %s(s, b%s);", hop_name(t, s, (Memory)near, in),
                  share && in ? ", false" : last);
    }
    emit_close(out, "");
    emit_close(out, "");
    emit_blank(out);
}

void trainer_print_sums(Trainer *t, Emit *out, int s)
{
    if (!stage_sums(&t->program->stage[s]))
        return;
    emit_comment(out, "This rank's block of a bucket's gradients (or its share of the optimizer's) "
                      "comes from where it lives, and goes there.");
    for (int near = 0; near < (int)home_of(t); near++)
        for (int in = 0; in < 2; in++)
            print_hop(t, out, s, (Memory)near, in);
    emit_comment(out, "All buckets whose place in the arena a link is the first to need; all that "
                      "are complete with it.");
    print_hops_of(t, out, s, true);
    print_hops_of(t, out, s, false);
    emit_comment(out, "To the norm, and to the update.");
    emit_open_function(out, "static void stage%d_sums_share(State *s, int b)", s);
    for (int near = (int)home_of(t) - 1; near >= 0; near--)
        emit_line(out, "%s(s, b%s);", hop_name(t, s, (Memory)near, true),
                  gradient_share_hops(home_of(t)) ? ", true" : "");
    emit_line(out, "lp_wait(&s->sums[LP_COPY_IN][b]);");
    emit_close(out, "");
    emit_blank(out);
}

/* ---- calls ---- */

void trainer_print_sums_begin(Trainer *t, Emit *out, int s, const Chunk *chunk)
{
    if (!stage_sums(&t->program->stage[s]))
        return;
    emit_open(out, "if (!first)");
    for (int near = (int)home_of(t) - 1; near >= 0; near--)
        for (int i = chunk->end - 1; i >= chunk->begin && i >= chunk->end - 1 - near; i--)
            emit_line(out, "stage%d_sums_in(s, %d, %d);", s, i, near);
    emit_close_slim(out);
}

/* The call for one link of links [begin, end), all in a loop over i where they are several: what
 * lies `by` links from it, if that is one of the chunk. */
static void print_at(Trainer *t, Emit *out, const Chunk *chunk, int begin, int end, int by,
                     const char *condition, const char *call, const char *more)
{
    int from = begin + by < chunk->begin ? chunk->begin - by : begin;
    int to = end + by > chunk->end ? chunk->end - by : end;
    if (from >= to)
        return;
    bool loop = end - begin > 1;
    const char *guard = !loop          ? ""
                        : from > begin ? arena_printf(t->arena, "i >= %d", from)
                        : to < end     ? arena_printf(t->arena, "i < %d", to)
                                       : "";
    const char *both = *condition && *guard ? " && " : "";
    if (*condition || *guard)
        emit_line(out, "if (%s%s%s)", condition, both, guard);
    const char *at = !loop    ? arena_printf(t->arena, "%d", begin + by)
                     : by < 0 ? arena_printf(t->arena, "i - %d", -by)
                     : by > 0 ? arena_printf(t->arena, "i + %d", by)
                              : "i";
    emit_line(out, "%s%s(s, %s, %s);", *condition || *guard ? "    " : "", call, at, more);
}

void trainer_print_sums_in(Trainer *t, Emit *out, int s, const Chunk *chunk, int begin, int end)
{
    const char *call = arena_printf(t->arena, "stage%d_sums_in", s);
    for (int near = (int)home_of(t) - 1; near >= 0 && stage_sums(&t->program->stage[s]); near--)
        print_at(t, out, chunk, begin, end, -(near + 1), "!first", call,
                 arena_printf(t->arena, "%d", near));
}

void trainer_print_sums_out(Trainer *t, Emit *out, int s, const Chunk *chunk, int begin, int end)
{
    if (!stage_sums(&t->program->stage[s]))
        return;
    const char *last = gradient_share_hops(home_of(t)) ? ", last" : "";
    const char *call = arena_printf(t->arena, "stage%d_sums_out", s);
    for (int near = 0; near < (int)home_of(t); near++) {
        print_at(t, out, chunk, begin, end, near, "", call,
                 arena_printf(t->arena, "%d%s", near, last));
        bool loop = end - begin > 1;
        if (begin > chunk->begin || near == 0)
            continue;
        if (loop)
            emit_open(out, "if (i == %d)", chunk->begin);
        for (int i = chunk->begin + near - 1; i >= chunk->begin; i--) /* nothing follows */
            emit_line(out, "stage%d_sums_out(s, %d, %d%s);", s, i, near, last);
        if (loop)
            emit_close_slim(out);
    }
}

void trainer_print_sums_share(Trainer *t, Emit *out, int s)
{
    if (stage_sums(&t->program->stage[s]))
        emit_line(out, "stage%d_sums_share(s, b);", s);
}

void trainer_print_sums_events(Trainer *t, Emit *out, int buckets)
{
    if (trainer_sums(t))
        emit_line_comment(out, arena_printf(t->arena, "LpEvent sums[LP_HOPS][%d];", buckets),
                          "of far gradients, by bucket");
}

void trainer_print_sums_end(Trainer *t, Emit *out)
{
    if (trainer_sums(t))
        trainer_print_lane_waits(out, "sums", "b");
}

/* ---- at home ---- */

void trainer_print_sums_home(Trainer *t, Emit *out)
{
    if (!trainer_sums(t))
        return;
    emit_comment(out, "Element `at` of a group's gradients, at home.");
    emit_open_function(out, "static float *gradient_home(const State *s, const LpGroup *group, "
                            "const LpBucket *bucket, int64_t at)");
    emit_line(out, "const LpCut cut = group->gradient_cut;");
    emit_line(out, "if (group->far_gradients)");
    emit_line(out, "    return (float *)(%s) + (at - lp_block_begin(s->index, bucket, cut));",
              place_text(t, home_of(t), ""));
    emit_line(out, "return lp_home(s->arena, group->gradient, s->index, bucket, cut, at);");
    emit_close(out, "");
    emit_blank(out);
}

const char *trainer_gradient_at(Trainer *t, const char *at)
{
    return trainer_sums(t)
               ? arena_printf(t->arena, "lp_gradient(s->arena, s->index, group, bucket, %s)", at)
               : arena_printf(t->arena,
                              "lp_home(s->arena, group->gradient, s->index, bucket, "
                              "group->gradient_cut, %s)",
                              at);
}
