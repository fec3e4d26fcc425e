#!/usr/bin/env python3
"""names.py - the general passes ask no op and no parameter for its name: the table's columns decide.

In ir/lower, planner and codegen: no OP_X of a row of ops.def, and no string that is the text of a row or a
parameter's name (codegen prints C, in which such texts are words: only ids and parameters there).
names_allowed.txt holds the files whose job is those names (importers, what prints single ops)."""
import re

import tree

ROW = re.compile(r'^OP\((\w+),\s*"(\w+)"', re.MULTILINE)
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
PARAMETER = re.compile(r"(^|\.)(w?[qkvo]_proj|w[qkvo]|(gate|up|down|gate_up|qkv|c_attn|c_fc|c_proj)"
                       r"(_proj)?|lm_head|embed_tokens|wte|wpe|(input|post_attention)_layernorm)"
                       r"(\.|$)")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include.*$", re.MULTILINE)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def main():
    rows = ROW.findall(tree.read("ir/ops.def"))
    ids = re.compile(r"\bOP_(" + "|".join(row[0] for row in rows) + r")\b")
    texts = {row[1] for row in rows}
    exceptions = tree.allowed("names_allowed.txt")
    findings, used = [], set()
    paths = [path for folder in ("ir/lower", "planner", "codegen")
             for path in tree.files((".c", ".h"), folder)]
    for path in paths:
        code = INCLUDE.sub(blank, COMMENT.sub(blank, tree.read(path)))
        found = [(match.start(), match.group(0)) for match in ids.finditer(code)]
        for match in STRING.finditer(code):
            is_text = match.group(1) in texts and not path.startswith("codegen/")
            if is_text or PARAMETER.search(match.group(1)):
                found.append((match.start(), match.group(0)))
        excused = tree.allowed_by(path, exceptions)
        if excused:
            used |= excused if found else set()
            continue
        for start, what in sorted(found):
            findings.append(f"{path}:{code.count(chr(10), 0, start) + 1}: asks for the name {what}")
    for path in sorted(set(exceptions) - used):
        findings.append(f"tests/lint/names_allowed.txt:1: {path} needs no exception")
    tree.end(findings, len(paths) if rows else 0)


if __name__ == "__main__":
    main()
