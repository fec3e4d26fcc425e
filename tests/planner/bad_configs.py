"""bad_configs.py - configs that must be refused: (name, text, line of the error, words of the message)."""
import json

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
}
GOOD = json.dumps(LLAMA, indent=1)
LINE = {key: number for number, key in enumerate(LLAMA, 2)}
# The list of architectures takes three lines.
LINE = {key: line + (2 if line > 3 else 0) for key, line in LINE.items()}


def with_(key, value):
    """The good config with one value's JSON text changed."""
    old = f'"{key}": {json.dumps(LLAMA[key])}'
    assert old in GOOD, key
    return GOOD.replace(old, f'"{key}": {value}')


def plus(members):
    return GOOD[:-2] + ",\n " + members + "\n}"


LAST = GOOD.count("\n") + 1


def of(family, members=""):
    """The same sizes as another family's, on two lines."""
    config = {**LLAMA, "model_type": family}
    del config["architectures"]
    text = json.dumps(config)
    return text[:-1] + (",\n " + members if members else "") + "}"


BAD = [
    ("empty file", "", 1, "end of file"),
    ("truncated", GOOD[:90], r"\d+", ""),
    ("truncated inside a string", GOOD[:20], r"\d+", ""),
    ("a list", "[1, 2]", 1, "an object"),
    ("text after the value", GOOD + "\n{}", r"\d+", "end of file"),
    ("no model_type", "{\n}", 1, "model_type"),
    ("model_type is a number", with_("model_type", "3"), 2, "a string"),
    ("unknown family", with_("model_type", '"lama"'), 2, 'model family "lama" is not known'),
    ("family with quotes and newlines", with_("model_type", r'"a\"b\nc\u0007"'), 2, "not known"),
    ("a family that is no transformer", with_("model_type", '"rwkv"'), 2, "recurrent"),
    ("no layers given", GOOD.replace(f'"num_hidden_layers": {LLAMA["num_hidden_layers"]},', ""), 1,
     "num_hidden_layers is missing"),
    ("nothing but a family", '{"model_type": "gpt2"}', 1, "n_embd is missing"),
    ("wrong type", with_("hidden_size", '"64"'), LINE["hidden_size"], "an integer"),
    ("a fraction", with_("hidden_size", "64.5"), LINE["hidden_size"], "an integer"),
    ("negative", with_("vocab_size", "-100"), LINE["vocab_size"], "between"),
    ("zero", with_("num_attention_heads", "0"), LINE["num_attention_heads"], "between"),
    ("1e18 dims", with_("hidden_size", "1000000000000000000"), LINE["hidden_size"], "between"),
    ("a real of 1e18", with_("intermediate_size", "1e18"), LINE["intermediate_size"], "integer"),
    ("beyond 64 bits", with_("hidden_size", "99999999999999999999"), LINE["hidden_size"], ""),
    ("NaN", with_("rms_norm_eps", "NaN"), LINE["rms_norm_eps"], "NaN"),
    ("Infinity", with_("rope_theta", "Infinity"), LINE["rope_theta"], "Infinity"),
    ("theta 1e999", with_("rope_theta", "1e999"), LINE["rope_theta"], ""),
    ("negative eps", with_("rms_norm_eps", "-1.0"), LINE["rms_norm_eps"], "between"),
    ("a truth value as text", with_("tie_word_embeddings", '"no"'), LINE["tie_word_embeddings"],
     "true or false"),
    ("heads do not divide", with_("num_attention_heads", "3"), LINE["num_attention_heads"],
     "hidden_size 64 is not divisible by num_attention_heads 3"),
    ("kv heads do not divide", with_("num_key_value_heads", "3"), LINE["num_key_value_heads"],
     "num_attention_heads 4 is not divisible by num_key_value_heads 3"),
    ("more kv heads than heads", with_("num_key_value_heads", "8"), LINE["num_key_value_heads"],
     "not divisible"),
    ("odd heads cannot rotate", plus('"head_dim": 7'), LAST, "rotated in pairs"),
    ("duplicate key", plus('"hidden_size": 64'), LAST, "duplicate"),
    ("two keys for one thing", plus('"norm_eps": 0.1'), LAST, "norm_eps contradicts rms_norm_eps"),
    ("experts where there are none", plus('"num_local_experts": 8'), LAST, "num_local_experts"),
    ("an unknown stretch", plus('"rope_scaling": {"rope_type": "proportional", "factor": 4.0}'), LAST,
     "proportional"),
    ("yarn upside down", plus('"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 1, '
                              '"beta_slow": 2}'), LAST, "beta_slow"),
    ("longrope without lists", plus('"rope_scaling": {"rope_type": "longrope"}'), LAST, "short_factor"),
    ("unknown scaling", plus('"rope_scaling": {"type": "linar", "factor": 4.0}'), LAST, "linear"),
    ("llama3 scaling without factor", plus('"rope_scaling": {"rope_type": "llama3"}'), LAST, "factor"),
    ("llama3 scaling upside down",
     plus('"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, '
          '"high_freq_factor": 1, "original_max_position_embeddings": 64}'), LAST, "low_freq_factor"),
    ("scaling is a list", plus('"rope_scaling": [1]'), LAST, "an object"),
    ("activation", plus('"hidden_act": "quick_gelu"'), LAST, "quick_gelu"),
    ("activation with control bytes", plus(r'"hidden_act": "\u001b[31m\n"'), LAST, "not in the op set"),
    ("a multiplier nobody reads", plus('"logit_scale": 0.5'), LAST, "logit_scale"),
    ("parallel where there is none", plus('"use_parallel_residual": true'), LAST, "llama"),
    ("encoder", plus('"is_encoder_decoder": true'), LAST, "encoder"),
    ("a classifier", GOOD.replace("ForCausalLM", "ForTokenClassification"), 3, "next token"),
    ("linear layers", plus('"layer_types": ["full_attention", "linear_attention"]'), LAST, "full_attention"),
    ("more experts chosen than there are", of("mixtral", '"num_local_experts": 4, "num_experts_per_tok": 5'), 2,
     "num_experts_per_tok 5 of 4 experts"),
    ("groups that do not divide", of("deepseek_v3", '"num_key_value_heads": 4, "n_group": 3').replace(
        '"num_key_value_heads": 2, ', ""), 2, "256 experts cannot be chosen"),
    ("latent heads that are grouped", of("deepseek_v3"), 1, "as many key as query heads"),
    ("a layer's kind is missing", of("qwen3_moe", '"mlp_only_layers": [2]'), 2, "between 0 and 1"),
    ("a list too short", of("gemma2", '"layer_types": ["full_attention"]'), 2, "each of the 2 layers"),
    ("a layer that is not in the library", of("gemma2", '"layer_types": ["full_attention", "sliding"]'), 2,
     "sliding_attention"),
    ("a score nobody knows", of("deepseek", '"n_routed_experts": 8, "scoring_func": "sqrtsoftplus"'), 2, "sqrtsoftplus"),
    ("a larger model with other positions", of("baichuan"), 1, "ALiBi"),
    ("norms behind the additions", of("opt", '"do_layer_norm_before": false'), 2, "norms behind"),
    ("embeddings of another width", of("opt", '"word_embed_proj_dim": 32'), 2, "another width"),
    ("encoder and decoder", of("t5"), 1, "encoder-decoder"),
    ("a layer that does not attend", of("qwen3_next", '"layer_types": ["full_attention", "linear_attention"]'), 1,
     'layer 1 is "linear_attention"'),
    ("hybrid by a pattern", of("nemotron_h", '"hybrid_override_pattern": "*M"'), 1, 'layer 1 is "M (Mamba)"'),
    ("choosers that layers share", of("glm_moe_dsa", '"index_topk_freq": 4'), 2, "several layers share"),
    ("bytes that are no text", b'{"model_type": "\xff\xfe"}', 1, ""),
    ("a zero byte", '{"model_type": "ll\\u0000ama"}', 1, ""),
    ("deep nesting", "[" * 100000, 1, ""),
]
