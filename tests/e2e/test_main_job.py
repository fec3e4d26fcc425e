#!/usr/bin/env python3
"""test_main_job.py - the main job in small: import, plan, report, prove, build and train, as the README has it.

    test_main_job.py LPLAN

A model of ten million parameters on four ranks of this machine, with nothing pinned; and the report and the
static proof of Llama-3.1-70B on 64 H100."""
import filecmp
import json
import re
import sys

import e2e
from e2e import Failed, HOST, ROOT

BATCH, SEQ, STEPS, RANKS = 8, 128, 10, 4
LLAMA_10M = ROOT / "examples" / "models" / "llama-10m.json"
# 256 x 320 in and out; 8 layers of q, k, v, o (8 heads of 40, 4 of k and v), gate, up, down, two gains; one more.
PARAMS = 256 * 320 * 2 + 8 * (320 * 320 * 3 + 320 * 960 * 3 + 2 * 320) + 320
QUESTIONS = [
    "1  What must be resident?", "2  What is sharded, and what stays replicated?",
    "3  Which collective moves the hot bytes?", "4  What is exposed, after overlap?",
    "5  Which physical link carries it, and how busy is that link?",
    "6  What new failure mode appears?",
]
OUTSIDE = 256 << 20  # the host cluster's margin: MPI, BLAS, the program itself


def check_report(text):
    at = [text.find(f"\n{question}") for question in QUESTIONS]
    if -1 in at or at != sorted(at):
        raise Failed(f"the six questions are not all there in order: {at}\n{text}")
    wide = [line for line in text.splitlines() if len(line) > 100]
    if wide:
        raise Failed(f"wider than 100 columns: {wide}")


class MainJob:
    def __init__(self, shop):
        self.path = shop.path
        self.cache = shop.cache
        self.data = e2e.text_file(shop.path / "text", 60000)

    def plan(self, name, *more, ranks=RANKS):
        path = self.path / f"{name}.json"
        result = e2e.lplan("plan", self.path / "model.json", HOST, "--gpus", ranks,
                           "--global-batch", BATCH, "--seq", SEQ, "-o", path, *more)
        return path, result

    def imports(self):
        summary = json.loads(e2e.lplan("import", LLAMA_10M, "-o", self.path / "model.json",
                                       "--json").stdout)
        if summary["params_total"] != PARAMS or summary["params_active"] != PARAMS:
            raise Failed(f"{PARAMS} parameters, and import says {summary}")
        # Two FLOPs a multiply-add, forward and twice that backward: at least six a matrix element.
        matrices = PARAMS - 256 * 320 - 17 * 320
        if not 6 * matrices <= summary["flops_per_token"] <= 6 * matrices * 1.5:
            raise Failed(f"FLOPs of a token: {summary['flops_per_token']}")

    def plans(self):
        _, result = self.plan("plan")
        check_report(result.stdout)
        report = json.loads(self.plan("again", "--json")[1].stdout)
        place, predicted, search = report["placement"], report["predicted"], report["search"]
        if place["tp"] * place["dp"] * place["pp"] != RANKS:
            raise Failed(f"not {RANKS} ranks: {place}")
        for key in ("step_ns", "tokens_per_s", "mfu", "peak_bytes", "exposed_ns"):
            if key not in predicted:
                raise Failed(f"predicted has no {key}: {predicted}")
        for key in ("considered", "cut_memory", "cut_bound", "simulated", "gap", "wall_ns"):
            if key not in search:
                raise Failed(f"search has no {key}: {search}")
        seconds = predicted["step_ns"] * 1e-9
        if abs(predicted["tokens_per_s"] * seconds / (BATCH * SEQ) - 1) > 1e-3:
            raise Failed(f"tokens a second and the time of a step do not agree: {predicted}")
        if not filecmp.cmp(self.path / "plan.json", self.path / "again.json", shallow=False):
            raise Failed("the same input gives two plans")
        self.predicted = predicted
        print(f"#   {place}, {seconds * 1e3:.0f} ms predicted")

    def proves(self):
        proof = e2e.prove(self.path / "plan.json")
        if not (proof["proven"] and proof["equal"] and proof["max_rel_error"] <= 1e-10):
            raise Failed(f"{proof}")
        text = e2e.lplan("prove", self.path / "plan.json").stdout
        found = re.search(r"image touched (\d+) of its (\d+)", text)
        touched, laid = int(found[1]), int(found[2])
        # Equal but for what rounding to whole cache lines adds.
        if not laid * 0.99 <= touched <= laid:
            raise Failed(f"{touched} bytes touched of {laid} laid out")

    def builds(self):
        report = e2e.build(self.path / "plan.json", self.path / "job", self.cache, how=e2e.AS_USERS)
        arenas, cards = report["stage_bytes"], self.predicted["peak_bytes"]
        if len(arenas) != len(cards):
            raise Failed(f"arenas of {len(arenas)} stages, predicted {len(cards)}")
        for arena, card in zip(arenas, cards):
            if not card <= arena * 1.001 or not arena <= card * 1.15:
                raise Failed(f"the layout takes {arena} bytes, the search counted {card}")
        e2e.build(self.path / "again.json", self.path / "job2", self.cache, "--no-compile",
                  "--no-check")
        for name in report["files"]:
            if name not in ("trainer", "build.sh") and not filecmp.cmp(
                    self.path / "job" / name, self.path / "job2" / name, shallow=False):
                raise Failed(f"the same plan gives two {name}")
        self.arenas = arenas
        print(f"#   arenas {arenas}, {report['kernels']} kernels, {len(report['files'])} files")

    def trains(self):
        """With the threads that the launcher chooses."""
        env = e2e.environment()
        del env["OMP_NUM_THREADS"]
        options = ["--data", self.data, "--steps", STEPS, "--lr", 1e-3]
        log = e2e.train(self.path / "job", self.path / "job" / "run", *options, env=env, timeout=300)
        losses = e2e.column(log, "loss")
        if len(log) != STEPS or not losses[-1] < losses[0] - 1.0:
            raise Failed(f"the loss did not fall: {losses}")
        for key in ("step", "loss", "grad_norm", "lr", "ms", "tokens_per_s", "mfu", "peak_bytes"):
            if key not in log[-1]:
                raise Failed(f"log.jsonl has no {key}: {log[-1]}")
        peak, arena = log[-1]["peak_bytes"], max(self.arenas)
        # Resident is what was touched of the arena, and no more than it and the margin together.
        if not arena * 0.9 <= peak <= arena + OUTSIDE:
            raise Failed(f"resident at most {peak} bytes, with an arena of {arena}")
        one, _ = self.plan("one", "--quiet", ranks=1)
        e2e.build(one, self.path / "alone", self.cache, "--no-check", how=e2e.AS_USERS)
        alone = e2e.train(self.path / "alone", self.path / "alone" / "run", *options, env=env,
                          timeout=300)
        error = e2e.relative(losses, e2e.column(alone, "loss"))
        if not error <= 1e-5:
            raise Failed(f"one rank's losses differ by {error:.1e}: {e2e.column(alone, 'loss')}")
        ms = sorted(e2e.column(log[1:], "ms"))[(STEPS - 1) // 2]
        print(f"#   loss {losses[0]:.3f} to {losses[-1]:.3f}, {error:.1e} from one rank's, "
              f"{ms:.0f} ms a step, {peak >> 20} MiB resident of {arena >> 20} MiB arena")

    def readable(self):
        """The trainer is C a person reads: names of tensors, reasons of collectives, no long lines."""
        text = (self.path / "job" / "trainer.c").read_text()
        for word in ("model.layers.0.self_attn.q_proj.weight", "int main(", "lp_at("):
            if word not in text:
                raise Failed(f"trainer.c has no {word}")
        bare = [line for line in re.findall(r"^\s*lp_all_(?:gather|reduce)\(.*$", text, re.M)]
        if not bare:
            raise Failed("trainer.c of four ranks has no collective")


def big_report(shop):
    plan = shop.path / "70b.json"
    result = e2e.lplan("plan", ROOT / "examples" / "models" / "llama-3.1-70b.json",
                       ROOT / "examples" / "clusters" / "dgx-h100.json", "--gpus", 64,
                       "--global-batch", 64, "--seq", 8192, "-o", plan)
    text = result.stdout
    check_report(text)
    for rung in ("data parallel", "ZeRO", "tensor parallel"):
        if rung not in text[text.find("Why not a simpler plan?"):]:
            raise Failed(f"the ladder does not say why {rung} is not enough\n{text}")
    if "70,553,706,496 parameters" not in text:
        raise Failed("not the parameters of Llama-3.1-70B")
    print(f"#   {text.splitlines()[2].strip()}")


def big_proof(shop):
    proof = e2e.prove(shop.path / "70b.json", "--no-mutations")
    if not (proof["static"] and proof["equal"] and proof["max_rel_error"] <= 1e-10):
        raise Failed(f"{proof}")


def main():
    tap = e2e.Tap()
    with e2e.Workshop() as shop:
        job = MainJob(shop)
        tap.case("import: parameters and FLOPs", job.imports)
        tap.case("plan: a report and a plan file", job.plans)
        tap.case("prove", job.proves)
        tap.case("build: arenas as predicted, the same files each time", job.builds)
        tap.case("train: the loss falls as on one rank", job.trains)
        tap.case("trainer.c is for reading", job.readable)
        tap.case("report of Llama-3.1-70B on 64 H100", big_report, shop)
        tap.case("proof of Llama-3.1-70B on 64 H100", big_proof, shop)
    tap.end()


if __name__ == "__main__":
    main()
