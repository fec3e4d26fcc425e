/* stage_flat.c - the paths that flat gradients and weights of a family take. */
#include "planner/stage.h"

#include "ir/lower/home.h"

typedef struct FlatPath {
    struct FlatPath *next;
    bool whole;
    Group group;
} FlatPath;

static bool same_cuts(const Group *a, const Group *b)
{
    return list_set(&a->share) == list_set(&b->share) &&
           list_set(&a->gradient_share) == list_set(&b->gradient_share) &&
           list_set(&a->weight_share) == list_set(&b->weight_share) && a->buffered == b->buffered;
}

const Group *stage_flat_group(Family *family, const Group *like, bool whole, int64_t elements)
{
    for (const FlatPath *path = family->paths; path; path = path->next)
        if (path->group.sharded == like->sharded && path->group.partial == like->partial &&
            same_cuts(&path->group, like) && path->whole == whole)
            return &path->group;
    FlatPath *path = ARENA_NEW(family->arena, FlatPath);
    *path = (FlatPath){.next = family->paths, .whole = whole, .group = *like};
    path->group.elements = elements;
    MovePrice moves = pricer_moves(&family->pricer);
    group_find_paths(family->arena, &family->mesh, &moves, &path->group);
    family->paths = path;
    return &path->group;
}

int64_t flat_count(const Mesh *mesh, const Move *move, int64_t count)
{
    int n = list_extent(mesh, &move->atoms);
    if (move->kind == MOVE_REDUCE_SCATTER || move->kind == MOVE_SLICE)
        return count / n;
    return move->kind == MOVE_ALL_GATHER ? count * n : count;
}

int64_t stage_flat_ns(const Family *family, const Path *path, int64_t count, int width)
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
