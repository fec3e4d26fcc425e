#!/usr/bin/env python3
# count_results.py - adds up meson's test logs: python3 count_results.py BUILT NOT_BUILT LOG...
# A test that speaks TAP counts once for each of its lines, any other test once. A log that is not
# there is a failure: nothing may pass by not running.
import json
import re
import sys

SAID_LINES = 12  # of a failed test: the end of a long log is what a reader sees first
GOOD = {"OK", "EXPECTEDFAIL"}
TAP_LINE = re.compile(r"^(not )?ok \d+", re.MULTILINE)
TAP_SKIP = re.compile(r"^ok \d+.*# SKIP", re.MULTILINE | re.IGNORECASE)


def count_test(record):
    """(passed, failed, skipped) of one line of testlog.json."""
    lines = TAP_LINE.findall(record.get("stdout") or "")
    failed = sum(1 for line in lines if line)
    skipped = len(TAP_SKIP.findall(record.get("stdout") or ""))
    passed = len(lines) - failed - skipped
    if record["result"] == "SKIP":
        return 0, 0, 1
    if record["result"] in GOOD:
        return (passed, 0, skipped) if lines else (1, 0, 0)
    return passed, max(failed, 1), skipped


def main():
    passed, failed = int(sys.argv[1]), int(sys.argv[2])
    skipped = []
    for path in sys.argv[3:]:
        try:
            with open(path, encoding="utf-8") as log:
                records = [json.loads(line) for line in log if line.strip()]
        except OSError as error:
            print(f"FAILED: no test log: {error}")
            failed += 1
            continue
        if not records:
            print(f"FAILED: no test ran: {path}")
            failed += 1
        for record in records:
            good, bad, left_out = count_test(record)
            passed += good
            failed += bad
            if bad:
                said = (record.get("stdout") or "") + (record.get("stderr") or "")
                for line in said.splitlines()[-SAID_LINES:]:
                    print(f"    {line[:200]}")
                print(f"FAILED: {path.split('/')[0]}: {record['name']} ({record['result']})")
            if left_out:
                skipped.append(record["name"])
    if skipped:
        print("skipped: " + ", ".join(sorted(set(skipped))))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
