/* stage_area.c - where the buckets of a chunk are whole for a while, and who else needs the bytes.
 */
#include "planner/stage_area.h"

#include "ir/base/num.h"
#include "ir/lower/home.h"

static bool share_bytes(const Area *area, int a, int b)
{
    return area->bytes[a] && area->bytes[b] && area->at[a] < area->at[b] + area->bytes[b] &&
           area->at[b] < area->at[a] + area->bytes[a];
}

static void find_near(const StageCost *cost, Area *area, int b)
{
    int *near = area->near[b], low = cost->bucket[b].close_link, high = cost->bucket[b].open_link;
    for (int k = 0; k < NEAR; k++)
        near[k] = b;
    for (int a = 0; a < cost->buckets; a++) {
        if (a == b || !share_bytes(area, a, b))
            continue;
        const StageBucket *other = &cost->bucket[a];
        if (other->open_link < low &&
            (near[0] == b || other->open_link > cost->bucket[near[0]].open_link))
            near[0] = a;
        if (other->close_link > high &&
            (near[1] == b || other->close_link < cost->bucket[near[1]].close_link))
            near[1] = a;
        if (other->close_link < cost->bucket[near[2]].close_link)
            near[2] = a;
        if (other->open_link > cost->bucket[near[3]].open_link)
            near[3] = a;
    }
}

/* Of lives in an area of their own. */
static Area place_lives(Arena *scratch, const StageCost *cost, Life *life, int n,
                        int64_t *ret_bytes)
{
    int64_t *offset = ARENA_ARRAY(scratch, int64_t, n + 1);
    Area area = {ARENA_ARRAY(scratch, int64_t, cost->buckets + 1),
                 ARENA_ARRAY(scratch, int64_t, cost->buckets + 1),
                 arena_array(scratch, cost->buckets + 1, sizeof *area.near)};
    *ret_bytes = lives_place(life, n, offset);
    for (int i = 0; i < n; i++) {
        area.at[life[i].id] = offset[i];
        area.bytes[life[i].id] = life[i].bytes;
    }
    for (int b = 0; b < cost->buckets; b++)
        find_near(cost, &area, b);
    return area;
}

Area area_place(Arena *scratch, const Family *family, const StageCost *cost, int end, bool weights,
                int64_t *ret_bytes)
{
    const Recipe *recipe = family->pricer.recipe;
    Life *life = ARENA_ARRAY(scratch, Life, cost->buckets + 1);
    int n = 0;
    for (int b = 0; b < cost->buckets; b++) {
        const StageBucket *bucket = &cost->bucket[b];
        const Group *group = bucket->group;
        if (weights ? bucket->far || group->weight_share.n > 0 : group->buffered)
            life[n++] =
                bucket_life(b, bucket->close_link, bucket->open_link, end - 1, bucket->elements,
                            dtype_bytes(weights ? recipe->weight : recipe->gradient));
    }
    return place_lives(scratch, cost, life, n, ret_bytes);
}

Area area_place_between(Arena *scratch, const Family *family, const StageCost *cost, int end,
                        int64_t *ret_bytes)
{
    *ret_bytes = 0;
    if (family->memory[KEPT_WEIGHTS] != MEMORY_NVME)
        return (Area){0};
    Life *life = ARENA_ARRAY(scratch, Life, cost->buckets + 1);
    int n = 0;
    for (int b = 0; b < cost->buckets; b++) {
        const StageBucket *bucket = &cost->bucket[b];
        if (!bucket->far)
            continue;
        life[n] = bucket_life(b, bucket->close_link, bucket->open_link, end - 1, 0, 0);
        life[n++].bytes = carried_bytes(MEMORY_NVME, bucket->carry.bytes, 1);
    }
    return place_lives(scratch, cost, life, n, ret_bytes);
}

Area area_place_sums(Arena *scratch, const Family *family, const StageCost *cost, int end,
                     int64_t *ret_bytes)
{
    Life *life = ARENA_ARRAY(scratch, Life, cost->buckets + 1);
    int64_t none;
    Area area = place_lives(scratch, cost, life, 0, &none);
    for (int m = (int)family->memory[KEPT_GRADIENTS] - 1; m >= MEMORY_HBM; m--) {
        int n = 0;
        for (int b = 0; b < cost->buckets; b++) {
            const StageBucket *bucket = &cost->bucket[b];
            if (bucket->sums.bytes)
                life[n++] = gradient_life(bucket->group, b, bucket->close_link, bucket->open_link,
                                          end - 1, (Memory)m, bucket->sums.bytes);
        }
        area = place_lives(scratch, cost, life, n, &ret_bytes[m]);
    }
    return area;
}

void area_find_behind(const Area *area, const int64_t *left, StageCost *cost, int near)
{
    for (int b = 0; b < cost->buckets; b++) {
        StageBucket *bucket = &cost->bucket[b];
        bucket->free_ns[near] = left[b];
        for (int a = 0; a < cost->buckets; a++) {
            if (a == b || !share_bytes(area, a, b))
                continue;
            bucket->free_ns[near] = num_larger(bucket->free_ns[near], left[a]);
            bucket->behind[near] = a < b ? b - a : bucket->behind[near];
        }
    }
}
