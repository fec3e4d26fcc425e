/* stage.c - sums cards to stages, and lays their gradients in buckets. */
#include "planner/stage.h"

#include <string.h>

#include "ir/base/num.h"

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
    return &family->deck->card[class_of(family, link)];
}

Family *family_new(Arena *arena, const Problem *problem, const Deck *deck, const Order *order,
                   int dp, bool zero)
{
    Family *family = ARENA_NEW(arena, Family);
    *family = (Family){.arena = arena,
                       .problem = problem,
                       .deck = deck,
                       .order = order,
                       .dp = dp,
                       .zero = zero,
                       .bucket_bytes = PLAN_BUCKET_BYTES};
    Diag *diag = diag_new(arena);
    Degrees degrees = spread_degrees(&deck->variant->key.spread, dp, deck->net);
    if (!mesh_build(diag, problem->cluster, &degrees, &family->mesh))
        return NULL;
    family->state_atoms = zero ? token_atoms(&family->mesh) : 0;
    family->pricer = deck->pricer;
    family->pricer.mesh = &family->mesh;
    family->pricer.state_atoms = family->state_atoms;
    int links = links_of(family);
    family->hop_bytes = family_card(family, 0)->out_bytes;
    family->cost = ARENA_ARRAY(arena, StageCost *, links * (links + 1));
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

void family_hops(const Family *family, OrderTimes *ret)
{
    const Cluster *cluster = family->problem->cluster;
    int ranks = mesh_ranks(&family->mesh);
    for (int s = 0; s + 1 < family->order->stages; s++) {
        int level = stage_level(cluster, ranks, s, s + 1);
        ret->hop_forward[s] = ret->hop_backward[s] = price_p2p(cluster, level, family->hop_bytes);
    }
}

/* ---- paths of flat gradients ---- */

typedef struct FlatPath {
    struct FlatPath *next;
    AtomSet sharded, partial;
    AtomList share;
    Path reduce, gather;
} FlatPath;

int64_t flat_count(const Mesh *mesh, const Move *move, int64_t count)
{
    int n = list_extent(mesh, &move->atoms);
    if (move->kind == MOVE_REDUCE_SCATTER || move->kind == MOVE_SLICE)
        return count / n;
    return move->kind == MOVE_ALL_GATHER ? count * n : count;
}

static AtomList list_of(AtomSet atoms)
{
    AtomList list = {0};
    for (int a = MAX_ATOMS - 1; a >= 0; a--)
        if (atoms >> a & 1)
            list.at[list.n++] = (int8_t)a;
    return list;
}

/* The path of a group with these sets. `elements` divides by the share; its size picks the path
 * where two are close, and the first stage asked for speaks for all. */
static const FlatPath *flat_path(Family *family, AtomSet sharded, AtomSet partial, int64_t elements)
{
    for (const FlatPath *path = family->paths; path; path = path->next)
        if (path->sharded == sharded && path->partial == partial)
            return path;
    Arena *arena = family->arena;
    FlatPath *path = ARENA_NEW(arena, FlatPath);
    *path = (FlatPath){.next = family->paths, .sharded = sharded, .partial = partial};
    path->share = list_of((AtomSet)(family->state_atoms & ~sharded));
    AtomList differ = list_of(sharded);
    Net *net = net_new(arena, "flat");
    DimId dim[2] = {net_add_dim(net, "c", DIM_OTHER, list_extent(&family->mesh, &differ)),
                    net_add_dim(net, "e", DIM_OTHER, elements)};
    Graph *graph = net_add_class(net, "flat");
    ValueId id = graph_value(graph, VALUE_INPUT, "flat", 2, dim);
    const Value *value = &graph->values.at[id];
    Placement from = place_replicate(), to = from, home = from;
    from.shard[0] = to.shard[0] = home.shard[0] = differ;
    from.partial = partial;
    from.monoid = partial ? MONOID_SUM : MONOID_NONE;
    to.shard[1] = path->share;
    MovePrice moves = pricer_moves(&family->pricer);
    PathTable *table = path_table_new(arena, &family->mesh, net, &moves);
    if (!path_find(table, value, &from, &to, &path->reduce) ||
        !path_find(table, value, &to, &home, &path->gather))
        BUG("no path for the gradients of a group");
    family->paths = path;
    return path;
}

/* Length of a flat path on `count` elements of `width` bytes, as the walk issues its moves. */
static int64_t flat_ns(const Family *family, const Path *path, int64_t count, int width)
{
    int64_t ns = 0;
    for (int i = 0; i < path->n; i++) {
        const Move *move = &path->move[i];
        if (move->kind <= MOVE_PERMUTE)
            ns += price_move(&family->pricer, &family->mesh, move,
                             wire_bytes(&family->mesh, move, count, width));
        count = flat_count(&family->mesh, move, count);
    }
    return ns;
}

/* ---- groups of a stage ---- */

typedef struct StageGroup {
    AtomSet sharded, partial; /* on the family's mesh */
    bool tied;
    double rate;
    int share; /* ranks that cut the optimizer's share */
    int64_t *block,
        *ready; /* per link of the stage: elements, 0 where it has none; its readiness */
    int *runs;  /* per link: runs of one decay flag */
    int64_t elements;
} StageGroup;

typedef struct Groups {
    int n;
    StageGroup *at;
} Groups;

/* Gradients are sums over the batch, so Partial on the dp atoms, which the deck does not have. */
static AtomSet with_dp(const Family *family, AtomSet partial)
{
    return (AtomSet)(partial | role_atoms(&family->mesh, ROLE_DP));
}

static StageGroup *group_for(Arena *scratch, const Family *family, Groups *groups,
                             const CardGroup *card, bool tied, int links)
{
    AtomSet sharded = card->sharded, partial = with_dp(family, card->partial);
    for (int g = 0; g < groups->n; g++) {
        StageGroup *at = &groups->at[g];
        if (at->sharded == sharded && at->partial == partial && at->tied == tied &&
            at->rate == card->rate)
            return at;
    }
    StageGroup *group = &groups->at[groups->n++];
    AtomList share = list_of((AtomSet)(family->state_atoms & ~sharded));
    *group = (StageGroup){.sharded = sharded,
                          .partial = partial,
                          .tied = tied,
                          .rate = card->rate,
                          .share = list_extent(&family->mesh, &share),
                          .block = ARENA_ARRAY(scratch, int64_t, links),
                          .ready = ARENA_ARRAY(scratch, int64_t, links),
                          .runs = ARENA_ARRAY(scratch, int, links)};
    return group;
}

enum { MAX_GROUPS = 32 };

/* Backward runs the links downwards: `offset` is where that of link i begins in the row. */
static void fill_groups(Arena *scratch, const Family *family, int begin, int end,
                        const int64_t *offset, StageCost *cost, Groups *ret)
{
    ret->at = ARENA_ARRAY(scratch, StageGroup, MAX_GROUPS);
    cost->other_home = NONE;
    for (int i = begin; i < end; i++) {
        const Card *card = family_card(family, i);
        for (int g = 0; g < card->groups; g++) {
            const CardGroup *from = &card->group[g];
            bool inside = from->tied >= begin && from->tied < end;
            if (inside && from->second)
                continue; /* the first use owns the storage */
            bool tied = from->tied != NONE && !inside;
            if (tied)
                cost->other_home = from->tied;
            CHECK(ret->n < MAX_GROUPS);
            StageGroup *group = group_for(scratch, family, ret, from, tied, end - begin);
            int64_t ready = offset[i - begin] + from->ready_ns;
            group->block[i - begin] += from->elements;
            group->ready[i - begin] = num_larger(group->ready[i - begin], ready);
            group->runs[i - begin] += from->decay_runs;
        }
    }
    for (int g = 0; g < ret->n; g++) {
        StageGroup *group = &ret->at[g];
        int64_t grain = 16 * (int64_t)group->share;
        for (int i = 0; i < end - begin; i++) {
            group->block[i] = (group->block[i] + grain - 1) / grain * grain;
            group->elements += group->block[i];
        }
    }
}

/* ---- buckets ---- */

static void put_bucket(Family *family, const StageGroup *group, int close_link, int64_t elements,
                       int64_t ready, int runs, StageCost *cost)
{
    const Recipe *recipe = family->pricer.recipe;
    const Device *device = &family->problem->cluster->device;
    const FlatPath *path = flat_path(family, group->sharded, group->partial, group->elements);
    int gradient = dtype_bytes(recipe->gradient), weight = dtype_bytes(recipe->weight);
    int64_t share = elements / group->share;
    int64_t state = 2 * (2 + recipe->has_master) * dtype_bytes(recipe->master);
    int launches = (runs + group->share - 1) / group->share;
    StageBucket *bucket = &cost->bucket[cost->buckets++];
    *bucket = (StageBucket){
        .close_link = close_link,
        .reduce = &path->reduce,
        .gather = &path->gather,
        .elements = elements,
        .share_elements = share,
        .tied = group->tied,
        .ready_ns = ready,
        .reduce_ns = flat_ns(family, &path->reduce, elements, gradient),
        .sumsq_ns = price_stream(device, share * gradient) + device->launch_ns,
        .update_ns = price_stream(device, share * (2 * weight + gradient + state)) +
                     device->launch_ns * launches,
        .gather_ns = flat_ns(family, &path->gather, share, weight),
        .share_bytes = share * gradient,
    };
}

/* From the last link, whose gradients are complete first, down. */
static void cut_group(Family *family, const StageGroup *group, int begin, int end, StageCost *cost)
{
    int64_t limit = family->bucket_bytes / dtype_bytes(family->pricer.recipe->gradient);
    int64_t elements = 0, ready = 0;
    int runs = 0, lowest = end;
    for (int i = end - begin - 1; i >= 0; i--)
        if (group->block[i])
            lowest = i;
    for (int i = end - begin - 1; i >= lowest && lowest < end; i--) {
        if (!group->block[i])
            continue;
        elements += group->block[i];
        ready = num_larger(ready, group->ready[i]);
        runs += group->runs[i];
        if (elements >= limit || i == lowest) {
            put_bucket(family, group, begin + i, elements, ready, runs, cost);
            elements = ready = runs = 0;
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

/* When this rank's sum of squares is known, from the start of the last backward row. */
static int64_t norm_time(const StageCost *cost, int64_t launch, int64_t tied_end)
{
    int64_t clock = cost->backward_ns;
    for (int b = 0; b < cost->buckets; b++) {
        const StageBucket *bucket = &cost->bucket[b];
        int64_t ready =
            bucket->tied ? num_larger(tied_end, bucket->reduced_ns) : bucket->reduced_ns;
        clock = num_larger(clock, ready) + bucket->sumsq_ns;
    }
    return clock + launch; /* the loss joins the pair */
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

static void fill_ends(const Family *family, int begin, int end, StageCost *cost)
{
    const Cluster *cluster = family->problem->cluster;
    int64_t launch = cluster->device.launch_ns;
    cost->norm_ns = norm_time(cost, launch, 0) - cost->backward_ns;
    int64_t tied = 0;
    for (int b = 0; b < cost->buckets; b++)
        if (cost->bucket[b].tied) {
            int level = tied_level(family, begin, end, cost->other_home);
            tied = num_larger(tied, num_larger(cost->reduced_ns, cost->bucket[b].reduced_ns));
            tied += level == NONE ? 0 : price_pair(cluster, level, cost->bucket[b].share_bytes);
        }
    cost->norm_least_ns = norm_time(cost, launch, tied) - cost->backward_ns;
    int64_t compute = 0, gather = 0;
    for (int b = 0; b < cost->buckets; b++) {
        compute += cost->bucket[b].update_ns;
        if (cost->bucket[b].gather_ns)
            gather = num_larger(gather, compute) + cost->bucket[b].gather_ns;
    }
    cost->update_ns = num_larger(compute, gather);
}

/* ---- bytes ---- */

static void fill_static(const Family *family, const Groups *groups, StageCost *cost)
{
    const Recipe *recipe = family->pricer.recipe;
    for (int g = 0; g < groups->n; g++) {
        const StageGroup *group = &groups->at[g];
        int64_t share = group->elements / group->share;
        cost->weight_bytes += num_align64(group->elements * dtype_bytes(recipe->weight));
        cost->gradient_bytes += num_align64(group->elements * dtype_bytes(recipe->gradient));
        cost->state_bytes +=
            (2 + recipe->has_master) * num_align64(share * dtype_bytes(recipe->master));
    }
}

static void fill_rings(const Family *family, int begin, int end, StageCost *cost)
{
    const Card *head = family_card(family, begin);
    const Card *tail = family_card(family, end - 1);
    bool first = begin == 0, last = end == links_of(family), data[DATA_COUNT] = {false};
    int64_t pass = 0, scratch = 0;
    for (int i = begin; i < end; i++) {
        const Card *card = family_card(family, i);
        cost->stride[RING_SAVED] += card->saved_bytes;
        if (card->saves_in && i > begin)
            cost->stride[RING_SAVED] += card->in_bytes;
        for (int d = 0; d < DATA_COUNT; d++)
            if (card->data_bytes[d] && !data[d]) {
                data[d] = true;
                cost->stride[RING_DATA] += card->data_bytes[d];
            }
        if (i > begin && !card->saves_in)
            pass = num_larger(pass, card->in_bytes);
        if (i > begin)
            pass = num_larger(pass, card->grad_out_bytes);
        scratch = num_larger(scratch, card->scratch_bytes);
    }
    cost->stride[RING_IN] = first ? 0 : head->in_bytes;
    cost->stride[RING_OUT] = last ? 0 : tail->out_bytes;
    cost->stride[RING_GRAD_IN] = last ? 0 : tail->grad_in_bytes;
    cost->stride[RING_GRAD_OUT] = first ? 0 : head->grad_out_bytes;
    cost->transient_bytes = 4 * pass + scratch;
}

int64_t stage_bytes(const Family *family, const StageCost *cost, int stage)
{
    int64_t bytes = cost->fixed_bytes;
    for (int ring = 0; ring < RING_COUNT; ring++)
        bytes += cost->stride[ring] * family->order->slots[ring][stage];
    return bytes;
}

/* ---- a stage ---- */

static StageCost *make_cost(Family *family, int begin, int end)
{
    Arena *scratch = arena_new("stage");
    const Device *device = &family->problem->cluster->device;
    StageCost *cost = ARENA_NEW(family->arena, StageCost);
    int64_t *offset = ARENA_ARRAY(scratch, int64_t, end - begin);
    int groups = 0;
    for (int i = end - 1; i >= begin; i--) {
        const Card *card = family_card(family, i);
        cost->forward_ns += i == begin ? card->forward.ns : card->forward.next_ns;
        cost->backward_ns += i == end - 1 ? card->backward.ns : card->backward.next_ns;
        /* what a link begins early is not its gradients: they come as long before its end */
        offset[i - begin] = cost->backward_ns - card->backward.ns;
        groups += card->groups;
    }
    fill_rings(family, begin, end, cost);
    if (cost->stride[RING_DATA])
        cost->forward_ns += price_stream(device, cost->stride[RING_DATA]) + device->launch_ns;
    Groups made = {0};
    fill_groups(scratch, family, begin, end, offset, cost, &made);
    fill_static(family, &made, cost);
    cost->bucket = ARENA_ARRAY(family->arena, StageBucket, groups + 1);
    for (int g = 0; g < made.n; g++)
        cut_group(family, &made.at[g], begin, end, cost);
    time_buckets(cost, begin, end);
    fill_ends(family, begin, end, cost);
    cost->fixed_bytes = 64 * SCALAR_COUNT + cost->weight_bytes + cost->gradient_bytes +
                        cost->state_bytes + cost->transient_bytes;
    arena_free(scratch);
    return cost;
}

/* Runs of the same classes cost the same: where all inner links are of one class, those that begin
 * at link 1 speak for the others. */
static int canonical_begin(const Family *family, int begin, int end)
{
    bool inner = begin > 0 && end < links_of(family);
    return inner && family->uniform ? 1 : begin;
}

const StageCost *family_stage(Family *family, int first_link, int end_link)
{
    int begin = canonical_begin(family, first_link, end_link), end = end_link - first_link + begin;
    StageCost **slot = &family->cost[begin * (links_of(family) + 1) + end];
    if (!*slot)
        *slot = make_cost(family, begin, end);
    return *slot;
}

/* ---- the whole plan ---- */

static int stage_of(const int *first_link, int stages, int link)
{
    int stage = 0;
    while (stage + 1 < stages && link >= first_link[stage + 1])
        stage++;
    return stage;
}

/* When the tied sum of a stage ends: it begins when both homes have reduced their own. */
static int64_t tied_end(Family *family, const int *first_link, const int64_t *start, int stage,
                        const StageCost *cost)
{
    const Cluster *cluster = family->problem->cluster;
    int stages = family->order->stages;
    int other = stage_of(first_link, stages, cost->other_home);
    const StageCost *there = family_stage(family, first_link[other], first_link[other + 1]);
    int level = stage_level(cluster, mesh_ranks(&family->mesh), stage, other);
    int64_t clock = num_larger(start[stage] + cost->reduced_ns, start[other] + there->reduced_ns);
    for (int b = 0; b < cost->buckets; b++)
        if (cost->bucket[b].tied) {
            /* it waits for the accumulators too, where nothing reduces them first */
            clock = num_larger(clock, start[stage] + cost->bucket[b].reduced_ns);
            clock += price_pair(cluster, level, cost->bucket[b].share_bytes);
        }
    return clock;
}

int family_pair_bytes(const Family *family)
{
    return 2 * dtype_bytes(family->pricer.recipe->gradient);
}

int64_t family_ends(Family *family, const int *first_link, const int64_t *row_end, StageEnd *ret)
{
    const Cluster *cluster = family->problem->cluster;
    int64_t start[MAX_STAGES], norm = 0, update = 0, launch = cluster->device.launch_ns;
    int stages = family->order->stages;
    for (int s = 0; s < stages; s++)
        start[s] = row_end[family->order->last[s]] -
                   family_stage(family, first_link[s], first_link[s + 1])->backward_ns;
    for (int s = 0; s < stages; s++) {
        const StageCost *cost = family_stage(family, first_link[s], first_link[s + 1]);
        ret[s].row_end = start[s] + cost->backward_ns;
        ret[s].norm = ret[s].row_end + cost->norm_ns;
        if (cost->other_home != NONE) {
            int64_t end = tied_end(family, first_link, start, s, cost);
            ret[s].norm = start[s] + norm_time(cost, launch, end - start[s]);
        }
        norm = num_larger(norm, ret[s].norm);
        update = num_larger(update, cost->update_ns);
    }
    int64_t world = price_world(cluster, family->problem->ranks, family_pair_bytes(family));
    for (int s = 0; s < stages; s++) {
        ret[s].world_ns = world;
        ret[s].world_end = norm + world;
    }
    return norm + world + launch + update;
}

void family_lengths(Family *family, const int *first_link, OrderTimes *ret)
{
    family_hops(family, ret);
    for (int s = 0; s < family->order->stages; s++) {
        const StageCost *cost = family_stage(family, first_link[s], first_link[s + 1]);
        ret->forward[s] = cost->forward_ns;
        ret->backward[s] = cost->backward_ns;
    }
}

int64_t family_segment(Family *family, const int *first_link, int64_t *end)
{
    OrderTimes times;
    StageEnd ends[MAX_STAGES];
    family_lengths(family, first_link, &times);
    order_simulate(family->order, &times, end);
    return family_ends(family, first_link, end, ends);
}
