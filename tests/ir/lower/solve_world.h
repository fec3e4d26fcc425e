/* solve_world.h - setups for tests of the block solver: a plain time model, a Llama-like block,
 * random graphs. */
#ifndef LPLAN_TESTS_IR_LOWER_SOLVE_WORLD_H
#define LPLAN_TESTS_IR_LOWER_SOLVE_WORLD_H

#include "ir/lower/solve.h"
#include "tests/ir/lower/ranks.h"

/* max(FLOPs / rate, bytes / bandwidth); links all of one speed; a fixed number of state bytes per
 * element. */
typedef struct PlainModel {
    const Net *net;
    const Mesh *mesh;
    int64_t flops_per_us, bytes_per_us, link_bytes_per_us,
        link_ns; /* 0 bytes per us: free, 1 ns a byte for links */
    int element_bytes, state_bytes;
    SolveModel model;
} PlainModel;
/* Fills `model`, whose context is the struct itself. */
void plain_model_bind(PlainModel *plain);

typedef struct BlockShape {
    int64_t b, s, h, g, r, d, f;
    bool parallel, bias, renamed;
} BlockShape;
/* A class "layer": norms, grouped-query attention with rope, gated MLP, residuals; with backward.
 */
Net *block_net(Arena *arena, const BlockShape *shape);
NodeId block_node(const Graph *graph, const char *name);
/* Classes "embed" and "head": a table of v rows, b x s x h in between, a norm, logits and the loss.
 */
Net *ends_net(Arena *arena, int64_t b, int64_t s, int64_t h, int64_t v);

/* A random class of `ops` ops over small dims, differentiated, or with its later half marked as
 * backward. */
Net *random_net(Arena *arena, Rng *rng, int ops, bool backward);

Mesh mesh_of(int atoms, const int *extent, const Role *role);

#endif
