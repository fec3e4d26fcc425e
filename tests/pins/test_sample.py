#!/usr/bin/env python3
"""test_sample.py - random plans built and run under MPI: each trains as one rank does.

    test_sample.py LPLAN RANDOM_PINS SEED COUNT

The plans are those of `random_pins --list SEED COUNT 8`. Losses and gradient norms of six steps are those
of the model's one-rank trainer under the same optimizer (where steps flow into each other, weights are
stale, and only the bits below are compared); a --virtual run under another seed of late messages (--shake) has the
same bits. Every failure says the plan. And a trainer of another seed's weights must differ, or the
comparison says nothing."""
import concurrent.futures
import os
import pathlib
import re
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import e2e  # noqa: the folder is named above
from e2e import Failed

STEPS = 6
RUN = ["--steps", STEPS, "--lr", 3e-3, "--warmup", 2, "--schedule", "constant"]
FLOWS = "schedule=(2bw|pipedream)"
MODELS = e2e.ROOT / "tests" / "pins" / "models"


def ranks_of(pins):
    """Of a plan: what ranges of layers have of their own comes behind a colon."""
    ranks = 1
    for _, value in re.findall(r"(?:^|,)(tp|cp|dp|pp)=(\d+)", pins):
        ranks *= int(value)
    return ranks


class Sample:
    def __init__(self, shop):
        self.shop = shop
        self.data = e2e.text_file(shop.path / "text", 20000)
        self.alone = {}
        self.lock = threading.Lock()  # of alone

    def build(self, name, model, batch, seq, optimizer, pins):
        place = self.shop.path / name
        ranks = ranks_of(pins)
        e2e.lplan("plan", MODELS / f"{model}.json", e2e.HOST, "--gpus", ranks, "--global-batch", batch,
                  "--seq", seq, "--recipe", "fp32", "--optimizer", optimizer, "--pin", pins, "-o", f"{place}.plan.json", "--quiet")
        e2e.build(f"{place}.plan.json", place, self.shop.cache, "--no-check")
        return place

    def run(self, place, how, *more, seed=11):
        files = pathlib.Path(f"{place}-files")  # of plans that keep memory there
        if "nvme" in pathlib.Path(f"{place}.plan.json").read_text(encoding="utf-8"):
            files.mkdir(exist_ok=True)
            more = (*more, "--offload-dir", files)
        log = e2e.train(place, f"{place}-{how}", "--data", self.data, *RUN, "--seed", seed,
                        "--deterministic", *more)
        return e2e.column(log, "loss"), e2e.column(log, "grad_norm")

    def one_rank(self, place):
        with self.lock:
            if place not in self.alone:
                self.alone[place] = self.run(place, "mpi")
                other = self.run(place, "other", seed=12)
                if e2e.relative(other[0], self.alone[place][0]) < 1e-4:
                    raise Failed(f"{place.name}: other weights give the same losses")
            return self.alone[place]

    def check(self, line, place, alone):
        try:
            losses, norms = self.run(place.result(), "mpi")
            want = (losses, norms) if re.search(FLOWS, line) else self.one_rank(alone.result())
            for what, got, right in (("losses", losses, want[0]), ("norms", norms, want[1])):
                error = e2e.relative(got, right)
                if not error <= 2e-5:
                    raise Failed(f"{what} differ by {error:.1e}: {got[:3]} for {right[:3]}")
            again = self.run(place.result(), "virtual", "--virtual", "--shake", 3)
            if again != (losses, norms):
                raise Failed("threads and late messages give other bits")
        except AssertionError as error:
            raise Failed(f"random_pins --list: {line}\n{error}") from error


def main():
    exe, seed, count = sys.argv[2:5]
    env = e2e.environment(LPLAN_FLOWS="100")  # as many as can: few plans of a sample are pipelines
    lines = e2e.command(exe, "--list", seed, count, 8, env=env).stdout.splitlines()
    tap = e2e.Tap()
    with e2e.Workshop() as shop, \
            concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as builders:
        sample = Sample(shop)
        rows = [line.split() for line in lines]
        alone = {(model, optimizer): builders.submit(sample.build, f"one-{model}-{optimizer}", model, batch,
                                                     seq, optimizer, "tp=1,dp=1,pp=1,mbs=1")
                 for _, model, batch, seq, optimizer, _ in {(row[1], row[4]): row for row in rows}.values()}
        built = [builders.submit(sample.build, f"plan-{number}", *row[1:]) for number, row in
                 enumerate(rows)]
        tap.cases((line, sample.check, line, place, alone[row[1], row[4]])
                  for line, row, place in zip(lines, rows, built))
    tap.end()


if __name__ == "__main__":
    main()
