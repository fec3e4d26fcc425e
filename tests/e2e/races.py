#!/usr/bin/env python3
"""races.py - trainers under ThreadSanitizer: ranks as threads, lanes to other memories, delays.

    races.py LPLAN [WORD...]      only rows whose title has one of the words

Every trainer is compiled with -fsanitize=thread, products in plain C so that all reads and writes are
seen. It trains --virtual with --shake, evaluates, saves and resumes; ThreadSanitizer must say nothing.
Whoever comes second to a message copies it, so a missing wait is a race of two threads: a trainer that
lost its waits must be noticed. Beside the suites (`ninja races`): a row takes seconds, its compiler's."""
import json
import os
import re
import shutil
import subprocess
import sys

import e2e
import test_memories
import test_plans
from e2e import Failed

ROWS = [
    ("llama", "dp2 tp2 pp2 1f1b zero3"),
    ("llama", "tp2 sp tp_by=ring mbs2"),
    ("llama", "pp2 dp2 pipedream mbs4"),
    ("llama", "cp4 cp_heads=2 order=zigzag"),
    ("llama", "dp4 zero3 shard=node recompute"),
    ("llama", "dp4 tp1 zero0 mbs1 1-2:tp=4:sp=1:zero=3 3:recompute=selective"),
    ("tied", "dp2 pp2 zbv zero3"),
    ("dropout", "dp2 tp2 pp2 1f1b recompute braid=1"),
    ("moe", "dp2 pp2 ep=2 zero3 dualpipev braid=1"),
    ("moe", "dp2 tp2 sp etp=1 ep=4 rounds=2"),
    ("moe", "dp2 ep=2 zero3 exchange=padded"),
    # memories behind the arena, with buckets so small that their slots are reused
    ("llama", "dp2 zero3 weight_home=dram activation_home=dram optimizer_home=dram gradient_home=dram"),
    ("llama", "dp2 pp2 zero3 optimizer_home=nvme activation_home=nvme gradient_home=nvme"),
    ("llama", "dp2 pp2 2bw zero3 weight_home=dram activation_home=nvme optimizer_home=nvme"),
    ("llama", "dp2 pp2 zero3 mbs1 braid=1 weight_home=dram activation_home=dram optimizer_home=dram"),
    ("llama", "pp2 recompute weight_home=dram 0-1:weight_home=hbm"),
]

class Races:
    def __init__(self, shop):
        self.shop = shop
        self.data = e2e.text_file(shop.path / "text")
        self.files = shop.path / "files"
        self.files.mkdir()
        for name, config in test_plans.MODELS.items():
            (shop.path / f"{name}.json").write_text(json.dumps(config))
        compiler = shop.path / "cc"
        compiler.write_text('#!/bin/sh\nexec cc "$@" -g -fsanitize=thread -DLP_NO_BLAS\n')
        compiler.chmod(0o755)
        os.environ["LPLAN_E2E_CC"] = str(compiler)
        os.environ["TSAN_OPTIONS"] = "exitcode=66 halt_on_error=0"

    def build(self, model, text):
        place = self.shop.path / re.sub(r"[^a-z0-9]+", "-", f"{model} {text}")
        place.mkdir()
        # the schedules that have no word in a row of test_plans
        text = re.sub(r"\b(pipedream|2bw)\b", r"schedule=\1", text)
        path = e2e.plan(self.shop.path / f"{model}.json", test_plans.row(model, text)["pins"],
                        place / "plan.json", 8, test_plans.SEQ)
        plan = json.loads(path.read_text())
        plan["bucket_bytes"] = test_memories.BUCKET_BYTES
        path.write_text(json.dumps(plan))
        e2e.build(path, place / "trainer", self.shop.cache, "--no-check")
        return place

    def train(self, place, *more, seed=7):
        return subprocess.run(
            [place / "trainer" / "trainer", "--virtual", "--quiet", "--data", self.data, "--shake", str(seed),
             "--offload-dir", self.files, *more],
            capture_output=True, text=True, timeout=600, check=False, env=e2e.environment())

    def quiet(self, model, text):
        place = self.build(model, text)
        saved = place / "saved"
        rounds = [
            ["--steps", "3", "--eval-data", self.data, "--eval-every", "2", "--eval-steps", "1", "--log", place / "log",
             "--checkpoint", saved, "--checkpoint-every", "2", "--save", place / "weights.safetensors"],
            ["--steps", "5", "--resume", saved, "--trace", place / "trace.json"],
        ]
        for i, more in enumerate(rounds):
            done = self.train(place, *more, seed=7 + i)
            if done.returncode or done.stderr.strip():
                raise Failed(f"ended with {done.returncode}\n{done.stderr[:6000]}")
        shutil.rmtree(place)

    def noticed(self):
        """A trainer whose reductions are waited for by nobody."""
        place = self.build("llama", "dp2 zero0")
        source = place / "trainer" / "trainer.c"
        text, count = re.subn(r"^( *)lp_wait\(&[^;]*;", r"\1;", source.read_text(), flags=re.MULTILINE)
        source.write_text(text)
        e2e.command("sh", place / "trainer" / "build.sh", env=e2e.compiles(self.shop.cache))
        done = self.train(place, "--steps", "2")
        if count == 0 or "data race" not in done.stderr:
            raise Failed(f"{count} waits less, ended with {done.returncode}: {done.stderr[:2000]}")


def main():
    words = sys.argv[2:]
    tap = e2e.Tap()
    with e2e.Workshop() as shop:
        races = Races(shop)
        for model, text in ROWS:
            if not words or any(word in f"{model} {text}" for word in words):
                tap.case(f"{model} {text}", races.quiet, model, text)
        if not words:
            tap.case("waits that are missing are noticed", races.noticed)
    tap.end()


if __name__ == "__main__":
    main()
