/* stage_end.c - the end of the step on every stage of a plan: its gradients reduced, the norm, the
 * update; and the objective, which is when the last one ends. */
#include "ir/base/num.h"
#include "planner/stage.h"

#include <string.h>

int chunk_with(const int *first_link, int chunks, int link)
{
    int chunk = 0;
    while (chunk + 1 < chunks && link >= first_link[chunk + 1])
        chunk++;
    return chunk;
}

/* The end of the step on one stage as it becomes known. */
typedef struct Ending {
    int chunks;
    int chunk[MAX_CHUNKS]; /* in the order in which their last rows end */
    int64_t row_end;       /* of the last */
    int64_t stream_end;    /* of its gradient stream, without tied sums */
    int other_home;        /* link that something is summed with, or NONE */
} Ending;

/* A bucket's reduction, absolute: [chunk][bucket]. */
typedef struct Reduced {
    int64_t **at;
} Reduced;

/* The chunks of a stage by the ends of their last rows. */
static void order_chunks(const Order *order, const int64_t *row_end, int stage, Ending *ret)
{
    for (int c = 0; c < order->chunks; c++) {
        if (order->holder[c] != stage)
            continue;
        int at = ret->chunks++;
        for (; at > 0 && row_end[order->last[ret->chunk[at - 1]]] > row_end[order->last[c]]; at--)
            ret->chunk[at] = ret->chunk[at - 1];
        ret->chunk[at] = c;
    }
    ret->row_end = row_end[order->last[ret->chunk[ret->chunks - 1]]];
}

/* The gradient stream takes buckets in the order in which chunks, and in them links, finish. */
static void reduce_chunks(Family *family, const int *first_link, const int64_t *row_end,
                          Ending *end, Reduced *reduced)
{
    const Order *order = family->order;
    int64_t clock = 0;
    for (int k = 0; k < end->chunks; k++) {
        int c = end->chunk[k];
        const StageCost *cost = family_chunk(family, first_link, c);
        const OrderRow *row = &order->row[order->last[c]];
        bool whole = order->splits && row->part == PART_B;
        int64_t start = row_end[order->last[c]] - cost->ns[row->part];
        int begin = family_begin(family, first_link[c], first_link[c + 1]);
        end->other_home = cost->other_home != NONE ? cost->other_home : end->other_home;
        end->stream_end = num_larger(end->stream_end, start);
        for (int i = begin + first_link[c + 1] - first_link[c] - 1; i >= begin; i--)
            for (int b = 0; b < cost->buckets; b++) {
                const StageBucket *bucket = &cost->bucket[b];
                if (bucket->close_link != i)
                    continue;
                int64_t ready = start + (whole ? bucket->ready_whole_ns : bucket->ready_ns);
                if (bucket->reduce_ns)
                    ready = clock = num_larger(clock, ready) + bucket->reduce_ns;
                reduced->at[c][b] = ready;
            }
    }
    end->stream_end = num_larger(end->stream_end, clock);
}

/* When the tied sum of a stage ends: it begins when both homes have reduced their own. */
static int64_t tied_end(Family *family, const int *first_link, const Ending *ending, int stage,
                        const Reduced *reduced)
{
    const Cluster *cluster = family->problem->cluster;
    const Order *order = family->order;
    const Ending *own = &ending[stage];
    int other = order->holder[chunk_with(first_link, order->chunks, own->other_home)];
    int level = stage_level(cluster, mesh_ranks(&family->mesh), stage, other);
    int64_t clock = num_larger(own->stream_end, ending[other].stream_end);
    for (int k = 0; k < own->chunks; k++) {
        const StageCost *cost = family_chunk(family, first_link, own->chunk[k]);
        for (int b = 0; b < cost->buckets; b++)
            if (cost->bucket[b].tied) {
                /* it waits for the accumulators too, where nothing reduces them first */
                clock = num_larger(clock, reduced->at[own->chunk[k]][b]);
                clock += price_pair(cluster, level, cost->bucket[b].share_bytes);
            }
    }
    return clock;
}

/* When this rank's sum of squares is known. */
static void end_stage(Family *family, const int *first_link, const Ending *ending,
                      const Reduced *reduced, int64_t tied, StageEnd *ret)
{
    Arena *scratch = arena_new("ends");
    VEC(const StageBucket *) buckets = {0};
    VEC(int64_t) all = {0};
    int chunks[MAX_CHUNKS], n = 0;
    for (int c = 0; c < family->order->chunks; c++) /* buckets stand in the order of chunks */
        for (int k = 0; k < ending->chunks; k++)
            if (ending->chunk[k] == c)
                chunks[n++] = c;
    for (int k = 0; k < n; k++) {
        const StageCost *cost = family_chunk(family, first_link, chunks[k]);
        for (int b = 0; b < cost->buckets; b++) {
            const StageBucket *bucket = &cost->bucket[b];
            int64_t ready = reduced->at[chunks[k]][b];
            vec_push(scratch, &buckets) = bucket;
            vec_push(scratch, &all) = bucket->tied ? num_larger(tied, ready) : ready;
        }
    }
    int64_t norm = stage_norm_end(family, buckets.at, all.at, buckets.n, ending->row_end);
    arena_free(scratch);
    ret->row_end = ending->row_end;
    ret->norm = norm + family->problem->cluster->device.launch_ns; /* the loss joins the pair */
}

/* How long its update takes, from `begin` on. */
static void update_stage(Family *family, const int *first_link, int stage, int64_t begin,
                         StageEnd *ret)
{
    Arena *scratch = arena_new("update");
    VEC(const StageBucket *) buckets = {0};
    int64_t compute = 0, gather = 0;
    UpdateStart start = {.begin = begin, .rows = ret->row_end};
    for (int c = 0; c < family->order->chunks; c++) {
        if (family->order->holder[c] != stage)
            continue;
        const StageCost *cost = family_chunk(family, first_link, c);
        for (int m = 0; m < MEMORY_COUNT; m++)
            start.lane[m] = num_larger(start.lane[m], ret->row_end + cost->lane_ns[m]);
        for (int b = 0; b < cost->buckets; b++) {
            const StageBucket *bucket = &cost->bucket[b];
            vec_push(scratch, &buckets) = bucket;
            compute += bucket->update_ns;
            if (bucket->gather_ns)
                gather = num_larger(gather, compute) + bucket->gather_ns;
        }
    }
    ret->step_ns = compute;
    ret->update_ns = num_larger(compute, gather);
    ret->copy_ns = 0;
    if (family_updates_far(family)) {
        int64_t end =
            stage_update_end(family, buckets.at, buckets.n, &start, &ret->step_ns) - begin;
        ret->step_ns -= begin;
        ret->copy_ns = end - ret->update_ns;
        ret->update_ns = end;
    }
    arena_free(scratch);
}

int family_pair_bytes(const Family *family)
{
    return 2 * dtype_bytes(family->pricer.recipe->gradient);
}

int64_t family_ends(Family *family, const int *first_link, const int64_t *row_end, StageEnd *ret)
{
    const Cluster *cluster = family->problem->cluster;
    const Order *order = family->order;
    Arena *scratch = arena_new("ends");
    Ending *ending = ARENA_ARRAY(scratch, Ending, order->stages);
    Reduced reduced = {ARENA_ARRAY(scratch, int64_t *, order->chunks)};
    for (int c = 0; c < order->chunks; c++)
        reduced.at[c] =
            ARENA_ARRAY(scratch, int64_t, family_chunk(family, first_link, c)->buckets + 1);
    for (int s = 0; s < order->stages; s++) {
        ending[s].other_home = NONE;
        order_chunks(order, row_end, s, &ending[s]);
        reduce_chunks(family, first_link, row_end, &ending[s], &reduced);
    }
    int64_t norm = 0, update = 0;
    for (int s = 0; s < order->stages; s++) {
        int64_t tied =
            ending[s].other_home == NONE ? 0 : tied_end(family, first_link, ending, s, &reduced);
        end_stage(family, first_link, &ending[s], &reduced, tied, &ret[s]);
        norm = num_larger(norm, ret[s].norm);
    }
    int64_t world = price_world(cluster, family->problem->ranks, family_pair_bytes(family));
    for (int s = 0; s < order->stages; s++) {
        update_stage(family, first_link, s, norm + world + cluster->device.launch_ns, &ret[s]);
        update = num_larger(update, ret[s].update_ns);
        ret[s].world_ns = world;
        ret[s].world_end = norm + world;
    }
    arena_free(scratch);
    return norm + world + cluster->device.launch_ns + update;
}

void family_hops(const Family *family, OrderTimes *ret)
{
    const Cluster *cluster = family->problem->cluster;
    int ranks = mesh_ranks(&family->mesh);
    const int *holder = family->order->holder;
    for (int c = 0; c + 1 < family->order->chunks; c++) {
        int level = stage_level(cluster, ranks, holder[c], holder[c + 1]);
        ret->hop_forward[c] = ret->hop_backward[c] =
            holder[c] == holder[c + 1] ? 0 : price_p2p(cluster, level, family->hop_bytes);
    }
}

/* What a row takes beside its links: data, and homes that are cut or elsewhere. */
static int64_t beside_links(Family *family, const int *first_link, int chunk, PartKind part)
{
    const StageCost *cost = family_chunk(family, first_link, chunk);
    int64_t ns = cost->ns[part];
    for (int i = first_link[chunk]; i < first_link[chunk + 1]; i++) {
        const Card *card = family_card(family, i);
        bool first = i == (part == PART_F ? first_link[chunk] : first_link[chunk + 1] - 1);
        int begin, end;
        part_lists(part, &begin, &end);
        for (int l = begin; l < end; l++) {
            const CardSegment *own = l == 0   ? &card->forward
                                     : l == 1 ? &card->backward
                                              : &card->weight;
            ns -= first ? own->ns : own->next_ns;
        }
    }
    return ns;
}

static PairShelf *new_pairs(Family *family)
{
    int classes = family->deck->net->classes.n;
    const Body **body = ARENA_ARRAY(family->arena, const Body *, classes);
    for (int c = 0; c < classes; c++)
        body[c] = deck_body(family->arena, family->deck, c);
    return pair_shelf_new(family->arena, &family->deck->pricer, body);
}

static PairedRun paired_run(Family *family, const int *first_link, const OrderRow *row)
{
    int c = row->chunk, begin = family_begin(family, first_link[c], first_link[c + 1]);
    return (PairedRun){family_chunk(family, first_link, c), begin,
                       begin + first_link[c + 1] - first_link[c], row->part};
}

/* ret_times: without what they wait for. */
static PairedRows paired_rows(Arena *scratch, Family *family, const int *first_link,
                              const OrderRow *row, PairTimes *ret_times)
{
    const Net *net = family->deck->net;
    int there = row[0].chunk, back = row[1].chunk, steps;
    PairRow forward = pair_row(scratch, net, first_link[there], first_link[there + 1], true),
            backward = pair_row(scratch, net, first_link[back], first_link[back + 1], false);
    PairStep *step = ARENA_ARRAY(scratch, PairStep, forward.n + backward.n);
    *ret_times = pair_row_times(family->pairs, &forward, &backward, row[1].part, step, &steps);
    return (PairedRows){
        .run = {paired_run(family, first_link, &row[0]), paired_run(family, first_link, &row[1])},
        .follows = there == back && row[0].micro == row[1].micro + 1,
        .step = step,
        .steps = steps};
}

/* Two rows in one of the same stage that have the other part of each chunk, or NULL: the two take
 * turns. */
static const OrderRow *pair_between(const Order *order, const OrderRow *row)
{
    for (int i = 0; i + 1 < order->n && row[0].chunk != row[1].chunk; i++) {
        const OrderRow *other = &order->row[i];
        if (other->pair == 1 && other[0].chunk == row[1].chunk && other[1].chunk == row[0].chunk)
            return other;
    }
    return NULL;
}

static void fill_pair(Family *family, const int *first_link, const OrderRow *row, OrderTimes *ret)
{
    Arena *scratch = arena_new("pair");
    PairTimes times, others;
    int there = row->chunk, n = 1;
    PairedRows rows[2] = {paired_rows(scratch, family, first_link, row, &times)};
    const OrderRow *between = pair_between(family->order, row);
    if (between)
        rows[n++] = paired_rows(scratch, family, first_link, between, &others);
    PairWaits waits = stage_pair_waits(family, rows, n);
    const StageCost *cost = rows[0].run[0].cost;
    int64_t before = beside_links(family, first_link, there, PART_F) - cost->stall_ns[PART_F] -
                     cost->copied_ns[PART_F],
            waited = waits.stall + waits.fold + waits.copied;
    ret->pair[there] = times.ns + before + waited;
    ret->pair_forward[there] = times.forward + before + waited;
    ret->pair_lead[there] = times.lead + before;
    ret->pair_stall[there] = waits.stall;
    ret->pair_copied[there] = waits.copied;
    arena_free(scratch);
}

static void fill_pairs(Family *family, const int *first_link, OrderTimes *ret)
{
    for (int i = 0; i < family->order->n; i++) {
        const OrderRow *row = &family->order->row[i];
        if (row->pair != 1 || ret->pair[row->chunk])
            continue;
        if (!family->pairs)
            family->pairs = new_pairs(family);
        fill_pair(family, first_link, row, ret);
    }
}

void family_lengths(Family *family, const int *first_link, OrderTimes *ret)
{
    family_hops(family, ret);
    memset(ret->pair, 0, sizeof ret->pair);
    for (int c = 0; c < family->order->chunks; c++) {
        const StageCost *cost = family_chunk(family, first_link, c);
        for (int part = 0; part < PART_COUNT; part++) {
            ret->time[part][c] = cost->ns[part];
            for (int begins = 0; begins < BEGINS_COUNT; begins++)
                ret->gap[begins][part][c] = cost->gap_ns[begins][part];
        }
    }
    fill_pairs(family, first_link, ret);
}

/* Rows of a turn with what they wait for behind the row before them, on average: `ret` per part and
 * chunk. */
static void steady_lengths(const Order *order, const OrderTimes *times,
                           int64_t ret[PART_COUNT][MAX_CHUNKS])
{
    int64_t gaps[PART_COUNT][MAX_CHUNKS] = {{0}};
    for (int i = 0; i < order->n; i++) {
        const OrderRow *row = &order->row[i];
        if (row->micro / order->micros ==
            order->stages) /* a step that has some before and behind */
            gaps[row->part][row->chunk] += times->gap[row->begins][row->part][row->chunk];
    }
    for (int part = 0; part < PART_COUNT; part++)
        for (int c = 0; c < order->chunks; c++)
            ret[part][c] = times->time[part][c] + gaps[part][c] / order->micros;
}

/* A turn of the steady state: each stage's rows, and behind them its own gradients and update,
 * whose results nobody waits for where weights are stale. */
static int64_t steady_segment(const Family *family, const OrderTimes *times, const StageEnd *ends)
{
    const Order *order = family->order;
    RowTimes rows = {.hop = 0};
    int64_t lengths[PART_COUNT][MAX_CHUNKS];
    steady_lengths(order, times, lengths);
    for (int part = 0; part < (order->splits ? PART_COUNT : PART_I); part++)
        rows.time[part] = lengths[part];
    for (int c = 0; c + 1 < order->chunks; c++)
        rows.hop = num_larger(rows.hop, num_larger(times->hop_forward[c], times->hop_backward[c]));
    int64_t between[MAX_STAGES];
    for (int s = 0; s < order->stages; s++)
        between[s] = ends[s].norm - ends[s].row_end +
                     (order->turn->delay[s] > 0 ? ends[s].step_ns : ends[s].update_ns);
    Arena *scratch = arena_new("steady");
    int64_t period = schedule_steady(scratch, order->turn, &rows, between, NULL);
    arena_free(scratch);
    return period;
}

int64_t family_segment(Family *family, const int *first_link, int64_t *end)
{
    OrderTimes times;
    StageEnd ends[MAX_STAGES];
    family_lengths(family, first_link, &times);
    order_simulate(family->order, &times, end);
    int64_t whole = family_ends(family, first_link, end, ends);
    return family->order->turn ? steady_segment(family, &times, ends) : whole;
}
