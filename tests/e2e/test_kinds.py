#!/usr/bin/env python3
"""test_kinds.py - trainers of every kind of model against transformers, under several plans.

    test_kinds.py LPLAN [WORD ...]

tests/golden/kinds has the oracle in double precision: losses and gradient norms of five steps, and the
gradients of step 0, name by name. Trainers compute in fp32. Experts run data-, tensor- and
pipeline-parallel too."""
import concurrent.futures
import json
import os
import sys

import e2e
from e2e import GOLDEN, Failed
from test_golden import distance, same_tensors

KINDS = sorted(folder.name for folder in (GOLDEN / "kinds").iterdir())
# Every op that the dense kinds add is split here; their batches and stages are those of any model.
PLANS = {"1 rank": {}, "tp2": {"tp": 2}}
MORE = {
    "dp2": {"dp": 2},
    "pp2": {"pp": 2},
    "tp2+sp": {"tp": 2, "sp": 1},
    "dp2.tp2": {"dp": 2, "tp": 2},
    "tp2.pp2": {"tp": 2, "pp": 2},
}
# Sequences cut over ranks: masks of every kind, heads that do and do not divide.
CONTEXT = {
    "bloom": {"cp2 gather": {"cp": 2, "cp_by": "gather"},
              "cp2 ring zigzag": {"cp": 2, "cp_by": "ring", "order": "zigzag"}},
    "deepseek_v3": {"cp2 heads": {"cp": 2, "cp_by": "heads"}},
    "gemma2": {"cp2 heads": {"cp": 2, "cp_by": "heads"}},
    "gpt_oss": {"cp2 gather": {"cp": 2, "cp_by": "gather"}, "cp4 ring": {"cp": 4, "cp_by": "ring"},
                "cp4 ring zigzag": {"cp": 4, "cp_by": "ring", "order": "zigzag"}},
    "llama4": {"cp2 ring": {"cp": 2, "cp_by": "ring"},
               "cp2 gather zigzag": {"cp": 2, "cp_by": "gather", "order": "zigzag"}},
    "qwen3": {
        "dp2.cp2 gather": {"dp": 2, "cp": 2, "cp_by": "gather"},
        "cp4 heads x ring": {"cp": 4, "cp_heads": 2, "cp_by": "ring"},
        "tp2+sp.cp2 heads": {"tp": 2, "sp": 1, "cp": 2, "cp_by": "heads"},
        "pp2.cp2": {"pp": 2, "cp": 2},
        "tp2+sp.cp4 heads x ring zigzag": {"tp": 2, "sp": 1, "cp": 4, "cp_heads": 2, "cp_by": "ring",
                                           "order": "zigzag"},
    },
}
# Experts shared by data-parallel ranks: their rows travel.
SHARED = {
    "dp2.ep2": {"dp": 2, "ep": 2},
    "dp2.ep2.tp2+sp": {"dp": 2, "ep": 2, "tp": 2, "sp": 1},
    "dp4.ep2.recompute": {"dp": 4, "ep": 2, "recompute": "full"},
    "dp4.ep2.etp2": {"dp": 4, "ep": 2, "etp": 2},
}
MANY = ["mixtral", "deepseek_v3", "gpt_oss", "llama4"]

# Relative; measured 2e-7 at most for the first two, 2e-6 for the gradients.
TOLERANCE = {"loss": 1e-6, "grad_norm": 1e-6, "grad_step0": 1e-5}
STEPS, BATCH, SEQ = 5, 4, 16


def build(shop, kind, name, pins):
    """The folder of a plan and its trainer."""
    place = shop.path / f"{kind}-{name.replace(' ', '')}"
    place.mkdir()
    plan = e2e.plan(GOLDEN / "kinds" / kind / "config.json", pins, place / "plan.json", BATCH, SEQ)
    e2e.build(plan, place / "trainer", shop.cache, "--no-check", how=e2e.IN_VECTORS)
    return place


def check(kind, name, built):
    source = GOLDEN / "kinds" / kind
    expected = json.loads((source / "expected.json").read_text())
    want = e2e.tensors_of(source / "grads_step0.safetensors")
    place = built.result()
    options = {"--data": source / "tokens.bin", "--init": source / "model.safetensors",
               "--steps": STEPS, "--lr": 1e-3, "--schedule": "constant", "--warmup": 0,
               "--beta1": 0.9, "--beta2": 0.95, "--eps": 1e-8, "--weight-decay": 0.1, "--clip": 1,
               "--dump-grads": place / "grads.safetensors", "--save": place / "after.safetensors"}
    log = e2e.train(place / "trainer", place / "log", "--deterministic",
                    *[word for pair in options.items() for word in pair])
    got = e2e.tensors_of(place / "grads.safetensors")
    # A bias that only chooses experts has no gradient: not of the oracle, zero of the trainer.
    for frozen in [tensor for tensor in got if tensor not in want]:
        if "correction_bias" not in frozen or any(got.pop(frozen)[1]):
            raise Failed(f"a gradient of {frozen}")
    same_tensors(got, want, "gradients")
    # What is saved is what was read: every tensor under its name and shape.
    before = e2e.tensors_of(source / "model.safetensors")
    same_tensors(e2e.tensors_of(place / "after.safetensors"), before, "weights")
    figures = {
        "loss": (e2e.relative(e2e.column(log, "loss"), expected["losses_fp64"][:STEPS]), "the steps"),
        "grad_norm": (e2e.relative(e2e.column(log, "grad_norm"), expected["grad_norms_fp64"]),
                      "the steps"),
        "grad_step0": distance(got, want, None, {}),
    }
    words = "  ".join(f"{key} {value:.1e}" for key, (value, _) in figures.items())
    e2e.tell(f"# {kind:11} {name:8} {words}")
    wrong = [f"{key}: {value:.3e} in {whose}, of at most {TOLERANCE[key]:.0e}"
             for key, (value, whose) in figures.items() if not value <= TOLERANCE[key]]
    if wrong:
        raise Failed("\n".join(wrong))


def main():
    tap = e2e.Tap()
    only = sys.argv[2:]
    rows = [(kind, name, pins) for kind in KINDS
            for name, pins in {**PLANS, **CONTEXT.get(kind, {}), **(MORE if kind in MANY else {}),
                               **(SHARED if kind in MANY else {})}.items()
            if not only or any(word in f"{kind} {name}" for word in only)]
    with e2e.Workshop() as shop, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as builders:
        built = [builders.submit(build, shop, *row) for row in rows]
        tap.cases((f"{kind} {name}", check, kind, name, folder)
                  for (kind, name, _), folder in zip(rows, built))
    tap.end()


if __name__ == "__main__":
    main()
