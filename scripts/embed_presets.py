#!/usr/bin/env python3
"""Prints a C table {name, text} of JSON files, so that presets work from any folder."""
import pathlib
import sys


def c_lines(text):
    for line in text.splitlines():
        yield '        "' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"'


def main(out, *paths):
    body = ["/* Made from examples/clusters by scripts/embed_presets.py. */", '#include "ir/cluster_preset.h"', ""]
    body.append("const ClusterPreset cluster_presets[] = {")
    for path in sorted(paths):
        text = pathlib.Path(path).read_text(encoding="utf-8")
        body += ['    {"%s",' % pathlib.Path(path).stem, *c_lines(text), "    },"]
    body += ["};", "const int cluster_preset_count = %d;" % len(paths)]
    pathlib.Path(out).write_text("\n".join(body) + "\n", encoding="utf-8")


main(*sys.argv[1:])
