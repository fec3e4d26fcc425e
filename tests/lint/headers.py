#!/usr/bin/env python3
"""headers.py - every header compiles alone: headers.py COMPILER BUILD_FOLDER. Exit 77 where there is
no such compiler. Headers that the build makes are found in the build folder."""
import os
import shutil
import subprocess
import sys
import tempfile

import tree

# Templates are text for OpenMP: without it their pragmas say nothing and their `threads` is unused.
FLAGS = ["-std=c11", "-D_XOPEN_SOURCE=700", "-Wall", "-Wextra", "-Werror", "-Wvla", "-fsyntax-only",
         "-Wno-unused-function", "-Wno-unused-parameter", "-Wno-unknown-pragmas"]


def main():
    compiler, build = sys.argv[1], sys.argv[2]
    if not shutil.which(compiler):
        print(f"skipped: no {compiler} here")
        sys.exit(77)
    paths = [path for path in tree.files((".h",)) if not path.startswith(("templates/cuda/",))]
    # One unit a header, all in one call: a header that needs another one cannot hide behind it.
    with tempfile.TemporaryDirectory() as folder:
        units = {}
        for number, path in enumerate(paths):
            unit = os.path.join(folder, f"h{number}.c")
            with open(unit, "w", encoding="utf-8") as file:
                file.write(f'#include "{path}"\n#include "{path}"\nextern int lint_unit;\n')
            units[unit] = path
        run = subprocess.run([compiler, *FLAGS, "-I", tree.ROOT, "-I", build, *units],
                             capture_output=True, text=True, check=False)
    findings = [line for line in run.stderr.splitlines() if ": error:" in line]
    if run.returncode and not findings:
        findings = [run.stderr.strip()]
    tree.end(findings, len(paths))


if __name__ == "__main__":
    main()
