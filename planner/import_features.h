/* import_features.h - between reading a config (import_hf.c) and building the graph
 * (import_build.c). */
#ifndef LPLAN_PLANNER_IMPORT_FEATURES_H
#define LPLAN_PLANNER_IMPORT_FEATURES_H

#include "planner/import_hf.h"
#include "planner/import_read.h"
#include "planner/import_table.h"

typedef enum {
    TURN_PLAIN,
    TURN_LINEAR,
    TURN_LLAMA3,
    TURN_YARN,
    TURN_LONG,
    TURN_DYNAMIC
} TurnScaling;

typedef struct Rotation {
    double theta;
    TurnScaling kind;
    double factor, low, high;
    int64_t original;
    bool exact;
    double gain;      /* of cosines and sines; 1: none */
    Json near, far;   /* lists of factors */
    double score_mul; /* what the scaling does to the scale of the scores */
} Rotation;

/* What a layer has; equal ones are one block. */
typedef struct Layer {
    int64_t window, chunk; /* 0: none */
    bool rotate, local_turn, experts, temper;
    bool choosy; /* a chooser of keys sits beside it */
} Layer;

/* Where values are dropped out: of the embedding, of what attention and MLP add, of the shares of
 * attention. */
typedef enum { DROP_EMBED, DROP_ATTENTION, DROP_MLP, DROP_SCORES, DROP_COUNT } DropSite;

typedef struct Latent {
    int64_t q_rank; /* 0: queries are projected directly */
    int64_t kv_rank, still, rotated, v;
} Latent;

typedef struct Experts {
    int64_t count, chosen, ffn, shared_ffn; /* count 0: none */
    bool sigmoid, bias, renormalise;
    double scale;
    int64_t groups, kept; /* groups 1: none */
    double balance;       /* 0: none; of each sequence, not of the micro-batch */
    bool balance_each;
    bool by_two; /* a group counts by its two best experts, not by its best */
} Experts;

/* A model, once every question about it has an answer. */
typedef struct Features {
    const Family *family;
    const NameSet *names;
    const Wrapper *wrapper; /* NULL: names as the family has them */
    const char *name;
    int64_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab, positions;
    bool plain_heads; /* heads are one dim */
    int64_t rotary;   /* rotated dims of a head; 0: none */
    Rotation turn, local_turn;
    bool interleaved, alibi;
    double eps, init_std;
    double embed_scale, residual_scale, head_scale; /* 1: none */
    double attention_scale;                         /* 0: 1 / sqrt(head_dim) */
    double softcap, logit_cap, clip, act_limit;     /* 0: none */
    double act_slope;
    double temper_scale, temper_length;
    bool temper_ahead;
    ActKind act;
    bool tie, qkv_bias, out_bias, mlp_bias, qk_norm, parallel, one_norm;
    double drop[DROP_COUNT]; /* 0: none */
    double alibi_scale;      /* on the slopes */
    Latent latent;           /* kv_rank 0: none */
    Experts experts;
    int64_t index_heads, index_dim; /* 0: no chooser of keys */
    Layer *layer;
    double further; /* factor of the loss of the token after the next; 0: none */
} Features;

/* Answers every question, or appends errors. */
void features_settle(ConfigReader *reader, Features *ret);
/* The rotations, once the heads are known. */
void rotation_settle(ConfigReader *reader, Features *ret);
/* What differs from layer to layer, once the rest is known. */
void layers_settle(ConfigReader *reader, Features *ret);
/* Names the first layer that does not attend, as an error; false when none is named. */
bool layers_refuse(ConfigReader *reader);

/* What the options ask for of training beside the model: dropout, the balance of experts. */
void training_settle(ConfigReader *reader, Features *ret);
/* The key is read there, so that no guard speaks of it. */
bool training_reads(const ConfigReader *reader, const char *key);

/* lplan-model/1; a new reference. */
json_t *features_build(Arena *arena, const Features *features);

#endif
