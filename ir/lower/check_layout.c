/* check_layout.c - the static proof of a layout: regions apart, groups and buckets whole, rings
 * filled. */
#include "ir/lower/check_in.h"

#include <stdlib.h>

const char *const region_text[REGION_COUNT] = {"scalars",       "weights",          "gradients",
                                               "first moments", "second moments",   "masters",
                                               "ring",          "passed-on values", "scratch"};

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

static void put_ring_region(RegionList *list, int chunk, int kind, const Ring *ring)
{
    int64_t bytes = ring->stride * ring->n;
    if (bytes > 0)
        list->at[list->n++] = (Region){REGION_RING, kind, chunk, ring->base, ring->base + bytes};
}

RegionList regions_of(Arena *arena, const Program *program, const StageProgram *stage)
{
    const Recipe *recipe = program->recipe;
    RegionList list = {
        0, ARENA_ARRAY(arena, Region, 5 * stage->groups.n + stage->chunks * RING_COUNT + 6)};
    put_region(&list, REGION_SCALARS, 0, stage->scalars, 64 * SCALAR_COUNT);
    for (int g = 0; g < stage->groups.n; g++) {
        const Group *group = &stage->groups.at[g];
        int64_t state = up(group->share_elements * dtype_bytes(recipe->master));
        put_region(&list, REGION_WEIGHT, g, group->weight,
                   up(group->elements * dtype_bytes(recipe->weight)));
        put_region(&list, REGION_GRADIENT, g, group->gradient,
                   up(group->elements * dtype_bytes(recipe->gradient)));
        put_region(&list, REGION_MOMENT1, g, group->moment1, state);
        put_region(&list, REGION_MOMENT2, g, group->moment2, state);
        if (group->master != NONE)
            put_region(&list, REGION_MASTER, g, group->master, state);
    }
    for (int c = 0; c < stage->chunks; c++)
        for (int k = 0; k < RING_COUNT; k++)
            put_ring_region(&list, c, k, &stage->chunk[c].ring[k]);
    for (int i = 0; i < 4; i++)
        put_region(&list, REGION_PASS, i, stage->pass[i], stage->pass_bytes);
    put_region(&list, REGION_SCRATCH, 0, stage->scratch, stage->scratch_bytes);
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
        int width = dtype_bytes(region->kind == REGION_WEIGHT ? program->recipe->weight
                                                              : program->recipe->gradient);
        parameter = parameter_there(program, &stage->groups.at[region->index],
                                    (address - region->begin) / width);
        break;
    }
    case REGION_SCALARS:
    case REGION_SCRATCH:
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
        if (region->begin % GRAIN != 0)
            good =
                check_fault(check, "stage %d: the %s begin at byte %lld, not at a multiple of %d",
                            stage->index, name, (long long)region->begin, GRAIN);
        if (region->begin < 0 || region->end > stage->arena_bytes)
            good =
                check_fault(check, "stage %d: the %s, bytes %lld to %lld, leave the arena of %lld",
                            stage->index, name, (long long)region->begin, (long long)region->end,
                            (long long)stage->arena_bytes);
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
    int64_t address = group->gradient + member->offset * dtype_bytes(program->recipe->gradient);
    int uses = 0;
    for (int i = 0; i < stage->links; i++)
        for (int p = 0; p < stage->link[i].body->graph->params.n; p++)
            uses +=
                stage->link[i].body->acc_copy[p] != NONE && stage->link[i].gradient[p] == address;
    return uses;
}

static bool same_shards(const Placement *a, const Placement *b)
{
    Placement x = *a, y = *b;
    x.partial = y.partial = 0;
    x.monoid = y.monoid = MONOID_NONE;
    return place_equal(&x, &y);
}

static bool check_member(Check *check, const StageProgram *stage, const Group *group,
                         const GroupMember *member)
{
    const Program *program = check->program;
    const NetParam *param = &program->net->params.at[member->net_param];
    const StageLink *link = &stage->link[member->link];
    const Body *body = link->body;
    if (body->acc_copy[member->param] == NONE || body->param_copy[member->param] == NONE)
        return check_fault(check, "stage %d: %s has a gradient and no accumulator", stage->index,
                           param->name);
    const Copy *weight = &body->copies.at[body->param_copy[member->param]];
    const Copy *acc = &body->copies.at[body->acc_copy[member->param]];
    bool good = true;
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
    int64_t weight_at = group->weight + member->offset * dtype_bytes(program->recipe->weight);
    int64_t gradient_at = group->gradient + member->offset * dtype_bytes(program->recipe->gradient);
    if (link->weight[member->param] != weight_at || link->gradient[member->param] != gradient_at)
        good = check_fault(check, "stage %d: link %d looks for %s elsewhere than in its group",
                           stage->index, member->link, param->name);
    if (group->rate != body->graph->params.at[member->param].rate)
        return check_fault(check,
                           "stage %d: %s moves by another rule in its group than in the model",
                           stage->index, program->net->params.at[member->net_param].name);
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
            if (bucket->share_begin < other->share_begin + other->share_elements &&
                other->share_begin < bucket->share_begin + bucket->share_elements)
                good = check_fault(check,
                                   "stage %d: buckets %d and %d of group %d share optimizer state",
                                   stage->index, c, b, g);
        }
        int extent = list_extent(&check->program->plan->mesh, &group->share);
        if (bucket->begin < 0 || bucket->begin + bucket->elements > group->elements ||
            bucket->share_begin < 0 ||
            bucket->share_begin + bucket->share_elements > group->share_elements ||
            bucket->share_elements * extent != bucket->elements)
            good = check_fault(
                check,
                "stage %d: bucket %d does not fit group %d or does not divide into its %d shares",
                stage->index, b, g, extent);
    }
    if (covered != group->elements || share != group->share_elements)
        good =
            check_fault(check, "stage %d: the buckets of group %d hold %lld of its %lld elements",
                        stage->index, g, (long long)covered, (long long)group->elements);
    return good;
}

/* The path of a flat gradient, replayed on [c, e]: ends where the group says, and nothing is left
 * to add. */
static bool check_paths(Check *check, const StageProgram *stage, int g)
{
    const Group *group = &stage->groups.at[g];
    Placement place = place_replicate();
    int8_t n = 0;
    for (int a = MAX_ATOMS - 1; a >= 0; a--)
        if (group->sharded >> a & 1)
            place.shard[0].at[n++] = (int8_t)a;
    place.shard[0].n = n;
    Placement home = place;
    place.partial = group->partial;
    place.monoid = group->partial ? MONOID_SUM : MONOID_NONE;
    for (int i = 0; i < group->reduce.n; i++)
        if (!move_apply(&place, &group->reduce.move[i], &place))
            return check_fault(check, "stage %d: the %s of group %d's gradients may not be",
                               stage->index, move_text[group->reduce.move[i].kind], g);
    Placement want = home;
    want.shard[1] = group->share;
    if (!place_equal(&place, &want))
        return check_fault(
            check,
            "stage %d: the gradients of group %d do not end as sums on the optimizer's share",
            stage->index, g);
    for (int i = 0; i < group->gather.n; i++)
        if (!move_apply(&place, &group->gather.move[i], &place))
            return check_fault(check, "stage %d: the %s of group %d's weights may not be",
                               stage->index, move_text[group->gather.move[i].kind], g);
    if (!place_equal(&place, &home))
        return check_fault(check, "stage %d: the updated weights of group %d do not come home",
                           stage->index, g);
    return true;
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
        end = member->offset + member->elements;
        good &= check_member(check, stage, group, member);
    }
    if (group->sharded & (group->partial | list_set(&group->share)))
        good = check_fault(check, "stage %d: group %d uses an atom twice", stage->index, g);
    good &= check_buckets(check, stage, g);
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
                ring->n <= micros;
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

bool check_layout(Check *check, const StageProgram *stage)
{
    bool good = check_regions(check, stage);
    good &= check_rings(check, stage);
    good &= check_members_whole(check, stage);
    for (int g = 0; g < stage->groups.n; g++)
        good &= check_group(check, stage, g);
    return good;
}
