#!/usr/bin/env python3
"""words.py - no words of unfinished work, and a first line that says what the file is."""
import os
import re

import tree

# Written in pieces, so that the lint passes its own check.
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
FIRST_LINE = {
    ".c": r"/\* {name} - ",
    ".h": r"/\* {name} - ",
    ".cu": r"/\* {name} - ",
    ".cuh": r"/\* {name} - ",
    ".def": r"/\* {name} - ",
}


def main():
    findings = []
    paths = tree.files(tree.ALL_TEXT + (".md",))
    for path in paths:
        lines = tree.read(path).splitlines()
        for number, line in enumerate(lines, 1):
            for match in UNFINISHED.finditer(line):
                findings.append(f"{path}:{number}: unfinished work: {match.group(1)}")
        name = os.path.basename(path)
        wanted = FIRST_LINE.get(os.path.splitext(name)[1])
        if wanted and (not lines or not re.match(wanted.format(name=re.escape(name)), lines[0])):
            findings.append(f"{path}:1: the first line is /* {name} - what it is. */")
    tree.end(findings, len(paths))


if __name__ == "__main__":
    main()
