#!/usr/bin/env python3
"""pages.py - runs the commands that stand in pages, and puts what they print behind them.

    pages.py LPLAN                     every page of examples/techniques and the map in its README, rewritten
    pages.py LPLAN --check PAGE...     says where a page differs from what the commands print; PAGE: zero3, README

A page is prose and blocks that begin with ```console. In a block every line behind `$ ` is a command, to its end
or the next one stands what it printed. `lplan` is LPLAN, run in an empty folder with `examples` beside it, so
that plans written by one block are read by the next. The comment at the head of a page names the technique that
the product must recognise in the page's first plan: `<!-- technique: zero3 -->`.
The map is made of the same plans' machine form, a row a page, in the order of its list of pages."""
import difflib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(os.environ.get("LPLAN_SOURCE_ROOT", pathlib.Path(__file__).resolve().parents[1]))
PAGES = ROOT / "examples" / "techniques"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TECHNIQUE = re.compile(r"^<!-- technique: ([a-z0-9_, ]+) -->$", re.MULTILINE)
MAP = re.compile(r"(^<!-- map: ([a-z0-9_ ]+) -->\n).*?(^<!-- end -->$)", re.MULTILINE | re.DOTALL)


class Shop:
    """A folder in which commands run."""

    def __init__(self, lplan, folder):
        self.lplan = os.path.abspath(lplan)
        self.folder = folder
        os.symlink(ROOT / "examples", os.path.join(folder, "examples"))

    def run(self, words):
        assert words[0] == "lplan", f"a page runs lplan only, not {words[0]}"
        result = subprocess.run([self.lplan, *words[1:]], cwd=self.folder, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                                timeout=600)
        assert result.returncode in (0, 3), f"{shlex.join(words)}: {result.returncode}\n{result.stdout}"
        return result.stdout

    def table(self, words):
        less = [] if "--collectives" in words else ["--only", "head"]
        result = subprocess.run([self.lplan, *words[1:], "--json", *less], cwd=self.folder, stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, check=True, timeout=600)
        return json.loads(result.stdout)


def commands_of(block):
    """The commands of a block, as written, with the lines that go on."""
    commands, going = [], False
    for line in block.splitlines():
        if line.startswith("$ ") or going:
            if not going:
                commands.append([])
            commands[-1].append(line)
            going = line.endswith("\\")
    return commands


def words_of(command):
    return shlex.split(" ".join(line.removesuffix("\\") for line in command)[2:])


def rerun(shop, text):
    def block(match):
        parts = []
        for command in commands_of(match.group(1)):
            said = shop.run(words_of(command)).rstrip("\n")
            parts.append("\n".join(command + ([said] if said else [])))
        return "```console\n" + "\n\n".join(parts).replace("\n\n\n", "\n\n") + "\n```"
    return BLOCK.sub(block, text)


# ---- the map ----

def amount(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}" if size < 1000 * unit else f"{size / unit:.0f} {name}"
    return f"{size} B"


def span(ns):
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if ns >= unit:
            return f"{ns / unit:.3g} {name}" if ns < 1000 * unit else f"{ns / unit:.0f} {name}"
    return f"{ns} ns"


def first_plan(text):
    """The first command of a page that writes a plan, without what chooses among its output."""
    for match in BLOCK.finditer(text):
        for command in commands_of(match.group(1)):
            words = words_of(command)
            if words[1] == "plan" and "-o" in words:
                if "--only" in words:
                    at = words.index("--only")
                    words = words[:at] + words[at + 2:]
                return [word for word in words if word != "-q"]
    raise AssertionError("a page without a plan")


def in_layer(collectives):
    most = max(collectives["layers"], key=lambda layer: (len(layer["collectives"]) > 0, layer["links"]))
    return "<br>".join(f"{kind['count']} {kind['collective']} {amount(kind['sent_bytes'])}"
                       for kind in most["kinds"]) or "none"


def in_step(collectives):
    rows = [row for row in collectives["step"] if not row["in_layers"] and row["sent_bytes"] >= 1 << 20]
    return "<br>".join(f"{row['collective']} {amount(row['sent_bytes'])} of {row['of']}"
                       for row in rows[:4]) or "none"


def recognised(shop, name, text):
    """The report of a page's plan, in which its techniques are; and what the plan says of them."""
    report = shop.table(first_plan(text))
    known = {one["key"]: one for one in report["techniques"]}
    wanted = TECHNIQUE.search(text).group(1).split(", ")
    missing = [key for key in wanted if key not in known]
    assert not missing, f"{name}: {', '.join(missing)} is not recognised, {', '.join(known)} are"
    return report, [known[key]["says"] for key in wanted]


def row_of(shop, name, text):
    words = first_plan(text)
    report, says = recognised(shop, name, text)
    collectives = shop.table(["lplan", "explain", words[words.index("-o") + 1], "--collectives"])
    peak = report["predicted"]["peak_bytes"]
    held = report["stages"][peak.index(max(peak))]["bytes"]
    exposed = {"in layers" if role == "tp" else role: ns
               for role, ns in report["predicted"]["exposed_ns"].items() if ns and role != "bubble"}
    title = re.search(r"^# (.*)$", text, re.MULTILINE).group(1)
    cells = [f"[{title}]({name}.md)",
             "; ".join(says),
             in_layer(collectives), in_step(collectives),
             " / ".join(amount(held[kind]) for kind in ("weights", "gradients", "optimizer", "activations")),
             span(report["predicted"]["step_ns"]),
             "<br>".join(f"{role} {span(ns)}" for role, ns in exposed.items()) or "none",
             "<br>".join(risk["brief"] for risk in report["risks"][:2])]
    return "| " + " | ".join(cells) + " |"


HEAD = ("| technique | what the plan says | in a layer, per micro-batch | in a step | weights / gradients / "
        "optimizer / activations | step | exposed | what can go wrong |\n"
        "|---|---|---|---|---|---|---|---|\n")


def map_of(shop, text):
    def table(match):
        rows = [row_of(shop, name, (PAGES / f"{name}.md").read_text(encoding="utf-8"))
                for name in match.group(2).split()]
        return match.group(1) + "\n" + HEAD + "\n".join(rows) + "\n\n" + match.group(3)
    return MAP.sub(table, text)


def made(lplan, name, text):
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(lplan, folder)
        return map_of(shop, text) if name == "README" else rerun(shop, text)


def check(lplan, name):
    """Where the page differs from what its commands print; it must be recognised, too. None: nowhere."""
    path = PAGES / f"{name}.md"
    text = path.read_text(encoding="utf-8")
    now = made(lplan, name, text)
    if name != "README":
        with tempfile.TemporaryDirectory() as folder:
            recognised(Shop(lplan, folder), name, text)
    if now == text:
        return None
    if os.environ.get("LPLAN_BLESS"):
        path.write_text(now, encoding="utf-8")
        return None
    return "\n".join(list(difflib.unified_diff(text.splitlines(), now.splitlines(), f"{name}.md", "now",
                                               lineterm=""))[:40])


def main():
    lplan, names = sys.argv[1], sys.argv[2:]
    if names[:1] == ["--check"]:
        bad = [difference for difference in (check(lplan, name) for name in names[1:]) if difference]
        print("\n".join(bad))
        return 1 if bad else 0
    os.environ["LPLAN_BLESS"] = "1"
    for path in sorted(PAGES.glob("*.md"), key=lambda path: path.stem == "README"):
        if not names or path.stem in names:
            print(path.stem, flush=True)
            check(lplan, path.stem)
    return 0


if __name__ == "__main__":
    sys.exit(main())
