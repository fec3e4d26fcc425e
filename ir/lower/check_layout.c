/* check_layout.c - the static proof of a layout: regions apart, groups and buckets whole, rings
 * filled. */
#include "ir/lower/check_in.h"
#include "ir/lower/state.h"

#include <stdlib.h>
#include <string.h>

const char *const region_text[REGION_COUNT] = {"scalars",
                                               "weights",
                                               "gradients",
                                               "first moments",
                                               "second moments",
                                               "masters",
                                               "ring",
                                               "passed-on values",
                                               "scratch",
                                               "fetched weights",
                                               "gradient buffers",
                                               "slots of state",
                                               "saved values away",
                                               "far gradients at work"};

enum { GRAIN = 64 };

static int64_t up(int64_t bytes)
{
    return (bytes + GRAIN - 1) & -(int64_t)GRAIN;
}

static int by_begin(const void *a, const void *b)
{
    const Region *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static void put_region(RegionList *list, RegionKind kind, int index, int64_t begin, int64_t bytes)
{
    if (bytes > 0)
        list->at[list->n++] = (Region){kind, index, 0, begin, begin + bytes};
}

int64_t slot_of_version(const StageProgram *stage, int version)
{
    return version % (stage->delay + 1) * stage->versions.stride;
}

static void put_ring_region(RegionList *list, int chunk, int kind, const Ring *ring)
{
    int64_t bytes = ring->stride * ring->n;
    if (bytes > 0)
        list->at[list->n++] = (Region){REGION_RING, kind, chunk, ring->base, ring->base + bytes};
}

/* Where the state of a bucket lives. */
static Memory home_of(const StageProgram *stage, int bucket)
{
    return address_memory(stage->groups.at[stage->buckets.at[bucket].group].moment1);
}

/* Of the first buckets, those whose state lives behind a memory. */
static int passing(const StageProgram *stage, int buckets, Memory memory)
{
    int n = 0;
    for (int b = 0; b < buckets; b++)
        n += home_of(stage, b) > memory;
    return n;
}

/* Three buckets are at work at once, and two more for each memory between. */
static int slots_of(const StageProgram *stage, Memory memory)
{
    int all = passing(stage, stage->buckets.n, memory), most = 3 + 2 * (int)memory;
    return all < most ? all : most;
}

int64_t slot_address(const Program *program, const StageProgram *stage, Memory memory, int bucket,
                     StateField field)
{
    int64_t slot = passing(stage, bucket, memory) % slots_of(stage, memory);
    return stage->state_slot[memory] +
           (slot * (2 + program->recipe->has_master) + field) * stage->state_slot_bytes[memory];
}

int64_t state_at_update(const Program *program, const StageProgram *stage, int bucket,
                        StateField field)
{
    const Bucket *own = &stage->buckets.at[bucket];
    if (home_of(stage, bucket) == MEMORY_HBM)
        return group_field(&stage->groups.at[own->group], field) +
               own->share_begin * dtype_bytes(program->recipe->master);
    return slot_address(program, stage, MEMORY_HBM, bucket, field);
}

/* Homes of saved values in another memory, and where they pass through one between. */
static void put_away_regions(RegionList *list, const StageProgram *stage, int c)
{
    const Chunk *chunk = &stage->chunk[c];
    for (int kind = 0; kind < SAVED_KINDS; kind++) {
        const Ring *ring = &chunk->away[kind], *between = &chunk->between[kind];
        int64_t area = between->stride * between->n;
        put_region(list, REGION_AWAY, kind, ring->base, ring->stride * ring->n);
        put_region(list, REGION_AWAY, kind, between->base, area);
        for (int i = list->n - (ring->stride > 0) - (area > 0); i < list->n; i++)
            list->at[i].chunk = c;
    }
}

RegionList regions_of(Arena *arena, const Program *program, const StageProgram *stage)
{
    const Recipe *recipe = program->recipe;
    RegionList list = {0, ARENA_ARRAY(arena, Region,
                                      (5 + stage->delay) * stage->groups.n +
                                          stage->chunks * (RING_COUNT + 2 * SAVED_KINDS) + 16)};
    int pairs = program->flows ? stage->lag + 2 : 1; /* of {loss, norm2} */
    const Mesh *mesh = &program->plan->mesh;
    put_region(&list, REGION_SCALARS, 0, stage->scalars, 64 * SCALAR_COUNT + PAIR_BYTES * pairs);
    for (int g = 0; g < stage->groups.n; g++) {
        const Group *group = &stage->groups.at[g];
        int64_t state = up(group->state_elements * dtype_bytes(recipe->master));
        for (int version = 0; version <= stage->delay; version++)
            put_region(&list, REGION_WEIGHT, g, group->weight + slot_of_version(stage, version),
                       up(group->weight_elements * dtype_bytes(recipe->weight)));
        int64_t gradients = up(group->elements / list_extent(mesh, &group->gradient_share) *
                               dtype_bytes(recipe->gradient));
        put_region(&list, REGION_GRADIENT, g, group->gradient,
                   group->far_gradients ? sums_home_bytes(program, stage, g) : gradients);
        put_region(&list, REGION_MOMENT1, g, group->moment1, state);
        if (group->moment2 != NONE)
            put_region(&list, REGION_MOMENT2, g, group->moment2, state);
        if (group->master != NONE)
            put_region(&list, REGION_MASTER, g, group->master, state);
    }
    for (int c = 0; c < stage->chunks; c++)
        for (int k = 0; k < RING_COUNT; k++)
            put_ring_region(&list, c, k, &stage->chunk[c].ring[k]);
    for (int c = 0; c < stage->chunks; c++)
        put_away_regions(&list, stage, c);
    for (int i = 0; i < 4; i++)
        put_region(&list, REGION_PASS, i, stage->pass[i], stage->pass_bytes);
    put_region(&list, REGION_SCRATCH, 0, stage->scratch, stage->scratch_bytes);
    put_region(&list, REGION_FETCHED, 0, stage->fetched, stage->fetched_bytes);
    put_region(&list, REGION_FETCHED, 1, stage->between, stage->between_bytes);
    put_region(&list, REGION_BUFFER, 0, stage->buffers, stage->buffers_bytes);
    for (int m = 0; m < (int)program->plan->memory[KEPT_GRADIENTS]; m++)
        put_region(&list, REGION_SUMS, m, stage->sums[m], stage->sums_bytes[m]);
    for (int m = 0; m < MEMORY_COUNT; m++)
        put_region(&list, REGION_SLOTS, m, stage->state_slot[m],
                   slots_of(stage, (Memory)m) * (2 + recipe->has_master) *
                       stage->state_slot_bytes[m]);
    qsort(list.at, (size_t)list.n, sizeof list.at[0], by_begin);
    return list;
}

const Region *region_find(const RegionList *regions, int64_t address, int64_t bytes)
{
    int low = 0, high = regions->n;
    while (low < high) {
        int mid = (low + high) / 2;
        if (regions->at[mid].end <= address)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == regions->n || address < regions->at[low].begin ||
        address + bytes > regions->at[low].end)
        return NULL;
    return &regions->at[low];
}

/* The parameter whose element lies there, or NULL: padding. */
static const char *parameter_there(const Program *program, const Group *group, int64_t element)
{
    for (int k = 0; k < group->members.n; k++) {
        const GroupMember *member = &group->members.at[k];
        if (element >= member->offset && element < member->offset + member->elements)
            return program->net->params.at[member->net_param].name;
    }
    return NULL;
}

const char *region_words(Arena *arena, const Program *program, const StageProgram *stage,
                         const Region *region, int64_t address)
{
    const char *kind = region_text[region->kind], *parameter = NULL;
    switch (region->kind) {
    case REGION_RING: {
        const Ring *ring = &stage->chunk[region->chunk].ring[region->index];
        return arena_printf(arena, "%s ring, slot %lld of %d", ring_text[region->index],
                            (long long)((address - ring->base) / ring->stride), ring->n);
    }
    case REGION_WEIGHT:
    case REGION_GRADIENT: {
        const Group *group = &stage->groups.at[region->index];
        bool weight = region->kind == REGION_WEIGHT;
        const AtomList *cut = weight ? &group->weight_share : &group->gradient_share;
        int width = dtype_bytes(weight ? program->recipe->weight : program->recipe->gradient);
        if (cut->n == 0 && address_memory(region->begin) == MEMORY_HBM)
            parameter = parameter_there(program, group, (address - region->begin) / width);
        break;
    }
    case REGION_SCALARS:
    case REGION_SCRATCH:
    case REGION_FETCHED:
    case REGION_BUFFER:
        return kind;
    default:
        break;
    }
    return parameter ? arena_printf(arena, "%s of group %d, %s", kind, region->index, parameter)
                     : arena_printf(arena, "%s %d", kind, region->index);
}

static bool check_regions(Check *check, const StageProgram *stage)
{
    bool good = true;
    RegionList list = regions_of(check->arena, check->program, stage);
    for (int i = 0; i < list.n; i++) {
        const Region *region = &list.at[i];
        const char *name = region_words(check->arena, check->program, stage, region, region->begin);
        bool of_files = region->kind == REGION_SLOTS && region->index > MEMORY_HBM;
        int grain = of_files ? FILE_GRAIN : GRAIN;
        if (region->begin % grain != 0)
            good =
                check_fault(check, "stage %d: the %s begin at byte %lld, not at a multiple of %d",
                            stage->index, name, (long long)region->begin, grain);
        Memory memory = region->begin < 0 ? MEMORY_HBM : address_memory(region->begin);
        int64_t room = memory == MEMORY_HBM    ? stage->arena_bytes
                       : memory < MEMORY_COUNT ? stage->far_bytes[memory]
                                               : 0;
        if (region->begin < 0 || region->end > memory_address(memory, room))
            good =
                check_fault(check, "stage %d: the %s, bytes %lld to %lld, leave the arena of %lld",
                            stage->index, name, (long long)region->begin, (long long)region->end,
                            (long long)room);
        if (i > 0 && region->begin < list.at[i - 1].end)
            good = check_fault(
                check, "stage %d: the %s and the %s share bytes %lld to %lld", stage->index,
                region_words(check->arena, check->program, stage, &list.at[i - 1], region->begin),
                name, (long long)region->begin,
                (long long)(region->end < list.at[i - 1].end ? region->end : list.at[i - 1].end));
    }
    return good;
}

/* ---- groups and buckets ---- */

int member_uses(const Program *program, const StageProgram *stage, const Group *group,
                const GroupMember *member)
{
    const NetParam *param = &program->net->params.at[member->net_param];
    int uses = 0;
    (void)group;
    for (int use = 0; use < param->uses; use++) {
        int at = stage_find_link(stage, param->link[use]);
        uses += at != NONE && stage->link[at].body->acc_copy[param->use_param[use]] != NONE;
    }
    return uses;
}

static bool same_shards(const Placement *a, const Placement *b)
{
    Placement x = *a, y = *b;
    x.partial = y.partial = 0;
    x.monoid = y.monoid = MONOID_NONE;
    return place_equal(&x, &y);
}

/* The bucket of the stage that holds a member. */
static const Bucket *bucket_with(const StageProgram *stage, const Group *group,
                                 const GroupMember *member)
{
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        if (&stage->groups.at[bucket->group] == group && member->offset >= bucket->begin &&
            member->offset < bucket->begin + bucket->elements)
            return bucket;
    }
    return NULL;
}

/* Every link of the stage that uses a member finds it where it is: in its group, or in its bucket
 * where that is whole for a while. */
static bool check_addresses(Check *check, const StageProgram *stage, const Group *group,
                            const GroupMember *member)
{
    const NetParam *param = &check->program->net->params.at[member->net_param];
    const Recipe *recipe = check->program->recipe;
    const Bucket *bucket = bucket_with(stage, group, member);
    if (!bucket)
        return check_fault(check, "stage %d: %s is in no bucket", stage->index, param->name);
    int64_t behind = member->offset - bucket->begin;
    int64_t weight_at = bucket->fetch == NONE
                            ? group->weight + member->offset * dtype_bytes(recipe->weight)
                            : bucket->fetch + behind * dtype_bytes(recipe->weight);
    int64_t whole = group->buffered        ? bucket->buffer
                    : group->far_gradients ? bucket->gradient[MEMORY_HBM]
                                           : NONE;
    int64_t gradient_at = whole == NONE
                              ? group->gradient + member->offset * dtype_bytes(recipe->gradient)
                              : whole + behind * dtype_bytes(recipe->gradient);
    bool good = true;
    for (int use = 0; use < param->uses; use++) {
        int at = stage_find_link(stage, param->link[use]), p = param->use_param[use];
        if (at == NONE)
            continue;
        const StageLink *link = &stage->link[at];
        if (link->weight[p] != weight_at || link->gradient[p] != gradient_at ||
            link->bucket[p] != bucket - stage->buckets.at)
            good = check_fault(check, "stage %d: link %d looks for %s elsewhere than in its group",
                               stage->index, at, param->name);
    }
    return good;
}

/* The group steps whole matrices where the job and the model say so, and these. */
static bool same_step(const Program *program, const Group *group, const Graph *graph, int param,
                      const Copy *acc)
{
    MatrixKey key;
    int64_t count, elements;
    bool whole = matrix_key(program->net, graph, param, &acc->place, &program->plan->mesh,
                            &program->plan->job, &key, &count, &elements);
    if (!whole || group->matrix == NONE)
        return !whole && group->matrix == NONE && group->unit == 1;
    return group->matrix < program->matrices.n && group->unit == matrix_unit(count, elements) &&
           memcmp(&program->matrices.at[group->matrix].key, &key, sizeof key) == 0;
}

static bool check_member(Check *check, const StageProgram *stage, const Group *group,
                         const GroupMember *member)
{
    const Program *program = check->program;
    const NetParam *param = &program->net->params.at[member->net_param];
    const Body *body = stage->link[member->link].body;
    if (body->acc_copy[member->param] == NONE || body->param_copy[member->param] == NONE)
        return check_fault(check, "stage %d: %s has a gradient and no accumulator", stage->index,
                           param->name);
    const Copy *weight = &body->copies.at[body->param_copy[member->param]];
    const Copy *acc = &body->copies.at[body->acc_copy[member->param]];
    const Homes homes = plan_param_homes(program->plan, param);
    Memory home = home_memory(program->plan->memory, &homes, KEPT_STATE);
    bool good = true;
    if (address_memory(group->moment1) != home || group->state_home != home)
        good = check_fault(check, "stage %d: the state of %s does not live in %s", stage->index,
                           param->name, memory_text[home]);
    if (!same_shards(&weight->place, &acc->place) || weight->place.partial)
        good = check_fault(check, "stage %d: the gradient of %s is cut otherwise than its weight",
                           stage->index, param->name);
    if (place_sharded(&acc->place) != group->sharded || acc->place.partial != group->partial)
        good = check_fault(check,
                           "stage %d: the gradient of %s is placed otherwise than its group says",
                           stage->index, param->name);
    int64_t whole = value_elements(program->net, &body->graph->values.at[weight->value]);
    if (member->elements != acc->elements || member->elements != weight->elements ||
        member->elements * mesh_extent(&program->plan->mesh, group->sharded) != whole)
        good = check_fault(
            check, "stage %d: the blocks of %s, %lld elements each, do not make up its %lld",
            stage->index, param->name, (long long)member->elements, (long long)whole);
    good &= check_addresses(check, stage, group, member);
    if (group->rate != body->graph->params.at[member->param].rate)
        return check_fault(check,
                           "stage %d: %s moves by another rule in its group than in the model",
                           stage->index, program->net->params.at[member->net_param].name);
    if (!same_step(program, group, body->graph, member->param, acc))
        good = check_fault(check,
                           "stage %d: %s is stepped as another matrix than it is, or element by "
                           "element, or the other way round",
                           stage->index, param->name);
    if (member->decay != body->graph->params.at[member->param].decay)
        good = check_fault(check,
                           "stage %d: %s has another weight decay in its group than in the model",
                           stage->index, param->name);
    return good;
}

static bool check_buckets(Check *check, const StageProgram *stage, int g)
{
    const Group *group = &stage->groups.at[g];
    int64_t covered = 0, share = 0;
    int weight = dtype_bytes(check->program->recipe->weight),
        ranks = list_extent(&check->program->plan->mesh, &group->weight_share);
    bool file = address_memory(group->weight) == MEMORY_NVME;
    bool good = true;
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        if (bucket->group != g)
            continue;
        covered += bucket->elements;
        share += bucket->share_elements;
        for (int c = 0; c < b; c++) {
            const Bucket *other = &stage->buckets.at[c];
            if (other->group != g)
                continue;
            if (bucket->begin < other->begin + other->elements &&
                other->begin < bucket->begin + bucket->elements)
                good = check_fault(check, "stage %d: buckets %d and %d of group %d share elements",
                                   stage->index, c, b, g);
            if (bucket->weight_begin < other->weight_begin + other->elements / ranks &&
                other->weight_begin < bucket->weight_begin + bucket->elements / ranks)
                good = check_fault(check, "stage %d: buckets %d and %d of group %d share weights",
                                   stage->index, c, b, g);
            if (bucket->share_begin < other->share_begin + other->share_elements &&
                other->share_begin < bucket->share_begin + bucket->share_elements)
                good = check_fault(check,
                                   "stage %d: buckets %d and %d of group %d share optimizer state",
                                   stage->index, c, b, g);
        }
        int64_t whole = file ? FILE_GRAIN : weight, end = bucket->elements / ranks * weight;
        if (bucket->weight_begin < 0 || bucket->weight_begin * weight % whole != 0 ||
            bucket->weight_begin * weight + (end + whole - 1) / whole * whole >
                group->weight_elements * weight)
            good =
                check_fault(check, "stage %d: the weights of bucket %d leave the home of group %d",
                            stage->index, b, g);
        int extent = list_extent(&check->program->plan->mesh, &group->share);
        if (bucket->begin < 0 || bucket->begin + bucket->elements > group->elements ||
            bucket->share_begin < 0 ||
            bucket->share_begin + bucket->share_elements > group->state_elements ||
            bucket->share_elements * extent != bucket->elements ||
            bucket->begin % group->unit != 0 || bucket->share_elements % group->unit != 0)
            good = check_fault(
                check,
                "stage %d: bucket %d does not fit group %d or does not divide into its %d shares",
                stage->index, b, g, extent);
    }
    if (covered != group->elements || group->state_elements < share ||
        share != group->share_elements)
        good =
            check_fault(check, "stage %d: the buckets of group %d hold %lld of its %lld elements",
                        stage->index, g, (long long)covered, (long long)group->elements);
    return good;
}

static bool follow(Check *check, const StageProgram *stage, int g, const Path *path,
                   const Placement *want, const char *what, Placement *place)
{
    for (int i = 0; i < path->n; i++)
        if (!move_apply(place, &path->move[i], place))
            return check_fault(check, "stage %d: the %s of group %d's %s may not be", stage->index,
                               move_text[path->move[i].kind], g, what);
    return place_equal(place, want) ||
           check_fault(check, "stage %d: the %s of group %d do not end where they should",
                       stage->index, what, g);
}

/* The way of a flat gradient and of its weights, replayed on [c, e]: from home to home, and in the
 * end nothing is left to add. */
static bool check_paths(Check *check, const StageProgram *stage, int g)
{
    const Group *group = &stage->groups.at[g];
    Placement whole = place_replicate();
    int8_t n = 0;
    for (int a = MAX_ATOMS - 1; a >= 0; a--)
        if (group->sharded >> a & 1)
            whole.shard[0].at[n++] = (int8_t)a;
    whole.shard[0].n = n;
    Placement place = whole, sums = whole, share = whole, home = whole;
    place.partial = group->partial;
    place.monoid = group->partial ? MONOID_SUM : MONOID_NONE;
    sums.shard[1] = group->gradient_share;
    sums.partial = (AtomSet)(group->partial & ~list_set(&group->gradient_share));
    sums.monoid = sums.partial ? MONOID_SUM : MONOID_NONE;
    share.shard[1] = group->share;
    home.shard[1] = group->weight_share;
    return follow(check, stage, g, &group->scatter, &sums, "gradients of a micro-batch", &place) &&
           follow(check, stage, g, &group->reduce, &share, "gradients", &place) &&
           follow(check, stage, g, &group->gather, &home, "updated weights", &place) &&
           follow(check, stage, g, &group->fetch, &whole, "weights for a use", &place);
}

/* Each list begins with the one before, and is its part of what cuts the optimizer's share. */
static bool check_shares(Check *check, const StageProgram *stage, int g)
{
    const Group *group = &stage->groups.at[g];
    const AtomList *list[3] = {&group->weight_share, &group->gradient_share, &group->share};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < list[k]->n; i++)
            if (i >= list[k + 1]->n || list[k]->at[i] != list[k + 1]->at[i])
                return check_fault(check, "stage %d: the homes of group %d do not nest",
                                   stage->index, g);
    return (group->gradient_share.n == 0 || group->buffered) ||
           check_fault(check, "stage %d: group %d cuts gradients that it never scatters",
                       stage->index, g);
}

static bool check_group(Check *check, const StageProgram *stage, int g)
{
    const Group *group = &stage->groups.at[g];
    bool good = true;
    int64_t end = 0;
    for (int k = 0; k < group->members.n; k++) {
        const GroupMember *member = &group->members.at[k];
        if (member->offset < end || member->offset + member->elements > group->elements)
            good = check_fault(
                check, "stage %d: %s overlaps its neighbour in group %d, or leaves it",
                stage->index, check->program->net->params.at[member->net_param].name, g);
        if (member->offset % group->unit != 0)
            good = check_fault(check, "stage %d: %s is cut by a share of group %d", stage->index,
                               check->program->net->params.at[member->net_param].name, g);
        end = member->offset + member->elements;
        good &= check_member(check, stage, group, member);
    }
    if (group->sharded & (group->partial | list_set(&group->share)))
        good = check_fault(check, "stage %d: group %d uses an atom twice", stage->index, g);
    good &= check_buckets(check, stage, g);
    good &= check_shares(check, stage, g);
    return check_paths(check, stage, g) && good;
}

/* Every parameter that is trained in this stage is in one group, once. */
static bool check_members_whole(Check *check, const StageProgram *stage)
{
    const Net *net = check->program->net;
    bool good = true;
    for (int p = 0; p < net->params.n; p++) {
        const NetParam *param = &net->params.at[p];
        bool here = false;
        for (int use = 0; use < param->uses; use++)
            here |= stage_find_link(stage, param->link[use]) != NONE &&
                    net->classes.at[param->use_class[use]]->params.at[param->use_param[use]].grad !=
                        NONE;
        int found = 0;
        for (int g = 0; g < stage->groups.n; g++)
            for (int k = 0; k < stage->groups.at[g].members.n; k++)
                found += stage->groups.at[g].members.at[k].net_param == p;
        if (found != here)
            good = check_fault(check, "stage %d: %s is in %d gradient groups", stage->index,
                               param->name, found);
    }
    return good;
}

static bool check_ring(Check *check, const StageProgram *stage, int kind, const Ring *ring)
{
    int micros = check->program->plan->micro_batches;
    bool good = ring->stride >= 0 && ring->n >= 0 && (ring->stride == 0 || ring->n > 0) &&
                (ring->n <= micros || check->program->flows);
    for (int micro = 0; good && ring->slot && micro < micros; micro++)
        good = ring->slot[micro] >= 0 && ring->slot[micro] < ring->n;
    return good ||
           check_fault(check,
                       "stage %d: the %s ring has %d slots of %lld bytes for %d micro-batches",
                       stage->index, ring_text[kind], ring->n, (long long)ring->stride, micros);
}

static bool check_rings(Check *check, const StageProgram *stage)
{
    bool good = true;
    for (int c = 0; c < stage->chunks; c++)
        for (int k = 0; k < RING_COUNT; k++)
            good &= check_ring(check, stage, k, &stage->chunk[c].ring[k]);
    return good;
}

/* As many versions as the weights may be stale, and room for the numbers on their way. */
static bool check_versions(Check *check, const StageProgram *stage)
{
    const Ring *pair = &stage->pair;
    bool several = check->program->flows;
    int64_t first = stage->scalars + 64 * SCALAR_COUNT;
    bool good = stage->versions.n == stage->delay + 1 &&
                pair->n == (several ? stage->lag + 2 : 1) && pair->base == first &&
                pair->stride == PAIR_BYTES;
    return good ||
           check_fault(
               check,
               "stage %d: %d versions of the weights and %d slots of {loss, norm} for steps "
               "that are stale by %d, with entries up to %d ahead and %d behind",
               stage->index, stage->versions.n, pair->n, stage->delay, stage->ahead, stage->lag);
}

bool check_layout(Check *check, const StageProgram *stage)
{
    bool good = check_regions(check, stage);
    good &= check_versions(check, stage);
    good &= check_rings(check, stage);
    good &= check_members_whole(check, stage);
    for (int g = 0; g < stage->groups.n; g++)
        good &= check_group(check, stage, g);
    return check_buffers(check, stage) && good;
}
