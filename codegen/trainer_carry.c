/* trainer_carry.c - weights that live in another memory: copies between their home and the buffers
 * for uses, through every memory between. Nothing of it is printed where they live in the arena. */
#include "codegen/trainer.h"
#include "ir/lower/state.h"

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

static Memory home_of(const Trainer *t)
{
    return t->plan->memory[KEPT_WEIGHTS];
}

/* Copies of other buckets that share bytes of the buffers, or of places between, and fetches that
 * read them. */
static int field_of(const Place *place, const Event *event)
{
    if (event->kind == EVENT_CARRY)
        return 1 + (int)(event->stream - STREAM_COPY_IN);
    return event->kind == EVENT_FETCH && place->kind == PLACE_CARRY ? 0 : NONE;
}

void trainer_print_carry_waits(Trainer *t, Emit *out, int s, PlaceKind kind, int lane)
{
    static const char *const field[] = {"fetch", "carry[LP_COPY_IN]", "carry[LP_COPY_OUT]",
                                        "carry[LP_FILE_READ]", "carry[LP_FILE_WRITE]"};
    HopWaits waits = trainer_bucket_hops(t, s, kind, lane);
    waits.field = field;
    waits.fields = 1 + 2 * (int)home_of(t);
    waits.field_of = field_of;
    trainer_print_distant_waits(t, out, &waits);
}

static const char *hop_name(Trainer *t, int s, Memory near)
{
    return arena_printf(t->arena, near == MEMORY_HBM ? "stage%d_carry" : "stage%d_carry_file", s);
}

/* Does a hop between `near` and the memory behind it reach a home, of which there are versions? */
static bool has_version(const Trainer *t, Memory near)
{
    return t->program->flows && (int)near + 1 == (int)home_of(t);
}

const char *trainer_carry_call(Trainer *t, int s, Memory near, bool in, const char *back,
                               const char *version)
{
    return arena_printf(t->arena, "%s(s, b, %s%s%s%s);", hop_name(t, s, near),
                        in ? "true" : "false",
                        trainer_back(&t->program->stage[s], arena_printf(t->arena, ", %s", back)),
                        has_version(t, near) ? ", " : "", has_version(t, near) ? version : "");
}

/* This rank's part of a bucket in a memory, with the version that `version` says. */
static const char *place_text(Trainer *t, int s, Memory memory, const char *version)
{
    const StageProgram *stage = &t->program->stage[s];
    int64_t behind = memory == MEMORY_HBM ? stage->fetched_back : stage->between_back;
    const char *back =
        behind ? arena_printf(t->arena, " + (back ? %lldL : 0)", (long long)behind) : "";
    if (memory == MEMORY_HBM)
        return arena_printf(
            t->arena, "(LpReal *)arena_at(s, bucket->fetch%s) + (begin - bucket->begin)", back);
    if (memory != home_of(t))
        return arena_printf(t->arena, "(LpReal *)(%s + bucket->between%s)", trainer_memory[memory],
                            back);
    return arena_printf(t->arena, "lp_home_weight(%s%s, s->index, group, bucket, begin)",
                        trainer_memory[memory], version);
}

/* Waits of a lane, where it has any. */
static void print_lane_waits(Trainer *t, Emit *out, int s, int lane, const char *when)
{
    Emit waits = emit_new(t->arena);
    waits.depth = out->depth + 1;
    trainer_print_carry_waits(t, &waits, s, PLACE_CARRY, lane);
    if (waits.text.n == 0)
        return;
    emit_open(out, "if (%s)", when);
    emit_text(out, waits.text.at);
    emit_close_slim(out);
}

/* Between `near` and the memory behind it. */
static void print_hop(Trainer *t, Emit *out, int s, Memory near)
{
    const StageProgram *stage = &t->program->stage[s];
    int in = hop_stream(near, true) - STREAM_COPY_IN,
        away = hop_stream(near, false) - STREAM_COPY_IN;
    bool version = has_version(t, near), file = near != MEMORY_HBM;
    emit_open_function(out, "static void %s(State *s, int b, bool in%s%s)", hop_name(t, s, near),
                       trainer_back(stage, ", bool back"), version ? ", int64_t version" : "");
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    emit_line(out, "const LpGroup *group = &stage%d_groups[bucket->group];", s);
    emit_line(out, "if (!group->far)");
    emit_line(out, "    return;");
    emit_line(out, "const int64_t begin = lp_block_begin(s->index, bucket, group->weight_cut);");
    emit_line(out, "const int64_t count = lp_block_count(bucket, group->weight_cut);");
    emit_line(out, "LpReal *near = %s;", place_text(t, s, near, ""));
    emit_line(out, "LpReal *home = %s;",
              place_text(t, s, (Memory)(near + 1), version ? " + version" : ""));
    emit_line(out, "const LpHop lane = in ? %s : %s;", trainer_lane[in], trainer_lane[away]);
    print_lane_waits(t, out, s, in, "in");
    print_lane_waits(t, out, s, away, "!in");
    emit_line(out, "lp_wait(&s->carry[lane][b]);");
    const char *bytes = "count * (int64_t)sizeof(LpReal)";
    if (file)
        bytes = arena_printf(t->arena, "(%s + %d) / %d * %d", bytes, FILE_GRAIN - 1, FILE_GRAIN,
                             FILE_GRAIN);
    emit_line(out, "const LpCarry piece = {in ? near : home, in ? home : near, %s};", bytes);
    emit_line(out, "lp_copy(&s->carry[lane][b], lane, &piece, 1);");
    emit_close(out, "");
    emit_blank(out);
}

void trainer_print_carry(Trainer *t, Emit *out, int s)
{
    if (!stage_carries(&t->program->stage[s]))
        return;
    const char *version = t->program->flows ? " of a version" : "";
    if (home_of(t) == MEMORY_NVME) {
        emit_comment(out, "Between the file where a bucket's weights%s live and the host's memory.",
                     version);
        print_hop(t, out, s, MEMORY_DRAM);
    }
    emit_comment(out,
                 "Brings this rank's part of a bucket's weights%s from the host's memory to its "
                 "place among them for a use, or takes it %s.",
                 version, home_of(t) == MEMORY_NVME ? "there" : "home");
    print_hop(t, out, s, MEMORY_HBM);
}

/* The update steps weights where they were brought to. */
void trainer_print_carry_in(Trainer *t, Emit *out, int s)
{
    if (!stage_carries(&t->program->stage[s]))
        return;
    for (int near = (int)home_of(t) - 1; near >= 0; near--)
        emit_line(out, "%s", trainer_carry_call(t, s, (Memory)near, true, "false", "older"));
    emit_line(out, "lp_wait(&s->carry[LP_COPY_IN][b]);");
}

void trainer_print_carry_out(Trainer *t, Emit *out, int s)
{
    for (int near = 0; near < (int)home_of(t) && stage_carries(&t->program->stage[s]); near++)
        emit_line(out, "%s", trainer_carry_call(t, s, (Memory)near, false, "false", "newer"));
}

/* ---- ahead of uses ---- */

/* Memories from which weights come ahead of a link: one for those that are cut, or near. */
int trainer_weight_hops(const Trainer *t, int s)
{
    return stage_carries(&t->program->stage[s]) ? (int)home_of(t) : 1;
}

const char *trainer_weight_hop(int near)
{
    return near == MEMORY_HBM ? "ahead" : "read";
}

void trainer_print_first_weights(Trainer *t, Emit *out, int s, const Chunk *chunk, bool forward,
                                 bool may_resume)
{
    for (int near = trainer_weight_hops(t, s) - 1; near >= 0; near--)
        for (int k = 0; k <= near && k < chunk->end - chunk->begin; k++) {
            bool asks = may_resume && k == 0;
            if (asks && near == 0)
                emit_line(out,
                          "if (!resumes) /* the first weights of the row are not there yet */");
            else if (asks)
                emit_line(out, "if (!resumes)");
            emit_line(out, "%sstage%d_%s(s, %s, %d);", asks ? "    " : "", s,
                      trainer_weight_hop(near), forward ? "true" : "false",
                      forward ? chunk->begin + k : chunk->end - 1 - k);
        }
}

void trainer_print_read_ahead(Trainer *t, Emit *out, int s)
{
    if (!stage_carries(&t->program->stage[s]) || home_of(t) != MEMORY_NVME)
        return;
    emit_comment(out, "The same of files, two links ahead of it.");
    emit_open_function(out, "static void stage%d_read(State *s, bool forward, int link)", s);
    emit_open(out, "for (int b = 0; b < LP_COUNT(stage%d_buckets); b++)", s);
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    emit_line(out, "if ((forward ? bucket->close_link : bucket->open_link) == link)");
    emit_line(out, "    %s", trainer_carry_call(t, s, MEMORY_DRAM, true, "!forward", "s->version"));
    emit_close(out, "");
    emit_close(out, "");
    emit_blank(out);
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
    bool file = home_of(t) == MEMORY_NVME;
    if (trainer_carries(t))
        emit_line_comment(
            out, arena_printf(t->arena, "LpEvent carry[%s][%d];", file ? "LP_HOPS" : "2", buckets),
            file ? "of weights, by bucket" : "of weights, by bucket: LP_COPY_IN, LP_COPY_OUT");
}

void trainer_print_carry_end(Trainer *t, Emit *out)
{
    if (trainer_carries(t))
        trainer_print_lane_waits(out, "carry", "b");
}

const char *trainer_weight_base(Trainer *t)
{
    return trainer_carries(t)
               ? arena_printf(t->arena, "(group->far ? %s : s->arena)", trainer_memory[home_of(t)])
               : "s->arena";
}

bool trainer_weights_in_file(const Trainer *t)
{
    return trainer_carries(t) && home_of(t) == MEMORY_NVME;
}

const char *trainer_bucket_between(Trainer *t, const StageProgram *stage, const Bucket *bucket)
{
    if (bucket->between == NONE)
        return "";
    int64_t before =
        bucket->begin / list_extent(&t->plan->mesh, &stage->groups.at[bucket->group].weight_share);
    return arena_printf(t->arena, ", .between = %lldL, .weight_shift = %lldL",
                        (long long)address_offset(bucket->between),
                        (long long)(bucket->weight_begin - before));
}
