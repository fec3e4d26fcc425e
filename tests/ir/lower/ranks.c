/* ranks.c - virtual ranks for tests. */
#include "tests/ir/lower/ranks.h"

#include <math.h>
#include <string.h>

#include "ir/base/rng.h"

uint64_t rng_draw(Rng *rng, uint64_t below)
{
    return rng_u64(rng->seed, 0, rng->next++) % below;
}

double rng_draw_normal(Rng *rng)
{
    return rng_normal(rng->seed, 1, rng->next++);
}

int64_t tensor_elements(const Tensor *tensor)
{
    int64_t n = 1;
    for (int i = 0; i < tensor->axes; i++)
        n *= tensor->extent[i];
    return n;
}

Tensor tensor_new(Arena *arena, int axes, const int64_t *extent)
{
    Tensor tensor = {.axes = axes};
    for (int i = 0; i < axes; i++)
        tensor.extent[i] = extent[i];
    tensor.at = ARENA_ARRAY(arena, double, tensor_elements(&tensor));
    return tensor;
}

Tensor tensor_random(Arena *arena, const Net *net, const Value *value, Rng *rng)
{
    int64_t extent[MAX_AXES] = {0};
    for (int i = 0; i < value->axes; i++)
        extent[i] = net->dims.at[value->dim[i]].extent;
    Tensor tensor = tensor_new(arena, value->axes, extent);
    int64_t n = tensor_elements(&tensor);
    for (int64_t i = 0; i < n; i++)
        tensor.at[i] = rng_draw_normal(rng);
    return tensor;
}

/* Elements before and after an axis: a tensor is outer x extent x inner. */
static void tensor_around(const Tensor *tensor, int axis, int64_t *ret_outer, int64_t *ret_inner)
{
    *ret_outer = *ret_inner = 1;
    for (int i = 0; i < axis; i++)
        *ret_outer *= tensor->extent[i];
    for (int i = axis + 1; i < tensor->axes; i++)
        *ret_inner *= tensor->extent[i];
}

Tensor tensor_block(Arena *arena, const Tensor *tensor, int axis, int index, int n)
{
    int64_t outer, inner, extent[MAX_AXES];
    memcpy(extent, tensor->extent, sizeof extent);
    CHECK(extent[axis] % n == 0);
    extent[axis] /= n;
    Tensor block = tensor_new(arena, tensor->axes, extent);
    tensor_around(tensor, axis, &outer, &inner);
    int64_t run = extent[axis] * inner;
    for (int64_t o = 0; o < outer; o++)
        memcpy(block.at + o * run, tensor->at + (o * n + index) * run, (size_t)run * 8);
    return block;
}

Tensor tensor_concat(Arena *arena, const Tensor *blocks, int axis, int n)
{
    int64_t outer, inner, extent[MAX_AXES];
    memcpy(extent, blocks[0].extent, sizeof extent);
    tensor_around(&blocks[0], axis, &outer, &inner);
    int64_t run = extent[axis] * inner;
    extent[axis] *= n;
    Tensor whole = tensor_new(arena, blocks[0].axes, extent);
    for (int i = 0; i < n; i++)
        for (int64_t o = 0; o < outer; o++)
            memcpy(whole.at + (o * n + i) * run, blocks[i].at + o * run, (size_t)run * 8);
    return whole;
}

Tensor tensor_piece(Arena *arena, const Mesh *mesh, const Tensor *whole, const Placement *place,
                    int rank)
{
    Tensor piece = *whole;
    for (int i = 0; i < whole->axes; i++) {
        const AtomList *list = &place->shard[i];
        if (list->n > 0)
            piece = tensor_block(arena, &piece, i, list_index(mesh, list, rank),
                                 list_extent(mesh, list));
    }
    return piece;
}

static AtomList list_of_set(AtomSet set)
{
    AtomList list = {0};
    for (int a = 0; a < MAX_ATOMS; a++)
        if ((set >> a & 1) && list.n < MAX_PER_AXIS)
            list.at[list.n++] = (int8_t)a;
    return list;
}

/* The next group of the list, its ranks in order; false after the last. `rank` starts at 0. */
static bool group_next(const Mesh *mesh, const AtomList *list, int *rank, int *ret_ranks,
                       int *ret_n)
{
    for (; *rank < mesh_ranks(mesh); (*rank)++) {
        *ret_n = mesh_group(mesh, list, *rank, ret_ranks, MAX_RANKS);
        if (ret_ranks[0] == *rank) {
            (*rank)++;
            return true;
        }
    }
    return false;
}

/* The rank that has the same copy and coordinate 0 on every atom that the placement does not use.
 */
static int rank_first(const Mesh *mesh, const Placement *place, int rank)
{
    AtomList rest = list_of_set((AtomSet)~place_used(place));
    int group[MAX_RANKS];
    while (rest.n > 0 && rest.at[rest.n - 1] >= mesh->n)
        rest.n--;
    mesh_group(mesh, &rest, rank, group, MAX_RANKS);
    return group[0];
}

Ranks ranks_scatter(Arena *arena, const Mesh *mesh, const Tensor *whole, const Placement *place,
                    Rng *rng)
{
    Ranks ranks = {.n = mesh_ranks(mesh)};
    CHECK(ranks.n <= MAX_RANKS);
    for (int r = 0; r < ranks.n; r++) {
        Tensor piece = tensor_piece(arena, mesh, whole, place, r);
        ranks.at[r] = tensor_new(arena, piece.axes, piece.extent);
        memcpy(ranks.at[r].at, piece.at, (size_t)tensor_elements(&piece) * 8);
    }
    AtomList list = list_of_set(place->partial);
    int group[MAX_RANKS], n, rank = 0;
    while (place->partial != 0 && group_next(mesh, &list, &rank, group, &n)) {
        int64_t elements = tensor_elements(&ranks.at[group[0]]);
        for (int64_t i = 0; i < elements; i++) {
            double right = ranks.at[group[0]].at[i], sum = 0;
            int keeper = (int)rng_draw(rng, (uint64_t)n);
            for (int k = 0; k < n; k++) {
                double term = rng_draw_normal(rng);
                if (place->monoid == MONOID_MAX)
                    term = right - fabs(term);
                ranks.at[group[k]].at[i] = term;
                sum += k == keeper ? 0 : term;
            }
            ranks.at[group[keeper]].at[i] = place->monoid == MONOID_MAX ? right : right - sum;
        }
    }
    for (int r = 0; r < ranks.n; r++)
        ranks.at[r] = ranks.at[rank_first(mesh, place, r)];
    return ranks;
}

/* Elementwise sum or maximum of the pieces of a group. */
static Tensor tensor_merge(Arena *arena, const Tensor *pieces, int n, int monoid)
{
    Tensor out = tensor_new(arena, pieces[0].axes, pieces[0].extent);
    int64_t elements = tensor_elements(&out);
    CHECK(monoid == MONOID_SUM || monoid == MONOID_MAX);
    for (int64_t i = 0; i < elements; i++) {
        out.at[i] = pieces[0].at[i];
        for (int k = 1; k < n; k++)
            out.at[i] = monoid == MONOID_SUM ? out.at[i] + pieces[k].at[i]
                                             : fmax(out.at[i], pieces[k].at[i]);
    }
    return out;
}

/* Zeros of the size of n blocks, the own one in place. */
static Tensor tensor_pad(Arena *arena, const Tensor *own, int axis, int index, int n)
{
    Tensor blocks[MAX_RANKS];
    for (int k = 0; k < n; k++)
        blocks[k] = k == index ? *own : tensor_new(arena, own->axes, own->extent);
    return tensor_concat(arena, blocks, axis, n);
}

/* What rank `index` of a group has after the move, from what all of it had before. */
static Tensor move_one(Arena *arena, const Mesh *mesh, const Move *move, const Tensor *had, int n,
                       int index, int rank)
{
    Tensor whole;
    switch (move->kind) {
    case MOVE_ALL_REDUCE:
        return tensor_merge(arena, had, n, move->monoid);
    case MOVE_REDUCE_SCATTER:
        whole = tensor_merge(arena, had, n, move->monoid);
        return tensor_block(arena, &whole, move->to, index, n);
    case MOVE_ALL_GATHER:
        return tensor_concat(arena, had, move->from, n);
    case MOVE_ALL_TO_ALL:
        whole = tensor_concat(arena, had, move->from, n);
        return tensor_block(arena, &whole, move->to, index, n);
    case MOVE_PERMUTE:
        whole = tensor_concat(arena, had, move->from, n);
        return tensor_block(arena, &whole, move->from, list_index(mesh, &move->order, rank), n);
    case MOVE_SLICE:
        return tensor_block(arena, &had[index], move->to, index, n);
    case MOVE_OWN:
        return index == 0 ? had[index] : tensor_new(arena, had[index].axes, had[index].extent);
    case MOVE_PAD:
        return tensor_pad(arena, &had[index], move->from, index, n);
    default:
        BUG("unknown move %d", (int)move->kind);
    }
}

Ranks ranks_move(Arena *arena, const Mesh *mesh, const Ranks *ranks, const Move *move)
{
    Ranks out = {.n = ranks->n};
    int group[MAX_RANKS], n, rank = 0;
    Tensor had[MAX_RANKS];
    while (group_next(mesh, &move->atoms, &rank, group, &n)) {
        for (int k = 0; k < n; k++)
            had[k] = ranks->at[group[k]];
        for (int k = 0; k < n; k++)
            out.at[group[k]] = move_one(arena, mesh, move, had, n, k, group[k]);
    }
    return out;
}

double ranks_error(Arena *arena, const Mesh *mesh, const Ranks *ranks, const Placement *place,
                   const Tensor *whole)
{
    Move merge = {.kind = MOVE_ALL_REDUCE,
                  .atoms = list_of_set(place->partial),
                  .from = NONE,
                  .to = NONE,
                  .monoid = place->monoid};
    Ranks at = place->partial != 0 ? ranks_move(arena, mesh, ranks, &merge) : *ranks;
    double worst = 0, scale = 1e-30;
    int64_t n = tensor_elements(whole);
    for (int64_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(whole->at[i]));
    for (int r = 0; r < at.n; r++) {
        Tensor want = tensor_piece(arena, mesh, whole, place, r);
        int64_t elements = tensor_elements(&want);
        if (tensor_elements(&at.at[r]) != elements)
            return INFINITY;
        for (int64_t i = 0; i < elements; i++) {
            double off = fabs(at.at[r].at[i] - want.at[i]);
            worst = isnan(off) ? INFINITY : fmax(worst, off / scale);
        }
    }
    return worst;
}
