/* stage.c - sums cards to stages, and lays their gradients in buckets. */
#include "planner/stage.h"

#include <string.h>

#include "ir/base/num.h"
#include "ir/lower/home.h"
#include "ir/lower/matrix_row.h"
#include "planner/stage_tail.h"

static int links_of(const Family *family)
{
    return family->deck->net->chain.n;
}

static int class_of(const Family *family, int link)
{
    return family->deck->net->chain.at[link].class;
}

/* ---- families ---- */

const Card *family_card(const Family *family, int link)
{
    const Tail *tail = family->tail;
    bool other = tail && (link == 0                      ? tail->at.first
                          : link == links_of(family) - 1 ? tail->at.last
                                                         : link >= tail->end - tail->at.layers);
    return &(other ? tail->card : family->deck->card)[class_of(family, link)];
}

Family *family_new(Arena *arena, const Problem *problem, const Deck *deck, const Order *order,
                   int dp, int zero, int shard)
{
    Family *family = ARENA_NEW(arena, Family);
    *family = (Family){.arena = arena,
                       .problem = problem,
                       .deck = deck,
                       .order = order,
                       .dp = dp,
                       .bucket_bytes = PLAN_BUCKET_BYTES};
    Diag *diag = diag_new(arena);
    Degrees degrees = spread_degrees(&deck->variant->key.spread, dp, deck->key.ep, deck->net);
    if (!mesh_build(diag, problem->cluster, &degrees, &family->mesh))
        return NULL;
    family->homes = homes_preset(&family->mesh, zero, shard);
    family->pricer = deck->pricer;
    family->pricer.mesh = &family->mesh;
    family->pricer.state_atoms = family->homes.state;
    int links = links_of(family);
    family->hop_bytes = family_card(family, 0)->out_bytes;
    family->cost = ARENA_ARRAY(arena, StageCost *, 2 * links * (links + 1));
    family->uniform = true;
    for (int i = 1; i + 1 < links; i++)
        family->uniform &= class_of(family, i) == class_of(family, 1);
    return family;
}

int64_t family_budget(const Family *family)
{
    const Device *device = &family->problem->cluster->device;
    return device->memory_bytes - device->margin_bytes;
}

/* ---- groups of a stage ---- */

typedef struct StageGroup {
    Group cut;               /* its sets, on the family's mesh, and lists */
    Homes homes;             /* by which it was cut: those of its classes */
    Memory state_home;       /* where its state lives */
    bool far, far_gradients; /* its weights, and its gradients, live in another memory */
    bool tied;
    bool whole; /* shared with another chunk of the stage */
    double rate;
    const CardMatrix *matrix;                /* or NULL */
    int share, gradient_share, weight_share; /* ranks that cut the homes */
    int *open;                    /* per link of the stage: the highest that uses its elements */
    int64_t *block;               /* per link of the stage: elements, 0 where it has none */
    int64_t *ready, *ready_whole; /* its readiness, in W and in a whole backward */
    int *runs;                    /* per link: runs of one decay flag */
    int64_t elements;
} StageGroup;

typedef struct Groups {
    int n;
    StageGroup *at;
} Groups;

/* Gradients are sums over the batch, so Partial on the dp atoms that the deck does not have. */
static AtomSet with_dp(const Family *family, AtomSet partial)
{
    AtomSet own = (AtomSet)((1u << family->deck->mesh.n) - 1);
    return (AtomSet)(partial | (role_atoms(&family->mesh, ROLE_DP) & ~own));
}

static StageGroup *group_for(Arena *scratch, const Family *family, Groups *groups, const Card *of,
                             const CardGroup *card, bool tied, bool whole, int links)
{
    AtomSet sharded = card->sharded, partial = with_dp(family, card->partial);
    Homes homes = of->cut ? *of->cut : family->homes;
    if (whole) /* what chunks share is, but for its state */
        homes.gradient = homes.weight = 0;
    bool buffered = homes.gradient != 0;
    Memory state_home = home_memory(family->memory, &homes, KEPT_STATE);
    bool far = !whole && home_memory(family->memory, &homes, KEPT_WEIGHTS) != MEMORY_HBM;
    bool far_gradients = !whole && !tied && !card->matrix &&
                         home_memory(family->memory, &homes, KEPT_GRADIENTS) != MEMORY_HBM;
    homes = (Homes){.state = homes.state & ~sharded,
                    .gradient = homes.gradient & ~sharded,
                    .weight = homes.weight & ~sharded};
    for (int g = 0; g < groups->n; g++) {
        StageGroup *at = &groups->at[g];
        if (at->cut.sharded == sharded && at->cut.partial == partial && at->tied == tied &&
            at->whole == whole && at->rate == card->rate && homes_equal(&at->homes, &homes) &&
            at->cut.buffered == buffered && at->state_home == state_home && at->far == far &&
            at->far_gradients == far_gradients && card_same_matrix(at->matrix, card->matrix))
            return at;
    }
    StageGroup *group = &groups->at[groups->n++];
    Group cut = {.sharded = sharded, .partial = partial};
    group_cut(&cut, &homes);
    cut.buffered = buffered;
    *group = (StageGroup){.cut = cut,
                          .homes = homes,
                          .tied = tied,
                          .whole = whole,
                          .state_home = state_home,
                          .far = far,
                          .far_gradients = far_gradients,
                          .rate = card->rate,
                          .matrix = card->matrix,
                          .share = list_extent(&family->mesh, &cut.share),
                          .gradient_share = list_extent(&family->mesh, &cut.gradient_share),
                          .weight_share = list_extent(&family->mesh, &cut.weight_share),
                          .open = ARENA_ARRAY(scratch, int, links),
                          .block = ARENA_ARRAY(scratch, int64_t, links),
                          .ready = ARENA_ARRAY(scratch, int64_t, links),
                          .ready_whole = ARENA_ARRAY(scratch, int64_t, links),
                          .runs = ARENA_ARRAY(scratch, int, links)};
    return group;
}

enum { MAX_GROUPS = 32 };

/* A bucket of the group closes when it has so many elements, and ends at a multiple of *ret_grain.
 */
static int64_t bucket_limit(const Family *family, const StageGroup *group, int64_t *ret_grain)
{
    *ret_grain = group->matrix ? group->matrix->unit * group->share : 1;
    return num_larger(family->bucket_bytes / dtype_bytes(family->pricer.recipe->gradient),
                      *ret_grain);
}

/* As group_lay_matrices: dealt to no more ranks than there are matrices, padded behind buckets. */
static void lay_matrices(const Family *family, StageGroup *group, int links)
{
    int64_t all = 0, grain, held = 0;
    for (int i = 0; i < links; i++)
        all += group->block[i];
    group_narrow(&family->mesh, &group->cut, all / group->matrix->unit);
    group->share = list_extent(&family->mesh, &group->cut.share);
    group->gradient_share = list_extent(&family->mesh, &group->cut.gradient_share);
    group->weight_share = list_extent(&family->mesh, &group->cut.weight_share);
    int64_t limit = bucket_limit(family, group, &grain);
    for (int i = links - 1; i >= 0; i--) {
        held += group->block[i];
        if (held >= limit || i == 0) {
            group->elements += (held + grain - 1) / grain * grain;
            held = 0;
        }
    }
}

/* Backward runs the links downwards: where that of link i begins in a row of W (or of the whole),
 * and its W in a row of I and W together. */
typedef struct Offsets {
    int64_t *own, *whole;
    int64_t *adds[PART_COUNT]; /* per link: what it adds to a row of each part */
} Offsets;

/* together: the other home of tied parameters is on the same stage, in another chunk. */
static void fill_groups(Arena *scratch, const Family *family, int begin, int end, bool together,
                        const Offsets *offset, StageCost *cost, Groups *ret)
{
    ret->at = ARENA_ARRAY(scratch, StageGroup, MAX_GROUPS);
    cost->other_home = NONE;
    for (int i = begin; i < end; i++) {
        const Card *card = family_card(family, i);
        for (int g = 0; g < card->groups; g++) {
            const CardGroup *from = &card->group[g];
            bool own = from->tied >= begin && from->tied < end;
            bool inside = from->tied != NONE && (together || own);
            if (inside && from->second)
                continue; /* the first use owns the storage */
            bool tied = from->tied != NONE && !inside;
            if (tied)
                cost->other_home = from->tied;
            CHECK(ret->n < MAX_GROUPS);
            StageGroup *group =
                group_for(scratch, family, ret, card, from, tied, inside && !own, end - begin);
            int open = inside && own && from->tied > i ? from->tied : i;
            if (open > group->open[i - begin])
                group->open[i - begin] = open;
            int64_t *ready = &group->ready[i - begin], *whole = &group->ready_whole[i - begin];
            group->block[i - begin] += from->elements;
            *ready = num_larger(*ready, offset->own[i - begin] + from->ready_ns);
            *whole = num_larger(*whole, offset->whole[i - begin] + from->ready_ns);
            group->runs[i - begin] += from->decay_runs;
        }
    }
    for (int g = 0; g < ret->n; g++) {
        StageGroup *group = &ret->at[g];
        int64_t grain = 16 * (int64_t)group->share;
        if (group->matrix)
            lay_matrices(family, group, end - begin);
        for (int i = 0; !group->matrix && i < end - begin; i++) {
            group->block[i] = (group->block[i] + grain - 1) / grain * grain;
            group->elements += group->block[i];
        }
    }
}

/* ---- buckets ---- */

static StageBucket *put_bucket(Family *family, const StageGroup *group, int close_link,
                               int open_link, int64_t filled, int runs, StageCost *cost)
{
    const Recipe *recipe = family->pricer.recipe;
    const Device *device = &family->problem->cluster->device;
    int64_t grain;
    bucket_limit(family, group, &grain);
    int64_t elements = (filled + grain - 1) / grain * grain;
    const Group *flat = stage_flat_group(family, &group->cut, group->whole, group->elements);
    int gradient = dtype_bytes(recipe->gradient), weight = dtype_bytes(recipe->weight);
    int64_t share = elements / group->share;
    int64_t state = 2 * family_state_fields(family, false) * dtype_bytes(recipe->master);
    int launches = (runs + group->share - 1) / group->share;
    StageBucket *bucket = &cost->bucket[cost->buckets++];
    *bucket = (StageBucket){
        .close_link = close_link,
        .open_link = open_link,
        .group = flat,
        .elements = elements,
        .share_elements = share,
        .tied = group->tied,
        .scatter_ns = stage_flat_ns(family, &flat->scatter, elements, gradient),
        .reduce_ns =
            stage_flat_ns(family, &flat->reduce, elements / group->gradient_share, gradient),
        .sumsq_ns = price_stream(device, share * gradient) + device->launch_ns,
        .update_ns = price_stream(device, share * (2 * weight + gradient + state)) +
                     device->launch_ns * launches,
        .gather_ns = stage_flat_ns(family, &flat->gather, share, weight),
        .fetch_ns = stage_flat_ns(family, &flat->fetch, elements / group->weight_share, weight),
        .share_bytes = share * gradient,
        .state_home = group->state_home,
    };
    if (group->far)
        stage_put_carry(family, bucket, cost);
    if (group->matrix) { /* the first rank has no padding before the others do */
        bucket->matrix = group->matrix;
        bucket->matrices = (filled < share ? filled : share) / group->matrix->unit;
        bucket->update_ns = bucket->matrices * group->matrix->ns;
    }
    if (flat->buffered)
        bucket->fold_ns = price_stream(device, 3 * elements / group->gradient_share * gradient) +
                          device->launch_ns;
    bucket->reduce_ns += bucket->scatter_ns;
    stage_put_hop(family, group->rate != 0, share, bucket, cost);
    if (group->far_gradients)
        stage_put_sums(family, bucket, cost);
    return bucket;
}

/* From the last link, whose gradients are complete first, down. */
static void cut_group(Family *family, const StageGroup *group, int begin, int end, StageCost *cost)
{
    int64_t grain, limit = bucket_limit(family, group, &grain);
    int64_t elements = 0, ready = 0, whole = 0;
    int runs = 0, lowest = end, open = begin;
    for (int i = end - begin - 1; i >= 0; i--)
        if (group->block[i])
            lowest = i;
    for (int i = end - begin - 1; i >= lowest && lowest < end; i--) {
        if (!group->block[i])
            continue;
        elements += group->block[i];
        ready = num_larger(ready, group->ready[i]);
        whole = num_larger(whole, group->ready_whole[i]);
        runs += group->runs[i];
        open = group->open[i] > open ? group->open[i] : open;
        if (elements >= limit || i == lowest) {
            StageBucket *bucket = put_bucket(family, group, begin + i, open, elements, runs, cost);
            bucket->ready_ns = ready;
            bucket->ready_whole_ns = whole;
            elements = ready = whole = runs = 0;
            open = begin;
        }
    }
}

/* The gradient stream takes buckets in the order in which their links finish. */
static void time_buckets(StageCost *cost, int begin, int end)
{
    int64_t clock = 0;
    for (int i = end - 1; i >= begin; i--)
        for (int b = 0; b < cost->buckets; b++) {
            StageBucket *bucket = &cost->bucket[b];
            if (bucket->close_link != i)
                continue;
            bucket->reduced_ns = bucket->ready_ns;
            if (bucket->reduce_ns) {
                clock = num_larger(clock, bucket->ready_ns) + bucket->reduce_ns;
                bucket->reduced_ns = clock;
            }
        }
    cost->reduced_ns = clock;
}

/* The level between the homes of a tied parameter at the ends of the chain, which are in the first
 * and the last stage; NONE for others, whose stages hang on the cuts. */
static int tied_level(const Family *family, int begin, int end, int other)
{
    int stages = family->order->stages, links = links_of(family);
    bool ends = (begin == 0 && other == links - 1) || (end == links && other == 0);
    return ends ? stage_level(family->problem->cluster, mesh_ranks(&family->mesh), 0, stages - 1)
                : NONE;
}

static void fill_ends(Arena *scratch, const Family *family, int begin, int end, StageCost *cost)
{
    const Cluster *cluster = family->problem->cluster;
    const StageBucket **bucket = ARENA_ARRAY(scratch, const StageBucket *, cost->buckets + 1);
    int64_t *ready = ARENA_ARRAY(scratch, int64_t, cost->buckets + 1), tied = 0;
    for (int b = 0; b < cost->buckets; b++)
        if (cost->bucket[b].tied) {
            int level = tied_level(family, begin, end, cost->other_home);
            tied = num_larger(tied, num_larger(cost->reduced_ns, cost->bucket[b].reduced_ns));
            tied += level == NONE ? 0 : price_pair(cluster, level, cost->bucket[b].share_bytes);
        }
    int64_t compute = 0, gather = 0;
    for (int b = 0; b < cost->buckets; b++) {
        bucket[b] = &cost->bucket[b];
        ready[b] = num_larger(bucket[b]->tied ? tied : 0, bucket[b]->reduced_ns);
        compute += bucket[b]->update_ns;
        if (bucket[b]->gather_ns)
            gather = num_larger(gather, compute) + bucket[b]->gather_ns;
    }
    int64_t norm = stage_norm_end(family, bucket, ready, cost->buckets, cost->ns[PART_B]);
    /* the loss joins the pair */
    cost->norm_least_ns = norm + cluster->device.launch_ns - cost->ns[PART_B];
    cost->update_ns = num_larger(compute, gather);
    if (family_updates_far(family)) {
        const int64_t late = INT64_MAX / 4; /* whatever can come before has come */
        int64_t stepped;
        const UpdateStart start = {.begin = late};
        cost->update_ns = stage_update_end(family, bucket, cost->buckets, &start, &stepped) - late;
    }
}

/* ---- a stage ---- */

static void fill_static(const Family *family, const Groups *groups, StageCost *cost)
{
    const Recipe *recipe = family->pricer.recipe;
    for (int g = 0; g < groups->n; g++) {
        const StageGroup *group = &groups->at[g];
        int64_t share = group->elements / group->share;
        Group sized = {.elements = group->elements};
        if (!group->far)
            cost->weight_bytes +=
                home_bytes(&sized, group->weight_share, dtype_bytes(recipe->weight));
        if (!group->far_gradients)
            cost->gradient_bytes +=
                home_bytes(&sized, group->gradient_share, dtype_bytes(recipe->gradient));
        if (group->state_home == MEMORY_HBM)
            cost->home_bytes[MEMORY_HBM] += family_state_fields(family, group->matrix) *
                                            num_align64(share * dtype_bytes(recipe->master));
    }
}

/* Lengths of the rows, and where in them each link's gradients begin. What a link begins early is
 * not its gradients: they come as long before its end. */
static Offsets fill_lengths(Arena *scratch, const Family *family, int begin, int end,
                            StageCost *cost)
{
    Offsets offset = {.own = ARENA_ARRAY(scratch, int64_t, end - begin),
                      .whole = ARENA_ARRAY(scratch, int64_t, end - begin)};
    for (int part = 0; part < PART_COUNT; part++)
        offset.adds[part] = ARENA_ARRAY(scratch, int64_t, end - begin);
    bool split = family->deck->key.split;
    for (int i = end - 1; i >= begin; i--) {
        const Card *card = family_card(family, i);
        bool top = i == end - 1;
        int64_t *const *adds_ns = offset.adds;
        adds_ns[PART_F][i - begin] = i == begin ? card->forward.ns : card->forward.next_ns;
        adds_ns[PART_I][i - begin] = top ? card->backward.ns : card->backward.next_ns;
        adds_ns[PART_W][i - begin] = top ? card->weight.ns : card->weight.next_ns;
        adds_ns[PART_B][i - begin] = adds_ns[PART_I][i - begin] + adds_ns[PART_W][i - begin];
        for (int part = 0; part < PART_COUNT; part++)
            cost->ns[part] += adds_ns[part][i - begin];
        const CardSegment *adds = split ? &card->weight : &card->backward;
        offset.own[i - begin] = cost->ns[split ? PART_W : PART_B] - adds->ns;
        offset.whole[i - begin] = cost->ns[PART_B] - adds->ns;
    }
    return offset;
}

/* The chunk that speaks for one that ends there: the last for itself, the first for the others. */
static int speaks_for(const Family *family, int end)
{
    return end == links_of(family) ? family->order->chunks - 1 : 0;
}

/* Does a whole backward of a chunk that ends there follow at once upon its forward? As most of its
 * rows do. */
static bool chunk_turns(const Family *family, int end)
{
    const Order *order = family->order;
    int chunk = speaks_for(family, end);
    return 2 * order->turns[chunk] > order->runs;
}

static StageCost *make_cost(Family *family, int begin, int end, bool together)
{
    Arena *scratch = arena_new("stage");
    const Device *device = &family->problem->cluster->device;
    StageCost *cost = ARENA_NEW(family->arena, StageCost);
    int groups = 0;
    for (int i = begin; i < end; i++)
        groups += family_card(family, i)->groups;
    Offsets offset = fill_lengths(scratch, family, begin, end, cost);
    stage_fill_rings(family, begin, end, cost);
    if (cost->stride[RING_DATA])
        cost->ns[PART_F] += price_stream(device, cost->stride[RING_DATA]) + device->launch_ns;
    Groups made = {0};
    fill_groups(scratch, family, begin, end, together, &offset, cost, &made);
    fill_static(family, &made, cost);
    cost->bucket = ARENA_ARRAY(family->arena, StageBucket, groups + 1);
    for (int g = 0; g < made.n; g++)
        cut_group(family, &made.at[g], begin, end, cost);
    stage_add_homes(family, begin, end, chunk_turns(family, end),
                    family->order->alike[speaks_for(family, end)], offset.adds, cost);
    cost->state_bytes = cost->home_bytes[MEMORY_HBM] +
                        state_slots_bytes(family, cost->far_buckets, cost->field_bytes);
    time_buckets(cost, begin, end);
    fill_ends(scratch, family, begin, end, cost);
    cost->fixed_bytes = 64 * SCALAR_COUNT + PAIR_BYTES + cost->weight_bytes + cost->gradient_bytes +
                        cost->state_bytes + cost->transient_bytes;
    arena_free(scratch);
    return cost;
}

int family_begin(const Family *family, int begin, int end)
{
    bool inner = begin > 0 && end < links_of(family);
    return inner && family->uniform ? 1 : begin;
}

static bool same_tails(const TailLinks *a, const TailLinks *b)
{
    return a->layers == b->layers && a->first == b->first && a->last == b->last;
}

const StageCost *stage_cost_with(Family *family, int begin, int end, bool together, TailLinks tail)
{
    int links = links_of(family);
    StageCost **slot = &family->cost[2 * (begin * (links + 1) + end) + together];
    while (*slot && !same_tails(&(*slot)->tail, &tail))
        slot = &(*slot)->next;
    if (*slot)
        return *slot;
    if (family->tail) {
        family->tail->at = tail;
        family->tail->end = end < links ? end : links - 1;
    }
    *slot = make_cost(family, begin, end, together);
    (*slot)->tail = tail;
    return *slot;
}

const StageCost *family_stage(Family *family, int stage, int first_link, int end_link)
{
    int begin = family_begin(family, first_link, end_link), end = end_link - first_link + begin;
    const StageRun run = {.chunk = stage, .begin = begin, .end = end};
    TailLinks tail = family->tail ? *stage_tails(family, &run, 1) : (TailLinks){0};
    return stage_cost_with(family, begin, end, false, tail);
}

void family_least(const Family *family, int link, int64_t *ret_forward_ns, int64_t *ret_backward_ns)
{
    *ret_forward_ns = *ret_backward_ns = INT64_MAX;
    for (int k = 0; k < (family->tail ? 2 : 1); k++) {
        const Card *card = (k ? family->tail->card : family->deck->card) + class_of(family, link);
        const CardSegment *list[] = {&card->forward, &card->backward};
        for (int l = 0; l < 2; l++) {
            int64_t *least = l ? ret_backward_ns : ret_forward_ns;
            *least = list[l]->ns < *least ? list[l]->ns : *least;
            *least = list[l]->next_ns < *least ? list[l]->next_ns : *least;
        }
    }
}

/* ---- the whole plan ---- */

static StageRun run_of(const Family *family, const int *first_link, int chunk)
{
    const Order *order = family->order;
    int begin = first_link[chunk], end = first_link[chunk + 1];
    bool together = false;
    for (int i = begin; i < end && order->chunks > order->stages; i++) {
        const Card *card = family_card(family, i);
        for (int g = 0; g < card->groups; g++) {
            if (card->group[g].tied == NONE)
                continue;
            int other = chunk_with(first_link, order->chunks, card->group[g].tied);
            together |= other != chunk && order->holder[other] == order->holder[chunk];
        }
    }
    int low = family_begin(family, begin, end);
    return (StageRun){chunk, low, end - begin + low, together};
}

TailLinks family_tail(Family *family, const int *first_link, int chunk)
{
    const Order *order = family->order;
    StageRun run[MAX_CHUNKS];
    int runs = 0, own = 0;
    if (!family->tail)
        return (TailLinks){0};
    for (int c = 0; c < order->chunks; c++) {
        if (order->holder[c] != order->holder[chunk])
            continue;
        own = c == chunk ? runs : own;
        run[runs++] = run_of(family, first_link, c);
    }
    return stage_tails(family, run, runs)[own];
}

const StageCost *family_chunk(Family *family, const int *first_link, int chunk)
{
    StageRun run = run_of(family, first_link, chunk);
    TailLinks tail = family_tail(family, first_link, chunk);
    return stage_cost_with(family, run.begin, run.end, run.together, tail);
}
