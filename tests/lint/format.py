#!/usr/bin/env python3
"""format.py - clang-format has nothing to change. Exit 77 (skipped) where it is not installed."""
import re
import shutil
import subprocess
import sys

import tree

LINE = re.compile(r"^(.+?):(\d+):\d+: error: code should be clang-formatted")


def main():
    tool = shutil.which("clang-format")
    if not tool:
        print("skipped: clang-format is not installed")
        sys.exit(77)
    paths = tree.files((".c", ".h", ".cu", ".cuh"))
    run = subprocess.run([tool, "--dry-run", "-Werror", *paths], cwd=tree.ROOT,
                         capture_output=True, text=True, check=False)
    findings = {}
    for line in run.stderr.splitlines():
        match = LINE.match(line)
        if match:
            findings.setdefault(match.group(1), f"{match.group(1)}:{match.group(2)}: not formatted; "
                                f"run clang-format -i {match.group(1)}")
    if run.returncode and not findings:
        findings["tool"] = run.stderr.strip()
    tree.end(list(findings.values()), len(paths))


if __name__ == "__main__":
    main()
