#!/usr/bin/env python3
"""cached_cc.py - a compiler for `lplan build` that compiles the runtime once for many trainers.

    CC="python3 cached_cc.py" LPLAN_E2E_CACHE=DIR lplan build ...

The command of a trainer's build.sh is taken apart: one object per source, with the very flags that it
gives. Objects of runtime/ are kept in DIR under a hash of the command, the compiler and every file of
runtime/; trainer.c is compiled each time, with LPLAN_E2E_FLAGS behind its flags (-Og where many trainers
of tiny models are compiled). Any other command goes to the compiler as it is."""
import hashlib
import os
import pathlib
import subprocess
import sys

CC = os.environ.get("LPLAN_E2E_CC", "cc")


def run(*command):
    code = subprocess.run(command, check=False).returncode
    if code:
        sys.exit(code)


def runtime_hash(flags):
    text = hashlib.sha256("\0".join([CC, *flags]).encode())
    text.update(subprocess.run([CC, "--version"], capture_output=True, check=False).stdout)
    for path in sorted(pathlib.Path("runtime").rglob("*.[ch]")):
        text.update(str(path).encode() + b"\0" + path.read_bytes())
    return text.hexdigest()[:24]


def main():
    arguments = sys.argv[1:]
    sources = [a for a in arguments if a.endswith(".c")]
    runtime = [a for a in sources if a.startswith("runtime/")]
    if not runtime or "-o" not in arguments or "LPLAN_E2E_CACHE" not in os.environ:
        os.execvp(CC, [CC, *arguments])
    at = arguments.index("-o")
    target = arguments[at + 1]
    rest = [a for i, a in enumerate(arguments) if i not in (at, at + 1) and a not in sources]
    flags = [a for a in rest if not a.startswith(("-l", "-L", "-Wl,"))]
    links = [a for a in rest if a.startswith(("-l", "-L", "-Wl,"))]
    folder = pathlib.Path(os.environ["LPLAN_E2E_CACHE"]) / runtime_hash(flags)
    folder.mkdir(parents=True, exist_ok=True)
    objects = []
    for source in runtime:
        name = folder / (source.replace("/", "_")[:-2] + ".o")
        if not name.exists():
            part = f"{name}.{os.getpid()}"
            run(CC, *flags, "-c", source, "-o", part)
            os.replace(part, name)
        objects.append(str(name))
    for source in sources:
        if source not in runtime:
            more = os.environ.get("LPLAN_E2E_FLAGS", "").split()
            run(CC, *flags, *more, "-c", source, "-o", source[:-2] + ".o")
            objects.append(source[:-2] + ".o")
    run(CC, *[a for a in flags if a.startswith("-f")], *objects, *links, "-o", target)


if __name__ == "__main__":
    main()
