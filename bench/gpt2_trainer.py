#!/usr/bin/env python3
"""GPT-2 124M, fp32, one rank: tokens/s and peak memory of the generated trainer beside the BLAS floor and PyTorch of the same run.

  gpt2_trainer.py LPLAN BLAS_FLOOR [--batch 4] [--seq 64 256] [--threads 2] [--steps 6]

The floor is the same GEMM shapes through the same BLAS plus AdamW's memory traffic (blas_floor.c); PyTorch is torch_gpt2.py, tuned,
left out where python3 has no torch. Only the ratios of one run mean anything: machines are noisy. The first step is dropped.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "..", "examples", "models", "gpt2.json")


def last_json(text):
    """The last line of a program's output that is JSON."""
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def run(command, **options):
    """Runs to the end; its output. A failure is shown whole."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode not in (0, 77):
        sys.exit(f"{' '.join(command)}\n{done.stdout}")
    return done.stdout if done.returncode == 0 else None


def trainer(arguments, seq, folder):
    """Plans, builds and runs; the fastest step's tokens/s and the peak bytes."""
    plan, out = os.path.join(folder, f"gpt2-{seq}.json"), os.path.join(folder, f"gpt2-{seq}")
    run([arguments.lplan, "plan", MODEL, "host", "--gpus", "1", "--pin", f"mbs={arguments.batch}", "--global-batch",
         str(arguments.batch), "--seq", str(seq), "-o", plan, "-q"])
    run([arguments.lplan, "build", plan, "-o", out])
    run([os.path.join(out, "trainer"), "--data", "random", "--steps", str(arguments.steps), "--threads",
         str(arguments.threads), "--log", os.path.join(out, "run"), "--quiet"])
    with open(os.path.join(out, "run", "log.jsonl"), encoding="utf-8") as log:
        steps = [json.loads(line) for line in log if '"loss"' in line]
    return max(s["tokens_per_s"] for s in steps[1:]), steps[-1]["peak_bytes"]


def main():
    """One table, a row a sequence length; a line of JSON behind it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lplan")
    parser.add_argument("blas_floor")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    rows = []
    print(f"GPT-2 124M, fp32, {arguments.threads} threads, batch {arguments.batch}, tokens/s")
    print(f"{'seq':>5} {'lplan':>8} {'floor':>8} {'torch':>8} {'of floor':>9} {'x torch':>8} {'peak RSS':>10}")
    for seq in arguments.seq:
        with tempfile.TemporaryDirectory() as folder:
            ours, peak = trainer(arguments, seq, folder)
        floor = last_json(run([arguments.blas_floor, str(arguments.batch), str(seq), "3"]))["tokens_per_s"]
        text = run([sys.executable, os.path.join(HERE, "torch_gpt2.py"), "--batch", str(arguments.batch), "--seq", str(seq),
                    "--threads", str(arguments.threads)])
        torch = last_json(text)["tokens_per_s"] if text else None
        rows.append({"seq": seq, "tokens_per_s": ours, "floor": floor, "torch": torch, "peak_bytes": peak})
        print(f"{seq:5d} {ours:8.0f} {floor:8.0f} {torch or 0:8.0f} {ours / floor:9.0%} "
              f"{ours / torch if torch else 0:8.2f} {peak / 2**20:7.0f} MiB")
    print(json.dumps({"bench": "gpt2_trainer", "rows": rows}))


if __name__ == "__main__":
    main()
