#!/usr/bin/env python3
"""torch_gpt2.py - tokens/s of a GPT-2 training step in PyTorch on the CPU: the figure to beat.

    torch_gpt2.py [--batch 4] [--seq 64] [--steps 6] [--threads 2] [--dtype fp32|bf16] [--size 124M]

One full step is forward, backward and AdamW on random tokens. Prints one JSON line. The baseline is
tuned, so that a win over it is not a win over malloc: AVX-512 kernels, memory never given back to
the system, huge pages, and the fastest of the attention and optimizer forms that this torch has.
Step 0 pays for first touch and is dropped; the best of the others counts. Exits 77 without torch.
"""

import os
import sys

# Read by the C library and by torch before any line of Python runs: hence the second start below.
TUNING = {
    "ATEN_CPU_CAPABILITY": "avx512",
    "MALLOC_MMAP_THRESHOLD_": "68719476736",
    "MALLOC_TRIM_THRESHOLD_": "68719476736",
    "MALLOC_TOP_PAD_": "268435456",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


def has_avx512():
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as info:
            return "avx512f" in info.read()
    except OSError:
        return False


def restart_tuned():
    if os.environ.get("TORCH_GPT2_TUNED"):
        return
    tuning = dict(TUNING)
    if not has_avx512():
        del tuning["ATEN_CPU_CAPABILITY"]
    environment = {**tuning, **os.environ, "TORCH_GPT2_TUNED": "1"}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


if __name__ == "__main__":
    restart_tuned()

import argparse
import contextlib
import json
import math
import resource
import time

try:
    import torch
except ImportError:
    print("torch_gpt2.py: no torch for this python", file=sys.stderr)
    sys.exit(77)
import torch.nn as nn
import torch.nn.functional as F

SIZES = {  # layers, heads, width, vocab
    "1M": (4, 4, 128, 1024),
    "30M": (6, 6, 384, 50257),
    "124M": (12, 12, 768, 50257),
}
POSITIONS = 1024


def attend_plain(q, k, v):
    seq = q.shape[-2]
    mask = torch.full((seq, seq), float("-inf"), dtype=q.dtype).triu(1)
    scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(q.shape[-1])) + mask
    return F.softmax(scores, dim=-1) @ v


def attend_fused(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Block(nn.Module):
    def __init__(self, heads, width, attend):
        super().__init__()
        self.heads, self.attend = heads, attend
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, seq, width = x.shape
        parts = self.qkv(self.ln_1(x)).split(width, dim=2)
        q, k, v = (p.view(batch, seq, self.heads, -1).transpose(1, 2) for p in parts)
        x = x + self.proj(self.attend(q, k, v).transpose(1, 2).reshape(batch, seq, width))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, size, attend):
        super().__init__()
        layers, heads, width, vocab = size
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(POSITIONS, width)
        self.blocks = nn.ModuleList([Block(heads, width, attend) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0, 0.02)

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels.view(-1))


def adamw(model, kind):
    forms = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    return torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, **forms[kind])


def variants():
    """(attention, optimizer) forms this torch has; older ones lack the fused ones on a CPU."""
    attentions = {"plain": attend_plain}
    if hasattr(F, "scaled_dot_product_attention"):
        attentions["fused"] = attend_fused
    optimizers = ["loop"]
    probe = nn.Linear(2, 2)
    try:
        optimizer = adamw(probe, "fused")
        probe(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizers.append("fused")
    except (TypeError, RuntimeError, ValueError):
        pass
    return attentions, optimizers


def step_times(model, optimizer, arguments, vocab, steps):
    """Seconds of (whole, forward, backward, optimizer) for each step but the first."""
    times = []
    for _ in range(steps + 1):
        ids = torch.randint(0, vocab, (arguments.batch, arguments.seq))
        labels = torch.randint(0, vocab, (arguments.batch, arguments.seq))
        cast = contextlib.nullcontext()
        if arguments.dtype == "bf16":
            cast = torch.autocast("cpu", torch.bfloat16)
        marks = [time.perf_counter()]
        with cast:
            loss = model(ids, labels)
        marks.append(time.perf_counter())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        marks.append(time.perf_counter())
        optimizer.step()
        marks.append(time.perf_counter())
        times.append((marks[3] - marks[0], *(b - a for a, b in zip(marks, marks[1:]))))
    if not math.isfinite(loss.item()):
        raise ArithmeticError("the loss is not finite")
    return times[1:]


def best_variant(arguments, size):
    """Each choice by the phases it touches, best of three steps; whole steps are too noisy."""
    attentions, optimizers = variants()

    def model_s(attention):
        return min(t[1] + t[2] for t in trial(arguments, size, attentions[attention], "loop"))

    def update_s(optimizer):
        return min(t[3] for t in trial(arguments, size, attentions[attention], optimizer))

    attention = min(attentions, key=model_s) if len(attentions) > 1 else "plain"
    optimizer = min(optimizers, key=update_s) if len(optimizers) > 1 else "loop"
    return attention, attentions[attention], optimizer


def trial(arguments, size, attend, optimizer):
    model = Gpt2(size, attend)
    return step_times(model, adamw(model, optimizer), arguments, size[3], 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--size", choices=SIZES, default="124M")
    arguments = parser.parse_args()
    if arguments.steps < 1 or not 0 < arguments.seq <= POSITIONS:
        parser.error(f"--steps at least 1, --seq 1 to {POSITIONS}")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    size = SIZES[arguments.size]
    attention, attend, optimizer = best_variant(arguments, size)
    model = Gpt2(size, attend)
    times = sorted(step_times(model, adamw(model, optimizer), arguments, size[3], arguments.steps))
    best, tokens = times[0], arguments.batch * arguments.seq
    result = {
        "bench": "torch_gpt2",
        "tokens_per_s": round(tokens / best[0], 1),
        "tokens_per_s_median": round(tokens / times[len(times) // 2][0], 1),
        "step_ms": round(best[0] * 1e3, 1),
        "forward_ms": round(best[1] * 1e3, 1),
        "backward_ms": round(best[2] * 1e3, 1),
        "optimizer_ms": round(best[3] * 1e3, 1),
        "size": arguments.size,
        "params_total": sum(p.numel() for p in model.parameters()),
        "batch": arguments.batch,
        "seq": arguments.seq,
        "dtype": arguments.dtype,
        "threads": torch.get_num_threads(),
        "steps": arguments.steps,
        "attention": attention,
        "optimizer": optimizer,
        "torch": torch.__version__,
        "cpu_capability": cpu_capability(),
        "mkl": torch.backends.mkl.is_available(),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(result))


def cpu_capability():
    """Torch 1 cannot say which kernels it took; then what it was asked for must do."""
    backend = getattr(torch.backends, "cpu", None)
    if hasattr(backend, "get_cpu_capability"):
        return backend.get_cpu_capability()
    return os.environ.get("ATEN_CPU_CAPABILITY", "unknown")


if __name__ == "__main__":
    main()
