"""e2e.py - what the end-to-end tests share: plan, build, run, read what came out, and speak TAP."""
import array
import concurrent.futures
import hashlib
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
ROOT = pathlib.Path(os.environ.get("LPLAN_SOURCE_ROOT", HERE.parents[1]))
GOLDEN = ROOT / "tests" / "golden"
HOST = ROOT / "examples" / "clusters" / "host.json"
LPLAN = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "lplan"


class Failed(AssertionError):
    """What a user would have seen, in words."""


def environment(**more):
    env = dict(os.environ, **more)
    # Tiny models: a second thread would only wait for the first.
    env.setdefault("OMP_NUM_THREADS", "1")
    return env


def command(*arguments, code=0, timeout=120, env=None):
    """Runs a program that must end with `code`, in time."""
    words = [str(a) for a in arguments]
    try:
        result = subprocess.run(words, capture_output=True, text=True, check=False, timeout=timeout,
                                stdin=subprocess.DEVNULL, env=env or environment())
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(words)}\nnot done after {timeout} s") from error
    if code is not None and result.returncode != code:
        raise Failed(f"{' '.join(words)}\nended with {result.returncode}, wanted {code}\n"
                     f"{result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result


def lplan(*arguments, **more):
    return command(LPLAN, *arguments, **more)


# ---- plans ------------------------------------------------------------------------------------------


def ranks_of(pins):
    """tp x cp x dp x pp of a dict of pins."""
    return pins.get("tp", 1) * pins.get("cp", 1) * pins.get("dp", 1) * pins.get("pp", 1)


def pin_text(pins):
    """Every pin is given, so that the search chooses nothing."""
    full = {"tp": 1, "dp": 1, "pp": 1, "zero": 1, "sp": 0, "recompute": "none", "mbs": 1,
            "schedule": "1f1b", **pins}
    return ",".join(f"{key}={value}" for key, value in full.items())


def model_file(name):
    """A model graph of the tests, under its name."""
    return {**json.loads((HERE / "models" / f"{name}.json").read_text()), "name": name}


def plan(model, pins, path, batch, seq, recipe="fp32", cluster=HOST, optimizer="adamw"):
    lplan("plan", model, cluster, "--gpus", ranks_of(pins), "--global-batch", batch, "--seq", seq,
          "--recipe", recipe, "--optimizer", optimizer, "--pin", pin_text(pins), "-o", path, "--quiet")
    return path


# How trainer.c of a tiny model is compiled: as users do; with sums in vectors, whose rounding the tolerances of
# oracles in double are of; or with what takes a sixth of the time, where plans are compared with each other.
AS_USERS, IN_VECTORS, PLAIN = "", "-O1", "-Og"


def compiles(cache, how=PLAIN):
    """The environment of a build: the runtime is compiled once for all, as users compile."""
    return environment(CC=f"{sys.executable} {HERE / 'cached_cc.py'}", LPLAN_E2E_CACHE=str(cache),
                       LPLAN_E2E_FLAGS=how)


def build(plan_path, folder, cache, *options, how=PLAIN):
    """What `build --json` says."""
    result = lplan("build", plan_path, "-o", folder, "--json", *options, env=compiles(cache, how),
                   timeout=300)
    return json.loads(result.stdout)


def prove(plan_path, *options):
    """What `prove --json` says; the caller judges."""
    result = lplan("prove", plan_path, "--json", *options, code=None, timeout=300)
    try:
        return json.loads(result.stdout)
    except json.JSONDecodeError as error:
        raise Failed(f"lplan prove {plan_path}: {result.returncode}\n"
                     f"{result.stdout[-2000:]}{result.stderr[-2000:]}") from error


def log_of(folder):
    with open(pathlib.Path(folder) / "log.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def train(folder, log, *options, **more):
    """Runs a built trainer to its end and gives its log."""
    more.setdefault("timeout", 120)
    lplan("run", folder, "--quiet", "--log", log, *options, **more)
    return log_of(log)


# ---- files ------------------------------------------------------------------------------------------


def tensors_of(path):
    """Name -> (shape, array of float) of a safetensors file in fp32."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        body = file.read()
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", (path, name, entry)
        begin, end = entry["data_offsets"]
        found[name] = (entry["shape"], array.array("f", body[begin:end]))
    return found


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def text_file(path, size=6000):
    """A small text with some structure, the same each time."""
    words = ["the", "ring", "carries", "blocks", "of", "a", "sum", "to", "every", "rank", "and",
             "each", "stage", "waits", "for", "its", "turn"]
    state, out = 20240520, []
    while sum(map(len, out)) + len(out) < size:
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        out.append(words[(state >> 33) % len(words)] + ("." if (state >> 50) % 7 == 0 else ""))
    path = pathlib.Path(path)
    path.write_text(" ".join(out) + "\n", encoding="utf-8")
    return path


# ---- figures ----------------------------------------------------------------------------------------


def relative(got, want):
    """Largest |x - y| / |y| over two lists; infinite when they have not one length."""
    if len(got) != len(want) or not want:
        return math.inf
    worst = 0.0
    for x, y in zip(got, want):
        if not (math.isfinite(x) and math.isfinite(y)):
            return math.inf
        worst = max(worst, abs(x - y) / max(abs(y), 1e-30))
    return worst


def column(log, key):
    return [row[key] for row in log]


# ---- folders ----------------------------------------------------------------------------------------


class Workshop:
    """A folder of one test script, gone at its end unless LPLAN_E2E_KEEP is set."""

    def __enter__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="lplan-e2e-"))
        (self.path / "logs").mkdir()
        self.cache = pathlib.Path(os.environ.get("LPLAN_E2E_CACHE", self.path / "objects"))
        return self

    def __exit__(self, *error):
        if os.environ.get("LPLAN_E2E_KEEP"):
            print(f"# kept: {self.path}")
        else:
            shutil.rmtree(self.path, ignore_errors=True)


# ---- TAP --------------------------------------------------------------------------------------------


def tell(text):
    """A line of the log, whole, whatever another case prints at the same time."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Tap:
    """Runs cases, one by one or two at a time; a case fails by raising."""

    def __init__(self):
        self.number = self.failed = 0
        self.begin = time.monotonic()

    def case(self, name, body, *arguments):
        answer, error, seconds = self.attempt(body, arguments)
        self.say(name, error, seconds)
        return answer

    def cases(self, rows):
        """Rows of (name, body, arguments...), two at a time: a job of tiny ranks mostly waits. They are
        told in their order."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            tried = [(name, pool.submit(self.attempt, body, rest)) for name, body, *rest in rows]
            for name, one in tried:
                _, error, seconds = one.result()
                self.say(name, error, seconds)

    @staticmethod
    def attempt(body, arguments):
        """(answer, what went wrong or None, seconds)"""
        begin = time.monotonic()
        try:
            return body(*arguments), None, time.monotonic() - begin
        except Exception as error:  # noqa: a case that breaks must not end the others
            text = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
            return None, text or repr(error), time.monotonic() - begin

    def say(self, name, error, seconds):
        self.number += 1
        if error is None:
            tell(f"ok {self.number} - {name} ({seconds:.1f} s)")
            return
        self.failed += 1
        tell("\n#   ".join([f"not ok {self.number} - {name}", *error.splitlines()]))

    def end(self):
        print(f"1..{self.number}")
        print(f"# {self.number - self.failed} passed, {self.failed} failed, "
              f"{time.monotonic() - self.begin:.0f} s")
        sys.exit(1 if self.failed else 0)
