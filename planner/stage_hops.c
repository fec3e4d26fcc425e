/* stage_hops.c - the update of a stage whose optimizer state comes from other memories and goes
 * back: the same hops as ir/lower/state.c puts around updates, on the clock. */
#include "ir/base/num.h"
#include "ir/lower/home.h"
#include "ir/lower/state.h"
#include "planner/stage.h"

typedef struct Lanes {
    const Cluster *cluster;
    const StageBucket *const *bucket;
    HopWay way;
    int64_t clock[MEMORY_COUNT][2]; /* of each memory's lanes, out of it and into it */
    int64_t *end[MEMORY_COUNT][2];  /* of each bucket's hops */
    int64_t *stepped;               /* when each bucket has been updated */
    int64_t *carried[2];            /* and its weights have left the device, and host memory */
} Lanes;

static void run_hop(Lanes *lanes, const Hop *hop)
{
    const HopWay *way = &lanes->way;
    int near = (int)hop->near, b = hop->bucket,
        before = way->turn[near][b] - state_slots(hop->near, way->n[near]);
    int64_t bytes = lanes->bucket[b]->hop_bytes, ready = 0;
    if (bytes == 0)
        return;
    if (hop->in) {
        if (near + 1 < (int)lanes->bucket[b]->state_home)
            ready = lanes->end[near + 1][true][b];
        if (before >= 0) /* the slot is free */
            ready = num_larger(ready, lanes->end[near][false][way->at[near][before]]);
    } else {
        ready = near == 0 ? lanes->stepped[b] : lanes->end[near - 1][false][b];
    }
    Memory far = (Memory)(near + 1);
    int64_t *clock = &lanes->clock[near][hop->in];
    *clock = num_larger(*clock, ready) + price_copy(lanes->cluster, hop->in ? far : hop->near,
                                                    hop->in ? hop->near : far, bytes);
    lanes->end[near][hop->in][b] = *clock;
}

/* Weights to their update, through places that rows and earlier buckets have left; when they are
 * there. */
static int64_t carry_in(Lanes *lanes, Memory home, int b, int64_t rows)
{
    const StageBucket *bucket = lanes->bucket[b];
    int64_t ready = 0;
    for (int near = (int)home - 1; near >= 0; near--) {
        int64_t *clock = &lanes->clock[near][true];
        ready = num_larger(ready, rows + bucket->free_ns[near]);
        if (bucket->behind[near])
            ready = num_larger(ready, lanes->carried[near][b - bucket->behind[near]]);
        ready = *clock = num_larger(*clock, ready) + bucket->carry.in_ns[near];
    }
    return ready;
}

static void carry_out(Lanes *lanes, Memory home, int b)
{
    int64_t ready = lanes->stepped[b];
    for (int near = 0; near < (int)home; near++) {
        int64_t *clock = &lanes->clock[near][false];
        ready = *clock = num_larger(*clock, ready) + lanes->bucket[b]->carry.out_ns[near];
        lanes->carried[near][b] = ready;
    }
}

/* Far gradients come, one memory after the other; when they are there. */
static int64_t run_sums(Lanes *lanes, Memory home, const FarHop *hop, int64_t ready)
{
    for (int near = (int)home - 1; hop->bytes && near >= 0; near--) {
        int64_t *clock = &lanes->clock[near][true];
        ready = *clock = num_larger(*clock, ready) + hop->in_ns[near];
    }
    return ready;
}

static void run_hops(Lanes *lanes, int at, bool in)
{
    Hop hop[MAX_HOPS];
    int n = way_hops(&lanes->way, at, in, hop);
    for (int i = 0; i < n; i++)
        run_hop(lanes, &hop[i]);
}

int64_t stage_update_end(const Family *family, const StageBucket *const *bucket, int n,
                         const UpdateStart *start, int64_t *ret_stepped)
{
    Memory weights = family->memory[KEPT_WEIGHTS];
    Arena *scratch = arena_new("hops");
    Memory *home = ARENA_ARRAY(scratch, Memory, n + 1);
    for (int b = 0; b < n; b++)
        home[b] = bucket[b]->state_home;
    Lanes lanes = {.cluster = family->problem->cluster,
                   .bucket = bucket,
                   .way = way_new(scratch, home, n),
                   .stepped = ARENA_ARRAY(scratch, int64_t, n + 1)};
    for (int m = 0; m < MEMORY_COUNT; m++)
        for (int in = 0; in < 2; in++)
            lanes.end[m][in] = ARENA_ARRAY(scratch, int64_t, n + 1);
    for (int m = 0; m < 2; m++)
        lanes.carried[m] = ARENA_ARRAY(scratch, int64_t, n + 1);
    for (int m = 0; m < MEMORY_COUNT; m++)
        lanes.clock[m][true] = start->lane[m];
    int64_t begin = start->begin, compute = begin, gather = begin;
    run_hops(&lanes, NONE, true);
    for (int b = 0; b < n; b++) {
        run_hops(&lanes, b, true);
        if (home[b] != MEMORY_HBM)
            compute = num_larger(compute, lanes.end[MEMORY_HBM][true][b]);
        if (bucket[b]->far)
            compute = num_larger(compute, carry_in(&lanes, weights, b, start->rows));
        compute = num_larger(compute, run_sums(&lanes, family->memory[KEPT_GRADIENTS],
                                               &bucket[b]->last_sums, begin));
        compute += bucket[b]->update_ns;
        lanes.stepped[b] = compute;
        run_hops(&lanes, b, false);
        if (bucket[b]->far)
            carry_out(&lanes, weights, b);
        if (bucket[b]->gather_ns)
            gather = num_larger(gather, compute) + bucket[b]->gather_ns;
    }
    *ret_stepped = compute;
    int64_t end = num_larger(compute, gather);
    for (int m = 0; m < MEMORY_COUNT; m++)
        end = num_larger(end, lanes.clock[m][false]);
    arena_free(scratch);
    return end;
}

bool family_updates_far(const Family *family)
{
    const Memory *home = family->memory;
    return home[KEPT_STATE] != MEMORY_HBM || home[KEPT_WEIGHTS] != MEMORY_HBM ||
           home[KEPT_GRADIENTS] != MEMORY_HBM;
}

int64_t stage_norm_end(const Family *family, const StageBucket *const *bucket, const int64_t *ready,
                       int n, int64_t begin)
{
    Memory home = family->memory[KEPT_GRADIENTS];
    Arena *scratch = arena_new("squares");
    int64_t *left = ARENA_ARRAY(scratch, int64_t, n + 1);
    int *order = ARENA_ARRAY(scratch, int, n + 1);
    Lanes lanes = {.bucket = bucket};
    for (int b = 0; b < n; b++) { /* they leave as they are reduced */
        int at = b;
        for (; at > 0 && ready[order[at - 1]] > ready[b]; at--)
            order[at] = order[at - 1];
        order[at] = b;
    }
    for (int k = 0; k < n; k++) {
        const FarHop *hop = &bucket[order[k]]->last_sums;
        int64_t end = ready[order[k]];
        for (int near = 0; hop->bytes && near < (int)home; near++) {
            int64_t *clock = &lanes.clock[near][false];
            end = *clock = num_larger(*clock, end) + hop->out_ns[near];
        }
        left[order[k]] = end;
    }
    int64_t norm = begin;
    for (int b = 0; b < n; b++)
        norm = num_larger(norm, run_sums(&lanes, home, &bucket[b]->last_sums, left[b])) +
               bucket[b]->sumsq_ns;
    arena_free(scratch);
    return norm;
}

/* ---- bytes ---- */

/* So many bytes between the device and the memory behind it, and in memories behind that. */
static FarHop far_hop(const Family *family, Memory home, int64_t bytes, int64_t behind)
{
    const Cluster *cluster = family->problem->cluster;
    FarHop hop = {.bytes = bytes};
    for (int near = 0; near < (int)home; near++) {
        int64_t own = near == MEMORY_HBM ? bytes : behind;
        hop.in_ns[near] = price_copy(cluster, (Memory)(near + 1), (Memory)near, own);
        hop.out_ns[near] = price_copy(cluster, (Memory)near, (Memory)(near + 1), own);
    }
    return hop;
}

static FarHop sums_hop(const Family *family, int64_t elements)
{
    Memory home = family->memory[KEPT_GRADIENTS];
    int64_t bytes = carried_bytes(home, elements, dtype_bytes(family->pricer.recipe->gradient));
    return far_hop(family, home, bytes, bytes);
}

void stage_put_carry(const Family *family, StageBucket *bucket, StageCost *cost)
{
    Memory home = family->memory[KEPT_WEIGHTS];
    int64_t elements = bucket->elements / list_extent(&family->mesh, &bucket->group->weight_share);
    int64_t bytes = elements * dtype_bytes(family->pricer.recipe->weight),
            behind = carried_bytes(home, bytes, 1);
    bucket->far = true;
    bucket->carry = far_hop(family, home, bytes, behind);
    cost->far_weight_bytes += behind;
}

void stage_put_sums(const Family *family, StageBucket *bucket, StageCost *cost)
{
    Memory home = family->memory[KEPT_GRADIENTS];
    int64_t block = bucket->elements / list_extent(&family->mesh, &bucket->group->gradient_share);
    bucket->sums = sums_hop(family, block);
    bucket->last_sums =
        gradient_share_hops(home) ? sums_hop(family, bucket->share_elements) : bucket->sums;
    cost->far_gradient_bytes += num_align64(bucket->sums.bytes);
}

int family_state_fields(const Family *family, bool whole)
{
    return (whole ? 1 : 2) + family->pricer.recipe->has_master;
}

void stage_put_hop(const Family *family, bool by_sign, int64_t share, StageBucket *bucket,
                   StageCost *cost)
{
    int fields = family_state_fields(family, bucket->matrix);
    int64_t field =
        state_field_bytes(bucket->state_home, share, dtype_bytes(family->pricer.recipe->master));
    if (bucket->state_home == MEMORY_HBM)
        return;
    bucket->hop_bytes = (by_sign ? family->pricer.recipe->has_master : fields) * field;
    cost->field_bytes = num_larger(cost->field_bytes, field);
    cost->home_bytes[bucket->state_home] += fields * field;
    cost->far_buckets++;
}

int64_t state_slots_bytes(const Family *family, int buckets, int64_t field_bytes)
{
    return state_slots(MEMORY_HBM, buckets) * family_state_fields(family, false) *
           num_align64(field_bytes);
}
