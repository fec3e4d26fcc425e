/* trainer_state.c - optimizer state that does not live in the device's memory: slots, hops, and
 * what the rest of a trainer says of them. Nothing of it is printed where state lives in the arena.
 */
#include "codegen/trainer.h"
#include "ir/lower/state.h"

bool trainer_state_away(const Trainer *t)
{
    return t->plan->memory[KEPT_STATE] != MEMORY_HBM;
}

static const char *hop_name(Trainer *t, int s, Memory near, bool in)
{
    return arena_printf(t->arena, "stage%d_%s", s, stream_text[hop_stream(near, in)]);
}

/* ---- addresses ---- */

static void print_address(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    Memory home = t->plan->memory[KEPT_STATE];
    emit_comment(out,
                 "A field of this rank's state of a bucket (first moments, second moments%s): at "
                 "its home in %s, or in its slot of a nearer memory.",
                 t->program->recipe->has_master ? ", masters" : "",
                 home == MEMORY_DRAM ? "the host's memory" : "a file");
    emit_open_function(
        out, "static unsigned char *stage%d_state(const State *s, int b, int field, int memory)",
        s);
    for (int m = MEMORY_HBM; m < (int)home; m++) {
        emit_line(out, "if (memory == %d)", m);
        emit_line(out, "    return %s + %lldL + (b %% %d * %d + field) * %lldL;", trainer_memory[m],
                  (long long)address_offset(stage->state_slot[m]),
                  state_slots((Memory)m, stage->buckets.n), state_fields(t->program),
                  (long long)stage->state_slot_bytes);
    }
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    emit_line(out, "const LpGroup *group = &stage%d_groups[bucket->group];", s);
    emit_line(out, "const int64_t at[] = {group->moment1, group->moment2, group->master};");
    emit_line(out, "return %s + at[field] + bucket->share_begin * %d;", trainer_memory[home],
              dtype_bytes(t->program->recipe->master));
    emit_close(out, "");
    emit_blank(out);
}

/* ---- hops ---- */

/* Events of other hops that a hop waits for, told by how far their buckets are from its own. */
static int field_of(const Place *place, const Event *event)
{
    (void)place;
    return event->kind == EVENT_HOP ? (int)(event->stream - STREAM_COPY_IN) : NONE;
}

void trainer_print_hop_waits(Trainer *t, Emit *out, int s, PlaceKind kind, int lane)
{
    static const char *const field[] = {"hop[LP_COPY_IN]", "hop[LP_COPY_OUT]", "hop[LP_FILE_READ]",
                                        "hop[LP_FILE_WRITE]"};
    trainer_print_distant_waits(
        t, out,
        &(HopWaits){.place = {.kind = kind, .stage = s, .which = lane},
                    .end = t->program->stage[s].buckets.n,
                    .index = "b",
                    .all = arena_printf(t->arena, "LP_COUNT(stage%d_buckets)", s),
                    .field = field,
                    .fields = 2 * (int)t->plan->memory[KEPT_STATE],
                    .field_of = field_of});
}

/* Only the weights of what moves by signs are kept, where they are narrower than what is stepped.
 */
static bool some_stay(const StageProgram *stage)
{
    bool any = false;
    for (int g = 0; g < stage->groups.n; g++)
        any = any || !group_steps(&stage->groups.at[g], FIELD_MOMENT1);
    return any;
}

static void print_hop(Trainer *t, Emit *out, int s, Memory near, bool in)
{
    const StageProgram *stage = &t->program->stage[s];
    int lane = hop_stream(near, in) - STREAM_COPY_IN, fields = state_fields(t->program);
    bool file = t->plan->memory[KEPT_STATE] == MEMORY_NVME;
    emit_open_function(out, "static void %s(State *s, int b)", hop_name(t, s, near, in));
    trainer_print_hop_waits(t, out, s, PLACE_HOP, lane);
    emit_line(out, "LpCarry pieces[%d];", fields);
    emit_line(out, "int count = 0;");
    emit_line(out, "const int64_t share = stage%d_buckets[b].share_elements * %d;", s,
              dtype_bytes(t->program->recipe->master));
    emit_open(out, "for (int field = 0; field < %d; field++)", fields);
    if (some_stay(stage)) {
        emit_line(out, "if (stage%d_groups[stage%d_buckets[b].group].rate != 0.0f && field < 2)", s,
                  s);
        emit_line(out, "    continue;");
    }
    if (trainer_has_matrices(stage)) { /* they have one moment */
        emit_line(out, "if (stage%d_groups[stage%d_buckets[b].group].matrix && field == 1)", s, s);
        emit_line(out, "    continue;");
    }
    const char *near_at = arena_printf(t->arena, "stage%d_state(s, b, field, %d)", s, (int)near);
    const char *far_at = arena_printf(t->arena, "stage%d_state(s, b, field, %d)", s, (int)near + 1);
    emit_line(out, "pieces[count].to = %s;", in ? near_at : far_at);
    emit_line(out, "pieces[count].from = %s;", in ? far_at : near_at);
    if (file)
        emit_line(out, "pieces[count++].bytes = (share + %d) / %d * %d;", FILE_GRAIN - 1,
                  FILE_GRAIN, FILE_GRAIN);
    else
        emit_line(out, "pieces[count++].bytes = share;");
    emit_close(out, "");
    if (some_stay(stage))
        emit_line(out, "if (count > 0)");
    emit_line(out, "%slp_copy(&s->hop[%s][b], %s, pieces, count);", some_stay(stage) ? "    " : "",
              trainer_lane[lane], trainer_lane[lane]);
    emit_close(out, "");
    emit_blank(out);
}

void trainer_print_state(Trainer *t, Emit *out, int s)
{
    if (!trainer_state_away(t))
        return;
    print_address(t, out, s);
    for (int near = (int)t->plan->memory[KEPT_STATE] - 1; near >= 0; near--) {
        emit_comment(out, near == MEMORY_HBM
                              ? "Between the host's memory and the slots of the arena."
                              : "Between the file and the slots of the host's memory.");
        print_hop(t, out, s, (Memory)near, true);
        print_hop(t, out, s, (Memory)near, false);
    }
}

/* Before the norm: what is then there for the first updates. */
void trainer_print_first_hops(Trainer *t, Emit *out, int s)
{
    if (!trainer_state_away(t))
        return;
    Hop hop[MAX_HOPS];
    int n =
        hops_around(t->plan->memory[KEPT_STATE], t->program->stage[s].buckets.n, NONE, true, hop);
    for (int i = 0; i < n; i++)
        emit_line(out, "%s(s, %d);", hop_name(t, s, hop[i].near, true), hop[i].bucket);
}

void trainer_print_hops_in(Trainer *t, Emit *out, int s)
{
    for (int near = (int)t->plan->memory[KEPT_STATE] - 1; near >= 0; near--) {
        emit_line(out, "if (b + %d < LP_COUNT(stage%d_buckets))", near + 1, s);
        emit_line(out, "    %s(s, b + %d);", hop_name(t, s, (Memory)near, true), near + 1);
    }
    if (trainer_state_away(t))
        trainer_print_hop_waits(t, out, s, PLACE_UPDATE, 0);
}

/* The last update sends home all that is still on its way. */
void trainer_print_hops_out(Trainer *t, Emit *out, int s)
{
    for (int near = 0; near < (int)t->plan->memory[KEPT_STATE]; near++) {
        const char *name = hop_name(t, s, (Memory)near, false);
        if (near == 0) {
            emit_line(out, "%s(s, b);", name);
            continue;
        }
        emit_line(out, "if (b >= %d)", near);
        emit_line(out, "    %s(s, b - %d);", name, near);
        emit_line(
            out, "for (int last = b - %d; b + 1 == LP_COUNT(stage%d_buckets) && last <= b; last++)",
            near - 1, s);
        emit_line(out, "    if (last >= 0)");
        emit_line(out, "        %s(s, last);", name);
    }
}

/* Group and bucket as the update finds them: their state is in a slot of the arena. */
void trainer_print_near(Trainer *t, Emit *out, int s)
{
    if (!trainer_state_away(t) && !trainer_carries(t))
        return;
    static const char *const field[] = {"moment1", "moment2", "master"};
    emit_comment(out, trainer_state_away(t)
                          ? "As the update finds them: their state is in a slot of the arena."
                          : "As the update finds them.");
    emit_line(out, "LpGroup near_group = *group;");
    emit_line(out, "%sLpBucket near_bucket = *bucket;", trainer_state_away(t) ? "" : "const ");
    for (int f = 0; f < state_fields(t->program) && trainer_state_away(t); f++)
        emit_line(out, "near_group.%s = stage%d_state(s, b, %d, 0) - s->arena;", field[f], s, f);
    if (trainer_state_away(t))
        emit_line(out, "near_bucket.share_begin = 0;");
}

void trainer_print_publish(Trainer *t, Emit *out, int s, const char *how, const char *where)
{
    if (!trainer_state_away(t) && trainer_carries(t)) {
        emit_line(out, "const int64_t begin = lp_bucket_share(s->index, stage%d_groups, bucket);",
                  s);
        emit_line(out,
                  "lp_real_store(bucket->share_elements, lp_home_weight(%s, s->index, group, "
                  "bucket, begin), (const float *)arena_at(s, group->master) + "
                  "bucket->share_begin);",
                  trainer_weight_base(t));
        return;
    }
    if (!trainer_state_away(t)) {
        emit_line(out,
                  "lp_publish_%s(%s, group, bucket, lp_bucket_share(s->index, stage%d_groups, "
                  "bucket));",
                  how, where, s);
        return;
    }
    emit_line(out, "const int64_t begin = lp_bucket_share(s->index, stage%d_groups, bucket);", s);
    emit_line(
        out,
        "lp_real_store(bucket->share_elements, %s, (const float *)stage%d_state(s, b, %d, %d));",
        str_eq(how, "cut")
            ? arena_printf(t->arena, "lp_home_weight(%s, s->index, group, bucket, begin)",
                           trainer_weight_base(t))
            : "(LpReal *)arena_at(s, group->weight) + begin",
        s, FIELD_MASTER, (int)t->plan->memory[KEPT_STATE]);
}

void trainer_print_hop_events(Trainer *t, Emit *out, int buckets)
{
    if (trainer_state_away(t))
        emit_line_comment(out, arena_printf(t->arena, "LpEvent hop[LP_HOPS][%d];", buckets),
                          "of the optimizer's state, by bucket");
}

void trainer_print_hops_end(Trainer *t, Emit *out)
{
    if (trainer_state_away(t))
        trainer_print_lane_waits(out, "hop", "b");
}

const char *trainer_state_base(const Trainer *t)
{
    return trainer_memory[t->plan->memory[KEPT_STATE]];
}
