/* account.c - cards and rows added up to the account of a step. */
#include "planner/account.h"

#include "ir/base/num.h"
#include "ir/lower/home.h"
#include "ir/lower/spill.h"
#include "planner/stage_spill.h"

typedef struct Account {
    Arena *arena;
    Family *family;
    const int *first_link;
    const Body **body; /* per class */
    StepTimes *times;
    OrderTimes length;
} Account;

/* What a row waits for of weights that come and gradients that go, and of saved values on their
 * way: of two in one all is said of the first. */
static int64_t row_stall(const Account *account, const OrderRow *row)
{
    if (row->pair)
        return row->pair == 1 ? account->length.pair_stall[row->chunk] : 0;
    return family_chunk(account->family, account->first_link, row->chunk)->stall_ns[row->part];
}

static int64_t row_copied(const Account *account, const OrderRow *row)
{
    if (row->pair)
        return row->pair == 1 ? account->length.pair_copied[row->chunk] : 0;
    return family_chunk(account->family, account->first_link, row->chunk)->copied_ns[row->part];
}

/* How long a row takes without these waits, by itself. */
static int64_t row_work(const Account *account, const OrderRow *row)
{
    const StageCost *cost = family_chunk(account->family, account->first_link, row->chunk);
    return cost->ns[row->part] - cost->stall_ns[row->part] - cost->copied_ns[row->part];
}

static void add(Account *account, const Traffic *want, int stage, int64_t count, int64_t bytes,
                int64_t ns, int64_t exposed_ns)
{
    int index = traffic_row(account->arena, account->times, want);
    Traffic *row = &account->times->traffic.at[index];
    StageTimes *own = &account->times->stage[stage];
    row->count[stage] += count;
    row->bytes[stage] += bytes * count;
    row->ns[stage] += ns * count;
    row->exposed_ns[stage] += exposed_ns;
    own->level_bytes[want->level] += bytes * count;
    own->level_ns[want->level] += ns * count;
    own->busy_ns[want->stream] += ns * count;
}

/* ---- inside blocks ---- */

static void add_segment(Account *account, int stage, int link, int which, int64_t length)
{
    const Family *family = account->family;
    const Pricer *pricer = &family->deck->pricer;
    const Card *card = family_card(family, link);
    const Body *body = account->body[family->deck->net->chain.at[link].class];
    const InstList *list = body_list(body, which);
    const CardSegment *segment = which == 0   ? &card->forward
                                 : which == 1 ? &card->backward
                                              : &card->weight;
    StageTimes *own = &account->times->stage[stage];
    int64_t micros = family->order->micros, block = 0;
    int64_t exposed = length > segment->compute_ns ? length - segment->compute_ns : 0;
    own->spent_ns[SPENT_COMPUTE] += micros * (length - exposed);
    own->spent_ns[SPENT_BLOCK] += micros * exposed;
    own->busy_ns[STREAM_COMPUTE] += micros * segment->compute_ns;
    own->flops += micros * segment->flops;
    for (int level = 0; level < MAX_LEVELS; level++)
        block += segment->block_ns[level];
    for (int i = 0; i < list->n; i++) {
        const Inst *inst = &list->at[i];
        account->times->steps += micros;
        if (!inst_is_collective(inst))
            continue;
        int64_t ns = price_inst(pricer, body, inst);
        Traffic want = {.step = STEP_MOVE,
                        .move = inst->move.kind,
                        .atoms = list_set(&inst->move.atoms),
                        .level = atoms_level(body->mesh, &inst->move.atoms),
                        .stream = STREAM_BLOCK,
                        .what = inst_traffic(body, inst),
                        .backward = which > 0};
        add(account, &want, stage, micros, inst_wire_bytes(body, inst), ns,
            micros * (block ? num_scale_up(exposed, ns, block) : 0));
    }
}

static void add_links(Account *account, int chunk)
{
    const Family *family = account->family;
    int begin = account->first_link[chunk], end = account->first_link[chunk + 1];
    int stage = family->order->holder[chunk];
    StageTimes *own = &account->times->stage[stage];
    const StageCost *cost = family_chunk(account->family, account->first_link, chunk);
    int64_t load = cost->ns[PART_F] - cost->stall_ns[PART_F] - cost->copied_ns[PART_F];
    for (int i = begin; i < end; i++) {
        const Card *card = family_card(family, i);
        bool top = i == end - 1;
        load -= i == begin ? card->forward.ns : card->forward.next_ns;
        add_segment(account, stage, i, 0, i == begin ? card->forward.ns : card->forward.next_ns);
        add_segment(account, stage, i, 1, top ? card->backward.ns : card->backward.next_ns);
        add_segment(account, stage, i, 2, top ? card->weight.ns : card->weight.next_ns);
    }
    own->spent_ns[SPENT_COMPUTE] += family->order->micros * load;
    own->busy_ns[STREAM_COMPUTE] += family->order->micros * load;
}

/* ---- between stages ---- */

/* What rows that are two in one hide of each other is not waited for: of all collectives in blocks
 * alike. */
static void share_overlap(Account *account, int stage)
{
    int64_t whole = 0, spent = account->times->stage[stage].spent_ns[SPENT_BLOCK];
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < account->times->traffic.n; i++) {
            Traffic *row = &account->times->traffic.at[i];
            if (row->stream != STREAM_BLOCK)
                continue;
            if (pass == 0)
                whole += row->exposed_ns[stage];
            else if (spent < whole)
                row->exposed_ns[stage] = num_scale_up(row->exposed_ns[stage], spent, whole);
        }
}

static void add_rows(Account *account, const int64_t *end)
{
    const OrderTimes *length = &account->length;
    const Order *order = account->family->order;
    const Cluster *cluster = account->family->problem->cluster;
    int ranks = mesh_ranks(&account->family->mesh);
    int64_t clock[MAX_STAGES] = {0};
    for (int i = 0; i < order->n; i++) {
        const OrderRow *row = &order->row[i];
        int s = row->stage, c = row->chunk;
        bool backward = row->part != PART_F;
        int from = row->before == NONE ? s : order->row[row->before].stage;
        int64_t start = end[i] - order_length(length, row);
        int64_t hop = from == s  ? 0
                      : backward ? length->hop_backward[c]
                                 : length->hop_forward[c - 1];
        int64_t ready = order_ready(length, row, end);
        if (row->pair == 1)
            account->times->stage[s].spent_ns[SPENT_BLOCK] -=
                row_work(account, &row[0]) + row_work(account, &row[1]) -
                (length->pair[c] - length->pair_stall[c] - length->pair_copied[c]);
        int64_t fetched = num_larger(start - num_larger(clock[s], ready), 0);
        int64_t gap = start - clock[s] - fetched;
        bool copies = account->family->memory[KEPT_SAVED] != MEMORY_HBM;
        account->times->stage[s].spent_ns[copies ? SPENT_COPY : SPENT_GRADIENT] += fetched;
        clock[s] = end[i];
        if (from == s) {
            account->times->stage[s].spent_ns[SPENT_BUBBLE] += gap;
            continue;
        }
        int64_t late = gap < hop ? gap : hop;
        StageTimes *own = &account->times->stage[s];
        own->spent_ns[SPENT_MESSAGE] += late;
        own->spent_ns[SPENT_BUBBLE] += gap - late;
        Traffic want = {.step = STEP_SEND,
                        .level = stage_level(cluster, ranks, s, from),
                        .stream = backward ? STREAM_SEND_GRAD : STREAM_SEND_ACT,
                        .what = backward ? "activation gradients" : "activations"};
        add(account, &want, from, 1, account->family->hop_bytes, hop, 0);
        int index = traffic_row(account->arena, account->times, &want);
        account->times->traffic.at[index].exposed_ns[s] += late;
    }
    for (int s = 0; s < order->stages; s++)
        if (order->pairs[s])
            share_overlap(account, s);
}

/* ---- the end of the step ---- */

/* So many times a step; of `whole` ns of its like, `exposed` are waited for. */
static void add_path(Account *account, int stage, Stream stream, const Path *path, int64_t times,
                     int64_t count, int width, int64_t exposed, int64_t whole)
{
    const Family *family = account->family;
    for (int i = 0; i < path->n; i++) {
        const Move *move = &path->move[i];
        if (move->kind <= MOVE_PERMUTE) {
            int64_t bytes = wire_bytes(&family->mesh, move, count, width);
            int64_t ns = price_move(&family->pricer, &family->mesh, move, bytes);
            Traffic want = {.step = STEP_MOVE,
                            .move = move->kind,
                            .atoms = list_set(&move->atoms),
                            .level = atoms_level(&family->mesh, &move->atoms),
                            .stream = stream,
                            .what = move->kind == MOVE_ALL_GATHER ? "weights" : "weight gradients"};
            add(account, &want, stage, times, bytes, ns,
                whole ? num_scale_up(exposed, times * ns, whole) : 0);
        }
        count = flat_count(&family->mesh, move, count);
    }
}

/* The steps of a bucket's whole matrices. */
static void add_matrices(Account *account, int stage, const StageBucket *bucket)
{
    const CardMatrix *matrix = bucket->matrix;
    for (int i = 0; matrix && i < matrix->body->backward.n; i++) {
        const Inst *inst = &matrix->body->backward.at[i];
        account->times->steps += bucket->matrices;
        if (!inst_is_collective(inst))
            continue;
        int64_t ns = price_inst(&account->family->deck->pricer, matrix->body, inst);
        Traffic want = {.step = STEP_MOVE,
                        .move = inst->move.kind,
                        .atoms = list_set(&inst->move.atoms),
                        .level = atoms_level(matrix->body->mesh, &inst->move.atoms),
                        .stream = STREAM_BLOCK,
                        .what = traffic_matrices};
        add(account, &want, stage, bucket->matrices, inst_wire_bytes(matrix->body, inst), ns,
            bucket->matrices * ns);
    }
    if (matrix)
        account->times->stage[stage].flops += bucket->matrices * matrix->flops;
}

/* Sums over the buckets of all chunks of a stage. */
typedef struct BucketSums {
    int64_t reduce, gather, squares, update, block;
} BucketSums;

static BucketSums bucket_sums(Account *account, int stage)
{
    BucketSums sums = {0};
    for (int c = 0; c < account->family->order->chunks; c++) {
        if (account->family->order->holder[c] != stage)
            continue;
        const StageCost *cost = family_chunk(account->family, account->first_link, c);
        for (int b = 0; b < cost->buckets; b++) {
            sums.reduce += cost->bucket[b].reduce_ns;
            sums.gather += cost->bucket[b].gather_ns;
            sums.squares += cost->bucket[b].sumsq_ns;
            sums.update += cost->bucket[b].update_ns;
            if (cost->bucket[b].matrix)
                sums.block += cost->bucket[b].matrices * cost->bucket[b].matrix->block_ns;
        }
    }
    return sums;
}

/* What a chunk's rows do with homes that are cut. */
typedef struct Homed {
    int64_t rows, scatters; /* of all, and of those that add to gradients, a step */
    int64_t there[2];       /* forward and other rows that begin where the one before ended */
    int low, high;          /* links at which they begin, as buckets count them */
    int64_t stall, fold;    /* ns of all rows */
    int64_t ns;             /* of all fetches and scatters, but for the last scatters */
} Homed;

/* How often the weights of a bucket come: in every row, but where they are there from the row
 * before.
 */
static int64_t fetches_of(const Homed *homed, const StageBucket *bucket)
{
    return homed->rows - (bucket->close_link == homed->low ? homed->there[0] : 0) -
           (bucket->open_link == homed->high ? homed->there[1] : 0);
}

static Homed homed_of(const Account *account, int chunk)
{
    const Order *order = account->family->order;
    const StageCost *cost = family_chunk(account->family, account->first_link, chunk);
    const int *first_link = account->first_link;
    int begin = family_begin(account->family, first_link[chunk], first_link[chunk + 1]);
    Homed homed = {.low = begin, .high = begin + first_link[chunk + 1] - first_link[chunk] - 1};
    for (int i = 0; i < order->n; i++) {
        const OrderRow *row = &order->row[i];
        bool adds = row->part == PART_B || row->part == PART_W;
        if (row->chunk != chunk)
            continue;
        homed.rows++;
        homed.there[row->part != PART_F] +=
            row->begins == BEGINS_THERE || row->begins == BEGINS_OWN;
        homed.scatters += adds;
        homed.stall += row_stall(account, row);
        homed.fold += adds ? cost->fold_ns : 0;
    }
    for (int b = 0; b < cost->buckets; b++)
        homed.ns += fetches_of(&homed, &cost->bucket[b]) * cost->bucket[b].fetch_ns +
                    (homed.scatters - 1) * cost->bucket[b].scatter_ns;
    return homed;
}

/* So many bytes between a memory of a rank and the one behind it. */
static void add_hop(Account *account, int stage, Memory near, bool in, const char *what,
                    int64_t bytes, int64_t exposed)
{
    StageTimes *own = &account->times->stage[stage];
    Memory far = (Memory)(near + 1);
    int64_t ns =
        price_copy(account->family->problem->cluster, in ? far : near, in ? near : far, bytes);
    Traffic want = {.step = STEP_COPY, .memory = far, .stream = hop_stream(near, in), .what = what};
    int index = traffic_row(account->arena, account->times, &want);
    Traffic *row = &account->times->traffic.at[index];
    row->count[stage]++;
    row->bytes[stage] += bytes;
    row->ns[stage] += ns;
    row->exposed_ns[stage] += exposed;
    own->store_ns[far] += ns;
    own->store_bytes[far] += bytes;
    own->busy_ns[want.stream] += ns;
    account->times->steps++;
}

/* Saved values that live elsewhere, of a row; what it waits for is said of its last hop. */
static void add_spills(Account *account, const OrderRow *row)
{
    const Family *family = account->family;
    int begin = account->first_link[row->chunk], end = account->first_link[row->chunk + 1];
    int leaving = row->turns ? -SPILL_STAYS : 0; /* the last stay where they are */
    for (int i = begin; i < end; i++)
        leaving += family_leaves(family, i);
    int64_t exposed = row_copied(account, row);
    account->times->stage[row->stage].spent_ns[SPENT_COPY] += exposed;
    for (int i = begin; i < end && leaving > 0; i++) {
        leaving -= family_leaves(family, i);
        int64_t bytes = spill_hop_bytes(family, i, row->part, i == begin, i == end - 1);
        for (int near = 0; bytes && near < (int)family->memory[KEPT_SAVED]; near++) {
            add_hop(account, row->stage, (Memory)near, row->part != PART_F, kept_text[KEPT_SAVED],
                    bytes, exposed);
            exposed = 0;
        }
    }
}

/* State to its update and back, through every memory between. */
static void add_hops(Account *account, int stage, const StageBucket *bucket)
{
    for (int near = 0; near < (int)bucket->state_home && bucket->hop_bytes; near++)
        for (int in = 0; in < 2; in++) {
            add_hop(account, stage, (Memory)near, in, "optimizer state", bucket->hop_bytes, 0);
        }
}

/* Far gradients: home behind every row that adds to them, back before all but the first, the norm
 * and the update. */
static void add_sums(Account *account, int stage, const StageBucket *bucket, int64_t rows)
{
    int home = (int)account->family->memory[KEPT_GRADIENTS];
    for (int near = 0; near < home && bucket->sums.bytes; near++)
        for (int64_t i = 0; i < 2 * rows + 1; i++) {
            bool in = i > rows - 1;
            int64_t bytes = i < rows - 1 || (in && i < 2 * rows - 1) ? bucket->sums.bytes
                                                                     : bucket->last_sums.bytes;
            add_hop(account, stage, (Memory)near, in, kept_text[KEPT_GRADIENTS], bytes, 0);
        }
}

/* Far weights: to every use and the update, and back behind it. */
static void add_carries(Account *account, int stage, const StageBucket *bucket, int64_t fetches)
{
    Memory home = account->family->memory[KEPT_WEIGHTS];
    for (int near = 0; near < (int)home && bucket->far; near++)
        for (int64_t i = 0; i < fetches + 2; i++)
            add_hop(account, stage, (Memory)near, i <= fetches, kept_text[KEPT_WEIGHTS],
                    carried_bytes(near == MEMORY_HBM ? MEMORY_HBM : home, bucket->carry.bytes, 1),
                    0);
}

static void add_buckets(Account *account, int chunk, const BucketSums *sums, int64_t waited,
                        int64_t gathered)
{
    const Recipe *recipe = account->family->pricer.recipe;
    int stage = account->family->order->holder[chunk];
    const StageCost *cost = family_chunk(account->family, account->first_link, chunk);
    int64_t reduce = sums->reduce, gather = sums->gather;
    int gradient = dtype_bytes(recipe->gradient), weight = dtype_bytes(recipe->weight);
    const Homed homed = homed_of(account, chunk);
    for (int b = 0; b < cost->buckets; b++) {
        const StageBucket *bucket = &cost->bucket[b];
        const Group *group = bucket->group;
        const Mesh *mesh = &account->family->mesh;
        int64_t block = bucket->elements / list_extent(mesh, &group->gradient_share),
                home = bucket->elements / list_extent(mesh, &group->weight_share);
        add_path(account, stage, STREAM_GRADIENT, &group->scatter, 1, bucket->elements, gradient,
                 waited, reduce);
        add_path(account, stage, STREAM_GRADIENT, &group->scatter, homed.scatters - 1,
                 bucket->elements, gradient, homed.stall, homed.ns);
        add_path(account, stage, STREAM_GRADIENT, &group->reduce, 1, block, gradient, waited,
                 reduce);
        add_hops(account, stage, bucket);
        int64_t fetches = fetches_of(&homed, bucket);
        add_carries(account, stage, bucket, fetches);
        add_sums(account, stage, bucket, homed.scatters);
        add_path(account, stage, STREAM_GRADIENT, &group->gather, 1, bucket->share_elements, weight,
                 gathered, gather);
        add_path(account, stage, STREAM_WEIGHT, &group->fetch, fetches, home, weight, homed.stall,
                 homed.ns);
        add_matrices(account, stage, bucket);
    }
}

/* From the last row's end: the norm, the world reduction, the update. */
static void add_end(Account *account, int stage, const StageEnd *at, int64_t step_ns)
{
    const Family *family = account->family;
    const Cluster *cluster = family->problem->cluster;
    StageTimes *own = &account->times->stage[stage];
    BucketSums sums = bucket_sums(account, stage);
    int64_t launch = cluster->device.launch_ns, squares = launch + sums.squares,
            update = sums.update;
    int64_t waited = at->norm - at->row_end - squares;
    int64_t world = at->world_ns;
    int64_t begin = at->world_end + launch;
    own->spent_ns[SPENT_COMPUTE] += squares + launch + update - sums.block;
    own->spent_ns[SPENT_BLOCK] += sums.block;
    own->busy_ns[STREAM_COMPUTE] += squares + launch + update - sums.block;
    own->spent_ns[SPENT_GRADIENT] += waited + at->update_ns - at->copy_ns - update;
    own->spent_ns[SPENT_COPY] += at->copy_ns;
    own->spent_ns[SPENT_WORLD] += world;
    own->spent_ns[SPENT_BUBBLE] +=
        at->world_end - world - at->norm + step_ns - begin - at->update_ns;
    for (int c = 0; c < family->order->chunks; c++)
        if (family->order->holder[c] == stage) {
            Homed homed = homed_of(account, c);
            own->spent_ns[SPENT_GRADIENT] += homed.stall;
            own->spent_ns[SPENT_COMPUTE] += homed.fold;
            own->busy_ns[STREAM_COMPUTE] += homed.fold;
            add_buckets(account, c, &sums, waited, at->update_ns - at->copy_ns - update);
        }
    Traffic want = {.step = STEP_WORLD,
                    .level = cluster->levels - 1,
                    .stream = STREAM_GRADIENT,
                    .what = "norm and loss"};
    add(account, &want, stage, 1, 2 * family_pair_bytes(family), world, world);
}

StepTimes *account_plan(Arena *arena, Family *family, const int *first_link)
{
    int stages = family->order->stages;
    StepTimes *times = ARENA_NEW(arena, StepTimes);
    *times = (StepTimes){.stages = stages, .stage = ARENA_ARRAY(arena, StageTimes, stages)};
    Arena *scratch = arena_new("account");
    int classes = family->deck->net->classes.n;
    Account account = {.arena = arena,
                       .family = family,
                       .first_link = first_link,
                       .body = ARENA_ARRAY(scratch, const Body *, classes),
                       .times = times};
    for (int c = 0; c < classes; c++)
        account.body[c] = deck_body(scratch, family->deck, c);
    int64_t *end = ARENA_ARRAY(scratch, int64_t, family->order->n);
    times->step_ns = family_segment(family, first_link, end);
    family_lengths(family, first_link, &account.length);
    for (int c = 0; c < family->order->chunks; c++)
        add_links(&account, c);
    add_rows(&account, end);
    StageEnd at[MAX_STAGES];
    family_ends(family, first_link, end, at);
    for (int i = 0; i < family->order->n && family->memory[KEPT_SAVED] != MEMORY_HBM; i++)
        add_spills(&account, &family->order->row[i]);
    for (int s = 0; s < stages; s++)
        add_end(&account, s, &at[s], times->step_ns);
    arena_free(scratch);
    return times;
}
