#!/usr/bin/env python3
"""test_numerics.py - trainers that store weights and activations in 16 bits.

    test_numerics.py LPLAN [all] [WORD...]      only rows whose title has one of the words; all: more rows

Every row is compared with the fp32 trainer of one rank from the same initial numbers: losses, gradient norm
and gradients of step 0 within what the roundings allow. MPI and --virtual give the same bits; arenas are
smaller where weights, activations and messages are; a run that went on from a checkpoint gives the bits of
one that never stopped; files of weights are of the type that was asked for."""
import concurrent.futures
import json
import math
import os
import re
import struct
import sys

import e2e
from e2e import Failed
from test_plans import MODELS, row

SEQ, STEPS = 16, 12
# Roundings of 8 and 11 bits. Some tens of them meet in a gradient, at random: sqrt(40) units are 6 of them.
UNIT = {"bf16": 2.0 ** -9, "fp16": 2.0 ** -12}
ROWS = [
    ("bf16", row("llama", "dp1")),
    ("bf16", row("llama", "dp2 tp2 sp")),  # T49: norms drift where gains see parts of the sequence
    ("bf16", row("gpt2", "pp2 dp2 recompute")),
    ("bf16", row("moe", "dp2 tp2")),
    ("bf16", row("llama", "dp2 zero3")),
    ("fp16", row("llama", "dp2 tp2 pp2 sp tp_by=ring")),
    ("bf16", row("llama", "cp4 cp_by=ring")),  # what blocks that pass by leave behind is summed in fp32
]
# `all` among the words runs these too.
MORE = [
    ("bf16", row("tied", "pp2 tp2")),
    ("bf16", row("mla", "dp2 pp2")),
    ("fp16", row("llama", "dp1")),
    ("fp16", row("moe", "dp2 zero0")),
    ("bf16", row("tied", "dp2 pp2 interleaved zero3")),
    ("fp16", row("moe", "dp2 pp2 zero2")),
    ("bf16", row("llama", "tp2 sp cp4 cp_heads=2 cp_by=ring order=zigzag tp_by=ring")),
    ("fp16", row("tied", "tp4 sp tp_by=ring recompute")),
]


def header_of(path):
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return header


def rounded(values):
    """The share of the numbers that are not 0 whose last 12 bits are: those of fp32 that bf16 and fp16 lack."""
    bits = [x for x, in struct.iter_unpack("<I", values.tobytes()) if x & 0x7FFFFFFF]
    return sum(not x & 0xFFF for x in bits) / max(1, len(bits))


class Bench:
    def __init__(self, shop, builders):
        self.shop, self.builders = shop, builders
        self.built, self.alone = {}, {}
        self.data = e2e.text_file(shop.path / "data.txt")
        for name, config in MODELS.items():
            (shop.path / f"{name}.json").write_text(json.dumps(config))

    def build(self, recipe, one):
        place = self.shop.path / re.sub(r"[^a-z0-9]+", "-", f"{recipe} {one['title']}")
        place.mkdir()
        plan = e2e.plan(self.shop.path / f"{one['model']}.json", one["pins"], place / "plan.json",
                        one["batch"], SEQ, recipe)
        check = [] if recipe != "fp32" and e2e.ranks_of(one["pins"]) == 1 else ["--no-check"]
        return place, e2e.build(plan, place / "trainer", self.shop.cache, *check)

    def order(self, recipe, one):
        key = recipe, one["title"]
        if key not in self.built:
            self.built[key] = self.builders.submit(self.build, recipe, one)
        return self.built[key]

    def start(self, rows):
        for recipe, one in rows:
            self.order("fp32", row(one["model"], "dp1"))
            self.order(recipe, one)

    def train(self, place, how, *more, steps=STEPS):
        data = [] if "--data" in more else ["--data", self.data]
        return e2e.train(place / "trainer", place / how, *data, "--steps", steps, "--lr", 3e-3, "--warmup", 5,
                         "--seed", 11, "--deterministic", *more)

    def one_rank(self, model):
        if model not in self.alone:
            place, report = self.order("fp32", row(model, "dp1")).result()
            log = self.train(place, "alone", "--dump-grads", place / "grads")
            if not log[0]["loss"] - log[-1]["loss"] > 0.3:
                raise Failed("one rank: the loss fell too little to say anything")
            self.alone[model] = log, e2e.tensors_of(place / "grads"), report
        return self.alone[model]

    def check(self, recipe, one):
        place, report = self.order(recipe, one).result()
        want, want_grads, wide = self.one_rank(one["model"])
        log = self.train(place, "mpi", "--dump-grads", place / "mpi.grads", "--save", place / "mpi.weights")
        unit = UNIT[recipe]
        error = e2e.relative(e2e.column(log, "loss"), e2e.column(want, "loss"))
        norm = e2e.relative(e2e.column(log, "grad_norm")[:1], e2e.column(want, "grad_norm")[:1])
        print(f"# {recipe} {one['title']}: losses {error:.1e}, norm {norm:.1e}, ", end="")
        if not error <= 4 * unit:
            raise Failed(f"losses differ from fp32 by {error:.2e}")
        if not norm <= unit:
            raise Failed(f"the gradient norm differs from fp32 by {norm:.2e}")
        # Rounded scores choose other experts for some tokens: that is no matter of a few units.
        routed = 4 if one["model"] in ("moe", "mla") else 1
        self.check_gradients(e2e.tensors_of(place / "mpi.grads"), want_grads, unit * routed)
        again = self.train(place, "virtual", "--virtual", "--dump-grads", place / "virtual.grads", "--save",
                           place / "virtual.weights")
        for key in ("loss", "grad_norm"):
            if e2e.column(log, key) != e2e.column(again, key):
                raise Failed(f"MPI and --virtual differ in {key}")
        for kind in ("grads", "weights"):
            if e2e.digest(place / f"mpi.{kind}") != e2e.digest(place / f"virtual.{kind}"):
                raise Failed(f"MPI and --virtual differ in their {kind}")
        types = {entry["dtype"] for entry in header_of(place / "mpi.weights").values()}
        if types != {{"bf16": "BF16", "fp16": "F16"}[recipe]}:
            raise Failed(f"saved weights are {types}")
        if e2e.ranks_of(one["pins"]) == 1:
            # Weights, gradients and moments are 16 bytes a parameter in fp32, and 18 with 16-bit weights.
            count = sum(len(values) for _, values in want_grads.values())
            mine, theirs = report["peak_bytes"] - 18 * count, wide["peak_bytes"] - 16 * count
            if not 0 < mine < 0.6 * theirs:
                raise Failed(f"activations take {mine} bytes, {theirs} in fp32")

    def check_gradients(self, got, want, unit):
        """The whole gradient, and every tensor that is not noise beside it."""
        if sorted(got) != sorted(want):
            raise Failed(f"gradients of other tensors: {sorted(set(got) ^ set(want))}")
        whole = sum(y * y for _, values in want.values() for y in values)
        off = worst = 0.0
        for name, (shape, values) in want.items():
            up = sum((x - y) ** 2 for x, y in zip(got[name][1], values))
            down = sum(y * y for y in values)
            off += up
            if down > 1e-4 * whole:
                worst = max(worst, math.sqrt(up / down))
            if got[name][0] != shape:
                raise Failed(f"{name} has another shape")
            # Gains: products of fp32. Biases are sums of what is stored, with few bits where they cancel.
            gain = len(shape) == 1 and "bias" not in name
            if gain and rounded(got[name][1]) > 0.1:  # by chance one of 4096 is
                raise Failed(f"the gradient of {name} was rounded to 16 bits as it was summed")
        print(f"gradient {math.sqrt(off / whole):.1e}, worst tensor {worst:.1e}")
        if not math.sqrt(off / whole) <= 12 * unit or not worst <= 40 * unit:
            raise Failed(f"gradients differ: {math.sqrt(off / whole):.2e} in all, {worst:.2e} of one tensor")

    def check_joined(self, one):
        """Blocks of keys that pass by leave fp32 terms, rounded when all are joined: what is left of the way
        is a third of a unit beside one rank with the same roundings. Terms kept in 16 bits would make it 1.3."""
        grads = []
        for it in (one, row(one["model"], "dp1")):
            place, _ = self.order("bf16", it).result()
            self.train(place, "joined", "--virtual", "--dump-grads", place / "joined.grads", steps=1)
            grads.append(e2e.tensors_of(place / "joined.grads"))
        pairs = [(x, y) for name in grads[1] for x, y in zip(grads[0][name][1], grads[1][name][1])]
        error = math.sqrt(sum((x - y) ** 2 for x, y in pairs) / sum(y * y for _, y in pairs))
        print(f"# {error:.1e}")
        if not error <= 0.75 * UNIT["bf16"]:
            raise Failed(f"gradients differ by {error:.2e}")

    def check_remade(self, recipe, one):
        """T33: the same plan, its placements too, but nothing kept: what is made again has the same bits."""
        place, _ = self.order(recipe, one).result()
        again = place / "remade"
        again.mkdir()
        plan = json.loads((place / "plan.json").read_text())
        kept = 0
        for each in plan["classes"]:
            kept += sum(home != "none" for home in each["saved"].values())
            each["saved"] = {name: "none" for name in each["saved"]}
        (again / "plan.json").write_text(json.dumps(plan))
        e2e.build(again / "plan.json", again / "trainer", self.shop.cache, "--no-check")
        for there in (place, again):
            self.train(there, "bits", "--virtual", "--dump-grads", there / "bits.grads", "--save",
                       there / "bits.weights", steps=3)
        if kept < 10:
            raise Failed(f"the plan keeps {kept} values")
        for kind in ("grads", "weights"):
            if e2e.digest(place / f"bits.{kind}") != e2e.digest(again / f"bits.{kind}"):
                raise Failed(f"{kind} depend on what is kept")

    def check_checkpoint(self, recipe, one):
        """Half way, then on: with the same plan the same bits, and from what an fp32 trainer left."""
        place, _ = self.order(recipe, one).result()
        whole = self.train(place, "whole", "--virtual", "--save", place / "whole.weights", "--save-as", "fp32")
        self.train(place, "half", "--virtual", "--checkpoint", place / "kept", steps=STEPS // 2)
        rest = self.train(place, "rest", "--virtual", "--resume", place / "kept", "--save",
                          place / "rest.weights", "--save-as", "fp32")
        if e2e.column(rest, "loss") != e2e.column(whole, "loss")[STEPS // 2:]:
            raise Failed("losses after a checkpoint differ from those without")
        if e2e.digest(place / "whole.weights") != e2e.digest(place / "rest.weights"):
            raise Failed("weights after a checkpoint differ from those without")
        alone, _ = self.order("fp32", row(one["model"], "dp1")).result()
        self.train(alone, "half", "--checkpoint", alone / "kept", steps=STEPS // 2)
        rest = self.train(place, "wide", "--virtual", "--resume", alone / "kept")
        want, _, _ = self.one_rank(one["model"])
        error = e2e.relative(e2e.column(rest, "loss"), e2e.column(want, "loss")[STEPS // 2:])
        if not error <= 4 * UNIT["bf16"]:
            raise Failed(f"going on from an fp32 checkpoint, losses differ by {error:.2e}")

    def check_overflow(self, one):
        """An infinite gradient on one rank, of each axis: all ranks skip, halve the scale at the second, count
        no step for the learning rate, and consume the samples. Every rank's state is in the checkpoint's one."""
        place, _ = self.order("fp16", one).result()
        whole = self.train(place, "calm", "--virtual")
        if any(r["skipped"] or r["loss_scale"] != 65536 for r in whole):
            raise Failed(f"a calm run skips: {whole}")
        pins = one["pins"]
        width = pins.get("tp", 1) * pins.get("dp", 1)
        ranks = [0, 1, pins.get("tp", 1), width]  # the first, and its neighbour along tp, dp and pp
        seen = []
        for rank in ranks:
            log = self.train(place, f"inf{rank}", "--virtual", "--inject-overflow", f"2:{rank}", "--save",
                             place / f"inf{rank}.weights", "--checkpoint", place / f"inf{rank}.kept")
            if [r["skipped"] for r in log] != [s == 2 for s in range(STEPS)]:
                raise Failed(f"an overflow of rank {rank} skips {[r['skipped'] for r in log]}")
            if log[2]["grad_norm"] is not None or log[3]["lr"] != whole[2]["lr"] or log[2]["lr"] != log[3]["lr"]:
                raise Failed(f"rank {rank}: the learning rate went on: {e2e.column(log, 'lr')}")
            if log[2]["loss"] != whole[2]["loss"] or log[3]["loss"] == whole[3]["loss"]:
                raise Failed(f"rank {rank}: the samples of the skipped step came again, or it was not skipped")
            state = json.loads(next((place / f"inf{rank}.kept").glob("step-*/state.json")).read_text())
            if state["skipped"] != 1 or state["patience"] != 1 or state["scale"] != 65536:
                raise Failed(f"rank {rank}: the checkpoint says {state}")
            seen.append((e2e.column(log, "loss"), e2e.digest(place / f"inf{rank}.weights")))
        if any(one != seen[0] for one in seen):
            raise Failed("which rank had the overflow matters")
        self.check_scale(place)

    def check_infinite_loss(self, one):
        """A byte that only the first step has makes activations, hence the loss, infinite: it is skipped."""
        place, _ = self.order("fp16", one).result()
        path, text = place / "start.weights", self.data.read_text()
        self.train(place, "start", "--virtual", "--save", path, "--save-as", "fp32", steps=1)
        header, body = header_of(path), bytearray(path.read_bytes())
        base = 8 + struct.unpack("<Q", body[:8])[0]
        for name, entry in header.items():
            begin, end = (base + at for at in entry["data_offsets"])
            if name == "model.embed_tokens.weight":
                width = entry["shape"][1]
                begin += 4 * width * ord("~")
                body[begin:begin + 4 * width] = struct.pack(f"<{width}f", *[65504.0] * width)
            elif name == "model.layers.0.self_attn.o_proj.weight":
                count = (end - begin) // 4
                values = struct.unpack(f"<{count}f", body[begin:end])
                body[begin:end] = struct.pack(f"<{count}f", *(1000 * x for x in values))
        path.write_bytes(body)
        data = place / "once.txt"
        data.write_text(text[:4] + "~" + text[5:])
        log = self.train(place, "infinite", "--virtual", "--init", path, "--data", data, steps=4)
        if log[0]["loss"] is not None or [r["skipped"] for r in log] != [True, False, False, False]:
            raise Failed(f"a step whose loss is infinite: {[(r['loss'], r['skipped']) for r in log]}")

    def check_scale(self, place):
        """A scale that overflows comes down by halves; a good one doubles; a resumed run goes on with it."""
        log = self.train(place, "high", "--virtual", "--loss-scale", 2 ** 24, "--lr", 1e-4)
        low = [r["loss_scale"] for r in log]
        if not (log[0]["skipped"] and low[1] == 2 ** 23 and log[-1]["skipped"] is False and low[-1] < 2 ** 23):
            raise Failed(f"a scale of 2^24: {[(r['skipped'], r['loss_scale']) for r in log]}")
        more = ["--virtual", "--loss-scale", 1024, "--loss-scale-window", 4]
        log = self.train(place, "window", *more, "--save", place / "window.weights")
        if [r["loss_scale"] for r in log] != [1024] * 3 + [2048] * 4 + [4096] * 4 + [8192]:
            raise Failed(f"growth: {[r['loss_scale'] for r in log]}")
        self.train(place, "first", *more, "--checkpoint", place / "window.kept", steps=6)
        rest = self.train(place, "rest6", *more, "--resume", place / "window.kept", "--save", place / "6.weights")
        if e2e.column(rest, "loss_scale") != e2e.column(log, "loss_scale")[6:]:
            raise Failed(f"after a checkpoint: {e2e.column(rest, 'loss_scale')}")
        if e2e.digest(place / "window.weights") != e2e.digest(place / "6.weights"):
            raise Failed("weights after a checkpoint differ from those without")


def main():
    words = sys.argv[2:]
    rows = ROWS + (MORE if "all" in words else [])
    words = [w for w in words if w != "all"]
    rows = [r for r in rows if not words or any(w in f"{r[0]} {r[1]['title']}" for w in words)]
    tap = e2e.Tap()
    with e2e.Workshop() as shop, \
            concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as builders:
        bench = Bench(shop, builders)
        bench.start(rows)
        for recipe, one in rows:
            tap.case(f"{recipe} {one['title']}", bench.check, recipe, one)
        for recipe in sorted({r[0] for r in rows}):
            mine = [one for r, one in rows if r == recipe and e2e.ranks_of(one["pins"]) > 1]
            for one in mine:
                if one["model"] == "moe":
                    tap.case(f"T33 {recipe} {one['title']}: kept or remade", bench.check_remade, recipe, one)
                if one["pins"].get("cp_by") == "ring" and "tp" not in one["pins"]:
                    tap.case(f"{recipe} {one['title']}: terms are joined in fp32", bench.check_joined, one)
            if mine:
                tap.case(f"{recipe} checkpoints", bench.check_checkpoint, recipe, mine[0])
            if mine and recipe == "fp16":
                tap.case("T30 fp16 overflows on one rank only", bench.check_overflow, mine[0])
                tap.case("fp16 makes the loss infinite", bench.check_infinite_loss, mine[0])
    tap.end()


if __name__ == "__main__":
    main()
