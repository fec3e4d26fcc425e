/* import_family_expert.c - rows of the model families with experts or latent attention: the
 * library's defaults, what its code fixes, parameter names. */
#include "planner/import_family.h"

#define EXPERT(where, gate, up, down)                                                              \
    .expert_gate = LAYER where ".experts.{e}." gate, .expert_up = LAYER where ".experts.{e}." up,  \
    .expert_down = LAYER where ".experts.{e}." down
#define MLP_EXPERTS .router = LAYER "mlp.gate", EXPERT("mlp", "gate_proj", "up_proj", "down_proj")
#define SPARSE_EXPERTS                                                                             \
    .router = LAYER "block_sparse_moe.gate", EXPERT("block_sparse_moe", "w1", "w3", "w2")
#define SHARED(where)                                                                              \
    .shared_gate = LAYER where ".gate_proj", .shared_up = LAYER where ".up_proj",                  \
    .shared_down = LAYER where ".down_proj"
#define FURTHER                                                                                    \
    .token_norm = LAYER "enorm", .state_norm = LAYER "hnorm", .join = LAYER "eh_proj",             \
    .further_norm = LAYER "shared_head.norm"
#define CORRECTED .router_bias = LAYER "mlp.gate.e_score_correction_bias"
#define LATENT_HEADS                                                                               \
    .q = ATTENTION "q_proj", .q_down = ATTENTION "q_a_proj",                                       \
    .q_down_norm = ATTENTION "q_a_layernorm", .q_up = ATTENTION "q_b_proj",                        \
    .kv_down = ATTENTION "kv_a_proj_with_mqa", .kv_down_norm = ATTENTION "kv_a_layernorm",         \
    .kv_up = ATTENTION "kv_b_proj", .o = ATTENTION "o_proj"

static const NameSet mixtral_names = {LLAMA_STREAM, LLAMA_HEADS, SPARSE_EXPERTS};
static const NameSet minimax_names = {LLAMA_STREAM, LLAMA_HEADS, LLAMA_QK_NORMS, SPARSE_EXPERTS,
                                      .router_bias =
                                          LAYER "block_sparse_moe.e_score_correction_bias"};
static const NameSet minimax3_names = {LLAMA_STREAM,
                                       LLAMA_HEADS,
                                       LLAMA_QK_NORMS,
                                       LLAMA_MLP,
                                       SPARSE_EXPERTS,
                                       .router_bias =
                                           LAYER "block_sparse_moe.e_score_correction_bias",
                                       SHARED("block_sparse_moe.shared_experts"),
                                       .index_q = ATTENTION "index_q_proj",
                                       .index_q_norm = ATTENTION "index_q_norm",
                                       .index_k = ATTENTION "index_k_proj",
                                       .index_k_norm = ATTENTION "index_k_norm"};
static const NameSet qwen2_moe_names = {LLAMA_STREAM,
                                        LLAMA_HEADS,
                                        LLAMA_MLP,
                                        MLP_EXPERTS,
                                        SHARED("mlp.shared_expert"),
                                        .shared_share = LAYER "mlp.shared_expert_gate"};
static const NameSet qwen3_moe_names = {LLAMA_STREAM, LLAMA_HEADS, LLAMA_QK_NORMS, LLAMA_MLP,
                                        MLP_EXPERTS};
static const NameSet stacked_names = {LLAMA_STREAM,
                                      LLAMA_HEADS,
                                      LLAMA_QK_NORMS,
                                      LLAMA_MLP,
                                      .router = LAYER "mlp.gate",
                                      .expert_gate_up = LAYER "mlp.experts.gate_up_proj",
                                      .expert_down = LAYER "mlp.experts.down_proj"};
static const NameSet gpt_oss_names = {LLAMA_STREAM,
                                      LLAMA_HEADS,
                                      .sink = ATTENTION "sinks",
                                      .router = LAYER "mlp.router",
                                      .expert_gate_up = LAYER "mlp.experts.gate_up_proj",
                                      .expert_down = LAYER "mlp.experts.down_proj"};
static const NameSet llama4_names = {
    LLAMA_STREAM,
    LLAMA_HEADS,
    .gate = LAYER "feed_forward.gate_proj",
    .up = LAYER "feed_forward.up_proj",
    .down = LAYER "feed_forward.down_proj",
    .router = LAYER "feed_forward.router",
    .expert_gate_up = LAYER "feed_forward.experts.gate_up_proj",
    .expert_down = LAYER "feed_forward.experts.down_proj",
    SHARED("feed_forward.shared_expert"),
};
static const NameSet minicpm_names = {LLAMA_STREAM, LLAMA_HEADS, LLAMA_MLP,
                                      .router = LAYER "mlp.gate", EXPERT("mlp", "w1", "w3", "w2")};
static const NameSet deepseek_names = {LLAMA_STREAM, LLAMA_HEADS, LLAMA_MLP, MLP_EXPERTS,
                                       SHARED("mlp.shared_experts")};
static const NameSet latent_names = {
    LLAMA_STREAM, LATENT_HEADS, LLAMA_MLP, MLP_EXPERTS, SHARED("mlp.shared_experts"),
    CORRECTED,    FURTHER};
static const NameSet indexed_names = {LLAMA_STREAM,
                                      LATENT_HEADS,
                                      LLAMA_MLP,
                                      MLP_EXPERTS,
                                      SHARED("mlp.shared_experts"),
                                      CORRECTED,
                                      FURTHER,
                                      .index_q = ATTENTION "indexer.wq_b",
                                      .index_k = ATTENTION "indexer.wk",
                                      .index_k_norm = ATTENTION "indexer.k_norm",
                                      .index_weight = ATTENTION "indexer.weights_proj"};
static const NameSet glm4_moe_names = {LLAMA_STREAM, LLAMA_HEADS, LLAMA_QK_NORMS,
                                       LLAMA_MLP,    MLP_EXPERTS, SHARED("mlp.shared_experts"),
                                       CORRECTED,    FURTHER};
static const NameSet hunyuan_names = {LLAMA_STREAM,
                                      LLAMA_HEADS,
                                      LLAMA_QK_NORMS,
                                      LLAMA_MLP,
                                      .router = LAYER "mlp.router.gate",
                                      .router_bias = LAYER "mlp.expert_bias",
                                      EXPERT("mlp", "gate_proj", "up_proj", "down_proj"),
                                      SHARED("mlp.shared_mlp")};

static const NameSet hunyuan_moe_names = {LLAMA_STREAM,
                                          LLAMA_HEADS,
                                          .q_norm = ATTENTION "query_layernorm",
                                          .k_norm = ATTENTION "key_layernorm",
                                          .router = LAYER "mlp.gate.wg",
                                          EXPERT("mlp", "gate_proj", "up_proj", "down_proj"),
                                          SHARED("mlp.shared_mlp")};
static const NameSet granite_moe_names = {
    LLAMA_STREAM,
    LLAMA_HEADS,
    .router = LAYER "block_sparse_moe.router.layer",
    .expert_gate_up = LAYER "block_sparse_moe.input_linear",
    .expert_down = LAYER "block_sparse_moe.output_linear",
};

#define DBRX_LAYER "transformer.blocks.{i}."
static const NameSet dbrx_names = {
    .embed = "transformer.wte",
    .final_norm = "transformer.norm_f",
    .head = "lm_head",
    .norm1 = DBRX_LAYER "norm_attn_norm.norm_1",
    .norm2 = DBRX_LAYER "norm_attn_norm.norm_2",
    .qkv = DBRX_LAYER "norm_attn_norm.attn.Wqkv",
    .o = DBRX_LAYER "norm_attn_norm.attn.out_proj",
    .router = DBRX_LAYER "ffn.router.layer",
    .expert_gate = DBRX_LAYER "ffn.experts.mlp.w1",
    .expert_up = DBRX_LAYER "ffn.experts.mlp.v1",
    .expert_down = DBRX_LAYER "ffn.experts.mlp.w2",
};

static const NameSet grok_names = {
    LLAMA_ENDS,
    .norm1 = LAYER "pre_attn_norm",
    .post1 = LAYER "post_attn_norm",
    .norm2 = LAYER "pre_moe_norm",
    .post2 = LAYER "post_moe_norm",
    .q = LAYER "attn.q_proj",
    .k = LAYER "attn.k_proj",
    .v = LAYER "attn.v_proj",
    .o = LAYER "attn.o_proj",
    .router = LAYER "moe_block.gate",
    EXPERT("moe_block", "linear", "linear_v", "linear_1"),
};

#define RMS_LIKE .style = STYLE_LLAMA, .norm = NORM_RMS
#define SOFTMAX [SLOT_SCORE] = FIXED_WORD("softmax")
#define SIGMOID [SLOT_SCORE] = FIXED_WORD("sigmoid")
#define QWEN_WINDOW                                                                                \
    [SLOT_WINDOW] = DEFAULT(4096), [SLOT_USE_WINDOW] = DEFAULT(0), [SLOT_WINDOW_FROM] = DEFAULT(28)
#define LATENT_SLOTS(q_rank, kv_rank, still, rotated, v)                                           \
    [SLOT_Q_RANK] = q_rank, [SLOT_KV_RANK] = DEFAULT(kv_rank), [SLOT_STILL_DIM] = DEFAULT(still),  \
    [SLOT_ROTATED_DIM] = DEFAULT(rotated), [SLOT_V_DIM] = DEFAULT(v),                              \
    [SLOT_INTERLEAVED] = DEFAULT(1), [SLOT_KV_HEADS] = READ, BIASES(DEFAULT, 0, 0, 0)
#define DEEPSEEK_EXPERTS(experts, chosen, shared, ffn, dense)                                      \
    [SLOT_EXPERTS] = DEFAULT(experts), [SLOT_CHOSEN] = DEFAULT(chosen),                            \
    [SLOT_SHARED] = DEFAULT(shared), [SLOT_EXPERT_FFN] = DEFAULT(ffn),                             \
    [SLOT_FIRST_DENSE] = DEFAULT(dense), [SLOT_EXPERT_EVERY] = DEFAULT(1)
#define CORRECTED_CHOICE(scale, groups, kept)                                                      \
    [SLOT_SCORE] = WORD("sigmoid"), [SLOT_CHOOSE] = WORD("noaux_tc"),                              \
    [SLOT_ROUTER_BIAS] = FIXED(1), [SLOT_RENORM] = DEFAULT(1),                                     \
    [SLOT_ROUTED_SCALE] = DEFAULT(scale), [SLOT_GROUPS] = DEFAULT(groups),                         \
    [SLOT_GROUPS_KEPT] = DEFAULT(kept)
#define DEEPSEEK_V3_SLOTS                                                                          \
    SIZES(7168, 61, 128, 18432, 129280, 4096), USUAL(1e-6, "silu", 0), ROTATED(10000),             \
        LATENT_SLOTS(DEFAULT(1536), 512, 128, 64, 128), DEEPSEEK_EXPERTS(256, 8, 1, 2048, 3),      \
        CORRECTED_CHOICE(2.5, 8, 4)
#define LATENT_ROW RMS_LIKE, .renorm_epsilon = 1e-20, .renorm_several = true
#define INDEXER(heads)                                                                             \
    [SLOT_INDEX_HEADS] = DEFAULT(heads), [SLOT_INDEX_DIM] = DEFAULT(128),                          \
    [SLOT_INDEX_KEPT] = DEFAULT(2048)

const Family expert_families[] = {
    {.model_type = "mixtral",
     RMS_LIKE,
     .names = &mixtral_names,
     .slot = {SIZES(4096, 32, 32, 14336, 32000, 131072), USUAL(1e-5, "silu", 0),
              ROTATED(1000000), [SLOT_KV_HEADS] = DEFAULT(8), [SLOT_HEAD_DIM] = READ,
              [SLOT_WINDOW] = READ, [SLOT_EXPERTS] = DEFAULT(8), [SLOT_CHOSEN] = DEFAULT(2),
              SOFTMAX, [SLOT_RENORM] = FIXED(1)}},
    {.model_type = "minicpm",
     RMS_LIKE,
     .names = &minicpm_names,
     .slot =
         {SIZES(4096, 32, 32, 11008, 32000, 2048), USUAL(1e-6, "silu", 1), ROTATED(10000), GROUPED,
          BIASES(DEFAULT, 0, 0, 0), [SLOT_EMBED_SCALE] = DEFAULT(1), [SLOT_BASE_WIDTH] = DEFAULT(1),
          [SLOT_DEPTH_SCALE] = DEFAULT(1), [SLOT_EXPERTS] = DEFAULT(0), [SLOT_CHOSEN] = DEFAULT(2),
          SOFTMAX, [SLOT_RENORM] = FIXED(1)}},
    {.model_type = "qwen2_moe",
     RMS_LIKE,
     .local = LOCAL_LATE,
     .expert_first = 1,
     .names = &qwen2_moe_names,
     .slot = {SIZES(2048, 24, 16, 5632, 151936, 32768), USUAL(1e-6, "silu", 0), ROTATED(10000),
              [SLOT_KV_HEADS] = DEFAULT(16), [SLOT_HEAD_DIM] = READ, [SLOT_QKV_BIAS] = DEFAULT(1),
              QWEN_WINDOW, [SLOT_EXPERTS] = DEFAULT(60), [SLOT_CHOSEN] = DEFAULT(4),
              [SLOT_EXPERT_FFN] = DEFAULT(1408), [SLOT_SHARED_FFN] = DEFAULT(5632),
              [SLOT_EXPERT_EVERY] = DEFAULT(1), SOFTMAX, [SLOT_RENORM] = DEFAULT(0)}},
    {.model_type = "qwen3_moe",
     RMS_LIKE,
     .local = LOCAL_LATE,
     .expert_first = 1,
     .names = &qwen3_moe_names,
     .slot = {SIZES(2048, 24, 32, 6144, 151936, 32768), USUAL(1e-6, "silu", 0),
              ROTATED(10000), [SLOT_KV_HEADS] = DEFAULT(4), [SLOT_HEAD_DIM] = READ,
              BIASES(DEFAULT, 0, 0, 0), QWEN_WINDOW, [SLOT_QK_NORM] = FIXED(1),
              [SLOT_EXPERTS] = DEFAULT(128), [SLOT_CHOSEN] = DEFAULT(8),
              [SLOT_EXPERT_FFN] = DEFAULT(768), [SLOT_EXPERT_EVERY] = DEFAULT(1),
              SOFTMAX, [SLOT_RENORM] = DEFAULT(0)}},
    {.model_type = "qwen3_vl_moe_text",
     RMS_LIKE,
     .expert_first = 1,
     .stored = STORED_STACK,
     .names = &stacked_names,
     .slot = {SIZES(2048, 24, 16, 5632, 151936, 128000), USUAL(1e-6, "silu", 0),
              ROTATED(5000000), [SLOT_KV_HEADS] = DEFAULT(16), [SLOT_HEAD_DIM] = READ,
              BIASES(DEFAULT, 0, 0, 0), [SLOT_QK_NORM] = FIXED(1), [SLOT_EXPERTS] = DEFAULT(60),
              [SLOT_CHOSEN] = DEFAULT(4), [SLOT_EXPERT_FFN] = DEFAULT(1408),
              [SLOT_EXPERT_EVERY] = DEFAULT(1), SOFTMAX, [SLOT_RENORM] = FIXED(1)}},
    {.model_type = "olmoe",
     RMS_LIKE,
     .qk = QK_WIDE,
     .names = &qwen3_moe_names,
     .slot = {SIZES(2048, 16, 16, 2048, 50304, 4096), USUAL(1e-5, "silu", 0),
              ROTATED(10000), [SLOT_KV_HEADS] = READ,
              BIASES(DEFAULT, 0, 0, 0), [SLOT_CLIP_QKV] = READ, [SLOT_QK_NORM] = FIXED(1),
              [SLOT_EXPERTS] = DEFAULT(64), [SLOT_CHOSEN] = DEFAULT(8),
              SOFTMAX, [SLOT_RENORM] = DEFAULT(0)}},
    {.model_type = "dbrx",
     .style = STYLE_GPT,
     .norm = NORM_LAYER,
     .fused = FUSED_PART,
     .stored = STORED_FLAT,
     .names = &dbrx_names,
     .slot = {SIZES(2048, 24, 16, 0, 32000, 2048), [SLOT_EPS] = FIXED(1e-5),
              [SLOT_ACT] = WORD("silu"), [SLOT_TIE] = DEFAULT(0), ROTATED(10000),
              [SLOT_KV_HEADS] = DEFAULT(1), [SLOT_CLIP_QKV] = READ, [SLOT_EXPERTS] = DEFAULT(4),
              [SLOT_CHOSEN] = DEFAULT(1), [SLOT_EXPERT_FFN] = DEFAULT(3584),
              SOFTMAX, [SLOT_RENORM] = FIXED(1)}},
    {.model_type = "grok-1",
     RMS_LIKE,
     .norm_suffix = "scale",
     .names = &grok_names,
     .slot = {SIZES(6144, 64, 48, 32768, 131072, 8192), [SLOT_EPS] = DEFAULT(1e-5),
              [SLOT_ACT] = FIXED_WORD("gelu_new"), [SLOT_TIE] = DEFAULT(1), ROTATED(10000),
              [SLOT_KV_HEADS] = READ, [SLOT_SOFTCAP] = DEFAULT(30), [SLOT_EMBED_SCALE] = DEFAULT(1),
              [SLOT_LOGIT_SCALE] = DEFAULT(1), [SLOT_ATTENTION_SCALE] = DEFAULT(1),
              [SLOT_EXPERTS] = DEFAULT(8), [SLOT_CHOSEN] = DEFAULT(2),
              SOFTMAX, [SLOT_RENORM] = FIXED(0)}},
    {.model_type = "gpt_oss",
     RMS_LIKE,
     .turn = "{\"rope_type\": \"yarn\", \"factor\": 32, \"beta_fast\": 32, \"beta_slow\": 1, "
             "\"truncate\": false, \"original_max_position_embeddings\": 4096}",
     .local = LOCAL_EVERY,
     .stored = STORED_PAIRS,
     .router_linear_bias = true,
     .choose_first = true,
     .names = &gpt_oss_names,
     .slot =
         {SIZES(2880, 36, 64, 2880, 201088, 131072), [SLOT_EPS] = DEFAULT(1e-5),
          [SLOT_ACT] = WORD("silu"), [SLOT_TIE] = DEFAULT(0),
          ROTATED(150000), [SLOT_KV_HEADS] = DEFAULT(8), [SLOT_HEAD_DIM] = DEFAULT(64),
          [SLOT_QKV_BIAS] = DEFAULT(1), [SLOT_OUT_BIAS] = DEFAULT(1), [SLOT_MLP_BIAS] = FIXED(1),
          [SLOT_WINDOW] = DEFAULT(128), [SLOT_WINDOW_EVERY] = FIXED(2),
          [SLOT_ACT_LIMIT] = DEFAULT(7), [SLOT_EXPERTS] = DEFAULT(128), [SLOT_CHOSEN] = DEFAULT(4),
          SOFTMAX, [SLOT_RENORM] = FIXED(0)}},
    {.model_type = "llama4_text",
     RMS_LIKE,
     .qk = QK_BARE,
     .local = LOCAL_ROTATED,
     .stored = STORED_STACK,
     .share_first = true,
     .expert_first = 1,
     .choose_first = true,
     .names = &llama4_names,
     .slot = {SIZES(5120, 48, 40, 16384, 202048, 131072), USUAL(1e-5, "silu", 0),
              ROTATED(500000), [SLOT_KV_HEADS] = DEFAULT(8), [SLOT_HEAD_DIM] = DEFAULT(128),
              [SLOT_INTERLEAVED] = FIXED(1), BIASES(DEFAULT, 0, 0, 0), [SLOT_QK_NORM] = DEFAULT(1),
              [SLOT_ROPE_EVERY] = DEFAULT(4), [SLOT_CHUNK] = DEFAULT(8192),
              [SLOT_TEMPER] = DEFAULT(1), [SLOT_TEMPER_SCALE] = DEFAULT(0.1),
              [SLOT_TEMPER_LENGTH] = DEFAULT(8192), [SLOT_EXPERTS] = DEFAULT(16),
              [SLOT_CHOSEN] = DEFAULT(1), [SLOT_EXPERT_FFN] = DEFAULT(8192),
              [SLOT_SHARED] = FIXED(1), [SLOT_EXPERT_EVERY] = DEFAULT(1), SIGMOID}},
    {.model_type = "minimax_m2",
     RMS_LIKE,
     .qk = QK_WIDE,
     .names = &minimax_names,
     .slot = {SIZES(3072, 62, 48, 1536, 200064, 196608), USUAL(1e-6, "silu", 0), ROTATED(5000000),
              [SLOT_KV_HEADS] = DEFAULT(8), [SLOT_HEAD_DIM] = READ, [SLOT_ROTARY] = DEFAULT(64),
              [SLOT_QK_NORM] = FIXED(1), [SLOT_EXPERTS] = DEFAULT(256), [SLOT_CHOSEN] = DEFAULT(8),
              SIGMOID, [SLOT_ROUTER_BIAS] = DEFAULT(1), [SLOT_RENORM] = FIXED(1)}},
    {.model_type = "minimax_m3",
     RMS_LIKE,
     .norm_shift = true,
     .names = &minimax3_names,
     .slot = {SIZES(6144, 60, 64, 12288, 200064, 524288),
              USUAL(1e-6, "silu", 0),
              ROTATED(5000000),
              [SLOT_KV_HEADS] = DEFAULT(4),
              [SLOT_HEAD_DIM] = DEFAULT(128),
              [SLOT_ROTARY] = DEFAULT(64),
              [SLOT_QK_NORM] = FIXED(1),
              [SLOT_ACT_LIMIT] = DEFAULT(7),
              [SLOT_ACT_SLOPE] = DEFAULT(1.702),
              [SLOT_EXPERTS] = DEFAULT(128),
              [SLOT_CHOSEN] = DEFAULT(4),
              [SLOT_EXPERT_FFN] = DEFAULT(3072),
              [SLOT_SHARED] = FIXED(1),
              [SLOT_SHARED_FFN] = DEFAULT(3072),
              [SLOT_EXPERT_EVERY] = DEFAULT(1),
              [SLOT_FIRST_DENSE] = DEFAULT(0),
              SIGMOID,
              [SLOT_ROUTER_BIAS] = DEFAULT(1),
              [SLOT_RENORM] = FIXED(1),
              [SLOT_ROUTED_SCALE] = DEFAULT(2),
              [SLOT_INDEX_HEADS] = DEFAULT(4),
              [SLOT_INDEX_DIM] = DEFAULT(128),
              [SLOT_INDEX_BLOCKS] = DEFAULT(16),
              [SLOT_INDEX_BLOCK] = DEFAULT(128)}},
    {.model_type = "hy_v3",
     RMS_LIKE,
     .renorm_epsilon = 1e-20,
     .names = &hunyuan_names,
     .slot = {SIZES(4096, 80, 64, 13312, 120832, 131072), USUAL(1e-5, "silu", 0),
              ROTATED(11158840), [SLOT_KV_HEADS] = DEFAULT(8), [SLOT_HEAD_DIM] = DEFAULT(128),
              BIASES(DEFAULT, 0, 0, 0), [SLOT_QK_NORM] = FIXED(1),
              DEEPSEEK_EXPERTS(192, 8, 1, 1536, 1), SIGMOID, [SLOT_ROUTER_BIAS] = DEFAULT(1),
              [SLOT_RENORM] = FIXED(1), [SLOT_ROUTED_SCALE] = DEFAULT(2.826)}},
    {.model_type = "hunyuan_v1_moe",
     RMS_LIKE,
     .qk_after = true,
     .names = &hunyuan_moe_names,
     .slot = {SIZES(4096, 32, 32, 11008, 290943, 2048), USUAL(1e-5, "silu", 0), ROTATED(10000),
              GROUPED, BIASES(DEFAULT, 0, 0, 0), [SLOT_QK_NORM] = FIXED(1),
              [SLOT_EXPERTS] = DEFAULT(1), [SLOT_CHOSEN] = DEFAULT(1), [SLOT_SHARED] = FIXED(1),
              SOFTMAX, [SLOT_RENORM] = FIXED(1)}},
    {.model_type = "granitemoe",
     RMS_LIKE,
     .stored = STORED_ROWS,
     .choose_first = true,
     .names = &granite_moe_names,
     .slot = {SIZES(4096, 32, 32, 11008, 32000, 2048), USUAL(1e-6, "silu", 0), ROTATED(10000),
              GROUPED, BIASES(DEFAULT, 0, 0, 0), [SLOT_EMBED_SCALE] = DEFAULT(1),
              [SLOT_RESIDUAL_SCALE] = DEFAULT(1), [SLOT_LOGIT_DIVISOR] = DEFAULT(1),
              [SLOT_ATTENTION_SCALE] = DEFAULT(1), [SLOT_EXPERTS] = DEFAULT(8),
              [SLOT_CHOSEN] = DEFAULT(2), SOFTMAX, [SLOT_RENORM] = FIXED(0)}},
    {.model_type = "deepseek",
     RMS_LIKE,
     .renorm_epsilon = 1e-20,
     .names = &deepseek_names,
     .slot = {SIZES(4096, 30, 32, 11008, 102400, 2048), USUAL(1e-6, "silu", 0),
              ROTATED(10000), [SLOT_KV_HEADS] = READ, BIASES(DEFAULT, 0, 0, 0),
              DEEPSEEK_EXPERTS(0, 6, 0, 1407, 0), [SLOT_SCORE] = WORD("softmax"),
              [SLOT_RENORM] = DEFAULT(0), [SLOT_ROUTED_SCALE] = FIXED(1)}},
    {.model_type = "deepseek_v2",
     LATENT_ROW,
     .names = &latent_names,
     .slot =
         {SIZES(4096, 30, 32, 11008, 102400, 2048), USUAL(1e-6, "silu", 0), ROTATED(10000),
          LATENT_SLOTS(READ, 512, 128, 64, 128),
          DEEPSEEK_EXPERTS(0, 6, 0, 1407, 0), [SLOT_SCORE] = WORD("softmax"),
          [SLOT_CHOOSE] = WORD("greedy"), [SLOT_ROUTER_BIAS] = FIXED(0), [SLOT_RENORM] = DEFAULT(0),
          [SLOT_ROUTED_SCALE] = DEFAULT(1), [SLOT_GROUPS] = READ, [SLOT_GROUPS_KEPT] = READ}},
    {.model_type = "minicpm3",
     RMS_LIKE,
     .names = &latent_names,
     .slot = {SIZES(4096, 32, 32, 11008, 32000, 2048), USUAL(1e-6, "silu", 1),
              ROTATED(10000), [SLOT_Q_RANK] = DEFAULT(768), [SLOT_KV_RANK] = DEFAULT(256),
              [SLOT_STILL_DIM] = DEFAULT(64), [SLOT_ROTATED_DIM] = DEFAULT(32), [SLOT_V_DIM] = READ,
              [SLOT_KV_HEADS] = READ, BIASES(DEFAULT, 0, 0, 0), [SLOT_EMBED_SCALE] = DEFAULT(1),
              [SLOT_BASE_WIDTH] = DEFAULT(1), [SLOT_DEPTH_SCALE] = DEFAULT(1)}},
    {.model_type = "deepseek_v3", LATENT_ROW, .names = &latent_names, .slot = {DEEPSEEK_V3_SLOTS}},
    {.model_type = "kimi_k2", LATENT_ROW, .names = &latent_names, .slot = {DEEPSEEK_V3_SLOTS}},
    {.model_type = "deepseek_v32",
     LATENT_ROW,
     .names = &indexed_names,
     .slot = {DEEPSEEK_V3_SLOTS, INDEXER(64)}},
    {.model_type = "glm_moe_dsa",
     LATENT_ROW,
     .names = &indexed_names,
     .slot = {SIZES(6144, 78, 64, 12288, 154880, 202752), USUAL(1e-5, "silu", 0), ROTATED(10000),
              LATENT_SLOTS(DEFAULT(2048), 512, 192, 64, 256), DEEPSEEK_EXPERTS(256, 8, 1, 2048, 3),
              CORRECTED_CHOICE(2.5, 1, 1), INDEXER(32)}},
    {.model_type = "glm4_moe",
     LATENT_ROW,
     .names = &glm4_moe_names,
     .slot = {SIZES(4096, 46, 96, 10944, 151552, 131072), USUAL(1e-5, "silu", 0),
              ROTATED(10000), [SLOT_KV_HEADS] = DEFAULT(8), [SLOT_HEAD_DIM] = DEFAULT(128),
              [SLOT_ROTARY_PART] = DEFAULT(0.5), [SLOT_QKV_BIAS] = DEFAULT(0),
              [SLOT_QK_NORM] = DEFAULT(0), DEEPSEEK_EXPERTS(128, 8, 1, 1408, 1),
              CORRECTED_CHOICE(1, 1, 1)}},
};
const int expert_family_count = COUNT_OF(expert_families);
