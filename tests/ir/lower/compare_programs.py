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

KINDS = ('gpipe', '1f1b', 'interleaved', 'zbh1', 'zbv', 'dualpipev')
CHUNKS = {'interleaved': 2, 'zbv': 2, 'dualpipev': 2}  # of a stage; 1 of others
FILES = {'interleaved': 'int_v2'}
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
    return [','.join(map(spec.S.cell, row)) for row in rows]


def check_golden():
    n = 0
    for kind in KINDS:
        for p, m in ((2, 4), (4, 8)):
            name = f'{FILES.get(kind, kind)}_p{p}_m{m}.csv'
            with open(os.path.join(shared, 'data', 'schedules', name)) as file:
                want = [','.join(c for c in line.strip().split(',') if c) for line in file]
            assert ask('schedule', kind, p, m, CHUNKS.get(kind, 1)) == want, (kind, p, m)
            n += 1
    return n


def check_schedules():
    n = 0
    for kind in KINDS:
        for p in range(1, 9):
            for m in range(1, 33):
                for v in (2, 3, 4) if kind == 'interleaved' else (CHUNKS.get(kind, 1),):
                    if kind == 'dualpipev' and m < 2 * p:
                        assert not ask('schedule', kind, p, m, v), (kind, p, m)  # refused
                        continue
                    rows, own = spec.S.interleaved(p, m, v) if kind == 'interleaved' else spec.S.ALL[kind](p, m)
                    stuck = spec.S.run(rows, own, m)[3]
                    ours = ask('schedule', kind, p, m, v)
                    assert ours == (cells(rows) + ['stuck'] if stuck else cells(rows)), (kind, p, m, v)
                    n += 1
    return n


def spec_lines(built, stage):
    """The entries of one stage of the spec, as programs_text prints them; messages name the peer."""
    for e in built.table[stage]:
        if e[0] == 'C':
            (part, chunk, mb, first, last), = e[1]
            # the spec flags first and last where gradients are added; forward rows have them by the same rule
            yield ('C', part, chunk, mb, None if part == 'F' else first, None if part == 'F' else last)
        elif e[0] in 'SR':
            kind, chunk, mb, sender, receiver = e[1]
            reader = chunk + 1 if kind == 'act' else chunk - 1
            yield (e[0], kind, chunk if e[0] == 'S' else reader, mb, receiver if e[0] == 'S' else sender)
        elif e[0] == 'N':
            yield ('norm',)


def our_lines(lines, stage):
    nth, rows = {}, [x for x in lines if x[0] == str(stage)]
    forwards = {}
    for x in rows:
        if x[1] == 'C' and x[2] == 'F':
            forwards[x[3]] = forwards.get(x[3], 0) + 1
    for x in rows:
        if x[1] == 'C':
            first, last = x[5] == '1', x[6] == '1'
            if x[2] == 'F':
                k = nth.get(x[3], 0)
                assert (first, last) == (k == 0, k == forwards[x[3]] - 1), x
                nth[x[3]] = k + 1
                first = last = None
            yield ('C', x[2], int(x[3]), int(x[4]), first, last)
        elif x[1] in 'SR':
            yield (x[1], x[2], int(x[3]), int(x[4]), int(x[5]))
        elif x[1] == 'total':
            yield ('norm',)


def slots(lives):
    """fewest slots for which micro-batch mod n never meets a live slot: the spec's ring"""
    return spec.colour([(a, b, (None, None, mb)) for mb, (a, b) in lives.items()], ring=True)


def check_many_rings(built, stage, lines):
    """of several chunks, or of backward in two parts: what does not hang on what a block keeps"""
    n = 0
    for x in lines:
        if x[:2] != [str(stage), 'ring'] or x[3] not in ('saved', 'saved_w', 'out', 'grad_out'):
            continue
        pool = {'saved': 'sI', 'saved_w': 'sW', 'out': 'y', 'grad_out': 'dx'}[x[3]]
        want = built.lay[stage]['pools'].get((pool, int(x[2])), [0, 0])[1]
        if x[3] == 'saved_w' and int(x[4]) == 0:
            continue  # backward is whole
        assert int(x[4]) == want, (stage, x, want)
        n += 1
    return n


def check_rings(built, stage, lines, p):
    ours = {x[3]: int(x[4]) for x in lines if x[0] == str(stage) and x[1] == 'ring'}
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
    for kind in KINDS[:-1]:  # a pair meant to overlap is one row of the spec
        v = CHUNKS.get(kind, 1)
        for p in (1, 2, 3, 4, 6, 8) if kind in KINDS[:2] else (2, 3, 4):
            for m in sorted({1, 2, p, p + 1, 2 * p + 3}) if v == 1 or kind == 'zbv' else (p, 2 * p, 4 * p):
                for uneven in (False, True):
                    scale = [draw.choice((1, 2, 3, 5)) if uneven else 1 for _ in range(p * v)]
                    built = spec.build(spec.Cfg(FILES.get(kind, kind), p, m, scale=scale, pools='chunk', order='time',
                                                steps=1))
                    cost = built.c.cost
                    length = [[spec.braid(built.c, [(part, s, 0)]) for s in range(p * v)] for part in 'FBIW']
                    lines = [x.split() for x in ask('program', kind, p, m, v, cost['lat'] + cost['wire'],
                                                    *sum(length, []))]
                    for s in range(p):
                        want, ours = list(spec_lines(built, s)), list(our_lines(lines, s))
                        assert ours == want, (kind, p, m, s, [x for x in zip(ours, want) if x[0] != x[1]][:3])
                        entries += len(want)
                        plain = kind in KINDS[:2]
                        rings += check_rings(built, s, lines, p) if plain else check_many_rings(built, s, lines)
                    n += 1
    return n, entries, rings


print('golden files: %d equal, cell for cell' % check_golden())
print('schedules: %d equal to schedules.py' % check_schedules())
print('programs: %d tables equal to the spec in time order, %d entries, %d ring sizes' % check_programs())
server.stdin.close()
assert server.wait() == 0
