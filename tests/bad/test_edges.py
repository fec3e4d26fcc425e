#!/usr/bin/env python3
"""test_edges.py - jobs at the edge of what makes sense: each is planned, proven with all mutations and
printed, or refused in one clear line. Speaks TAP.

    test_edges.py LPLAN"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import seeds
from seeds import CONFIGS

MQA = {"num_key_value_heads": 1}
ONE_HEAD = {"num_attention_heads": 1, "num_key_value_heads": 1}
ODD = {"hidden_size": 15, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 6,
       "intermediate_size": 9, "vocab_size": 13}
TIED = {"tie_word_embeddings": True}
OK = None
PROVEN = "proven, but no trainer is printed"

# (name, config or changes of the llama one, devices, batch, sequence, pins, OK or the words of the refusal)
EDGES = [
    ("one layer", {"num_hidden_layers": 1}, 1, 2, 8, "", OK),
    ("one layer, cut by tp", {"num_hidden_layers": 1}, 2, 2, 8, "tp=2", OK),
    ("one token", {}, 1, 1, 1, "", OK),
    ("one token, cut by tp", {}, 2, 1, 1, "tp=2", OK),
    ("one token cannot be cut by sp", {}, 2, 1, 1, "tp=2,sp=1", "sequence must divide by tp|has these pins"),
    ("one head", ONE_HEAD, 1, 2, 8, "", OK),
    ("one head on two ranks", ONE_HEAD, 2, 2, 8, "tp=2", OK),
    ("twice as many ranks as heads", {}, 8, 2, 8, "tp=8", OK),
    ("a ring of too many ranks", {}, 128, 1, 256, "cp=128,cp_by=ring", "a ring of 128 ranks; 64 is the most"),
    ("more cp ranks than KV heads exchange them", {}, 4, 2, 8, "cp=4,cp_by=heads", "--pin cp_heads=2,cp_by=ring"),
    ("one KV head on four ranks", MQA, 4, 2, 8, "tp=4", OK),
    ("one KV head, sequence parallel", MQA, 2, 2, 8, "tp=2,sp=1", OK),
    ("two KV heads on four ranks", {}, 4, 2, 8, "tp=4", OK),
    ("heads of two", {"head_dim": 2}, 2, 2, 8, "tp=2", OK),
    ("a vocabulary of two", {"vocab_size": 2}, 1, 2, 8, "", OK),
    ("a vocabulary of two on four ranks", {"vocab_size": 2}, 4, 2, 8, "tp=4", OK),
    ("a vocabulary that needs padding", {"vocab_size": 51}, 2, 2, 8, "tp=2", OK),
    ("odd sizes everywhere", ODD, 1, 3, 5, "", OK),
    ("odd sizes on three ranks", ODD, 3, 3, 5, "tp=3", OK),
    ("odd sizes, three batches", ODD, 3, 3, 5, "dp=3", OK),
    ("odd sizes on two ranks", ODD, 2, 3, 5, "tp=2", "must divide by tp|has these pins"),
    ("a hidden size of one", {**ONE_HEAD, "hidden_size": 1, "head_dim": 2}, 1, 2, 8, "", OK),
    ("as many stages as layers", {"num_hidden_layers": 3}, 3, 3, 8, "pp=3", OK),
    ("a first stage without layers", {}, 2, 4, 8, "pp=2,layers=0+2", OK),
    ("a last stage without layers", {}, 2, 4, 8, "pp=2,layers=2+0", OK),
    ("a middle stage without layers", {}, 3, 4, 8, "pp=3,layers=1+0+1", "stage 1 of 3 has no layer|layers"),
    ("layers that do not add up", {}, 2, 4, 8, "pp=2,layers=1+2", "3 in all; the model has 2"),
    ("one micro-batch in a pipeline", {}, 2, 1, 8, "pp=2,mbs=1", OK),
    ("one micro-batch, GPipe", {}, 2, 1, 8, "pp=2,mbs=1,schedule=gpipe", OK),
    ("fewer micro-batches than stages", {"num_hidden_layers": 4}, 4, 2, 8, "pp=4", OK),
    ("dp does not divide the batch", {}, 2, 3, 8, "dp=2", "batch of 3|does not divide"),
    ("mbs does not divide the batch", {}, 1, 4, 8, "mbs=3", "batch of 4|does not divide"),
    ("one sequence for two ranks", {}, 2, 1, 8, "dp=2", "batch of 1|does not divide"),
    ("a layer that is not there", {}, 2, 4, 8, "dp=2,1-2:tp=2", "pin 1-2:tp=2: the model has 2 layers"),
    ("layers from the last to the first", {}, 2, 4, 8, "1-0:tp=2", "1-0 is no range of layers"),
    ("open layers that are not there", {}, 2, 4, 8, "2-:zero=1", "pin 2-:zero=1: the model has 2 layers"),
    ("layers from nowhere to nowhere", {}, 2, 4, 8, "-:zero=1", "- is no range of layers"),
    ("layers with two ends", {}, 2, 4, 8, "0-1-:zero=1", "0-1- is no range of layers"),
    ("a key twice", {}, 2, 4, 8, "tp=2,tp=1", "pins tp=2 and tp=1"),
    ("a key of a layer twice", {}, 2, 4, 8, "tp=2,1:zero=1:sp=1:zero=2", "pins 1:zero=1 and 1:zero=2"),
    ("fewer layers than none", {}, 2, 4, 8, "layers=3+-1+6", r"pin layers=3\+-1\+6 is not a sum"),
    ("weights of layers in two memories", {}, 2, 4, 8, "0:weight_home=dram,1:weight_home=nvme", "weights in nvme"),
    ("state of some layers in a file", {}, 2, 4, 8, "dp=2,zero=1,1-:optimizer_home=nvme", OK),
    ("layers from the first and to the last", {}, 2, 4, 8, "dp=2,-0:zero=1:recompute=full,1-:zero=3", OK),
    ("a layer with a schedule", {}, 2, 4, 8, "1:schedule=gpipe", "pin 1:schedule: layers have no such pin"),
    ("a layer with a word that is nearly one", {}, 2, 4, 8, "1:recompte=full", "did you mean 1:recompute"),
    ("a layer whose pin has no value", {}, 2, 4, 8, "1:tp:zero=1", "pin 1:tp has no value"),
    ("ranks of a layer that no atoms refine", {}, 6, 6, 9, "tp=2,dp=3,mbs=2,0:tp=3", "no common atoms"),
    ("ranks of a layer that are not a stage's", {}, 4, 4, 8, "tp=2,dp=2,0:tp=2:dp=1", "a stage has 4"),
    ("sequences that a layer cannot share", {}, 4, 4, 8, "tp=4,mbs=1,1:tp=1", "sequences has no 4 parts"),
    ("what no layer can make again", {}, 1, 4, 8, "1:recompute=atention", "did you mean attention"),
    ("layers that differ on few ranks", {}, 4, 4, 8, "tp=4,mbs=4,1:tp=1,first:recompute=full", OK),
    ("pins that are too many devices", {}, 2, 4, 8, "tp=1048576,dp=1048576,pp=64", "devices"),
    ("tied over two stages, cut twice", TIED, 4, 2, 8, "pp=2,tp=2,sp=1", OK),
    ("tied over two stages, sharded state", TIED, 4, 4, 8, "pp=2,dp=2,zero=1", OK),
    ("every position used", CONFIGS["gpt2"], 1, 1, 64, "", OK),
    ("more tokens than positions", CONFIGS["gpt2"], 1, 1, 65, "", r"model.json:\d+:\d+: error: 65 positions"),
    ("a tp of three by five batches", ODD, 15, 5, 5, "tp=3,dp=5", OK),
]


def no_layers(model):
    del model["blocks"]["layer"]
    del model["chain"][1]


def positions_apart(model):
    """A link that only adds to its input hands its gradient on as it came."""
    model["dims"]["p"] = 32
    model["blocks"]["place"] = {"in": "x", "out": "y", "ops": [
        {"op": "embedding", "in": "positions", "out": "pe", "rows": "p", "cols": ["h"], "table": "positions"},
        {"op": "add", "in": ["x", "pe"], "out": "y"}]}
    model["chain"].insert(1, {"block": "place"})


def layers_twice(model):
    model["chain"].insert(1, dict(model["chain"][1]))


def windows_in_turn(model):
    model["chain"][1].update(repeat=4, each=[{}, {"a": {"window": 3}}, {}, {"a": {"window": 3}}])


def one_block(model):
    ops = model["blocks"]["embed"]["ops"] + model["blocks"]["head"]["ops"]
    ops[1]["in"] = "token"
    model["blocks"], model["chain"] = {"all": {"ops": ops}}, [{"block": "all"}]


# (name, change of the llama model, pins, OK or the words of the refusal)
SHAPES = [
    ("a model without layers", no_layers, "tp=2,dp=2", OK),
    ("positions in a link of their own", positions_apart, "tp=2,pp=2", OK),
    ("layers that share their weights", layers_twice, "tp=2,pp=2,schedule=1f1b", PROVEN),
    ("layers that share their weights in one stage", layers_twice, "dp=4", PROVEN),
    ("windows in turn", windows_in_turn, "tp=2,pp=2", OK),
    ("one block for all", one_block, "tp=1,dp=4", r"model.json:\d+:\d+: error: a chain of one link"),
]


def run(lplan, *words):
    done = subprocess.run([lplan, *words], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode in (0, 1, 2, 3), (words, done.returncode, done.stderr[:2000])
    return done


def edge(lplan, folder, config, devices, batch, sequence, pins, wanted):
    at = lambda name: os.path.join(folder, name)
    if "model_type" not in config:
        config = {**CONFIGS["llama"], **config}
    seeds.save(at("config.json"), config)
    seeds.run(lplan, "import", at("config.json"), "-q", "-o", at("model.json"))
    job(lplan, at, devices, batch, sequence, pins, wanted)


def shape(lplan, folder, change, pins, wanted):
    at = lambda name: os.path.join(folder, name)
    model = json.loads(seeds.read(at("model-llama.json")))
    change(model)
    seeds.save(at("model.json"), model)
    job(lplan, at, 4, 8, 8, pins, wanted)


def job(lplan, at, devices, batch, sequence, pins, wanted):
    planned = run(lplan, "plan", at("model.json"), "host", "--gpus", str(devices), "--global-batch", str(batch),
                  "--seq", str(sequence), "--recipe", "fp32", "-q", "-o", at("plan.json"),
                  *(["--pin", pins] if pins else []))
    if wanted not in (OK, PROVEN):
        assert planned.returncode in (1, 2, 3) and re.search(wanted, planned.stderr), planned
        errors = [line for line in planned.stderr.splitlines() if "error: " in line]
        assert len(errors) == 1 and "help: " in planned.stderr, planned.stderr
        return
    assert planned.returncode == 0, planned.stderr
    proven = run(lplan, "prove", at("plan.json"))
    assert proven.returncode == 0 and proven.stdout.endswith("proven\n"), proven.stdout[-1500:] + proven.stderr
    built = run(lplan, "build", at("plan.json"), "-o", at("job"), "-q", "--no-compile", "--no-check")
    assert built.returncode == (1 if wanted == PROVEN else 0), built.stderr


def reversed_keys(value):
    if isinstance(value, dict):
        return {key: reversed_keys(item) for key, item in reversed(list(value.items()))}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


def escaped(text):
    """Every letter of every string as \\u: the same JSON to a reader."""
    return re.sub(r'"((?:[^"\\]|\\.)*)"', lambda found: '"' + "".join(
        f"\\u{ord(letter):04x}" for letter in json.loads(found.group(0))) + '"', text)


def spellings(text):
    """One model in several spellings. Dims are ordered by their first mention, so they stay in place."""
    root = json.loads(text)
    blocks = {"blocks": {name: {**reversed_keys(block), "ops": [reversed_keys(op) for op in block["ops"]]}
                         for name, block in root["blocks"].items()}}
    yield "on one line", json.dumps(root, separators=(",", ":"))
    yield "with tabs and carriage returns", json.dumps(root, indent="\t").replace("\n", "\r\n")
    yield "with escapes", escaped(text)
    yield "in another order", json.dumps({**dict(reversed(list(root.items()))), **blocks})
    yield "with reals for whole numbers", text.replace('"h": 16', '"h": 16.0').replace('"f": 24', '"f": 2.4e1')


def spelling(lplan, folder, text, wanted):
    path = os.path.join(folder, "spelled.json")
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    out = os.path.join(folder, "spelled-plan.json")
    seeds.run(lplan, "plan", path, "host", "--gpus", "4", "--global-batch", "4", "--seq", "8", "--pin",
              "tp=2,pp=2", "-q", "-o", out)
    plan = json.loads(seeds.read(out))
    if wanted:
        for key in plan:
            assert key == "model" or plan[key] == wanted[key], key
        assert plan["model"] == wanted["model"]
    return plan


def rounds_apart(lplan, folder):
    """Both rounds deal rows out to themselves: cut in two ways, a row would have both, or none."""
    at = lambda name: os.path.join(folder, name)
    model = pathlib.Path(__file__).resolve().parents[1] / "e2e" / "models" / "moe.json"
    seeds.run(lplan, "plan", str(model), "host", "--gpus", "4", "--global-batch", "8", "--seq", "16", "-q", "--pin",
              "tp=2,dp=2,pp=1,sp=1,etp=1,ep=4,rounds=2,zero=1,mbs=4", "-o", at("rounds.json"))
    plan = json.loads(seeds.read(at("rounds.json")))
    many = run(lplan, "plan", str(model), "host", "--gpus", "4", "--global-batch", "8", "--seq", "16", "--pin",
               "tp=2,dp=2,sp=1,ep=2,rounds=4")
    assert many.returncode in (1, 2) and "in more ways than the block solver weighs" in many.stderr and \
        "  help: " in many.stderr, many
    placed = {part["name"]: part["nodes"] for part in plan["classes"]}["layer"]
    assert placed["choice"] == placed["share.within.round1"] == ["R", "b"], placed
    placed["share.within.round1"] = ["s", "b"]
    seeds.save(at("rounds.json"), plan)
    refused = run(lplan, "prove", at("rounds.json"))
    assert refused.returncode == 1 and re.search("deals rows out to rounds otherwise than choice", refused.stderr), \
        refused


def main():
    lplan, failed, number = os.path.abspath(sys.argv[1]), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        text = seeds.make(lplan, folder)["model"]["llama"]
        wanted = spelling(lplan, folder, text, None)
        rows = [(name, edge, row) for name, *row in EDGES]
        rows += [(name, shape, row) for name, *row in SHAPES]
        rows += [("rounds of rows that are cut in two ways", rounds_apart, ())]
        rows += [(f"a model {name}", spelling, (other, wanted)) for name, other in spellings(text)]
        print(f"1..{len(rows)}")
        for number, (name, body, arguments) in enumerate(rows, 1):
            try:
                body(lplan, folder, *arguments)
                print(f"ok {number} - {name}")
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failed += 1
                print("".join(f"# {row}\n" for row in str(error).splitlines()), end="")
                print(f"not ok {number} - {name}")
            sys.stdout.flush()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
