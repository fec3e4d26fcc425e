/* import_table.c - the rows: what slots there are, and the config keys that fill them. */
#include "planner/import_table.h"

#include <stddef.h>

#include "ir/base/str.h"

#define COUNT_OF(array) (int)(sizeof(array) / sizeof *(array))

/* clang-format off */
#define WHOLE(name, min, max, neutral, ...) {name, SLOT_INT, min, max, neutral, __VA_ARGS__}
#define NUMBER(name, min, max, neutral, ...) {name, SLOT_NUM, min, max, neutral, __VA_ARGS__}
#define TRUTH(name, ...) {name, SLOT_BOOL, 0, 1, 0, __VA_ARGS__}
#define TEXT(name) {name, SLOT_WORD, 0, 0, 0, true, false, false}
/* quiet, strict, nullable */
#define LOUD false, false, false
#define QUIET true, false, false
#define STRICT true, true, false
#define LOUD_STRICT false, true, false
#define OPTION true, false, true
#define LOUD_OPTION false, false, true
#define STRICT_OPTION true, true, true

const SlotInfo slot_info[SLOT_COUNT] = {
    [SLOT_HIDDEN] = WHOLE("hidden_size", 1, 1 << 20, 0, LOUD),
    [SLOT_LAYERS] = WHOLE("num_hidden_layers", 1, 1024, 0, LOUD),
    [SLOT_HEADS] = WHOLE("num_attention_heads", 1, 1 << 16, 0, LOUD),
    [SLOT_KV_HEADS] = WHOLE("num_key_value_heads", 1, 1 << 16, 0, LOUD_OPTION),
    [SLOT_ONE_KV_HEAD] = TRUTH("multi_query", QUIET),
    [SLOT_HEAD_DIM] = WHOLE("head_dim", 1, 1 << 14, 0, LOUD_OPTION),
    [SLOT_FFN] = WHOLE("intermediate_size", 1, 1 << 24, 0, LOUD_OPTION),
    [SLOT_VOCAB] = WHOLE("vocab_size", 1, 1 << 24, 0, LOUD),
    [SLOT_POSITIONS] = WHOLE("max_position_embeddings", 1, 1 << 28, 0, LOUD),
    [SLOT_WINDOW] = WHOLE("sliding_window", 1, 1 << 28, 0, OPTION),
    [SLOT_USE_WINDOW] = TRUTH("use_sliding_window", QUIET),
    [SLOT_WINDOW_FROM] = WHOLE("max_window_layers", 0, 1024, 0, QUIET),
    [SLOT_WINDOW_EVERY] = WHOLE("sliding_window_pattern", 1, 1024, 0, QUIET),
    [SLOT_CHUNK] = WHOLE("attention_chunk_size", 1, 1 << 28, 0, STRICT_OPTION),
    [SLOT_ROTARY] = WHOLE("rotary_dim", 1, 1 << 14, 0, LOUD),
    [SLOT_ROTARY_PART] = NUMBER("partial_rotary_factor", 0, 1, 1, LOUD),
    [SLOT_THETA] = NUMBER("rope_theta", 1, 1e12, 0, LOUD),
    [SLOT_LOCAL_THETA] = NUMBER("rope_local_base_freq", 1, 1e12, 0, LOUD_STRICT),
    [SLOT_INTERLEAVED] = TRUTH("rope_interleave", STRICT),
    [SLOT_EPS] = NUMBER("norm epsilon", 1e-30, 1, 0, LOUD),
    [SLOT_INIT_STD] = NUMBER("initializer_range", 0, 100, 0.02, QUIET),
    [SLOT_ACT] = TEXT("hidden_act"),
    [SLOT_ACT_SLOPE] = NUMBER("swiglu_alpha", 1e-6, 1e6, 0, QUIET),
    [SLOT_ACT_LIMIT] = NUMBER("swiglu_limit", 1e-6, 1e9, 0, LOUD_STRICT),
    [SLOT_TIE] = TRUTH("tie_word_embeddings", LOUD),
    [SLOT_QKV_BIAS] = TRUTH("attention_bias", QUIET),
    [SLOT_OUT_BIAS] = TRUTH("attention_bias", QUIET),
    [SLOT_MLP_BIAS] = TRUTH("mlp_bias", QUIET),
    [SLOT_QK_NORM] = TRUTH("use_qk_norm", STRICT),
    [SLOT_PARALLEL] = TRUTH("use_parallel_residual", STRICT),
    [SLOT_TWO_STREAMS] = TRUTH("new_decoder_architecture", STRICT),
    [SLOT_ROPE_EVERY] = WHOLE("no_rope_layer_interval", 1, 4096, 0, OPTION),
    [SLOT_ALIBI] = TRUTH("alibi", STRICT),
    [SLOT_EMBED_SCALE] = NUMBER("embedding_multiplier", 1e-9, 1e9, 1, LOUD_STRICT),
    [SLOT_RESIDUAL_SCALE] = NUMBER("residual_multiplier", 1e-9, 1e9, 1, LOUD_STRICT),
    [SLOT_DEPTH_SCALE] = NUMBER("scale_depth", 1e-9, 1e9, 0, LOUD_STRICT),
    [SLOT_LOGIT_SCALE] = NUMBER("logit_scale", 1e-9, 1e9, 1, LOUD_STRICT),
    [SLOT_LOGIT_DIVISOR] = NUMBER("logits_scaling", 1e-9, 1e9, 1, LOUD_STRICT),
    [SLOT_BASE_WIDTH] = NUMBER("dim_model_base", 1e-9, 1e9, 0, LOUD_STRICT),
    [SLOT_ATTENTION_SCALE] = NUMBER("attention_multiplier", 1e-9, 1e9, 0, LOUD_STRICT),
    [SLOT_QUERY_SCALAR] = NUMBER("query_pre_attn_scalar", 1e-9, 1e9, 0, LOUD_STRICT),
    [SLOT_SOFTCAP] = NUMBER("attn_logit_softcapping", 1e-9, 1e9, 0, STRICT_OPTION),
    [SLOT_LOGIT_CAP] = NUMBER("final_logit_softcapping", 1e-9, 1e9, 0, STRICT_OPTION),
    [SLOT_CLIP_QKV] = NUMBER("clip_qkv", 1e-9, 1e9, 0, STRICT_OPTION),
    [SLOT_TEMPER] = TRUTH("attn_temperature_tuning", STRICT),
    [SLOT_TEMPER_SCALE] = NUMBER("attn_scale", 0, 1e6, 0, QUIET),
    [SLOT_TEMPER_LENGTH] = NUMBER("floor_scale", 1, 1e12, 0, QUIET),
    [SLOT_Q_RANK] = WHOLE("q_lora_rank", 1, 1 << 20, 0, STRICT_OPTION),
    [SLOT_KV_RANK] = WHOLE("kv_lora_rank", 1, 1 << 20, 0, LOUD_STRICT),
    [SLOT_STILL_DIM] = WHOLE("qk_nope_head_dim", 1, 1 << 14, 0, LOUD),
    [SLOT_ROTATED_DIM] = WHOLE("qk_rope_head_dim", 1, 1 << 14, 0, LOUD),
    [SLOT_V_DIM] = WHOLE("v_head_dim", 1, 1 << 14, 0, LOUD_OPTION),
    [SLOT_INDEX_HEADS] = WHOLE("index_n_heads", 1, 1 << 16, 0, LOUD_STRICT),
    [SLOT_INDEX_DIM] = WHOLE("index_head_dim", 1, 1 << 14, 0, LOUD),
    [SLOT_INDEX_KEPT] = WHOLE("index_topk", 1, 1 << 28, 0, LOUD),
    [SLOT_INDEX_BLOCKS] = WHOLE("index_topk_blocks", 1, 1 << 28, 0, QUIET),
    [SLOT_INDEX_BLOCK] = WHOLE("index_block_size", 1, 1 << 28, 0, QUIET),
    [SLOT_EXPERTS] = WHOLE("num_experts", 0, 1 << 16, 0, LOUD_STRICT),
    [SLOT_CHOSEN] = WHOLE("num_experts_per_tok", 1, 1 << 16, 0, LOUD),
    [SLOT_EXPERT_FFN] = WHOLE("moe_intermediate_size", 1, 1 << 24, 0, LOUD_OPTION),
    [SLOT_SHARED] = WHOLE("n_shared_experts", 0, 1 << 16, 0, STRICT),
    [SLOT_SHARED_FFN] = WHOLE("shared_expert_intermediate_size", 0, 1 << 24, 0, STRICT_OPTION),
    [SLOT_FIRST_DENSE] = WHOLE("first_k_dense_replace", 0, 1024, 0, QUIET),
    [SLOT_EXPERT_EVERY] = WHOLE("decoder_sparse_step", 0, 1024, 0, QUIET),
    [SLOT_SCORE] = TEXT("scoring_func"),
    [SLOT_CHOOSE] = TEXT("topk_method"),
    [SLOT_ROUTER_BIAS] = TRUTH("use_routing_bias", QUIET),
    [SLOT_RENORM] = TRUTH("norm_topk_prob", QUIET),
    [SLOT_ROUTED_SCALE] = NUMBER("routed_scaling_factor", 1e-9, 1e9, 1, QUIET),
    [SLOT_GROUPS] = WHOLE("n_group", 1, 1 << 16, 1, OPTION),
    [SLOT_GROUPS_KEPT] = WHOLE("topk_group", 1, 1 << 16, 1, OPTION),
};
/* clang-format on */

#define ANY(key, slot)                                                                             \
    {                                                                                              \
        key, slot, STYLE_BOTH, NULL                                                                \
    }
#define LLAMA(key, slot)                                                                           \
    {                                                                                              \
        key, slot, STYLE_LLAMA, NULL                                                               \
    }
#define GPT(key, slot)                                                                             \
    {                                                                                              \
        key, slot, STYLE_GPT, NULL                                                                 \
    }
#define OF(family, key, slot)                                                                      \
    {                                                                                              \
        key, slot, STYLE_BOTH, family                                                              \
    }

const KeyRow key_rows[] = {
    LLAMA("hidden_size", SLOT_HIDDEN),
    GPT("n_embd", SLOT_HIDDEN),
    GPT("n_embed", SLOT_HIDDEN),
    GPT("d_model", SLOT_HIDDEN),
    LLAMA("num_hidden_layers", SLOT_LAYERS),
    GPT("num_layers", SLOT_LAYERS),
    GPT("n_layer", SLOT_LAYERS),
    GPT("n_layers", SLOT_LAYERS),
    LLAMA("num_attention_heads", SLOT_HEADS),
    GPT("num_heads", SLOT_HEADS),
    GPT("n_head", SLOT_HEADS),
    GPT("n_heads", SLOT_HEADS),
    LLAMA("num_key_value_heads", SLOT_KV_HEADS),
    GPT("num_kv_heads", SLOT_KV_HEADS),
    GPT("n_head_kv", SLOT_KV_HEADS),
    GPT("n_kv_heads", SLOT_KV_HEADS),
    ANY("multi_query_group_num", SLOT_KV_HEADS),
    ANY("attn_config.kv_n_heads", SLOT_KV_HEADS),
    ANY("multi_query", SLOT_ONE_KV_HEAD),
    ANY("head_dim", SLOT_HEAD_DIM),
    ANY("kv_channels", SLOT_HEAD_DIM),
    LLAMA("intermediate_size", SLOT_FFN),
    LLAMA("ffn_hidden_size", SLOT_FFN),
    ANY("ffn_dim", SLOT_FFN),
    GPT("n_inner", SLOT_FFN),
    ANY("vocab_size", SLOT_VOCAB),
    ANY("padded_vocab_size", SLOT_VOCAB),
    LLAMA("max_position_embeddings", SLOT_POSITIONS),
    GPT("n_positions", SLOT_POSITIONS),
    GPT("max_seq_len", SLOT_POSITIONS),
    GPT("seq_length", SLOT_POSITIONS),
    ANY("sliding_window", SLOT_WINDOW),
    ANY("sliding_window_size", SLOT_WINDOW),
    ANY("window_size", SLOT_WINDOW),
    ANY("use_sliding_window", SLOT_USE_WINDOW),
    ANY("max_window_layers", SLOT_WINDOW_FROM),
    ANY("sliding_window_pattern", SLOT_WINDOW_EVERY),
    ANY("_sliding_window_pattern", SLOT_WINDOW_EVERY),
    ANY("attention_chunk_size", SLOT_CHUNK),
    ANY("rotary_dim", SLOT_ROTARY),
    LLAMA("partial_rotary_factor", SLOT_ROTARY_PART),
    LLAMA("rotary_pct", SLOT_ROTARY_PART),
    LLAMA("rope_pct", SLOT_ROTARY_PART),
    LLAMA("rope_theta", SLOT_THETA),
    LLAMA("rotary_emb_base", SLOT_THETA),
    ANY("attn_config.rope_theta", SLOT_THETA),
    ANY("rope_local_base_freq", SLOT_LOCAL_THETA),
    ANY("rope_interleave", SLOT_INTERLEAVED),
    ANY("rms_norm_eps", SLOT_EPS),
    ANY("layer_norm_eps", SLOT_EPS),
    ANY("norm_eps", SLOT_EPS),
    LLAMA("norm_epsilon", SLOT_EPS),
    GPT("layer_norm_epsilon", SLOT_EPS),
    GPT("layernorm_epsilon", SLOT_EPS),
    ANY("initializer_range", SLOT_INIT_STD),
    LLAMA("hidden_act", SLOT_ACT),
    LLAMA("activation", SLOT_ACT),
    GPT("activation_function", SLOT_ACT),
    OF("gemma", "hidden_activation", SLOT_NONE),
    OF("gemma2", "hidden_act", SLOT_NONE),
    OF("gemma2", "hidden_activation", SLOT_ACT),
    OF("gemma3_text", "hidden_act", SLOT_NONE),
    OF("gemma3_text", "hidden_activation", SLOT_ACT),
    ANY("ffn_config.ffn_act_fn.name", SLOT_ACT),
    ANY("swiglu_limit", SLOT_ACT_LIMIT),
    ANY("swiglu_alpha", SLOT_ACT_SLOPE),
    ANY("tie_word_embeddings", SLOT_TIE),
    ANY("attention_bias", SLOT_QKV_BIAS),
    ANY("attention_bias", SLOT_OUT_BIAS),
    OF("qwen2_moe", "attention_bias", SLOT_NONE),
    OF("seed_oss", "attention_bias", SLOT_QKV_BIAS),
    ANY("attention_out_bias", SLOT_OUT_BIAS),
    ANY("bias", SLOT_QKV_BIAS),
    ANY("bias", SLOT_OUT_BIAS),
    OF("falcon", "bias", SLOT_QKV_BIAS),
    OF("falcon", "bias", SLOT_OUT_BIAS),
    OF("falcon", "bias", SLOT_MLP_BIAS),
    ANY("qkv_bias", SLOT_QKV_BIAS),
    ANY("use_qkv_bias", SLOT_QKV_BIAS),
    ANY("add_qkv_bias", SLOT_QKV_BIAS),
    ANY("add_bias_linear", SLOT_OUT_BIAS),
    ANY("add_bias_linear", SLOT_MLP_BIAS),
    ANY("enable_bias", SLOT_QKV_BIAS),
    ANY("enable_bias", SLOT_OUT_BIAS),
    ANY("enable_bias", SLOT_MLP_BIAS),
    ANY("use_bias", SLOT_QKV_BIAS),
    ANY("use_bias", SLOT_OUT_BIAS),
    ANY("use_bias", SLOT_MLP_BIAS),
    ANY("mlp_bias", SLOT_MLP_BIAS),
    ANY("use_qk_norm", SLOT_QK_NORM),
    ANY("qk_layernorm", SLOT_QK_NORM),
    ANY("qk_norm", SLOT_QK_NORM),
    ANY("attn_config.qk_ln", SLOT_QK_NORM),
    ANY("use_parallel_residual", SLOT_PARALLEL),
    ANY("parallel_attn", SLOT_PARALLEL),
    ANY("new_decoder_architecture", SLOT_TWO_STREAMS),
    ANY("no_rope_layer_interval", SLOT_ROPE_EVERY),
    ANY("alibi", SLOT_ALIBI),
    ANY("attn_config.alibi", SLOT_ALIBI),
    ANY("embedding_multiplier", SLOT_EMBED_SCALE),
    ANY("embedding_multiplier_scale", SLOT_EMBED_SCALE),
    ANY("scale_emb", SLOT_EMBED_SCALE),
    ANY("residual_multiplier", SLOT_RESIDUAL_SCALE),
    ANY("scale_depth", SLOT_DEPTH_SCALE),
    ANY("logit_scale", SLOT_LOGIT_SCALE),
    ANY("output_multiplier_scale", SLOT_LOGIT_SCALE),
    OF("mpt", "logit_scale", SLOT_NONE),
    ANY("logits_scaling", SLOT_LOGIT_DIVISOR),
    ANY("dim_model_base", SLOT_BASE_WIDTH),
    ANY("attention_multiplier", SLOT_ATTENTION_SCALE),
    ANY("attn_output_multiplier", SLOT_ATTENTION_SCALE),
    ANY("attn_config.softmax_scale", SLOT_ATTENTION_SCALE),
    ANY("query_pre_attn_scalar", SLOT_QUERY_SCALAR),
    ANY("attn_logit_softcapping", SLOT_SOFTCAP),
    ANY("max_attn_value", SLOT_SOFTCAP),
    ANY("final_logit_softcapping", SLOT_LOGIT_CAP),
    ANY("clip_qkv", SLOT_CLIP_QKV),
    ANY("attn_config.clip_qkv", SLOT_CLIP_QKV),
    ANY("attn_temperature_tuning", SLOT_TEMPER),
    ANY("attn_scale", SLOT_TEMPER_SCALE),
    ANY("floor_scale", SLOT_TEMPER_LENGTH),
    ANY("q_lora_rank", SLOT_Q_RANK),
    ANY("kv_lora_rank", SLOT_KV_RANK),
    ANY("qk_nope_head_dim", SLOT_STILL_DIM),
    ANY("qk_rope_head_dim", SLOT_ROTATED_DIM),
    ANY("v_head_dim", SLOT_V_DIM),
    ANY("index_n_heads", SLOT_INDEX_HEADS),
    ANY("index_head_dim", SLOT_INDEX_DIM),
    ANY("index_topk", SLOT_INDEX_KEPT),
    ANY("sparse_attention_config.sparse_num_index_heads", SLOT_INDEX_HEADS),
    ANY("sparse_attention_config.sparse_index_dim", SLOT_INDEX_DIM),
    ANY("index_topk_blocks", SLOT_INDEX_BLOCKS),
    ANY("sparse_attention_config.sparse_topk_blocks", SLOT_INDEX_BLOCKS),
    ANY("index_block_size", SLOT_INDEX_BLOCK),
    ANY("sparse_attention_config.sparse_block_size", SLOT_INDEX_BLOCK),
    ANY("num_experts", SLOT_EXPERTS),
    ANY("num_local_experts", SLOT_EXPERTS),
    ANY("n_routed_experts", SLOT_EXPERTS),
    ANY("ffn_config.moe_num_experts", SLOT_EXPERTS),
    ANY("num_experts_per_tok", SLOT_CHOSEN),
    ANY("experts_per_token", SLOT_CHOSEN),
    ANY("ffn_config.moe_top_k", SLOT_CHOSEN),
    ANY("moe_topk", SLOT_CHOSEN),
    ANY("moe_intermediate_size", SLOT_EXPERT_FFN),
    ANY("ffn_config.ffn_hidden_size", SLOT_EXPERT_FFN),
    OF("minimax_m3", "intermediate_size", SLOT_EXPERT_FFN),
    OF("minimax_m3", "moe_intermediate_size", SLOT_EXPERT_FFN),
    OF("minimax_m3", "dense_intermediate_size", SLOT_FFN),
    OF("minimax_m3", "hidden_act", SLOT_NONE),
    OF("llama4_text", "intermediate_size", SLOT_EXPERT_FFN),
    OF("llama4_text", "intermediate_size_mlp", SLOT_FFN),
    ANY("n_shared_experts", SLOT_SHARED),
    ANY("num_shared_experts", SLOT_SHARED),
    ANY("shared_expert_intermediate_size", SLOT_SHARED_FFN),
    ANY("shared_intermediate_size", SLOT_SHARED_FFN),
    ANY("first_k_dense_replace", SLOT_FIRST_DENSE),
    ANY("decoder_sparse_step", SLOT_EXPERT_EVERY),
    ANY("moe_layer_freq", SLOT_EXPERT_EVERY),
    ANY("interleave_moe_layer_step", SLOT_EXPERT_EVERY),
    ANY("scoring_func", SLOT_SCORE),
    ANY("topk_method", SLOT_CHOOSE),
    ANY("use_routing_bias", SLOT_ROUTER_BIAS),
    ANY("moe_router_enable_expert_bias", SLOT_ROUTER_BIAS),
    ANY("norm_topk_prob", SLOT_RENORM),
    ANY("route_norm", SLOT_RENORM),
    ANY("routed_scaling_factor", SLOT_ROUTED_SCALE),
    ANY("router_scaling_factor", SLOT_ROUTED_SCALE),
    ANY("n_group", SLOT_GROUPS),
    ANY("topk_group", SLOT_GROUPS_KEPT),
};
const int key_row_count = COUNT_OF(key_rows);

ActKind act_by_word(const char *word)
{
    static const struct {
        const char *word;
        ActKind kind;
    } rows[] = {
        {"silu", ACT_SILU},           {"swish", ACT_SILU},
        {"gelu", ACT_GELU_ERF},       {"gelu_new", ACT_GELU_TANH},
        {"gelu_fast", ACT_GELU_TANH}, {"gelu_pytorch_tanh", ACT_GELU_TANH},
        {"relu", ACT_RELU},           {"relu2", ACT_RELU2},
        {"relu_squared", ACT_RELU2},
    };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        if (str_eq(rows[i].word, word))
            return rows[i].kind;
    }
    return ACT_KIND_COUNT;
}
