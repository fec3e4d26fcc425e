"""make_golden.py - the oracle we did not write: five training steps of tiny models by transformers.

    make_golden.py              writes gpt2/ llama/ llama_tied/ qwen2/ beside this file
    make_golden.py --out DIR    writes them under DIR instead
    make_golden.py --twists     prints, for every plausible mistake, how far it is from the truth

Needs torch, transformers, safetensors and numpy. README.md says what the files mean. The same
versions on the same kind of machine write the same bytes; other versions agree within `noise`.
"""

import os

# Before torch is imported: one code path of its kernels, whatever vector units the machine has.
os.environ.setdefault("ATEN_CPU_CAPABILITY", "default")
os.environ.setdefault("MKL_CBWR", "COMPATIBLE")
os.environ.setdefault("DNNL_MAX_CPU_ISA", "SSE41")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import argparse
import json
import platform
import struct
import zlib
from pathlib import Path

import numpy
import safetensors
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

from plain_models import MODEL_TWISTS, plain_logits

ROWS, SEQ, STEPS = 4, 16, 5
LR, BETA1, BETA2, EPS, DECAY, CLIP = 1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0

# Chosen by hand: AdamW turns an element whose gradient happens to be near zero into a step that
# rounding decides, and under this seed no case has one that matters (`update_step4` in `noise`).
SEED = 1

STEP_TWISTS = {
    "labels_not_shifted": "labels are the inputs themselves",
    "windows_overlap": "windows start s - 1 apart, so that rows share two tokens",
    "rows_swapped": "row r of step k is window r * steps + k instead of k * rows + r",
    "loss_sum_rows": "loss summed over rows, mean over positions",
    "no_clip": "gradients not clipped",
    "clip_always": "gradients scaled to the threshold even when their norm is below it",
    "clip_per_tensor": "each tensor clipped by its own norm",
    "norm_tied_twice": "the tied matrix counted twice in the norm",
    "norm_without_small": "tensors of one dim left out of the norm",
    "decay_all": "weight decay on gains and biases too",
    "decay_none": "no weight decay",
    "decay_l2": "decay added to the gradient instead of decoupled",
    "decay_after": "decay applied after the update instead of before",
    "no_bias_correction": "moments not corrected for their start at zero",
    "eps_inside": "epsilon inside the square root",
    "beta2_999": "second beta 0.999",
    "moments_unclipped": "second moment takes the gradient before clipping",
}


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "attn_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "layer_norm_epsilon": 1e-5,
    "n_ctx": 32,
    "n_embd": 48,
    "n_head": 4,
    "n_layer": 2,
    "n_positions": 32,
    "vocab_size": 96,
    "bos_token_id": 95,
    "eos_token_id": 95,
}

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 80,
    "max_position_embeddings": 32,
    "mlp_bias": False,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "vocab_size": 96,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

# The form transformers 5 writes: `rope_parameters` for `rope_theta`, `dtype` for `torch_dtype`.
LLAMA_TIED = without(LLAMA, "rope_theta", "rope_scaling", "torch_dtype") | {
    "dtype": "float32",
    "head_dim": 12,
    "num_key_value_heads": 4,
    "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"},
    "tie_word_embeddings": True,
}

QWEN2 = without(LLAMA, "attention_bias", "mlp_bias", "rope_scaling") | {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "max_window_layers": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000.0,
    "sliding_window": 32,
    "use_sliding_window": False,
}

EMBEDDING = {
    "gpt2": "wte.weight",
    "llama": "model.embed_tokens.weight",
    "qwen2": "model.embed_tokens.weight",
}

# Weaker logits, so that the gradient norms of the five steps lie on both sides of the threshold.
FINAL_GAIN = {"llama": 0.4}

CASES = {"gpt2": GPT2, "llama": LLAMA, "llama_tied": LLAMA_TIED, "qwen2": QWEN2}


# What a trainer in fp32 must meet, relative, per case; `worst` and `distance` define the figures.
# At least twice the measured noise (checked when writing), and tight enough that every twist is
# caught in at least one case (checked by --twists).
TOLERANCE = {"loss": 1e-6, "grad_norm": 3e-6, "grad_step0": 1e-5, "update_step4": 1e-3}

# Twists that change nothing by mathematics: rotary scores depend on distances only.
EQUIVALENT = {"rope_from_one"}


def model_from_config(folder):
    """Builds from the config.json on disk, so that what is published is what was run."""
    config = transformers.AutoConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config)
    return model.to(torch.float32).eval()


def hub_name(name):
    return name.removeprefix("transformer.")


def initial_weights(case, model):
    """Random gains and biases: nothing may be symmetric, zero or one by luck."""
    weights = {}
    for name, parameter in model.named_parameters():
        name, shape = hub_name(name), tuple(parameter.shape)
        rng = numpy.random.default_rng([SEED, zlib.crc32(f"{case}/{name}".encode())])
        noise = rng.standard_normal(shape)
        if len(shape) >= 2:
            value = 0.08 * noise
        elif name.endswith(".bias"):
            value = 0.1 * noise
        else:
            value = 1 + 0.2 * noise
            if name == "model.norm.weight":
                value *= FINAL_GAIN.get(case, 1)
        weights[name] = torch.from_numpy(value.astype(numpy.float32))
    return weights


def token_stream(case, vocab):
    """Skewed, so that some tokens repeat within a row and some never occur."""
    rng = numpy.random.default_rng([SEED, zlib.crc32(case.encode())])
    count = STEPS * ROWS * SEQ + 1
    return numpy.floor(vocab * rng.random(count) ** 2).astype(numpy.uint16)


def write_tokens(path, tokens):
    header = struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253)
    path.write_bytes(header + tokens.astype("<u2").tobytes())


def batch_at(tokens, step, twist=None):
    """ids and labels [rows, seq] of one step: windows of seq + 1 tokens, seq apart."""
    stride = SEQ - 1 if twist == "windows_overlap" else SEQ
    starts = [(step * ROWS + row) * stride for row in range(ROWS)]
    if twist == "rows_swapped":
        starts = [(row * STEPS + step) * SEQ for row in range(ROWS)]
    windows = torch.tensor([tokens[at : at + SEQ + 1].tolist() for at in starts])
    ids = windows[:, :-1]
    return ids, ids if twist == "labels_not_shifted" else windows[:, 1:]


def loss_of(logits, labels):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def train_transformers(model, weights, tokens):
    """The recorded run: model, loss, clip and AdamW are all the libraries' own, in fp32."""
    parameters = {hub_name(name): p for name, p in model.named_parameters()}
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
    groups = [
        {"params": [p for p in parameters.values() if p.dim() >= 2], "weight_decay": DECAY},
        {"params": [p for p in parameters.values() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(BETA1, BETA2), eps=EPS, foreach=False)
    run = {"losses": [], "grad_norms": []}
    for step in range(STEPS):
        ids, labels = batch_at(tokens, step)
        logits = model(input_ids=ids, use_cache=False).logits
        loss = loss_of(logits, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if step == 0:
            run["logits"] = logits.detach().clone()
            run["grads"] = {name: p.grad.clone() for name, p in parameters.items()}
        norm = torch.nn.utils.clip_grad_norm_(list(parameters.values()), CLIP, foreach=False)
        optimizer.step()
        run["losses"].append(loss.item())
        run["grad_norms"].append(norm.item())
    run["weights"] = {name: p.detach().clone() for name, p in parameters.items()}
    return run


def clip_coefficient(norm):
    return min(1.0, CLIP / (norm + 1e-6))


def clipped(grads, tied, twist):
    """The norm over every parameter, before clipping, and the gradients after it."""
    squares = {name: (g * g).sum().item() for name, g in grads.items()}
    least_dims = 2 if twist == "norm_without_small" else 1
    total = sum(s for name, s in squares.items() if grads[name].dim() >= least_dims)
    if tied and twist == "norm_tied_twice":
        total += squares[tied]
    norm = total**0.5
    if twist == "no_clip":
        return norm, grads
    if twist == "clip_always":
        return norm, {n: g * (CLIP / (norm + 1e-6)) for n, g in grads.items()}
    if twist == "clip_per_tensor":
        return norm, {n: g * clip_coefficient(squares[n] ** 0.5) for n, g in grads.items()}
    return norm, {n: g * clip_coefficient(norm) for n, g in grads.items()}


def adamw_update(w, g, raw, m, v, step, twist):
    """One tensor of one step, in place; step counts from 0."""
    decay = DECAY if w.dim() >= 2 or twist == "decay_all" else 0.0
    beta2 = 0.999 if twist == "beta2_999" else BETA2
    if twist == "decay_none":
        decay = 0.0
    if twist == "decay_l2":
        g, decay = g + decay * w, 0.0
    square = raw * raw if twist == "moments_unclipped" else g * g
    m.mul_(BETA1).add_((1 - BETA1) * g)
    v.mul_(beta2).add_((1 - beta2) * square)
    m_hat, v_hat = m, v
    if twist != "no_bias_correction":
        m_hat, v_hat = m / (1 - BETA1 ** (step + 1)), v / (1 - beta2 ** (step + 1))
    root = torch.sqrt(v_hat + EPS) if twist == "eps_inside" else torch.sqrt(v_hat) + EPS
    if twist == "decay_after":
        w.sub_(LR * m_hat / root).mul_(1 - LR * decay)
    else:
        w.mul_(1 - LR * decay).sub_(LR * m_hat / root)


def train_plain(config, weights, tokens, dtype, twist=None):
    """The same five steps from their definitions, with at most one rule twisted."""
    w = {name: value.to(dtype).clone() for name, value in weights.items()}
    m = {name: torch.zeros_like(value) for name, value in w.items()}
    v = {name: torch.zeros_like(value) for name, value in w.items()}
    tied = EMBEDDING[config["model_type"]] if config.get("tie_word_embeddings", True) else None
    model_twist = twist if twist in MODEL_TWISTS else None
    run = {"losses": [], "grad_norms": []}
    for step in range(STEPS):
        ids, labels = batch_at(tokens, step, twist)
        leaves = {name: value.detach().requires_grad_() for name, value in w.items()}
        logits = plain_logits(config, leaves, ids, model_twist)
        loss = loss_of(logits, labels) * (ROWS if twist == "loss_sum_rows" else 1)
        found = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        raw = dict(zip(leaves, found))
        norm, grads = clipped(raw, tied, twist)
        if step == 0:
            run["logits"], run["grads"] = logits.detach(), raw
        for name in w:
            adamw_update(w[name], grads[name], raw[name], m[name], v[name], step, twist)
        run["losses"].append(loss.item())
        run["grad_norms"].append(norm)
    run["weights"] = w
    return run


def worst(a, b, scale):
    """Largest over tensors of |a - b| / |scale|, as Euclidean norms, and the tensor."""
    def ratio(name):
        difference = (a[name].double() - b[name].double()).norm().item()
        size = scale[name].double().norm().item()
        return difference / size if size else (0.0 if difference == 0 else float("inf"))

    name = max(a, key=ratio)
    return ratio(name), name


def distance(run, truth, weights, skip):
    """How far two runs are apart: four relative figures, and the tensors that set the last two."""
    def steps(key):
        return max(abs(x - y) / abs(y) for x, y in zip(run[key], truth[key]))

    def masked(tensors):
        tensors = {name: t.double().clone() for name, t in tensors.items()}
        for name, (begin, end) in skip.items():
            tensors[name][begin:end] = 0
        return tensors

    moved = {name: truth["weights"][name].double() - w.double() for name, w in weights.items()}
    grad, grad_name = worst(masked(run["grads"]), masked(truth["grads"]), masked(truth["grads"]))
    weight, weight_name = worst(masked(run["weights"]), masked(truth["weights"]), masked(moved))
    return {
        "loss": steps("losses"),
        "grad_norm": steps("grad_norms"),
        "grad_step0": grad,
        "grad_step0_tensor": grad_name,
        "update_step4": weight,
        "update_step4_tensor": weight_name,
    }


def undetermined(run, truth):
    """Elements whose gradient is zero by mathematics but noise in fp32, as ranges of dim 0.

    Adam turns any noise into a step of size lr, so their final value is arbitrary (and harmless).
    """
    ranges = {}
    for name, exact in truth["grads"].items():
        noise = (exact.abs() < 1e-14) & (run["grads"][name] != 0)
        rows = noise.reshape(noise.shape[0], -1).any(1).nonzero().flatten().tolist()
        if rows:
            begin, end = rows[0], rows[-1] + 1
            assert noise[begin:end].float().mean() > 0.9, (name, begin, end)
            ranges[name] = [begin, end]
    return ranges


def case_runs(case, config, folder):
    model = model_from_config(folder)
    weights = initial_weights(case, model)
    tokens = token_stream(case, config["vocab_size"])
    return weights, tokens, train_transformers(model, weights, tokens)


def check_loads(folder, tokens, logits):
    """The folder is a checkpoint that transformers itself loads, name for name, bit for bit."""
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not any(report.values()), report
    with torch.no_grad():
        loaded = model.eval()(input_ids=batch_at(tokens, 0)[0], use_cache=False).logits
    assert torch.equal(loaded, logits), folder


def write_case(case, config, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights, tokens, run = case_runs(case, config, folder)
    truth = train_plain(config, weights, tokens, torch.float64)
    skip = undetermined(run, truth)
    write_tokens(folder / "tokens.bin", tokens)
    metadata = {"format": "pt"}
    save_file(weights, folder / "model.safetensors", metadata)
    save_file(run["grads"], folder / "grads_step0.safetensors", metadata)
    save_file(run["weights"], folder / "model_step5.safetensors", metadata)
    save_file({"logits": run["logits"]}, folder / "logits_step0.safetensors", metadata)
    for made in folder.iterdir():
        made.chmod(0o644)
    noise = distance(run, truth, weights, skip)
    noise["logits_step0_abs"] = (run["logits"].double() - truth["logits"]).abs().max().item()
    expected = {
        "made_by": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "safetensors": safetensors.__version__,
            "numpy": numpy.__version__,
        },
        "job": {
            "global_batch": ROWS,
            "seq": SEQ,
            "steps": STEPS,
            "lr": LR,
            "beta1": BETA1,
            "beta2": BETA2,
            "eps": EPS,
            "weight_decay": DECAY,
            "weight_decay_min_dims": 2,
            "clip": CLIP,
        },
        "params_total": sum(w.numel() for w in weights.values()),
        "losses": run["losses"],
        "grad_norms": run["grad_norms"],
        "losses_fp64": truth["losses"],
        "grad_norms_fp64": truth["grad_norms"],
        "noise": noise,
        "undetermined": skip,
        "tolerance": TOLERANCE,
    }
    for key, bound in TOLERANCE.items():
        assert 2 * noise[key] <= bound, (case, key, noise[key])
    check_loads(folder, tokens, run["logits"])
    (folder / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")
    print(f"{case}: {expected['params_total']} parameters")
    for key in ("losses", "losses_fp64", "grad_norms", "grad_norms_fp64"):
        print(f"  {key:15}", " ".join(f"{x:.9f}" for x in expected[key]))
    print(f"  {'noise':15}", json.dumps(noise), "undetermined", json.dumps(skip))


def print_twists(folder):
    """Markdown: loss, grad_norm, grad_step0, update_step4 of each twist, fp64 against fp64.

    A star marks a figure over its tolerance, '=' a case that the twist does not touch.
    """
    truths = {}
    for case, config in CASES.items():
        weights, tokens, run = case_runs(case, config, folder / case)
        truth = train_plain(config, weights, tokens, torch.float64)
        truths[case] = config, weights, tokens, truth, undetermined(run, truth)
    print("| twist | what is wrong | " + " | ".join(CASES) + " |")
    print("|---|---|" + "---|" * len(CASES))
    missed = []
    for twist, what in {**MODEL_TWISTS, **STEP_TWISTS}.items():
        cells, caught, changed = [], False, False
        for config, weights, tokens, truth, skip in truths.values():
            run = train_plain(config, weights, tokens, torch.float64, twist)
            d = distance(run, truth, weights, skip)
            over = [d[key] > bound for key, bound in TOLERANCE.items()]
            figures = [f"{d[key]:.0e}" + "*" * o for key, o in zip(TOLERANCE, over)]
            changes = max(d[key] for key in TOLERANCE) > 1e-9
            caught, changed = caught or any(over), changed or changes
            cells.append(" ".join(figures) if changes else "=")
        print(f"| `{twist}` | {what} | " + " | ".join(cells) + " |", flush=True)
        if changed == (twist in EQUIVALENT) or (changed and not caught):
            missed.append(twist)
    assert not missed, missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("--twists", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if arguments.twists:
        print_twists(arguments.out)
        return
    for case, config in CASES.items():
        write_case(case, config, arguments.out / case)


if __name__ == "__main__":
    main()
