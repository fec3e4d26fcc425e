#!/usr/bin/env python3
"""test_lint.py - each lint finds what it is for: planted faults in a copy of a small tree."""
import os
import shutil
import subprocess
import sys
import tempfile

import tree

HERE = os.path.dirname(os.path.abspath(__file__))
GOOD = {
    "ir/ops.def": '/* ops.def - ops. */\nOP(ADD, "add", "A,A->A")\n',
    "ir/base/arena.h": "/* arena.h - memory. */\n#ifndef A_H\n#define A_H\n#endif\n",
    "ir/base/arena.c": '/* arena.c - memory. */\n#include "ir/base/arena.h"\n',
    "ir/graph.h": '/* graph.h - a graph. */\n#ifndef G_H\n#define G_H\n#include "ir/base/arena.h"\n'
                  "#endif\n",
    "ir/lower/place.c": '/* place.c - places. */\n#include "ir/graph.h"\n',
    "planner/price.c": '/* price.c - prices. */\n#include "ir/graph.h"\n',
    "codegen/emit.c": '/* emit.c - prints. */\n#include "ir/graph.h"\n',
    "runtime/lp.h": "/* lp.h - trainers. */\n#ifndef L_H\n#define L_H\n#endif\n",
    "runtime/core.c": '/* core.c - starts. */\n#include "runtime/lp.h"\n',
    "meson.build": "project('x')\n",
}
# (lint, path, text that is added at the end, what it must say; None: it must stay silent)
FAULTS = [
    ("includes", "planner/price.c", '#include "codegen/emit.h"\n', "not a path from the root"),
    ("includes", "planner/price.c", '#include "runtime/lp.h"\n', "planner may not include"),
    ("includes", "codegen/emit.c", '  #  include "runtime/lp.h"\n', "codegen may not include"),
    ("includes", "runtime/core.c", '#include "ir/graph.h"\n', "runtime may not include"),
    ("includes", "runtime/core.c", "#include <jansson.h>\n", "a trainer does not have"),
    ("includes", "ir/base/arena.c", '#include "ir/graph.h"\n', "ir/base may not include"),
    ("includes", "ir/graph.h", '#include "ir/lower/place.c"\n', "ir may not include"),
    ("includes", "ir/graph.c", '/* graph.c - g. */\n#include "ir/base/arena.h"\n', "comes first"),
    ("includes", "ir/graph.c", "/* graph.c - g. */\nint x;\n", "does not include its own header"),
    ("includes", "ir/base/arena.c", '#include "arena.h"\n', "not a path from the root"),
    ("size", "planner/price.c", "int x;\n" * 599, "601 lines"),
    ("size", "planner/price.c", "int x;\n" * 598, None),
    ("size", "planner/price.c", "int x; \n", "blanks at the end"),
    ("size", "planner/price.c", "\tint x;\n", "a tab"),
    ("size", "planner/price.c", "int x;", "no newline"),
    ("size", "planner/price.c", "int " + "x" * 100 + ";\n", "105 columns"),
    ("words", "planner/price.c", "/* TO" + "DO later */\n", "unfinished work"),
    ("words", "planner/price.c", "/* FIX" + "ME */\n", "unfinished work"),
    ("words", "planner/new.c", "int x;\n", "the first line is"),
    ("words", "planner/new.c", "/* old.c - renamed. */\n", "the first line is"),
    ("names", "ir/lower/place.c", 'int f(void) { return is("add"); }\n', 'the name "add"'),
    ("names", "ir/lower/place.c", "int f(int op) { return op == OP_ADD; }\n", "the name OP_ADD"),
    ("names", "planner/price.c", 'int f(void) { return is("model.q_proj"); }\n', "q_proj"),
    ("names", "planner/price.c", '/* OP_ADD and "add" */ int f(void) { return OP_COUNT; }\n', None),
    ("names", "codegen/emit.c", "int f(int op) { return op == OP_ADD; }\n", "the name OP_ADD"),
    ("techniques", "ir/lower/place.c", 'int f(void) { return is("fsdp"); }\n', "names fsdp"),
    ("techniques", "ir/lower/place.c", "int f(int zero_stage) { return zero_stage; }\n", "zero_stage"),
    ("techniques", "planner/price.c", "int f(int zero3) { return zero3; }\n", "names zero3"),
    ("techniques", "codegen/emit.c", "enum { MODEL_LLAMA2 };\n", "names LLAMA"),
    ("techniques", "codegen/emit.c", "int is_moe(void);\n", "names moe"),
    ("techniques", "codegen/emit.c", 'int f(void) { return is("qwen2"); }\n', "names qwen"),
    ("techniques", "codegen/emit.c", "int f(const Choice *c) { return c->zero == 3; }\n", "the pin zero"),
    ("techniques", "ir/lower/place.c", "int f(const Pins *p) { return p->ep > 1; }\n", "the pin Pins"),
    ("techniques", "planner/price.c", "int f(const Pins *p) { return p->zero == 3; }\n", None),
    ("techniques", "codegen/emit.c", "/* as in Megatron; zero pins */\n", None),
    ("techniques", "tests/lint/techniques_allowed.txt", "planner/p*: it needs no exception\n",
     "needs no exception"),
    ("names", "tests/lint/names_allowed.txt", "planner/p*: it needs no exception\n",
     "needs no exception"),
    ("size", "tests/lint/size_allowed.txt", "planner/p*: it needs no exception\n",
     "needs no exception"),
    ("size", "tests/lint/size_allowed.txt", "planner/price.c:\n", "needs its reason"),
    ("format", "planner/price.c", "int  x;\n", "not formatted"),
    ("headers", "ir/graph.h", "size_t length(void);\n", "size_t"),
]


def plant(folder, path, text):
    full = os.path.join(folder, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "a", encoding="utf-8") as file:
        file.write(text)


def run(folder, lint):
    lints = os.path.join(folder, "tests/lint")
    arguments = ["gcc", folder] if lint == "headers" else []
    result = subprocess.run([sys.executable, os.path.join(lints, lint + ".py"), *arguments],
                            capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + result.stderr


def fresh(folder):
    lints = os.path.join(folder, "tests/lint")
    os.makedirs(lints)
    for name in os.listdir(HERE):
        if name.endswith(".py") and name != "test_lint.py":
            shutil.copy(os.path.join(HERE, name), lints)
    for name in ("size_allowed.txt", "names_allowed.txt", "techniques_allowed.txt"):
        plant(folder, f"tests/lint/{name}", "# path: reason\n")
    shutil.copy(os.path.join(tree.ROOT, ".clang-format"), folder)
    for path, text in GOOD.items():
        plant(folder, path, text)


def check(number, name, good, output):
    print(f"{'ok' if good else 'not ok'} {number} - {name}")
    if not good:
        print("".join(f"# {line}\n" for line in output.splitlines()))
    return good


def main():
    good, number = True, 0
    with tempfile.TemporaryDirectory() as folder:
        fresh(folder)
        for lint in sorted({fault[0] for fault in FAULTS}):
            number += 1
            code, output = run(folder, lint)
            good &= check(number, f"{lint} is silent about a good tree", code in (0, 77), output)
    for lint, path, text, says in FAULTS:
        number += 1
        with tempfile.TemporaryDirectory() as folder:
            fresh(folder)
            plant(folder, path, text)
            code, output = run(folder, lint)
        caught = code == 0 if says is None else code == 1 and says in output
        good &= check(number, f"{lint}: {says or 'no false alarm'}", caught or code == 77, output)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
