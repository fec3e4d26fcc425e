#!/usr/bin/env python3
"""test_count_results.py - the count of run_all.sh: nothing may pass by not running."""
import json
import os
import subprocess
import sys
import tempfile

import tree

COUNTER = os.path.join(tree.ROOT, "tests/count_results.py")
TAP = "1..3\nok 1 - a\n# ok 9 in a comment\nok 2 - b # SKIP no gpu\nnot ok 3 - c\n"
# (what, records of the log or None for no log, arguments before it, last line, exit code)
CASES = [
    ("plain", [("a", "OK", ""), ("b", "OK", "some text")], (0, 0), "2 passed, 0 failed", 0),
    ("builds count", [("a", "OK", "")], (3, 0), "4 passed, 0 failed", 0),
    ("a failed build", [("a", "OK", "")], (2, 1), "3 passed, 1 failed", 1),
    ("lines of TAP", [("a", "OK", TAP.replace("not ", ""))], (0, 0), "2 passed, 0 failed", 0),
    ("a failed line", [("a", "FAIL", TAP)], (0, 0), "1 passed, 1 failed", 1),
    ("a crash after good lines", [("a", "FAIL", "ok 1 - a\n")], (0, 0), "1 passed, 1 failed", 1),
    ("a timeout", [("a", "TIMEOUT", "")], (1, 0), "1 passed, 1 failed", 1),
    ("an error", [("a", "ERROR", "")], (1, 0), "1 passed, 1 failed", 1),
    ("a skip is neither", [("a", "SKIP", ""), ("b", "OK", "")], (0, 0), "1 passed, 0 failed", 0),
    ("only skips", [("a", "SKIP", "")], (0, 0), "0 passed, 0 failed", 1),
    ("an empty log", [], (5, 0), "5 passed, 1 failed", 1),
    ("no log", None, (5, 0), "5 passed, 1 failed", 1),
]


TABLE = "ok 1 - x\n# table: bugs\n# id\n# T01 {0}/{0} b\n# 1 live\nok 2 - y\n"


def count(records, builds):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "testlog.json")
        if records is not None:
            with open(path, "w", encoding="utf-8") as file:
                for name, result, stdout in records:
                    file.write(json.dumps({"name": name, "result": result, "stdout": stdout}) + "\n")
        result = subprocess.run([sys.executable, COUNTER, *map(str, builds), path],
                                capture_output=True, text=True, check=False)
    return result.stdout.splitlines()[-1], result.returncode, result.stdout


def main():
    failed = False
    for number, (what, records, builds, line, code) in enumerate(CASES, 1):
        got = count(records, builds)[:2]
        good = got == (line, code)
        failed |= not good
        print(f"{'ok' if good else 'not ok'} {number} - {what}")
        if not good:
            print(f"# {got} instead of {(line, code)}")
    shown = count([("a", "OK", TABLE.format(1)), ("b", "OK", TABLE.format(2)), ("c", "OK", TABLE.format("-"))],
                  (0, 0))[2]
    good = shown.count("bugs") == 1 and "T01 2/2 b" in shown and "T01 1/1" not in shown
    failed |= not good
    print(f"{'ok' if good else 'not ok'} {len(CASES) + 1} - the fullest table of a title is shown, before the count")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
