#!/usr/bin/env python3
"""techniques.py - the general passes ask for no technique and no model family: they are recognised, not coded.

In ir/lower, planner and codegen: no family's name and no technique's in code, be it an identifier or a
string; comments may name them. What asked for a technique is asked by the planner alone: ir/lower and codegen
read no pin. techniques_allowed.txt holds the files whose job is those names (importers,
generators of schedules, words of reports)."""
import re

import tree

FAMILIES = ("llama|gpt|mixtral|deepseek|qwen|gemma|mistral|falcon|bloom|baichuan|olmo|mamba|bert|"
            "nemotron|phi")
TECHNIQUES = ("zero_?[123]|zero_?stage|fsdp|hsdp|mics|ddp|megatron|deepspeed|torchtitan|ulysses|moe|mla|"
              "flash|swiglu|gpipe|1f1b|zbh1|zbv|zb_h1|zb_v|dualpipev?|pipedream|ring_attention|"
              "vocab_parallel|sequence_parallel|tensor_parallel|expert_parallel|column_parallel|row_parallel")
# `interleaved` is left out: pairs that rope turns are called so too.
# A digit or the end of a word may stand behind; letters may not: `graph` is no `gpt`.
NAMES = re.compile(rf"(?<![A-Za-z0-9])({FAMILIES}|{TECHNIQUES})(?![a-z])", re.IGNORECASE)
PINS = re.compile(r"\b(Pins?|pins?_\w+|pins)\b|(?<=->)zero\b|(?<=\.)zero\b")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include.*$", re.MULTILINE)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def main():
    exceptions = tree.allowed("techniques_allowed.txt")
    findings, used = [], set()
    paths = [path for folder in ("ir/lower", "planner", "codegen")
             for path in tree.files((".c", ".h", ".def"), folder)]
    for path in paths:
        code = INCLUDE.sub(blank, COMMENT.sub(blank, tree.read(path)))
        found = [(match.start(), match.group(0)) for match in NAMES.finditer(code)]
        if not path.startswith("planner/"):
            findings += [f"{path}:{code.count(chr(10), 0, match.start()) + 1}: reads the pin {match.group(0)}"
                         for match in PINS.finditer(code)]
        excused = tree.allowed_by(path, exceptions)
        if excused:
            used |= excused if found else set()
            continue
        for start, what in found:
            findings.append(f"{path}:{code.count(chr(10), 0, start) + 1}: names {what}")
    for path in sorted(set(exceptions) - used):
        findings.append(f"tests/lint/techniques_allowed.txt:1: {path} needs no exception")
    tree.end(findings, len(paths))


if __name__ == "__main__":
    main()
