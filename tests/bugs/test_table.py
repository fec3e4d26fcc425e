#!/usr/bin/env python3
"""test_table.py - the table of bugs that other systems shipped, CONTRACTS 1.14: what shows each of them here.

    test_table.py LPLAN TEST_BUGS [--trainers SEEDS KILLS] [ID...]

Prints a line an id: what ran, faults noticed, or what the row still waits for. It fails when a row is
wrong, when one that claims to be live ran nothing or missed a fault, and when an id of the table has no
row. Rows of trainers run with --trainers; else the line says which test runs them."""
import json
import subprocess
import sys

import trainers
from trainers import Failed, e2e

IDS = [f"T{n:02}" for n in range(1, 56)]
# What no plan here can show yet, or ever, and why. An id that some plan does show is an error here.
ABSENT = {
    "T39": "cannot happen: the norm is summed before the optimizer begins, nothing is rolled back",
}


class Table:
    def __init__(self):
        self.lines = {}
        self.wrong = []

    def put(self, name, plans, tried, noticed, waits=(), what=""):
        """Adds what ran for an id; several parts add up."""
        line = self.lines.setdefault(name, {"plans": [], "tried": 0, "noticed": 0, "waits": [],
                                            "what": what})
        line["plans"] += plans
        line["tried"] += tried
        line["noticed"] += noticed
        line["waits"] = list(dict.fromkeys([*line["waits"], *waits]))
        if plans and (tried == 0 or noticed < tried):
            self.wrong.append(f"{name}: {noticed} of {tried} faults noticed on {len(plans)} plans")

    def say(self):
        print("# table: bugs that other systems shipped: plans run, faults of their kind put in and noticed")
        print(f"# {'id':4} {'plans':>5} {'faults':>8}  what went wrong elsewhere; what the row waits for")
        for name in IDS:
            line = self.lines.get(name)
            if not line:
                continue
            faults = f"{line['noticed']}/{line['tried']}" if line["plans"] else "-"
            waits = "; waits for " + ", ".join(line["waits"]) if line["waits"] else ""
            print(f"# {name:4} {len(line['plans']):5} {faults:>8}  {line['what']}{waits}")
        live = sum(bool(line["plans"]) for line in self.lines.values())
        print(f"# {live} of {len(IDS)} live, "
              f"{sum(line['noticed'] for line in self.lines.values())} faults noticed")


def machine(table, exe, ids):
    """The rows of test_bugs."""
    result = subprocess.run([exe, "--json", *ids], capture_output=True, text=True, check=False)
    rows = [json.loads(text) for text in result.stdout.splitlines()]
    for row in rows:
        table.put(row["id"], row["plans"], row["broken"], row["noticed"], row["waits"], row["what"])
        if not row["good"]:
            table.wrong.append(f"{row['id']} ({row['what']}): {row['wrong']}")
    if not ids and len(rows) < 40:
        table.wrong.append(f"test_bugs ended early: {result.stderr[-500:]}")


def overlap(shop):
    """T50: reductions run beside backward; as one bucket they cannot, and that must show."""
    path = shop.path / "overlap.json"
    e2e.plan(e2e.ROOT / "examples/models/llama-3-8b.json", {"dp": 4, "tp": 2, "sp": 1, "zero": 1, "mbs": 2},
             path, 8, 4096, recipe="bf16", cluster=e2e.ROOT / "examples/clusters/dgx-h100.json")
    plan = json.loads(path.read_text())
    exposed = plan["predicted"]["exposed_ns"]["dp"]
    plan["bucket_bytes"] = 1 << 40
    del plan["predicted"]
    path.write_text(json.dumps(plan))
    whole = json.loads(e2e.lplan("explain", path, "--json").stdout)["predicted"]["exposed_ns"]["dp"]
    if not exposed < 0.25 * whole:
        raise Failed(f"{exposed} ns of reductions are exposed, {whole} ns without buckets")
    return ["dp=4,tp=2"], 1, 1


def absent(table):
    for name, why in ABSENT.items():
        if name in table.lines and table.lines[name]["plans"]:
            table.wrong.append(f"{name} is live, and listed as absent: {why}")
        table.put(name, [], 0, 0, what=why)


def part(table, tap, name, what, body):
    def run():
        plans, tried, noticed = body()
        table.put(name, plans, tried, noticed, what=what)
    tap.case(f"{name} {what}", run)


TRAINERS = {
    "T23": "buffers reused before their reduction is over",
    "T30": "overflow on one rank only",
    "T41": "padding of an evaluation that ends unevenly",
    "T42": "an evaluation changes the run it stands in",
    "T43": "resumed under another plan",
    "T44": "samples lost or read twice after a resume",
    "T45": "killed while it saves",
    "T49": "norms drift in bf16",
    "T51": "unknown devices, wrong numbers of ranks",
    "T53": "layers restored by their number in a stage",
}


def main():
    words = sys.argv[2:]
    exe, words = words[0], words[1:]
    counts = None
    if words[:1] == ["--trainers"]:
        counts, words = (int(words[1]), int(words[2])), words[3:]
    table, tap = Table(), e2e.Tap()
    with e2e.Workshop() as shop:
        tap.case("rows of the machine", machine, table, exe, words)
        if not words or "T50" in words:
            part(table, tap, "T50", "overlap is configured and does not happen", lambda: overlap(shop))
        jobs = trainers.Trainers(shop)
        for name, body in trainers.rows(*(counts or (0, 0))).items():
            if counts and (not words or name in words):
                part(table, tap, name, TRAINERS[name], lambda body=body: body(jobs))
            elif not words:
                table.put(name, [], 0, 0, what=f"{TRAINERS[name]}: by test e2e_bugs")
        if not words:
            absent(table)
    table.say()

    def judge():
        missing = [] if words else [name for name in IDS if name not in table.lines]
        if missing:
            table.wrong.append(f"no row: {', '.join(missing)}")
        if table.wrong:
            raise Failed("\n".join(table.wrong))
    tap.case("every row is right, or says what it waits for", judge)
    tap.end()


if __name__ == "__main__":
    main()
