#!/usr/bin/env python3
"""Models of experts, built and trained in every kind of plan, against the evaluator in fp64:
test_build_experts.py LPLAN ORACLE [WORDS], only plans with one of these words in their names. Speaks TAP.

Losses of three steps, the gradients of the first, and the weights after the last: the files' names are those of experts,
of rows of fused weights, and of single tensors.
"""
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

LPLAN, ORACLE = sys.argv[1:3]
STEPS, LR, SEQUENCES, LENGTH, VOCABULARY = 3, 1e-3, 4, 16, 64
# Losses differ by rounding of fp32 sums; a step of AdamW moves a weight by lr whatever the size of its gradient.
LOSS, GRADS, WEIGHTS = 1e-5, 2e-4, 2e-4
PLANS = {
    "softmax": [
        (1, "tp=1,dp=1,pp=1,mbs=4"),
        (1, "tp=1,dp=1,pp=1,mbs=2,recompute=full"),
        (2, "tp=2,dp=1,pp=1,mbs=4"),
        (2, "tp=2,dp=1,pp=1,mbs=4,sp=1"),
    ],
    "groups": [
        (1, "tp=1,dp=1,pp=1,mbs=4"),
        (2, "tp=1,dp=1,pp=2,mbs=2"),
        (4, "tp=2,dp=2,pp=1,mbs=1,zero=1"),
    ],
    "balance": [
        (1, "tp=1,dp=1,pp=1,mbs=2,recompute=full"),
        (2, "tp=1,dp=2,pp=1,mbs=2"),
        (2, "tp=2,dp=1,pp=1,mbs=4,sp=1"),
    ],
    "further": [
        (4, "tp=1,dp=2,pp=2,mbs=1,ep=2,zero=1"),
        (2, "tp=1,dp=1,cp=2,pp=1,mbs=4,order=zigzag"),
    ],
}
count = 0


def report(good, what, why=""):
    global count
    count += 1
    print("%s %d - %s" % ("ok" if good else "not ok", count, what))
    for line in str(why).splitlines():
        print("# " + line)
    return good


def run(*words):
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=env, timeout=300)
    return done.returncode, done.stdout, done.stderr


def op(what, **keys):
    return {"op": what, **keys}


def linear(a, b, to, weight, **more):
    return op("linear", **{"in": a}, out=b, to=to, weight=weight, **more)


def gated(stem, of, width, to, out):
    """A gated MLP whose gate and up are rows of one stored tensor."""
    f = {"f": 24, "m": 12}[width]
    fused = stem + "gate_up_proj.weight"
    return [
        linear(of, out + "g", [width], "%s[0:%d]" % (fused, f)),
        linear(of, out + "u", [width], "%s[%d:%d]" % (fused, f, 2 * f)),
        op("act", kind="silu", **{"in": out + "g"}, out=out + "s"),
        op("mul", **{"in": [out + "s", out + "u"]}, out=out + "m"),
        linear(out + "m", out, to, stem + "down_proj.weight"),
    ]


def attention(p):
    fused = p + "attn.qkv.weight"
    return [
        op("norm", kind="rms", eps=1e-5, **{"in": "x"}, out="n1", gain=p + "norm1.weight"),
        linear("n1", "q", ["g", "r", "d"], fused + "[0:32]"),
        linear("n1", "k", ["g", "d"], fused + "[32:48]"),
        linear("n1", "v", ["g", "d"], fused + "[48:64]"),
        op("rope", **{"in": "q"}, out="q1", theta=100.0),
        op("rope", **{"in": "k"}, out="k1", theta=100.0),
        op("attention", **{"in": ["q1", "k1", "v"]}, out="a"),
        linear("a", "o", ["h"], p + "attn.o.weight", **{"from": ["g", "r", "d"]}),
        op("add", **{"in": ["x", "o"]}, out="x1"),
        op("norm", kind="rms", eps=1e-5, **{"in": "x1"}, out="n2", gain=p + "norm2.weight"),
    ]


def experts(p, router, stacked):
    """Weights one tensor an expert, or stacked the other way round with biases."""
    def weight(name):
        return p + ("experts.%s" if stacked else "experts.{e}.%s.weight") % name

    def one(a, b, to, name):
        more = {"transposed": True, "bias": weight(name) + "_bias"} if stacked else {}
        return op("expert_linear", **{"in": a}, choice="choice", out=b, experts="e", to=[to], weight=weight(name), **more)

    return [
        linear("n2", "logits", ["e"], p + "router.weight"),
        op("router", **{"in": "logits"}, out=["choice", "share"], k="k", **router),
        one("n2", "eg", "m", "gate"), one("n2", "eu", "m", "up"),
        op("act", kind="silu", **{"in": "eg"}, out="es"),
        op("mul", **{"in": ["es", "eu"]}, out="em"),
        one("em", "ed", "h", "down"),
        op("combine", **{"in": ["ed", "share"]}, out="routed"),
    ]


def model(name, many, k, router, stacked, tied):
    p = "layers.{i}."
    dense = attention(p) + gated(p + "mlp.", "n2", "f", ["h"], "y") + [op("add", **{"in": ["x1", "y"]}, out="x2")]
    sparse = attention(p) + experts(p, router, stacked) + gated(p + "shared.", "n2", "m", ["h"], "sh")
    sparse += [op("add", **{"in": ["routed", "sh"]}, out="y"), op("add", **{"in": ["x1", "y"]}, out="x2")]
    head = [
        op("norm", kind="rms", eps=1e-5, **{"in": "x"}, out="n", gain="norm.weight"),
        linear("n", "logits", ["v"], "embed.weight" if tied else "lm_head.weight"),
        op("cross_entropy", **{"in": "logits"}),
    ]
    embed = [op("embedding", **{"in": "ids"}, out="x", rows="v", cols=["h"], table="embed.weight")]
    return {
        "format": "lplan-model/1", "name": name, "init_std": 0.15,
        "dims": {"h": 16, "f": 24, "m": 12, "v": VOCABULARY, "g": 2, "r": 2, "d": 8, "e": many, "k": k},
        "blocks": {
            "embed": {"out": "x", "ops": embed},
            "dense": {"in": "x", "out": "x2", "ops": dense},
            "sparse": {"in": "x", "out": "x2", "ops": sparse},
            "head": {"in": "x", "ops": head},
        },
        "chain": [{"block": "embed"}, {"block": "dense"}, {"block": "sparse", "repeat": 2, "first": 1}, {"block": "head"}],
    }


def further(name):
    """One sparse layer more for the token after the next: DeepSeek-V3's, under its names."""
    made = model(name, 4, 2, {"score": "sigmoid", "renormalise": True, "bias": "layers.{i}.bias", "bias_rate": 1e-3}, False, False)
    blocks, p = made["blocks"], "layers.{i}."
    sparse = json.loads(json.dumps(blocks["sparse"]["ops"]).replace('"x"', '"joined"'))
    blocks["further"] = {"in": "x", "out": "both", "ops": [
        op("norm", kind="rms", eps=1e-5, **{"in": "x"}, out="state", gain="norm.weight"),
        op("embedding", ahead=1, **{"in": "ids"}, out="token", rows="v", cols=["h"], table="embed.weight"),
        op("norm", kind="rms", eps=1e-5, **{"in": "token"}, out="tn", gain=p + "enorm.weight"),
        op("norm", kind="rms", eps=1e-5, **{"in": "state"}, out="sn", gain=p + "hnorm.weight"),
        op("concat", **{"in": ["tn", "sn"]}, dim="hh", parts=[["h"], ["h"]], out="pair"),
        linear("pair", "joined", ["h"], p + "eh_proj.weight"),
        *sparse,
        op("norm", kind="rms", eps=1e-5, **{"in": "x2"}, out="later", gain=p + "shared_head.norm.weight"),
        op("concat", **{"in": ["state", "later"]}, dim="hh", parts=[["h"], ["h"]], out="both"),
    ]}
    blocks["head"] = {"in": "both", "ops": [
        op("split", **{"in": "both"}, dim="hh", parts=[["h"], ["h"]], out=["n", "later"]),
        linear("n", "near", ["v"], "lm_head.weight"),
        op("cross_entropy", **{"in": "near"}),
        linear("later", "far", ["v"], "lm_head.weight"),
        op("cross_entropy", ahead=1, factor=0.3, **{"in": "far"}),
    ]}
    made["dims"]["hh"] = 32
    made["chain"].insert(3, {"block": "further", "first": 3})
    return made


GROUPS = {"score": "sigmoid", "renormalise": True, "epsilon": 1e-20, "scale": 2.5, "groups": 4, "kept": 2, "by": "top2",
          "bias": "layers.{i}.router.bias", "bias_rate": 1e-3, "capacity": 1.25}
MODELS = {
    "softmax": model("experts-softmax", 4, 2, {"score": "softmax"}, False, True),
    "groups": model("experts-groups", 8, 3, GROUPS, True, False),
    "balance": model("experts-balance", 4, 2, {"score": "softmax", "renormalise": True, "balance": 0.02, "z": 0.01}, False, False),
    "further": further("experts-further"),
}


def write_tokens(path):
    draw = random.Random(3)
    tokens = [draw.randrange(VOCABULARY) for _ in range(STEPS * SEQUENCES * LENGTH + 1)]
    head = [20240520, 1, len(tokens)] + [0] * 253
    path.write_bytes(struct.pack("<256i", *head) + struct.pack("<%dH" % len(tokens), *tokens))


def header(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return {name: row["shape"] for name, row in json.loads(data[8:8 + length]).items() if name != "__metadata__"}


def check_names(folder, name, what):
    """A file has one tensor for each expert and one for the rows of a fused weight."""
    found = header(folder / "weights")
    want = {"layers.1.attn.qkv.weight": [64, 16], "layers.1.shared.gate_up_proj.weight": [24, 16]}
    if name == "groups":
        want["layers.1.experts.gate"] = [8, 16, 12]
    else:
        want.update({"layers.2.experts.%d.gate.weight" % e: [12, 16] for e in range(4)})
    wrong = {key: found.get(key) for key in want if found.get(key) != want[key]}
    marks = [key for key in found if any(c in key for c in "{[")]
    return report(not wrong and not marks, what + ": names and shapes in files", "%s %s" % (wrong, marks) if wrong or marks else "")


def rewritten(source, target, copies):
    """The file with some of its tensors once more under other names."""
    data = source.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    head, body = json.loads(data[8:8 + length]), data[8 + length:]
    for name, of, change in copies:
        begin, end = head[of]["data_offsets"]
        head[name] = {**head[of], "data_offsets": [len(body), len(body) + end - begin]}
        body += bytes(b ^ change for b in body[begin:end])
    text = json.dumps(head).encode()
    target.write_bytes(struct.pack("<Q", len(text)) + text + body)


def check_copies(folder, what, virtual):
    """DeepSeek-V3's files have embedding and head twice, the second time with the layer that looks further."""
    first = [("layers.3.embed_tokens.weight", "embed.weight", 0), ("layers.3.shared_head.head.weight", "lm_head.weight", 0)]
    words = [folder / "built/trainer", *virtual, "--eval-only", "--eval-data", folder / "tokens.bin", "--init", folder / "twice"]
    rewritten(folder / "weights", folder / "twice", first)
    code, out, err = run(*words)
    report(code == 0 and "eval step" in out, what + ": copies in files", "" if code == 0 else out + err)
    rewritten(folder / "weights", folder / "twice", [(*first[1][:2], 1)])
    code, out, err = run(*words)
    report(code == 1 and "not equal to" in err, what + ": other copies", "" if code == 1 else out + err)


def train(name, ranks, pins, check):
    what = "%s %s on %d" % (name, pins, ranks)
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        (folder / "model.json").write_text(json.dumps(MODELS[name]))
        write_tokens(folder / "tokens.bin")
        code, out, err = run(LPLAN, "plan", folder / "model.json", "host", "--gpus", ranks, "--global-batch", SEQUENCES,
                             "--seq", LENGTH, "--recipe", "fp32", "--pin", pins, "-o", folder / "plan.json")
        if code == 0:
            code, out, err = run(LPLAN, "build", folder / "plan.json", "-o", folder / "built", *([] if check else ["--no-check"]))
        if code != 0:
            return report(False, what + ": plan and build", out + err)
        words = ["--steps", STEPS, "--lr", LR, "--data", folder / "tokens.bin", "--log", folder / "log", "--quiet",
                 "--dump-grads", folder / "grads", "--save", folder / "weights"]
        virtual = ["--virtual"] if ranks > 1 else []
        code, out, err = run(folder / "built/trainer", *virtual, *words)
        if code != 0:
            return report(False, what + ": run", out + err)
        rows = [json.loads(line) for line in (folder / "log/log.jsonl").read_text().splitlines()]
        keys = ["loss"] + (["loss_ahead_1"] if name == "further" else [])
        (folder / "losses").write_text("".join("%.9g\n" % row[key] for row in rows for key in keys if "loss" in row))
        micros = SEQUENCES // int(pins.split("mbs=")[1].split(",")[0]) // int(pins.split("dp=")[1].split(",")[0])
        code, out, err = run(ORACLE, folder / "model.json", folder / "tokens.bin", folder / "losses", folder / "grads",
                             folder / "weights", SEQUENCES, LENGTH, micros, LR)
        far = {line.split()[0]: float(line.split()[1]) for line in out.splitlines()}
        good = code == 0 and far["loss"] <= LOSS and far["grads"] <= GRADS and far["weights"] <= WEIGHTS
        report(good, what, "" if good else out + err)
        check_names(folder, name, what)
        if name == "further" and ranks == 2:
            check_copies(folder, what, virtual)


def refuse(rows, says):
    """Rows of a fused weight that are no tiling of it become no trainer."""
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        (folder / "model.json").write_text(json.dumps(MODELS["softmax"]).replace("[48:64]", rows))
        run(LPLAN, "plan", folder / "model.json", "host", "--gpus", 1, "--global-batch", SEQUENCES, "--seq", LENGTH,
            "--recipe", "fp32", "--pin", "tp=1,dp=1,pp=1,mbs=4", "-o", folder / "plan.json")
        code, out, err = run(LPLAN, "build", folder / "plan.json", "-o", folder / "built")
        report(code == 1 and says in err, "rows %s are refused" % rows, "" if says in err else out + err)


if __name__ == "__main__":
    only = sys.argv[3:]
    if not only:
        refuse("[49:65]", "the parameters that are rows of layers.0.attn.qkv.weight do not tile its 65 rows")
        refuse("[48:60]", "parameter layers.0.attn.qkv.weight[48:60] has 16 rows")
    for name in MODELS:
        for ranks, pins in PLANS[name]:
            if not only or any(word in "%s %s" % (name, pins) for word in only):
                train(name, ranks, pins, ranks == 1)
    print("1..%d" % count)
    sys.exit(0)
