/* schedule_make.c - the generators: rows of every stage, from the numbers of stages, chunks and
 * micro-batches. */
#include "ir/lower/schedule.h"

#include "ir/base/arena.h"

const char *const schedule_text[SCHEDULE_COUNT] = {
    "gpipe", "1f1b", "interleaved", "zbh1", "zbv", "dualpipev", "pipedream", "2bw", "table"};

const ScheduleInfo schedule_info[SCHEDULE_COUNT] = {
    [SCHEDULE_GPIPE] = {"GPipe", 1, 1, 0, false, false, 0, false},
    [SCHEDULE_1F1B] = {"1F1B", 1, 1, 0, false, false, 0, true},
    [SCHEDULE_INTERLEAVED] = {"interleaved 1F1B", 2, 16, 0, false, false, 0, false},
    [SCHEDULE_ZBH1] = {"ZB-H1", 1, 1, 0, true, false, 0, false},
    [SCHEDULE_ZBV] = {"ZB-V", 2, 2, 0, true, false, 0, false},
    [SCHEDULE_DUALPIPEV] = {"DualPipeV", 2, 2, 2, true, false, 0, true},
    [SCHEDULE_PIPEDREAM] = {"PipeDream", 1, 1, 0, false, true, 1, false},
    [SCHEDULE_2BW] = {"PipeDream-2BW", 1, 1, 1, false, true, 0, false},
    [SCHEDULE_TABLE] = {"a schedule of its own", 1, 16, 0, false, false, 0, true},
};

ScheduleKind schedule_by_name(const char *name)
{
    int kind = 0;
    while (kind < SCHEDULE_COUNT && !str_eq(name, schedule_text[kind]))
        kind++;
    return (ScheduleKind)kind;
}

/* One stage's rows as they are written. */
typedef struct Maker {
    Arena *arena;
    Schedule *schedule;
    int stage, stages, micros;
} Maker;

static void put(const Maker *maker, PartKind part, int chunk, int micro)
{
    vec_push(maker->arena, &maker->schedule->rows[maker->stage]) =
        (Row){part, chunk, micro, false, 0};
}

/* Of the row that was put last. */
static void set_with_next(const Maker *maker, bool with_next)
{
    RowList *rows = &maker->schedule->rows[maker->stage];
    rows->at[rows->n - 1].with_next = with_next;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* All forwards, then all backwards in reverse order. */
static void make_gpipe(const Maker *maker)
{
    for (int micro = 0; micro < maker->micros; micro++)
        put(maker, PART_F, maker->stage, micro);
    for (int micro = maker->micros - 1; micro >= 0; micro--)
        put(maker, PART_B, maker->stage, micro);
}

/* Warm-up of min(stages - stage - 1, micros) forwards, then one forward and one backward in turn,
 * then the rest. Where the two run as one, results come a row later both ways. */
static void make_1f1b(const Maker *maker)
{
    int stage = maker->stage, micros = maker->micros, behind = maker->stages - stage - 1;
    bool braids = maker->schedule->braids;
    int warm = smaller(braids ? 2 * behind + 1 : behind, micros);
    for (int micro = 0; micro < warm; micro++)
        put(maker, PART_F, stage, micro);
    for (int micro = 0; micro < micros - warm; micro++) {
        put(maker, PART_F, stage, warm + micro);
        set_with_next(maker, braids);
        put(maker, PART_B, stage, micro);
    }
    for (int micro = micros - warm; micro < micros; micro++)
        put(maker, PART_B, stage, micro);
}

/* One turn of 1F1B that never drains: each backward behind the forward that is as many
 * micro-batches later as there are stages to come, of this step or of a later one. */
static void make_flowing(const Maker *maker)
{
    int warm = maker->stages - maker->stage - 1;
    for (int micro = 0; micro < maker->micros; micro++) {
        vec_push(maker->arena, &maker->schedule->rows[maker->stage]) =
            (Row){PART_F, maker->stage, (micro + warm) % maker->micros, false,
                  (micro + warm) / maker->micros};
        put(maker, PART_B, maker->stage, micro);
    }
}

/* Weight stashing: every backward finds the version of its forward. */
static void make_pipedream(const Maker *maker)
{
    make_flowing(maker);
    maker->schedule->delay[maker->stage] = maker->stages - maker->stage - 1;
}

/* Double-buffered weights: every stage reads those of one step before. */
static void make_2bw(const Maker *maker)
{
    make_flowing(maker);
    maker->schedule->delay[maker->stage] = 1;
}

/* The n-th pass of a stage through its chunks: groups of as many micro-batches as there are stages
 * go through the first chunk, then the second, and so on; the last group may be smaller. */
static Row nth_pass(const Maker *maker, int per_stage, int n, bool backward)
{
    int group = n / (maker->stages * per_stage), first = group * maker->stages;
    int width = smaller(maker->stages, maker->micros - first);
    int within = n - first * per_stage, round = within / width;
    int chunk = (backward ? per_stage - 1 - round : round) * maker->stages + maker->stage;
    return (Row){backward ? PART_B : PART_F, chunk, first + within % width, false, 0};
}

static void put_pass(const Maker *maker, int per_stage, int n, bool backward)
{
    Row row = nth_pass(maker, per_stage, n, backward);
    put(maker, row.part, row.chunk, row.micro);
}

static void make_interleaved(const Maker *maker)
{
    int per_stage = maker->schedule->chunks / maker->stages, all = per_stage * maker->micros;
    int warm = 2 * (maker->stages - maker->stage - 1) + (per_stage - 1) * maker->stages;
    warm = smaller(warm, all);
    for (int n = 0; n < all + warm; n++) {
        if (n < all)
            put_pass(maker, per_stage, n, false);
        if (n >= warm)
            put_pass(maker, per_stage, n - warm, true);
    }
}

/* Weight gradients that wait for their turn, first come first served. */
typedef struct Later {
    VEC(Row) rows;
    int next;
} Later;

static void put_later(const Maker *maker, Later *later, int chunk, int micro)
{
    put(maker, PART_I, chunk, micro);
    vec_push(maker->arena, &later->rows) = (Row){PART_W, chunk, micro, false, 0};
}

static bool take_later(const Maker *maker, Later *later)
{
    if (later->next == later->rows.n)
        return false;
    Row row = later->rows.at[later->next++];
    put(maker, row.part, row.chunk, row.micro);
    return true;
}

/* The order of 1F1B. The first stage keeps backward whole; stage r splits the first r and the last
 * of its steady state and all of its cool-down, where a W fills what would be bubble. */
static void make_zbh1(const Maker *maker)
{
    int stage = maker->stage, micros = maker->micros;
    int warm = smaller(maker->stages - stage - 1, micros), steady = micros - warm;
    Later later = {0};
    for (int micro = 0; micro < warm; micro++)
        put(maker, PART_F, stage, micro);
    for (int micro = 0; micro < micros; micro++) {
        bool last = micro == steady - 1, cooling = micro >= steady;
        if (!cooling)
            put(maker, PART_F, stage, warm + micro);
        if (stage == 0 || (micro >= stage && !last && !cooling)) {
            put(maker, PART_B, stage, micro);
            continue;
        }
        put_later(maker, &later, stage, micro);
        if ((last || cooling) && micro >= stage)
            take_later(maker, &later);
    }
    while (take_later(maker, &later))
        continue;
}

/* How far a stage of two chunks is with each part of each. */
typedef struct Pair {
    const Maker *maker;
    int chunk[2];
    int done[PART_COUNT][2];
    int micros; /* may be more than there are: rows beyond are left out */
} Pair;

static void step(Pair *pair, PartKind part, int which)
{
    int micro = pair->done[part][which]++;
    if (micro < pair->maker->micros)
        put(pair->maker, part, pair->chunk[which], micro);
}

static void step_backward(Pair *pair, int which)
{
    step(pair, PART_I, which);
    step(pair, PART_W, which);
}

/* Stage r holds chunks r and 2 p - 1 - r. A stage first fills the V, then alternates between its
 * two chunks with a W after every I, and lets the W wait only where the pipeline drains. */
static void make_zbv(const Maker *maker)
{
    int p = maker->stages, r = maker->stage;
    int micros = maker->micros > 2 * p - 1 ? maker->micros : 2 * p - 1;
    Pair pair = {.maker = maker, .chunk = {r, 2 * p - 1 - r}};
    for (int i = 0; i < 2 * (p - r) - 1; i++)
        step(&pair, PART_F, 0);
    for (int i = 0; i < r; i++) {
        step(&pair, PART_F, 1);
        step(&pair, PART_F, 0);
    }
    for (int i = 0; i < p - r; i++) {
        step(&pair, PART_F, 1);
        step_backward(&pair, 1);
    }
    while (pair.done[PART_F][1] < micros) {
        if (pair.done[PART_F][0] < micros)
            step(&pair, PART_F, 0);
        step_backward(&pair, 0);
        step(&pair, PART_F, 1);
        step_backward(&pair, 1);
    }
    for (int i = 0; i < r; i++) {
        step(&pair, PART_I, 0);
        step(&pair, PART_I, 1);
    }
    for (int i = 0; i < p - r; i++)
        step_backward(&pair, 0);
    for (int which = 1; which >= 0; which--)
        while (pair.done[PART_W][which] < pair.done[PART_I][which])
            step(&pair, PART_W, which);
}

/* Backward of the pair's next micro-batch, whole, or with its W left for later. */
static void back(Pair *pair, Later *later, int which, bool split)
{
    int micro = pair->done[PART_B][which]++;
    if (split)
        put_later(pair->maker, later, pair->chunk[which], micro);
    else
        put(pair->maker, PART_B, pair->chunk[which], micro);
}

/* A forward of one chunk meant to overlap with a backward of the other. */
static void both(Pair *pair, int forward, bool apart)
{
    step(pair, PART_F, forward);
    set_with_next(pair->maker, !apart);
    back(pair, NULL, 1 - forward, false);
}

static void make_dualpipev(const Maker *maker)
{
    int p = maker->stages, r = maker->stage, m = maker->micros;
    Pair pair = {.maker = maker, .chunk = {r, 2 * p - 1 - r}};
    Later later = {0};
    for (int i = 0; i < 2 * (p - r - 1); i++)
        step(&pair, PART_F, 0);
    for (int i = 0; i < r + 1; i++) {
        step(&pair, PART_F, 0);
        step(&pair, PART_F, 1);
    }
    for (int i = 0; i < p - r - 1; i++) {
        back(&pair, &later, 1, true);
        take_later(maker, &later);
        step(&pair, PART_F, 1);
    }
    for (int i = 0; i < m - 2 * p + r + 1; i++) {
        both(&pair, 0, i == 0 && r == p - 1);
        both(&pair, 1, false);
    }
    for (int i = 0; i < p - r - 1; i++) {
        back(&pair, &later, 1, false);
        both(&pair, 1, false);
    }
    bool split = false; /* from the middle of the last r + 1 pairs on, W waits */
    for (int i = 0; i < r + 1; i++) {
        bool middle = i == (r + 1) / 2;
        split |= middle && r % 2 == 1;
        back(&pair, &later, 1, split);
        split |= middle;
        back(&pair, &later, 0, split);
    }
    for (int i = 0; i < p - r - 1; i++) {
        take_later(maker, &later);
        back(&pair, &later, 0, true);
    }
    while (take_later(maker, &later))
        continue;
}

/* ---- the schedule ---- */

/* In a loop chunk c is on stage c mod p; in a V the second half comes back. */
static void place_chunks(Schedule *schedule, bool loop)
{
    int p = schedule->stages;
    for (int c = 0; c < schedule->chunks; c++)
        schedule->holder[c] = loop || c < p ? c % p : 2 * p - 1 - c;
}

static bool is_possible(Diag *diag, ScheduleKind kind, int stages, int per_stage, int micros)
{
    const ScheduleInfo *info = &schedule_info[kind];
    if (per_stage < info->least || per_stage > info->most) {
        diag_error(diag, NO_SPAN, "%s has %s%d chunk%s on a stage, not %d", info->title,
                   info->least < info->most ? "at least " : "", info->least,
                   info->least > 1 ? "s" : "", per_stage);
        diag_help(diag, info->least < info->most ? "pin chunks=2 or more" : "pin chunks=%d",
                  info->least);
        return false;
    }
    if (micros < info->cover * stages) {
        diag_error(diag, NO_SPAN, "%s on %d stages needs at least %d micro-batches; there are %d",
                   info->title, stages, info->cover * stages, micros);
        diag_help(diag,
                  "make the global batch larger or the micro-batch smaller, or pin "
                  "schedule=%s, which runs with any number",
                  schedule_text[info->flows ? SCHEDULE_1F1B : SCHEDULE_ZBV]);
        return false;
    }
    if (info->micros_most > 0 && micros > info->micros_most) {
        diag_error(diag, NO_SPAN,
                   "%s updates the weights with every micro-batch; %d are one step here",
                   info->title, micros);
        diag_help(diag,
                  "make the global batch dp x micro-batch, or pin schedule=%s, which adds up "
                  "%d or more",
                  schedule_text[SCHEDULE_2BW], stages);
        return false;
    }
    return true;
}

static Schedule *make_rows(Arena *arena, Diag *diag, ScheduleKind kind, int stages, int per_stage,
                           int micros, bool braids)
{
    CHECK(stages > 0 && micros > 0 && kind < SCHEDULE_TABLE);
    static void (*const make[SCHEDULE_COUNT])(const Maker *) = {
        [SCHEDULE_GPIPE] = make_gpipe,
        [SCHEDULE_1F1B] = make_1f1b,
        [SCHEDULE_INTERLEAVED] = make_interleaved,
        [SCHEDULE_ZBH1] = make_zbh1,
        [SCHEDULE_ZBV] = make_zbv,
        [SCHEDULE_DUALPIPEV] = make_dualpipev,
        [SCHEDULE_PIPEDREAM] = make_pipedream,
        [SCHEDULE_2BW] = make_2bw};
    if (!is_possible(diag, kind, stages, per_stage, micros))
        return NULL;
    Schedule *schedule = ARENA_NEW(arena, Schedule);
    *schedule = (Schedule){
        .stages = stages, .chunks = stages * per_stage, .micros = micros, .braids = braids};
    schedule->holder = ARENA_ARRAY(arena, int, schedule->chunks);
    schedule->rows = ARENA_ARRAY(arena, RowList, stages);
    if (schedule_info[kind].flows)
        schedule->delay = ARENA_ARRAY(arena, int, stages);
    place_chunks(schedule, kind == SCHEDULE_INTERLEAVED);
    for (int stage = 0; stage < stages; stage++)
        make[kind](&(Maker){arena, schedule, stage, stages, micros});
    return schedule;
}

Schedule *schedule_make(Arena *arena, Diag *diag, ScheduleKind kind, int stages, int per_stage,
                        int micros)
{
    return make_rows(arena, diag, kind, stages, per_stage, micros, false);
}

Schedule *schedule_make_braided(Arena *arena, Diag *diag, ScheduleKind kind, int stages,
                                int per_stage, int micros)
{
    if (schedule_info[kind].braids)
        return make_rows(arena, diag, kind, stages, per_stage, micros, true);
    diag_error(diag, NO_SPAN, "%s has no rows that run beside each other",
               schedule_info[kind].title);
    diag_help(diag, "pin braid=0, or schedule=%s or %s", schedule_text[SCHEDULE_DUALPIPEV],
              schedule_text[SCHEDULE_1F1B]);
    return NULL;
}
