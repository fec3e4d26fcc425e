#!/usr/bin/env python3
"""test_large.py - reports and trainers that take seconds each: large models, wide spaces. Speaks TAP.

    test_large.py LPLAN [TEST ...]"""
import json
import os
import re
import sys
import tempfile

from test_report import HERE, MODELS, good, main, plan_file, run

sys.path.insert(0, str(HERE.resolve().parent / "e2e"))
import e2e  # noqa: beside it


def test_trainer_refuses_a_small_device():
    """What the trainer measures outside the arena counts: it ends before step 0, in one line."""
    with tempfile.TemporaryDirectory() as folder:
        path = plan_file(folder, "plan.json", MODELS / "llama-10m.json", "host", "--gpus", "1",
                         "--global-batch", "2", "--seq", "16")
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
        arena = max(plan["predicted"]["peak_bytes"])
        for room, code in [(1 << 30, 0), (1 << 20, 3)]:
            plan["cluster"]["device"].update(memory_bytes=arena + room, margin_bytes=1 << 10)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(plan, file)
            e2e.build(path, os.path.join(folder, "trainer"), os.path.join(folder, "objects"), "--no-check")
            result = run("run", os.path.join(folder, "trainer"), "--data", "random", "--steps", "1")
            assert result.returncode == code, result
            assert ("step 0/1" in result.stdout) == (code == 0), result.stdout
            if code:
                lines = [line for line in result.stderr.splitlines() if line.strip()]
                assert len(lines) == 1 and re.match(
                    r"lplan: not enough memory: rank 0 needs \d+ bytes, its arena of \d+ and \d+ "
                    r"measured outside it; the device that this plan was made for has \d+$",
                    lines[0]), result.stderr
            else:
                assert re.search(r"^memory: arena .* outside it \(measured\)", result.stdout,
                                 re.MULTILINE), result.stdout


def test_wide_space():
    """etp=1 beside tp, rings on tp and rows two in one are searched when asked, and named when not."""
    job = [MODELS / "mixtral-8x7b.json", "dgx-h100", "--gpus", "16", "--global-batch", "16", "--seq", "4096", "--pin",
           "tp=4,mbs=1,zero=1,recompute=full,sp=1"]
    narrow, wide = (json.loads(good("plan", *job, *more, "--json")) for more in ([], ["--wide"]))
    space, wider = narrow["search"]["space"], wide["search"]["space"]
    assert space["outside"] == wider["widened"] == ["etp=1", "tp_by=ring", "braid=1", "exchange=padded"], (
        space, wider)
    assert not space["wide"] and wider["wide"] and wide["search"]["considered"] > narrow["search"]["considered"]
    assert wide["placement"]["braid"] and wide["placement"]["schedule"] == "dualpipev", wide["placement"]
    assert wide["predicted"]["step_ns"] < narrow["predicted"]["step_ns"], (wide["predicted"], narrow["predicted"])


def test_large_model():
    """Printed, not judged: the time depends on the machine. The answer must be proven optimal."""
    report = json.loads(good("plan", MODELS / "llama-3.1-405b.json", "dgx-h100", "--gpus", "2048",
                             "--global-batch", "2048", "--seq", "8192", "--json"))
    assert report["search"]["gap"] == 0
    assert max(report["predicted"]["peak_bytes"]) <= 76 << 30
    print(f"# llama-3.1-405b on 2048: {report['search']['wall_ns'] / 1e6:.0f} ms of search")


GPT3 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 12288, "n_head": 96,
        "n_layer": 96, "n_positions": 2048, "vocab_size": 50257, "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new", "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}


def test_homes_of_gpt3():
    """175 billion parameters on 64 ranks: 2 + 4 + 12 bytes of each, and what every ZeRO divides by 64."""
    parts = ("weights", "gradients", "optimizer")
    params = 174_604_259_328 # layers of 12 h^2 + 13 h, embeddings of 50257 + 2048 rows, the last norm
    h = GPT3["n_embd"]
    assert params == 96 * (12 * h * h + 13 * h) + (50257 + 2048) * h + 2 * h
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "gpt3.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(GPT3, file)
        for zero in range(4):
            pins = f"tp=1,pp=1,dp=64,zero={zero},recompute=full,mbs=1"
            result = run("plan", path, "dgx-h100", "--gpus", "64", "--global-batch", "64", "--seq",
                         "2048", "--recipe", "bf16", "--pin", pins, "--json")
            report = json.loads(result.stdout)
            if zero < 3:
                assert result.returncode == 3, (zero, result.returncode)
                held = [report["search"]["tightest"][f"{part}_bytes"] for part in parts]
            else:
                assert result.returncode == 0, result.stderr
                held = [report["stages"][0]["bytes"][part] for part in parts]
            cut = [64 if zero >= 3 else 1, 64 if zero >= 2 else 1, 64 if zero >= 1 else 1]
            for bytes_of, each, ranks in zip(held, (2, 4, 12), cut):
                assert abs(bytes_of * ranks / (each * params) - 1) < 1e-3, (zero, held)
        text = good("plan", path, "dgx-h100", "--gpus", "64", "--global-batch", "64", "--seq", "2048",
                    "--recipe", "bf16", "--pin", "dp=64,zero=3,recompute=full,mbs=1")
        assert "ZeRO-3 (FSDP)" in text and "all over dp 64" in text, text
        assert re.search(r"weights are whole from one layer before their use until it: [0-9.]+ GiB",
                         text), text


if __name__ == "__main__":
    main(globals())
