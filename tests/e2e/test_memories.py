#!/usr/bin/env python3
"""test_memories.py - what lives in the host's memory and in files trains to the same bits.

    test_memories.py LPLAN [WORD...]      only rows whose title has one of the words

For every row the plan is made with everything on the device and with homes in other memories (with small
buckets, so that slots are reused): losses, norms and weights of all are equal bit for bit, under MPI and with virtual
ranks whose operations are held back. A checkpoint goes on in another memory. What cannot be kept is one
clear line."""
import json
import re
import resource
import shutil
import signal
import subprocess
import sys

import e2e
from e2e import Failed

SEQ, BATCH, STEPS, BUCKET_BYTES = 16, 8, 6, 60000
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "hidden_size": 48, "intermediate_size": 80, "max_position_embeddings": 32,
    "num_attention_heads": 4, "num_hidden_layers": 6, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "torch_dtype": "float32", "vocab_size": 256,
}
MEMORIES = ["hbm", "dram", "nvme"]
HOMES = {
    **{memory: {"optimizer_home": memory} for memory in MEMORIES},
    "saved-some": {"1-2:activation_home": "dram", "4:activation_home": "dram"},
    "saved-others-nvme": {"activation_home": "nvme", "1-2:activation_home": "hbm", "4:activation_home": "hbm"},
    "saved-kept": {"0-2:activation_home": "dram:recompute=none", "4-5:activation_home": "dram:recompute=selective"},
    "weights": {"weight_home": "dram"},
    "weights-nvme": {"weight_home": "nvme"},
    "apart": {"braid": 0},
    "all": {"weight_home": "dram", "activation_home": "dram", "optimizer_home": "dram"},
    "both-nvme": {"activation_home": "nvme", "optimizer_home": "nvme"},
    "mixed-nvme": {"weight_home": "nvme", "activation_home": "nvme", "optimizer_home": "nvme"},
    "sums": {"gradient_home": "dram"},
    "sums-nvme": {"gradient_home": "nvme"},
    "some-nvme": {"0-2:weight_home": "nvme:gradient_home=nvme:optimizer_home=dram"},
    "others-nvme": {"weight_home": "dram", "gradient_home": "dram", "optimizer_home": "nvme",
                    "0-2:weight_home": "hbm:gradient_home=hbm:optimizer_home=dram"},
    "four": {"weight_home": "dram", "activation_home": "dram", "optimizer_home": "dram", "gradient_home": "dram"},
    "four-nvme": {"weight_home": "nvme", "activation_home": "nvme", "optimizer_home": "nvme", "gradient_home": "nvme"},
    "all-nvme": {"weight_home": "nvme", "activation_home": "nvme", "optimizer_home": "nvme"},
}
# layers that are cut otherwise are groups of their own wherever what is kept of them lives
LAYERS = ("layers bf16", {"dp": 2, "zero": 3, "0-2:zero": 0}, "bf16", ["hbm", "some-nvme", "others-nvme"])
ROWS = [
    ("zero1", {"dp": 2, "zero": 1}, "fp32", MEMORIES + ["sums"]),
    ("pp2 zero3 bf16", {"dp": 2, "pp": 2, "zero": 3}, "bf16", ["hbm", "both-nvme"]),
    ("zero3 muon", {"dp": 2, "zero": 3}, "fp32 muon", ["hbm", "weights-nvme", "all"]),
    ("zero3", {"dp": 2, "zero": 3}, "fp32", ["hbm", "four", "four-nvme"]),
    LAYERS,
    ("whole bf16", {"pp": 2, "recompute": "full"}, "bf16", ["hbm", "weights", "four-nvme", "saved-kept"]),
    # what leaves in one plan stays in the other
    ("zbv", {"pp": 2, "schedule": "zbv"}, "fp32", ["hbm", "saved-some", "saved-others-nvme", "sums-nvme"]),
    ("2bw", {"dp": 2, "pp": 2, "zero": 3, "schedule": "2bw"}, "bf16", ["hbm", "mixed-nvme"]),
    # two rows in one, which both hold what comes and goes
    ("braid zero3", {"dp": 2, "pp": 2, "mbs": 1, "zero": 3, "braid": 1}, "fp32", ["apart", "all-nvme"]),
]


class Memories:
    def __init__(self, shop):
        self.shop = shop
        self.data = e2e.text_file(shop.path / "text")
        self.model = shop.path / "tiny.json"
        self.model.write_text(json.dumps(MODEL))
        self.files = shop.path / "files"
        self.files.mkdir()

    def build(self, title, pins, recipe, memory):
        place = self.shop.path / f"{title}-{memory}".replace(" ", "-")
        if place.exists():
            return place
        place.mkdir()
        recipe, optimizer = (recipe + " adamw").split()[:2]
        path = e2e.plan(self.model, {**pins, **HOMES[memory]}, place / "plan.json", BATCH, SEQ,
                        recipe, optimizer=optimizer)
        plan = json.loads(path.read_text())
        plan["bucket_bytes"] = BUCKET_BYTES
        path.write_text(json.dumps(plan))
        e2e.build(path, place / "trainer", self.shop.cache, "--no-check")
        return place

    def train(self, place, how, *more, steps=STEPS):
        folder = ["--offload-dir", self.files] if "nvme" in place.name else []
        log = e2e.train(place / "trainer", place / how, "--data", self.data, "--steps", steps, "--lr", 3e-3,
                        "--seed", 11, "--save", place / f"{how}.safetensors", *folder, *more)
        return e2e.column(log, "loss"), e2e.column(log, "grad_norm"), e2e.digest(
            place / f"{how}.safetensors")

    def row(self, title, pins, recipe, memories):
        want = None
        for memory in memories:
            place = self.build(title, pins, recipe, memory)
            got = self.train(place, "mpi")
            want = want or got
            if got != want:
                raise Failed(f"{memory}: other bits than on the device: {got} and {want}")
            if memory != "hbm" and self.train(place, "held", "--virtual", "--shake", 7) != want:
                raise Failed(f"{memory}: other bits when operations are held back")
        if list(self.files.iterdir()):
            raise Failed("files of state are left behind")

    def resume(self):
        """Half of the steps with state in a file, the others with state on the device, and back; and where layers
        have homes of their own."""
        for (title, pins, recipe, memories), goes_on in ((ROWS[0], [("nvme", "hbm"), ("hbm", "nvme")]),
                                                         (LAYERS, [("some-nvme", "others-nvme")])):
            places = {m: self.build(title, pins, recipe, m) for m in memories}
            want = self.train(places["hbm"], "whole", "--virtual")[2]
            for first, second in goes_on:
                saved = self.shop.path / "checkpoint"
                shutil.rmtree(saved, ignore_errors=True)
                self.train(places[first], "first", "--virtual", "--checkpoint", saved, steps=STEPS // 2)
                got = self.train(places[second], "second", "--virtual", "--resume", saved)[2]
                if got != want:
                    raise Failed(f"{title}: from {first} on in {second}: other weights than without a stop")

    def measured(self):
        """What a run finds of its memories is what the plan's layout has: a file whole, of the host's memory all
        pages that anything was kept in, and those are most."""
        place = self.build("zero3", {"dp": 2, "zero": 3}, "fp32", "four-nvme")
        said = e2e.command(place / "trainer" / "trainer", "--virtual", "--steps", 2, "--data", self.data,
                           "--offload-dir", self.files).stdout
        source = (place / "trainer" / "trainer.c").read_text()
        for name, words in (("dram", "the host's memory"), ("file", "a file")):
            asked = int(re.search(rf"{name}_bytes\[\] = {{(\d+)L", source)[1]) / 2**20
            line = re.search(rf"memory: (\S+) MiB in {words} behind the arena, (\S+) MiB", said)
            if not line:
                raise Failed(f"no line of {words}: {said}")
            told, found = float(line[1]), float(line[2])
            if abs(told - asked) > 0.01 or not 0.9 * asked < found < asked + 2.1:
                raise Failed(f"{words}: asked for {asked}, {line[0]}")

    def refusals(self):
        title, pins, recipe, _ = ROWS[0]
        trainer = self.build(title, pins, recipe, "nvme") / "trainer" / "trainer"
        base = [str(trainer), "--virtual", "--quiet", "--steps", "1", "--data", str(self.data)]

        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        for more, before, words in (
                ([], None, "give --offload-dir"),
                (["--offload-dir", "/nowhere"], None, "No such file or directory"),
                (["--offload-dir", str(self.files)], small_files, "bytes for the state of rank")):
            done = subprocess.run(base + more, capture_output=True, text=True, timeout=120, check=False,
                                  preexec_fn=before, env=e2e.environment())
            if done.returncode == 0 or words not in done.stderr:
                raise Failed(f"{more}: ended with {done.returncode}, said {done.stderr!r}")

    def unknown_memory(self):
        """A machine that does not say it has the memory refuses, with a remedy."""
        cluster = json.loads(e2e.HOST.read_text())
        del cluster["memories"]
        path = self.shop.path / "bare.json"
        path.write_text(json.dumps(cluster))
        said = e2e.lplan("plan", self.model, path, "--gpus", 2, "--pin",
                         e2e.pin_text({"dp": 2, "optimizer_home": "dram"}), "--quiet", code=None)
        if said.returncode == 0 or "optimizer_home=hbm" not in said.stderr:
            raise Failed(f"ended with {said.returncode}: {said.stderr!r}")


    def capped(self):
        """What does not fit the device fits when the search may offload, and trains to the same bits."""
        pins = e2e.pin_text({"mbs": 4})
        cluster = json.loads(e2e.HOST.read_text())
        path, plans = self.shop.path / "small.json", {}

        def plan(memory, *more, code=0):
            cluster["device"]["memory_bytes"] = memory
            path.write_text(json.dumps(cluster))
            return e2e.lplan("plan", self.model, path, "--gpus", 1, "--global-batch", BATCH, "--seq", 32,
                             "--pin", pins, "--json", *more, code=code)

        place = self.shop.path / "capped"
        place.mkdir()
        room = cluster["device"]["memory_bytes"]
        whole = json.loads(plan(room, "-o", place / "near.json").stdout)
        margin = cluster["device"]["margin_bytes"]
        memory = margin + max(whole["predicted"]["peak_bytes"]) * 4 // 5
        said = plan(memory, "-o", place / "none.json", code=3)
        if "--offload dram" not in said.stderr or "activation_home=dram" not in said.stderr:
            raise Failed(f"no word of offload: {said.stderr!r}")
        fits = json.loads(plan(memory, "--offload", "dram", "-o", place / "far.json").stdout)
        if max(fits["predicted"]["peak_bytes"]) + margin > memory:
            raise Failed(f"{fits['predicted']} does not fit {memory}")
        for name in ("near", "far"):
            e2e.build(place / f"{name}.json", place / name / "trainer", self.shop.cache, "--no-check")
            plans[name] = self.train(place / name, "run")
        if plans["near"] != plans["far"]:
            raise Failed(f"other bits: {plans}")


def main():
    words = sys.argv[2:]
    tap = e2e.Tap()
    with e2e.Workshop() as shop:
        memories = Memories(shop)
        for title, *rest in ROWS:
            if not words or any(word in title for word in words):
                tap.case(title, memories.row, title, *rest)
        if not words:
            tap.case("checkpoints go on in other memories", memories.resume)
            tap.case("what memories hold", memories.measured)
            tap.case("what cannot be kept", memories.refusals)
            tap.case("what does not fit the device", memories.capped)
            tap.case("a machine without the memory", memories.unknown_memory)
    tap.end()


if __name__ == "__main__":
    main()
