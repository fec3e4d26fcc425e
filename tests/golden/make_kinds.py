"""make_kinds.py - the same oracle for one tiny model of each kind, in double precision.

    make_kinds.py [KIND ...]        writes kinds/KIND/ beside this file
    make_kinds.py --out DIR ...     writes DIR/KIND/ instead

transformers computes norms, softmax and routers in float32 whatever the model's type. Here the name
torch.float32 means float64 while a model is built and run, so the recorded figures are exact to about
1e-14 and a mistake that hides in rounding shows. Weights are fp32 numbers. Needs what make_golden.py
needs.
"""

import argparse
import contextlib
import json
import platform
import tempfile
import zlib
from pathlib import Path

import make_golden as golden  # sets the environment before torch comes
import numpy
import safetensors
import torch
import transformers
from safetensors.torch import load_file, save_file

SINGLE = torch.float32

LLAMA = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "vocab_size": 72,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}


def like_llama(kind, model, without=(), **more):
    base = {key: value for key, value in LLAMA.items() if key not in without}
    return {"architectures": [model], "model_type": kind, **base, **more}


NEOX = {
    "architectures": ["GPTNeoXForCausalLM"],
    "model_type": "gpt_neox",
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "classifier_dropout": 0.0,
    "hidden_act": "gelu",
    "hidden_size": 32,
    "intermediate_size": 64,
    "layer_norm_eps": 1e-5,
    "max_position_embeddings": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "rotary_emb_base": 10000,
    "rotary_pct": 0.25,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "use_parallel_residual": True,
    "vocab_size": 72,
    "bos_token_id": 0,
    "eos_token_id": 0,
}

BLOOM = {
    "architectures": ["BloomForCausalLM"],
    "model_type": "bloom",
    "apply_residual_connection_post_layernorm": False,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "hidden_size": 36,
    "layer_norm_epsilon": 1e-5,
    "n_head": 6,
    "n_layer": 2,
    "vocab_size": 72,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 3,
}

FALCON = {
    "architectures": ["FalconForCausalLM"],
    "model_type": "falcon",
    "activation": "gelu",
    "alibi": False,
    "attention_dropout": 0.0,
    "bias": False,
    "hidden_dropout": 0.0,
    "hidden_size": 32,
    "layer_norm_epsilon": 1e-5,
    "max_position_embeddings": 64,
    "multi_query": True,
    "new_decoder_architecture": False,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "parallel_attn": True,
    "rope_theta": 10000.0,
    "torch_dtype": "float32",
    "vocab_size": 72,
    "bos_token_id": 11,
    "eos_token_id": 11,
}

# Softcaps and windows small enough that a tiny model feels them.
GEMMA2 = like_llama(
    "gemma2",
    "Gemma2ForCausalLM",
    without=["hidden_act"],
    attn_logit_softcapping=1.5,
    final_logit_softcapping=2.0,
    head_dim=12,
    hidden_act="gelu_pytorch_tanh",
    hidden_activation="gelu_pytorch_tanh",
    query_pre_attn_scalar=16,
    sliding_window=6,
    tie_word_embeddings=True,
)

QWEN3 = like_llama(
    "qwen3",
    "Qwen3ForCausalLM",
    without=["rope_theta", "torch_dtype"],
    dtype="float32",
    head_dim=12,
    max_window_layers=2,
    rms_norm_eps=1e-6,
    rope_parameters={"rope_theta": 1000000.0, "rope_type": "default"},
    sliding_window=None,
    use_sliding_window=False,
)

MIXTRAL = like_llama(
    "mixtral",
    "MixtralForCausalLM",
    without=["attention_bias"],
    num_local_experts=4,
    num_experts_per_tok=2,
    intermediate_size=24,
    output_router_logits=False,
    router_aux_loss_coef=0.02,
    sliding_window=None,
)

DEEPSEEK3 = like_llama(
    "deepseek_v3",
    "DeepseekV3ForCausalLM",
    first_k_dense_replace=1,
    intermediate_size=40,
    kv_lora_rank=16,
    moe_intermediate_size=12,
    moe_layer_freq=1,
    n_group=4,
    n_routed_experts=8,
    n_shared_experts=2,
    norm_topk_prob=True,
    num_experts_per_tok=3,
    num_hidden_layers=2,
    num_key_value_heads=4,
    q_lora_rank=12,
    qk_nope_head_dim=8,
    qk_rope_head_dim=4,
    rms_norm_eps=1e-6,
    rope_scaling={
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 0.7,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 16,
        "type": "yarn",
    },
    routed_scaling_factor=2.5,
    scoring_func="sigmoid",
    topk_group=2,
    topk_method="noaux_tc",
    v_head_dim=6,
)

GPT_OSS = like_llama(
    "gpt_oss",
    "GptOssForCausalLM",
    without=["rope_theta"],
    attention_bias=True,
    head_dim=8,
    hidden_act="silu",
    initial_context_length=256,
    intermediate_size=20,
    layer_types=["sliding_attention", "full_attention"],
    num_local_experts=4,
    experts_per_token=2,
    num_experts_per_tok=2,
    output_router_logits=False,
    rope_scaling={
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 32.0,
        "original_max_position_embeddings": 256,
        "rope_type": "yarn",
        "truncate": False,
    },
    rope_theta=100,
    router_aux_loss_coef=0.9,
    sliding_window=6,
    swiglu_limit=0.4,
)

OLMO2 = like_llama("olmo2", "Olmo2ForCausalLM", rms_norm_eps=1e-6, rope_theta=500000)

# Chunks, every second layer without positions and with longer queries far out, shared experts.
LLAMA4 = like_llama(
    "llama4_text",
    "Llama4ForCausalLM",
    attention_chunk_size=6,
    attn_scale=0.1,
    attn_temperature_tuning=True,
    floor_scale=4,
    for_llm_compressor=False,
    head_dim=8,
    interleave_moe_layer_step=1,
    intermediate_size=12,
    intermediate_size_mlp=24,
    no_rope_layers=[1, 0],
    num_experts_per_tok=1,
    num_local_experts=4,
    output_router_logits=False,
    router_aux_loss_coef=0.001,
    router_jitter_noise=0.0,
    use_qk_norm=True,
)

PHI3 = like_llama(
    "phi3",
    "Phi3ForCausalLM",
    embd_pdrop=0.0,
    original_max_position_embeddings=16,
    resid_pdrop=0.0,
    rope_scaling={
        "long_factor": [1.1, 1.3, 2.0, 4.0],
        "short_factor": [1.0, 1.05, 1.1, 1.5],
        "type": "longrope",
    },
    sliding_window=None,
)

KINDS = {
    "neox": NEOX,
    "bloom": BLOOM,
    "falcon": FALCON,
    "falcon_new": FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "num_attention_heads": 4},
    "gemma2": GEMMA2,
    "qwen3": QWEN3,
    "mixtral": MIXTRAL,
    "deepseek_v3": DEEPSEEK3,
    "gpt_oss": GPT_OSS,
    "olmo2": OLMO2,
    "llama4": LLAMA4,
    "phi3": PHI3,
}

# BLOOM's own GELU has the constant 0.79788456, eight digits of the square root of 2 over pi.
TOLERANCE = {"bloom": 1e-7}


@contextlib.contextmanager
def double_precision():
    """The name float32 means float64."""
    names = {"float32": torch.float32, "float": torch.float}
    keep = torch.Tensor.float
    for name in names:
        setattr(torch, name, torch.float64)
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        for name, value in names.items():
            setattr(torch, name, value)
        torch.Tensor.float = keep
        torch.set_default_dtype(SINGLE)


def model_of(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config)
    return model.to(torch.float64).eval()


def start_value(kind, name, shape):
    """fp32 numbers: nothing symmetric, zero or one by luck; routers decide clearly."""
    rng = numpy.random.default_rng([golden.SEED, zlib.crc32(f"{kind}/{name}".encode())])
    noise = rng.standard_normal(shape)
    if "correction_bias" in name:
        value = 0.05 * noise
    elif name.endswith(("gate.weight", "router.weight")):
        value = 0.5 * noise
    elif len(shape) >= 2:
        value = 0.12 * noise
    elif name.endswith("bias"):
        value = 0.1 * noise
    elif kind.startswith("gemma") or name.endswith("sinks"):
        value = 0.2 * noise
    else:
        value = 1 + 0.2 * noise
    return torch.from_numpy(value.astype(numpy.float32)).double()


def fill(kind, model):
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name in dict(model.named_parameters()) or name in model.state_dict():
                tensor.copy_(start_value(kind, name, tuple(tensor.shape)))


def hub_tensors(model, of):
    """What save_pretrained writes, in fp32, with of(parameter) in the place of each parameter."""
    keep = [p.data for p in model.parameters()]
    with torch.no_grad():
        for p in model.parameters():
            p.data = of(p).detach().to(SINGLE)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(Path(folder) / "model.safetensors")
    for p, data in zip(model.parameters(), keep):
        p.data = data
    # The hub's BLOOM is a body without a head: no prefix. Its Falcon has one.
    bare = model.config.model_type == "bloom"
    return {name.removeprefix("transformer.") if bare else name: t.to(SINGLE).contiguous()
            for name, t in tensors.items()}


def train(model, tokens):
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": golden.DECAY},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    betas = (golden.BETA1, golden.BETA2)
    optimizer = torch.optim.AdamW(groups, lr=golden.LR, betas=betas, eps=golden.EPS, foreach=False)
    run = {"losses": [], "grad_norms": []}
    for step in range(golden.STEPS + 1):
        ids, labels = golden.batch_at(tokens, step % golden.STEPS)
        logits = model(input_ids=ids, use_cache=False).logits
        loss = golden.loss_of(logits, labels)
        run["losses"].append(loss.item())
        if step == golden.STEPS:
            break
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if step == 0:
            run["logits"] = logits.detach().clone()
            run["grads"] = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]
        norm = torch.nn.utils.clip_grad_norm_(parameters, golden.CLIP, foreach=False)
        run["grad_norms"].append(norm.item())
        optimizer.step()
    assert run["logits"].dtype == torch.float64
    return run


def write_kind(kind, config, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tokens = golden.token_stream(kind, config["vocab_size"])
    golden.write_tokens(folder / "tokens.bin", tokens)
    with double_precision():
        model = model_of(folder)
        fill(kind, model)
    weights = hub_tensors(model, lambda p: p)
    with double_precision():
        run = train(model, tokens)
    grad = dict(zip(map(id, model.parameters()), run["grads"]))
    grads = hub_tensors(model, lambda p: grad[id(p)])
    buffers = {name for name, _ in model.named_buffers()}
    for name in [name for name in grads if name in buffers]:
        del grads[name]
    metadata = {"format": "pt"}
    save_file(weights, folder / "model.safetensors", metadata)
    save_file(grads, folder / "grads_step0.safetensors", metadata)
    save_file({"logits": run["logits"].to(SINGLE)}, folder / "logits_step0.safetensors", metadata)
    expected = {
        "made_by": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "safetensors": safetensors.__version__,
            "numpy": numpy.__version__,
        },
        "params_total": sum(w.numel() for w in weights.values()),
        "losses_fp64": run["losses"],
        "grad_norms_fp64": run["grad_norms"],
        "tolerance": TOLERANCE.get(kind, 1e-9),
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")
    for made in folder.iterdir():
        made.chmod(0o644)
        assert made.stat().st_size < 300_000, made
    print(f"{kind}: {expected['params_total']} parameters", *run["losses"])
    print("   grad norms", *run["grad_norms"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", help="all when none is named")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "kinds")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for kind in arguments.kinds or KINDS:
        write_kind(kind, KINDS[kind], arguments.out / kind)


if __name__ == "__main__":
    main()
