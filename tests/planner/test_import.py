#!/usr/bin/env python3
"""test_import.py - configs in, model files out: names, shapes, counts; and configs that must be refused. Speaks TAP.

    test_import.py LPLAN"""
import csv
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from bad_configs import BAD, LLAMA
from model_totals import ACTIVE, TOTALS

LPLAN = os.path.abspath(sys.argv[1])
ROOT = pathlib.Path(os.environ.get("LPLAN_SOURCE_ROOT", pathlib.Path(__file__).parents[2]))
MODELS = ROOT / "examples" / "models"
CONFIGS = ROOT.parent / "shared" / "data" / "hf"


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


class BlockTensors:
    """Name -> stored shape of one block, from the ops alone: every value's dims after b and s are tracked by name."""

    def __init__(self, model, block):
        self.dims = model["dims"]
        handed = ["hh"] if block.get("in") == "both" else ["h"]
        self.axes = {"ids": [], "positions": [], block.get("in"): handed}
        self.tensors = {}
        for op in block["ops"]:
            first = op.get("in")
            first = first[0] if isinstance(first, list) else first
            handler = getattr(self, op["op"], None)
            made = handler(op, self.axes.get(first)) if handler else self.axes[first]
            if isinstance(op.get("out"), str):
                self.axes[op["out"]] = made

    def size(self, names):
        product = 1
        for name in names:
            product *= self.dims[name]
        return product

    def keep(self, name, *groups):
        shape = [self.size(group) for group in groups]
        assert self.tensors.setdefault(name, shape) == shape, name

    def embedding(self, op, _):
        self.keep(op["table"], [op["rows"]], op["cols"])
        return op["cols"]

    def linear(self, op, axes):
        origin = op.get("from", axes[-1:])
        assert axes[len(axes) - len(origin):] == origin, op
        sides = [op["to"], origin]
        self.keep(op["weight"], *(sides[::-1] if op.get("transposed") else sides))
        if "bias" in op:
            self.keep(op["bias"], op["to"])
        return axes[:len(axes) - len(origin)] + op["to"]

    def norm(self, op, axes):
        together = op.get("axes", 1)
        gain = axes[len(axes) - op.get("gain_axes", together):]
        for key in ("gain", "bias"):
            if key in op:
                self.keep(op[key], *([gain[:-1], gain[-1:]] if together < len(gain) else [gain]))
        return axes

    def attention(self, op, axes):
        if "sink" in op:
            self.keep(op["sink"], axes[:-1])
        return axes[:-1] + self.axes[op["in"][2]][-1:]

    def split(self, op, axes):
        at = axes.index(op["dim"])
        for i, name in enumerate(op["out"]):
            self.axes[name] = axes[:at] + op.get("parts", [[]] * 3)[i] + axes[at + 1:]

    def concat(self, op, axes):
        return [op["dim"] if name in op["parts"][0] else name for name in axes]

    def repeat(self, op, _):
        return op["dims"][2:]

    broadcast = repeat

    def router(self, op, axes):
        if "bias" in op:
            self.keep(op["bias"], axes[-1:])
        for name in op["out"]:
            self.axes[name] = axes[:-1] + [op["k"]]

    def expert_linear(self, op, _):
        sides = [op["from"], op["to"]] if op.get("transposed") else [op["to"], op["from"]]
        experts = [op["experts"]]
        groups = [experts + sides[0], sides[1]] if op.get("flat") else [experts, *sides]
        if "{e}" in op["weight"]:
            for e in range(self.size(experts)):
                self.keep(op["weight"].replace("{e}", str(e)), *sides)
        else:
            self.keep(op["weight"], *groups)
        if "bias" in op:
            self.keep(op["bias"], experts, op["to"])
        return self.axes[op["choice"]] + op["to"]

    def combine(self, op, axes):
        return [name for name in axes if name not in self.axes[op["in"][1]]]

    def frozen(self, op, _):
        self.keep(op["param"], *op["axes"])

    def cross_entropy(self, op, axes):
        assert axes == ["v"], op


def joined(tensors):
    """NAME[a:b] are rows of NAME: together they are all of it, without a gap."""
    whole, parts = {}, {}
    for name, shape in tensors.items():
        match = re.fullmatch(r"(.*)\[(\d+):(\d+)\]", name)
        if match:
            parts.setdefault(match[1], []).append((int(match[2]), int(match[3]), shape))
        else:
            whole[name] = shape
    for name, rows in parts.items():
        end = 0
        for begin, after, shape in sorted(rows):
            assert begin == end and shape[0] == after - begin and shape[1:] == rows[0][2][1:], (name, rows)
            end = after
        assert whole.setdefault(name, [end, *rows[0][2][1:]]) == [end, *rows[0][2][1:]], name
    return whole


def tensors_of(model):
    found = {}
    for entry in model["chain"]:
        tensors = BlockTensors(model, model["blocks"][entry["block"]]).tensors
        for i in range(entry.get("first", 0), entry.get("first", 0) + entry.get("repeat", 1)):
            for name, shape in tensors.items():
                name = name.replace("{i}", str(i))
                assert found.setdefault(name, shape) == shape, name
    return joined(found)


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
        total, active = summary["params_total"], summary["params_active"]
        stored = count_of(tensors_of(model))
        print(f"# {name:20} expected {TOTALS.get(name)} summary {total} file {stored}"
              f" active expected {ACTIVE.get(name, '-')} summary {active}")
        assert name in TOTALS, f"{name}: add its published total"
        assert total == stored == TOTALS[name], name
        assert active == ACTIVE.get(name, total), name
        assert model["name"] == name and model["format"] == "lplan-model/1"
        assert sum(row["count"] * row["params"] for row in summary["classes"]) == total, name


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


def test_features_of_later_families_reach_the_graph():
    def of(name):
        return imported(MODELS / f"{name}.json")[1]

    def first(model, kind, block="layer"):
        return ops_of(model, kind, block)[0]

    gemma2 = of("gemma-2-9b")
    assert first(gemma2, "scale", "embed")["factor"] == 3584 ** 0.5
    assert all(op["shift"] == 1 for op in ops_of(gemma2, "norm")) and len(ops_of(gemma2, "norm")) == 4
    assert first(gemma2, "attention", "layer_local")["window"] == 4096
    assert "window" not in first(gemma2, "attention") and first(gemma2, "attention")["softcap"] == 50
    assert first(gemma2, "act", "head") == {"op": "act", "kind": "softcap", "a": 30, "in": "raw", "out": "logits"}
    assert [entry["block"] for entry in gemma2["chain"][1:5]] == ["layer_local", "layer"] * 2
    gemma3 = of("gemma-3-12b")
    assert first(gemma3, "rope", "layer_local")["theta"] == 10000 and first(gemma3, "rope")["theta"] == 1000000
    assert [entry.get("repeat") for entry in gemma3["chain"][1:3]] == [5, 1]
    deepseek = of("deepseek-v3")
    router = first(deepseek, "router", "layer_experts")
    assert (router["groups"], router["kept"], router["by"], router["scale"]) == (8, 4, "top2", 2.5), router
    assert router["score"] == "sigmoid" and router["renormalise"] and router["bias"].endswith("correction_bias")
    rise = 1 + 0.1 * math.log(40)
    attention = first(deepseek, "attention", "layer_experts")
    assert abs(attention["scale"] - rise * rise / 192 ** 0.5) < 1e-12, attention
    assert first(deepseek, "rope")["scaling"]["kind"] == "yarn" and first(deepseek, "rope")["interleaved"]
    assert [entry.get("repeat") for entry in deepseek["chain"][1:3]] == [3, 58]
    chooser = of("deepseek-v3.2")
    assert len(ops_of(chooser, "frozen")) == 5
    oss = of("gpt-oss-120b")
    assert first(oss, "rope", "layer_experts")["scaling"]["exact"] is True
    assert first(oss, "attention", "layer_experts")["sink"] == "model.layers.{i}.self_attn.sinks"
    assert first(oss, "router", "layer_experts")["after"] and first(oss, "expert_linear", "layer_experts")["bias"]
    kinds = [op["kind"] for op in ops_of(oss, "act", "layer_experts")]
    assert kinds == ["clamp", "clamp", "shift", "swish"], kinds
    llama4 = of("llama-4-scout")
    assert first(llama4, "attention", "layer_experts_chunk")["chunk"] == 8192
    assert first(llama4, "temper", "layer_experts_still")["ahead"] == 1
    assert not ops_of(llama4, "rope", "layer_experts_still") and not ops_of(llama4, "temper", "layer_experts_chunk")
    opt = of("opt-6.7b")
    assert ops_of(opt, "embedding", "embed")[1]["offset"] == 2 and opt["dims"]["p"] == 2050
    assert first(of("bloom-7b1"), "attention")["alibi"] is True
    falcon = of("falcon-40b")
    assert first(falcon, "split")["parts"] == [["r"], [], []] and falcon["dims"]["c"] == 18
    assert [op["gain"].split(".")[-2] for op in ops_of(falcon, "norm")] == ["ln_attn", "ln_mlp"]
    grouped = [op["weight"] for op in ops_of(of("phi-4"), "linear")[:3]]
    assert [name.split("weight")[1] for name in grouped] == ["[0:5120]", "[5120:6400]", "[6400:7680]"], grouped
    olmo2 = ops_of(of("olmo-2-7b"), "norm")
    assert [op.get("axes") for op in olmo2] == [3, 2, None, None], olmo2
    assert all("gain" not in op for op in ops_of(of("olmo-1b"), "norm"))
    command = ops_of(of("command-r-plus"), "norm")
    assert [op.get("gain_axes") for op in command] == [None, 3, 2], command
    clip = [(op["a"], op["b"]) for op in ops_of(of("dbrx"), "act", "layer_experts") if op["kind"] == "clamp"]
    assert clip == [(-8, 8)] * 3, clip
    long = first(of("phi-4-mini"), "rope")
    assert long["rotary"] == 96 and len(long["scaling"]["far"]) == 48 and long["scaling"]["original"] == 4096
    assert abs(long["scaling"]["gain"] - (1 + math.log(32) / math.log(4096)) ** 0.5) < 1e-12, long["scaling"]["gain"]


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


def test_infinities_that_python_writes():
    """json.dump writes tokens that JSON has not: they are in the way only where a number is read."""
    config = {**LLAMA, "zebra": [0.0, float("inf"), float("-inf"), float("nan")], "x": 'a "NaN" \\" Infinity'}
    summary, model = imported_text(config)
    assert tensors_of(model) == tensors_of(imported_text(LLAMA)[1])
    assert any("zebra" in note for note in summary["notes"]), summary
    nemotron = CONFIGS / "Nemotron-H-56B.json"
    if nemotron.exists():
        result = run(nemotron)
        assert "nemotron_h" in result.stderr and "token" not in result.stderr, result
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "given.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"format": "lplan-model/1", "init_std": float("nan")}, file)
        result = subprocess.run([LPLAN, "plan", path, "dgx-h100"], capture_output=True, text=True, check=False)
        assert result.returncode == 1 and "NaN" in result.stderr, result


def test_published_sizes_of_families_without_an_example():
    """Configs in the form of the hub's, made of the published sizes; the totals are the published ones."""
    rw = {"model_type": "falcon", "alibi": True, "bias": True, "hidden_size": 2048, "multi_query": False,
          "new_decoder_architecture": False, "num_attention_heads": 32, "num_hidden_layers": 24,
          "parallel_attn": False, "vocab_size": 50304, "layer_norm_epsilon": 1e-5}
    summary, model = imported_text(rw)
    assert summary["params_total"] == count_of(tensors_of(model)) == 1311625216, summary
    assert ops_of(model, "attention")[0]["alibi_scale"] == 0.125 and not ops_of(model, "rope")
    minicpm3 = {"model_type": "minicpm3", "dim_model_base": 256, "hidden_act": "silu", "hidden_size": 2560,
                "intermediate_size": 6400, "kv_lora_rank": 256, "max_position_embeddings": 32768,
                "num_attention_heads": 40, "num_hidden_layers": 62, "num_key_value_heads": 40,
                "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "rms_norm_eps": 1e-5,
                "scale_depth": 1.4, "scale_emb": 12, "vocab_size": 73448}
    summary, model = imported_text(minicpm3)
    assert summary["params_total"] == count_of(tensors_of(model)) == 4073875968, summary
    assert model["dims"]["w"] == 64 and all("interleaved" not in op for op in ops_of(model, "rope"))
    dense = imported_text({**LLAMA, "model_type": "hunyuan_v1_dense", "head_dim": 16})[1]
    assert "model.layers.0.self_attn.query_layernorm.weight" in tensors_of(dense), sorted(tensors_of(dense))


def test_routers_of_one_choice():
    """Mixtral divides the share of its only expert by itself; DeepSeek's code does not."""
    mixtral = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 1}
    assert ops_of(imported_text(mixtral)[1], "router", "layer_experts")[0]["renormalise"] is True
    deepseek = json.loads((MODELS / "deepseek-v2-lite.json").read_text(encoding="utf-8"))
    one = imported_text({**deepseek, "num_experts_per_tok": 1, "norm_topk_prob": True})[1]
    assert "renormalise" not in ops_of(one, "router", "layer_experts")[0]
    moe = json.loads((MODELS / "qwen1.5-moe-a2.7b.json").read_text(encoding="utf-8"))
    plain, odd = (imported_text({**moe, **more})[1] for more in ({}, {"attention_bias": False}))
    assert tensors_of(plain) == tensors_of(odd), "this family reads qkv_bias alone"


def rates_of(model):
    found = [(op["out"], op["rate"]) for block in model["blocks"].values() for op in block["ops"]
             if op["op"] == "dropout"]
    return found + [("scores", op["dropout"]) for op in ops_of(model, "attention") if "dropout" in op]


def test_dropout_is_taken_when_asked_for():
    gpt2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 100}
    summary, model = imported_text({**gpt2, "resid_pdrop": 0.2})
    assert rates_of(model) == [] and any("--dropout" in note for note in summary["notes"]), summary
    summary, model = imported_text({**gpt2, "resid_pdrop": 0.2, "attn_pdrop": 0}, "--dropout")
    assert rates_of(model) == [("x_dropped", 0.1), ("o_dropped", 0.2), ("m_dropped", 0.2)], rates_of(model)
    assert any("embd_pdrop 0.1" in note for note in summary["notes"]), summary
    assert not any("without dropout" in note for note in summary["notes"]), summary
    assert ("scores", 0.1) in rates_of(imported_text(gpt2, "--dropout")[1])
    mpt = json.loads((MODELS / "mpt-7b.json").read_text(encoding="utf-8"))
    mpt = {**mpt, "attn_config": {**mpt.get("attn_config", {}), "attn_pdrop": 0.3}, "emb_pdrop": 0.4}
    assert rates_of(imported_text(mpt, "--dropout")[1]) == [("x_dropped", 0.4), ("scores", 0.3)]
    summary, model = imported_text(LLAMA, "--dropout")
    assert rates_of(model) == [] and any("no dropout" in note for note in summary["notes"]), summary


def test_balance_is_taken_when_the_config_or_the_user_says_so():
    mixtral = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2,
               "router_aux_loss_coef": 0.02}

    def balance(config, *more):
        op = ops_of(imported_text(config, *more)[1], "router", "layer_experts")[0]
        return op.get("balance"), op.get("balance_over")

    assert balance(mixtral) == (None, None)
    assert balance(mixtral, "--balance") == (0.02, None)  # 0.02 of 2 choices over 2 layers
    assert balance({**mixtral, "output_router_logits": True}) == (0.02, None)
    lite = json.loads((MODELS / "deepseek-v2-lite.json").read_text(encoding="utf-8"))
    lite = {**lite, "aux_loss_alpha": 0.003, "seq_aux": True}
    assert balance(lite) == (None, None) and balance(lite, "--balance") == (0.003, "sequence")
    v3 = imported(MODELS / "deepseek-v3.json", "--balance")
    assert any("no balance term" in note for note in v3[0]["notes"]), v3[0]["notes"]


def test_the_layer_for_further_tokens_is_taken_when_asked_for():
    """DeepSeek-V3's files hold 684,489,845,504 numbers: the model, this layer, and that one's copies of
    embedding and head."""
    summary, model = imported(MODELS / "deepseek-v3.json", "--mtp", "0.3")
    copies = 2 * 129280 * 7168
    assert summary["params_total"] == 684489845504 - copies, summary["params_total"]
    assert model["chain"][-2] == {"block": "further", "first": 61}
    names = set(tensors_of(model))
    for name in ("enorm", "hnorm", "eh_proj", "shared_head.norm"):
        assert f"model.layers.61.{name}.weight" in names, name
    head = [op for op in ops_of(model, "cross_entropy", "head") if "ahead" in op]
    assert [(op["ahead"], op["factor"]) for op in head] == [(1, 0.3)]
    assert imported(MODELS / "deepseek-v3.json")[0]["params_total"] == 671026419200
    config = json.loads((MODELS / "deepseek-v3.json").read_text(encoding="utf-8"))
    none = imported_text({**config, "num_nextn_predict_layers": 0}, "--mtp", "0.3")[0]
    assert any("no multi-token prediction" in note for note in none["notes"]), none["notes"]
    for more in ({"num_nextn_predict_layers": 2}, {"tie_word_embeddings": True}):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "given.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**config, **more}, file)
            done = subprocess.run([LPLAN, "import", path, "--mtp", "0.3"], capture_output=True, text=True)
            assert done.returncode == 1 and "--mtp:" in done.stderr, done.stderr


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
    print(f"# {'file':36} {'expected':>15} {'got':>15} {'expected active':>15} {'got':>15}")
    for row in rows:
        path, total, active = (row[key] for key in ("file", "expected_total_params", "expected_active_params"))
        result = run(CONFIGS / path, "--json")
        if result.returncode == 0:
            got = json.loads(result.stdout)
            print(f"# {path:36} {total or 'none':>15} {got['params_total']:>15} {active:>15}"
                  f" {got['params_active']:>15}")
            assert row["support"] == "build", path
            assert not total or got["params_total"] == int(total), path
            assert not total or got["params_active"] == int(active or total), path
            exact += 1
            continue
        assert result.returncode == 1 and result.stdout == "", (path, result)
        errors = [line for line in result.stderr.splitlines() if " error: " in line]
        assert re.search(rf"{re.escape(path)}:\d+:\d+: error: ", errors[0]), (path, errors)
        why = "; ".join(error.split("error: ")[1] for error in errors)
        print(f"# {path:36} {total or '-':>15} refused: {why}")
        assert row["support"] == "refuse" or not total, (path, why)
        refused += 1
    print(f"# {exact} built, {refused} refused, of {len(rows)}")
    assert exact >= 131 and exact + refused == len(rows)


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
