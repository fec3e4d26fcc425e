/* stage_bytes.c - what a stage holds: homes, rings, transients; and in other memories. */
#include "ir/base/num.h"
#include "ir/lower/spill.h"
#include "planner/stage_tail.h"

bool family_leaves(const Family *family, int link)
{
    const Homes *own = family_card(family, link)->cut;
    return home_memory(family->memory, own ? own : &family->homes, KEPT_SAVED) != MEMORY_HBM;
}

bool family_spills(const Family *family, int link, SavedKind kind)
{
    return kind != SAVED_IW && family_leaves(family, link);
}

int64_t family_block(const Family *family, int link, SavedKind kind, bool first, bool last)
{
    const Card *card = family_card(family, link);
    int64_t bytes = card->saved_bytes[kind];
    if (card->saves_in && !first && kind == (card->saves_in_late ? SAVED_W : SAVED_I))
        bytes += card->in_bytes;
    if (card->saves_grad_in && !last && kind == SAVED_IW)
        bytes += card->grad_in_bytes;
    return family_spills(family, link, kind) ? spill_bytes(family->memory[KEPT_SAVED], bytes)
                                             : bytes;
}

/* The areas through which blocks that live elsewhere pass. */
static void fill_spills(const Family *family, int begin, int end, StageCost *cost)
{
    Arena *scratch = arena_new("blocks");
    Life *life = ARENA_ARRAY(scratch, Life, end - begin);
    int64_t *offset = ARENA_ARRAY(scratch, int64_t, end - begin);
    for (int kind = 0; kind < SAVED_KINDS; kind++)
        for (int m = MEMORY_HBM; kind != SAVED_IW && m < (int)family->memory[KEPT_SAVED]; m++) {
            int blocks = 0;
            for (int i = begin; i < end; i++)
                if (family_leaves(family, i)) {
                    int64_t bytes =
                        family_block(family, i, (SavedKind)kind, i == begin, i == end - 1);
                    life[blocks] = spill_life(blocks, (Memory)m, bytes);
                    blocks++;
                }
            cost->spill_bytes[m] += lives_place(life, blocks, offset);
        }
    arena_free(scratch);
}

/* Those that leave are in the rings that would be theirs on the device. */
static RingKind ring_of_block(const Family *family, int link, SavedKind kind)
{
    bool stays = family->memory[KEPT_SAVED] != MEMORY_HBM && kind != SAVED_IW &&
                 !family_leaves(family, link);
    return (RingKind)((stays ? RING_STAYS : RING_SAVED) + kind);
}

void stage_fill_rings(const Family *family, int begin, int end, StageCost *cost)
{
    const Card *head = family_card(family, begin);
    const Card *tail = family_card(family, end - 1);
    bool first = begin == 0, last = end == family->deck->net->chain.n, data[DATA_COUNT] = {false};
    int64_t pass = 0, scratch = 0;
    for (int i = begin; i < end; i++) {
        const Card *card = family_card(family, i);
        for (int kind = 0; kind < SAVED_KINDS; kind++)
            cost->stride[ring_of_block(family, i, (SavedKind)kind)] +=
                family_block(family, i, (SavedKind)kind, i == begin, i == end - 1);
        for (int d = 0; d < DATA_COUNT; d++)
            if (card->data_bytes[d] && !data[d]) {
                data[d] = true;
                cost->stride[RING_DATA] += card->data_bytes[d];
            }
        if (i > begin && !card->saves_in)
            pass = num_larger(pass, card->in_bytes);
        if (i > begin && !family_card(family, i - 1)->saves_grad_in)
            pass = num_larger(pass, card->grad_out_bytes);
        scratch = num_larger(scratch, card->scratch_bytes);
        cost->forward_bytes = num_larger(cost->forward_bytes, card->forward_bytes);
        cost->backward_bytes = num_larger(cost->backward_bytes, card->backward_bytes);
    }
    cost->stride[RING_IN] = first ? 0 : head->in_bytes;
    cost->stride[RING_OUT] = last ? 0 : tail->out_bytes;
    cost->stride[RING_GRAD_IN] = last ? 0 : tail->grad_in_bytes;
    cost->stride[RING_GRAD_OUT] = first ? 0 : head->grad_out_bytes;
    cost->pass_bytes = pass;
    cost->scratch_bytes = scratch;
    cost->transient_bytes = 4 * pass + scratch;
    fill_spills(family, begin, end, cost);
}

/* Is the ring of this kind in another memory? */
static bool ring_away(const Family *family, int ring)
{
    return (ring == RING_SAVED || ring == RING_SAVED_W) && family->memory[KEPT_SAVED] != MEMORY_HBM;
}

/* What blocks that live elsewhere pass through; a forward and a backward that run as one have
 * places of their own. */
static int64_t passing_bytes(const Family *family, const StageCost *cost, int chunk, Memory memory)
{
    return cost->spill_bytes[memory] * (family->order->meets[chunk] ? 2 : 1);
}

/* Of the slots of one chunk; what a neighbour on the same stage reads has no ring of its own. */
static int64_t ring_bytes(const Family *family, const StageCost *cost, int chunk)
{
    const Order *order = family->order;
    int64_t bytes = passing_bytes(family, cost, chunk, MEMORY_HBM);
    for (int ring = 0; ring < RING_COUNT; ring++) {
        if (ring_away(family, ring))
            continue;
        int to = ring == RING_OUT ? chunk + 1 : ring == RING_GRAD_OUT ? chunk - 1 : NONE;
        bool mine = to < 0 || to >= order->chunks || order->holder[to] != order->holder[chunk];
        bytes += mine ? cost->stride[ring] * order->slots[ring][chunk] : 0;
    }
    return bytes;
}

int64_t stage_bytes(const Family *family, const StageCost *cost, int chunk)
{
    return cost->fixed_bytes + ring_bytes(family, cost, chunk);
}

/* Weights of stale steps are kept. */
static int family_versions(const Family *family, int stage)
{
    return family->order->turn ? family->order->turn->delay[stage] + 1 : 1;
}

/* Places of weights on their way from files, which chunks share; two rows in one have theirs apart.
 */
static int64_t between_bytes(const Family *family, int chunk, int64_t most)
{
    return most * (family->order->pairs[family->order->holder[chunk]] ? 2 : 1);
}

/* What a chunk has in a memory behind the device's; slots of state on its way are not counted. */
static int64_t far_bytes(const Family *family, const StageCost *cost, int chunk, Memory memory)
{
    int64_t bytes = cost->home_bytes[memory];
    if (memory == family->memory[KEPT_WEIGHTS])
        bytes += cost->far_weight_bytes * family_versions(family, family->order->holder[chunk]);
    bytes += memory == family->memory[KEPT_GRADIENTS] ? cost->far_gradient_bytes : 0;
    for (int ring = 0; ring < RING_COUNT; ring++)
        if (ring_away(family, ring) && memory == family->memory[KEPT_SAVED])
            bytes += cost->stride[ring] * family->order->slots[ring][chunk];
    return bytes + passing_bytes(family, cost, chunk, memory) + cost->sums_bytes[memory];
}

bool stage_fits_far(const Family *family, const StageCost *cost, int chunk)
{
    bool fits = true;
    for (int m = MEMORY_DRAM; m < MEMORY_COUNT; m++) {
        int64_t bytes = far_bytes(family, cost, chunk, (Memory)m) +
                        (m == MEMORY_DRAM ? between_bytes(family, chunk, cost->between_bytes) : 0);
        fits = fits && (bytes == 0 || bytes <= family->problem->cluster->store[m].bytes);
    }
    return fits;
}

bool family_fits_far(const Family *family, const StageBytes *bytes)
{
    bool fits = true;
    for (int m = MEMORY_DRAM; m < MEMORY_COUNT; m++)
        fits = fits &&
               (bytes->far[m] == 0 || bytes->far[m] <= family->problem->cluster->store[m].bytes);
    return fits;
}

StageBytes stage_runs_bytes(const Family *family, const StageRun *run, const StageCost *const *list,
                            int runs)
{
    StageBytes bytes = {0};
    int64_t pass = 0, scratch = 0, fetched = 0, between = 0, buffers = 0, sums = 0, field = 0,
            forward = 0, backward = 0;
    int buckets = 0, stage = family->order->holder[run->chunk];
    for (int r = 0; r < runs; r++) {
        const StageCost *cost = list[r];
        bytes.weights += cost->weight_bytes * family_versions(family, stage);
        bytes.gradients += cost->gradient_bytes;
        bytes.state += cost->home_bytes[MEMORY_HBM];
        for (int m = MEMORY_DRAM; m < MEMORY_COUNT; m++)
            bytes.far[m] += far_bytes(family, cost, run[r].chunk, (Memory)m);
        int64_t more = num_larger(0, cost->between_bytes - between);
        bytes.far[MEMORY_DRAM] += between_bytes(family, run[r].chunk, more);
        between += more;
        buckets += cost->far_buckets;
        field = num_larger(field, cost->field_bytes);
        bytes.saved += ring_bytes(family, cost, run[r].chunk);
        pass = num_larger(pass, cost->pass_bytes);
        scratch = num_larger(scratch, cost->scratch_bytes);
        forward = num_larger(forward, cost->forward_bytes);
        backward = num_larger(backward, cost->backward_bytes);
        fetched = num_larger(fetched, cost->fetched_bytes);
        buffers = num_larger(buffers, cost->buffer_bytes);
        sums = num_larger(sums, cost->sums_bytes[MEMORY_HBM]);
    }
    if (family->order->pairs[stage]) { /* temps of two rows lie apart, and weights for a use */
        scratch = num_larger(scratch, forward + backward);
        fetched *= 2;
    }
    bytes.state += state_slots_bytes(family, buckets, field); /* which chunks share */
    bytes.transients = 4 * pass + scratch + fetched + buffers + sums;
    int pairs = family->order->turn ? family->order->stages + 2 : 1;
    bytes.all = 64 * SCALAR_COUNT + PAIR_BYTES * pairs + bytes.weights + bytes.gradients +
                bytes.state + bytes.saved + bytes.transients;
    return bytes;
}

StageBytes family_bytes(Family *family, const int *first_link, int stage)
{
    StageRun run[MAX_CHUNKS];
    const StageCost *cost[MAX_CHUNKS];
    int runs = 0;
    for (int c = 0; c < family->order->chunks; c++)
        if (family->order->holder[c] == stage) {
            run[runs] = (StageRun){.chunk = c};
            cost[runs++] = family_chunk(family, first_link, c);
        }
    return stage_runs_bytes(family, run, cost, runs);
}
