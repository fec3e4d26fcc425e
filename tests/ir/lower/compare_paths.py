"""compare_paths.py - cost and bytes of paths between random placements: paths_text against the prototype's search.

Usage: compare_paths.py PATHS_TEXT SOURCE_ROOT. Exits with 77 (skipped) where the prototype is not beside the tree.
"""
import os
import random
import subprocess
import sys
import types

program, root = sys.argv[1:3]
prototype = os.path.join(root, '..', 'shared', 'prototypes', 'algebra')
if not os.path.exists(os.path.join(prototype, 'algebra.py')):
    print('skipped: no prototype at', prototype)
    sys.exit(77)
sys.dont_write_bytecode = True
sys.path.insert(0, prototype)
try:
    import numpy  # noqa: F401
except ImportError:  # the path search itself does no arithmetic on arrays
    sys.modules['numpy'] = types.ModuleType('numpy')
import algebra

draw = random.Random(5)


def placement(axes, atoms):
    """Words for the program: each atom, in random order, Replicate, on an axis, or Partial."""
    words = [''] * (axes + 1)
    for atom in draw.sample(range(atoms), atoms):
        at = draw.randrange(axes + 2)
        if at <= axes:
            words[at] += str(atom)
    words[axes] = ''.join(sorted(words[axes]))
    return words


def proto(words):
    shard = {f'a{i}': tuple('a' + c for c in w) for i, w in enumerate(words[:-1])}
    return algebra.mk(len(words) - 1, part=tuple('a' + c for c in words[-1]), **shard)


def compare(extents, atoms, count):
    mesh = algebra.Mesh(**{f'a{i}': n for i, n in enumerate(atoms)})
    pairs = []
    while len(pairs) < count:
        pair = placement(len(extents), len(atoms)), placement(len(extents), len(atoms))
        if all(algebra.fits(proto(w), extents, mesh) for w in pair):
            pairs.append(pair)
    text = ' '.join(map(str, (len(extents), *extents, len(atoms), *atoms))) + '\n'
    text += ''.join(' '.join(w or '-' for w in a + b) + '\n' for a, b in pairs)
    out = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    lines = out.stdout.splitlines()
    assert len(lines) == count, (len(lines), count)
    differ = 0
    for (a, b), line in zip(pairs, lines):
        cost, moves = algebra.path(proto(a), proto(b), extents, mesh)
        at, sent, paid = proto(a), 0, 0
        for move, after in moves:
            local = algebra.elems(at, extents, mesh)
            bytes_ = algebra.wire(move, local, mesh)
            assert bytes_ == int(bytes_), 'choose extents that divide'
            sent += int(bytes_)
            paid += 1 + 1000 * int(bytes_) if move.kind in algebra.COMM else 0
            at = after
        mine = [int(w) for w in line.split()[:2]]
        if mine != [paid, sent]:
            differ += 1
            print('differs:', a, b, 'prototype', [m.kind for m, _ in moves], paid, sent, 'here', line)
    print(f'{count} pairs of {extents} over {atoms}: {differ} differ')
    return differ


bad = compare((8, 8, 8), (2, 2, 2), 300)
bad += compare((36, 12, 12), (2, 3), 150)
bad += compare((16, 32), (2, 4, 2), 100)
bad += compare((16, 16), (2, 2, 2, 2), 12)
sys.exit(bad != 0)
