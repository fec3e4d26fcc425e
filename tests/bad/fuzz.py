#!/usr/bin/env python3
"""fuzz.py - broken models, clusters, plans and configs, against every verb that reads them. Speaks TAP.

    fuzz.py LPLAN [--cases N | --seconds T] [--seed S] [--only KIND] [--keep DIR] [--case I]

Case i of seed S is always the same input. Whatever it is, the program must end in time with exit 0 to 3,
say why when it refuses, and never upset a sanitizer. What it accepts is handed on: a plan that was made
must be read again, proven and printed."""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

import random_model
import seeds

LIMIT_S = 60
NUMBERS = ["0", "1", "-1", "2", "3", "5", "7", "16", "64", "255", "256", "1023", "65536",
           "2147483647", "2147483648", "-2147483648", "4294967296", "1099511627776",
           "1152921504606846976", "9223372036854775807", "-9223372036854775808",
           "9223372036854775808", "1e18", "1e308", "1e999", "-0.0", "0.5", "1e-320", "NaN",
           "0x10", "007", "1e2"]
STRINGS = ["", "x", "b", "s", "h", "ids", "labels", "none", "R", "+0", "+01", "{b:a0}", "{h:a0,a1}",
           "{}", "+sum{a0}", "a\\\"b", "a\\\\b", "a\\nb", "*/", "??/", "\\\"; system(\\\"id\\\"); //",
           "%s%s%n", "{i}", "{i}{i}", "../../x", "\\u0001", "\\ud83d\\ude00", "é", "a" * 300,
           "model.layers.{i}.x", "-", "--help", "host", "cuda", "1f1b", "fp64", "bf16"]
PLACES = ["null", "true", "false", "[]", "{}", "[[]]", '{"a": 1}', '[1, 2]', '["x"]']
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[{}\[\],:]|\s+|.', re.DOTALL)
PINS = {"tp": [1, 2, 3, 4, 8], "dp": [1, 2, 3, 4], "pp": [1, 2, 3], "zero": [0, 1], "sp": [0, 1],
        "recompute": ["none", "full"], "schedule": ["gpipe", "1f1b"], "mbs": [1, 2, 3]}


CHANGES = ["gpus=4", "gpus=0", "gpus=1e9", "global_batch=16", "global_batch=7", "sequence=4", "sequence=1e18",
           "recipe=fp64", "recipe=x", "device.memory_bytes=1", "device.memory_bytes=1e15", "device.flops_f32=0",
           "device.launch_ns=1000000000", "device.name=x", "links.shm.bytes_per_s=1", "links.shm.bytes_per_s=1e18",
           "links.shm.width=3", "links.none.width=1", "tp=2", "tp=1048576", "dp=1048576", "pp=64", "mbs=1048576",
           "sp=1", "zero=2", "schedule=x", "layers=1+1", "x", "=", "a=", "=b", "gpus=%n", "tp=99999999999999999999"]

# ---- mutations ----

def of_bytes(rng, text):
    data = bytearray(text.encode("utf-8"))
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at:at + rng.randrange(1, 30)] = b""
        elif kind == 2:
            data[at:at] = data[at:at + rng.randrange(1, 60)]
        elif kind == 3:
            data[at:at] = rng.choice([b"\0", b"\xff", b"\xc0\xaf", b"\r", b'"', b"\\", b"{", b"[" * 4000,
                                      b"]", b",", b"//", b"\x1b[2J", b"\xef\xbb\xbf", b"e", b"9" * 30])
        else:
            del data[at:]
    return bytes(data)


def of_tokens(rng, text):
    tokens = TOKEN.findall(text)
    words = [i for i, token in enumerate(tokens) if not token.isspace()]
    for _ in range(rng.choice([1, 1, 2, 3])):
        at, other = rng.choice(words), rng.choice(words)
        kind = rng.randrange(4)
        if kind == 0:
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif kind == 1:
            tokens[at] = tokens[other]
        elif tokens[at][0] == '"':
            tokens[at] = '"' + rng.choice(STRINGS) + '"'
        elif tokens[at][0] in "-0123456789":
            tokens[at] = number(rng, tokens[at])
        else:
            tokens[at] = rng.choice(["", tokens[at] * 2] + PLACES)
    return "".join(tokens).encode("utf-8", "surrogatepass")


def number(rng, old):
    if re.fullmatch(r"-?\d{1,15}", old) and rng.random() < 0.6:
        return str(rng.choice([int(old) + 1, int(old) - 1, int(old) * 2, int(old) // 2, int(old) * 3]))
    return rng.choice(NUMBERS)


class Raw(str):
    """Text that stands in the JSON as it is."""


def paths(value, path=()):
    found = [path]
    members = (value.items() if isinstance(value, dict) else
               enumerate(value) if isinstance(value, list) else ())
    for key, member in members:
        found += paths(member, path + (key,))
    return found


def at_path(root, path):
    for key in path:
        root = root[key]
    return root


def dump(value):
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {dump(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(dump(item) for item in value) + "]"
    return json.dumps(value)


def edit(rng, root, path, everywhere):
    holder, key = at_path(root, path[:-1]), path[-1]
    old, kind = holder[key], rng.randrange(7)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[key] = json.loads(json.dumps(at_path(root, rng.choice(everywhere))))
    elif kind == 2 and isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), json.loads(json.dumps(old)))
    elif kind == 2:
        holder[rng.choice(["x", "format", "extra key", str(key) + "s"])] = holder.pop(key)
    elif kind == 3 and isinstance(holder, list):
        rng.shuffle(holder)
    elif isinstance(old, bool) or old is None or isinstance(old, (dict, list)):
        holder[key] = Raw(rng.choice(PLACES + NUMBERS))
    elif isinstance(old, (int, float)):
        holder[key] = Raw(number(rng, str(old)))
    elif rng.random() < 0.5:
        same = [at_path(root, other) for other in everywhere]
        holder[key] = rng.choice([text for text in same if isinstance(text, str)])
    else:
        holder[key] = Raw('"' + rng.choice(STRINGS) + '"')


def of_structure(rng, text):
    root = json.loads(text)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        everywhere = [path for path in paths(root) if not isinstance(at_path(root, path), Raw)]
        depth = rng.randrange(1, 8)
        below = [path for path in everywhere if path and (len(path) == depth or depth > 5)]
        if below:
            edit(rng, root, rng.choice(below), everywhere)
    return dump(root).encode("utf-8")


def of_choices(rng, text):
    """A plan with other choices, which may well be legal: then it must be right, too."""
    plan = json.loads(text)
    dims, atoms = ["b", "s"] + list(plan["model"]["dims"]), max(1, len(plan["mesh"]))
    letters = sorted(set("".join(dims)))
    for _ in range(rng.choice([1, 1, 2, 3, 6])):
        part = rng.choice(plan["classes"])
        field = rng.choice(["nodes", "nodes", "homes", "saved", "saved", "in", "out"])
        place = rng.choice(["{}", "{%s:a%d}", "{%s:a%d}", "{%s:a%d}", "{sum(a%d)}", "{max(a%d)}"])
        place = place.replace("%s", rng.choice(dims)).replace("%d", str(rng.randrange(atoms)))
        if field not in part or not part[field]:
            continue
        if field in ("in", "out"):
            part[field] = place
            continue
        name = rng.choice(sorted(part[field]))
        if field == "nodes" and part[field][name]:
            part[field][name][rng.randrange(atoms)] = rng.choice(letters + ["R", "R", "+0", "+1", "+01"])
        elif field != "nodes":
            part[field][name] = rng.choice([place, "none"]) if field == "saved" else place
    return json.dumps(plan).encode("utf-8")


def mutated(rng, text):
    return rng.choice([of_bytes, of_tokens, of_tokens, of_structure, of_structure, of_structure])(rng, text)


# ---- runs ----

class Found(Exception):
    """The program did what it must not."""


class Fuzz:
    def __init__(self, lplan, folder, log):
        self.lplan, self.folder, self.log = lplan, folder, log
        self.seeds = seeds.make(lplan, folder)
        self.codes = {}
        self.runs = 0
        self.environment = {**os.environ, "LC_ALL": "C", "NO_COLOR": "1",
                            "ASAN_OPTIONS": "detect_leaks=1:max_allocation_size_mb=4096"
                                            ":hard_rss_limit_mb=4096",
                            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, *arguments):
        self.runs += 1
        try:
            done = subprocess.run([self.lplan, *arguments], capture_output=True, check=False,
                                  stdin=subprocess.DEVNULL, timeout=LIMIT_S, cwd=self.folder,
                                  env=self.environment)
        except subprocess.TimeoutExpired as late:
            raise Found(f"{arguments}: more than {LIMIT_S} s") from late
        code, told = done.returncode, done.stderr.decode("utf-8", "replace")
        self.codes[arguments[0], code] = self.codes.get((arguments[0], code), 0) + 1
        if code not in (0, 1, 2, 3) or "Sanitizer" in told or "runtime error:" in told:
            raise Found(f"{arguments}: exit {code}\n{told[:6000]}")
        if self.log:
            print(f"# {code} {told[:300]!r}")
        # whatif answers 3 with a table of what does not fit, prove with what is not proven.
        said = "error: " in told or b"NOT PROVEN" in done.stdout or (code == 3 and arguments[0] == "whatif")
        if code and not said:
            raise Found(f"{arguments}: exit {code} without a reason\n{told[:500]}")
        if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", told):
            raise Found(f"{arguments}: control characters in a message\n{told[:2000]!r}")
        return code, told, done.stdout.decode("utf-8", "replace")

    def use_plan(self, rng, path, whole, mutations=True):
        """whole: nothing was broken, so it must be proven and printed too. mutations: the model is none of
        the random ones, whose values may reach nothing (no mutation of them shows), or which may be so
        badly conditioned that rounding shows."""
        slack = 1e-7 if mutations else 1e-3
        mutations = mutations and rng.random() < 0.1
        code, told, out = self.run("prove", path, *([] if mutations else ["--no-mutations"]))
        fine = ("not supported", "at most 64", "no gradient")
        error = re.search(r"relative error ([0-9.]+e-\d+)", out)
        rounding = error and "MISSED" not in out and float(error.group(1)) < slack
        if whole and code and not rounding and not any(reason in told + out for reason in fine):
            raise Found(f"a plan that lplan made is refused by prove: {told[:3000]}{out[:1500]}")
        self.others(rng, path)
        code, told, _ = self.run("build", path, "-o", "built", "--no-check", "--no-compile", "-q")
        if whole and code and "cannot become a trainer" not in told:
            raise Found(f"a plan that lplan made is refused by build: {told[:3000]}")

    def others(self, rng, path):
        """The verbs that only look at a plan."""
        other = self.path(f"plan-{rng.choice(sorted(self.seeds['plan']))}.json")
        change = rng.choice(CHANGES)
        verb = rng.choice([["explain", path], ["explain", path, "--json"], ["diff", path, other],
                           ["diff", other, path, path], ["whatif", path, "--set", change],
                           ["whatif", path, "--sweep", f"{change},1,2"], None, None])
        if verb:
            self.run(*verb)

    def pins(self, rng):
        chosen = {key: rng.choice(PINS[key]) for key in PINS if rng.random() < 0.35}
        devices = chosen.get("tp", 1) * chosen.get("dp", 1) * chosen.get("pp", 1)
        batch = chosen.get("dp", 1) * chosen.get("mbs", 1) * rng.choice([1, 2, 3, 4])
        if rng.random() < 0.1:
            devices = rng.choice([1, 2, 5, 8])
        if rng.random() < 0.05:
            chosen[rng.choice(["tp", "dp", "pp", "mbs"])] = rng.choice([64, 1048576, 0, -1, "", "x", 2**40])
        words = [f"{key}={value}" for key, value in chosen.items()]
        return ["--gpus", str(devices), "--global-batch", str(batch), "--seq",
                str(rng.choice([1, 2, 4, 8, 8, 8, 12])), *(["--pin", ",".join(words)] if words else [])]

    def plan(self, rng, model, cluster, mutations=True):
        code, _, _ = self.run("plan", model, cluster, *self.pins(rng), "-q", "-o", "made.json")
        if code == 0:
            self.use_plan(rng, "made.json", True, mutations)

    def case(self, rng, only):
        kind = only or rng.choice(["config", "model", "model", "cluster", "plan", "plan", "plan", "pins",
                                   "net"])
        name = rng.choice(sorted(self.seeds["model" if kind in ("pins", "net") else kind]))
        if kind == "pins":
            self.plan(rng, self.path(f"model-{name}.json"), "host")
            return
        broken = self.path("broken.json")
        if kind == "net":
            seeds.save(broken, random_model.random_model(rng))
            self.plan(rng, broken, "host", mutations=False)
            return
        how = of_choices if kind == "plan" and rng.random() < 0.5 else mutated
        with open(broken, "wb") as file:
            file.write(how(rng, self.seeds[kind][name]))
        if kind == "config":
            code, _, _ = self.run("import", broken, "-q", "-o", "imported.json")
            if code == 0:
                self.plan(rng, self.path("imported.json"), "host")
        elif kind == "model":
            self.plan(rng, broken, rng.choice(["host", "host", "dgx-h100"]))
        elif kind == "cluster":
            self.plan(rng, self.path("model-llama.json"), broken)
        else:
            self.use_plan(rng, broken, False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lplan")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["config", "model", "cluster", "plan", "pins", "net"])
    parser.add_argument("--keep", help="folder for the inputs that were found")
    parser.add_argument("--case", type=int, help="this case alone")
    parser.add_argument("--log", action="store_true", help="print what every run said")
    options = parser.parse_args()
    findings, begun, index = 0, time.monotonic(), options.case or 0
    print("1..1")
    with tempfile.TemporaryDirectory() as folder:
        fuzz = Fuzz(os.path.abspath(options.lplan), folder, options.log)
        while True:
            rng = random.Random(f"{options.seed}:{index}")
            try:
                fuzz.case(rng, options.only)
            except Found as found:
                findings += 1
                print(f"# case {index} of seed {options.seed}: {found}".replace("\n", "\n# "))
                if options.keep:
                    os.makedirs(options.keep, exist_ok=True)
                    for name in ("broken.json", "made.json", "imported.json"):
                        if os.path.exists(fuzz.path(name)):
                            seeds.save_bytes(fuzz.path(name), options.keep, f"{options.seed}-{index}-{name}")
            sys.stdout.flush()
            index += 1
            over = time.monotonic() - begun
            if options.case is not None or (over > options.seconds if options.seconds
                                            else index >= options.cases):
                break
        told = ", ".join(f"{verb} {code}: {count}" for (verb, code), count in sorted(fuzz.codes.items()))
        print(f"# {index} cases, {fuzz.runs} runs, {findings} findings; exits {told}")
    print(f"{'not ok' if findings else 'ok'} 1 - broken inputs are refused")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
