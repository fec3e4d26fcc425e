#!/usr/bin/env python3
"""Prints a C table {path, text} of files under a root: usage OUT.c ROOT PATH... (a folder stands for its .h files).

Paths in the table are relative to the root.
"""
import pathlib
import sys


def c_lines(text):
    for line in text.splitlines():
        yield '        "' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"'


def main(out, root, *names):
    root = pathlib.Path(root).resolve()
    paths = set()
    for name in names:
        path = pathlib.Path(name).resolve()
        paths |= set(path.glob("*.h")) if path.is_dir() else {path}
    body = ["/* Made from %s/ by scripts/embed_files.py. */" % root.name, '#include "codegen/files.h"', ""]
    body.append("const EmbeddedFile embedded_files[] = {")
    for path in sorted(paths):
        body += ['    {"%s",' % path.relative_to(root).as_posix(), *c_lines(path.read_text(encoding="utf-8")), "    },"]
    body += ["};", "const int embedded_file_count = %d;" % len(paths)]
    pathlib.Path(out).write_text("\n".join(body) + "\n", encoding="utf-8")


main(*sys.argv[1:])
