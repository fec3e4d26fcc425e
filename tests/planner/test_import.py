#!/usr/bin/env python3
"""test_import.py - configs in, model files out: names, shapes, counts; and configs that must be refused. Speaks TAP.

    test_import.py LPLAN"""
import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from bad_configs import BAD, LLAMA

LPLAN = os.path.abspath(sys.argv[1])
ROOT = pathlib.Path(os.environ.get("LPLAN_SOURCE_ROOT", pathlib.Path(__file__).parents[2]))
MODELS = ROOT / "examples" / "models"
CONFIGS = ROOT.parent / "shared" / "data" / "hf"
# Published totals of the models in examples/models; llama-10m is ours, counted by hand.
TOTALS = {
    "gpt2": 124439808,
    "llama-10m": 256 * 320 * 2 + 8 * (320 * 320 * 3 + 320 * 960 * 3 + 2 * 320) + 320,
    "llama-3-8b": 8030261248,
    "llama-3.1-70b": 70553706496,
    "llama-3.1-405b": 405853388800,
    "mistral-7b": 7241732096,
    "pythia-160m": 162322944,
    "qwen2.5-7b": 7615616512,
    "qwen3-8b": 8190735360,
    "tinyllama-1.1b": 1100048384,
}


def run(*arguments, **more):
    return subprocess.run([LPLAN, "import", *map(str, arguments)], capture_output=True, text=True,
                          check=False, stdin=subprocess.DEVNULL, timeout=60, **more)


def imported(path, *more):
    """The summary and the model file of a config that must be good."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "model.json")
        result = run(path, "-o", out, "--json", *more)
        assert result.returncode == 0, result
        with open(out, encoding="utf-8") as file:
            return json.loads(result.stdout), json.load(file)


def imported_text(config, *more):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "given.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        return imported(path, *more)


def block_tensors(model, block):
    """Name -> stored shape, from the ops alone. The last axes of a value are tracked as dim names."""
    axes = {"ids": [], "positions": []}
    given = block.get("in")
    if given:
        axes[given] = ["h"]
    tensors = {}

    def size(names):
        product = 1
        for name in names:
            product *= model["dims"][name]
        return product

    for op in block["ops"]:
        kind, source, out = op["op"], op.get("in"), op.get("out")
        first = source[0] if isinstance(source, list) else source
        if kind == "embedding":
            tensors[op["table"]] = [size([op["rows"]]), size(op["cols"])]
            axes[out] = op["cols"]
        elif kind == "linear":
            origin = op.get("from", axes[first][-1:])
            shape = [size(op["to"]), size(origin)]
            tensors[op["weight"]] = shape[::-1] if op.get("transposed") else shape
            axes[out] = axes[first][:len(axes[first]) - len(origin)] + op["to"]
            if "bias" in op:
                tensors[op["bias"]] = [size(op["to"])]
        elif kind == "norm":
            for key in ("gain", "bias"):
                if key in op:
                    tensors[op[key]] = [size(axes[first][-1:])]
            axes[out] = axes[first]
        elif kind == "split":
            for part in out:
                axes[part] = [name for name in axes[first] if name != op["dim"]]
        elif kind != "cross_entropy":
            axes[out] = axes[first]
    return tensors


def tensors_of(model):
    found = {}
    for entry in model["chain"]:
        tensors = block_tensors(model, model["blocks"][entry["block"]])
        for i in range(entry.get("first", 0), entry.get("first", 0) + entry.get("repeat", 1)):
            for name, shape in tensors.items():
                name = name.replace("{i}", str(i))
                assert found.setdefault(name, shape) == shape, name
    return found


def count_of(tensors):
    total = 0
    for shape in tensors.values():
        product = 1
        for extent in shape:
            product *= extent
        total += product
    return total


def test_examples_have_the_published_totals():
    found = {path.stem: path for path in MODELS.glob("*.json")}
    configs = {name: path for name, path in found.items()
               if "model_type" in json.loads(path.read_text(encoding="utf-8"))}
    assert set(TOTALS) <= set(configs), set(TOTALS) - set(configs)
    for name, path in sorted(configs.items()):
        summary, model = imported(path)
        total = count_of(tensors_of(model))
        print(f"# {name:20} expected {TOTALS.get(name)} summary {summary['params_total']} file {total}")
        assert name in TOTALS, f"{name}: add its published total"
        assert summary["params_total"] == total == TOTALS[name], name
        assert summary["params_active"] == total
        assert model["name"] == name and model["format"] == "lplan-model/1"


def test_flops_are_six_per_weight_and_twelve_per_pair():
    _, model = imported(MODELS / "llama-10m.json")
    dims = model["dims"]
    tensors = tensors_of(model)
    weights = sum(shape[0] * shape[1] for name, shape in tensors.items()
                  if len(shape) == 2 and "embed_tokens" not in name)
    for sequence in (64, 512):
        summary, _ = imported(MODELS / "llama-10m.json", "--seq", sequence)
        pairs = 8 * sequence * dims["g"] * dims["r"] * dims["d"]
        assert summary["flops_per_token"] == 6 * weights + 12 * pairs, summary
        assert summary["sequence"] == sequence


def test_gpt2_names_are_the_hub_s():
    _, model = imported(MODELS / "gpt2.json")
    tensors = tensors_of(model)
    layer = {
        "ln_1.weight": [768], "ln_1.bias": [768], "ln_2.weight": [768], "ln_2.bias": [768],
        "attn.c_attn.weight": [768, 2304], "attn.c_attn.bias": [2304],
        "attn.c_proj.weight": [768, 768], "attn.c_proj.bias": [768],
        "mlp.c_fc.weight": [768, 3072], "mlp.c_fc.bias": [3072],
        "mlp.c_proj.weight": [3072, 768], "mlp.c_proj.bias": [768],
    }
    expected = {"wte.weight": [50257, 768], "wpe.weight": [1024, 768], "ln_f.weight": [768],
                "ln_f.bias": [768]}
    expected.update({f"h.{i}.{name}": shape for i in range(12) for name, shape in layer.items()})
    assert tensors == expected


def test_llama_names_are_the_hub_s():
    _, model = imported(MODELS / "llama-10m.json")
    layer = {
        "input_layernorm.weight": [320], "post_attention_layernorm.weight": [320],
        "self_attn.q_proj.weight": [320, 320], "self_attn.k_proj.weight": [160, 320],
        "self_attn.v_proj.weight": [160, 320], "self_attn.o_proj.weight": [320, 320],
        "mlp.gate_proj.weight": [960, 320], "mlp.up_proj.weight": [960, 320],
        "mlp.down_proj.weight": [320, 960],
    }
    expected = {"model.embed_tokens.weight": [256, 320], "model.norm.weight": [320],
                "lm_head.weight": [256, 320]}
    expected.update({f"model.layers.{i}.{name}": shape for i in range(8)
                     for name, shape in layer.items()})
    assert tensors_of(model) == expected


def test_names_and_shapes_are_those_of_the_golden_weights():
    folders = sorted(path.parent for path in (ROOT / "tests" / "golden").glob("*/config.json"))
    assert len(folders) >= 4
    for folder in folders:
        with open(folder / "model.safetensors", "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        stored = {name: tensor["shape"] for name, tensor in header.items() if name != "__metadata__"}
        _, model = imported(folder / "config.json")
        assert tensors_of(model) == stored, (folder.name, tensors_of(model), stored)


def ops_of(model, kind, block="layer"):
    return [op for op in model["blocks"][block]["ops"] if op["op"] == kind]


def test_features_reach_the_graph():
    qwen2 = imported(MODELS / "qwen2.5-7b.json")[1]
    biased = sorted(op["out"] for op in ops_of(qwen2, "linear") if "bias" in op)
    assert biased == ["k", "q", "v"], biased
    qwen3 = imported(MODELS / "qwen3-8b.json")[1]
    assert [op["gain"] for op in ops_of(qwen3, "norm") if "self_attn" in op["gain"]] == [
        f"model.layers.{{i}}.self_attn.{x}_norm.weight" for x in "qk"]
    llama3 = imported(MODELS / "llama-3.1-70b.json")[1]
    assert all(op["scaling"] == {"kind": "llama3", "factor": 8, "low": 1, "high": 4, "original": 8192}
               and op["theta"] == 500000 for op in ops_of(llama3, "rope"))
    mistral = imported(MODELS / "mistral-7b.json")[1]
    assert ops_of(mistral, "attention", "layer_local")[0]["window"] == 4096
    neox = imported(MODELS / "pythia-160m.json")[1]
    assert [op["rotary"] for op in ops_of(neox, "rope")] == [16, 16]
    assert ops_of(neox, "linear")[0]["to"] == ["g", "c", "d"], "interleaved by head"
    assert [op["in"] for op in ops_of(neox, "add")] == [["o", "m"], ["x", "both"]]
    assert ops_of(neox, "act")[0]["kind"] == "gelu_erf"


def test_settings_of_a_config():
    def with_(**changes):
        return imported_text({**LLAMA, **changes})

    assert ops_of(with_(head_dim=64)[1], "attention") and with_(head_dim=64)[1]["dims"]["d"] == 64
    assert with_(num_key_value_heads=None)[1]["dims"]["r"] == 1
    assert with_(rope_scaling={"type": "linear", "factor": 2.0})[1]["blocks"]["layer"]["ops"][4][
        "scaling"] == {"kind": "linear", "factor": 2}
    new_style = with_(rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 7777})
    assert ops_of(new_style[1], "rope")[0]["theta"] == 7777
    tied = with_(tie_word_embeddings=True)
    assert "lm_head.weight" not in tensors_of(tied[1])
    noted = with_(quantization_config={"bits": 4}, zebra=1, pretraining_tp=2)[0]["notes"]
    assert any("quantization_config" in note for note in noted), noted
    assert any("zebra" in note for note in noted), noted
    biased = tensors_of(with_(attention_bias=True, mlp_bias=True)[1])
    assert sum(name.endswith("bias") for name in biased) == 2 * 7, biased
    window = imported_text({**LLAMA, "model_type": "mistral", "sliding_window": 99})[1]
    assert ops_of(window, "attention", "layer_local")[0]["window"] == 99
    wide = imported_text({**LLAMA, "model_type": "mistral", "sliding_window": 4096})
    assert "layer_local" not in wide[1]["blocks"] and any("window" in n for n in wide[0]["notes"])


def test_layers_that_differ():
    config = {"model_type": "gpt_neo", "hidden_size": 64, "num_layers": 4, "num_heads": 4,
              "vocab_size": 100, "max_position_embeddings": 128, "window_size": 16,
              "attention_types": [[["global", "local"], 2]]}
    model = imported_text(config)[1]
    assert [entry["block"] for entry in model["chain"]] == [
        "embed", "layer", "layer_local", "layer", "layer_local", "head"]
    assert [entry.get("first", 0) for entry in model["chain"]] == [0, 0, 1, 2, 3, 0]
    assert ops_of(model, "attention", "layer_local")[0]["window"] == 16
    assert ops_of(model, "attention")[0]["scale"] == 1
    late = imported_text({**LLAMA, "model_type": "qwen2", "use_sliding_window": True,
                          "sliding_window": 8, "max_window_layers": 1})[1]
    assert [entry["block"] for entry in late["chain"]] == ["embed", "layer", "layer_local", "head"]
    still = imported_text({**LLAMA, "model_type": "smollm3", "no_rope_layers": [1, 0]})[1]
    assert not ops_of(still, "rope", "layer_still") and len(ops_of(still, "rope")) == 2


def test_multipliers_become_scale_ops():
    model = imported_text({**LLAMA, "model_type": "granite", "embedding_multiplier": 12,
                           "residual_multiplier": 0.25, "logits_scaling": 8,
                           "attention_multiplier": 0.125})[1]
    factors = [op["factor"] for block in ("embed", "layer", "head")
               for op in ops_of(model, "scale", block)]
    assert factors == [12, 0.25, 0.25, 0.125], factors
    assert ops_of(model, "attention")[0]["scale"] == 0.125


def test_bad_configs_are_refused_at_their_place():
    assert len(BAD) >= 15
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "model.json")
        for name, text, line, message in BAD:
            path = os.path.join(folder, "given.json")
            with open(path, "wb") as file:
                file.write(text.encode("utf-8") if isinstance(text, str) else text)
            result = run(path, "-o", out)
            assert result.returncode == 1, (name, result)
            assert result.stdout == "" and not os.path.exists(out), (name, result)
            assert re.search(rf"given\.json:{line}:\d+: error: ", result.stderr), (name, result)
            assert message in result.stderr, (name, result.stderr)
            print(f"# {name}: {result.stderr.splitlines()[0][len(folder) + 1:]}")


def test_names_are_made_plain():
    summary, model = imported(MODELS / "gpt2.json", "--name", 'a "b"\n/c; d')
    assert model["name"] == summary["name"] == "a__b___c__d", model["name"]
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "My Model"))
        path = os.path.join(folder, "My Model", "config.json")
        pathlib.Path(path).write_bytes((MODELS / "gpt2.json").read_bytes())
        assert imported(path)[1]["name"] == "My_Model"


def test_output_goes_where_it_is_asked():
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "model.json")
        told = run(MODELS / "gpt2.json", "-o", out)
        assert told.returncode == 0 and "124,439,808" in told.stdout and told.stderr == "", told
        assert all(len(row) <= 100 for row in told.stdout.splitlines() if "note:" not in row)
        assert run(MODELS / "gpt2.json", "-o", out, "-q").stdout == ""
        piped = run(MODELS / "gpt2.json")
        assert json.loads(piped.stdout) == json.loads(pathlib.Path(out).read_text(encoding="utf-8"))
        assert run(os.path.join(folder, "none.json")).returncode == 1
        assert run(MODELS / "gpt2.json", "-o", os.path.join(folder, "no", "way")).returncode == 1
        assert run(MODELS / "gpt2.json", "--seq", "0").returncode == 2
        long = run(MODELS / "gpt2.json", "--seq", "2048")
        assert long.returncode == 1 and "1024" in long.stderr, long


def test_every_public_config():
    if not (CONFIGS / "INDEX.csv").exists():
        print("# skipped: ../shared/data/hf is not here")
        return
    exact = refused = 0
    with open(CONFIGS / "INDEX.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        path = CONFIGS / row["file"]
        if row["support"] == "refuse":
            assert run(path).returncode == 1, row["file"]
        result = run(path, "--json")
        if result.returncode == 0:
            got = json.loads(result.stdout)["params_total"]
            print(f"# {row['file']:36} expected {row['expected_total_params']:>14} got {got:>14}")
            assert got == int(row["expected_total_params"]), row["file"]
            exact += 1
            continue
        assert result.returncode == 1 and result.stdout == "", (row["file"], result)
        first = result.stderr.splitlines()[0]
        assert re.search(rf"{re.escape(row['file'])}:\d+:\d+: error: ", first), (row["file"], first)
        print(f"# {row['file']:36} refused {first.split('error: ')[1][:90]}")
        refused += 1
    print(f"# {exact} exact, {refused} refused, of {len(rows)}")
    assert exact >= 68 and exact + refused == len(rows)


def main():
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    print(f"1..{len(tests)}")
    failed = 0
    for number, (name, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {name}")
        except (AssertionError, KeyError, ValueError, OSError) as error:
            failed += 1
            print(f"# {type(error).__name__}: {error}".replace("\n", "\n# "))
            print(f"not ok {number} - {name}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
