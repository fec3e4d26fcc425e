#!/usr/bin/env python3
"""test_activations.py - bytes of GPT-3 175B against the published formulas (CONTRACTS 1.2 and 1.3): Korthikanti et
al. 2022 for activations of a layer, Rajbhandari et al. 2020 for weights, gradients and optimizer.

    test_activations.py LPLAN

Where our kernels keep other tensors than Megatron's, the difference is written out, and exact: no mask of
dropout (it is drawn again, 1 byte each, 2 of them), no scores of attention but their log-sum-exp (4 bytes a head
and token), and with sequence parallelism a plan may keep the gathered inputs of both first linears."""
import json
import pathlib
import subprocess
import sys
import tempfile

LPLAN = sys.argv[1]
S, H, A, LAYERS, T, P = 2048, 12288, 96, 96, 8, 8
CONFIG = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
          "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "layer_norm_epsilon": 1e-5, "n_ctx": S,
          "n_embd": H, "n_head": A, "n_layer": LAYERS, "n_positions": S, "vocab_size": 51200,
          "tie_word_embeddings": True}
SBH = S * H
LSE = 4 * S * A // T
PLAIN = SBH * 10 + SBH * 24 // T  # no sequence parallelism, attention without its scores
SPLIT = 34 * SBH // T             # with it
# pins -> bytes that some label of the block keeps a layer
KEPT = {
    "sp=0,recompute=none": [PLAIN - 2 * SBH + LSE],
    "sp=1,recompute=none": [SPLIT - 2 * SBH // T + LSE,
                            SPLIT - 2 * SBH // T + LSE + 2 * (2 * SBH - 2 * SBH // T)],
    "sp=0,recompute=full": [2 * SBH],
    "sp=1,recompute=full": [2 * SBH // T],
}


def report_of(folder, pins, gpus):
    text = subprocess.run([LPLAN, "plan", folder / "gpt3.json", "dgx-h100", "--gpus", str(gpus), "--global-batch",
                           "64", "--seq", str(S), "--pin", f"tp={T},pp={P},mbs=1,schedule=1f1b,{pins}", "--json"],
                          check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
    return json.loads(text)


def activations(folder):
    for pins, wanted in KEPT.items():
        report = report_of(folder, f"zero=0,dp=1,block=0,{pins}", T * P)
        labels = [label["saved_bytes"] for label in report["block_labels"]]
        missing = [bytes_ for bytes_ in wanted if bytes_ not in labels]
        yield f"{pins}: a layer keeps {wanted}", not missing, f"labels keep {labels}"
        # 1F1B: the first stage holds the micro-batches of all stages
        held = P * LAYERS // P * labels[0]
        got = report["stages"][0]["bytes"]["activations"]
        yield f"{pins}: the first stage holds {P} micro-batches", held <= got < held + 6 * P * SBH, \
            f"{got} bytes, {held} of layers"


def states(folder):
    """2 + 4 + 12 bytes a parameter (gradients are fp32 here, where the paper has 2): of d ranks each has of the 12,
    the 4 and the 2 its share, one after the other."""
    # a middle stage: 12 layers of 12 h^2 + 13 h, of which t ranks share all but norms and row biases
    near = LAYERS // P * ((12 * H * H + 7 * H) // T + 6 * H)
    for zero in range(4):
        report = report_of(folder, f"zero={zero},dp=2,sp=1,recompute=full,block=0", 2 * T * P)
        kept = report["stages"][1]["bytes"]
        for stage, what, each in (1, "optimizer", 12), (2, "gradients", 4), (3, "weights", 2):
            wanted = each * near // (2 if zero >= stage else 1)
            yield f"zero={zero}: {what} take {wanted} bytes", abs(kept[what] - wanted) <= 4096 * each, kept


def main():
    failed = number = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "gpt3.json").write_text(json.dumps(CONFIG))
        for part in (activations, states):
            for what, good, seen in part(folder):
                number += 1
                failed += not good
                print(f"{'ok' if good else 'not ok'} {number} - {what}")
                if not good:
                    print(f"#   {seen}")
    print(f"1..{number}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
