#!/usr/bin/env python3
"""size.py - a file past 600 lines wants to be two ideas; size_allowed.txt says which need not."""
import tree

LIMIT = 600
COLUMNS = 100


def main():
    exceptions = tree.allowed("size_allowed.txt")
    findings, used = [], set()
    paths = tree.files(tree.C_LIKE + (".py", ".sh"))
    for path in paths:
        text = tree.read(path)
        lines = text.splitlines()
        excused = tree.allowed_by(path, exceptions)
        if len(lines) > LIMIT:
            used |= excused
        if len(lines) > LIMIT and not excused:
            findings.append(f"{path}:1: {len(lines)} lines, of at most {LIMIT}")
        if text and not text.endswith("\n"):
            findings.append(f"{path}:{len(lines)}: no newline at the end")
        for number, line in enumerate(lines, 1):
            if "\t" in line and not path.endswith((".py", ".sh")):
                findings.append(f"{path}:{number}: a tab")
            if line != line.rstrip():
                findings.append(f"{path}:{number}: blanks at the end of the line")
            # Tables (.def) and long texts in scripts may be wider.
            if len(line) > COLUMNS and path.endswith((".c", ".h")) and '"' not in line:
                findings.append(f"{path}:{number}: {len(line)} columns, of at most {COLUMNS}")
    for path in sorted(set(exceptions) - used):
        findings.append(f"tests/lint/size_allowed.txt:1: {path} needs no exception")
    tree.end(findings, len(paths))


if __name__ == "__main__":
    main()
