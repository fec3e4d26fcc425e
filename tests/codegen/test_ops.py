#!/usr/bin/env python3
"""Tiny models of every op and attention that trainers print, on one rank and cut over several, against the evaluator in fp64:
test_ops.py LPLAN ORACLE.

Losses of three steps, the gradients of the first, and the weights after the last. Documents, which the oracle does not know,
must have one loss however they are cut, and not that of the model without. Speaks TAP.
"""
import copy
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

LPLAN, ORACLE = sys.argv[1:3]
STEPS, LR, SEQUENCES, LENGTH = 3, 1e-3, 4, 16
# Losses differ by rounding of fp32 sums; a step of AdamW moves a weight by lr whatever the size of its gradient.
LIMITS = {"loss": 1e-5, "grads": 2e-4, "weights": 2e-4}
DIMS = {"h": 32, "f": 48, "v": 40, "g": 2, "r": 3, "d": 8}
count = 0


def report(good, what, why=""):
    global count
    count += 1
    print("%s %d - %s" % ("ok" if good else "not ok", count, what))
    for line in [] if good else str(why).splitlines():
        print("# " + line)
    return good


def op(word, into, out, **more):
    return {"op": word, "in": into, "out": out, **more}


def linear(into, out, name, to, **more):
    return op("linear", into, out, to=to, weight=name + ".weight", **more)


NORM = op("norm", "x", "n", kind="rms", eps=1e-5, gain="a.{i}.n.weight", shift=1)
QKV = [NORM, linear("n", "q", "a.{i}.q", ["g", "r", "d"]), linear("n", "k", "a.{i}.k", ["g", "d"]),
       linear("n", "v", "a.{i}.v", ["g", "d"])]
CLOSE = [linear("a", "o", "a.{i}.o", ["h"], **{"from": ["g", "r", "d"]}), op("add", ["x", "o"], "x1")]
MLP = [op("norm", "x", "n", kind="rms", eps=1e-5, gain="m.{i}.n.weight"), linear("n", "u", "m.{i}.u", ["f"]),
       op("act", "u", "a", kind="silu"), linear("a", "y", "m.{i}.y", ["h"]), op("add", ["x", "y"], "x1")]
HEAD = [op("norm", "x", "n", kind="layer", eps=1e-5, gain="nf.weight"), linear("n", "logits", "lm", ["v"]),
        {"op": "cross_entropy", "in": "logits"}]


def attends(**more):
    return QKV + [op("attention", ["q", "k", "v"], "a", **more)] + CLOSE


def turned(rope, attention):
    return QKV + [op("rope", "q", "qr", theta=100.0, **rope), op("rope", "k", "kr", theta=100.0, **rope),
                  op("attention", ["qr", "kr", "v"], "a", **attention)] + CLOSE


def latent():
    """Keys and values of a latent vector, with values of a width of their own and turned features that all heads share."""
    split = op("split", "q", ["qn", "qp"], dim="w", parts=[["n"], ["p"]])
    low = op("split", "low", ["c0", "kp"], dim="z", parts=[["c"], ["p"]])
    return [NORM, linear("n", "q", "a.{i}.q", ["g", "w"]), split, op("rope", "qp", "qpr", theta=100.0, interleaved=True),
            op("concat", ["qn", "qpr"], "qq", dim="w", parts=[["n"], ["p"]]),
            linear("n", "low", "a.{i}.low", ["z"]), low,
            op("norm", "c0", "c1", kind="rms", eps=1e-5, gain="a.{i}.c.weight"),
            linear("c1", "kn", "a.{i}.kn", ["g", "n"]), linear("c1", "v", "a.{i}.v", ["g", "e"]),
            op("rope", "kp", "kpr", theta=100.0, interleaved=True), op("broadcast", "kpr", "kpg", dims=["b", "s", "g", "p"]),
            op("concat", ["kn", "kpg"], "kk", dim="w", parts=[["n"], ["p"]]), op("attention", ["qq", "kk", "v"], "a"),
            linear("a", "o", "a.{i}.o", ["h"], **{"from": ["g", "e"]}), op("add", ["x", "o"], "x1")]


def curves():
    attend = QKV + [op("norm", "q", "qn", kind="rms", eps=1e-5, axes=3, gain="a.{i}.qn.weight"),
                    op("norm", "k", "kn", kind="rms", eps=1e-5, gain_axes=2, gain="a.{i}.kn.weight"),
                    op("attention", ["qn", "kn", "v"], "a0", scale=1.0), linear("n", "t0", "a.{i}.t", ["g", "r"]),
                    op("act", "t0", "t", kind="sigmoid"), op("mul", ["a0", "t"], "a")] + CLOSE
    mlp = [op("norm", "x", "n", kind="rms", eps=1e-5), linear("n", "u", "m.{i}.u", ["f"]),
           op("act", "u", "u0", kind="swish", a=1.702), op("act", "u0", "u1", kind="clamp", a=-0.5, b=2.0),
           linear("n", "w", "m.{i}.w", ["f"]), op("act", "w", "w1", kind="shift", a=1.0), op("mul", ["u1", "w1"], "a"),
           linear("a", "y", "m.{i}.y", ["h"]), op("scale", "y", "y1", factor=0.7), op("add", ["x", "y1"], "x1")]
    head = [op("norm", "x", "n", kind="layer", eps=1e-5), linear("n", "l", "lm", ["v"]),
            op("act", "l", "logits", kind="softcap", a=3.0),
            {"op": "cross_entropy", "in": "logits", "smoothing": 0.1, "z": 0.01}]
    return attend, mlp, head


YARN = {"scaling": {"kind": "yarn", "factor": 4.0, "low": 1.0, "high": 32.0, "original": 8, "gain": 1.2}}
LATENT = {"g": 4, "w": 12, "n": 8, "p": 4, "e": 6, "c": 10, "z": 14}


def with_temper():
    ops = copy.deepcopy(turned(YARN, {"chunk": 6}))
    at = next(i for i, o in enumerate(ops) if o["op"] == "attention")
    ops[at]["in"][0] = "qt"
    return ops[:at] + [op("temper", "qr", "qt", scale=0.2, length=4.0, ahead=1)] + ops[at:]


# name: blocks, dims, options of the plan, pins beside tp=1 and tp=2
MODELS = {
    "plain": ((attends(), MLP, HEAD), {}, [], ["pp=2"]),
    "linear biases": ((attends(alibi=True), MLP, HEAD), {}, [], ["tp=2,sp=1"]),
    "cap and window": ((attends(softcap=1.0, window=5), MLP, HEAD), {}, [], ["tp=2,recompute=full"]),
    "chunks, YaRN and tempered queries": ((with_temper(), MLP, HEAD), {}, [], ["tp=2,sp=1"]),
    "sinks": ((turned({}, {"sink": "a.{i}.sinks"}), MLP, HEAD), {}, [], []),
    "documents": ((turned({}, {"softcap": 4.0}), MLP, HEAD), {}, ["--packed"], ["dp=2"]),
    "latent keys and values": ((latent(), MLP, HEAD), LATENT, [], ["tp=2,recompute=full"]),
    "curves, wide norms and gates": (curves(), {}, [], ["tp=2,sp=1"]),
}


def write_model(folder, blocks, dims):
    attend, mlp, head = blocks
    embed = [{"op": "embedding", "in": "ids", "out": "x", "rows": "v", "cols": ["h"], "table": "wte.weight"}]
    chain = [{"block": block, "repeat": 1, "first": first} for first in (0, 1) for block in ("attend", "mlp")]
    model = {"format": "lplan-model/1", "name": "tiny", "init_std": 0.3, "dims": {**DIMS, **dims},
             "blocks": {"embed": {"out": "x", "ops": embed}, "attend": {"in": "x", "out": "x1", "ops": attend},
                        "mlp": {"in": "x", "out": "x1", "ops": mlp}, "head": {"in": "x", "ops": head}},
             "chain": [{"block": "embed"}] + chain + [{"block": "head"}]}
    (folder / "model.json").write_text(json.dumps(model))


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300)
    return done.returncode, done.stdout + done.stderr


def write_tokens(path):
    draw = random.Random(3)
    tokens = [draw.randrange(DIMS["v"]) for _ in range(STEPS * SEQUENCES * LENGTH + 1)]
    head = [20240520, 1, len(tokens)] + [0] * 253
    path.write_bytes(struct.pack("<256i", *head) + struct.pack("<%dH" % len(tokens), *tokens))


def train(folder, options, pins):
    """Losses, or None, and what was said."""
    ranks = 2 if "2" in pins else 1
    write_tokens(folder / "tokens.bin")
    code, words = run(LPLAN, "plan", folder / "model.json", "host", "--gpus", ranks, "--global-batch", SEQUENCES, "--seq", LENGTH,
                      "--recipe", "fp32", "--pin", pins + ",mbs=2", "-o", folder / "plan.json", *options)
    if code == 0:
        code, words = run(LPLAN, "build", folder / "plan.json", "-o", folder / "built", "--no-check")
    if code == 0:
        code, words = run(folder / "built/trainer", *(["--virtual"] if ranks > 1 else []), "--data", folder / "tokens.bin",
                          "--steps", STEPS, "--lr", LR, "--log", folder / "log", "--quiet", "--dump-grads", folder / "grads",
                          "--save", folder / "weights", *(["--document-end", 3] if options else []))
    if code != 0:
        return None, words
    rows = [json.loads(line) for line in (folder / "log/log.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row], words


def judge(folder, losses, pins):
    """How far files and losses are from the oracle's."""
    (folder / "losses").write_text("".join("%.9g\n" % loss for loss in losses))
    code, words = run(ORACLE, folder / "model.json", folder / "tokens.bin", folder / "losses", folder / "grads",
                      folder / "weights", SEQUENCES, LENGTH, SEQUENCES // 2 // (2 if "dp=2" in pins else 1), LR)
    far = {line.split()[0]: float(line.split()[1]) for line in words.splitlines()} if code == 0 else {}
    return all(far.get(key, 1e9) <= limit for key, limit in LIMITS.items()), words


def far(a, b):
    return max(abs(x / y - 1) for x, y in zip(a, b)) if a and b and len(a) == len(b) == STEPS else 1e9


def main():
    plain = None
    for name, (blocks, dims, options, more) in MODELS.items():
        one = None
        for pins in ["tp=1", "tp=2"] + more:
            with tempfile.TemporaryDirectory() as made:
                folder = pathlib.Path(made)
                write_model(folder, blocks, dims)
                got, words = train(folder, options, pins)
                one = one or got
                if got is None:
                    report(False, "%s, %s" % (name, pins), words)
                elif options:
                    report(far(got, one) < 2e-5, "%s, %s" % (name, pins), "%s, one rank %s" % (got, one))
                else:
                    good, words = judge(folder, got, pins)
                    report(good, "%s, %s" % (name, pins), words)
        plain = plain or one
        if options:
            report(far(one, plain) > 1e-4, "%s: not the model without" % name, "%s, without %s" % (one, plain))
    print("1..%d" % count)


main()
