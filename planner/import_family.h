/* import_family.h - the vocabulary in which the rows of model families are written. */
#ifndef LPLAN_PLANNER_IMPORT_FAMILY_H
#define LPLAN_PLANNER_IMPORT_FAMILY_H

#include <stddef.h>

#include "planner/import_table.h"

#define COUNT_OF(array) (int)(sizeof(array) / sizeof *(array))
/* clang-format off */
#define DEFAULT(x) {SET_DEFAULT, (x), NULL}
#define FIXED(x) {SET_FIXED, (x), NULL}
#define WORD(x) {SET_DEFAULT, 0, (x)}
#define FIXED_WORD(x) {SET_FIXED, 0, (x)}
#define READ {SET_READ, 0, NULL}

#define SIZES(hidden, layers, heads, ffn, vocab, positions)                                        \
    [SLOT_HIDDEN] = DEFAULT(hidden), [SLOT_LAYERS] = DEFAULT(layers),                              \
    [SLOT_HEADS] = DEFAULT(heads), [SLOT_FFN] = DEFAULT(ffn), [SLOT_VOCAB] = DEFAULT(vocab),       \
    [SLOT_POSITIONS] = DEFAULT(positions), [SLOT_INIT_STD] = DEFAULT(0.02)
#define BIASES(setting, qkv, out, mlp)                                                             \
    [SLOT_QKV_BIAS] = setting(qkv), [SLOT_OUT_BIAS] = setting(out), [SLOT_MLP_BIAS] = setting(mlp)
#define ROTATED(theta) [SLOT_THETA] = DEFAULT(theta)
#define GROUPED [SLOT_KV_HEADS] = READ, [SLOT_HEAD_DIM] = READ
#define USUAL(eps, act, tie)                                                                       \
    [SLOT_EPS] = DEFAULT(eps), [SLOT_ACT] = WORD(act), [SLOT_TIE] = DEFAULT(tie)
/* clang-format on */

#define LAYER "model.layers.{i}."
#define ATTENTION LAYER "self_attn."
#define LLAMA_ENDS .embed = "model.embed_tokens", .final_norm = "model.norm", .head = "lm_head"
#define LLAMA_STREAM                                                                               \
    LLAMA_ENDS, .norm1 = LAYER "input_layernorm", .norm2 = LAYER "post_attention_layernorm"
#define LLAMA_HEADS                                                                                \
    .q = ATTENTION "q_proj", .k = ATTENTION "k_proj", .v = ATTENTION "v_proj",                     \
    .o = ATTENTION "o_proj"
#define LLAMA_QK_NORMS .q_norm = ATTENTION "q_norm", .k_norm = ATTENTION "k_norm"
#define LLAMA_MLP                                                                                  \
    .gate = LAYER "mlp.gate_proj", .up = LAYER "mlp.up_proj", .down = LAYER "mlp.down_proj"

#define LAYER_NORMED .norm = NORM_LAYER, .norm_bias = true

#endif
