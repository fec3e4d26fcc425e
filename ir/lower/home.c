/* home.c - the bytes of flat homes, and the buffers that hold a bucket whole for its links. */
#include "ir/lower/home.h"

#include "ir/base/num.h"
#include "ir/lower/state.h"

/* ---- lists and paths ---- */

/* The atoms of a set as a list, slowest link major. */
static AtomList list_of(AtomSet atoms)
{
    AtomList list = {0};
    for (int a = MAX_ATOMS - 1; a >= 0; a--)
        if (atoms >> a & 1) {
            CHECK(list.n < MAX_PER_AXIS);
            list.at[list.n++] = (int8_t)a;
        }
    return list;
}

/* Flat buckets move in place, by ranges of axis e: reduced, cut and gathered, and nothing else. */
static int64_t flat_cost(const void *context, const Mesh *mesh, const Move *move, int64_t bytes)
{
    const MovePrice *price = context;
    bool cuts = move->kind == MOVE_REDUCE_SCATTER || move->kind == MOVE_SLICE;
    if (move->kind == MOVE_ALL_REDUCE || (cuts && move->to == 1) ||
        (move->kind == MOVE_ALL_GATHER && move->from == 1))
        return price->cost(price->context, mesh, move, bytes);
    return INT64_MAX / (2 * MAX_MOVES);
}

/* What every rank holds whole is cut first, for nothing; then one scatter cuts the rest. */
static void add_share(AtomList *list, AtomSet atoms, AtomSet partial)
{
    AtomList whole = list_of((AtomSet)(atoms & ~partial)),
             scattered = list_of((AtomSet)(atoms & partial));
    CHECK(list->n + whole.n + scattered.n <= MAX_PER_AXIS);
    for (int i = 0; i < whole.n; i++)
        list->at[list->n++] = whole.at[i];
    for (int i = 0; i < scattered.n; i++)
        list->at[list->n++] = scattered.at[i];
}

void group_cut(Group *group, const Homes *homes)
{
    AtomSet own = (AtomSet)~group->sharded;
    group->buffered = homes->gradient != 0;
    group->share.n = 0;
    add_share(&group->share, (AtomSet)(homes->weight & own), group->partial);
    group->weight_share = group->share;
    add_share(&group->share, (AtomSet)(homes->gradient & ~homes->weight & own), group->partial);
    group->gradient_share = group->share;
    add_share(&group->share, (AtomSet)(homes->state & ~homes->gradient & own), group->partial);
}

void group_find_paths(Arena *arena, const Mesh *mesh, const MovePrice *price, Group *group)
{
    AtomList differ = list_of(group->sharded);
    Net *net = ARENA_NEW(arena, Net);
    net->arena = arena;
    net->name = "flat";
    DimId dim[2] = {net_add_dim(net, "c", DIM_OTHER, list_extent(mesh, &differ)),
                    net_add_dim(net, "e", DIM_OTHER, group->elements)};
    Graph *graph = net_add_class(net, "flat");
    ValueId flat = graph_value(graph, VALUE_INPUT, "flat", 2, dim);
    const Value *value = &graph->values.at[flat];
    Placement from = place_replicate();
    from.shard[0] = differ;
    Placement sums = from, to = from, home = from, whole = from;
    from.partial = group->partial;
    from.monoid = group->partial ? MONOID_SUM : MONOID_NONE;
    sums.shard[1] = group->gradient_share;
    sums.partial = (AtomSet)(group->partial & ~list_set(&group->gradient_share));
    sums.monoid = sums.partial ? MONOID_SUM : MONOID_NONE;
    to.shard[1] = group->share;
    home.shard[1] = group->weight_share;
    MovePrice flat_price = {.cost = flat_cost,
                            .context = price,
                            .element_bytes = price->element_bytes,
                            .in_place = true};
    PathTable *paths = path_table_new(arena, mesh, net, &flat_price);
    if (!path_find(paths, value, &from, &sums, &group->scatter) ||
        !path_find(paths, value, &sums, &to, &group->reduce) ||
        !path_find(paths, value, &to, &home, &group->gather) ||
        !path_find(paths, value, &home, &whole, &group->fetch))
        BUG("no path for the gradients of a group");
}

/* ---- uses ---- */

void stage_find_uses(Program *program, StageProgram *stage)
{
    for (int i = 0; i < stage->links; i++) {
        int params = stage->link[i].body->graph->params.n;
        stage->link[i].bucket = ARENA_ARRAY(program->arena, int, params + 1);
        stage->link[i].member = ARENA_ARRAY(program->arena, int, params + 1);
        for (int p = 0; p < params; p++)
            stage->link[i].bucket[p] = stage->link[i].member[p] = NONE;
    }
    for (int b = 0; b < stage->buckets.n; b++) {
        Bucket *bucket = &stage->buckets.at[b];
        const Group *group = &stage->groups.at[bucket->group];
        for (int k = 0; k < group->members.n; k++) {
            const GroupMember *member = &group->members.at[k];
            const NetParam *param = &program->net->params.at[member->net_param];
            if (member->offset < bucket->begin ||
                member->offset >= bucket->begin + bucket->elements)
                continue;
            for (int use = 0; use < param->uses; use++) {
                int at = stage_find_link(stage, param->link[use]);
                if (at == NONE)
                    continue;
                stage->link[at].bucket[param->use_param[use]] = b;
                stage->link[at].member[param->use_param[use]] = k;
                bucket->open_link =
                    bucket->open_link == NONE || at > bucket->open_link ? at : bucket->open_link;
            }
        }
    }
}

Life bucket_life(int bucket, int close_link, int open_link, int last_link, int64_t elements,
                 int width)
{
    int last = open_link < last_link ? open_link + 1 : last_link;
    return (Life){bucket, num_align64(elements * width), close_link, last};
}

/* ---- gaps ---- */

/* Where a bucket's accumulators are whole on the device for a while, or NONE. What they hold
 * between members goes home where they are the home's place. */
static int64_t whole_at(const StageProgram *stage, const Bucket *bucket)
{
    const Group *group = &stage->groups.at[bucket->group];
    return group->buffered || !group->far_gradients ? bucket->buffer : bucket->gradient[MEMORY_HBM];
}

/* Some other bucket has a member over these bytes. */
static bool others_write(const Program *program, const StageProgram *stage, int own, int64_t begin,
                         int64_t end)
{
    int width = dtype_bytes(program->recipe->gradient);
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        const Group *group = &stage->groups.at[bucket->group];
        int64_t whole = whole_at(stage, bucket);
        if (b == own || whole == NONE || whole >= end || whole + bucket->elements * width <= begin)
            continue;
        for (int k = 0; k < group->members.n; k++) {
            const GroupMember *member = &group->members.at[k];
            int64_t at = whole + (member->offset - bucket->begin) * width;
            if (member->offset >= bucket->begin &&
                member->offset < bucket->begin + bucket->elements && at < end &&
                begin < at + member->elements * width)
                return true;
        }
    }
    return false;
}

static void add_gap(const Program *program, StageProgram *stage, int b, int64_t begin, int64_t end)
{
    Bucket *bucket = &stage->buckets.at[b];
    int width = dtype_bytes(program->recipe->gradient);
    int64_t from = whole_at(stage, bucket) + (begin - bucket->begin) * width;
    bool own = bucket->buffer == NONE; /* hops bring and take it */
    if (begin < end && (own || others_write(program, stage, b, from, from + (end - begin) * width)))
        vec_push(program->arena, &bucket->gaps) = (FlatGap){begin, end - begin};
}

static void find_gaps(const Program *program, StageProgram *stage, int b)
{
    const Bucket *bucket = &stage->buckets.at[b];
    const Group *group = &stage->groups.at[bucket->group];
    int64_t at = bucket->begin, end = bucket->begin + bucket->elements;
    for (int k = 0; k < group->members.n; k++) {
        const GroupMember *member = &group->members.at[k];
        if (member->offset < at || member->offset >= end)
            continue;
        add_gap(program, stage, b, at, member->offset);
        at = member->offset + member->elements;
    }
    add_gap(program, stage, b, at, end);
}

/* ---- buffers ---- */

/* Of a rank's block of gradients, or of weights. */
static int64_t block_elements(const Program *program, const StageProgram *stage,
                              const Bucket *bucket, bool weights)
{
    const Group *group = &stage->groups.at[bucket->group];
    return bucket->elements / list_extent(&program->plan->mesh,
                                          weights ? &group->weight_share : &group->gradient_share);
}

/* Places of far gradients on the device, and in memories between. */
static int64_t place_far_gradients(const Program *program, StageProgram *stage, int64_t at)
{
    Memory home = program->plan->memory[KEPT_GRADIENTS];
    Arena *scratch = arena_new("gradients");
    Life *life = ARENA_ARRAY(scratch, Life, stage->buckets.n + 1);
    int64_t *offset = ARENA_ARRAY(scratch, int64_t, stage->buckets.n + 1);
    for (int m = MEMORY_HBM; m < (int)home; m++) {
        int n = 0;
        for (int b = 0; b < stage->buckets.n; b++) {
            const Bucket *bucket = &stage->buckets.at[b];
            const Group *group = &stage->groups.at[bucket->group];
            if (group->far_gradients)
                life[n++] = gradient_life(
                    group, b, bucket->close_link, bucket->open_link,
                    stage->chunk[stage->link[bucket->open_link].chunk].end - 1, (Memory)m,
                    carried_bytes(home, block_elements(program, stage, bucket, false),
                                  dtype_bytes(program->recipe->gradient)));
        }
        int64_t *end = m == MEMORY_HBM ? &at : &stage->far_bytes[m];
        *end = m == MEMORY_HBM ? *end : (*end + FILE_GRAIN - 1) / FILE_GRAIN * FILE_GRAIN;
        stage->sums[m] = memory_address((Memory)m, *end);
        stage->sums_bytes[m] = lives_place(life, n, offset);
        for (int i = 0; i < n; i++)
            stage->buckets.at[life[i].id].gradient[m] = stage->sums[m] + offset[i];
        *end += stage->sums_bytes[m];
    }
    arena_free(scratch);
    return at;
}

/* Places in the host's memory of weights that live in files: those of neighbouring links apart, as
 * their buffers are. */
static void place_between(const Program *program, StageProgram *stage)
{
    if (program->plan->memory[KEPT_WEIGHTS] != MEMORY_NVME)
        return;
    Arena *scratch = arena_new("between");
    Life *life = ARENA_ARRAY(scratch, Life, stage->buckets.n + 1);
    int64_t *offset = ARENA_ARRAY(scratch, int64_t, stage->buckets.n + 1);
    int n = 0;
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        if (weight_memory(program, &stage->groups.at[bucket->group]) != MEMORY_NVME)
            continue;
        life[n] = bucket_life(b, bucket->close_link, bucket->open_link,
                              stage->chunk[stage->link[bucket->open_link].chunk].end - 1, 0, 0);
        life[n++].bytes = carried_bytes(MEMORY_NVME, block_elements(program, stage, bucket, true),
                                        dtype_bytes(program->recipe->weight));
    }
    int64_t bytes = lives_place(life, n, offset), *end = &stage->far_bytes[MEMORY_DRAM];
    *end = (*end + FILE_GRAIN - 1) / FILE_GRAIN * FILE_GRAIN;
    stage->between = memory_address(MEMORY_DRAM, *end);
    stage->between_back = stage->pairings.n > 0 ? bytes : 0;
    stage->between_bytes = bytes + stage->between_back;
    for (int i = 0; i < n; i++)
        stage->buckets.at[life[i].id].between = stage->between + offset[i];
    *end += stage->between_bytes;
    arena_free(scratch);
}

int64_t stage_place_buffers(const Program *program, StageProgram *stage, int64_t at)
{
    Arena *scratch = arena_new("buffers");
    Life *life = ARENA_ARRAY(scratch, Life, stage->buckets.n + 1);
    int64_t *offset = ARENA_ARRAY(scratch, int64_t, stage->buckets.n + 1);
    for (int weights = 1; weights >= 0; weights--) {
        DType dtype = weights ? program->recipe->weight : program->recipe->gradient;
        int n = 0;
        for (int b = 0; b < stage->buckets.n; b++) {
            const Bucket *bucket = &stage->buckets.at[b];
            const Group *group = &stage->groups.at[bucket->group];
            if (weights ? group_fetches(group) : group->buffered)
                life[n++] = bucket_life(b, bucket->close_link, bucket->open_link,
                                        stage->chunk[stage->link[bucket->open_link].chunk].end - 1,
                                        bucket->elements, dtype_bytes(dtype));
        }
        int64_t bytes = lives_place(life, n, offset);
        if (weights && stage->pairings.n > 0) { /* a link of either row has its own at once */
            stage->fetched_back = bytes;
            bytes *= 2;
        }
        for (int i = 0; i < n; i++)
            *(weights ? &stage->buckets.at[life[i].id].fetch
                      : &stage->buckets.at[life[i].id].buffer) = at + offset[i];
        *(weights ? &stage->fetched : &stage->buffers) = at;
        *(weights ? &stage->fetched_bytes : &stage->buffers_bytes) = bytes;
        at += bytes;
    }
    place_between(program, stage);
    at = place_far_gradients(program, stage, at);
    for (int b = 0; b < stage->buckets.n; b++)
        if (whole_at(stage, &stage->buckets.at[b]) != NONE)
            find_gaps(program, stage, b);
    arena_free(scratch);
    return at;
}

/* ---- far gradients ---- */

int gradient_first_link(const Group *group, int close_link, int open_link)
{
    return group->buffered ? close_link : open_link;
}

Life gradient_life(const Group *group, int bucket, int close_link, int open_link, int last_link,
                   Memory memory, int64_t bytes)
{
    int last = gradient_first_link(group, close_link, open_link) + 1 + 2 * (int)memory;
    return (Life){bucket, num_align64(bytes), close_link, last < last_link ? last : last_link};
}

int64_t carried_bytes(Memory home, int64_t elements, int width)
{
    int64_t grain = home == MEMORY_NVME ? FILE_GRAIN : 1;
    return (elements * width + grain - 1) / grain * grain;
}

bool gradient_share_hops(Memory home)
{
    return home != MEMORY_NVME;
}

void gradient_place_homes(const Program *program, StageProgram *stage, int g)
{
    Memory home = program->plan->memory[KEPT_GRADIENTS];
    int64_t *end = &stage->far_bytes[home];
    stage->groups.at[g].gradient = memory_address(home, *end);
    for (int b = stage->buckets.n - 1; b >= 0; b--) { /* from the end of a group to its begin */
        Bucket *bucket = &stage->buckets.at[b];
        if (bucket->group != g)
            continue;
        bucket->gradient[home] = memory_address(home, *end);
        *end += num_align64(carried_bytes(home, block_elements(program, stage, bucket, false),
                                          dtype_bytes(program->recipe->gradient)));
    }
}

/* ---- far weights ---- */

Memory weight_memory(const Program *program, const Group *group)
{
    return group->far ? program->plan->memory[KEPT_WEIGHTS] : MEMORY_HBM;
}

void weight_lay_home(const Program *program, StageProgram *stage, int g)
{
    Group *group = &stage->groups.at[g];
    int width = dtype_bytes(program->recipe->weight);
    group->weight_elements = 0;
    for (int b = stage->buckets.n - 1; b >= 0; b--) { /* from the end of a group to its begin */
        Bucket *bucket = &stage->buckets.at[b];
        if (bucket->group != g)
            continue;
        bucket->weight_begin = group->weight_elements;
        group->weight_elements +=
            carried_bytes(weight_memory(program, group),
                          block_elements(program, stage, bucket, true), width) /
            width;
    }
}

/* ---- addresses ---- */

int64_t gradient_base(const Program *program, const Group *group, const Bucket *bucket,
                      int coordinate)
{
    int width = dtype_bytes(program->recipe->gradient);
    const AtomList *list = &group->gradient_share;
    int64_t begin = bucket_block_begin(program, bucket, list, coordinate);
    if (group->far_gradients) /* at their place on the device */
        return bucket->gradient[MEMORY_HBM] - begin * width;
    return group->gradient +
           (bucket->begin / list_extent(&program->plan->mesh, list) - begin) * width;
}

int64_t weight_base(const Program *program, const Group *group, const Bucket *bucket,
                    int coordinate)
{
    int64_t begin = bucket_block_begin(program, bucket, &group->weight_share, coordinate);
    return group->weight + (bucket->weight_begin - begin) * dtype_bytes(program->recipe->weight);
}

int64_t home_bytes(const Group *group, int ranks, int width)
{
    return num_align64(group->elements / ranks * width);
}

bool group_folds_ahead(const Group *group)
{
    int n = group->scatter.n;
    return n > 0 && group->scatter.move[n - 1].kind != MOVE_SLICE;
}

bool group_fetches(const Group *group)
{
    return group->far || group->weight_share.n > 0;
}

int64_t bucket_fetched(const StageProgram *stage, const Bucket *bucket, bool back)
{
    return bucket->fetch + (back ? stage->fetched_back : 0);
}
