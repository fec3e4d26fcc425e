/* import_table.h - what a Hugging Face config.json says, as data: slots, the keys that fill them,
 * keys that must hold a certain value, and one row a model family. The builder (import_build.c)
 * knows features, no family. */
#ifndef LPLAN_PLANNER_IMPORT_TABLE_H
#define LPLAN_PLANNER_IMPORT_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/op.h"

/* A fact of the model that a config may state. */
typedef enum Slot {
    SLOT_HIDDEN,
    SLOT_LAYERS,
    SLOT_HEADS,
    SLOT_KV_HEADS, /* null: as many as heads */
    SLOT_HEAD_DIM, /* null: hidden / heads */
    SLOT_FFN,      /* null: ffn_times * hidden */
    SLOT_VOCAB,
    SLOT_POSITIONS,
    SLOT_WINDOW, /* null: none */
    SLOT_USE_WINDOW,
    SLOT_WINDOW_FROM, /* first layer with a window */
    SLOT_ROTARY,      /* rotated dims of a head */
    SLOT_ROTARY_PART, /* the same as a fraction */
    SLOT_THETA,
    SLOT_EPS,
    SLOT_INIT_STD,
    SLOT_ACT,
    SLOT_TIE,
    SLOT_QKV_BIAS,
    SLOT_OUT_BIAS,
    SLOT_MLP_BIAS,
    SLOT_PARALLEL,    /* attention and MLP read the same stream and are added together */
    SLOT_ROPE_EVERY,  /* every n-th layer has no rotation; null: all have */
    SLOT_EMBED_SCALE, /* multiplies the embedding */
    SLOT_RESIDUAL_SCALE,
    SLOT_DEPTH_SCALE, /* the same, over sqrt(layers) */
    SLOT_LOGIT_SCALE,
    SLOT_LOGIT_DIVISOR,
    SLOT_BASE_WIDTH,      /* logits are divided by hidden / this */
    SLOT_ATTENTION_SCALE, /* of scores; null: 1 / sqrt(head_dim) */
    SLOT_COUNT
} Slot;

typedef enum { SLOT_INT, SLOT_NUM, SLOT_BOOL, SLOT_WORD } SlotKind;

typedef struct SlotInfo {
    const char *name; /* the usual key, for messages */
    SlotKind kind;
    double min, max;
    double neutral; /* what a family means that does not read the key */
    bool quiet;     /* a default is not worth a note */
    bool strict;    /* another value in a family that does not read it is refused, not ignored */
} SlotInfo;
extern const SlotInfo slot_info[SLOT_COUNT];

/* The two vocabularies of config keys. Where both occur, the one the family's own code reads wins.
 */
typedef enum { STYLE_BOTH, STYLE_LLAMA, STYLE_GPT } Style;

typedef struct KeyRow {
    const char *key;
    Slot slot;
    Style style;
} KeyRow;
extern const KeyRow key_rows[];
extern const int key_row_count;

/* Keys that change the model in a way only one value of which can be expressed. */
typedef enum {
    GUARD_FALSE,     /* false, null, 0, an empty list, or absent */
    GUARD_TRUE,      /* true, null or absent */
    GUARD_WORD,      /* `word`, null or absent */
    GUARD_EACH_WORD, /* a list of nothing but `word` */
    GUARD_ENDS, /* a list of words; one ends with one of the comma-separated endings in `word` */
    GUARD_NOTE, /* anything but false, null, 0 and an empty container is noted and ignored */
    GUARD_NOTE_ONE, /* the same, and 1 is silent too */
} GuardKind;

typedef struct GuardRow {
    const char *key;
    GuardKind kind;
    const char *word;
    const char *why;    /* completes "KEY is not supported: ..." */
    const char *family; /* NULL: whatever the family */
} GuardRow;
extern const GuardRow guard_rows[];
extern const int guard_row_count;

/* Keys without a meaning for training this model: tokens, generation, bookkeeping. */
extern const char *const harmless_keys[];
extern const int harmless_key_count;

/* Not: the family's code does not read the key. Read: it does, and absent means null. Fixed: it
 * does not, and means the value of the row. */
typedef enum { SET_NOT, SET_READ, SET_DEFAULT, SET_FIXED } Setting;

typedef struct SlotDefault {
    Setting setting;
    double value;     /* integers, truth values and numbers */
    const char *word; /* for SLOT_WORD */
} SlotDefault;

/* How the three projections lie in one stored matrix. */
typedef enum {
    FUSED_NONE,
    FUSED_PART_HEAD, /* [q heads | k heads | v heads] */
    FUSED_HEAD_PART  /* per head [q | k | v] */
} Fused;

/* Parameter names without ".weight" or ".bias"; NULL where the family has none. */
typedef struct NameSet {
    const char *embed, *positions, *final_norm, *head;
    const char *norm1, *norm2, *q_norm, *k_norm;
    const char *qkv, *q, *k, *v, *o;
    const char *gate_up, *gate, *up, *down; /* gate_up: both in one matrix */
} NameSet;

typedef struct Family {
    const char *model_type;
    Style style;
    NormKind norm;
    bool norm_bias, head_bias;
    bool plain_heads;       /* heads are one dim: the family has no grouped queries */
    bool interleaved;       /* rotation pairs neighbours instead of halves */
    bool transposed;        /* linears are stored [in, out] */
    bool parallel_one_norm; /* when parallel, both read the first norm and there is no second */
    bool local_layers;      /* attention_layers says which layers have the window */
    Fused fused;
    int ffn_times;
    const NameSet *names;
    SlotDefault slot[SLOT_COUNT];
} Family;
extern const Family families[];
extern const int family_count;

/* Families that need something the op set lacks. */
typedef struct Refusal {
    const char *model_type, *why;
} Refusal;
extern const Refusal refusals[];
extern const int refusal_count;

/* Configs that wrap a language model: its own config lies under text_config, and its names are
 * changed. */
typedef struct Wrapper {
    const char *model_type, *inner; /* inner: when text_config names no model_type */
    const char *from, *to;          /* a name beginning with `from` gets `to` instead */
} Wrapper;
extern const Wrapper wrappers[];
extern const int wrapper_count;

/* Words of configs for an activation; ACT_KIND_COUNT when there is no such op. */
ActKind act_by_word(const char *word);

#endif
