#!/usr/bin/env python3
"""test_trace.py - what a trainer does is what the simulation says, in its order.

    test_trace.py LPLAN [WORD ...]

`lplan plan --trace` is the simulated step, the trainer's --trace the measured one. Of every rank of a plan the
second step is compared: bodies of layers, and starts of collectives, messages and copies, one sequence under
the same names. Where steps flow into each other both are of a run from its first step on: half of what a rank
does is compared, behind the first step's norm. No time is looked at."""
import json
import sys

import e2e
from e2e import Failed

MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "hidden_size": 48, "intermediate_size": 80, "max_position_embeddings": 32,
    "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "torch_dtype": "float32", "vocab_size": 256,
}
EXPERTS = {**MODEL, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4,
           "num_experts_per_tok": 2, "num_hidden_layers": 2}
PLANS = {
    "dp2 tp2 sp, blocks gathered": {"dp": 2, "tp": 2, "sp": 1, "mbs": 2},
    "tp2 sp pp2, blocks pass by": {"tp": 2, "sp": 1, "tp_by": "ring", "pp": 2, "mbs": 4},
    "dp2 zero3, gathered a layer ahead": {"dp": 2, "zero": 3, "mbs": 2},
    "pp2 zero3 zbv, W apart": {"dp": 2, "pp": 2, "zero": 3, "mbs": 2, "schedule": "zbv"},
    "dp2 zero3, far homes": {"dp": 2, "zero": 3, "mbs": 2, "weight_home": "dram", "gradient_home": "dram",
                             "activation_home": "dram", "optimizer_home": "nvme"},
    "dp2 ep2, experts": {"dp": 2, "ep": 2, "zero": 2, "mbs": 2},
    "pp2 2bw, flows": {"pp": 2, "mbs": 2, "schedule": "2bw"},
}
STEP, STEPS = 1, 3
BETWEEN = ("send", "recv", "copy to the device", "copy from the device")  # of no layer's body
FLOW = 8  # steps of a run that flows


def predicted(path, stage):
    """Steps of a stage in program order: the file has them so."""
    order, body = [], None
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] != "X" or event["pid"] != stage or event["name"] in ("load", "own_loss"):
            continue
        args = event["args"]
        comm, inside = event["tid"] != 0, "link" in args and event["name"] not in BETWEEN
        if inside and (args["link"], args["micro_batch"], event["cat"]) != body:
            body = (args["link"], args["micro_batch"], event["cat"])
            order.append((args["link"], event["cat"]))
        if not inside:
            body = None
        if comm:
            order.append(event["name"])
    return order


def measured(trace, rank, steps):
    """The same of a rank, by when things begin. Between steps the ranks gather figures, which is not of the
    plan; what follows that is of the next step."""
    events = sorted((e for e in trace if e["pid"] == rank and e["ph"] in "Xb" and e["tid"] != 1),
                    key=lambda e: e["ts"])
    order, here, between = [], False, False
    for event in events:
        if event["ph"] == "X":
            body = tuple(event["name"].replace("_experts", "").split())
            between = body == ("end", "of", "step")
            here = event["args"]["step"] in steps
            if here and not between and body != ("embed", "input"):  # which has no statements
                order.append(body)
        elif between:
            between = False
        elif here:
            order.append(event["name"].replace("-", "_"))
    return order


def check(shop, name, pins):
    place = shop.path / name.replace(" ", "-").replace(",", "")
    place.mkdir()
    config = EXPERTS if "ep" in pins else MODEL
    flows = pins.get("schedule") == "2bw"
    (place / "config.json").write_text(json.dumps(config))
    e2e.lplan("plan", place / "config.json", e2e.HOST, "--gpus", e2e.ranks_of(pins), "--global-batch", 8,
              "--seq", 16, "--recipe", "fp32", "--pin", e2e.pin_text(pins), "-o", place / "plan.json",
              "--trace", place / "predicted.json", "--quiet")
    e2e.build(place / "plan.json", place / "trainer", shop.cache, "--no-check")
    e2e.train(place / "trainer", place / "log", "--data", e2e.text_file(shop.path / "text"),
              "--steps", FLOW if flows else STEPS, "--trace", place / "measured.json",
              "--offload-dir", place)
    trace = json.loads((place / "measured.json").read_text())
    stages = pins.get("pp", 1)
    for rank in range(e2e.ranks_of(pins)):
        stage = rank * stages // e2e.ranks_of(pins)
        want = predicted(place / "predicted.json", stage)
        got = measured(trace, rank, range(FLOW) if flows else [STEP])
        classes = ["embed"] + ["layer"] * config["num_hidden_layers"] + ["head"]
        want = [(classes[one[0]], one[1]) if isinstance(one, tuple) else one for one in want]
        if flows:
            got, want = (some[some.index("all_reduce"):][:len(got) // 2] for some in (got, want))
        if got != want:
            at = next((i for i, pair in enumerate(zip(got, want)) if pair[0] != pair[1]),
                      min(len(got), len(want)))
            raise Failed(f"rank {rank} of stage {stage}: entry {at} of {len(want)} should be\n"
                         f"{want[at:at + 6]}, and is\n{got[at:at + 6]}, behind\n{want[max(0, at - 6):at]}")
        if sum(isinstance(one, str) for one in want) < 4:
            raise Failed(f"rank {rank} hardly meets others: {want}")
    return f"{len(want)} entries a rank"


def main():
    words, tap = sys.argv[2:], e2e.Tap()
    with e2e.Workshop() as shop:
        for name, pins in PLANS.items():
            if not words or any(word in name for word in words):
                print(f"# {tap.case(name, check, shop, name, pins)}")
    tap.end()


if __name__ == "__main__":
    main()
