/* import_table.h - what a Hugging Face config.json says, as data: slots, the keys that fill them,
 * keys that must hold a certain value, and one row a model family. The builder (import_build*.c)
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
    SLOT_KV_HEADS,    /* null: as many as heads */
    SLOT_ONE_KV_HEAD, /* stands above SLOT_KV_HEADS */
    SLOT_HEAD_DIM,    /* null: hidden / heads */
    SLOT_FFN,         /* null: ffn_times * hidden */
    SLOT_VOCAB,
    SLOT_POSITIONS,
    SLOT_WINDOW, /* null: none */
    SLOT_USE_WINDOW,
    SLOT_WINDOW_FROM,  /* first layer with a window */
    SLOT_WINDOW_EVERY, /* every n-th layer is without window */
    SLOT_CHUNK,        /* attention stays inside pieces of so many positions */
    SLOT_ROTARY,       /* rotated dims of a head */
    SLOT_ROTARY_PART,  /* the same as a fraction */
    SLOT_THETA,
    SLOT_LOCAL_THETA, /* of layers with a window */
    SLOT_INTERLEAVED, /* rotation pairs neighbours instead of halves */
    SLOT_EPS,
    SLOT_INIT_STD,
    SLOT_ACT,
    SLOT_ACT_SLOPE, /* of the sigmoid beside a limit */
    SLOT_ACT_LIMIT, /* the gate is clamped from above, the rest on both sides */
    SLOT_TIE,
    SLOT_QKV_BIAS,
    SLOT_OUT_BIAS,
    SLOT_MLP_BIAS,
    SLOT_QK_NORM,
    SLOT_PARALLEL,    /* attention and MLP read the same stream and are added together */
    SLOT_TWO_STREAMS, /* parallel, with a norm for each: names_alt */
    SLOT_ROPE_EVERY,  /* every n-th layer has no rotation; null: all have */
    SLOT_ALIBI,
    SLOT_EMBED_SCALE, /* multiplies the embedding */
    SLOT_RESIDUAL_SCALE,
    SLOT_DEPTH_SCALE, /* the same, over sqrt(layers) */
    SLOT_LOGIT_SCALE,
    SLOT_LOGIT_DIVISOR,
    SLOT_BASE_WIDTH,      /* logits are divided by hidden / this */
    SLOT_ATTENTION_SCALE, /* of scores; null: 1 / sqrt(head_dim) */
    SLOT_QUERY_SCALAR,    /* the same as 1 / sqrt(this) */
    SLOT_SOFTCAP,         /* of scores */
    SLOT_LOGIT_CAP,
    SLOT_CLIP_QKV,
    SLOT_TEMPER,        /* queries of layers without rotation grow with the position */
    SLOT_TEMPER_SCALE,  /* by 1 + scale log(1 + position / length) */
    SLOT_TEMPER_LENGTH, /* in steps of this */
    SLOT_Q_RANK,        /* latent attention; null: queries are projected directly */
    SLOT_KV_RANK,
    SLOT_STILL_DIM, /* dims of a latent head without and with rotation */
    SLOT_ROTATED_DIM,
    SLOT_V_DIM,       /* null: hidden / heads */
    SLOT_INDEX_HEADS, /* of the chooser of keys (sparse attention) */
    SLOT_INDEX_DIM,
    SLOT_INDEX_KEPT,   /* keys of a query */
    SLOT_INDEX_BLOCKS, /* the same, in blocks of */
    SLOT_INDEX_BLOCK,
    SLOT_EXPERTS,
    SLOT_CHOSEN,      /* experts of a token */
    SLOT_EXPERT_FFN,  /* null: as SLOT_FFN */
    SLOT_SHARED,      /* experts that every token has */
    SLOT_SHARED_FFN,  /* width of all of them together; null: SLOT_SHARED times SLOT_EXPERT_FFN */
    SLOT_FIRST_DENSE, /* so many layers have no experts */
    SLOT_EXPERT_EVERY,
    SLOT_SCORE,       /* softmax, sigmoid */
    SLOT_CHOOSE,      /* greedy, group_limited_greedy, noaux_tc */
    SLOT_ROUTER_BIAS, /* added to the scores for the choice alone */
    SLOT_RENORM,
    SLOT_ROUTED_SCALE,
    SLOT_GROUPS,
    SLOT_GROUPS_KEPT,
    SLOT_COUNT,
    SLOT_NONE = SLOT_COUNT /* of a key that a family's code does not need */
} Slot;

typedef enum { SLOT_INT, SLOT_NUM, SLOT_BOOL, SLOT_WORD } SlotKind;

typedef struct SlotInfo {
    const char *name; /* the usual key, for messages */
    SlotKind kind;
    double min, max;
    double neutral; /* what a family means that does not read the key */
    bool quiet;     /* a default is not worth a note */
    bool strict;    /* another value in a family that does not read it is refused, not ignored */
    bool nullable;  /* null means something; elsewhere it means the default */
} SlotInfo;
extern const SlotInfo slot_info[SLOT_COUNT];

/* The two vocabularies of config keys. Where both occur, the one the family's own code reads wins.
 */
typedef enum { STYLE_BOTH, STYLE_LLAMA, STYLE_GPT } Style;

typedef struct KeyRow {
    const char *key; /* "outer.inner" for a member of an object */
    Slot slot;
    Style style;
    const char *family; /* rows of a family stand above those of any (NULL) */
} KeyRow;
extern const KeyRow key_rows[];
extern const int key_row_count;

/* Keys that change the model in a way only one value of which can be expressed. */
typedef enum {
    GUARD_FALSE,  /* false, null, 0, an empty list, or absent */
    GUARD_TRUE,   /* true, null or absent */
    GUARD_NUMBER, /* the number in `word`, null or absent */
    GUARD_WORD,   /* one of the comma-separated words in `word`, null or absent */
    GUARD_EACH,   /* a list of nothing but `word` */
    GUARD_SAME,   /* the number that the key `word` holds */
    GUARD_ENDS,   /* a list of words; one ends with one of the comma-separated endings in `word` */
    GUARD_NOTE,   /* anything but false, null, 0 and an empty container is noted and ignored */
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
    FUSED_PART, /* [q heads | k heads | v heads] */
    FUSED_GROUP /* per key head [its q heads | k | v] */
} Fused;

/* Norms of queries and keys. */
typedef enum {
    QK_HEAD, /* every head, one gain for all */
    QK_EACH, /* every head, a gain for each */
    QK_WIDE, /* all heads as one */
    QK_BARE  /* every head that was rotated, no gain */
} QkNorm;

/* How the experts of a layer are stored. */
typedef enum {
    STORED_EACH,  /* a tensor for each */
    STORED_STACK, /* one [e, in, out], gate and up side by side in it */
    STORED_PAIRS, /* the same, gate and up in turns, with biases */
    STORED_ROWS,  /* one [e, out, in], gate above up in it */
    STORED_FLAT   /* one [e f, h] each */
} Stored;

/* Which layers have a window. */
typedef enum {
    LOCAL_ALL,
    LOCAL_LATE,   /* from SLOT_WINDOW_FROM */
    LOCAL_EVERY,  /* all but every SLOT_WINDOW_EVERY-th */
    LOCAL_LIST,   /* what attention_layers says */
    LOCAL_ROTATED /* those that rotate */
} Local;

/* Parameter names without ".weight" or ".bias"; NULL where the family has none. */
typedef struct NameSet {
    const char *embed, *embed_norm, *positions, *final_norm, *head;
    const char *norm1, *post1, *norm2,
        *post2; /* before and after attention, before and after MLP */
    const char *q_norm, *k_norm, *sink;
    const char *qkv, *q, *k, *v, *o;
    const char *q_down, *q_down_norm, *q_up, *kv_down, *kv_down_norm, *kv_up; /* latent */
    const char *index_q, *index_q_norm, *index_k, *index_k_norm, *index_weight;
    const char *gate_up, *gate, *up, *down; /* gate_up: both in one matrix */
    const char *router, *router_bias;
    const char *expert_gate_up, *expert_gate, *expert_up, *expert_down;
    const char *shared_gate, *shared_up, *shared_down, *shared_share;
    const char *token_norm, *state_norm, *join, *further_norm; /* of the layer that predicts the
                                                                  token after the next */
} NameSet;

typedef struct Family {
    const char *model_type;
    Style style;
    NormKind norm;
    bool norm_bias, head_bias;
    bool norm_shift;         /* gains are stored less one */
    bool norm_bare;          /* norms have no gain */
    const char *norm_suffix; /* NULL: "weight" */
    const char *turn;        /* rope_parameters of a config that has none */
    const char *note;        /* what a user should know of this import */
    bool plain_heads;        /* heads are one dim: the family has no grouped queries */
    bool transposed;         /* linears are stored [in, out] */
    bool parallel_one_norm;  /* when parallel, both read the first norm and there is no second */
    bool root_scale;         /* embeddings are multiplied by sqrt(hidden) */
    bool gelu_tanh;          /* "gelu" means the tanh form in configs of this family */
    bool qk_after;           /* norms of queries and keys follow the rotation */
    bool still_global;       /* layers without window do not rotate */
    int positions_offset;    /* rows of the position table before that of position 0 */
    Fused fused;
    QkNorm qk;
    Local local;
    Stored stored;
    bool router_linear_bias, choose_first; /* top-k of the logits, scores of the chosen */
    bool share_first;                      /* the expert's input is scaled, not its output */
    int expert_first;                      /* EXPERT_EVERY counts from 0 or from 1 */
    double renorm_epsilon;
    bool renorm_several; /* the share of a single choice is not divided by itself */
    bool alibi_scaled;   /* the linear bias is multiplied by the scale of the scores */
    int ffn_times;
    const NameSet *names, *names_alt;
    SlotDefault slot[SLOT_COUNT];
} Family;

extern const Family llama_families[], gpt_families[], expert_families[];
extern const int llama_family_count, gpt_family_count, expert_family_count;
/* All of them, by number; NULL behind the last. */
const Family *family_at(int i);

/* Families that need something the op set lacks. */
typedef struct Refusal {
    const char *model_type, *why;
} Refusal;
extern const Refusal refusals[];
extern const int refusal_count;

/* Other names of families. */
typedef struct Alias {
    const char *model_type, *same_as;
} Alias;
extern const Alias aliases[];
extern const int alias_count;

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
