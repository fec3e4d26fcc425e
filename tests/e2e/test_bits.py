#!/usr/bin/env python3
"""test_bits.py - plans that add the same numbers in the same order train to the same bits.

    test_bits.py LPLAN

Under --deterministic: one stage, 1F1B and interleaved 1F1B; ZeRO 0 to 3 where each micro-batch is a step;
recomputation of nothing, of a part and of all. Losses, norms, the gradients of the first step and the
weights after six steps of AdamW, clipped by the norm of all, are equal bit for bit. (That other memories
change no bit is test_memories.py's.) A schedule that adds in another order must not be: so the
comparison can fail."""
import json

import e2e
from e2e import Failed
from test_plans import LLAMA

SEQ, BATCH = 16, 8
GROUPS = {
    "pipeline": [{"mbs": 2}, {"mbs": 2, "pp": 2, "schedule": "1f1b"},
                 {"mbs": 2, "pp": 2, "schedule": "interleaved"}, {"mbs": 2, "pp": 4, "schedule": "1f1b"}],
    "homes": [{"mbs": 2, "dp": 4, "zero": zero} for zero in range(4)],
    "recomputation": [{"mbs": 2, "dp": 2, "recompute": what} for what in ("none", "selective", "full")],
}
OTHER_ORDER = {"mbs": 2, "pp": 2, "schedule": "zbh1"}


class Bits:
    def __init__(self, shop):
        self.shop = shop
        self.data = e2e.text_file(shop.path / "text")
        self.model = shop.path / "tiny.json"
        self.model.write_text(json.dumps(LLAMA))
        self.trained = {}

    def train(self, pins):
        key = e2e.pin_text(pins)
        if key not in self.trained:
            self.trained[key] = self.train_once(pins)
        return self.trained[key]

    def train_once(self, pins):
        place = self.shop.path / e2e.pin_text(pins).replace(",", "-").replace("=", "")
        place.mkdir()
        plan = e2e.plan(self.model, pins, place / "plan.json", BATCH, SEQ)
        e2e.build(plan, place / "trainer", self.shop.cache, "--no-check")
        log = e2e.train(place / "trainer", place / "log", "--data", self.data, "--steps", 6, "--lr", 3e-3,
                        "--warmup", 2, "--seed", 11, "--deterministic", "--virtual", "--save",
                        place / "weights", "--dump-grads", place / "grads")
        return {"losses": e2e.column(log, "loss"), "norms": e2e.column(log, "grad_norm"),
                "gradients": e2e.digest(place / "grads"), "weights": e2e.digest(place / "weights")}

    def equal(self, plans):
        first = self.train(plans[0])
        if not all(0 < norm < float("inf") for norm in first["norms"]):
            raise Failed(f"norms {first['norms']}")
        for pins in plans[1:]:
            got = self.train(pins)
            wrong = [key for key in first if got[key] != first[key]]
            if wrong:
                raise Failed(f"{e2e.pin_text(pins)}: other {', '.join(wrong)} than "
                             f"{e2e.pin_text(plans[0])}")

    def differs(self):
        try:
            self.equal([GROUPS["pipeline"][0], OTHER_ORDER])
        except Failed as error:
            if "weights" in str(error):
                return
            raise
        raise Failed("W behind other backwards adds in another order, yet no bit changed")


def main():
    tap = e2e.Tap()
    with e2e.Workshop() as shop:
        bits = Bits(shop)
        tap.cases([(name, bits.equal, plans) for name, plans in GROUPS.items()])
        tap.case("another order", bits.differs)
    tap.end()


if __name__ == "__main__":
    main()
