/* stage_homes.c - homes that are cut, as a stage sees them: buffers in which a bucket is whole, and
 * rows that wait until its weights have come, or its gradients gone. */
#include "ir/base/num.h"
#include "ir/lower/home.h"
#include "planner/stage_area.h"
#include "planner/stage_spill.h"

/* Buckets by the lowest and by the highest link that uses them: the first of each link, counted
 * from the chunk's first, and those after it; NONE ends them. */
typedef struct Ends {
    int begin;
    int *low, *high, *next_low, *next_high;
} Ends;

static Ends ends_of(Arena *scratch, const StageCost *cost, int begin, int end)
{
    Ends ends = {
        begin, ARENA_ARRAY(scratch, int, end - begin), ARENA_ARRAY(scratch, int, end - begin),
        ARENA_ARRAY(scratch, int, cost->buckets + 1), ARENA_ARRAY(scratch, int, cost->buckets + 1)};
    for (int i = 0; i < end - begin; i++)
        ends.low[i] = ends.high[i] = NONE;
    for (int b = cost->buckets - 1; b >= 0; b--) {
        int *low = &ends.low[cost->bucket[b].close_link - begin],
            *high = &ends.high[cost->bucket[b].open_link - begin];
        ends.next_low[b] = *low;
        ends.next_high[b] = *high;
        *low = *high = b;
    }
    return ends;
}

/* Buckets that link i is the first to use in a row of that direction, or the last: one after b, or
 * the first. */
static int next_first(const Ends *ends, bool forward, int i, int b)
{
    if (b != NONE)
        return forward ? ends->next_low[b] : ends->next_high[b];
    return forward ? ends->low[i - ends->begin] : ends->high[i - ends->begin];
}

static int next_last(const Ends *ends, bool forward, int i, int b)
{
    return next_first(ends, !forward, i, b);
}

/* A row as the streams run it; times are from its start. */
typedef struct HomeRow {
    const StageCost *cost;
    const Ends *ends;
    Area weights, between, gradients, sums;
    Memory home, weight_home; /* of gradients, of weights */
    PartKind part;
    bool forward, adds; /* to gradients */
    bool turns;         /* backward follows at once upon its forward */
    int micros;
    int64_t clock; /* of compute */
    int64_t weight_stream, gradient_stream;
    int64_t lane[MEMORY_COUNT][2]; /* out of each memory, and into it */
    int64_t *used, *scattered; /* per bucket: its weights were used last, its gradients are home */
    int64_t *passed;           /* its weights have come from the host's memory */
    int64_t *came, *left, *homed; /* its far gradients are on the device, off it, at home */
    int64_t stall, fold;
    int64_t copied;  /* waits for saved values on their way */
    SpillRun *spill; /* or NULL */
} HomeRow;

/* All that link i is the first to use, one after the other. */
static int64_t fetches_of(const StageCost *cost, const Ends *ends, bool forward, int i)
{
    int64_t read = 0, carried = 0, fetched = 0;
    for (int b = next_first(ends, forward, i, NONE); b != NONE;
         b = next_first(ends, forward, i, b)) {
        read += cost->bucket[b].carry.in_ns[MEMORY_DRAM];
        carried = num_larger(carried, read) + cost->bucket[b].carry.in_ns[MEMORY_HBM];
        if (cost->bucket[b].fetch_ns)
            fetched = num_larger(fetched, carried) + cost->bucket[b].fetch_ns;
    }
    return num_larger(carried, fetched);
}

/* Far weights come as soon as their places are free, that in the buffer when `ready`; when they are
 * there. */
static int64_t carry_weights(HomeRow *row, int b, int64_t ready)
{
    int64_t came = INT64_MIN;
    for (int near = (int)row->weight_home - 1; near > 0; near--) {
        for (int k = 0; k < NEAR; k++)
            came = num_larger(came, row->passed[row->between.near[b][k]]);
        came = row->lane[near][1] =
            num_larger(row->lane[near][1], came) + row->cost->bucket[b].carry.in_ns[near];
    }
    came = num_larger(num_larger(came, ready), row->lane[MEMORY_HBM][1]);
    row->passed[b] = row->lane[MEMORY_HBM][1] = came + row->cost->bucket[b].carry.in_ns[MEMORY_HBM];
    return row->passed[b];
}

/* Weights that link i is the first to use must have come; they come as soon as the stream is free
 * and what lay in their bytes has been used. */
static void fetch_weights(HomeRow *row, int i)
{
    int64_t wait = row->clock;
    for (int b = next_first(row->ends, row->forward, i, NONE); b != NONE;
         b = next_first(row->ends, row->forward, i, b)) {
        if (!row->weights.bytes[b])
            continue;
        const StageBucket *bucket = &row->cost->bucket[b];
        int64_t ready = INT64_MIN;
        for (int k = 0; k < NEAR; k++)
            ready = num_larger(ready, row->used[row->weights.near[b][k]]);
        if (bucket->far)
            ready = carry_weights(row, b, ready);
        if (bucket->fetch_ns || !bucket->far)
            ready = row->weight_stream = num_larger(row->weight_stream, ready) + bucket->fetch_ns;
        wait = num_larger(wait, ready);
    }
    row->stall += wait - row->clock;
    row->clock = wait;
}

/* Far gradients whose place link i is the first to need come to it; all micro-batches but the first
 * find some. Where layers add to them there, the link waits for them. */
static void bring_sums(HomeRow *row, int i)
{
    int64_t wait = row->clock;
    for (int b = 0; b < row->cost->buckets; b++) {
        const StageBucket *bucket = &row->cost->bucket[b];
        if (!row->sums.bytes[b] ||
            gradient_first_link(bucket->group, bucket->close_link, bucket->open_link) != i)
            continue;
        int64_t ready = row->homed[b];
        for (int k = 0; k < NEAR; k++)
            ready = num_larger(ready, row->left[row->sums.near[b][k]]);
        for (int near = (int)row->home - 1; near >= 0; near--) {
            int64_t ns = bucket->sums.in_ns[near] * (row->micros - 1) / row->micros;
            ready = row->lane[near][1] = num_larger(row->lane[near][1], ready) + ns;
        }
        row->came[b] = ready;
        wait = bucket->group->buffered ? wait : num_larger(wait, ready);
    }
    row->stall += wait - row->clock;
    row->clock = wait;
}

/* And they leave, `ready` for it. */
static void take_sums(HomeRow *row, int b, int64_t ready)
{
    const FarHop *hop = &row->cost->bucket[b].sums;
    for (int near = 0; near < (int)row->home && hop->bytes; near++) {
        ready = row->lane[near][0] = num_larger(row->lane[near][0], ready) + hop->out_ns[near];
        row->left[b] = near == 0 ? ready : row->left[b];
        row->homed[b] = ready;
    }
}

/* Gradients that link i is the first to write, `before` ns after it begins, need bytes from which
 * others have gone home. */
static void claim_buffers(HomeRow *row, int i, int64_t before)
{
    int64_t wait = row->clock;
    for (int b = next_first(row->ends, false, i, NONE); b != NONE;
         b = next_first(row->ends, false, i, b))
        for (int k = 0; k < NEAR && row->gradients.bytes[b]; k++)
            wait = num_larger(wait, row->scattered[row->gradients.near[b][k]] - before);
    row->stall += wait - row->clock;
    row->clock = wait;
}

static void close_buckets(HomeRow *row, int i)
{
    for (int b = next_last(row->ends, false, i, NONE); b != NONE;
         b = next_last(row->ends, false, i, b)) {
        const StageBucket *bucket = &row->cost->bucket[b];
        if (!row->gradients.bytes[b]) {
            take_sums(row, b, row->clock);
            continue;
        }
        int64_t late = row->sums.bytes[b] ? num_larger(row->came[b] - row->clock, 0) : 0;
        row->clock += late;
        row->stall += late;
        int64_t fold = bucket->fold_ns * (row->micros - 1) / row->micros; /* the first has none */
        row->clock += fold;
        row->fold += fold;
        row->gradient_stream = num_larger(row->gradient_stream, row->clock) + bucket->scatter_ns;
        row->scattered[b] = row->gradient_stream;
        take_sums(row, b, row->gradient_stream);
    }
}

/* What link i, which takes `ns`, waits for; resumes: its weights are there from the row before. */
static void begin_link(HomeRow *row, int i, int64_t ns, bool resumes)
{
    if (!resumes)
        fetch_weights(row, i);
    if (row->adds && row->home != MEMORY_HBM)
        bring_sums(row, i);
    if (row->adds)
        claim_buffers(row, i, ns / 2); /* some are made early, some late */
    int64_t ready = spill_run_begin(row->spill, row->part, row->turns, i, row->clock);
    row->copied += ready - row->clock;
    row->clock = ready;
}

static void end_link(HomeRow *row, int i)
{
    int64_t done = spill_run_end(row->spill, row->part, row->turns, i, row->clock);
    row->copied += done - row->clock;
    row->clock = done;
    for (int b = next_last(row->ends, row->forward, i, NONE); b != NONE;
         b = next_last(row->ends, row->forward, i, b))
        row->used[b] = row->clock;
    if (row->adds)
        close_buckets(row, i);
}

/* resumes: the row before it ended at its first link, and the weights of that are there. ret_late,
 * per link: how much later than without homes its work begins. */
static void run_row(HomeRow *row, bool resumes, int begin, int end, const int64_t *adds,
                    int64_t *ret_late)
{
    for (int k = 0; k < end - begin; k++) {
        int i = row->forward ? begin + k : end - 1 - k;
        begin_link(row, i, adds[i - begin], k == 0 && resumes);
        ret_late[i - begin] = row->stall + row->fold + row->copied;
        row->clock += adds[i - begin];
        end_link(row, i);
    }
}

/* The row of `part` that follows at once. */
static HomeRow row_behind(Arena *scratch, const HomeRow *before, PartKind part)
{
    HomeRow row = *before;
    int n = row.cost->buckets;
    row.part = part;
    row.forward = part == PART_F;
    row.adds = part == PART_B || part == PART_W;
    row.clock = row.stall = row.fold = row.copied = 0;
    row.spill = spill_run_behind(scratch, before->spill, before->clock);
    row.weight_stream -= before->clock;
    row.gradient_stream -= before->clock;
    for (int m = 0; m < MEMORY_COUNT; m++)
        for (int in = 0; in < 2; in++)
            row.lane[m][in] -= before->clock;
    row.used = ARENA_ARRAY(scratch, int64_t, n + 1);
    row.passed = ARENA_ARRAY(scratch, int64_t, n + 1);
    row.scattered = ARENA_ARRAY(scratch, int64_t, n + 1);
    row.came = ARENA_ARRAY(scratch, int64_t, n + 1);
    row.left = ARENA_ARRAY(scratch, int64_t, n + 1);
    row.homed = ARENA_ARRAY(scratch, int64_t, n + 1);
    for (int b = 0; b < n; b++) {
        row.used[b] = before->used[b] - before->clock;
        row.passed[b] = before->passed[b] - before->clock;
        row.scattered[b] = before->scattered[b] - before->clock;
        row.came[b] = before->came[b] - before->clock;
        row.left[b] = before->left[b] - before->clock;
        row.homed[b] = before->homed[b] - before->clock;
    }
    return row;
}

/* Lanes that nothing has ever run on. */
static void clear_lanes(int64_t lane[MEMORY_COUNT][2])
{
    for (int m = 0; m < MEMORY_COUNT; m++)
        for (int in = 0; in < 2; in++)
            lane[m][in] = INT64_MIN / 4;
}

/* A row of `part` before which nothing has run. */
static HomeRow first_row(Arena *scratch, const Family *family, const StageCost *cost,
                         const Ends *ends, int end, PartKind part)
{
    int64_t bytes, sums_bytes[MEMORY_COUNT];
    HomeRow row = {.cost = cost,
                   .ends = ends,
                   .weights = area_place(scratch, family, cost, end, true, &bytes),
                   .between = area_place_between(scratch, family, cost, end, &bytes),
                   .gradients = area_place(scratch, family, cost, end, false, &bytes),
                   .sums = area_place_sums(scratch, family, cost, end, sums_bytes),
                   .home = family->memory[KEPT_GRADIENTS],
                   .weight_home = family->memory[KEPT_WEIGHTS],
                   .came = ARENA_ARRAY(scratch, int64_t, cost->buckets + 1),
                   .left = ARENA_ARRAY(scratch, int64_t, cost->buckets + 1),
                   .homed = ARENA_ARRAY(scratch, int64_t, cost->buckets + 1),
                   .passed = ARENA_ARRAY(scratch, int64_t, cost->buckets + 1),
                   .part = part,
                   .forward = part == PART_F,
                   .adds = part == PART_B || part == PART_W,
                   .spill = spill_run_new(scratch, family, ends->begin, end),
                   .micros = family->order->micros,
                   .used = ARENA_ARRAY(scratch, int64_t, cost->buckets + 1),
                   .scattered = ARENA_ARRAY(scratch, int64_t, cost->buckets + 1)};
    clear_lanes(row.lane);
    return row;
}

static bool any_cut(const StageCost *cost)
{
    bool any = false;
    for (int b = 0; b < cost->buckets; b++)
        any = any || cost->bucket[b].far || cost->bucket[b].sums.bytes ||
              cost->bucket[b].group->buffered;
    return any; /* weights are cut where gradients are */
}

/* The row of `part` that follows some time later: what could be brought has come. */
static HomeRow rested_row(Arena *scratch, const HomeRow *before, PartKind part)
{
    enum { LONG = 1 << 30 }; /* ns, more than all blocks take */
    HomeRow row = row_behind(scratch, before, part);
    const int64_t rest = (int64_t)LONG << 8;
    row.spill = spill_run_behind(scratch, row.spill, rest);
    for (int m = 0; m < (int)row.home; m++)
        for (int in = 0; in < 2; in++)
            row.lane[m][in] -= rest;
    for (int b = 0; b < row.cost->buckets; b++) {
        row.left[b] -= rest;
        row.homed[b] -= rest;
    }
    return row;
}

/* Rows of one part, each behind its like, where none begins with weights of the one before. */
static void run_alike(Arena *scratch, const HomeRow *first, int begin, int end,
                      int64_t *const own[PART_COUNT], HomeRow *ret, HomeRow *ret_rest,
                      int64_t *const *ret_late)
{
    for (int part = 0; part < PART_COUNT; part++) {
        HomeRow before = row_behind(scratch, first, (PartKind)part);
        run_row(&before, false, begin, end, own[part], ret_late[part]);
        ret[part] = row_behind(scratch, &before, (PartKind)part);
        run_row(&ret[part], false, begin, end, own[part], ret_late[part]);
        ret_rest[part] = ret[part];
        if (!first->spill)
            continue;
        ret_rest[part] = rested_row(scratch, &before, (PartKind)part);
        run_row(&ret_rest[part], false, begin, end, own[part], ret_late[part]);
    }
}

/* Rows in the steady state, each behind one of the other direction: forward and backward take
 * turns. ret_rest: the same where something else held the rows up. ret_late[part],
 * per link, of these. */
static void run_rows(Arena *scratch, const HomeRow *begun, int begin, int end,
                     int64_t *const own[PART_COUNT], HomeRow *ret, HomeRow *ret_rest,
                     int64_t *const *ret_late)
{
    HomeRow first = *begun;
    run_row(&first, true, begin, end, own[PART_F], ret_late[PART_F]);
    HomeRow back = row_behind(scratch, &first, PART_B);
    run_row(&back, true, begin, end, own[PART_B], ret_late[PART_B]);
    /* files are read ahead as far as there is room: until that is so as in every row */
    for (int k = 2; k < first.micros && k < 6 && first.weight_home == MEMORY_NVME; k++) {
        first = row_behind(scratch, &back, PART_F);
        run_row(&first, true, begin, end, own[PART_F], ret_late[PART_F]);
        back = row_behind(scratch, &first, PART_B);
        run_row(&back, true, begin, end, own[PART_B], ret_late[PART_B]);
    }
    ret[PART_F] = row_behind(scratch, &back, PART_F);
    run_row(&ret[PART_F], true, begin, end, own[PART_F], ret_late[PART_F]);
    for (int part = 0; part < PART_COUNT; part++)
        if (part != PART_F) {
            ret[part] = row_behind(scratch, &ret[PART_F], (PartKind)part);
            run_row(&ret[part], true, begin, end, own[part], ret_late[part]);
        }
    /* what goes home later every time ends by taking the time of the rows */
    int64_t behind = (ret[PART_B].gradient_stream - ret[PART_B].clock) -
                     num_larger(back.gradient_stream - back.clock, 0);
    behind = num_larger(behind, 0);
    for (int m = 0; m < MEMORY_COUNT; m++) /* or out of a memory */
        behind = num_larger(behind, (ret[PART_B].lane[m][0] - ret[PART_B].clock) -
                                        num_larger(back.lane[m][0] - back.clock, 0));
    ret[PART_B].clock += behind;
    ret[PART_B].stall += behind;
    for (int part = 0; part < PART_COUNT; part++) {
        ret_rest[part] = ret[part];
        if (!first.spill && first.home == MEMORY_HBM)
            continue;
        ret_rest[part] = rested_row(scratch, part == PART_F ? &back : &ret[PART_F], (PartKind)part);
        run_row(&ret_rest[part], true, begin, end, own[part], ret_late[part]);
        ret_rest[part].clock += part == PART_B ? behind : 0;
        ret_rest[part].stall += part == PART_B ? behind : 0;
    }
}

/* Of rows of one part behind each other, how long those behind the first take, on average: some of
 * what hops of saved values take shows only when all their places are full. */
static int64_t length_anew(Arena *scratch, const HomeRow *first, int begin, int end, int alike,
                           const int64_t *own)
{
    enum { MOST = 8 };
    int rows = !first->spill || alike < 3 ? 1 : alike > MOST ? MOST - 1 : alike - 1;
    int read = first->weight_home == MEMORY_NVME; /* what the next one finds was read long before */
    int64_t sum = 0, *late = ARENA_ARRAY(scratch, int64_t, end - begin);
    HomeRow next = *first;
    for (int i = 0; i < read + rows; i++) {
        next = row_behind(scratch, &next, first->part);
        run_row(&next, false, begin, end, own, late);
        sum += i < read ? 0 : next.clock;
    }
    return sum / rows;
}

void stage_add_homes(const Family *family, int begin, int end, bool turns, int alike,
                     int64_t *const own[PART_COUNT], StageCost *cost)
{
    for (int m = 0; m < MEMORY_COUNT; m++)
        cost->lane_ns[m] = INT64_MIN / 4;
    if (!any_cut(cost) && family->memory[KEPT_SAVED] == MEMORY_HBM)
        return;
    Arena *scratch = arena_new("homes");
    Ends ends = ends_of(scratch, cost, begin, end);
    HomeRow first = {.cost = cost,
                     .ends = &ends,
                     .part = PART_F,
                     .forward = true,
                     .turns = turns,
                     .spill = spill_run_new(scratch, family, begin, end),
                     .micros = family->order->micros,
                     .home = family->memory[KEPT_GRADIENTS],
                     .weight_home = family->memory[KEPT_WEIGHTS],
                     .passed = ARENA_ARRAY(scratch, int64_t, cost->buckets + 1),
                     .came = ARENA_ARRAY(scratch, int64_t, cost->buckets + 1),
                     .left = ARENA_ARRAY(scratch, int64_t, cost->buckets + 1),
                     .homed = ARENA_ARRAY(scratch, int64_t, cost->buckets + 1),
                     .used = ARENA_ARRAY(scratch, int64_t, cost->buckets + 1),
                     .scattered = ARENA_ARRAY(scratch, int64_t, cost->buckets + 1)};
    clear_lanes(first.lane);
    bool pairs = false;
    for (int s = 0; s < family->order->stages; s++)
        pairs = pairs || family->order->pairs[s];
    first.weights = area_place(scratch, family, cost, end, true, &cost->fetched_bytes);
    first.between = area_place_between(scratch, family, cost, end, &cost->between_bytes);
    first.gradients = area_place(scratch, family, cost, end, false, &cost->buffer_bytes);
    first.sums = area_place_sums(scratch, family, cost, end, cost->sums_bytes);
    HomeRow row[PART_COUNT], rest[PART_COUNT];
    int64_t *late[PART_COUNT], *again = ARENA_ARRAY(scratch, int64_t, end - begin);
    for (int part = 0; part < PART_COUNT; part++)
        late[part] = ARENA_ARRAY(scratch, int64_t, end - begin);
    (pairs ? run_alike : run_rows)(scratch, &first, begin, end, own, row, rest, late);
    for (int part = 0; part < PART_COUNT; part++) {
        bool forward = part == PART_F;
        int64_t anew = length_anew(scratch, &row[part], begin, end, alike, own[part]);
        cost->ns[part] += rest[part].stall + rest[part].fold + rest[part].copied;
        cost->copied_ns[part] = rest[part].copied;
        cost->stall_ns[part] = rest[part].stall;
        cost->fold_ns = num_larger(cost->fold_ns, row[part].fold);
        cost->gap_ns[BEGINS_STAGE][part] =
            fetches_of(cost, &ends, forward, forward ? begin : end - 1);
        if (first.weight_home == MEMORY_NVME) { /* nothing has been read ahead */
            HomeRow cold = first_row(scratch, family, cost, &ends, end, (PartKind)part);
            run_row(&cold, false, begin, end, own[part], again);
            cost->gap_ns[BEGINS_STAGE][part] =
                num_larger(cost->gap_ns[BEGINS_STAGE][part], cold.clock - rest[part].clock);
        }
        cost->gap_ns[turns && !forward ? BEGINS_OWN : BEGINS_THERE][part] =
            num_larger(row[part].clock - rest[part].clock, 0);
        cost->gap_ns[BEGINS_ANEW][part] = num_larger(anew - rest[part].clock, 0);
        cost->waits = true;
    }
    PartKind adds = family->deck->key.split ? PART_W : PART_B;
    HomeRow last = row_behind(scratch, &rest[adds], adds); /* as one behind it finds things */
    for (int m = 0; m < MEMORY_COUNT; m++)
        cost->lane_ns[m] = last.lane[m][1];
    if (first.weight_home != MEMORY_HBM)
        area_find_behind(&first.weights, last.used, cost, MEMORY_HBM);
    if (first.weight_home == MEMORY_NVME)
        area_find_behind(&first.between, last.passed, cost, MEMORY_DRAM);
    for (int b = 0; b < cost->buckets; b++) {
        StageBucket *bucket = &cost->bucket[b];
        int at = bucket->close_link - begin;
        int64_t fold = family->order->micros > 1 ? bucket->fold_ns : 0; /* of the last row */
        bucket->ready_ns += late[adds][at] + fold;
        bucket->ready_whole_ns += late[PART_B][at] + fold;
    }
    cost->transient_bytes +=
        cost->fetched_bytes + cost->buffer_bytes + cost->sums_bytes[MEMORY_HBM];
    arena_free(scratch);
}

/* ---- two rows in one ---- */

/* The other row of the two goes on where this one is: they share the streams. */
static void hand_over(const HomeRow *from, HomeRow *to)
{
    to->clock = from->clock;
    to->weight_stream = from->weight_stream;
    to->gradient_stream = from->gradient_stream;
    for (int m = 0; m < MEMORY_COUNT; m++)
        for (int in = 0; in < 2; in++)
            to->lane[m][in] = from->lane[m][in];
    spill_run_share(to->spill, from->spill);
}

/* A pair of links; all that a link waits for holds up both. */
static void run_step(HomeRow row[2], const int link[2], const PairStep *step)
{
    HomeRow *ahead = &row[0], *back = &row[1];
    if (link[0] != NONE)
        begin_link(ahead, link[0], step->forward_ns, false);
    hand_over(ahead, back);
    back->clock += step->lead_ns;
    if (link[1] != NONE)
        begin_link(back, link[1], step->ns - step->lead_ns, false);
    hand_over(back, ahead);
    ahead->clock += step->forward_ns - step->lead_ns;
    if (link[0] != NONE)
        end_link(ahead, link[0]);
    hand_over(ahead, back);
    back->clock += step->ns - step->forward_ns;
    if (link[1] != NONE)
        end_link(back, link[1]);
    hand_over(back, ahead);
}

/* Pairs of rows on the clock. A chunk has its places for saved values in whichever pair it runs. */
typedef struct PairClock {
    const PairedRows *rows;
    int n;
    Ends ends[2][2];
    HomeRow row[2][2];  /* per pair: its forward, its backward */
    SpillRun *spill[2]; /* of the first pair's forward's places, and of its backward's */
} PairClock;

static SpillRun **spill_of(PairClock *clock, int pair, int side)
{
    return &clock->spill[pair ? 1 - side : side];
}

static void begin_pairs(Arena *scratch, const Family *family, PairClock *clock)
{
    for (int pair = 0; pair < clock->n; pair++)
        for (int side = 0; side < 2; side++) {
            const PairedRun *at = &clock->rows[pair].run[side];
            Ends *ends = &clock->ends[pair][side];
            *ends = ends_of(scratch, at->cost, at->begin, at->end);
            clock->row[pair][side] = first_row(scratch, family, at->cost, ends, at->end, at->part);
            if (pair == 0)
                clock->spill[side] = clock->row[pair][side].spill;
        }
}

static void run_pair(PairClock *clock, int pair)
{
    const PairedRows *at = &clock->rows[pair];
    HomeRow *row = clock->row[pair];
    for (int side = 0; side < 2; side++)
        row[side].spill = *spill_of(clock, pair, side);
    if (at->follows)
        spill_run_follow(row[1].spill, row[0].spill);
    for (int k = 0; k < at->steps; k++) {
        int ahead = at->step[k].forward, back = at->step[k].backward;
        int link[2] = {ahead == NONE ? NONE : at->run[0].begin + ahead,
                       back == NONE ? NONE : at->run[1].end - 1 - back};
        run_step(row, link, &at->step[k]);
    }
}

/* All goes on behind the pair that has run. */
static void end_pair(Arena *scratch, PairClock *clock, int pair)
{
    const HomeRow *ran = &clock->row[pair][0];
    int64_t now = ran->clock;
    for (int k = 0; k < 2; k++)
        clock->spill[k] = spill_run_behind(scratch, clock->spill[k], now);
    for (int p = 0; p < clock->n; p++)
        for (int side = 0; side < 2; side++) {
            HomeRow *row = &clock->row[p][side];
            if (p != pair)
                hand_over(ran, row);
        }
    for (int p = 0; p < clock->n; p++)
        for (int side = 0; side < 2; side++)
            clock->row[p][side] =
                row_behind(scratch, &clock->row[p][side], clock->row[p][side].part);
}

PairWaits stage_pair_waits(const Family *family, const PairedRows *rows, int n)
{
    PairWaits waits = {0};
    if (!any_cut(rows->run[0].cost) && !any_cut(rows->run[1].cost) &&
        family->memory[KEPT_SAVED] == MEMORY_HBM)
        return waits;
    Arena *scratch = arena_new("pair");
    PairClock clock = {.rows = rows, .n = n};
    begin_pairs(scratch, family, &clock);
    for (int turn = 0; turn < 3; turn++) /* until what is on its way is so as in every one */
        for (int pair = 0; pair < n; pair++) {
            run_pair(&clock, pair);
            const HomeRow *row = clock.row[pair];
            if (pair == 0)
                waits = (PairWaits){row[0].stall + row[1].stall, row[1].fold,
                                    row[0].copied + row[1].copied};
            end_pair(scratch, &clock, pair);
        }
    arena_free(scratch);
    return waits;
}
