/* import_family.c - one row a model family: its library's defaults, what its code fixes, its
 * parameter names. */
#include "planner/import_table.h"

#define COUNT_OF(array) (int)(sizeof(array) / sizeof *(array))
/* clang-format off */
#define DEFAULT(x) {SET_DEFAULT, (x), NULL}
#define FIXED(x) {SET_FIXED, (x), NULL}
#define WORD(x) {SET_DEFAULT, 0, (x)}
#define READ {SET_READ, 0, NULL}

#define SIZES(hidden, layers, heads, ffn, vocab, positions)                                        \
    [SLOT_HIDDEN] = DEFAULT(hidden), [SLOT_LAYERS] = DEFAULT(layers),                              \
    [SLOT_HEADS] = DEFAULT(heads), [SLOT_FFN] = DEFAULT(ffn), [SLOT_VOCAB] = DEFAULT(vocab),       \
    [SLOT_POSITIONS] = DEFAULT(positions), [SLOT_INIT_STD] = DEFAULT(0.02)
/* clang-format on */

#define LAYER "model.layers.{i}."
#define ATTENTION LAYER "self_attn."
#define LLAMA_STREAM                                                                               \
    .embed = "model.embed_tokens", .final_norm = "model.norm", .head = "lm_head",                  \
    .norm1 = LAYER "input_layernorm", .norm2 = LAYER "post_attention_layernorm"
#define LLAMA_HEADS                                                                                \
    .q = ATTENTION "q_proj", .k = ATTENTION "k_proj", .v = ATTENTION "v_proj",                     \
    .o = ATTENTION "o_proj"
#define LLAMA_MLP                                                                                  \
    .gate = LAYER "mlp.gate_proj", .up = LAYER "mlp.up_proj", .down = LAYER "mlp.down_proj"

static const NameSet llama_names = {LLAMA_STREAM, LLAMA_HEADS, LLAMA_MLP};
static const NameSet qwen3_names = {LLAMA_STREAM, LLAMA_HEADS, LLAMA_MLP,
                                    .q_norm = ATTENTION "q_norm", .k_norm = ATTENTION "k_norm"};
static const NameSet starcoder2_names = {LLAMA_STREAM, LLAMA_HEADS, .up = LAYER "mlp.c_fc",
                                         .down = LAYER "mlp.c_proj"};
static const NameSet phi3_names = {LLAMA_STREAM, .qkv = ATTENTION "qkv_proj",
                                   .o = ATTENTION "o_proj", .gate_up = LAYER "mlp.gate_up_proj",
                                   .down = LAYER "mlp.down_proj"};

static const NameSet gpt2_names = {
    .embed = "wte",
    .positions = "wpe",
    .final_norm = "ln_f",
    .head = "lm_head",
    .norm1 = "h.{i}.ln_1",
    .norm2 = "h.{i}.ln_2",
    .qkv = "h.{i}.attn.c_attn",
    .o = "h.{i}.attn.c_proj",
    .up = "h.{i}.mlp.c_fc",
    .down = "h.{i}.mlp.c_proj",
};

static const NameSet neox_names = {
    .embed = "gpt_neox.embed_in",
    .final_norm = "gpt_neox.final_layer_norm",
    .head = "embed_out",
    .norm1 = "gpt_neox.layers.{i}.input_layernorm",
    .norm2 = "gpt_neox.layers.{i}.post_attention_layernorm",
    .qkv = "gpt_neox.layers.{i}.attention.query_key_value",
    .o = "gpt_neox.layers.{i}.attention.dense",
    .up = "gpt_neox.layers.{i}.mlp.dense_h_to_4h",
    .down = "gpt_neox.layers.{i}.mlp.dense_4h_to_h",
};

static const NameSet gptj_names = {
    .embed = "transformer.wte",
    .final_norm = "transformer.ln_f",
    .head = "lm_head",
    .norm1 = "transformer.h.{i}.ln_1",
    .q = "transformer.h.{i}.attn.q_proj",
    .k = "transformer.h.{i}.attn.k_proj",
    .v = "transformer.h.{i}.attn.v_proj",
    .o = "transformer.h.{i}.attn.out_proj",
    .up = "transformer.h.{i}.mlp.fc_in",
    .down = "transformer.h.{i}.mlp.fc_out",
};

static const NameSet gpt_neo_names = {
    .embed = "transformer.wte",
    .positions = "transformer.wpe",
    .final_norm = "transformer.ln_f",
    .head = "lm_head",
    .norm1 = "transformer.h.{i}.ln_1",
    .norm2 = "transformer.h.{i}.ln_2",
    .q = "transformer.h.{i}.attn.attention.q_proj",
    .k = "transformer.h.{i}.attn.attention.k_proj",
    .v = "transformer.h.{i}.attn.attention.v_proj",
    .o = "transformer.h.{i}.attn.attention.out_proj",
    .up = "transformer.h.{i}.mlp.c_fc",
    .down = "transformer.h.{i}.mlp.c_proj",
};

static const NameSet phi_names = {
    .embed = "model.embed_tokens",
    .final_norm = "model.final_layernorm",
    .head = "lm_head",
    .norm1 = "model.layers.{i}.input_layernorm",
    .q = "model.layers.{i}.self_attn.q_proj",
    .k = "model.layers.{i}.self_attn.k_proj",
    .v = "model.layers.{i}.self_attn.v_proj",
    .o = "model.layers.{i}.self_attn.dense",
    .up = "model.layers.{i}.mlp.fc1",
    .down = "model.layers.{i}.mlp.fc2",
};

static const NameSet phi_msft_names = {
    .embed = "transformer.embd.wte",
    .final_norm = "lm_head.ln",
    .head = "lm_head.linear",
    .norm1 = "transformer.h.{i}.ln",
    .qkv = "transformer.h.{i}.mixer.Wqkv",
    .o = "transformer.h.{i}.mixer.out_proj",
    .up = "transformer.h.{i}.mlp.fc1",
    .down = "transformer.h.{i}.mlp.fc2",
};

/* What Llama and its many relatives share. */
#define LLAMA_LIKE .style = STYLE_LLAMA, .norm = NORM_RMS, .names = &llama_names
#define LAYER_NORMED .norm = NORM_LAYER, .norm_bias = true
#define BIASES(setting, qkv, out, mlp)                                                             \
    [SLOT_QKV_BIAS] = setting(qkv), [SLOT_OUT_BIAS] = setting(out), [SLOT_MLP_BIAS] = setting(mlp)
#define ROTATED(theta) [SLOT_THETA] = DEFAULT(theta)
#define GROUPED [SLOT_KV_HEADS] = READ, [SLOT_HEAD_DIM] = READ
#define USUAL(eps, act, tie)                                                                       \
    [SLOT_EPS] = DEFAULT(eps), [SLOT_ACT] = WORD(act), [SLOT_TIE] = DEFAULT(tie)
#define LATE_WINDOW                                                                                \
    [SLOT_WINDOW] = DEFAULT(4096), [SLOT_USE_WINDOW] = DEFAULT(0), [SLOT_WINDOW_FROM] = DEFAULT(28)

#define QWEN2_SLOTS                                                                                \
    SIZES(4096, 32, 32, 22016, 151936, 32768), USUAL(1e-6, "silu", 0),                             \
        ROTATED(10000), [SLOT_KV_HEADS] = DEFAULT(32), [SLOT_HEAD_DIM] = READ,                     \
                        BIASES(FIXED, 1, 0, 0), LATE_WINDOW
#define QWEN3_SLOTS                                                                                \
    SIZES(4096, 32, 32, 22016, 151936, 32768), USUAL(1e-6, "silu", 0),                             \
        ROTATED(10000), [SLOT_KV_HEADS] = DEFAULT(32), [SLOT_HEAD_DIM] = DEFAULT(128),             \
                        BIASES(DEFAULT, 0, 0, 0), LATE_WINDOW

const Family families[] = {
    {.model_type = "llama",
     LLAMA_LIKE,
     .slot = {SIZES(4096, 32, 32, 11008, 32000, 2048), USUAL(1e-6, "silu", 0), ROTATED(10000),
              GROUPED, BIASES(DEFAULT, 0, 0, 0)}},
    {.model_type = "mistral",
     LLAMA_LIKE,
     .slot = {SIZES(4096, 32, 32, 14336, 32000, 131072), USUAL(1e-6, "silu", 0), ROTATED(10000),
              [SLOT_KV_HEADS] = DEFAULT(8), [SLOT_HEAD_DIM] = READ, [SLOT_WINDOW] = DEFAULT(4096)}},
    {.model_type = "qwen2", LLAMA_LIKE, .slot = {QWEN2_SLOTS}},
    {.model_type = "mimo", LLAMA_LIKE, .slot = {QWEN2_SLOTS}},
    {.model_type = "qwen3",
     .style = STYLE_LLAMA,
     .norm = NORM_RMS,
     .names = &qwen3_names,
     .slot = {QWEN3_SLOTS}},
    {.model_type = "qwen3_vl_text",
     .style = STYLE_LLAMA,
     .norm = NORM_RMS,
     .names = &qwen3_names,
     .slot = {QWEN3_SLOTS}},
    {.model_type = "smollm3",
     LLAMA_LIKE,
     .slot = {SIZES(2048, 36, 16, 11008, 128256, 32768), USUAL(1e-6, "silu", 1),
              ROTATED(2000000), [SLOT_KV_HEADS] = DEFAULT(4), [SLOT_HEAD_DIM] = READ,
              BIASES(DEFAULT, 0, 0, 0), [SLOT_WINDOW] = READ, [SLOT_USE_WINDOW] = DEFAULT(0),
              [SLOT_ROPE_EVERY] = DEFAULT(4)}},
    {.model_type = "internlm",
     LLAMA_LIKE,
     .slot = {SIZES(4096, 32, 32, 11008, 103168, 2048), USUAL(1e-6, "silu", 0),
              ROTATED(10000), [SLOT_QKV_BIAS] = DEFAULT(1), [SLOT_OUT_BIAS] = DEFAULT(1)}},
    {.model_type = "minicpm",
     LLAMA_LIKE,
     .slot = {SIZES(4096, 32, 32, 11008, 32000, 2048), USUAL(1e-6, "silu", 1), ROTATED(10000),
              GROUPED, BIASES(DEFAULT, 0, 0, 0), [SLOT_EMBED_SCALE] = DEFAULT(1),
              [SLOT_BASE_WIDTH] = DEFAULT(1), [SLOT_DEPTH_SCALE] = DEFAULT(1)}},
    {.model_type = "granite",
     LLAMA_LIKE,
     .slot = {SIZES(4096, 32, 32, 11008, 32000, 2048), USUAL(1e-6, "silu", 0), ROTATED(10000),
              GROUPED, BIASES(DEFAULT, 0, 0, 0), [SLOT_EMBED_SCALE] = DEFAULT(1),
              [SLOT_RESIDUAL_SCALE] = DEFAULT(1), [SLOT_LOGIT_DIVISOR] = DEFAULT(1),
              [SLOT_ATTENTION_SCALE] = DEFAULT(1)}},
    {.model_type = "orion",
     .style = STYLE_LLAMA,
     LAYER_NORMED,
     .names = &llama_names,
     .slot = {SIZES(5120, 40, 40, 15360, 84608, 4096), USUAL(1e-5, "silu", 0), ROTATED(10000),
              GROUPED}},
    {.model_type = "stablelm",
     .style = STYLE_LLAMA,
     LAYER_NORMED,
     .parallel_one_norm = true,
     .names = &llama_names,
     .slot = {SIZES(2560, 32, 32, 6912, 50304, 4096), USUAL(1e-5, "silu", 0),
              ROTATED(10000), [SLOT_KV_HEADS] = DEFAULT(32), [SLOT_ROTARY_PART] = DEFAULT(0.25),
              [SLOT_QKV_BIAS] = DEFAULT(0), [SLOT_PARALLEL] = DEFAULT(0)}},
    {.model_type = "starcoder2",
     .style = STYLE_LLAMA,
     LAYER_NORMED,
     .names = &starcoder2_names,
     .slot = {SIZES(3072, 30, 24, 12288, 49152, 4096), USUAL(1e-5, "gelu_pytorch_tanh", 1),
              ROTATED(10000), [SLOT_KV_HEADS] = DEFAULT(2), [SLOT_WINDOW] = READ,
              BIASES(DEFAULT, 1, 1, 1)}},
    {.model_type = "cohere",
     .style = STYLE_LLAMA,
     .norm = NORM_LAYER,
     .interleaved = true,
     .parallel_one_norm = true,
     .names = &llama_names,
     .slot = {SIZES(8192, 40, 64, 22528, 256000, 8192), USUAL(1e-5, "silu", 1), ROTATED(10000),
              GROUPED, [SLOT_QKV_BIAS] = DEFAULT(0), [SLOT_OUT_BIAS] = DEFAULT(0),
              [SLOT_LOGIT_SCALE] = DEFAULT(0.0625), [SLOT_PARALLEL] = FIXED(1)}},
    {.model_type = "phi3",
     .style = STYLE_LLAMA,
     .norm = NORM_RMS,
     .plain_heads = true,
     .fused = FUSED_PART_HEAD,
     .names = &phi3_names,
     .slot =
         {SIZES(3072, 32, 32, 8192, 32064, 4096), USUAL(1e-5, "silu", 0),
          ROTATED(10000), [SLOT_KV_HEADS] = READ, [SLOT_WINDOW] = READ, [SLOT_ROTARY_PART] = READ}},
    {.model_type = "gpt2",
     .style = STYLE_GPT,
     LAYER_NORMED,
     .plain_heads = true,
     .transposed = true,
     .fused = FUSED_PART_HEAD,
     .ffn_times = 4,
     .names = &gpt2_names,
     .slot = {SIZES(768, 12, 12, 0, 50257, 1024), USUAL(1e-5, "gelu_new", 1),
              BIASES(FIXED, 1, 1, 1)}},
    {.model_type = "gpt_neo",
     .style = STYLE_LLAMA,
     LAYER_NORMED,
     .plain_heads = true,
     .local_layers = true,
     .ffn_times = 4,
     .names = &gpt_neo_names,
     .slot =
         {SIZES(2048, 24, 16, 0, 50257, 2048), USUAL(1e-5, "gelu_new", 1),
          BIASES(FIXED, 0, 1, 1), [SLOT_WINDOW] = DEFAULT(256), [SLOT_ATTENTION_SCALE] = FIXED(1)}},
    {.model_type = "gpt_neox",
     .style = STYLE_LLAMA,
     LAYER_NORMED,
     .plain_heads = true,
     .fused = FUSED_HEAD_PART,
     .names = &neox_names,
     .slot =
         {SIZES(6144, 44, 64, 24576, 50432, 2048), USUAL(1e-5, "gelu", 0),
          ROTATED(10000), [SLOT_ROTARY_PART] = DEFAULT(0.25), [SLOT_QKV_BIAS] = DEFAULT(1),
          [SLOT_OUT_BIAS] = DEFAULT(1), [SLOT_MLP_BIAS] = FIXED(1), [SLOT_PARALLEL] = DEFAULT(1)}},
    {.model_type = "gptj",
     .style = STYLE_GPT,
     LAYER_NORMED,
     .head_bias = true,
     .plain_heads = true,
     .interleaved = true,
     .parallel_one_norm = true,
     .ffn_times = 4,
     .names = &gptj_names,
     .slot = {SIZES(4096, 28, 16, 0, 50400, 2048),
              USUAL(1e-5, "gelu_new", 0), [SLOT_THETA] = FIXED(10000), [SLOT_ROTARY] = DEFAULT(64),
              BIASES(FIXED, 0, 0, 1), [SLOT_PARALLEL] = FIXED(1)}},
    {.model_type = "phi",
     .style = STYLE_LLAMA,
     LAYER_NORMED,
     .head_bias = true,
     .parallel_one_norm = true,
     .names = &phi_names,
     .slot = {SIZES(2048, 24, 32, 8192, 51200, 2048), USUAL(1e-5, "gelu_new", 0),
              ROTATED(10000), [SLOT_KV_HEADS] = READ, [SLOT_ROTARY_PART] = DEFAULT(0.5),
              BIASES(FIXED, 1, 1, 1), [SLOT_PARALLEL] = FIXED(1)}},
    {.model_type = "phi-msft",
     .style = STYLE_GPT,
     LAYER_NORMED,
     .head_bias = true,
     .plain_heads = true,
     .parallel_one_norm = true,
     .fused = FUSED_PART_HEAD,
     .ffn_times = 4,
     .names = &phi_msft_names,
     .slot = {SIZES(1024, 20, 16, 0, 50304, 2048), USUAL(1e-5, "gelu_new", 0),
              [SLOT_KV_HEADS] = READ, [SLOT_THETA] = FIXED(10000), [SLOT_ROTARY] = DEFAULT(32),
              BIASES(FIXED, 1, 1, 1), [SLOT_PARALLEL] = FIXED(1)}},
};
const int family_count = COUNT_OF(families);

const Wrapper wrappers[] = {
    {"llava", "llama", "", "language_model."},
    {"qwen3_vl", "qwen3_vl_text", "model.", "model.language_model."},
};
const int wrapper_count = COUNT_OF(wrappers);

#define EXPERTS                                                                                    \
    "mixture-of-experts layers need a router, dispatch and combine, which the op set lacks"
#define UNEQUAL "its fused projection has unequal parts, which the split op cannot take apart"
#define ALIBI "ALiBi position bias is not in the op set"
#define HYBRID "layers without softmax attention are not in the op set"
#define LATENT "latent (low-rank) attention is not in the op set"
#define GEMMA "norm gains stored less one and a scaled embedding are not in the model format"

const Refusal refusals[] = {
    {"aquila", "it was not checked against the op set"},
    {"baichuan",
     "the config does not say whether positions are rotated or biased (ALiBi), nor whether "
     "the head normalises its matrix, which the op set lacks"},
    {"bloom", ALIBI},
    {"chatglm", UNEQUAL},
    {"cohere2", "logits are multiplied by logit_scale, which is not in the model format"},
    {"dbrx", EXPERTS},
    {"deepseek", EXPERTS},
    {"deepseek_v2", LATENT},
    {"deepseek_v3", LATENT},
    {"deepseek_v32", LATENT},
    {"deepseek_v4", LATENT},
    {"falcon", UNEQUAL},
    {"gemma", GEMMA},
    {"gemma2", GEMMA},
    {"gemma3", GEMMA},
    {"gemma3_text", GEMMA},
    {"gemma4", GEMMA},
    {"glm_moe_dsa", LATENT},
    {"gpt_bigcode", UNEQUAL},
    {"gpt_oss", EXPERTS},
    {"grok-1", EXPERTS},
    {"hy_v3", EXPERTS},
    {"internlm2", UNEQUAL},
    {"kimi_k2", LATENT},
    {"kimi_k25", LATENT},
    {"kimi_k3", HYBRID},
    {"llama4", EXPERTS},
    {"minimax_m2", EXPERTS},
    {"minimax_m3", EXPERTS},
    {"ministral3", "rotation scaled by yarn is not in the op set"},
    {"mixtral", EXPERTS},
    {"mpt", ALIBI},
    {"nemotron", "norm gains stored less one are not in the model format"},
    {"nemotron_h", HYBRID},
    {"olmo", "a norm without gain is not in the model format"},
    {"olmo2", "queries and keys are normalised over all heads at once, which the op set lacks"},
    {"olmoe", EXPERTS},
    {"opt", "the position table is read at an offset of two, which the model format cannot say"},
    {"qwen2_moe", EXPERTS},
    {"qwen3_5", HYBRID},
    {"qwen3_5_moe", HYBRID},
    {"qwen3_moe", EXPERTS},
    {"qwen3_next", HYBRID},
    {"qwen3_vl_moe", EXPERTS},
    {"rwkv", "it is not a transformer: recurrent layers are not in the op set"},
    {"rwkv5", "it is not a transformer: recurrent layers are not in the op set"},
    {"step3p7", EXPERTS},
    {"t5", "encoder-decoder models are not supported"},
};
const int refusal_count = COUNT_OF(refusals);
