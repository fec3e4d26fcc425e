#!/usr/bin/env python3
"""test_program.py - the program as a user meets it: verbs, mistakes, exit codes. Speaks TAP.

    test_program.py LPLAN"""
import json
import os
import re
import subprocess
import sys
import tempfile

LPLAN = os.path.abspath(sys.argv[1])
MODEL = os.path.join(os.path.dirname(__file__), "../../examples/models/llama-10m.json")


def run(*arguments, folder=None, **more):
    return subprocess.run([LPLAN, *arguments], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, cwd=folder, **more)


def verbs():
    return re.findall(r"^  ([a-z]+) +\S", run("help").stdout, re.MULTILINE)


def test_no_arguments_is_usage():
    result = run()
    assert result.returncode == 2 and result.stdout == "", result
    assert "usage: lplan VERB" in result.stderr, result


def test_help_lists_the_verbs():
    for spelling in ("help", "-h", "--help"):
        result = run(spelling)
        assert result.returncode == 0 and result.stderr == "", result
        assert "  help " in result.stdout and "  version " in result.stdout, result


def test_every_verb_has_help():
    assert len(verbs()) >= 2
    for verb in verbs():
        asked = run("help", verb)
        told = run(verb, "--help")
        assert asked.returncode == 0 and told.returncode == 0, (asked, told)
        assert asked.stdout == told.stdout, (asked, told)
        assert told.stdout.startswith(f"lplan {verb}"), told
        # What follows the folder of `run` is for the trainer.
        for option in ("--json", "--output FILE", "--quiet", "--help") if verb != "run" else ():
            assert option in told.stdout, (verb, option)
        assert all(len(line) <= 100 for line in told.stdout.splitlines()), told


def test_every_verb_refuses_unknown_options():
    for verb in verbs():
        result = run(verb, "--jsom")
        assert result.returncode == 2 and result.stdout == "", result
        assert f"'{verb}' has no option --jsom" in result.stderr, result
        assert verb == "run" or "did you mean --json?" in result.stderr, result


def test_unknown_verb_names_the_nearest():
    result = run("hepl")
    assert result.returncode == 2 and result.stdout == "", result
    assert result.stderr == ("error: lplan has no verb 'hepl'\n"
                             "  help: did you mean 'help'?\n"), result
    result = run("zzzzzzzz")
    assert result.returncode == 2 and "lplan help lists the verbs" in result.stderr, result
    assert run("help", "hepl").returncode == 2
    assert run("hepl\033[2J").stderr.count("\033") == 0
    assert run("").returncode == 2


def test_version():
    text = run("version")
    assert text.returncode == 0 and re.fullmatch(r"lplan \d+\.\d+\.\d+\n", text.stdout), text
    assert run("--version").stdout == text.stdout
    machine = json.loads(run("version", "--json").stdout)
    assert machine["version"] == text.stdout.split()[1], machine


def test_output_option():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "v.txt")
        result = run("version", "-o", path)
        assert result.returncode == 0 and result.stdout == "", result
        with open(path, encoding="utf-8") as file:
            assert file.read() == run("version").stdout
        assert os.listdir(folder) == ["v.txt"]
        result = run("version", "-o", os.path.join(folder, "no/v.txt"))
        assert result.returncode == 1, result
        assert "no/v.txt: No such file or directory" in result.stderr, result


def test_full_disk_is_an_error():
    if not os.path.exists("/dev/full"):
        return
    for arguments in (["help"], ["version"], ["version", "--json"], ["help", "version"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([LPLAN, *arguments], stdout=full, stderr=subprocess.PIPE,
                                    stdin=subprocess.DEVNULL, text=True, check=False)
        assert result.returncode == 1, (arguments, result)
        assert "No space left on device" in result.stderr, result


def test_pins_stand_in_one_table():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.json")
        asked = ["plan", MODEL, "host", "--gpus", "1", "--seq", "8", "--pin"]
        keys = run(*asked, "qqqqqqqqqq=1").stderr.split("pins are ")[1].split()
        shown = run("plan", "--help").stdout.split("--pin KEY")[1].split("--time-limit")[0]
        assert len(keys) > 20 and set(keys) <= set(shown.replace(",", " ").split()), (keys, shown)
        result = run(*asked, "mbs=1", "-q", "-o", path)
        assert result.returncode == 0, result
        for key in ("cp", "order", "weight_home", "2-3:block"):
            refused = run("whatif", path, "--set", f"{key}=?").stderr
            assert "pin " in refused and "knows no key" not in refused, (key, refused)


def test_no_colour_off_a_terminal():
    assert "\033" not in run("version", "--jsom").stderr + run("hepl").stderr


TESTS = [(name, body) for name, body in list(globals().items()) if name.startswith("test_")]


def main():
    failed = 0
    print(f"1..{len(TESTS)}")
    for number, (name, body) in enumerate(TESTS, 1):
        try:
            body()
            print(f"ok {number} - {name}")
        except AssertionError as error:
            failed += 1
            print(f"not ok {number} - {name}")
            print("".join(f"# {line}\n" for line in str(error).splitlines()))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
