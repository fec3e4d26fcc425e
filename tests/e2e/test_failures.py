#!/usr/bin/env python3
"""test_failures.py - how jobs end when something is wrong: one clear line, in time, and nobody left.

    test_failures.py LPLAN"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import e2e
from e2e import Failed, LPLAN

LONG = 10 ** 9
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 32,
    "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "torch_dtype": "float32", "vocab_size": 131,
}
PLANS = {
    "one": {},
    "two": {"pp": 2},
    "four": {"dp": 2, "tp": 2, "zero": 1},
    "cross": {"tp": 2, "pp": 2, "sp": 1},
}
FLOW = {"pp": 2, "dp": 2, "zero": 3, "schedule": "2bw", "weight_home": "dram"}  # steps flow into each other: stale weights


class Job:
    """A running `lplan run`, and the processes it started."""

    def __init__(self, trainer, log, *options):
        self.log = pathlib.Path(log)
        if self.log.exists():
            raise Failed(f"{log} is of another job")
        self.trainer = str(trainer / "trainer")
        words = [LPLAN, "run", trainer, "--quiet", "--log", log, *options]
        self.process = subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                        text=True, env=e2e.environment())

    def steps(self):
        path = self.log / "log.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    def wait_steps(self, count, seconds=40):
        end = time.monotonic() + seconds
        while self.steps() < count:
            if self.process.poll() is not None or time.monotonic() > end:
                out, err = self.stop()
                raise Failed(f"no {count} steps: {self.process.returncode}\n{out}{err}")
            time.sleep(0.05)

    def send(self, rank, signal_number):
        """Sends a signal to a rank, which its status file names, and gives its process id."""
        # The head of the line never changes; the rest may be half written as it is read.
        status = (self.log / f"rank-{rank}.status").read_text()
        pid = int(re.search(r'"pid":(\d+)', status).group(1))
        if pid not in self.left():
            raise Failed(f"rank {rank} should be process {pid}; running: {self.left()}")
        os.kill(pid, signal_number)
        return pid

    def end(self, seconds):
        """(status, seconds it took, stdout, stderr)"""
        begin = time.monotonic()
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            self.stop()
            raise Failed(f"the job was still there after {seconds} s") from error
        return self.process.returncode, time.monotonic() - begin, out, err

    def stop(self):
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()
        return self.process.communicate()

    def left(self):
        """Processes of this trainer that still run: zombies do not count."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self.process.pid:
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if self.trainer.encode() in words and state not in "ZX":
                found.append(int(entry.name))
        return found


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def one_line(text, pattern):
    # A list under the line, indented, belongs to it.
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("  ")]
    if len(lines) != 1 or not lines[0].startswith("lplan: "):
        raise Failed(f"not exactly one line of ours:\n{text}")
    if not re.search(pattern, lines[0]):
        raise Failed(f"it does not say /{pattern}/:\n{text}")
    return lines[0]


class Failures:
    def __init__(self, shop):
        self.shop = shop
        self.text = e2e.text_file(shop.path / "text")
        self.trainer = {}
        model = shop.path / "model.json"
        model.write_text(json.dumps(CONFIG))
        for name, pins in {**PLANS, "flow": FLOW}.items():
            plan = e2e.plan(model, pins, shop.path / f"{name}.json", 8, 16)
            self.trainer[name] = shop.path / name
            e2e.build(plan, self.trainer[name], shop.cache, "--no-check")

    def log(self, name):
        return self.shop.path / "logs" / name

    def refused(self, name, code, pattern, *options):
        result = e2e.lplan("run", self.trainer[name], "--quiet", "--log", self.log("refused"),
                           *options, code=code, timeout=60)
        print(f"#   {one_line(result.stderr, pattern)}")
        return result.stderr

    # ---- a rank dies or stops ----

    def killed(self, name, victim):
        job = Job(self.trainer[name], self.log(f"killed-{name}-{victim}"), "--data", self.text,
                  "--steps", LONG)
        job.wait_steps(3)
        pid = job.send(victim, signal.SIGKILL)
        status, seconds, _, err = job.end(30)
        line = one_line(err, rf"rank {victim} \(stage \d, host .*, pid {pid}\) died of signal 9 "
                             r"\(Killed\) at step \d+, `.+`")
        if status == 0:
            raise Failed(f"the job ended with 0\n{err}")
        time.sleep(0.5)
        if job.left():
            raise Failed(f"still there: {job.left()}")
        print(f"#   {seconds:.1f} s, status {status}: {line}")

    def killed_at_start(self):
        """Before the ranks have met: MPI may add words of its own, ours are one line. mpirun may lose
        a rank that it has not registered yet and wait for it; then the launcher ends the job."""
        job = Job(self.trainer["four"], self.log("killed-at-start"), "--data", self.text,
                  "--steps", LONG)
        end = time.monotonic() + 20
        ranks = []
        while len(ranks) < 4 and time.monotonic() < end:
            ranks = [pid for pid in job.left() if name_of(pid) == "trainer"]
        if not ranks:
            raise Failed("no rank has started in 20 s")
        os.kill(ranks[-1], signal.SIGKILL)
        status, seconds, _, err = job.end(30)
        lines = [line for line in err.splitlines() if line.startswith("lplan: ")]
        why = re.compile(r"died of signal 9 \(Killed\)|[0-3] of 4 ranks have begun 20 s after")
        if status == 0 or len(lines) != 1 or not why.search(lines[0]):
            raise Failed(f"status {status}\n{err}")
        time.sleep(0.5)
        if job.left():
            raise Failed(f"still there: {job.left()}")
        print(f"#   {seconds:.1f} s, status {status}: {lines[0]}")

    def frozen(self):
        """A rank that does not move: the watchdog of another names it."""
        job = Job(self.trainer["four"], self.log("frozen"), "--data", self.text, "--steps", LONG,
                  "--timeout", 6)
        job.wait_steps(3)
        pid = job.send(2, signal.SIGSTOP)
        status, seconds, _, err = job.end(30)
        # Who speaks may wait for a rank that itself waits for rank 2: the one at the chain's end is named.
        line = one_line(err, rf"waiting for rank [0-3] .*; rank 2 \(pid {pid}\) is at step \d+, "
                             r"`.+`, silent for")
        time.sleep(0.5)
        if status == 0 or job.left():
            raise Failed(f"status {status}, still there: {job.left()}\n{err}")
        print(f"#   {seconds:.1f} s, status {status}: {line}")

    # ---- asked to stop ----

    def stopped(self, name, signal_number):
        saved = self.shop.path / f"stopped-{name}-{int(signal_number)}.safetensors"
        job = Job(self.trainer[name], self.log(f"stopped-{name}-{signal_number.name}"), "--data",
                  self.text, "--steps", LONG, "--save", saved)
        job.wait_steps(3)
        job.process.send_signal(signal_number)
        status, seconds, _, err = job.end(60)
        if status != 0 or err.strip():
            raise Failed(f"status {status} after {signal_number.name}\n{err}")
        if job.left():
            raise Failed(f"still there: {job.left()}")
        steps = job.steps()
        # What was saved is what a run of so many steps saves.
        again = self.shop.path / "again.safetensors"
        e2e.train(self.trainer[name], self.log("again"), "--data", self.text, "--steps", steps,
                  "--save", again)
        if e2e.digest(saved) != e2e.digest(again):
            raise Failed(f"the weights saved after {steps} steps are not those of {steps} steps")
        print(f"#   saved {steps} steps' weights within {seconds:.1f} s")

    def flow_stopped(self):
        """Steps that have begun somewhere are ended; what is left resumes as if it had drained on its own."""
        options = ["--data", self.text, "--schedule", "constant", "--warmup", 1]
        kept = self.shop.path / "flow-kept"
        job = Job(self.trainer["flow"], self.log("flow-stopped"), *options, "--steps", LONG, "--checkpoint", kept)
        job.wait_steps(3)
        job.process.send_signal(signal.SIGTERM)
        status, seconds, _, err = job.end(60)
        if status != 0 or err.strip() or job.left():
            raise Failed(f"status {status}, still there: {job.left()}\n{err}")
        steps, bits = job.steps(), []
        for how, more in {"rest": ["--resume", kept],
                          "whole": ["--checkpoint", self.shop.path / "flow-other", "--checkpoint-every",
                                    steps]}.items():
            saved = self.shop.path / f"flow-{how}.safetensors"
            log = e2e.train(self.trainer["flow"], self.log(f"flow-{how}"), *options, "--steps", steps + 4,
                            "--save", saved, *more)
            bits.append(([r["loss"] for r in log][-4:], e2e.digest(saved)))
        if bits[0] != bits[1]:
            raise Failed(f"after {steps} steps it goes on otherwise: {bits}")
        print(f"#   kept {steps} steps within {seconds:.1f} s")

    # ---- wrong from the start ----

    def wrong_world(self):
        trainer = self.trainer["two"] / "trainer"
        env = e2e.environment(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                              OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_btl="self,vader",
                              OMPI_MCA_pml="ob1", OMPI_MCA_hwloc_base_binding_policy="none")
        for count in (1, 3, 4):
            result = e2e.command("mpirun", "-np", count, trainer, "--data", self.text, code=None,
                                 timeout=60, env=env)
            lines = [line for line in result.stderr.splitlines() if line.startswith("lplan: ")]
            if result.returncode != 2 or len(lines) != 1:
                raise Failed(f"{count} ranks: status {result.returncode}\n{result.stderr}")
            if not re.search(rf"2 ranks, but {count} w.*mpirun -np 2", lines[0]):
                raise Failed(f"{count} ranks: no right command in: {lines[0]}")
        print(f"#   {lines[0]}")

    def missing_data(self):
        for name in PLANS:
            self.refused(name, 1, r"/nowhere/text: No such file", "--data", "/nowhere/text")

    def missing_weights(self):
        self.refused("four", 1, r"absent\.safetensors: No such file", "--data", self.text,
                     "--init", self.shop.path / "absent.safetensors")

    def strange_token(self):
        path = self.shop.path / "strange"
        body = bytearray(self.text.read_bytes())
        body[500] = 200
        path.write_bytes(bytes(body))
        for name in PLANS:
            self.refused(name, 1, r"strange: .*(500.*200|200.*500).*131", "--data", path)

    def other_weights(self):
        """Weights of another model are no start: all that is wrong with them, a line each."""
        said = self.refused("two", 1, r"gpt2/model\.safetensors does not fit the model:$", "--data",
                            self.text, "--init", e2e.GOLDEN / "gpt2" / "model.safetensors")
        for wanted in (r"  missing in the file: model\.norm\.weight \[32\]",
                       r"  unknown to the model: wte\.weight \[96,48\]"):
            if not re.search(rf"^{wanted}$", said, re.MULTILINE):
                raise Failed(f"no line `{wanted}`:\n{said}")

    def not_built(self):
        result = e2e.lplan("run", self.shop.path / "nowhere", code=1)
        if "lplan build PLAN -o" not in result.stderr:
            raise Failed(f"no remedy:\n{result.stderr}")

    # ---- going on ----

    def other_plan_goes_on(self):
        """Weights saved under each plan give one next loss under every plan."""
        options = ["--data", self.text, "--schedule", "constant", "--warmup", 0]
        for before in PLANS:
            saved = self.shop.path / f"saved-{before}.safetensors"
            e2e.train(self.trainer[before], self.log("before"), *options, "--steps", 4, "--save",
                      saved)
            losses = [e2e.train(self.trainer[name], self.log("after"), *options, "--steps", 2,
                                "--init", saved)[0]["loss"] for name in PLANS]
            spread = (max(losses) - min(losses)) / min(losses)
            if not spread < 1e-6:
                raise Failed(f"weights of {before}: losses {losses}")
            copy = self.shop.path / "copy.safetensors"
            e2e.train(self.trainer["cross"], self.log("copy"), *options, "--steps", 0, "--init",
                      saved, "--save", copy)
            if e2e.digest(copy) != e2e.digest(saved):
                raise Failed(f"weights of {before} change by loading and saving")

    def resumed(self):
        """A checkpoint of one plan goes on: with the same bits under it, and near under others."""
        options = ["--data", self.text, "--schedule", "constant", "--warmup", 3, "--lr", 1e-2]
        whole = self.shop.path / "whole.safetensors"
        later = self.shop.path / "later.safetensors"
        early = self.shop.path / "early"
        log = e2e.train(self.trainer["four"], self.log("whole"), *options, "--steps", 12, "--save",
                        whole, "--checkpoint", early, "--checkpoint-every", 5)
        for newer in sorted(early.iterdir())[1:]:
            newer.rename(self.shop.path / newer.name)
        if [p.name for p in early.iterdir()] != ["step-000000000005"]:
            raise Failed(f"checkpoints: {sorted(p.name for p in early.iterdir())}")
        again = e2e.train(self.trainer["four"], self.log("later"), *options, "--steps", 12,
                          "--save", later, "--resume", early)
        if [r["loss"] for r in again] != [r["loss"] for r in log[5:]]:
            raise Failed("the losses after resuming have other bits")
        if e2e.digest(whole) != e2e.digest(later):
            raise Failed("the weights after resuming have other bits")
        for name in PLANS:
            other = e2e.train(self.trainer[name], self.log("other"), *options, "--steps", 12,
                              "--resume", early)
            error = e2e.relative(e2e.column(other, "loss"), e2e.column(log[5:], "loss"))
            if not error <= 1e-5:
                raise Failed(f"{name} goes on with losses that differ by {error:.1e}")


def main():
    tap = e2e.Tap()
    with e2e.Workshop() as shop:
        jobs = tap.case("trainers of one, two and four ranks", Failures, shop)
        if jobs is None:
            tap.end()
        tap.case("kill -9 of rank 1 of 2", jobs.killed, "two", 1)
        tap.case("kill -9 of rank 0 of 2", jobs.killed, "two", 0)
        tap.case("kill -9 of rank 2 of 4", jobs.killed, "four", 2)
        tap.case("kill -9 of rank 3 of 4, across stages", jobs.killed, "cross", 3)
        tap.case("kill -9 at the start", jobs.killed_at_start)
        tap.case("a frozen rank is named", jobs.frozen)
        tap.case("SIGTERM saves, one rank", jobs.stopped, "one", signal.SIGTERM)
        tap.case("SIGTERM saves, four ranks", jobs.stopped, "four", signal.SIGTERM)
        tap.case("SIGINT saves, two stages", jobs.stopped, "two", signal.SIGINT)
        tap.case("SIGTERM drains steps that flow into each other", jobs.flow_stopped)
        tap.case("a wrong world is refused with the right command", jobs.wrong_world)
        tap.case("missing data", jobs.missing_data)
        tap.case("missing weights", jobs.missing_weights)
        tap.case("weights of another model", jobs.other_weights)
        tap.case("a byte outside the vocabulary", jobs.strange_token)
        tap.case("a folder without trainer", jobs.not_built)
        tap.case("weights go on under another plan", jobs.other_plan_goes_on)
        tap.case("a checkpoint goes on", jobs.resumed)
    tap.end()


if __name__ == "__main__":
    main()
