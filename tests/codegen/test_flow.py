#!/usr/bin/env python3
"""test_flow.py LPLAN ORACLE - trainers whose steps flow into each other, against delayed SGD in fp64.

Losses, the first gradients and the last weights are those of an oracle whose every link reads weights so many
steps old as its stage says, and not those of one that reads newer ones; runs under MPI and --virtual, with
messages held back or not, give the same bits; and a run that saves and one that goes on from there do too."""
import json
import pathlib
import random
import shutil
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import e2e  # noqa: E402

ORACLE = sys.argv[2]
STEPS, LENGTH, LR = 7, 8, 0.002
MPI = shutil.which("mpirun") is not None
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 16,
    "intermediate_size": 24, "max_position_embeddings": 16, "num_attention_heads": 2, "num_hidden_layers": 4,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "torch_dtype": "float32", "vocab_size": 64,
}
# pins, micro-batches, delay of each stage
ROWS = [
    ({"pp": 2, "tp": 2, "sp": 1, "recompute": "full", "schedule": "pipedream"}, 1, [1, 0]),
    ({"pp": 3, "dp": 2, "zero": 3, "schedule": "pipedream"}, 1, [2, 1, 0]),
    ({"pp": 2, "dp": 2, "zero": 2, "schedule": "2bw"}, 2, [1, 1]),
    ({"pp": 2, "dp": 2, "zero": 3, "schedule": "2bw", "weight_home": "dram", "optimizer_home": "dram"}, 3, [1, 1]),
]


def write_tokens(path, sequences):
    draw = random.Random(5)
    tokens = [draw.randrange(64) for _ in range(STEPS * sequences * LENGTH + 1)]
    head = [20240520, 1, len(tokens)] + [0] * 253
    path.write_bytes(struct.pack("<256i", *head) + struct.pack("<%dH" % len(tokens), *tokens))


def judge(folder, files, log, sequences, micros, delays, drain=0):
    """The worst distances from the oracle: of losses, first gradients, last weights."""
    (folder / "losses").write_text("".join(f"{loss:.9g}\n" for loss in e2e.column(log, "loss")))
    text = e2e.command(ORACLE, folder / "model.json", folder / "tokens", folder / "losses", files / "grads",
                       files / "weights", sequences, LENGTH, micros, LR, ",".join(map(str, delays)), drain).stdout
    return {line.split()[0]: float(line.split()[1]) for line in text.splitlines()}


def train(folder, name, *options):
    """The log, and the files that were written."""
    files = folder / name
    files.mkdir()
    log = e2e.train(folder / "built", files / "log", "--data", folder / "tokens", "--steps", STEPS, "--lr", LR,
                    "--dump-grads", files / "grads", "--save", files / "weights", *options)
    return log, files


def same(a, b):
    for key in ("loss", "grad_norm", "lr"):
        if e2e.column(a[0], key) != e2e.column(b[0], key):
            raise e2e.Failed(f"{key}: {e2e.column(a[0], key)}, and {e2e.column(b[0], key)}")
    for name in ("grads", "weights"):
        if e2e.digest(a[1] / name) != e2e.digest(b[1] / name):
            raise e2e.Failed(f"{name} differ")


def row(shop, number, pins, micros, stages):
    folder = shop.path / str(number)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL))
    e2e.lplan("import", folder / "config.json", "-o", folder / "model.json")
    sequences = micros * pins.get("dp", 1)
    write_tokens(folder / "tokens", sequences)
    e2e.plan(folder / "model.json", pins, folder / "plan.json", sequences, LENGTH)
    first = json.loads((folder / "plan.json").read_text())["first_link"]
    delays = [stages[s] for s in range(pins["pp"]) for _ in range(first[s], first[s + 1])]
    e2e.build(folder / "plan.json", folder / "built", shop.cache, "--no-check")
    virtual = train(folder, "virtual", "--virtual")
    far = judge(folder, virtual[1], virtual[0], sequences, micros, delays)
    if not (far["loss"] < 2e-5 and far["grads"] < 1e-5 and far["weights"] < 2e-4):
        raise e2e.Failed(f"far from delayed SGD: {far}")
    newer = judge(folder, virtual[1], virtual[0], sequences, micros, [0] * len(delays))
    if newer["loss"] < 1e-3:
        raise e2e.Failed(f"SGD that is not delayed does the same: {newer}")
    if number % 2 == 1:
        same(virtual, train(folder, "shaken", "--virtual", "--shake", "3"))
    if MPI:
        same(virtual, train(folder, "mpi", "--synchronous-sends"))
    if number % 3 == 0:
        resume(folder, sequences, micros, delays)


def resume(folder, sequences, micros, delays):
    """A save drains: later steps read the newest weights first, whether the run goes on or begins anew."""
    saves = ["--virtual", "--checkpoint", folder / "saves", "--checkpoint-every", 3, "--keep", 0]
    whole = train(folder, "whole", *saves)
    far = judge(folder, whole[1], whole[0], sequences, micros, delays, 3)
    if not (far["loss"] < 2e-5 and far["weights"] < 2e-4):
        raise e2e.Failed(f"far from SGD whose delays begin anew: {far}")
    saved = sorted(path for path in (folder / "saves").iterdir() if path.is_dir())
    for path in saved[2:]:
        shutil.rmtree(path)
    later = train(folder, "later", *saves, "--resume", folder / "saves")
    if e2e.column(later[0], "loss") != e2e.column(whole[0], "loss")[-len(later[0]):] or len(later[0]) == STEPS:
        raise e2e.Failed(f"{e2e.column(whole[0], 'loss')}, and resumed {e2e.column(later[0], 'loss')}")
    if e2e.digest(later[1] / "weights") != e2e.digest(whole[1] / "weights"):
        raise e2e.Failed("weights differ")


def main():
    tap = e2e.Tap()
    with e2e.Workshop() as shop:
        for number, (pins, micros, stages) in enumerate(ROWS):
            tap.case(e2e.pin_text(pins), row, shop, number, pins, micros, stages)
    tap.end()


if __name__ == "__main__":
    main()
