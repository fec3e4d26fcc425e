"""compare_programs.py - schedules, tables and rings against the executable spec and its golden files.

Usage: compare_programs.py PROGRAMS_TEXT SOURCE_ROOT. Exits with 77 (skipped) where the spec is not beside the tree.
"""
import os
import random
import subprocess
import sys

program, root = sys.argv[1:3]
shared = os.path.join(root, '..', 'shared')
prototype = os.path.join(shared, 'prototypes', 'program')
if not os.path.exists(os.path.join(prototype, 'program.py')):
    print('skipped: no executable spec at', prototype)
    sys.exit(77)
sys.dont_write_bytecode = True
sys.path.insert(0, prototype)
import program as spec  # noqa: E402

KINDS = ('gpipe', '1f1b')
server = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, LPLAN_SOURCE_ROOT=root))


def ask(*words):
    server.stdin.write(' '.join(map(str, words)) + '\n')
    server.stdin.flush()
    lines = []
    while True:
        line = server.stdout.readline()
        assert line, 'the program ended at ' + ' '.join(map(str, words))
        if line == '.\n':
            return lines
        lines.append(line.rstrip('\n'))


def cells(rows):
    """schedules.py rows as PyTorch's cells"""
    return [','.join('%d%s%d' % (s, kind, mb) for kind, s, mb in row) for row in rows]


def check_golden():
    n = 0
    for kind in KINDS:
        for p, m in ((2, 4), (4, 8)):
            with open(os.path.join(shared, 'data', 'schedules', f'{kind}_p{p}_m{m}.csv')) as file:
                want = [','.join(c for c in line.strip().split(',') if c) for line in file]
            assert ask('schedule', kind, p, m) == want, (kind, p, m)
            n += 1
    return n


def check_schedules():
    n = 0
    for kind in KINDS:
        for p in range(1, 9):
            for m in range(1, 33):
                rows, _ = spec.S.ALL[kind](p, m)
                assert ask('schedule', kind, p, m) == cells(rows), (kind, p, m)
                n += 1
    return n


def spec_lines(built, stage):
    """The entries of one stage of the spec, as programs_text prints them; messages name the peer."""
    for e in built.table[stage]:
        if e[0] == 'C':
            (part, _, mb, first, last), = e[1]
            # the spec flags first and last on backward rows; forward rows have them by the same rule
            yield ('C', part, mb, first if part == 'B' else None, last if part == 'B' else None)
        elif e[0] in 'SR':
            kind, _, mb, sender, receiver = e[1]
            yield (e[0], kind, mb, receiver if e[0] == 'S' else sender)
        elif e[0] == 'N':
            yield ('norm',)


def our_lines(lines, stage):
    nth, rows = 0, [x for x in lines if x[0] == str(stage)]
    forwards = sum(x[1] == 'C' and x[2] == 'F' for x in rows)
    for x in rows:
        if x[1] == 'C':
            first, last = x[4] == '1', x[5] == '1'
            if x[2] == 'F':
                assert (first, last) == (nth == 0, nth == forwards - 1), x
                nth += 1
                first = last = None
            yield ('C', x[2], int(x[3]), first, last)
        elif x[1] in 'SR':
            yield (x[1], x[2], int(x[3]), int(x[4]))
        elif x[1] == 'total':
            yield ('norm',)


def slots(lives):
    """fewest slots for which micro-batch mod n never meets a live slot: the spec's ring"""
    return spec.colour([(a, b, (None, None, mb)) for mb, (a, b) in lives.items()], ring=True)


def check_rings(built, stage, lines, p):
    ours = {x[2]: int(x[3]) for x in lines if x[0] == str(stage) and x[1] == 'ring'}
    saves_in = any(x[:3] == [str(stage), 'saves_in', '1'] for x in lines)
    pools = {key[0]: pool[1] for key, pool in built.lay[stage]['pools'].items()}
    want = {'saved': pools['sI'], 'out': pools.get('y', 0), 'grad_in': pools.get('dy', 0),
            'grad_out': pools.get('dx', 0), 'in': pools.get('x', 0)}
    assert pools['sI'] == pools['sW']
    if saves_in and stage > 0:  # the spec reads x in forward only
        life = {}
        for i, e in enumerate(built.table[stage]):
            if e[0] == 'R' and e[1][0] == 'act':
                life[e[1][2]] = [i, i]
            if e[0] == 'C' and e[1][0][0] == 'B':
                life[e[1][0][2]][1] = i
        want['in'] = slots(life)[1]
    for ring, n in want.items():
        assert ours[ring] == n, (stage, ring, ours[ring], n)
    return len(want)


def check_programs():
    n = rings = entries = 0
    draw = random.Random(11)
    for kind in KINDS:
        for p in (1, 2, 3, 4, 6, 8):
            for m in sorted({1, 2, p, p + 1, 2 * p + 3}):
                for uneven in (False, True):
                    scale = [draw.choice((1, 2, 3, 5)) if uneven else 1 for _ in range(p)]
                    built = spec.build(spec.Cfg(kind, p, m, scale=scale, pools='chunk', order='time', steps=1))
                    cost = built.c.cost
                    length = [[spec.braid(built.c, [(part, s, 0)]) for s in range(p)] for part in 'FB']
                    lines = [x.split() for x in ask('program', kind, p, m, cost['lat'] + cost['wire'], *length[0], *length[1])]
                    for s in range(p):
                        want, ours = list(spec_lines(built, s)), list(our_lines(lines, s))
                        assert ours == want, (kind, p, m, s, [x for x in zip(ours, want) if x[0] != x[1]][:3])
                        entries += len(want)
                        rings += check_rings(built, s, lines, p)
                    n += 1
    return n, entries, rings


print('golden files: %d equal, cell for cell' % check_golden())
print('schedules: %d equal to schedules.py' % check_schedules())
print('programs: %d tables equal to the spec in time order, %d entries, %d ring sizes' % check_programs())
server.stdin.close()
assert server.wait() == 0
