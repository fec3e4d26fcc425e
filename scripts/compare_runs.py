#!/usr/bin/env python3
"""Compares the losses of two runs of a trainer: log.jsonl of each folder.

  compare_runs.py A B           relative difference at most 1e-5 for 20 steps and 1e-4 for all; the loss must fall
  compare_runs.py --bits A B    the same numbers, digit for digit
"""
import json
import os
import sys


def losses(folder):
    """The loss of every step, in order."""
    with open(os.path.join(folder, "log.jsonl"), encoding="utf-8") as log:
        return [json.loads(line)["loss"] for line in log if '"loss"' in line]


def main(arguments):
    """Prints what it compared; 0 when it holds."""
    bits = "--bits" in arguments
    first, second = [losses(a) for a in arguments if a != "--bits"]
    if not first or len(first) != len(second):
        print(f"compare: {len(first)} steps and {len(second)} steps")
        return 1
    if bits:
        print(f"{len(first)} losses, {'bit-equal' if first == second else 'NOT EQUAL'}")
        return int(first != second)
    differences = [abs(a - b) / abs(a) for a, b in zip(first, second)]
    early, late = max(differences[:20]), max(differences)
    good = early <= 1e-5 and late <= 1e-4 and second[-1] < second[0]
    print(f"loss {second[0]:.4f} -> {second[-1]:.4f} in {len(second)} steps; largest relative difference to one rank "
          f"{early:.1e} in 20 steps, {late:.1e} in all: {'equal' if good else 'NOT EQUAL'}")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
