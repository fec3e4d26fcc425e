#!/usr/bin/env python3
"""A router whose second expert is taken by chance (GShard), in a trainer on two ranks, against the same model written
down here in plain Python: test_chance.py LPLAN. Speaks TAP.

The draws are those of the published generator (Philox-4x32-10; Salmon et al., SC'11) at the sample's number in the run and
the token's place, so no word of a rank, a micro-batch or a plan is in this file. Losses of two steps that change no weight, and
that of an evaluation, which draws nothing.
"""
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

LPLAN = sys.argv[1]
STEPS, SEQUENCES, LENGTH, VOCABULARY, SEED = 2, 4, 8, 32, 11
H, F, E, LAYERS = 8, 6, 4, 2
PLAN = "dp=2,ep=2,pp=1,mbs=1,exchange=padded"
MASK = (1 << 32) - 1


def op(what, **keys):
    return {"op": what, **keys}


def model():
    expert = {"choice": "choice", "experts": "e"}
    layer = [
        op("linear", **{"in": "x"}, out="logits", to=["e"], weight="router.{i}"),
        op("router", **{"in": "logits"}, out=["choice", "share"], k="k", score="softmax", renormalise=True, second="random"),
        op("expert_linear", **{"in": "x"}, out="up", to=["f"], weight="up.{i}.{e}", **expert),
        op("act", kind="silu", **{"in": "up"}, out="active"),
        op("expert_linear", **{"in": "active"}, out="down", to=["h"], weight="down.{i}.{e}", **expert),
        op("combine", **{"in": ["down", "share"]}, out="routed"),
        op("add", **{"in": ["x", "routed"]}, out="y"),
    ]
    head = [op("linear", **{"in": "x"}, out="scores", to=["v"], weight="head"), op("cross_entropy", **{"in": "scores"})]
    embed = [op("embedding", **{"in": "ids"}, out="x", rows="v", cols=["h"], table="embed")]
    return {
        "format": "lplan-model/1", "name": "chance", "init_std": 0.6,
        "dims": {"h": H, "f": F, "v": VOCABULARY, "e": E, "k": 2},
        "blocks": {"embed": {"out": "x", "ops": embed}, "layer": {"in": "x", "out": "y", "ops": layer},
                   "head": {"in": "x", "ops": head}},
        "chain": [{"block": "embed"}, {"block": "layer", "repeat": LAYERS}, {"block": "head"}],
    }


def philox(seed, stream, index):
    """The first word at counter (index, stream, 3)."""
    x = [index & MASK, index >> 32, stream, 3]
    key = [seed & MASK, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ key[0], b & MASK, (a >> 32) ^ x[3] ^ key[1], a & MASK]
        key = [(key[0] + 0x9E3779B9) & MASK, (key[1] + 0xBB67AE85) & MASK]
    return x[0]


def product(w, x):
    return [sum(a * b for a, b in zip(row, x)) for row in w]


def softmax(x):
    most = max(x)
    powers = [math.exp(v - most) for v in x]
    return [p / sum(powers) for p in powers]


def token_loss(w, token, label, sample, place, draws, lost):
    """-log p of the label. `draws`: the second expert stays by chance; counts in `lost` how often it does not."""
    x = w["embed"][token]
    for i in range(LAYERS):
        score = softmax(product(w["router.%d" % i], x))
        best = sorted(range(E), key=lambda e: (-score[e], e))[:2]
        both = score[best[0]] + score[best[1]]
        # the link's place in the chain is that of the layer behind the embedding; one op of it draws
        part = philox(SEED, (i + 1) << 16, sample * LENGTH + place) / 2**32 if draws else 0
        stays = 2 * score[best[1]] > part * both
        assert abs(2 * score[best[1]] - part * both) > 1e-5 * both, "too near to tell in fp32: use another seed"
        lost[0] += not stays
        made = [0.0] * H
        for e in best[:1 + stays]:
            up = product(w["up.%d.%d" % (i, e)], x)
            y = product(w["down.%d.%d" % (i, e)], [u / (1 + math.exp(-u)) for u in up])
            made = [m + v * score[e] / both for m, v in zip(made, y)]
        x = [a + m for a, m in zip(x, made)]
    return -math.log(softmax(product(w["head"], x))[label])


def loss(w, tokens, first, draws, lost):
    """The mean over a batch whose first sample has this number."""
    all_of = [token_loss(w, tokens[s * LENGTH + t], tokens[s * LENGTH + t + 1], s, t, draws, lost)
              for s in range(first, first + SEQUENCES) for t in range(LENGTH)]
    return sum(all_of) / len(all_of)


def weights(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    found = {}
    for name, row in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = row["data_offsets"]
        flat = struct.unpack("<%df" % ((end - begin) // 4), data[8 + length + begin:8 + length + end])
        wide = row["shape"][1]
        found[name] = [flat[i:i + wide] for i in range(0, len(flat), wide)]
    return found


def run(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        sys.exit("Bail out! %s\n%s%s" % (" ".join(map(str, words)), done.stdout, done.stderr))
    return done.stdout


def main():
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        (folder / "model.json").write_text(json.dumps(model()))
        draw = random.Random(5)
        tokens = [draw.randrange(VOCABULARY) for _ in range(STEPS * SEQUENCES * LENGTH + 1)]
        head = [20240520, 1, len(tokens)] + [0] * 253
        (folder / "tokens.bin").write_bytes(struct.pack("<256i", *head) + struct.pack("<%dH" % len(tokens), *tokens))
        run(LPLAN, "plan", folder / "model.json", "host", "--gpus", 2, "--global-batch", SEQUENCES, "--seq", LENGTH,
            "--recipe", "fp32", "--pin", PLAN, "-o", folder / "plan.json")
        run(LPLAN, "build", folder / "plan.json", "-o", folder / "built", "--no-check")
        trainer = [folder / "built/trainer", "--virtual", "--quiet", "--seed", SEED, "--log", folder / "log"]
        run(*trainer, "--steps", STEPS, "--lr", 0, "--data", folder / "tokens.bin", "--save", folder / "weights")
        rows = [json.loads(line) for line in (folder / "log/log.jsonl").read_text().splitlines()]
        w, lost, none = weights(folder / "weights"), [0], [0]
        got = [row["loss"] for row in rows if "loss" in row]
        want = [loss(w, tokens, s * SEQUENCES, True, lost) for s in range(STEPS)]
        kept = [loss(w, tokens, s * SEQUENCES, False, none) for s in range(STEPS)]
        print("# losses %s, all experts kept %s; %d of %d second experts lost"
              % (" ".join("%.7f" % x for x in got), " ".join("%.7f" % x for x in kept), lost[0],
                 STEPS * SEQUENCES * LENGTH * LAYERS))
        good = all(abs(a - b) < 2e-6 * b for a, b in zip(got, want)) and len(got) == STEPS
        far = min(abs(a - b) / b for a, b in zip(want, kept)) > 1e-4 and lost[0] > 0 and none[0] == 0
        print("%s 1 - losses with draws" % ("ok" if good and far else "not ok"))
        out = run(*trainer, "--eval-only", "--eval-data", folder / "tokens.bin", "--init", folder / "weights")
        told = [json.loads(line) for line in (folder / "log/log.jsonl").read_text().splitlines()]
        found = [row["eval_loss"] for row in told if "eval_loss" in row]
        mean = sum(kept) / len(kept)
        even = bool(found) and abs(found[-1] - mean) < 2e-6 * mean
        print("%s 2 - an evaluation draws nothing" % ("ok" if even else "not ok"))
        if not (good and far and even):
            print("# want %s, evaluation %s\n# %s" % (want, mean, "\n# ".join(out.splitlines() + [str(told[-1])])))
        print("1..2")
        return 0 if good and far and even else 1


if __name__ == "__main__":
    sys.exit(main())
