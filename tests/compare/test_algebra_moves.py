"""test_algebra_moves.py - the moves we derive, against those of the executable specification of the placement algebra.

Usage: test_algebra_moves.py DUMP_MOVES SOURCE_ROOT. Exits with 77 (skipped) where the specification is not beside the tree or
numpy is missing.

For each demonstration the same tiny model is written as lplan-model/1, the two graphs are shown to be the same node by node,
the specification's choice of every node is forced on ours, and what both derive must be equal: every move of a micro-batch one
by one (segment, kind, atoms, monoid, bytes a rank), those of the step's end in sums. Where the two differ by design the
difference is written down as moves taken away and added; nothing is compared with a tolerance.
"""
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter

program, root = sys.argv[1:3]
prototype = os.path.join(root, '..', 'shared', 'prototypes', 'algebra')
if not os.path.exists(os.path.join(prototype, 'test_algebra.py')):
    print('skipped: no specification at', prototype)
    sys.exit(77)
try:
    import numpy  # noqa: F401
except ImportError:
    print('skipped: the specification needs numpy')
    sys.exit(77)
sys.dont_write_bytecode = True
sys.path.insert(0, prototype)
import algebra  # noqa: E402
import test_algebra as spec  # noqa: E402

OPS = {'einsum': 'einsum', 'add': 'add', 'badd': 'bias', 'mul': 'mul', 'silu': 'act', 'silu_b': 'act_grad', 'norm': 'norm',
       'norm_dx': 'norm_dx', 'norm_dg': 'norm_dg', 'rope': 'rope', 'lookup': 'lookup', 'scatter': 'scatter', 'vmax': 'vmax',
       'sumexp': 'sumexp', 'pick': 'pick', 'nll': 'nll', 'sum': 'reduce', 'onehot': 'onehot', 'expmul': 'expmul',
       'div': 'div', 'scale': 'scale', 'attn': 'attention'}
KINDS = {'all-reduce': 'all_reduce', 'reduce-scatter': 'reduce_scatter', 'all-gather': 'all_gather',
         'all-to-all': 'all_to_all'}


def model_json(ext, layers, bias, parallel, tied):
    """The specification's Model, op by op in its order."""
    def linear(x, out, to, weight, **more):
        return {'op': 'linear', 'in': x, 'out': out, 'to': list(to), 'weight': weight, **more}

    def norm(x, out, gain):
        return {'op': 'norm', 'kind': 'rms', 'eps': 1e-6, 'in': x, 'out': out, 'gain': gain}
    rows = {'bias': 'bo{i}'} if bias else {}
    ops = [norm('x', 'n1', 'g1{i}'), linear('n1', 'q', 'grd', 'wq{i}'), linear('n1', 'k', 'gd', 'wk{i}'),
           linear('n1', 'v', 'gd', 'wv{i}'), {'op': 'rope', 'in': 'q', 'out': 'qr', 'theta': 10.0},
           {'op': 'rope', 'in': 'k', 'out': 'kr', 'theta': 10.0},
           {'op': 'attention', 'in': ['qr', 'kr', 'v'], 'out': 'at'},
           linear('at', 'o', 'h', 'wo{i}', **{'from': ['g', 'r', 'd']}, **rows)]
    n2 = 'n1'
    if not parallel:
        ops += [{'op': 'add', 'in': ['x', 'o'], 'out': 'x1'}, norm('x1', 'n2', 'g2{i}')]
        n2 = 'n2'
    rows = {'bias': 'bd{i}'} if bias else {}
    ops += [linear(n2, 'u', 'f', 'wu{i}'), linear(n2, 'w', 'f', 'wg{i}'),
            {'op': 'act', 'kind': 'silu', 'in': 'w', 'out': 's1'}, {'op': 'mul', 'in': ['s1', 'u'], 'out': 'm'},
            linear('m', 'y', 'h', 'wd{i}', **rows)]
    if parallel:
        ops += [{'op': 'add', 'in': ['o', 'y'], 'out': 'ay'}, {'op': 'add', 'in': ['x', 'ay'], 'out': 'x2'}]
    else:
        ops += [{'op': 'add', 'in': ['x1', 'y'], 'out': 'x2'}]
    dims = {k: e for k, e in ext.items() if k not in 'bs'}
    blocks = {'embed': {'out': 'x', 'ops': [{'op': 'embedding', 'in': 'ids', 'out': 'x', 'rows': 'v', 'cols': ['h'],
                                             'table': 'emb'}]},
              'layer': {'in': 'x', 'out': 'x2', 'ops': ops},
              'head': {'in': 'x', 'ops': [norm('x', 'n', 'gf'), linear('n', 'z', 'v', 'emb' if tied else 'head'),
                                          {'op': 'cross_entropy', 'in': 'z'}]}}
    return {'format': 'lplan-model/1', 'name': 'spec', 'init_std': 0.3, 'dims': dims, 'blocks': blocks,
            'chain': [{'block': 'embed'}, {'block': 'layer', 'repeat': layers}, {'block': 'head'}]}


class Ours:
    """The graph as dump_moves prints it; values that links hand on have one name."""

    def __init__(self, lines):
        self.links, self.ends, self.params, self.nodes = [], {}, {}, []
        rows = [line.split() for line in lines]
        for row in rows:
            if row[0] == 'link':
                self.links.append((row[2], int(row[3])))
            elif row[0] == 'end':
                self.ends[row[1], row[2]] = row[3]
            elif row[0] == 'param':
                self.params[row[1], row[2]] = row[3]
        for link, (cls, index) in enumerate(self.links):
            for row in rows:
                if row[0] == 'node' and row[1] == cls:
                    cut = row.index('=')
                    name = [self.canonical(link, v) for v in row[5:] if v != '=']
                    outs = cut - 5
                    self.nodes.append(dict(link=link, cls=cls, name=row[2], op=row[3], seg=row[4], outs=name[:outs],
                                           ins=name[outs:], mapped=False))

    def canonical(self, link, value):
        cls, index = self.links[link]
        if value in ('ids', 'labels', 'weight'):
            return value
        if self.ends.get((cls, 'in')) == value:
            return link - 1, self.ends[self.links[link - 1][0], 'out']
        if self.ends.get((cls, 'grad_in')) == value:
            return link + 1, self.ends[self.links[link + 1][0], 'grad_out']
        return link, value


def dump(*args):
    out = subprocess.run([program, *args], capture_output=True, text=True)
    if out.returncode != 0:
        print(out.stderr)
        sys.exit(f'dump_moves {" ".join(args)}: exit {out.returncode}')
    return out.stdout.splitlines()


class Matched:
    """The node of ours for each node of the specification, found from the inputs on."""

    def __init__(self, model, ours):
        self.ours, self.of, self.value = ours, {}, {}
        self.free = set()
        for name, v in (('ids', model.ids), ('labels', model.labels), ('weight', model.wt)):
            self.value[v] = name
        self.value[model.seed] = 'seed'
        by_param = {}
        for link, (cls, index) in enumerate(ours.links):
            for (c, name) in ours.params:
                if c == cls:
                    by_param.setdefault(name.replace('{i}', str(index)), []).append((link, name))
        self.homes_of = {n: by_param[n] for n in model.params}
        for n, v in model.params.items():
            self.value[v] = 'param', n
        # Parameters are values of their own links: give them one name as well.
        names = {(link, ours.params[ours.links[link][0], name]): ('param', n)
                 for n, uses in by_param.items() for link, name in uses}
        for node in ours.nodes:
            node['ins'] = [names.get(v, v) for v in node['ins']]
        for nd in model.g.nodes:
            self.match(nd)
        for node in ours.nodes:
            assert node['mapped'], ('no node of the specification is', node)

    def take(self, op, ins):
        for node in self.ours.nodes:
            if not node['mapped'] and node['op'] == op and sorted(map(str, node['ins'])) == sorted(map(str, ins)):
                node['mapped'] = True
                return node
        raise AssertionError(('no node of ours is', op, ins))

    def match(self, nd):
        v = self.value
        if nd.name == 'wloss':          # the gradient of the token weights: nobody reads it
            v[nd.v] = 'unread'
        elif nd.name == 'dloss':        # seed x weight; our seed is 1
            v[nd.v] = 'weight'
        elif nd.op in ('ol_o', 'ol_l'):  # one value (o, l) of the specification is two of ours
            v[nd.v] = self.of[v[nd.vals[0]][1]]['outs'][nd.op == 'ol_l']
            self.free.add(nd.v.name)
        elif nd.op in ('attn_dq', 'attn_dk', 'attn_dv'):
            ins = [v[x] for x in nd.vals]
            if nd.op == 'attn_dq':
                self.of[nd.v.name] = self.take('attention_grad', ins)
                self.group = nd.v.name
            else:
                self.of[nd.v.name] = self.of[self.group]
            v[nd.v] = self.of[self.group]['outs'][('attn_dq', 'attn_dk', 'attn_dv').index(nd.op)]
        elif len(nd.stage) > 1:         # the sum over the home stages of a tied parameter
            v[nd.v] = 'tied'
        else:
            node = self.take(OPS[nd.op], [v[x] for x in nd.vals])
            self.of[nd.v.name] = node
            v[nd.v] = ('attention', nd.v.name) if nd.op == 'attn' else node['outs'][0]


class Case:
    """A demonstration: model, mesh and choices of the specification; `atoms` says which atom of ours is which of its."""

    def __init__(self, model, ex, homes, atoms, roles, micros=1, cut=None, state=(), optimizer=False, parallel=False,
                 tied=False, layers=1, bias=True):
        self.model, self.atoms, self.homes, self.optimizer = model, atoms, homes, optimizer
        self.ranks = ex.mesh.n(ex.mesh.atoms)
        folder = tempfile.mkdtemp()
        path = os.path.join(folder, 'model.json')
        with open(path, 'w') as f:
            json.dump(model_json(model.g.ext, layers, bias, parallel, tied), f)
        size = [str(model.g.ext['b']), str(model.g.ext['s'])]
        ours = Ours(dump(path, *size))
        matched = Matched(model, ours)
        lines = ['mesh ' + ', '.join(f'{roles[a]} {ex.mesh.ext[a]}' for a in sorted(atoms, key=atoms.get)),
                 f'micros {micros}']
        if cut is not None:
            lines.append(f'cut {cut}')
        lines += [f'state a{atoms[a]}' for a in state]
        lines += self.choices(ex, matched, ours)
        script = os.path.join(folder, 'script')
        with open(script, 'w') as f:
            f.write('\n'.join(lines) + '\n')
        self.error, self.world, self.loss = None, [], None
        self.moves, self.groups = Counter(), []
        for line in dump(path, *size, script):
            row = line.split()
            if row[0] == 'error':
                self.error = float(row[1])
            elif row[0] == 'loss':
                self.loss = row[1]
            elif row[0] == 'world':
                self.world.append(int(row[2]))
            elif row[0] == 'group':
                self.groups.append((row[3], row[4], int(row[5]), int(row[6])))
            elif row[3] != 'slice':
                self.moves[tuple(row[2:6]) + (int(row[6]),)] += 1

    def place(self, p, letters):
        parts = []
        for letter, atoms in zip(letters, p.shard):
            if atoms:
                parts.append(letter + ':' + '.'.join(f'a{self.atoms[a]}' for a in atoms))
        assert not p.part
        return '{' + ' '.join(parts) + '}'

    def choices(self, ex, matched, ours):
        lines, seen = [], {}
        for name, uses in matched.homes_of.items():
            for link, param in uses:
                cls = ours.links[link][0]
                letters = self.model.params[name].letters
                lines.append(f'home {cls} {param} {self.place(self.homes[name], letters)}')
        boundary = set()
        for nd in self.model.g.nodes:
            if nd.v.name not in matched.of:
                continue
            node = matched.of[nd.v.name]
            asg = dict(ex.plan[nd.v.name, nd.stage[0]])
            for letter in set(c for c in asg.values() if isinstance(c, str) and c != 'R'):
                mine = [self.atoms[a] for a, c in ex.plan[nd.v.name, nd.stage[0]] if c == letter]
                assert mine == sorted(mine, reverse=True), ('our letters have the highest atom major', nd.v.name)
            words = []
            for a in sorted(self.atoms, key=self.atoms.get):
                c = asg[a]
                if isinstance(c, tuple):
                    operands = {node['ins'].index(matched.value[nd.vals[k]]) for k in c}
                    words.append(f'+{min(operands)}' if node['op'] in ('einsum', 'mul') else '+0')
                else:
                    words.append(c)
            key = node['cls'], node['name']
            assert seen.setdefault(key, words) == words, ('layers of one class choose differently', nd.v.name)
            if nd.op == 'norm' and nd.vals[0] in self.model.g.made:
                made = matched.value[nd.vals[0]]
                cls = ours.links[node['link']][0]
                if made != (node['link'], nd.vals[0]) and node['name'] in ('n1', 'n') and cls in ('layer', 'head'):
                    boundary.add(self.place(algebra.placed(nd, ex.plan[nd.v.name, nd.stage[0]])[0][0], 'bsh'))
        assert len(boundary) == 1, boundary
        lines.append('boundary ' + boundary.pop())
        return lines + [f'choose {cls} {name} {" ".join(words)}' for (cls, name), words in seen.items()]

    def translate(self, log):
        """The specification's log in our words; its loss apart."""
        moves, end = Counter(), Counter()
        for entry in log:
            atoms = '.'.join(sorted(f'a{self.atoms[a]}' for a in entry.atoms)) if entry.kind != 'send' else 'pp'
            mono = entry.mono if entry.kind in ('all-reduce', 'reduce-scatter', 'own', 'pad') else 'none'
            size = int(entry.bytes)
            assert size == entry.bytes
            row = (entry.seg, KINDS.get(entry.kind, entry.kind), atoms, mono or 'none', size)
            if entry.seg == 'S':
                end[row[1:3]] += size
            else:
                moves[row] += 1
        return moves, end


fails = 0


def check(name, case, log, taken=(), added=(), later=(), steps=1):
    """`taken` and `added`: (count, move) that ours has not, or has more; `later`: (bytes, kind, atoms) that it has more at the
    step's end."""
    global fails
    log = list(log)
    loss = [e for e in log if e.value.startswith('loss#')]
    for e in loss:                      # our loss stays Partial until the world's sum of {loss, norm2}
        log.remove(e)
        assert case.loss == '.'.join(sorted(f'a{case.atoms[a]}' for a in e.atoms)), (case.loss, e)
    # The norm's one scalar travels with the loss in the world's sum; it exists where the specification runs an optimizer.
    world = 2 * 8 * (case.ranks - 1) // case.ranks
    norm = [e for e in log if e.seg == 'S' and e.kind == 'all-reduce' and e.value.startswith('add#') and e.bytes == world]
    assert len(norm) == (steps if case.optimizer else 0), norm
    assert case.world and set(case.world) == {2}, ('the world sums {loss, norm2} once a step', case.world)
    for e in norm:
        log.remove(e)
    want, end = case.translate(log)
    for size, kind, atoms in later:
        end[kind, atoms] += size
    end = Counter({k: n for k, n in end.items() if n})
    got = Counter({k: n * steps for k, n in case.moves.items()})
    end_got, padded = Counter(), Counter()
    for kind, atoms, size, real in case.groups:
        end_got[kind, atoms] += steps * size
        padded[kind, atoms] += steps * real
    end_got = Counter({k: n for k, n in end_got.items() if n})
    walked = Counter()
    for (seg, kind, atoms, mono, size), n in list(got.items()):
        if seg == 'S' and kind != 'tied':
            walked[kind, atoms] += n * size
            del got[seg, kind, atoms, mono, size]
    for n, move in taken:
        want[move] -= n
        assert want[move] >= 0, ('nothing to take away', move, want)
    for n, move in added:
        want[move] += n
    want = Counter({k: n for k, n in want.items() if n})
    problems = []
    if want != got:
        problems += [f'specification only: {n} x {k}' for k, n in (want - got).items()]
        problems += [f'ours only: {n} x {k}' for k, n in (got - want).items()]
    if end != end_got:
        problems.append(f'step end: specification {dict(end)}, ours {dict(end_got)}')
    if Counter({k: n for k, n in padded.items() if n}) != walked:
        problems.append(f'step end: Steps move {dict(walked)}, paths of padded buckets say {dict(padded)}')
    if not case.error < 1e-10:
        problems.append(f'the forced plan computes something else: error {case.error}')
    print(f'{"FAIL" if problems else "PASS"} {name}: {sum(want.values())} moves of {sum(k[4] * n for k, n in want.items())} B, '
          f'step end {sum(end.values())} B ({sum(walked.values())} B with padding), error {case.error:.1g}')
    for p in problems:
        print('    ', p)
    fails += bool(problems)


TP = {'tp': 0}


def own(atoms):
    return 'F', 'own', atoms, 'sum', 0


def pad(atoms):
    return 'F', 'pad', atoms, 'sum', 0


def tensor_parallel():
    m = spec.Model()
    mesh = algebra.Mesh(tp=2)
    hm = spec.homes(m, ('tp',))
    ex = spec.execute(m, mesh, hm, spec.no_sp('tp'))
    # Links hand x on whole, never Partial: the residual add owns it where the specification had a Partial copy left.
    check('Megatron TP', Case(m, ex, hm, TP, {'tp': 'tp'}), ex.log, added=[(1, own('a0'))])
    ex = spec.execute(m, mesh, hm, spec.seq_par('tp'))
    check('  + sequence parallel', Case(m, ex, hm, TP, {'tp': 'tp'}), ex.log)
    ex = spec.execute(m, mesh, hm)
    # The same with shards at the boundary: the shard of x is padded where the specification had a Partial copy left.
    check('  same homes, nothing else pinned', Case(m, ex, hm, TP, {'tp': 'tp'}), ex.log, added=[(1, pad('a0'))])


def parallel_residual():
    m = spec.Model(parallel=True)
    hm = spec.homes(m, ('tp',))
    ex = spec.execute(m, algebra.Mesh(tp=2), hm, spec.no_sp('tp'))
    check('parallel residual', Case(m, ex, hm, TP, {'tp': 'tp'}, parallel=True), ex.log, added=[(1, own('a0'))])


def grouped():
    m = spec.Model(g=2, r=4, d=4)
    mesh = algebra.Mesh(t0=2, t1=2)
    hm = spec.homes(m, ('t0', 't1'), kv_rest=('t1',))

    def kvr(nd, a):
        if a != 't1' or nd.seg == 'B' or 'g' not in nd.letters():
            return None
        return ['r'] if 'r' in nd.letters() else ['R']
    ex = spec.execute(m, mesh, hm, lambda nd, a: spec.no_sp('t0', 't1')(nd, a) or kvr(nd, a))
    # The specification's first atom is major; ours is the one with the higher number.
    check('GQA, 2 KV heads < tp 4', Case(m, ex, hm, {'t0': 1, 't1': 0}, {'t0': 'tp', 't1': 'tp'}), ex.log,
          added=[(1, own('a0')), (1, own('a1'))])


def tied():
    m, hm = spec.tied_model()
    ex = spec.execute(m, algebra.Mesh(tp=2), hm, spec.no_sp('tp'), stages=(0, 1))
    case = Case(m, ex, hm, TP, {'tp': 'tp'}, cut=2, tied=True, layers=2)
    x = 8 * m.g.ext['b'] * m.g.ext['s'] * m.g.ext['h']
    table = 8 * m.g.ext['v'] * m.g.ext['h'] // 2
    # The gradient of x is two terms, both of stage 1: the specification adds them where x was made and sends both, we add
    # first and send the sum. The tied table's gradients cross in both directions on either side; ours as one all-reduce of
    # two ranks, which sends as much from each.
    check('tied embedding on two stages', case, ex.log, taken=[(1, ('B', 'send', 'pp', 'none', x)),
                                                              (2, ('B', 'send', 'pp', 'none', table))],
          added=[(2, own('a0')), (2, ('S', 'tied', 'pp', 'sum', table))])


def optimizer_state(stage):
    """ZeRO as homes. Its stage 2 is not among ours: an accumulator lives where its weight does."""
    made = []

    class Spy(spec.Exec):
        def __init__(self, *args, **kw):
            super().__init__(*args, **kw)
            made.append(self)
    keep, spec.Exec = spec.Exec, Spy
    m, out, log = spec.zero(stage)
    spec.Exec = keep
    ex = made[0]
    hm = spec.homes(m, ('tp',))
    for step in (0, 4):                 # three micro-batches and the step's end, twice: one plan
        for micro in range(3):
            assert all(ex.plan[k] == made[step + micro].plan[k] for k in ex.plan)
    taken, later = [], []
    if stage == 3:
        for n, v in m.params.items():   # the specification's cut: the first letter that divides
            cut = [algebra.P(algebra.setax(hm[n], i, hm[n].shard[i] + ('dp',)), hm[n].part, hm[n].mono)
                   for i in range(len(v.ext))]
            hm[n] = next(p for p in cut if algebra.fits(p, v.ext, ex.mesh))
        # Gains and row biases are Partial over tp too. The specification brings each to its home in every micro-batch; our
        # accumulator stays Partial over tp, where the home is whole, until the step's end.
        for n in ('g10', 'bo0', 'g20', 'bd0', 'gf'):
            size = 8 * m.params[n].ext[0] // 2
            taken.append((2 * 3, ('B', 'all_reduce', 'a0', 'sum', size)))
            later.append((2 * size, 'all_reduce', 'a0'))
    case = Case(m, ex, hm, {'tp': 0, 'dp': 1}, {'tp': 'tp', 'dp': 'dp'}, micros=3, optimizer=True,
                state=('dp',) if stage == 1 else ())
    check(('DDP', 'ZeRO-1', '', 'ZeRO-3')[stage] + ', dp 2 x tp 2, 3 micro-batches', case, log, taken=taken,
          added=[(6, pad('a0'))], later=later, steps=2)


tensor_parallel()
parallel_residual()
grouped()
tied()
optimizer_state(0)
optimizer_state(1)
optimizer_state(3)
sys.exit(fails != 0)
