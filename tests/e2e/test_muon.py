#!/usr/bin/env python3
"""test_muon.py - trainers whose hidden matrices are moved by Muon.

    test_muon.py LPLAN

The weights of five steps on one rank are those of Muon written down here, from the gradients that the
trainer dumps before each of its steps. T47: whatever plan has the matrices cut, dealt to owners or spread
over stages trains to the same losses and weights, with the same bits by MPI and --virtual, and goes on from
what another plan left."""
import json
import math

import e2e
from e2e import Failed

SEQ, BATCH, STEPS, LR, DECAY = 16, 8, 5, 0.02, 0.1
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 24, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40, "vocab_size": 256,
    "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "float32",
}
TEXT = "a ring of blocks"  # of SEQ bytes
PLANS = {
    "tp2.dp2 zero1 sp": {"tp": 2, "dp": 2, "zero": 1, "sp": 1},
    "pp2.dp2 zero3": {"pp": 2, "dp": 2, "zero": 3},
}


def product(a, b):
    columns = list(zip(*b))
    return [[sum(x * y for x, y in zip(row, column)) for column in columns] for row in a]


def transposed(a):
    return [list(column) for column in zip(*a)]


def orthogonalised(u, rounds=5, eps=1e-7):
    """Jordan's quintic Newton-Schulz iteration."""
    norm = math.sqrt(sum(x * x for row in u for x in row) + eps * eps)
    x = [[value / norm for value in row] for row in u]
    tall = len(x) > len(x[0])
    x = transposed(x) if tall else x
    for _ in range(rounds):
        a = product(x, transposed(x))
        square = product(a, a)
        b = [[-4.7750 * p + 2.0315 * q for p, q in zip(*rows)] for rows in zip(a, square)]
        turned = product(b, x)
        x = [[3.4445 * p + q for p, q in zip(*rows)] for rows in zip(x, turned)]
    return transposed(x) if tall else x


class Hand:
    """One hidden matrix: momentum 0.95, Nesterov's, steps as long as AdamW's."""

    def __init__(self, shape, values):
        self.rows, self.columns = shape
        self.w, self.m = list(values), [0.0] * len(values)

    def step(self, gradient, coefficient):
        ahead = []
        for i, g in enumerate(gradient):
            g *= coefficient
            self.m[i] += 0.05 * (g - self.m[i])
            ahead.append(g + 0.95 * (self.m[i] - g))
        o = orthogonalised([ahead[r * self.columns:(r + 1) * self.columns] for r in range(self.rows)])
        length = LR * 0.2 * math.sqrt(max(self.rows, self.columns))
        for i, x in enumerate(value for row in o for value in row):
            self.w[i] += -LR * DECAY * self.w[i] - length * x


class Bench:
    def __init__(self, shop):
        self.shop = shop
        self.data = e2e.text_file(shop.path / "data.txt")
        self.same = shop.path / "same.txt"
        (shop.path / "llama.json").write_text(json.dumps(MODEL))
        self.alone = self.build("1 rank", {})
        self.want = self.train(self.alone, "whole", "--save", self.alone / "whole.weights")

    def build(self, title, pins):
        place = self.shop.path / title.replace(" ", "-")
        place.mkdir()
        plan = e2e.plan(self.shop.path / "llama.json", pins, place / "plan.json", BATCH, SEQ,
                        optimizer="muon")
        e2e.build(plan, place / "trainer", self.shop.cache, *(["--no-check"] if pins else []))
        return place

    def train(self, place, how, *more, steps=STEPS, lr=LR, decay=DECAY, data=None):
        return e2e.train(place / "trainer", place / how, "--data", data or self.data, "--steps", steps,
                         "--lr", lr, "--weight-decay", decay, "--seed", 7, "--deterministic", *more)

    def check_by_hand(self):
        """Each step is a run of its own, from a checkpoint. Every sample is one and the same, so that the
        first step of a run from the weights so far has the step's gradients, which it dumps."""
        place, kept = self.alone, []
        self.same.write_text(TEXT * 500)
        # A step of length nothing leaves what it begins with.
        self.train(place, "first", "--save", place / "w0", steps=1, lr=0, decay=0, data=self.same)
        begun = e2e.tensors_of(place / "w0")
        hands = {name: Hand(*tensor) for name, tensor in begun.items()
                 if ".layers." in name and len(tensor[0]) == 2}
        if len(hands) != 7 * MODEL["num_hidden_layers"]:
            raise Failed(f"{len(hands)} hidden matrices")
        worst = 0.0
        for step in range(STEPS):
            log = self.train(place, f"gradients{step}", "--init", place / f"w{step}", "--dump-grads",
                             place / f"g{step}", steps=1, lr=0, decay=0, data=self.same)
            self.train(place, f"step{step}", "--save", place / f"w{step + 1}", "--checkpoint", place / "kept",
                       *kept, steps=step + 1, data=self.same)
            kept = ["--resume", place / "kept"]
            gradients = e2e.tensors_of(place / f"g{step}")
            after = e2e.tensors_of(place / f"w{step + 1}")
            coefficient = min(1.0, 1.0 / (log[-1]["grad_norm"] + 1e-6))
            for name, hand in hands.items():
                before = list(hand.w)
                hand.step(gradients[name][1], coefficient)
                moved = math.sqrt(sum((x - y) ** 2 for x, y in zip(hand.w, before)))
                off = math.sqrt(sum((x - y) ** 2 for x, y in zip(hand.w, after[name][1])))
                worst = max(worst, off / moved)
        print(f"# by hand: {worst:.1e} of a step")
        if not worst < 2e-4:
            raise Failed(f"weights differ from Muon by hand by {worst:.2e} of a step")

    def check_plan(self, title, pins):
        place = self.build(title, pins)
        log = self.train(place, "mpi", "--save", place / "mpi.weights", "--checkpoint", place / "kept")
        self.train(place, "virtual", "--virtual", "--save", place / "virtual.weights")
        error = e2e.relative(e2e.column(log, "loss"), e2e.column(self.want, "loss"))
        print(f"# {title}: losses {error:.1e}")
        if not error < 2e-5:
            raise Failed(f"losses differ from one rank by {error:.2e}")
        if e2e.digest(place / "mpi.weights") != e2e.digest(place / "virtual.weights"):
            raise Failed("MPI and --virtual differ in their weights")
        want, got = e2e.tensors_of(self.alone / "whole.weights"), e2e.tensors_of(place / "mpi.weights")
        for name, (_, values) in want.items():
            off = sum((x - y) ** 2 for x, y in zip(got[name][1], values))
            if not off < 1e-6 * sum(x * x for x in values):
                raise Failed(f"{name} differs from one rank")
        rest = self.train(self.alone, "rest", "--resume", place / "kept", steps=STEPS + 3)
        self.train(self.alone, "on", "--checkpoint", self.alone / "on.kept")
        same = self.train(self.alone, "same", "--resume", self.alone / "on.kept", steps=STEPS + 3)
        error = e2e.relative(e2e.column(rest, "loss"), e2e.column(same, "loss"))
        if not error < 2e-5:
            raise Failed(f"going on from another plan's checkpoint, losses differ by {error:.2e}")


def main():
    tap = e2e.Tap()
    with e2e.Workshop() as shop:
        bench = Bench(shop)
        tap.case("five steps by hand", bench.check_by_hand)
        for title, pins in PLANS.items():
            tap.case(title, bench.check_plan, title, pins)
    tap.end()


if __name__ == "__main__":
    main()
