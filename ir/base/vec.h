/* vec.h - growable arrays in an arena.
 *
 *     VEC(Node) nodes = {0};
 *     vec_push(arena, &nodes) = (Node){...};
 *     for (int i = 0; i < nodes.n; i++) use(&nodes.at[i]);
 *
 * Elements may move when the array grows: keep indices, not pointers, across a push. */
#ifndef LPLAN_IR_BASE_VEC_H
#define LPLAN_IR_BASE_VEC_H

#include "ir/base/arena.h"

#define VEC(Type)                                                                                  \
    struct {                                                                                       \
        Type *at;                                                                                  \
        int32_t n, cap;                                                                            \
    }

/* Room for one more element of `size` bytes; returns the (possibly moved) array. */
void *vec_room(Arena *arena, void *at, int32_t n, int32_t *cap, size_t size);

/* An lvalue: the new last element. */
#define vec_push(arena, vec)                                                                       \
    (*((vec)->at = vec_room((arena), (vec)->at, (vec)->n, &(vec)->cap, sizeof *(vec)->at),         \
       &(vec)->at[(vec)->n++]))

#endif
