#!/usr/bin/env python3
"""includes.py - who may see whom (DESIGN 2): includes from the root, own header first, folders in
their order. The table is the rule; a folder that is not in it may include nothing of ours."""
import os
import re

import tree

# The longest prefix of a file's folder picks its row.
MAY_INCLUDE = {
    "ir/base": ["ir/base/"],
    # A plan is data about placements, so that one header of the room above is in reach.
    "ir": ["ir/base/", "ir/*", "ir/lower/place.h", "ir/lower/schedule.h"],
    "ir/lower": ["ir/"],
    "planner": ["ir/", "planner/"],
    "codegen": ["ir/", "codegen/", "templates/templates.h"],
    "templates": ["templates/"],
    "runtime": ["runtime/"],
    "tests": ["ir/", "planner/", "codegen/", "templates/", "runtime/", "tests/"],
    "bench": ["runtime/", "templates/"],
    "": ["ir/", "planner/", "codegen/"],
}
# What the compiler needs and a trainer must not: runtime sees system headers of its own only.
RUNTIME_FORBIDS = {"jansson.h", "cmocka.h", "clang-c/Index.h"}
QUOTED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]*)"', re.MULTILINE)
ANGLED = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<([^>]*)>", re.MULTILINE)


def row_of(path):
    folder = os.path.dirname(path)
    while folder not in MAY_INCLUDE:
        folder = os.path.dirname(folder)
    return folder


def may(folder, included):
    for pattern in MAY_INCLUDE[folder]:
        if pattern.endswith("/*") and os.path.dirname(included) == pattern[:-2]:
            return True
        if included == pattern or (pattern.endswith("/") and included.startswith(pattern)):
            return True
    return False


def generated():
    """Headers that the build makes: named by a meson.build, not in the tree."""
    text = "".join(tree.read(path) for path in tree.files(("meson.build",)))
    return set(re.findall(r"'([\w.]+\.h)'", text))


def own_header(path):
    header = os.path.splitext(path)[0] + ".h"
    return header if path.endswith(".c") and os.path.exists(os.path.join(tree.ROOT, header)) else None


def findings_of(path, made):
    text = tree.read(path)
    folder = row_of(path)
    found = []

    def report(match, what):
        found.append(f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {what}")

    first = True
    for match in QUOTED.finditer(text):
        included = match.group(1)
        there = os.path.exists(os.path.join(tree.ROOT, included))
        if not there and os.path.basename(included) not in made:
            report(match, f'"{included}" is not a path from the root')
        elif not may(folder, included):
            report(match, f'{folder or "the root"} may not include "{included}"')
        if first and own_header(path) and included != own_header(path):
            report(match, f'the own header "{own_header(path)}" comes first')
        first = False
    for match in ANGLED.finditer(text):
        if folder == "runtime" and match.group(1) in RUNTIME_FORBIDS:
            report(match, f"a trainer does not have <{match.group(1)}>")
    if first and own_header(path):
        found.append(f'{path}:1: does not include its own header "{own_header(path)}"')
    return found


def main():
    paths = [path for path in tree.files(tree.C_LIKE) if not path.startswith("examples/")]
    made = generated()
    tree.end([finding for path in paths for finding in findings_of(path, made)], len(paths))


if __name__ == "__main__":
    main()
