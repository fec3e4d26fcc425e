/* ranks.h - virtual ranks for tests: every rank's piece of a value, and moves executed on all of
 * them at once. */
#ifndef LPLAN_TESTS_IR_LOWER_RANKS_H
#define LPLAN_TESTS_IR_LOWER_RANKS_H

#include "ir/lower/place.h"

/* Draws in sequence. */
typedef struct Rng {
    uint64_t seed, next;
} Rng;
uint64_t rng_draw(Rng *rng, uint64_t below);
double rng_draw_normal(Rng *rng);

/* Dense, row-major. */
typedef struct Tensor {
    int axes;
    int64_t extent[MAX_AXES];
    double *at;
} Tensor;
Tensor tensor_new(Arena *arena, int axes, const int64_t *extent);
Tensor tensor_random(Arena *arena, const Net *net, const Value *value, Rng *rng);
int64_t tensor_elements(const Tensor *tensor);
/* Block `index` of `n` equal blocks along the axis; the opposite. */
Tensor tensor_block(Arena *arena, const Tensor *tensor, int axis, int index, int n);
Tensor tensor_concat(Arena *arena, const Tensor *blocks, int axis, int n);
/* What a rank has of a whole value, Partial left aside. */
Tensor tensor_piece(Arena *arena, const Mesh *mesh, const Tensor *whole, const Placement *place,
                    int rank);

enum { MAX_RANKS = 64 };
typedef struct Ranks {
    int n;
    Tensor at[MAX_RANKS];
} Ranks;
/* Pieces of a whole value; Partial ones are random terms whose sum (or maximum) is right. */
Ranks ranks_scatter(Arena *arena, const Mesh *mesh, const Tensor *whole, const Placement *place,
                    Rng *rng);
Ranks ranks_move(Arena *arena, const Mesh *mesh, const Ranks *ranks, const Move *move);
/* Largest deviation over all ranks, relative to the largest element; Partial is merged first. NaN
 * is infinite. */
double ranks_error(Arena *arena, const Mesh *mesh, const Ranks *ranks, const Placement *place,
                   const Tensor *whole);

#endif
