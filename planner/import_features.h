/* import_features.h - between reading a config (import_hf.c) and building the graph
 * (import_build.c). */
#ifndef LPLAN_PLANNER_IMPORT_FEATURES_H
#define LPLAN_PLANNER_IMPORT_FEATURES_H

#include "planner/import_hf.h"
#include "planner/import_table.h"

typedef struct RopeScale {
    RopeScaling kind;
    double factor, low, high;
    int64_t original;
} RopeScale;

/* A model, once every question about it has an answer. */
typedef struct Features {
    const Family *family;
    const Wrapper *wrapper; /* NULL: names as the family has them */
    const char *name;
    int64_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab, positions;
    int64_t rotary; /* rotated dims of a head; 0: none */
    double theta, eps, init_std;
    RopeScale scale;
    double embed_scale, residual_scale, head_scale; /* 1: none */
    double attention_scale;                         /* 0: 1 / sqrt(head_dim) */
    ActKind act;
    bool tie, qkv_bias, out_bias, mlp_bias, parallel;
    int64_t *window; /* per layer; 0: none */
    bool *rotate;    /* per layer */
} Features;

/* lplan-model/1; a new reference. */
json_t *features_build(Arena *arena, const Features *features);

#endif
