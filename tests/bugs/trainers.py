"""trainers.py - the rows of CONTRACTS 1.14 that need a trainer: races, saves, resumes under other plans.

Four plans of one tiny model with four layers, on four ranks each. A row gives (plans, faults tried,
faults noticed), or raises what is wrong; a fault that is not noticed is wrong too."""
import json
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import e2e  # noqa: the folder is named above
from e2e import Failed

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 32,
    "num_attention_heads": 4, "num_hidden_layers": 4, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "torch_dtype": "float32", "vocab_size": 256,
}
PLANS = {
    "data": {"dp": 4, "mbs": 2},
    "tensor": {"tp": 2, "dp": 2, "sp": 1},
    "stages": {"pp": 4},
    "both": {"pp": 2, "dp": 2},
}
NARROW = {"fp16": {"tp": 2, "dp": 2, "zero": 0}, "bf16": PLANS["tensor"]}  # a plan of each recipe
BATCH, SEQ, EARLY, LATE = 8, 16, 3, 6
MOST_SEEDS = 50  # of one trainer, whatever others get
WHOLE = "step-" + "?" * 12 + "/state.json"  # a checkpoint that has its name: no ".part"
RUN = ["--lr", 3e-3, "--warmup", 2, "--schedule", "constant", "--seed", 5, "--quiet"]


class Trainers:
    def __init__(self, shop):
        self.shop = shop
        self.data = e2e.text_file(shop.path / "text")
        self.count = 0
        (shop.path / "model.json").write_text(json.dumps(LLAMA))
        self.whole = {}

    def build(self, name):
        """The folder of a plan's trainer, built once."""
        folder = self.shop.path / name
        if not folder.exists():
            plan = e2e.plan(self.shop.path / "model.json", {**PLANS, **NARROW}[name],
                            self.shop.path / f"{name}.plan.json", BATCH, SEQ,
                            recipe=name if name in NARROW else "fp32")
            e2e.build(plan, folder, self.shop.cache, "--no-check")
        return folder

    def place(self, name):
        self.count += 1
        return self.shop.path / f"{name}-{self.count}"

    def run(self, name, steps, *more, code=0, folder=None, launch=()):
        """Log of a run, its ranks threads of one process unless `launch` says otherwise."""
        folder = folder or self.build(name)
        log = self.place("log")
        result = e2e.command(*(launch or [folder / "trainer", "--virtual"]), "--data", self.data,
                             *RUN, "--steps", steps, "--log", log, *more, code=code)
        return e2e.log_of(log) if result.returncode == 0 else result

    def uninterrupted(self, name):
        """Log and final weights of a plan's whole run; its checkpoints after EARLY and LATE steps."""
        if name not in self.whole:
            save, kept = self.place("whole"), self.place("kept")
            log = self.run(name, LATE, "--save", save, "--checkpoint", kept, "--checkpoint-every",
                           EARLY)
            early = self.place("early")
            early.mkdir()
            shutil.copytree(kept / f"step-{EARLY:012}", early / f"step-{EARLY:012}")
            self.whole[name] = log, save, early, kept / f"step-{LATE:012}"
        return self.whole[name]


def tensors(path):
    """Name -> shape and bytes of a safetensors file."""
    raw = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    body = raw[8 + size:]
    return {name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def differing(left, right):
    """Files and tensors of two checkpoints that have other bits."""
    names = sorted(p.name for p in left.glob("*.safetensors"))
    if not names or names != sorted(p.name for p in right.glob("*.safetensors")):
        return [f"{names} and {sorted(p.name for p in right.iterdir())}"]
    found = []
    for name in names:
        a, b = tensors(left / name), tensors(right / name)
        found += [f"{name}: {key}" for key in sorted(set(a) | set(b)) if a.get(key) != b.get(key)]
    return found


# ---- races (T23, T24, T40) --------------------------------------------------------------------------


def edited(jobs, name, suffix, edit):
    """The same trainer with another text, compiled."""
    broken = jobs.shop.path / f"{name}-{suffix}"
    shutil.copytree(jobs.build(name), broken)
    text = (broken / "trainer.c").read_text()
    if edit(text) == text:
        raise Failed(f"{name}: the trainer's text is not as this test knows it")
    (broken / "trainer.c").write_text(edit(text))
    (broken / "trainer").unlink()
    e2e.command("sh", broken / "build.sh", env=e2e.compiles(jobs.shop.cache), timeout=120)
    return broken


def without_wait(jobs, name, number):
    """A trainer without one of its waits."""
    text = (jobs.build(name) / "trainer.c").read_text()
    waits = list(re.finditer(r"^ *lp_wait\(.*\);$", text, re.MULTILINE))
    at = waits[number * (len(waits) - 1) // 3]
    return edited(jobs, name, f"without-{number}",
                  lambda text: text[:at.start()] + text[at.end():]), at.group(0).strip()


def result_of(jobs, name, seed, folder=None, launch=()):
    """Digest of losses, norms, weights under one seed, or what the trainer said when it ended."""
    save = jobs.place("shaken")
    log = jobs.run(name, EARLY, "--save", save, "--shake", seed, "--timeout", 10, code=None,
                   folder=folder, launch=launch)
    if not isinstance(log, list):
        return log.stderr[-300:] or "it ended"
    return [(r["loss"], r["grad_norm"]) for r in log], e2e.digest(save)


def races(jobs, seeds):
    """Late messages, whichever are late, change no bit; without a wait they do."""
    plans, tried, noticed, silent = [], 0, 0, []
    for name in ("tensor", "both"):
        still = result_of(jobs, name, 0)
        late = max(seeds, MOST_SEEDS) if name == "both" else seeds
        for seed in range(1, late + 1):
            if result_of(jobs, name, seed) != still:
                raise Failed(f"{name}: other bits with --shake {seed}: "
                             f"{result_of(jobs, name, seed)} for {still}")
        launch = [e2e.LPLAN, "run", jobs.build(name)]
        if result_of(jobs, name, 1, launch=launch) != still:
            raise Failed(f"{name}: other bits under MPI with --shake 1")
        plans.append(f"{name} x {late + 1} seeds")
        for number in (0,) if name == "both" else (2,):
            broken, line = without_wait(jobs, name, number)
            tried += 1
            if any(result_of(jobs, name, seed, broken) != still for seed in range(1, 9)):
                noticed += 1
            else:
                silent.append(f"{name}: without {line} nothing shows")
    if silent:
        raise Failed("; ".join(silent))
    return plans, tried, noticed


# ---- checkpoints (T43, T44, T45, T53) ---------------------------------------------------------------


def pairs(jobs):
    """What one plan saved, another loads to the bit, and goes on as if nothing had happened."""
    plans = []
    for old in PLANS:
        log, _, early, _ = jobs.uninterrupted(old)
        for new in PLANS:
            if new == old:
                continue
            again = jobs.place("again")
            jobs.run(new, EARLY, "--resume", early, "--checkpoint", again)
            kept = sorted(again.iterdir())[-1] if again.is_dir() else None
            if kept is None:
                raise Failed(f"{new} saved nothing after loading {old}")
            wrong = differing(next(early.iterdir()), kept)
            if wrong:
                raise Failed(f"saved by {old}, loaded by {new}: other bits of {wrong[:3]}")
            after = jobs.run(new, LATE, "--resume", early)
            error = e2e.relative(e2e.column(after, "loss"), e2e.column(log[EARLY:], "loss"))
            if not error <= 1e-5:
                raise Failed(f"saved by {old}, resumed by {new}: losses differ by {error:.1e}")
            plans.append(f"{old}>{new}")
    return plans, 1, swapped_layers(jobs)


def swapped_layers(jobs):
    """Two layers' tensors under each other's names (stage-local numbers would do so): it shows, in the bits, and
    in the losses where a checkpoint does not tell its bits."""
    log, _, early, _ = jobs.uninterrupted("stages")
    wrong = jobs.place("swapped")
    shutil.copytree(early, wrong)
    for path in next(wrong.iterdir()).glob("*.safetensors"):
        raw = path.read_bytes()
        size, = struct.unpack("<Q", raw[:8])
        header = raw[8:8 + size].replace(b".layers.1.", b".layers.X.").replace(
            b".layers.2.", b".layers.1.").replace(b".layers.X.", b".layers.2.")
        path.write_bytes(raw[:8] + header + raw[8 + size:])
    said = jobs.run("both", LATE, "--resume", wrong, code=1)
    if "does not hold the bits that were saved" not in said.stderr:
        raise Failed(f"layers under each other's names are taken for whole: {said.stderr}")
    state = next(wrong.iterdir()) / "state.json"
    state.write_text(json.dumps({key: value for key, value in json.loads(state.read_text()).items()
                                 if key != "bits"}))
    after = jobs.run("both", LATE, "--resume", wrong)
    if e2e.relative(e2e.column(after, "loss"), e2e.column(log[EARLY:], "loss")) <= 1e-5:
        raise Failed("layers under each other's names do not show")
    return 1


def layers(jobs):
    """Saved on four stages, loaded on two: every tensor of every layer has its bits."""
    _, _, early, _ = jobs.uninterrupted("stages")
    again = jobs.place("again")
    jobs.run("both", EARLY, "--resume", early, "--checkpoint", again)
    left, right = next(early.iterdir()), sorted(again.iterdir())[-1]
    names = [key for path in left.glob("*.safetensors") for key in tensors(path)]
    per_layer = {n: sum(f".layers.{n}." in key for key in names) for n in range(4)}
    if len(set(per_layer.values())) != 1 or not per_layer[0]:
        raise Failed(f"tensors of layers: {per_layer}")
    if differing(left, right):
        raise Failed(f"other bits of {differing(left, right)[:3]}")
    _, _, other, _ = jobs.uninterrupted("data")
    if not differing(next(other.iterdir()), left):  # other sums, other bits: the comparison sees
        raise Failed("two runs that cannot be equal to the bit are called equal")
    return ["stages>both"], 1, 1


def position(jobs):
    """The samples after a resume are those that come next, under other data parallelism too."""
    plans, noticed = [], 0
    for old, new in (("tensor", "data"), ("both", "data"), ("data", "stages")):
        log, _, early, _ = jobs.uninterrupted(old)
        want = e2e.column(log[EARLY:], "loss")
        if not e2e.relative(e2e.column(jobs.run(new, LATE, "--resume", early), "loss"), want) <= 1e-5:
            raise Failed(f"{old}>{new}: other losses, so other samples")
        plans.append(f"{old}>{new}")
        moved = jobs.place("moved")
        shutil.copytree(early, moved)
        state = next(moved.iterdir()) / "state.json"
        told = json.loads(state.read_text())
        told["samples"] += BATCH  # as if one batch more had been read
        state.write_text(json.dumps(told))
        after = jobs.run(new, LATE, "--resume", moved, code=None)
        got = e2e.column(after, "loss") if isinstance(after, list) else []
        noticed += got != want and not e2e.relative(got, want[-len(got):] if got else want) <= 1e-5
    if noticed < 3:
        raise Failed("a lost batch does not show")
    return plans, 3, noticed


def killed(jobs, points):
    """kill -9 while it saves: the newest whole checkpoint loads and goes on to the same bits."""
    name = "tensor"
    folder = jobs.build(name)
    steps = 12
    save = jobs.place("whole")
    jobs.run(name, steps, "--save", save)
    draw = random.Random(20)
    resumed = 0
    for point in range(points):
        kept = jobs.place("killed")
        job = subprocess.Popen(  # noqa: it is killed below
            [str(a) for a in (folder / "trainer", "--virtual", "--data", jobs.data, *RUN, "--steps",
                              steps, "--checkpoint", kept, "--checkpoint-every", 1)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=e2e.environment())
        # from the first checkpoint on, so that a save is likely under way
        until = time.monotonic() + 10
        while not (kept.is_dir() and any(kept.glob(WHOLE))):
            if job.poll() is not None or time.monotonic() > until:
                break
            time.sleep(0.001)
        time.sleep(draw.random() * 0.02)
        job.send_signal(signal.SIGKILL)
        job.wait()
        if not list(kept.glob(WHOLE)):
            raise Failed(f"point {point}: it was killed before it saved anything")
        end = jobs.place("end")
        jobs.run(name, steps, "--resume", kept, "--save", end)
        if e2e.digest(end) != e2e.digest(save):
            raise Failed(f"point {point}: resumed to other bits")
        resumed += 1
    cut = jobs.place("cut")
    shutil.copytree(kept, cut)
    for path in sorted(cut.glob(WHOLE))[-1].parent.glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-100])
    after = jobs.run(name, steps, "--resume", cut, code=None)
    if isinstance(after, list) or ".safetensors" not in after.stderr:
        raise Failed("a checkpoint that lacks its last bytes loads")
    return [f"{resumed} kills"], 1, 1


# ---- evaluations (T41, T42) --------------------------------------------------------------------------


def evaluations(log):
    return [row for row in log if "eval_loss" in row]


def evaluated(jobs, name, data, *more, **launch):
    """The rows of a run's evaluations, behind every second of four steps."""
    return evaluations(jobs.run(name, 4, "--eval-data", data, "--eval-every", 2, *more, **launch))


def uneven(jobs):
    """What does not fill a batch is filled up and does not count: one loss on every plan, of every token."""
    tokens = BATCH * SEQ * 2 + 3 * SEQ + 6  # two batches, three rows and a piece of one
    data = jobs.shop.path / "uneven"
    data.write_bytes(jobs.data.read_bytes()[:tokens])
    plans, first = [], None
    for name in PLANS:
        rows = evaluated(jobs, name, data)
        if [row["eval_step"] for row in rows] != [1, 3] or any(row["eval_tokens"] != tokens - 1 for row in rows):
            raise Failed(f"{name}: {rows}")
        first = first or rows
        if not e2e.relative(e2e.column(rows, "eval_loss"), e2e.column(first, "eval_loss")) <= 1e-5:
            raise Failed(f"{name}: {rows} and {first}")
        plans.append(name)
    data.write_bytes(jobs.data.read_bytes()[:tokens - 1])  # a token less: it must show
    fewer = evaluated(jobs, "data", data)
    if e2e.column(fewer, "eval_loss") == e2e.column(first, "eval_loss"):
        raise Failed("a token more or less does not show")
    return plans, 1, 1


def untouched(jobs):
    """Two batches have the loss that two steps without a learning rate have; training's bits stay as they are."""
    data = jobs.shop.path / "even"
    data.write_bytes(jobs.data.read_bytes()[:BATCH * SEQ * 2 + 1])
    folder = jobs.build("both")
    plain, save = jobs.place("plain"), jobs.place("evaluated")
    jobs.run("both", 4, "--save", plain)
    rows = evaluated(jobs, "both", data, "--save", save, launch=[e2e.LPLAN, "run", folder])
    if e2e.digest(plain) != e2e.digest(save):
        raise Failed("weights of a run with evaluations have other bits")
    log = jobs.place("still")
    e2e.command(folder / "trainer", "--virtual", "--data", data, "--init", save, "--steps", 2, "--lr", 0,
                "--quiet", "--log", log)
    steps = e2e.column(e2e.log_of(log), "loss")
    alone = jobs.place("alone")
    e2e.command(folder / "trainer", "--virtual", "--eval-only", "--init", save, "--eval-data", data, "--quiet",
                "--log", alone)
    only = evaluations(e2e.log_of(alone))
    for got in (rows[-1], only[0]):
        if not abs(got["eval_loss"] / (sum(steps) / 2) - 1) <= 1e-6:
            raise Failed(f"{got} and {steps}")
    other = jobs.place("other")
    jobs.run("both", 4, "--save", other, "--seed", 6)
    if e2e.digest(plain) == e2e.digest(other):
        raise Failed("two runs that cannot be equal to the bit are called equal")
    return ["both", "both under mpirun"], 1, 1


# ---- 16 bits (T30, T49) -----------------------------------------------------------------------------


def overflow(jobs):
    """An infinite gradient of one rank, whichever it is, skips one step everywhere; not when each rank asks
    its own sum alone."""
    def outcomes(folder, ranks):
        found = []
        for rank in ranks:
            save = jobs.place("infinite")
            log = jobs.run("fp16", EARLY, "--inject-overflow", f"1:{rank}", "--save", save, "--timeout", 10,
                           folder=folder, code=None)
            found.append(log.stderr[-200:] if not isinstance(log, list) else
                         ([r["skipped"] for r in log], e2e.column(log, "loss"), e2e.digest(save)))
        return found
    sound = outcomes(None, range(4))
    if any(one != sound[0] for one in sound) or sound[0][0] != [step == 1 for step in range(EARLY)]:
        raise Failed(f"which rank had the overflow matters, or it is not skipped: {sound}")
    world = "    lp_all_reduce(&s->world, LP_WORLD, totals,"
    apart = edited(jobs, "fp16", "apart", lambda text: text.replace(
        world, "    const double own = lp_exact_value(&totals->norm2);\n" + world).replace(
            "isfinite(s->norm)", "isfinite(own)"))
    return ["fp16 x 4 ranks"], 1, int(outcomes(apart, [1]) != sound[:1])


def drift(jobs):
    """Gains see parts of the sequence: in bf16 their gradients are summed over tp, as in fp32."""
    def worst(folder):
        path = jobs.place("gradients")
        jobs.run("bf16", 1, "--dump-grads", path, folder=folder)
        found = e2e.tensors_of(path)
        gains = [name for name in want if "norm" in name]
        if len(gains) != 2 * LLAMA["num_hidden_layers"] + 1:
            raise Failed(f"not every norm has a gradient: {gains}")
        return max(max(abs(a - b) for a, b in zip(found[name][1], want[name][1])) /
                   max(map(abs, want[name][1])) for name in gains)
    wide = jobs.place("wide")
    jobs.run("tensor", 1, "--dump-grads", wide)
    want = e2e.tensors_of(wide)
    error, unit = worst(None), 2.0 ** -9
    if not error <= 16 * unit:
        raise Failed(f"gains' gradients in bf16 are {error:.1e} from those in fp32")
    alone = worst(edited(jobs, "bf16", "alone", lambda text: text.replace(
        "lp_all_reduce(event, s->comm[OVER_TP_DP], flat", "lp_all_reduce(event, s->comm[OVER_DP], flat")))
    return ["bf16"], 1, int(not alone <= 16 * unit)


# ---- devices (T51) ----------------------------------------------------------------------------------


def devices(jobs):
    """An unknown device has no utilisation; a sharded optimizer accumulates; ranks are checked."""
    folder = jobs.build("both")
    text = (folder / "trainer.c").read_text()
    unknown, n = re.subn(r"\.peak_flops = [^,]*,", ".peak_flops = 0,", text)
    if n != 1:
        raise Failed("the trainer names no peak rate")
    other = jobs.shop.path / "unknown"
    shutil.copytree(folder, other)
    (other / "trainer.c").write_text(unknown)
    env = e2e.compiles(jobs.shop.cache)
    e2e.command("sh", other / "build.sh", env=env, timeout=120)
    log = jobs.run("both", 2, folder=other)
    if any(r["mfu"] is not None for r in log):
        raise Failed(f"an unknown device has a utilisation: {log[0]['mfu']}")
    known = jobs.run("both", 2)
    if any(r["mfu"] is None for r in known):
        raise Failed("a known device has none")
    few = e2e.command(folder / "trainer", "--data", jobs.data, code=2)
    if "this plan has 4 ranks, but 1 was started" not in few.stderr:
        raise Failed(f"one process for four ranks: {few.stderr[-200:]}")
    return ["both", "both, device unknown"], 1, 1


def rows(seeds, points):
    """Id -> what runs it."""
    return {
        "T23": lambda jobs: races(jobs, seeds),
        "T30": overflow,
        "T41": uneven,
        "T42": untouched,
        "T43": pairs,
        "T44": position,
        "T45": lambda jobs: killed(jobs, points),
        "T49": drift,
        "T51": devices,
        "T53": layers,
    }
