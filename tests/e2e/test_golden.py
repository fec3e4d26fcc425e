#!/usr/bin/env python3
"""test_golden.py - trainers against PyTorch: the five steps of tests/golden, under seven plans.

    test_golden.py LPLAN

Tolerances are those of each folder's expected.json. Under every plan: losses, gradient norms, the
gradients of step 0 before clipping, the weights after five steps, and every name and shape."""
import concurrent.futures
import json
import math
import os
import sys

import e2e
from e2e import GOLDEN, Failed

PLANS = {
    "1 rank": {},
    "dp2": {"dp": 2},
    "tp2": {"tp": 2},
    "tp2+sp": {"tp": 2, "sp": 1},
    "pp2": {"pp": 2},
    "dp2.pp2": {"dp": 2, "pp": 2},
    "tp2.pp2": {"tp": 2, "pp": 2},
}
MODELS = ["gpt2", "llama", "llama_tied", "qwen2"]
AS_USERS = ["tp2+sp", "dp2.pp2"]  # of gpt2; between them every kind of message, and what is split


def same_tensors(got, want, what):
    if sorted(got) != sorted(want):
        raise Failed(f"{what}: names differ: {sorted(set(got) ^ set(want))}")
    for name, (shape, _) in want.items():
        if got[name][0] != shape:
            raise Failed(f"{what}: {name} has the shape {got[name][0]}, wanted {shape}")


def determined(name, shape, undetermined):
    """The flat positions that count."""
    row = math.prod(shape[1:])
    begin, end = undetermined.get(name, (0, 0))
    return [i for i in range(math.prod(shape)) if not begin <= i // row < end]


def distance(got, want, base, undetermined):
    """Largest ‖x - y‖/‖y - base‖ over the tensors, and whose it is."""
    worst, whose = 0.0, "none"
    for name, (shape, values) in want.items():
        up = down = 0.0
        mine = got[name][1]
        start = base[name][1] if base else None
        for i in determined(name, shape, undetermined):
            up += (mine[i] - values[i]) ** 2
            down += (values[i] - (start[i] if start else 0.0)) ** 2
        figure = math.sqrt(up / down) if down > 0 else math.inf if up > 0 else 0.0
        if not figure <= worst:
            worst, whose = figure, name
    return worst, whose


def largest_noise(got, undetermined):
    """Of the gradients that are zero by mathematics."""
    noise = 0.0
    for name, (begin, end) in undetermined.items():
        shape, values = got[name]
        row = math.prod(shape[1:])
        noise = max([noise] + [abs(v) for v in values[begin * row:end * row]])
    return noise


class Golden:
    """One folder: what went in, and what must come out."""

    def __init__(self, model):
        self.name = model
        self.folder = GOLDEN / model
        self.expected = json.loads((self.folder / "expected.json").read_text())
        self.undetermined = self.expected["undetermined"]
        self.before = e2e.tensors_of(self.folder / "model.safetensors")
        self.grads = e2e.tensors_of(self.folder / "grads_step0.safetensors")
        self.after = e2e.tensors_of(self.folder / "model_step5.safetensors")

    def options(self):
        job = self.expected["job"]
        return {"--data": self.folder / "tokens.bin", "--init": self.folder / "model.safetensors",
                "--steps": job["steps"], "--lr": job["lr"], "--schedule": "constant", "--warmup": 0,
                "--beta1": job["beta1"], "--beta2": job["beta2"], "--eps": job["eps"],
                "--weight-decay": job["weight_decay"], "--clip": job["clip"]}

    def train(self, place, options):
        """(figure -> (value, whose), gradients of step 0) of a job of the trainer in `place`."""
        words = [word for pair in options.items() for word in pair]
        log = e2e.train(place / "trainer", place / "log", "--deterministic", *words, "--save",
                        place / "after.safetensors", "--dump-grads", place / "grads.safetensors")
        grads = e2e.tensors_of(place / "grads.safetensors")
        after = e2e.tensors_of(place / "after.safetensors")
        same_tensors(grads, self.grads, "gradients")
        same_tensors(after, self.after, "weights")
        expected = self.expected
        return {
            "loss": (e2e.relative(e2e.column(log, "loss"), expected["losses"]), "the steps"),
            "grad_norm": (e2e.relative(e2e.column(log, "grad_norm"), expected["grad_norms"]),
                          "the steps"),
            "grad_step0": distance(grads, self.grads, None, self.undetermined),
            "update_step4": distance(after, self.after, self.before, self.undetermined),
        }, grads

    def beyond(self, figures):
        """The figures past their tolerance, in words."""
        limits = self.expected["tolerance"]
        return {key: f"{key}: {value:.3e} in {whose}, of at most {limits[key]:.0e}"
                for key, (value, whose) in figures.items() if not value <= limits[key]}


def build(shop, golden, name, pins):
    """The folder of a plan and its trainer: of one rank, and some of several, compiled as users compile."""
    job = golden.expected["job"]
    place = shop.path / f"{golden.name}-{name.replace(' ', '')}"
    place.mkdir()
    plan = e2e.plan(golden.folder / "config.json", pins, place / "plan.json", job["global_batch"],
                    job["seq"])
    # The C check is the business of test_plans; here the trainer's numbers are.
    as_users = not pins or (golden.name == "gpt2" and name in AS_USERS)
    e2e.build(plan, place / "trainer", shop.cache, "--no-check",
              how=e2e.AS_USERS if as_users else e2e.IN_VECTORS)
    return place


def check(golden, name, built):
    place = built.result()
    figures, grads = golden.train(place, golden.options())
    words = "  ".join(f"{key} {value:.1e}" for key, (value, _) in figures.items())
    e2e.tell(f"# {golden.name:10} {name:8} {words}")
    wrong = list(golden.beyond(figures).values())
    noise = largest_noise(grads, golden.undetermined)
    if not noise < 1e-6:
        wrong.append(f"a gradient that is zero by mathematics is {noise:.1e}")
    if wrong:
        raise Failed("\n".join(wrong))


# A job that differs in one thing, and the figures that must say so.
TWISTS = {
    "--weight-decay 0": ({"--weight-decay": 0}, {"update_step4"}),
    "--clip 0": ({"--clip": 0}, {"update_step4"}),
    "--beta2 0.96": ({"--beta2": 0.96}, {"update_step4"}),
    "--lr 1.01e-3": ({"--lr": 1.01e-3}, {"loss", "update_step4"}),
    "other weights": ({"--init": "random"}, {"loss", "grad_norm", "grad_step0"}),
    "other tokens": ({"--data": "random"}, {"loss", "grad_norm", "grad_step0"}),
}


def check_twist(shop, golden, change, wanted):
    """The comparison itself: a job that is not the golden one must be seen to differ."""
    place = shop.path / f"{golden.name}-1rank"
    seen = set(golden.beyond(golden.train(place, {**golden.options(), **change})[0]))
    if not wanted <= seen:
        raise Failed(f"not noticed by {sorted(wanted - seen)}")


def main():
    tap = e2e.Tap()
    only = sys.argv[2:]
    rows = [(golden, name, pins) for golden in map(Golden, MODELS) for name, pins in PLANS.items()
            if not only or any(word in f"{golden.name} {name}" for word in only)]
    with e2e.Workshop() as shop, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as builders:
        built = [builders.submit(build, shop, *row) for row in rows]
        tap.cases((f"{golden.name} {name}", check, golden, name, folder)
                  for (golden, name, _), folder in zip(rows, built))
        golden = Golden("llama")
        for name, (change, wanted) in TWISTS.items():
            if not only or "twist" in only:
                tap.case(f"{name} is noticed", check_twist, shop, golden, change, wanted)
    tap.end()


if __name__ == "__main__":
    main()
