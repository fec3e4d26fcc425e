/* import_refuse.c - the rows: wrappers around a language model, and families that are refused. */
#include "planner/import_family.h"

const Family *family_at(int i)
{
    if (i < llama_family_count)
        return &llama_families[i];
    i -= llama_family_count;
    if (i < gpt_family_count)
        return &gpt_families[i];
    i -= gpt_family_count;
    return i < expert_family_count ? &expert_families[i] : NULL;
}

const Alias aliases[] = {
    {"minimax_m3_vl_text", "minimax_m3"},
    {"Yi", "llama"},
    {"qwen2_5_vl_text", "qwen2"},
    {"qwen2_vl_text", "qwen2"},
};
const int alias_count = COUNT_OF(aliases);

const Wrapper wrappers[] = {
    {"gemma3", "gemma3_text", "", "language_model."},
    {"kimi_k25", "kimi_k2", "", "language_model."},
    {"llama4", "llama4_text", "", "language_model."},
    {"llava", "llama", "", "language_model."},
    {"ministral3", "ministral3", "", "language_model."},
    {"minimax_m3_vl", "minimax_m3", "", "language_model."},
    {"mistral3", "mistral", "", "language_model."},
    {"aya_vision", "cohere2", "", "language_model."},
    {"internvl", "qwen2", "", "language_model."},
    {"llava_next", "llama", "", "language_model."},
    {"qwen2_5_vl", "qwen2", "model.", "model.language_model."},
    {"qwen2_vl", "qwen2", "model.", "model.language_model."},
    {"qwen3_vl", "qwen3_vl_text", "model.", "model.language_model."},
    {"qwen3_vl_moe", "qwen3_vl_moe_text", "model.", "model.language_model."},
};
const int wrapper_count = COUNT_OF(wrappers);

#define HYBRID "layers without softmax attention are not in the op set"
#define RECURRENT "it is not a transformer: recurrent layers are not in the op set"
#define TWO_SIDED "encoder-decoder models are not supported"

const Refusal refusals[] = {
    {"aquila", "it was not checked against the op set"},
    {"bart", TWO_SIDED},
    {"deepseek_v4",
     "hyper-connections between layers (hc_mult), compressed keys (compress_ratios), grouped "
     "output "
     "projections (o_groups) and hashed routing (num_hash_layers) are not in the op set"},
    {"falcon_mamba", HYBRID},
    {"gemma4",
     "a stored number multiplies the output of each layer (layer_scalar) and the weight of each "
     "expert (per_expert_scale), and layers differ in the width of their heads (global_head_dim): "
     "none of this is in the model format"},
    {"jamba", HYBRID},
    {"kimi_k3", HYBRID},
    {"kimi_linear", HYBRID},
    {"mamba", RECURRENT},
    {"mamba2", RECURRENT},
    {"marian", TWO_SIDED},
    {"mbart", TWO_SIDED},
    {"minimax", HYBRID},
    {"mt5", TWO_SIDED},
    {"nemotron_h", HYBRID},
    {"qwen3_5", HYBRID},
    {"qwen3_5_moe", HYBRID},
    {"qwen3_next", HYBRID},
    {"recurrent_gemma", HYBRID},
    {"rwkv", RECURRENT},
    {"rwkv5", RECURRENT},
    {"step3p7",
     "gated heads (g_proj) are not in the model format, and layers with a window have a number of "
     "heads and a rotation that this config does not state"},
    {"t5", TWO_SIDED},
    {"whisper", TWO_SIDED},
    {"zamba2", HYBRID},
};
const int refusal_count = COUNT_OF(refusals);
