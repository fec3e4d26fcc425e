"""tree.py - the source files of the tree, and the way a lint ends. Each lint is a meson test: it prints
one line a finding, as path:line: what, and exits 1 when there was any."""
import fnmatch
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
C_LIKE = (".c", ".h", ".cu", ".cuh", ".def")
ALL_TEXT = C_LIKE + (".py", ".sh", ".build", ".txt")


def files(extensions, under=""):
    """Paths from the root with '/', sorted; build folders, built trainers and hidden ones are left out."""
    found = []
    for folder, folders, names in os.walk(os.path.join(ROOT, under)):
        inside = os.path.relpath(folder, ROOT)
        folders[:] = sorted(f for f in folders if f != "__pycache__" and not f.startswith(".")
                            and not (inside == "." and f.startswith("build")))
        if "build.sh" in names:  # of a trainer that someone has built here
            folders[:] = []
            continue
        for name in sorted(names):
            if name.endswith(extensions):
                found.append(os.path.normpath(os.path.join(inside, name)))
    return found


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def allowed(name):
    """An allow-list beside the lints: 'path: reason' a line. A reason is not optional; a path may be
    a pattern of the shell."""
    entries = {}
    for number, line in enumerate(read(f"tests/lint/{name}").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        path, _, reason = line.partition(":")
        if len(reason.split()) < 3:
            sys.exit(f"tests/lint/{name}:{number}: an exception needs its reason")
        entries[path.strip()] = reason.strip()
    return entries


def allowed_by(path, entries):
    """The entries that speak of this path."""
    return {pattern for pattern in entries if fnmatch.fnmatchcase(path, pattern)}


def end(findings, looked_at):
    for finding in findings:
        print(finding)
    if not looked_at:
        print("nothing was looked at: the lint itself is broken")
    print(f"{looked_at} looked at, {len(findings)} findings")
    sys.exit(1 if findings or not looked_at else 0)
