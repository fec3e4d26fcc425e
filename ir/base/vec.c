/* vec.c - how growable arrays grow: by doubling, inside the arena. */
#include "ir/base/vec.h"

#include <string.h>

#include "ir/base/diag.h"

void *vec_room(Arena *arena, void *at, int32_t n, int32_t *cap, size_t size)
{
    if (n < *cap)
        return at;
    if (*cap > INT32_MAX / 2)
        BUG("an array of %d elements cannot grow", (int)*cap);
    int32_t wider = *cap > 0 ? *cap * 2 : 8;
    void *moved = arena_array(arena, (size_t)wider, size);
    if (n > 0)
        memcpy(moved, at, (size_t)n * size);
    *cap = wider;
    return moved;
}
