#!/usr/bin/env python3
# count_results.py - adds up meson's test logs: python3 count_results.py BUILT NOT_BUILT LOG...
# A test that speaks TAP counts once for each of its lines, any other test once. A log that is not
# there is a failure: nothing may pass by not running.
#
#     count_results.py --unsteady LOG    names of the failed tests that start MPI jobs
#
# A table in the comments of a test (`# table: title`, lines that begin with `# `) is shown before the count: of
# several with one title the one with most rows that ran.
#
# Failed MPI jobs are tried once more, alone, into again.json beside the log: a dozen processes on a busy machine
# may starve each other. What the second try says counts, and the first is shown: a test that is
# named here twice has a fault.
import json
import pathlib
import re
import sys

SAID_LINES = 12  # of a failed test: the end of a long log is what a reader sees first
GOOD = {"OK", "EXPECTEDFAIL"}
TAP_LINE = re.compile(r"^(not )?ok \d+", re.MULTILINE)
TABLE = re.compile(r"^# table: (.*)\n((?:# .*\n)+)", re.MULTILINE)
TABLE_RAN = re.compile(r" \d+/\d+ ")
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


def records_of(path):
    with open(path, encoding="utf-8") as log:
        return [json.loads(line) for line in log if line.strip()]


def is_job(record):
    return "mpi" in re.split(r"[^a-z]", record["name"].split(" / ")[0])


def say(path, record, word):
    said = (record.get("stdout") or "") + (record.get("stderr") or "")
    for line in said.splitlines()[-SAID_LINES:]:
        print(f"    {line[:200]}")
    print(f"{word}: {path.split('/')[0]}: {record['name']} ({record['result']})")


def put_tables(record, tables):
    """Keeps the tables of a test by their titles."""
    for match in TABLE.finditer(record.get("stdout") or ""):
        rows = match.group(2)
        ran = len(TABLE_RAN.findall(rows))
        if ran >= tables.get(match.group(1), (0, ""))[0]:
            tables[match.group(1)] = ran, rows


def main():
    if sys.argv[1] == "--unsteady":
        print(*{record["name"].split(" / ")[-1] for record in records_of(sys.argv[2])
                if count_test(record)[1] and is_job(record)})
        return 0
    passed, failed = int(sys.argv[1]), int(sys.argv[2])
    skipped, tables = [], {}
    for path in sys.argv[3:]:
        try:
            records = records_of(path)
        except OSError as error:
            print(f"FAILED: no test log: {error}")
            failed += 1
            continue
        if not records:
            print(f"FAILED: no test ran: {path}")
            failed += 1
        second = pathlib.Path(path).with_name("again.json")
        again = {one["name"]: one for one in records_of(second)} if second.exists() else {}
        for record in records:
            if record["name"] in again and count_test(record)[1]:
                say(path, record, "unsteady, tried again")
                record = again[record["name"]]
            put_tables(record, tables)
            good, bad, left_out = count_test(record)
            passed += good
            failed += bad
            if bad:
                say(path, record, "FAILED")
            if left_out:
                skipped.append(record["name"])
    for title, (_, rows) in tables.items():
        print(f"\n{title}")
        print(re.sub(r"^# ", "  ", rows, flags=re.MULTILINE))
    if skipped:
        print("skipped: " + ", ".join(sorted(set(skipped))))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
