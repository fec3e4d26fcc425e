/* walk_flat.c - flat buckets: weights gathered for their uses, gradients reduced to their shares,
 * the norm, the update. */
#include "ir/lower/home.h"
#include "ir/lower/state.h"
#include "ir/lower/walk_in.h"

/* Flat memory: weights, gradients, moments. */
static void put_static(Step *step, int64_t address, int64_t bytes, bool read, bool write)
{
    walk_operand(step, address, bytes, walk_name(NAME_STATIC, 0, 0, 0), NULL, read, write);
}

/* ---- moves ---- */

/* Where flat elements of a bucket are: element x at base + x * width, under one name. */
typedef struct Flat {
    int64_t base;
    uint64_t name;
} Flat;

static Flat at_home(int64_t base)
{
    return (Flat){base, walk_name(NAME_STATIC, 0, 0, 0)};
}

static void put_flat(Step *step, const Flat *flat, int width, int64_t begin, int64_t count,
                     bool read, bool write)
{
    walk_operand(step, flat->base + begin * width, count * width, flat->name, NULL, read, write);
}

/* The range that a rank holds after a move. */
static void after_move(const Walk *walk, const Move *move, int64_t *begin, int64_t *count)
{
    const Mesh *mesh = &walk->program->plan->mesh;
    int n = list_extent(mesh, &move->atoms),
        index = list_index(mesh, &move->atoms, walk->coordinate);
    if (move->kind == MOVE_REDUCE_SCATTER || move->kind == MOVE_SLICE) {
        *count /= n;
        *begin += index * *count;
    } else if (move->kind == MOVE_ALL_GATHER) {
        *begin -= index * *count;
        *count *= n;
    } else if (move->kind != MOVE_ALL_REDUCE) {
        BUG("a flat bucket has no %s", move_text[move->kind]);
    }
}

/* Moves on the flat gradient or weight of a bucket: each shrinks (scatter, slice) or widens
 * (gather) the range of elements that this rank holds. The collective number `cross` (from 0) reads
 * at `from` and writes at `to`; those before stay at the one, those after at the other. */
static void put_flat_moves(Walk *walk, Stream stream, int bucket, const Path *path, Flat from,
                           Flat to, int cross, int width, int64_t begin, int64_t count)
{
    for (int i = 0, n = 0; i < path->n; i++) {
        const Move *move = &path->move[i];
        int64_t next_begin = begin, next_count = count;
        after_move(walk, move, &next_begin, &next_count);
        if (move->kind != MOVE_SLICE) {
            Step *step = walk_put(walk, STEP_MOVE, stream);
            step->move = move;
            step->bucket = bucket;
            step->elements = count;
            put_flat(step, n <= cross ? &from : &to, width, begin, count, true, false);
            put_flat(step, n < cross ? &from : &to, width, next_begin, next_count, false, true);
            n++;
        }
        begin = next_begin;
        count = next_count;
    }
}

/* The same at one place. */
static void put_moves_in_place(Walk *walk, int bucket, const Path *path, Flat at, int width,
                               int64_t begin, int64_t count)
{
    put_flat_moves(walk, STREAM_GRADIENT, bucket, path, at, at, 0, width, begin, count);
}

/* Where a bucket's gradients are: at home, or far ones at its place on the device. */
static Flat gradients_at(const Walk *walk, int index)
{
    const Bucket *bucket = &walk->stage->buckets.at[index];
    const Group *group = &walk->stage->groups.at[bucket->group];
    Flat at = at_home(gradient_base(walk->program, group, bucket, walk->coordinate));
    at.name = group->far_gradients ? walk_name(NAME_SUMS, MEMORY_HBM, 0, index) : at.name;
    return at;
}

/* Collectives of a path. */
static int count_collectives(const Path *path)
{
    int n = 0;
    for (int i = 0; i < path->n; i++)
        n += path->move[i].kind != MOVE_SLICE;
    return n;
}

/* ---- weights on their way to a use ---- */

/* Where a bucket's weights of a version are for a use. */
static Flat fetched_at(const Walk *walk, int index, bool back, int version)
{
    const Bucket *bucket = &walk->stage->buckets.at[index];
    int width = dtype_bytes(walk->program->recipe->weight);
    return (Flat){bucket_fetched(walk->stage, bucket, back) - bucket->begin * width,
                  walk_fetched_name(walk, index, MEMORY_HBM, back, version)};
}

/* This rank's part of a bucket whose weights live in another memory goes between `near` and the
 * memory behind it: a version on its way to its place in the buffer; or back, home as the next one.
 * Only what reaches a file has its grains. */
static void put_weight_hop(Walk *walk, int index, Memory near, bool in, bool back, int version)
{
    const Program *program = walk->program;
    const StageProgram *stage = walk->stage;
    const Bucket *bucket = &stage->buckets.at[index];
    const Group *group = &stage->groups.at[bucket->group];
    Memory home = weight_memory(program, group);
    int width = dtype_bytes(program->recipe->weight);
    int64_t begin = bucket_block_begin(program, bucket, &group->weight_share, walk->coordinate),
            count = bucket->elements / list_extent(&program->plan->mesh, &group->weight_share);
    Step *step = walk_put(walk, STEP_COPY, hop_stream(near, in));
    step->bucket = index;
    for (int to = 0; to < 2; to++) {
        Memory memory = (Memory)(near + (in != to));
        Flat at = {bucket->between + (back ? stage->between_back : 0) - begin * width,
                   walk_fetched_name(walk, index, memory, back, version)};
        if (memory == MEMORY_HBM)
            at = fetched_at(walk, index, back, version);
        if (memory == home)
            at = at_home(weight_base(program, group, bucket, walk->coordinate) +
                         version_offset(stage, version + !in));
        walk_operand(step, at.base + begin * width,
                     carried_bytes(near == MEMORY_HBM ? near : home, count, width), at.name, NULL,
                     !to, to);
    }
}

/* All of its way to the update, which steps the newest version, or home. */
static void put_weight_hops(Walk *walk, int index, bool in)
{
    const Group *group = &walk->stage->groups.at[walk->stage->buckets.at[index].group];
    int hops = (int)weight_memory(walk->program, group);
    for (int k = 0; k < hops; k++)
        put_weight_hop(walk, index, (Memory)(in ? hops - 1 - k : k), in, false, walk->round);
}

static void fetch_bucket(Walk *walk, int index, bool back)
{
    const StageProgram *stage = walk->stage;
    const Bucket *bucket = &stage->buckets.at[index];
    const Group *group = &stage->groups.at[bucket->group];
    int width = dtype_bytes(walk->program->recipe->weight),
        version = stage_version(stage, walk->round);
    Flat home = at_home(weight_base(walk->program, group, bucket, walk->coordinate) +
                        version_offset(stage, version)),
         whole = fetched_at(walk, index, back, version);
    int64_t begin =
        bucket_block_begin(walk->program, bucket, &group->weight_share, walk->coordinate);
    if (group->far) {
        put_weight_hop(walk, index, MEMORY_HBM, true, back, version);
        home = whole; /* its part is there */
    }
    put_flat_moves(walk, STREAM_WEIGHT, index, &group->fetch, home, whole, 0, width, begin,
                   bucket->elements /
                       list_extent(&walk->program->plan->mesh, &group->weight_share));
}

/* All that `link` is the first to use comes to `near` from the memory behind it; on the device it
 * is then gathered. */
static void fetch_for(Walk *walk, Memory near, bool forward, int link)
{
    const StageProgram *stage = walk->stage;
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        const Group *group = &stage->groups.at[bucket->group];
        if (bucket->fetch == NONE || (forward ? bucket->close_link : bucket->open_link) != link)
            continue;
        if (near == MEMORY_HBM)
            fetch_bucket(walk, b, !forward);
        else if (near < weight_memory(walk->program, group))
            put_weight_hop(walk, b, near, true, !forward, stage_version(stage, walk->round));
    }
}

/* Before link number `place` of the row runs, or before the row begins (NONE): as far ahead as
 * state comes to its update. */
static void fetch_around(Walk *walk, const Entry *entry, int place)
{
    const Chunk *chunk = &walk->stage->chunk[entry->chunk];
    bool forward = entry->part == PART_F;
    Hop hop[MAX_HOPS];
    Memory home = walk->program->plan->memory[KEPT_WEIGHTS];
    int n = hops_around(home == MEMORY_HBM ? MEMORY_DRAM : home, chunk->end - chunk->begin, place,
                        true, hop);
    for (int i = 0; i < n; i++)
        if (hop[i].bucket > 0 || !entry->resumes)
            fetch_for(walk, hop[i].near, forward,
                      forward ? chunk->begin + hop[i].bucket : chunk->end - 1 - hop[i].bucket);
}

void walk_fetch_first(Walk *walk, const Entry *entry)
{
    fetch_around(walk, entry, NONE);
}

void walk_fetch_ahead(Walk *walk, const Entry *entry, int link)
{
    const Chunk *chunk = &walk->stage->chunk[entry->chunk];
    fetch_around(walk, entry, entry->part == PART_F ? link - chunk->begin : chunk->end - 1 - link);
}

/* ---- gradients on their way to the optimizer ---- */

void walk_reduce(Walk *walk, int index)
{
    const Bucket *bucket = &walk->stage->buckets.at[index];
    const Group *group = &walk->stage->groups.at[bucket->group];
    int64_t begin =
        bucket_block_begin(walk->program, bucket, &group->gradient_share, walk->coordinate);
    put_moves_in_place(walk, index, &group->reduce, gradients_at(walk, index),
                       dtype_bytes(walk->program->recipe->gradient), begin,
                       bucket->elements /
                           list_extent(&walk->program->plan->mesh, &group->gradient_share));
}

static void clear_gaps(Walk *walk, int index, const Flat *buffer, int micro)
{
    const Bucket *bucket = &walk->stage->buckets.at[index];
    int width = dtype_bytes(walk->program->recipe->gradient);
    for (int i = 0; i < bucket->gaps.n; i++) {
        Step *step = walk_put(walk, STEP_CLEAR, STREAM_COMPUTE);
        step->bucket = index;
        step->micro = micro;
        step->from_element = bucket->gaps.at[i].begin;
        step->count = bucket->gaps.at[i].elements;
        put_flat(step, buffer, width, step->from_element, step->count, false, true);
    }
}

/* What an accumulator and its home hold together: `from` joins `to`. */
static void put_fold(Walk *walk, const Entry *entry, int index, const Flat *from, const Flat *to,
                     bool first)
{
    const Program *program = walk->program;
    const Bucket *bucket = &walk->stage->buckets.at[index];
    const AtomList *list = &walk->stage->groups.at[bucket->group].gradient_share;
    int width = dtype_bytes(program->recipe->gradient);
    Step *step = walk_put(walk, STEP_ACCUMULATE, STREAM_COMPUTE);
    step->bucket = index;
    step->micro = entry->micro;
    step->first = first;
    step->from_element = bucket_block_begin(program, bucket, list, walk->coordinate);
    step->count = bucket->elements / list_extent(&program->plan->mesh, list);
    put_flat(step, from, width, step->from_element, step->count, true, false);
    put_flat(step, to, width, step->from_element, step->count, !first, true);
}

/* A micro-batch's sums of a bucket join those of the micro-batches before it. Where the path ends
 * with a collective, what the home holds is added to this rank's own terms ahead, and the
 * collective leaves the sums of both at home; else what is left in the buffer is added to it. */
static void scatter_bucket(Walk *walk, const Entry *entry, int index)
{
    const Program *program = walk->program;
    const Bucket *bucket = &walk->stage->buckets.at[index];
    const Group *group = &walk->stage->groups.at[bucket->group];
    int width = dtype_bytes(program->recipe->gradient), n = count_collectives(&group->scatter);
    bool ahead = group_folds_ahead(group);
    Flat home = gradients_at(walk, index),
         buffer = {
             bucket->buffer - bucket->begin * width,
             walk_name(NAME_BUFFER, index, 0, micro_number(program, walk->round, entry->micro))};
    clear_gaps(walk, index, &buffer, entry->micro);
    if (ahead && !entry->first)
        put_fold(walk, entry, index, &home, &buffer, false);
    put_flat_moves(walk, STREAM_GRADIENT, index, &group->scatter, buffer, home, ahead ? n - 1 : n,
                   width, bucket->begin, bucket->elements);
    if (!ahead)
        put_fold(walk, entry, index, &buffer, &home, entry->first);
}

void walk_close(Walk *walk, const Entry *entry, int link)
{
    const StageProgram *stage = walk->stage;
    for (int b = 0; b < stage->buckets.n; b++) {
        if (stage->buckets.at[b].close_link != link)
            continue;
        bool far = stage->groups.at[stage->buckets.at[b].group].far_gradients;
        Flat sums = gradients_at(walk, b);
        if (stage->buckets.at[b].buffer != NONE)
            scatter_bucket(walk, entry, b);
        else if (far && entry->first)
            clear_gaps(walk, b, &sums, entry->micro);
        if (entry->last)
            walk_reduce(walk, b);
    }
}

/* ---- the end of the step ---- */

static int64_t scalar(const Walk *walk, int which)
{
    return walk->stage->scalars + 64 * which;
}

static int scalar_bytes(const Walk *walk)
{
    return dtype_bytes(walk->program->recipe->gradient);
}

/* The rank whose copy counts: coordinate 0 on every atom on which the group is Replicate, and the
 * first home stage. */
static bool owns(const Walk *walk, const Group *group)
{
    const Mesh *mesh = &walk->program->plan->mesh;
    AtomSet distinct = (AtomSet)(group->sharded | list_set(&group->share));
    for (int a = 0; a < mesh->n; a++)
        if (!(distinct >> a & 1) && mesh_coordinate(mesh, walk->coordinate, a) != 0)
            return false;
    return group->tied_stage == NONE || walk->stage->index < group->tied_stage;
}

/* The accumulator of a loss is Partial on the atoms of the tokens and Replicate on the rest:
 * coordinate 0 there owns it. */
static int owns_loss(const Walk *walk, int number)
{
    const StageProgram *stage = walk->stage;
    const Mesh *mesh = &walk->program->plan->mesh;
    for (int i = 0; i < stage->links; i++) {
        const Body *body = stage->link[i].body;
        if (body->losses == 0)
            continue;
        for (int a = 0; a < mesh->n; a++)
            if (!(body->copies.at[body->loss[number]].place.partial >> a & 1) &&
                mesh_coordinate(mesh, walk->coordinate, a) != 0)
                return 0;
        return 1;
    }
    return 0;
}

void walk_world(Walk *walk)
{
    int width = scalar_bytes(walk);
    int64_t pair = pair_address(walk->stage, walk->round);
    Step *world = walk_put(walk, STEP_WORLD, STREAM_GRADIENT);
    world->elements = 1 + net_losses(walk->program->net);
    put_static(world, pair, world->elements * width, true, false);
    put_static(world, pair, world->elements * width, false, true);
}

void walk_evaluated(Walk *walk)
{
    int width = scalar_bytes(walk), losses = net_losses(walk->program->net);
    int64_t sums = evaluation_address(walk->program, walk->stage);
    for (int k = 0; k < losses; k++) {
        Step *own = walk_put(walk, STEP_OWN_LOSS, STREAM_COMPUTE);
        own->count = owns_loss(walk, k);
        put_static(own, loss_address(walk->program, walk->stage, k), width, true, false);
        put_static(own, sums + k * width, width, false, true);
    }
    Step *world = walk_put(walk, STEP_WORLD, STREAM_GRADIENT);
    world->elements = losses;
    put_static(world, sums, losses * width, true, false);
    put_static(world, sums, losses * width, false, true);
}

/* Bytes from `offset` on of a field of a bucket's state, in a memory on its way or at its home. */
static void put_state(const Walk *walk, Step *step, int b, StateField field, Memory memory,
                      int64_t offset, int64_t bytes, bool read, bool write)
{
    bool home = memory == state_home(walk->stage, b);
    walk_operand(step, state_address(walk->program, walk->stage, b, field, memory) + offset, bytes,
                 home ? walk_name(NAME_STATIC, 0, 0, 0) : walk_name(NAME_STATE, (int)memory, 0, b),
                 NULL, read, write);
}

/* State on its way, before update `at` or behind it. */
static void put_hops(Walk *walk, int at, bool in)
{
    const StageProgram *stage = walk->stage;
    Hop hop[MAX_HOPS];
    int n = state_hops(stage, at, in, hop);
    for (int i = 0; i < n; i++) {
        const Bucket *bucket = &stage->buckets.at[hop[i].bucket];
        Memory far = (Memory)(hop[i].near + 1), from = in ? far : hop[i].near,
               to = in ? hop[i].near : far;
        int64_t bytes = state_bytes(walk->program, stage, hop[i].bucket);
        Step *step = walk_put(walk, STEP_COPY, hop_stream(hop[i].near, in));
        step->bucket = hop[i].bucket;
        for (int f = 0; f < FIELD_COUNT; f++) {
            if (!group_steps(&stage->groups.at[bucket->group], (StateField)f))
                continue;
            put_state(walk, step, hop[i].bucket, (StateField)f, from, 0, bytes, true, false);
            put_state(walk, step, hop[i].bucket, (StateField)f, to, 0, bytes, false, true);
        }
    }
}

void walk_norm(Walk *walk)
{
    const StageProgram *stage = walk->stage;
    int width = scalar_bytes(walk);
    int64_t pair = pair_address(stage, walk->round);
    put_hops(walk, NONE, true);
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        const Group *group = &stage->groups.at[bucket->group];
        walk_share_in(walk, b);
        Step *step = walk_put(walk, STEP_KERNEL, STREAM_COMPUTE);
        step->node = &walk->program->optimizer->nodes.at[walk->program->sumsq];
        step->bucket = b;
        step->first = b == 0;
        step->from_element = bucket_share_begin(walk->program, stage, bucket, walk->coordinate);
        step->count = group->rate == 0 && owns(walk, group) ? bucket->share_elements : 0;
        Flat sums = gradients_at(walk, b);
        put_flat(step, &sums, width, step->from_element, step->count, true, false);
        put_static(step, pair + width, width, b > 0, true);
    }
    for (int k = 0; k < net_losses(walk->program->net); k++) {
        Step *own = walk_put(walk, STEP_OWN_LOSS, STREAM_COMPUTE);
        own->count = owns_loss(walk, k);
        put_static(own, loss_address(walk->program, stage, k), width, true, false);
        put_static(own, pair + loss_in_pair(k) * width, width, false, true);
    }
    if (walk->program->flows)
        return; /* nothing is clipped: an update does not wait for other stages */
    walk_world(walk);
    Step *clip = walk_put(walk, STEP_KERNEL, STREAM_COMPUTE);
    clip->node = &walk->program->optimizer->nodes.at[walk->program->clip];
    put_static(clip, pair + width, width, true, false);
    put_static(clip, scalar(walk, SCALAR_COEF), width, false, true);
}

void walk_tied(Walk *walk, int g)
{
    const StageProgram *stage = walk->stage;
    const Group *group = &stage->groups.at[g];
    int width = scalar_bytes(walk);
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        if (bucket->group != g)
            continue;
        int64_t begin = bucket_share_begin(walk->program, stage, bucket, walk->coordinate);
        Step *step = walk_put(walk, STEP_TIED, STREAM_GRADIENT);
        step->bucket = b;
        step->peer = group->tied_stage;
        step->elements = bucket->share_elements;
        int64_t at = gradient_base(walk->program, group, bucket, walk->coordinate) + begin * width;
        put_static(step, at, step->elements * width, true, false);
        put_static(step, at, step->elements * width, false, true);
    }
}

/* What the optimizer steps: in place, or from the newest version into the slot of the next, which
 * is then the last operand. */
static void put_weight(const Walk *walk, Step *step, bool newer)
{
    const StageProgram *stage = walk->stage;
    const Bucket *bucket = &stage->buckets.at[step->bucket];
    const Group *group = &stage->groups.at[bucket->group];
    int width = dtype_bytes(walk->program->recipe->weight);
    bool in_place = stage->versions.n == 1;
    if (group->far) {
        Flat near = fetched_at(walk, step->bucket, false, walk->round);
        if (!newer)
            put_flat(step, &near, width, step->from_element, step->count, true, true);
        return;
    }
    int64_t base = weight_base(walk->program, group, bucket, walk->coordinate) +
                   version_offset(stage, walk->round + newer);
    if (!newer || !in_place)
        put_static(step, base + step->from_element * width, step->count * width, !newer,
                   newer || in_place);
}

static void put_adamw(Walk *walk, int index, int64_t begin, int64_t end, bool decay)
{
    const StageProgram *stage = walk->stage;
    const Bucket *bucket = &stage->buckets.at[index];
    const Group *group = &stage->groups.at[bucket->group];
    const Recipe *recipe = walk->program->recipe;
    int gradient = dtype_bytes(recipe->gradient), state = dtype_bytes(recipe->master);
    int64_t count = end - begin;
    int rank = walk->coordinate;
    int64_t from = (begin - bucket_share_begin(walk->program, stage, bucket, rank)) * state;
    Step *step = walk_put(walk, STEP_KERNEL, STREAM_COMPUTE);
    step->node = &walk->program->optimizer->nodes.at[walk->program->adamw];
    step->bucket = index;
    step->from_element = begin;
    step->count = count;
    step->decay = decay;
    put_weight(walk, step, false);
    put_state(walk, step, index, FIELD_MOMENT1, MEMORY_HBM, from, count * state, true, true);
    put_state(walk, step, index, FIELD_MOMENT2, MEMORY_HBM, from, count * state, true, true);
    Flat sums = gradients_at(walk, index);
    put_flat(step, &sums, gradient, begin, count, true, false);
    put_static(step, scalar(walk, SCALAR_COEF), gradient, true, false);
    put_static(step, scalar(walk, SCALAR_LR), gradient, true, false);
    put_static(step, scalar(walk, SCALAR_STEP), gradient, true, false);
    if (group->master != NONE)
        put_state(walk, step, index, FIELD_MASTER, MEMORY_HBM, from, count * state, true, true);
    put_weight(walk, step, true);
}

/* A bucket that AdamW does not move: on the master where there is one. */
static void put_sign(Walk *walk, int index, int64_t begin, int64_t count)
{
    const StageProgram *stage = walk->stage;
    const Bucket *bucket = &stage->buckets.at[index];
    const Group *group = &stage->groups.at[bucket->group];
    const Recipe *recipe = walk->program->recipe;
    int gradient = dtype_bytes(recipe->gradient), state = dtype_bytes(recipe->master);
    Step *step = walk_put(walk, STEP_KERNEL, STREAM_COMPUTE);
    step->node = &walk->program->optimizer->nodes.at[walk->program->sign];
    step->bucket = index;
    step->from_element = begin;
    step->count = count;
    put_weight(walk, step, false);
    Flat sums = gradients_at(walk, index);
    put_flat(step, &sums, gradient, begin, count, true, false);
    if (group->master != NONE)
        put_state(walk, step, index, FIELD_MASTER, MEMORY_HBM, 0, count * state, true, true);
    put_weight(walk, step, true);
}

/* The optimizer on this rank's share, one Step per run of elements with one decay flag, then the
 * way home. */
void walk_update(Walk *walk, int index)
{
    const StageProgram *stage = walk->stage;
    const Bucket *bucket = &stage->buckets.at[index];
    const Group *group = &stage->groups.at[bucket->group];
    int64_t begin = bucket_share_begin(walk->program, stage, bucket, walk->coordinate);
    int64_t end = begin + bucket->share_elements, at = begin;
    put_hops(walk, index, true);
    put_weight_hops(walk, index, true);
    walk_share_in(walk, index);
    if (group->rate > 0)
        put_sign(walk, index, begin, bucket->share_elements);
    if (group->matrix != NONE)
        walk_matrices(walk, index);
    bool elementwise = group->rate == 0 && group->matrix == NONE;
    for (int i = 0; elementwise && i < group->members.n && at < end; i++) {
        const GroupMember *member = &group->members.at[i];
        bool same_next =
            i + 1 < group->members.n && group->members.at[i + 1].decay == member->decay;
        int64_t stop = i + 1 < group->members.n ? group->members.at[i + 1].offset : group->elements;
        if (stop <= at || (same_next && stop < end))
            continue;
        stop = stop < end ? stop : end;
        put_adamw(walk, index, at, stop, member->decay);
        at = stop;
    }
    put_hops(walk, index, false);
    if (group->far) {
        put_weight_hops(walk, index, false);
        CHECK(group->gather.n == 0);
        return;
    }
    put_moves_in_place(walk, index, &group->gather,
                       at_home(weight_base(walk->program, group, bucket, walk->coordinate) +
                               version_offset(stage, walk->round + 1)),
                       dtype_bytes(walk->program->recipe->weight), begin, bucket->share_elements);
}
