#!/usr/bin/env python3
"""test_bad_inputs.py - every broken model, cluster and plan is refused where it is wrong, with a remedy, in
time, and without touching memory that is not its own. Speaks TAP.

    test_bad_inputs.py LPLAN [WORD]     only cases whose name has the word"""
import os
import re
import subprocess
import sys
import tempfile

import cases
import seeds

LIMIT_S = 20
MEMORY_KIB = 1 << 20
SEED = {"model": "llama", "cluster": "host", "plan": "sp2"}
SANITIZED = re.compile(r"Sanitizer|runtime error:")


def command(lplan, kind, path, folder):
    model, job = os.path.join(folder, "model-llama.json"), ["--gpus", "4", "--global-batch", "4", "--seq", "8"]
    return {"model": [lplan, "plan", path, "host", *job, "-q"],
            "cluster": [lplan, "plan", model, path, "--global-batch", "4", "--seq", "8", "-q"],
            "plan": [lplan, "prove", path, "--no-mutations"]}[kind]


def sanitized(lplan):
    """Address space is no measure under a sanitizer, which reserves terabytes."""
    with open(lplan, "rb") as file:
        return b"__asan_init" in file.read()


def run(arguments, limited):
    shell = ["sh", "-c", f'ulimit -v {MEMORY_KIB}; exec "$@"', "sh"] if limited else []
    return subprocess.run([*shell, *arguments], capture_output=True, check=False, timeout=LIMIT_S,
                          stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C", "ASAN_OPTIONS":
                                                         "max_allocation_size_mb=1024:hard_rss_limit_mb=2048"})


def broken(seed, edit, mark):
    """The bytes of the broken file, and the lines that may be blamed (None: any)."""
    if callable(edit):
        made = edit(seed)
        return made if isinstance(made, bytes) else made.encode("utf-8"), None
    old, new = edit
    assert old in seed, f"the seed lacks {old!r}"
    at = seed.index(old)
    text = seed[:at] + new + seed[at + len(old):]
    first = text.count("\n", 0, text.index(mark) if mark else at) + 1
    return text.encode("utf-8"), range(first, first + (1 if mark else new.count("\n") + 1))


def check(result, path, lines, words):
    told = result.stderr.decode("utf-8")
    assert not SANITIZED.search(told), told[:3000]
    assert result.returncode == 1, (result.returncode, told[:1000])
    first = told.splitlines()[0]
    where = re.fullmatch(re.escape(path) + r":(\d+):(\d+): error: (.*)", first)
    assert where, f"no place: {first[:300]}"
    assert lines is None or int(where.group(1)) in lines, f"line {lines[0]} expected: {first[:300]}"
    assert re.search(words, told), f"no {words!r} in {told[:600]}"
    assert "  help: " in told or "expected" in first or "missing key" in first, f"no remedy: {told[:400]}"
    assert len(told) < 8000 and not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", told), told[:400]
    assert result.stdout == b"", result.stdout[:300]


def main():
    lplan = os.path.abspath(sys.argv[1])
    limited = not sanitized(lplan)
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    rows = [(kind, *row) for kind, table in (("model", cases.MODEL), ("cluster", cases.CLUSTER),
                                             ("plan", cases.PLAN))
            for row in table if wanted in row[0]]
    failed = 0
    print(f"1..{len(rows)}")
    with tempfile.TemporaryDirectory() as folder:
        good = seeds.make(lplan, folder)
        for number, (kind, name, edit, words, *mark) in enumerate(rows, 1):
            path = os.path.join(folder, "broken.json")
            try:
                text, lines = broken(good[kind][SEED[kind]], edit, mark[0] if mark else None)
                with open(path, "wb") as file:
                    file.write(text)
                check(run(command(lplan, kind, path, folder), limited), path, lines, words)
                print(f"ok {number} - {kind}: {name}")
            except (AssertionError, UnicodeDecodeError, subprocess.TimeoutExpired) as error:
                failed += 1
                print("".join(f"# {row}\n" for row in str(error).splitlines()), end="")
                print(f"not ok {number} - {kind}: {name}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
