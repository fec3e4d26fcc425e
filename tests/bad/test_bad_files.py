#!/usr/bin/env python3
"""test_bad_files.py - a trainer, compiled with sanitizers, meets broken weights, token files, checkpoints and
options: one clear line each, in time. And names of a model that C would choke on stay out of its text.
Speaks TAP.

    test_bad_files.py LPLAN"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import cases
import seeds

LIMIT_S = 20
SANITIZERS = "-fsanitize=address,undefined -fno-omit-frame-pointer"
SANITIZED = re.compile(r"Sanitizer|runtime error:")
MAGIC = 20240520


class Bench:
    """A built trainer with good files beside it."""

    def __init__(self, lplan, folder):
        self.lplan, self.folder = lplan, folder
        seeds.make(lplan, folder)
        compiler = os.environ.get("CC", "cc").split("} ")[0]
        # Behind the trainer's own flags: instrumented code takes long to optimise, and names are not fast.
        self.sanitizing, self.plain = [
            "sh " + seeds.save(self.at(name), f'exec {compiler} "$@" {flags}\n')
            for name, flags in (("sanitizing.sh", f"-O1 {SANITIZERS}"), ("plain.sh", "-O0"))]
        self.must("build", self.at("plan-alone.json"), "-o", self.at("job"), "-q", "--no-check",
                  CC=self.sanitizing)
        self.run("--data", "random", "--steps", "2", "--save", self.at("good.safetensors"),
                 "--checkpoint", self.at("checkpoint"), code=0)
        with open(self.at("good.safetensors"), "rb") as file:
            whole = file.read()
        length = struct.unpack("<Q", whole[:8])[0]
        self.header, self.data = json.loads(whole[8:8 + length]), whole[8 + length:]
        self.logs = 0

    def at(self, name):
        return os.path.join(self.folder, name)

    def must(self, *words, **more):
        done = subprocess.run([self.lplan, *words], capture_output=True, text=True, check=False,
                              env={**os.environ, **more}, timeout=300)
        assert done.returncode == 0, (words, done.stderr[:3000])

    def run(self, *words, code=1):
        log = tempfile.mkdtemp(dir=self.folder)
        done = subprocess.run([self.at("job/trainer"), *words, "--log", log], capture_output=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=LIMIT_S, cwd=self.folder,
                              env={**os.environ, "LC_ALL": "C", "OMP_NUM_THREADS": "1", "ASAN_OPTIONS":
                                   "max_allocation_size_mb=1024:hard_rss_limit_mb=2048"})
        told = done.stderr.decode("utf-8", "backslashreplace")
        assert not SANITIZED.search(told), told[:3000]
        assert done.returncode == code, (done.returncode, told[:1000])
        if code:
            lines = told.splitlines()
            assert lines and lines[0].startswith("lplan: "), told[:500]
            assert len(told) < 4000 and not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", told), repr(told[:500])
        return told

    def save(self, name, content):
        path = self.at(name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def weights(self, change=None, data=None, header=None):
        """A safetensors file with a changed header or other data; the path."""
        entries = json.loads(json.dumps(self.header))
        if change:
            change(entries)
        text = json.dumps(entries).encode() if header is None else header
        return self.save("bad.safetensors",
                         struct.pack("<Q", len(text)) + text + (self.data if data is None else data))


NORM = "model.norm.weight"


def set_entry(**fields):
    return lambda entries: entries[NORM].update(fields)


def rename(entries, new):
    entries[new] = entries.pop(NORM)


def index_of(bench, shards):
    return bench.save("bad.safetensors.index.json", json.dumps({"weight_map": shards}).encode())


def bin_file(bench, words, tokens):
    return bench.save("bad.bin", struct.pack("<256i", *(words + [0] * (256 - len(words)))) + tokens)


# (name, the path of the broken file, words of the message)
WEIGHTS = [
    ("an empty file", lambda b: b.save("bad.safetensors", b""), "shorter than its length field"),
    ("seven bytes", lambda b: b.save("bad.safetensors", b"\0" * 7), "shorter than its length field"),
    ("a header of 2^63 bytes", lambda b: b.save("bad.safetensors", b"\xff" * 64), "a header of"),
    ("a header longer than the file", lambda b: b.save("bad.safetensors", struct.pack("<Q", 5000) + b"{}"),
     "a header of 5000 bytes in a file of 10"),
    ("a header that is no JSON", lambda b: b.weights(header=b"hello, world"), "expected `{`"),
    ("a header cut off", lambda b: b.weights(header=json.dumps(b.header).encode()[:300]), "byte"),
    ("a header nested deep", lambda b: b.weights(header=b'{"__metadata__":' + b"[" * 50000), "deep|nest"),
    ("data cut off", lambda b: b.weights(data=b.data[:-5]), "outside the file|ends? at"),
    ("data too long", lambda b: b.weights(data=b.data + b"xx"), "end at byte"),
    ("tensors that overlap", lambda b: b.weights(set_entry(data_offsets=[0, 64])), "inside the tensor"),
    ("a shape of 1e18", lambda b: b.weights(set_entry(shape=[10**18])), "disagree|too large"),
    ("a shape beyond 64 bits", lambda b: b.weights(set_entry(shape=[2**40, 2**40])), "too large"),
    ("a shape of 1e30", lambda b: b.weights(set_entry(shape=[10**30])), "integer|number|large"),
    ("a negative shape", lambda b: b.weights(set_entry(shape=[-16])), "expected|integer|number"),
    ("nine dims", lambda b: b.weights(set_entry(shape=[1] * 8 + [16])), "more than 8 dims"),
    ("offsets backwards", lambda b: b.weights(set_entry(data_offsets=[64, 0])), "outside the file|backwards"),
    ("an unknown dtype", lambda b: b.weights(set_entry(dtype="F31")), "unknown dtype"),
    ("whole numbers for weights", lambda b: b.weights(set_entry(dtype="I32")), "I32|float"),
    ("another shape", lambda b: b.weights(set_entry(shape=[4, 4])), "shape|dims"),
    ("a tensor missing", lambda b: b.weights(lambda e: rename(e, "model.other.weight")), NORM),
    ("a key too many", lambda b: b.weights(set_entry(extra=1)), "expected dtype"),
    ("a tensor twice", lambda b: b.weights(header=json.dumps(b.header).encode()[:-1] + b', "' + NORM.encode()
                                           + b'": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}'),
     "twice|begins at byte"),
    ("a name with an escape sequence", lambda b: b.weights(
        lambda e: (rename(e, "\x1b[2J\n\"*/"), e["\x1b[2J\n\"*/"].update(dtype="F31"))), "unknown dtype"),
    ("a name that is not UTF-8", lambda b: b.weights(
        header=json.dumps(b.header).encode().replace(NORM.encode(), b"\xff\xfe")), NORM + "|UTF-8|string"),
    ("a folder", lambda b: b.at("job"), "director|not a file|safetensors"),
    ("no file", lambda b: b.at("nothing.safetensors"), "No such file"),
    ("an index without a map", lambda b: b.save("bad.safetensors.index.json", b"{}"), "weight_map|index"),
    ("an index to a missing file", lambda b: index_of(b, {NORM: "gone.safetensors"}), "gone.safetensors"),
    ("an index that leaves its folder", lambda b: index_of(b, {NORM: "../../../etc/passwd"}),
     "etc/passwd|folder|name"),
    ("an index to itself", lambda b: index_of(b, {NORM: "bad.safetensors.index.json"}), "header|index|byte"),
]
DATA = [
    ("an empty file", lambda b: b.save("bad.txt", b""), "is empty"),
    ("no magic", lambda b: b.save("bad.bin", b"\1" * 3000), "no magic"),
    ("a version unknown", lambda b: bin_file(b, [MAGIC, 9, 4], b"\0" * 8), "version 9"),
    ("more tokens than bytes", lambda b: bin_file(b, [MAGIC, 1, 2**31 - 1], b"\0" * 8), "the header says"),
    ("fewer tokens than bytes", lambda b: bin_file(b, [MAGIC, 1, 1], b"\0" * 8), "the header says"),
    ("a negative count", lambda b: bin_file(b, [MAGIC, 1, -4], b"\0" * 8), "the header says"),
    ("a header cut off", lambda b: b.save("bad.bin", struct.pack("<3i", MAGIC, 1, 4)), "no magic|header"),
    ("no tokens", lambda b: bin_file(b, [MAGIC, 1, 0], b""), "no tokens"),
    ("a token beyond the vocabulary", lambda b: bin_file(b, [MAGIC, 1, 40], b"\x31\0" * 20 + b"\x32\0" * 20),
     "is 50, the model's vocabulary has 50"),
    ("a byte beyond the vocabulary", lambda b: b.save("bad.txt", b"\xff" * 64), "is 255"),
    ("a folder", lambda b: b.at("job"), "not a file"),
    ("no file", lambda b: b.at("nothing.bin"), "No such file"),
    ("a pipe", lambda b: fifo(b), "not a file"),
]


def fifo(bench):
    path = bench.at("pipe")
    if not os.path.exists(path):
        os.mkfifo(path)
    return path


def checkpoint(bench, name, content):
    """The good checkpoint with one file's content changed."""
    shutil.rmtree(bench.at("broken"), ignore_errors=True)
    shutil.copytree(bench.at("checkpoint"), bench.at("broken"))
    step = os.path.join(bench.at("broken"), sorted(os.listdir(bench.at("broken")))[-1])
    with open(os.path.join(step, name), "r+b") as file:
        old = file.read()
        file.seek(0)
        file.truncate()
        file.write(content(old))
    return bench.at("broken")


RESUME = [
    ("no folder", lambda b: b.at("nowhere"), "nowhere"),
    ("a state that is no JSON", lambda b: checkpoint(b, "state.json", lambda old: b"{]"), "state.json"),
    ("a state of text", lambda b: checkpoint(b, "state.json", lambda old: re.sub(rb"\d+", b'"x"', old, 1)),
     "state.json"),
    ("a step of 1e30", lambda b: checkpoint(b, "state.json", lambda old: re.sub(rb"\d+", b"9" * 30, old, 1)),
     "state.json"),
    ("a negative step", lambda b: checkpoint(b, "state.json", lambda old: re.sub(rb"\d+", b"-7", old, 1)),
     "state.json"),
    ("moments cut off", lambda b: checkpoint(b, "exp_avg.safetensors", lambda old: old[:-100]),
     "exp_avg.safetensors"),
    ("moments empty", lambda b: checkpoint(b, "exp_avg_sq.safetensors", lambda old: b""),
     "exp_avg_sq.safetensors"),
]
OPTIONS = [
    ("--steps", "-1"), ("--steps", "1e30"), ("--steps", ""), ("--lr", "nan"), ("--lr", "inf"), ("--lr", "x"),
    ("--seed", "0x"), ("--threads", "100000000000"), ("--timeout", "-3"), ("--beta1", "2"), ("--clip", "-1"),
    ("--schedule", "cosin"), ("--checkpoint-every", "-1"), ("--unknown", "1"),
]

# Words of C, of the preprocessor and of the emitted text itself, as names of values, dims and blocks.
NAMES = ["int", "double", "main", "static", "NULL", "errno", "stdin", "lp_batch", "INFINITY", "M_PI", "sizeof",
         "for", "restrict", "inline", "arena", "rank", "i", "exp", "float32", "_", "__", "_Bool", "unix",
         "linux", "asm", "auto", "register", "step", "micro", "EOF", "I", "true", "bool", "signal", "memset"]


def test_names(bench):
    """A model whose every name is a word of C still compiles, and computes."""
    text = seeds.read(bench.at("model-llama.json"))
    model = json.loads(text)
    words = iter(NAMES)
    for block in model["blocks"].values():
        made = {}
        for op in block["ops"]:
            given = op["in"] if isinstance(op["in"], list) else [op["in"]]
            given = [made.get(name, name) for name in given]
            op["in"] = given if isinstance(op["in"], list) else given[0]
            if "out" in op:
                made[op["out"]] = op["out"] = next(words) if op["out"] not in made else made[op["out"]]
        if "out" in block:
            block["out"] = list(made.values())[-1]
    model["name"] = "-._.--"
    text = json.dumps(model, indent=1)
    for old, new in (("lm_head.weight", "-.-"), ("model.norm.weight", "..int"), ("embed_tokens", "a-.b"),
                     ("mlp.up_proj", "-")):
        text = text.replace(old, new)
    for old, new in (("h", "int"), ("f", "NULL"), ("g", "main")):
        text = re.sub(rf'"{old}"(?=[\],:\n])', f'"{new}"', text)
    path = seeds.save(bench.at("names.json"), text)
    bench.must("plan", path, "host", "--gpus", "1", "--global-batch", "2", "--seq", "8", "--recipe", "fp32",
               "-q", "-o", bench.at("names-plan.json"))
    bench.must("prove", bench.at("names-plan.json"), "--no-mutations", "-q")
    bench.must("build", bench.at("names-plan.json"), "-o", bench.at("names"), "-q", CC=bench.plain)
    done = subprocess.run([bench.at("names/trainer"), "--data", "random", "--steps", "1", "--quiet", "--log",
                           bench.at("names-log")], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr[:2000]


def test_texts(bench):
    """Texts of a plan that nothing reads do not reach the emitted files."""
    plan = json.loads(seeds.read(bench.at("plan-alone.json")))
    hostile = json.loads(f'"{cases.WORDS}"') + "\n#error reached\n" + "%s%n"
    plan["pins"] = hostile
    plan["predicted"] = {hostile: hostile}
    plan["cluster"]["notes"] = [hostile]
    plan["cluster"]["device"]["notes"] = [hostile]
    path = seeds.save(bench.at("texts.json"), json.dumps(plan))
    bench.must("build", path, "-o", bench.at("texts"), "-q", "--no-compile")
    for root, _, names in os.walk(bench.at("texts")):
        for name in names:
            with open(os.path.join(root, name), encoding="utf-8") as file:
                text = file.read()
            for trace in ("system(", "??/", "#error reached", "%n"):
                assert trace not in text, (name, trace)


def rows_of(bench):
    def weights(make, words):
        told = bench.run("--data", "random", "--steps", "1", "--init", make(bench))
        assert re.search(words, told), f"no {words!r} in {told[:600]!r}"

    def data(make, words):
        told = bench.run("--data", make(bench), "--steps", "8")
        assert re.search(words, told), f"no {words!r} in {told[:600]!r}"

    def resume(make, words):
        told = bench.run("--data", "random", "--steps", "4", "--resume", make(bench))
        assert re.search(words, told), f"no {words!r} in {told[:600]!r}"

    def option(key, value):
        told = bench.run("--data", "random", key, value, code=2)
        assert key in told or value in told, told

    yield from ((f"weights: {name}", weights, (make, words)) for name, make, words in WEIGHTS)
    yield from ((f"data: {name}", data, (make, words)) for name, make, words in DATA)
    yield from ((f"checkpoint: {name}", resume, (make, words)) for name, make, words in RESUME)
    yield from ((f"option: {key} {value}", option, (key, value)) for key, value in OPTIONS)
    def outputs(key, path, words):
        """Said before a run that would not end."""
        told = bench.run("--data", "random", "--steps", str(10**9), key, bench.at(path))
        assert re.search(words, told), f"no {words!r} in {told[:600]!r}"

    yield "a folder for weights", outputs, ("--save", "job", "no file that weights may replace")
    yield "no folder for weights", outputs, ("--save", "gone/weights", "gone/: No such file")
    yield "a file for checkpoints", outputs, ("--checkpoint", "good.safetensors/x", "Not a directory")
    yield "names that are words of C", lambda: test_names(bench), ()
    yield "texts of a plan stay out of its trainer", lambda: test_texts(bench), ()


def main():
    failed = number = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, body, arguments in rows_of(Bench(os.path.abspath(sys.argv[1]), folder)):
            number += 1
            try:
                body(*arguments)
                print(f"ok {number} - {name}")
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failed += 1
                print("".join(f"# {row}\n" for row in str(error).splitlines()), end="")
                print(f"not ok {number} - {name}")
            sys.stdout.flush()
    print(f"1..{number}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
