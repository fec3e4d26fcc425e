#!/usr/bin/env python3
"""test_pages.py - pages of examples/techniques say what the product prints, and it recognises their techniques.

    test_pages.py LPLAN [all]          LPLAN_BLESS=1 rewrites pages that differ (then read git diff)

Each page runs the commands that stand in it. Without `all`: one or two pages of each kind, the cheap ones; of the
others the test asks that their plan is made and that the technique at the head of the page is recognised in it."""
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(os.environ.get("LPLAN_SOURCE_ROOT", pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(ROOT / "scripts"))
import pages  # noqa: E402

WHOLE = ["server", "zero3", "cp_ring", "1f1b"]


def recognised(lplan, name):
    text = (pages.PAGES / f"{name}.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        pages.recognised(pages.Shop(lplan, folder), name, text)


def listed():
    """Every page stands in the map, once."""
    text = (pages.PAGES / "README.md").read_text(encoding="utf-8")
    names = " ".join(match.group(2) for match in pages.MAP.finditer(text)).split()
    here = [path.stem for path in pages.PAGES.glob("*.md") if path.stem != "README"]
    assert sorted(names) == sorted(here), set(names) ^ set(here)
    for name in names:
        assert f"({name}.md)" in text, f"{name} has no row"


def main():
    lplan, every = sys.argv[1], sys.argv[2:] == ["all"]
    names = sorted(path.stem for path in pages.PAGES.glob("*.md"))
    tests = [("the map lists every page", listed)]
    for name in names:
        if every or name in WHOLE:
            def same(name=name):
                difference = pages.check(lplan, name)
                assert not difference, f"LPLAN_BLESS=1 accepts\n{difference}"
            tests.append((f"{name}: what its commands print", same))
        elif name != "README":
            tests.append((f"{name}: recognised", lambda name=name: recognised(lplan, name)))
    print(f"1..{len(tests)}")
    failed = 0
    for number, (title, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {title}", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"not ok {number} - {title}")
            for line in str(error).splitlines():
                print("#", line)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
