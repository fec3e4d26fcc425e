/* trainer_carry.c - weights that live in another memory: copies between their home and the buffers
 * for uses. Nothing of it is printed where they live in the arena. */
#include "codegen/trainer.h"

static bool stage_carries(const StageProgram *stage)
{
    bool any = false;
    for (int g = 0; g < stage->groups.n; g++)
        any = any || stage->groups.at[g].far;
    return any;
}

bool trainer_carries(const Trainer *t)
{
    bool any = false;
    for (int s = 0; s < t->program->stages; s++)
        any = any || stage_carries(&t->program->stage[s]);
    return any;
}

/* Copies of other buckets that share bytes of the buffers, and fetches that read them. */
static int field_of(const Place *place, const Event *event)
{
    if (event->kind == EVENT_CARRY)
        return event->stream == STREAM_COPY_IN ? 1 : 2;
    return event->kind == EVENT_FETCH && place->kind == PLACE_CARRY ? 0 : NONE;
}

void trainer_print_carry_waits(Trainer *t, Emit *out, int s, PlaceKind kind, int lane)
{
    static const char *const field[] = {"fetch", "carry[LP_COPY_IN]", "carry[LP_COPY_OUT]"};
    trainer_print_distant_waits(
        t, out,
        &(HopWaits){.place = {.kind = kind, .stage = s, .which = lane},
                    .end = t->program->stage[s].buckets.n,
                    .index = "b",
                    .all = arena_printf(t->arena, "LP_COUNT(stage%d_buckets)", s),
                    .field = field,
                    .fields = sizeof field / sizeof *field,
                    .field_of = field_of});
}

void trainer_print_carry(Trainer *t, Emit *out, int s)
{
    if (!stage_carries(&t->program->stage[s]))
        return;
    bool flows = t->program->flows;
    emit_comment(out,
                 "Brings this rank's part of a bucket's weights%s from the host's memory to its "
                 "place among them for a use, or takes it home.",
                 flows ? " of a version" : "");
    const StageProgram *stage = &t->program->stage[s];
    emit_open_function(out, "static void stage%d_carry(State *s, int b, bool in%s%s)", s,
                       trainer_back(stage, ", bool back"), flows ? ", int64_t version" : "");
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    emit_line(out, "const LpGroup *group = &stage%d_groups[bucket->group];", s);
    emit_line(out, "if (!group->far)");
    emit_line(out, "    return;");
    emit_line(out, "const int64_t begin = lp_block_begin(s->index, bucket, group->weight_cut);");
    emit_line(out, "const int64_t count = lp_block_count(bucket, group->weight_cut);");
    emit_line(out,
              "LpReal *near = (LpReal *)arena_at(s, bucket->fetch%s) + (begin - "
              "bucket->begin);",
              stage->fetched_back
                  ? arena_printf(t->arena, " + (back ? %lldL : 0)", (long long)stage->fetched_back)
                  : "");
    emit_line(out,
              "LpReal *home = lp_home_weight(s->rank->dram%s, s->index, group, bucket, begin);",
              flows ? " + version" : "");
    emit_line(out, "const LpHop lane = in ? LP_COPY_IN : LP_COPY_OUT;");
    emit_open(out, "if (in)");
    trainer_print_carry_waits(t, out, s, PLACE_CARRY, 0);
    emit_close_slim(out);
    emit_line(out, "lp_wait(&s->carry[lane][b]);");
    emit_line(out, "const LpCarry piece = {in ? near : home, in ? home : near, count * "
                   "(int64_t)sizeof(LpReal)};");
    emit_line(out, "lp_copy(&s->carry[lane][b], lane, &piece, 1);");
    emit_close(out, "");
    emit_blank(out);
}

/* The update steps weights where they were brought to. */
void trainer_print_carry_in(Trainer *t, Emit *out, int s)
{
    if (!stage_carries(&t->program->stage[s]))
        return;
    emit_line(out, "stage%d_carry(s, b, true%s%s);", s,
              trainer_back(&t->program->stage[s], ", false"), t->program->flows ? ", older" : "");
    emit_line(out, "lp_wait(&s->carry[LP_COPY_IN][b]);");
}

void trainer_print_carry_out(Trainer *t, Emit *out, int s)
{
    if (stage_carries(&t->program->stage[s]))
        emit_line(out, "stage%d_carry(s, b, false%s%s);", s,
                  trainer_back(&t->program->stage[s], ", false"),
                  t->program->flows ? ", newer" : "");
}

/* The address that puts a bucket's weights where they were brought to, as homes are counted. */
void trainer_print_carry_near(Trainer *t, Emit *out, int s)
{
    if (!stage_carries(&t->program->stage[s]))
        return;
    emit_open(out, "if (group->far)");
    emit_line(out, "const int64_t first = lp_block_begin(s->index, bucket, group->weight_cut);");
    emit_line(out, "near_group.weight = bucket->fetch + (first - bucket->begin - "
                   "lp_home_before(s->index, bucket, group->weight_cut, first)) * "
                   "(int64_t)sizeof(LpReal);");
    emit_close_slim(out);
}

void trainer_print_carry_events(Trainer *t, Emit *out, int buckets)
{
    if (trainer_carries(t))
        emit_line_comment(out, arena_printf(t->arena, "LpEvent carry[2][%d];", buckets),
                          "of weights, by bucket: LP_COPY_IN, LP_COPY_OUT");
}

void trainer_print_carry_end(Trainer *t, Emit *out)
{
    if (trainer_carries(t))
        trainer_print_lane_waits(out, "carry", "b");
}

const char *trainer_weight_base(const Trainer *t)
{
    return trainer_carries(t) ? "(group->far ? s->rank->dram : s->arena)" : "s->arena";
}
