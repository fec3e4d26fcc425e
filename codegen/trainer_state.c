/* trainer_state.c - optimizer state that does not live in the device's memory: slots, hops, and
 * what the rest of a trainer says of them. Nothing of it is printed where state lives in the arena.
 */
#include "codegen/trainer.h"
#include "ir/lower/state.h"

bool stage_state_away(const StageProgram *stage)
{
    return stage->state_way.n[MEMORY_HBM] > 0;
}

static const char *hop_name(Trainer *t, int s, Memory near, bool in)
{
    return arena_printf(t->arena, "stage%d_%s", s, stream_text[hop_stream(near, in)]);
}

/* ---- buckets whose state does not pass ---- */

/* The state of some buckets does not pass through a memory, and that of others does: these are in
 * a list, and bucket b has a turn among them. */
static bool is_listed(const StageProgram *stage, Memory near)
{
    int n = stage->state_way.n[near];
    return n > 0 && n < stage->buckets.n;
}

/* Where bucket b is among those that pass, and what has how many of them. */
static const char *turn_of(const StageProgram *stage, Memory near)
{
    return !is_listed(stage, near) ? "b" : near == MEMORY_HBM ? "turn" : "file_turn";
}

static const char *list_of(Trainer *t, const StageProgram *stage, Memory near)
{
    return is_listed(stage, near) ? arena_printf(t->arena, "stage%d_way%d", stage->index, (int)near)
                                  : arena_printf(t->arena, "stage%d_buckets", stage->index);
}

/* The bucket that is so many turns from this one. */
static const char *bucket_at(Trainer *t, const StageProgram *stage, Memory near, const char *turn)
{
    return is_listed(stage, near) ? arena_printf(t->arena, "%s[%s]", list_of(t, stage, near), turn)
                                  : turn;
}

static void print_list(Trainer *t, Emit *out, const char *name, const int *at, int n)
{
    Str text = str_new(t->arena);
    for (int i = 0; i < n; i++)
        str_putf(&text, "%s%d", i ? ", " : "", at[i]);
    emit_line(out, "static const int %s[] = {%s};", name, text.at);
}

static void print_lists(Trainer *t, Emit *out, const StageProgram *stage)
{
    const HopWay *way = &stage->state_way;
    for (int m = MEMORY_HBM; m < MEMORY_COUNT; m++) {
        if (!is_listed(stage, (Memory)m))
            continue;
        emit_comment(out,
                     "Buckets whose state passes through the %s, and the turn of each bucket among "
                     "them; -1: it does not pass.",
                     m == MEMORY_HBM ? "arena's slots" : "host's memory to a file");
        print_list(t, out, list_of(t, stage, (Memory)m), way->at[m], way->n[m]);
        print_list(t, out, arena_printf(t->arena, "stage%d_turn%d", stage->index, m), way->turn[m],
                   stage->buckets.n);
        emit_blank(out);
    }
}

static void print_turn(Emit *out, const StageProgram *stage, Memory near)
{
    if (is_listed(stage, near))
        emit_line(out, "const int %s = stage%d_turn%d[b];", turn_of(stage, near), stage->index,
                  (int)near);
}

/* ---- addresses ---- */

/* Homes that state has in some stage. */
static unsigned homes_of(const Trainer *t)
{
    unsigned homes = 0;
    for (int s = 0; s < t->program->stages; s++)
        for (int g = 0; g < t->program->stage[s].groups.n; g++)
            homes |= 1u << t->program->stage[s].groups.at[g].state_home;
    return homes;
}

static bool has_one_home(const Trainer *t)
{
    unsigned homes = homes_of(t);
    return (homes & (homes - 1)) == 0;
}

bool trainer_state_away(const Trainer *t)
{
    return homes_of(t) >> MEMORY_DRAM != 0;
}

const char *trainer_state_home(const Trainer *t, const Group *group)
{
    return has_one_home(t) || group->state_home == MEMORY_HBM
               ? ""
               : arena_printf(t->arena, ", .state_home = %d", (int)group->state_home);
}

const char *trainer_state_base(const Trainer *t)
{
    unsigned homes = homes_of(t);
    const char *base = NULL;
    for (int m = MEMORY_HBM; m < MEMORY_COUNT; m++)
        if (homes >> m & 1)
            base = !base ? trainer_memory[m]
                         : arena_printf(t->arena, "group->state_home == %d ? %s : %s", m,
                                        trainer_memory[m], base);
    return has_one_home(t) ? base : arena_printf(t->arena, "(%s)", base);
}

static const char *home_words(const Trainer *t)
{
    unsigned homes = homes_of(t);
    return homes == 1u << MEMORY_DRAM   ? " in the host's memory"
           : homes == 1u << MEMORY_NVME ? " in a file"
                                        : "";
}

static void print_address(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    emit_comment(out,
                 "A field of this rank's state of a bucket (first moments, second moments%s): at "
                 "its home%s, or in its slot of a nearer memory.",
                 t->program->recipe->has_master ? ", masters" : "", home_words(t));
    emit_open_function(
        out, "static unsigned char *stage%d_state(const State *s, int b, int field, int memory)",
        s);
    for (int m = MEMORY_HBM; m < MEMORY_COUNT; m++) {
        if (stage->state_way.n[m] == 0)
            continue;
        print_turn(out, stage, (Memory)m);
        emit_line(out, "if (memory == %d%s)", m,
                  is_listed(stage, (Memory)m)
                      ? arena_printf(t->arena, " && %s >= 0", turn_of(stage, (Memory)m))
                      : "");
        emit_line(out, "    return %s + %lldL + (%s %% %d * %d + field) * %lldL;",
                  trainer_memory[m], (long long)address_offset(stage->state_slot[m]),
                  turn_of(stage, (Memory)m), state_slots((Memory)m, stage->state_way.n[m]),
                  state_fields(t->program), (long long)stage->state_slot_bytes[m]);
    }
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    emit_line(out, "const LpGroup *group = &stage%d_groups[bucket->group];", s);
    emit_line(out, "const int64_t at[] = {group->moment1, group->moment2, group->master};");
    emit_line(out, "return %s + at[field] + bucket->share_begin * %d;", trainer_state_base(t),
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
    const StageProgram *stage = &t->program->stage[s];
    Memory near = kind == PLACE_HOP ? (Memory)(lane / 2) : MEMORY_HBM;
    HopWaits waits = trainer_bucket_hops(t, s, kind, lane);
    waits.turn = is_listed(stage, near) ? stage->state_way.turn[near] : NULL;
    waits.turn_name = arena_printf(t->arena, "stage%d_turn%d[b]", s, (int)near);
    waits.list = list_of(t, stage, near);
    waits.field = field;
    waits.fields = 2 * (int)t->plan->memory[KEPT_STATE];
    waits.field_of = field_of;
    trainer_print_distant_waits(t, out, &waits);
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

/* What a hop carries of a `share`: grains, where its home is a file. */
static const char *hop_bytes(Trainer *t, const StageProgram *stage, Memory near)
{
    const HopWay *way = &stage->state_way;
    const char *grains =
        arena_printf(t->arena, "(share + %d) / %d * %d", FILE_GRAIN - 1, FILE_GRAIN, FILE_GRAIN);
    if (way->n[MEMORY_DRAM] == 0)
        return "share";
    return way->n[MEMORY_DRAM] == way->n[near]
               ? grains
               : arena_printf(t->arena, "stage%d_turn%d[b] >= 0 ? %s : share", stage->index,
                              MEMORY_DRAM, grains);
}

static void print_hop(Trainer *t, Emit *out, int s, Memory near, bool in)
{
    const StageProgram *stage = &t->program->stage[s];
    int lane = hop_stream(near, in) - STREAM_COPY_IN, fields = state_fields(t->program);
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
    emit_line(out, "pieces[count++].bytes = %s;", hop_bytes(t, stage, near));
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
    const StageProgram *stage = &t->program->stage[s];
    if (!stage_state_away(stage))
        return;
    print_lists(t, out, stage);
    print_address(t, out, s);
    for (int near = MEMORY_COUNT - 1; near >= 0; near--) {
        if (stage->state_way.n[near] == 0)
            continue;
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
    const StageProgram *stage = &t->program->stage[s];
    if (!stage_state_away(stage))
        return;
    Hop hop[MAX_HOPS];
    int n = way_hops(&stage->state_way, NONE, true, hop);
    for (int i = 0; i < n; i++)
        emit_line(out, "%s(s, %d);", hop_name(t, s, hop[i].near, true), hop[i].bucket);
}

/* "if (turn >= 0 && ": of buckets that pass, where others do not. */
static const char *if_passing(Trainer *t, const StageProgram *stage, Memory near)
{
    return is_listed(stage, near) ? arena_printf(t->arena, "%s >= 0 && ", turn_of(stage, near))
                                  : "";
}

void trainer_print_hops_in(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    for (int m = MEMORY_COUNT - 1; m >= 0; m--) {
        Memory near = (Memory)m;
        if (stage->state_way.n[near] == 0)
            continue;
        const char *ahead = arena_printf(t->arena, "%s + %d", turn_of(stage, near), m + 1);
        print_turn(out, stage, near);
        emit_line(out, "if (%s%s < LP_COUNT(%s))", if_passing(t, stage, near), ahead,
                  list_of(t, stage, near));
        emit_line(out, "    %s(s, %s);", hop_name(t, s, near, true),
                  bucket_at(t, stage, near, ahead));
    }
    if (stage_state_away(stage))
        trainer_print_hop_waits(t, out, s, PLACE_UPDATE, 0);
}

/* The last update sends home all that is still on its way. */
void trainer_print_hops_out(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    for (int m = MEMORY_HBM; m < MEMORY_COUNT; m++) {
        Memory near = (Memory)m;
        const char *name = hop_name(t, s, near, false), *turn = turn_of(stage, near);
        if (stage->state_way.n[near] == 0)
            continue;
        if (near == MEMORY_HBM) {
            if (is_listed(stage, near))
                emit_line(out, "if (%s >= 0)", turn);
            emit_line(out, "%s%s(s, b);", is_listed(stage, near) ? "    " : "", name);
            continue;
        }
        emit_line(out, "if (%s >= %d)", turn, m);
        emit_line(out, "    %s(s, %s);", name,
                  bucket_at(t, stage, near, arena_printf(t->arena, "%s - %d", turn, m)));
        for (int behind = m - 1; behind >= 0; behind--) { /* nothing follows */
            const char *last = behind ? arena_printf(t->arena, "%s - %d", turn, behind) : turn;
            emit_line(out, "if (%s + 1 == LP_COUNT(%s)%s)", turn, list_of(t, stage, near),
                      behind ? arena_printf(t->arena, " && %s >= 0", last) : "");
            emit_line(out, "    %s(s, %s);", name, bucket_at(t, stage, near, last));
        }
    }
}

/* Group and bucket as the update finds them: their state is in a slot of the arena. */
void trainer_print_near(Trainer *t, Emit *out, int s)
{
    bool away = stage_state_away(&t->program->stage[s]);
    if (!away && !trainer_carries(t))
        return;
    static const char *const field[] = {"moment1", "moment2", "master"};
    emit_comment(out, away ? "As the update finds them: their state is in a slot of the arena."
                           : "As the update finds them.");
    emit_line(out, "LpGroup near_group = *group;");
    bool file = trainer_weights_in_file(t);
    emit_line(out, "%sLpBucket near_bucket = *bucket;", away || file ? "" : "const ");
    for (int f = 0; f < state_fields(t->program) && away; f++)
        emit_line(out, "near_group.%s = stage%d_state(s, b, %d, 0) - s->arena;", field[f], s, f);
    if (away)
        emit_line(out, "near_bucket.share_begin = 0;");
    if (file)
        emit_line(out, "near_bucket.weight_shift = 0;");
}

void trainer_print_publish(Trainer *t, Emit *out, int s, const char *how, const char *where)
{
    bool away = stage_state_away(&t->program->stage[s]);
    if (!away && trainer_carries(t)) {
        emit_line(out, "const int64_t begin = lp_bucket_share(s->index, stage%d_groups, bucket);",
                  s);
        emit_line(out,
                  "lp_real_store(bucket->share_elements, lp_home_weight(%s, s->index, group, "
                  "bucket, begin), (const float *)arena_at(s, group->master) + "
                  "bucket->share_begin);",
                  trainer_weight_base(t));
        return;
    }
    if (!away) {
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
