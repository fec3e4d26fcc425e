"""plain_models.py - GPT-2, Llama and Qwen2 written from their definitions, in any float type.

It exists because the transformers models cannot be run in honest double precision: RMS norm,
softmax and rotary angles are computed in fp32 there, whatever the type of the weights.
make_golden.py records the fp32 figures of transformers, and uses this file to say how far fp32 is
from fp64, and, with one rule twisted at a time, how far each plausible mistake is from the truth.

Parameters are a dict from Hugging Face name (GPT-2 without the `transformer.` prefix) to tensor.
Shapes in comments: b rows, s positions, d model width, h heads, g key/value heads, e head width.
"""

import math

import torch
import torch.nn.functional as F

# Every twist is one plausible mistake in a model; each touches one `if` below.
MODEL_TWISTS = {
    "rope_interleaved": "rotary pairs (2i, 2i+1) instead of (i, i + e/2)",
    "rope_theta_default": "rotary base 10000 whatever the config says",
    "rope_from_one": "positions counted from 1",
    "kv_modulo": "query head i reads key/value head i mod g instead of i div (h/g)",
    "kv_first": "every query head reads key/value head 0",
    "gelu_exact": "erf GELU instead of the tanh form",
    "no_scale": "scores not divided by sqrt(e)",
    "not_causal": "future positions visible",
    "eps_small": "norm epsilon 1e-12",
    "eps_outside": "epsilon added to the deviation instead of to the variance",
    "variance_sample": "variance divided by d - 1",
    "post_norm_input": "second norm of a block reads the block's input",
    "no_position": "position embedding left out",
    "silu_on_up": "SiLU on the up projection instead of on the gate",
    "attention_bias_dropped": "biases of q, k and v left out",
    "qkv_reordered": "the fused projection split as k, q, v",
    "tied_head_frozen": "no gradient from the head into a tied matrix",
    "tied_lookup_frozen": "no gradient from the lookup into a tied matrix",
}


def norm_layer(x, gain, bias, eps, twist):
    mean = x.mean(-1, keepdim=True)
    count = x.shape[-1] - (1 if twist == "variance_sample" else 0)
    variance = ((x - mean) ** 2).sum(-1, keepdim=True) / count
    return (x - mean) / deviation(variance, eps, twist) * gain + bias


def norm_rms(x, gain, eps, twist):
    return x / deviation((x * x).mean(-1, keepdim=True), eps, twist) * gain


def deviation(variance, eps, twist):
    if twist == "eps_outside":
        return torch.sqrt(variance) + eps
    return torch.sqrt(variance + (1e-12 if twist == "eps_small" else eps))


def attend(q, k, v, twist):
    """q [b,h,s,e], k and v [b,g,s,e] -> [b,s,h*e]."""
    heads, groups, seq, width = q.shape[1], k.shape[1], q.shape[2], q.shape[3]
    picks = [i * groups // heads for i in range(heads)]
    if twist == "kv_modulo":
        picks = [i % groups for i in range(heads)]
    elif twist == "kv_first":
        picks = [0] * heads
    k, v = k[:, picks], v[:, picks]
    scores = q @ k.transpose(-1, -2)
    if twist != "no_scale":
        scores = scores / math.sqrt(width)
    if twist != "not_causal":
        future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    out = torch.softmax(scores, dim=-1) @ v
    return out.transpose(1, 2).reshape(q.shape[0], seq, heads * width)


def split_heads(x, width):
    return x.view(x.shape[0], x.shape[1], -1, width).transpose(1, 2)


def lookup(table, ids, tied, twist):
    return F.embedding(ids, table.detach() if tied and twist == "tied_lookup_frozen" else table)


def project(x, head, tied, twist):
    return x @ (head.detach() if tied and twist == "tied_head_frozen" else head).T


def gpt2_logits(config, w, ids, twist=None):
    width = config["n_embd"] // config["n_head"]
    eps = config["layer_norm_epsilon"]
    x = lookup(w["wte.weight"], ids, True, twist)
    if twist != "no_position":
        x = x + w["wpe.weight"][: ids.shape[1]]
    for layer in range(config["n_layer"]):
        p = f"h.{layer}."
        n = norm_layer(x, w[p + "ln_1.weight"], w[p + "ln_1.bias"], eps, twist)
        # GPT-2 keeps its four linears as [in, out]: y = x W + b, no transpose.
        qkv = n @ w[p + "attn.c_attn.weight"]
        if twist != "attention_bias_dropped":
            qkv = qkv + w[p + "attn.c_attn.bias"]
        q, k, v = (split_heads(part, width) for part in qkv.chunk(3, dim=-1))
        if twist == "qkv_reordered":
            q, k = k, q
        out = attend(q, k, v, twist) @ w[p + "attn.c_proj.weight"] + w[p + "attn.c_proj.bias"]
        block_input, x = x, x + out
        n = block_input if twist == "post_norm_input" else x
        n = norm_layer(n, w[p + "ln_2.weight"], w[p + "ln_2.bias"], eps, twist)
        n = n @ w[p + "mlp.c_fc.weight"] + w[p + "mlp.c_fc.bias"]
        n = gelu(n, twist)
        x = x + n @ w[p + "mlp.c_proj.weight"] + w[p + "mlp.c_proj.bias"]
    x = norm_layer(x, w["ln_f.weight"], w["ln_f.bias"], eps, twist)
    return project(x, w["wte.weight"], True, twist)


def gelu(x, twist):
    if twist == "gelu_exact":
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def rotate(x, theta, twist):
    """Rotary embedding of x [b,h,s,e]: pair i turns by position * theta^(-2i/e)."""
    seq, width = x.shape[2], x.shape[3]
    if twist == "rope_theta_default":
        theta = 10000.0
    pair = torch.arange(width // 2, dtype=x.dtype)
    position = torch.arange(seq, dtype=x.dtype) + (1 if twist == "rope_from_one" else 0)
    angle = position[:, None] * theta ** (-2 * pair / width)
    cos, sin = torch.cos(angle), torch.sin(angle)
    if twist == "rope_interleaved":
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    a, b = x[..., : width // 2], x[..., width // 2 :]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def llama_logits(config, w, ids, twist=None):
    """Llama; also Qwen2, which differs only in having biases on q, k and v."""
    width = config["hidden_size"] // config["num_attention_heads"]
    eps = config["rms_norm_eps"]
    theta = (config if "rope_theta" in config else config["rope_parameters"])["rope_theta"]
    table, tied = w["model.embed_tokens.weight"], config["tie_word_embeddings"]
    x = lookup(table, ids, tied, twist)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        n = norm_rms(x, w[p + "input_layernorm.weight"], eps, twist)
        heads = []
        for name in ("q", "k", "v"):
            y = n @ w[f"{p}self_attn.{name}_proj.weight"].T
            bias = w.get(f"{p}self_attn.{name}_proj.bias")
            if bias is not None and twist != "attention_bias_dropped":
                y = y + bias
            heads.append(split_heads(y, width))
        q, k, v = heads
        q, k = rotate(q, theta, twist), rotate(k, theta, twist)
        out = attend(q, k, v, twist) @ w[p + "self_attn.o_proj.weight"].T
        block_input, x = x, x + out
        n = block_input if twist == "post_norm_input" else x
        n = norm_rms(n, w[p + "post_attention_layernorm.weight"], eps, twist)
        gate = n @ w[p + "mlp.gate_proj.weight"].T
        up = n @ w[p + "mlp.up_proj.weight"].T
        if twist == "silu_on_up":
            gate, up = up, gate
        x = x + (gate * torch.sigmoid(gate) * up) @ w[p + "mlp.down_proj.weight"].T
    x = norm_rms(x, w["model.norm.weight"], eps, twist)
    return project(x, table if tied else w["lm_head.weight"], tied, twist)


def plain_logits(config, w, ids, twist=None):
    if config["model_type"] == "gpt2":
        return gpt2_logits(config, w, ids, twist)
    return llama_logits(config, w, ids, twist)
