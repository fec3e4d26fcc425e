"""seeds.py - good inputs in small, made by the program itself: configs, models, clusters, plans."""
import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

LLAMA = {
    "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 50,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
CONFIGS = {
    "llama": LLAMA,
    "llama_tied": {**LLAMA, "tie_word_embeddings": True, "num_hidden_layers": 3},
    "qwen2": {**LLAMA, "model_type": "qwen2", "sliding_window": 8, "use_sliding_window": False},
    "mistral": {**LLAMA, "model_type": "mistral", "sliding_window": 6},
    "gpt2": {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64,
             "vocab_size": 50, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
}
# Of the plans: which config, devices, batch, pins.
PLANS = {
    "alone": ("llama", 1, 2, "dp=1"),
    "tp2": ("gpt2", 2, 2, "tp=2,recompute=full"),
    "sp2": ("llama_tied", 2, 2, "tp=2,sp=1"),
    "dp2": ("qwen2", 2, 4, "dp=2"),
    "pp2": ("llama_tied", 2, 4, "pp=2"),
    "gpipe": ("mistral", 2, 4, "pp=2,schedule=gpipe,zero=0"),
}
CLUSTERS = ("host", "dgx-h100")


def save(path, value):
    with open(path, "w", encoding="utf-8") as file:
        file.write(value if isinstance(value, str) else json.dumps(value, indent=1))
    return path


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def run(lplan, *arguments):
    done = subprocess.run([lplan, *arguments], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def make(lplan, folder):
    """Text of every seed by kind and name; the files stay in the folder as KIND-NAME.json."""
    seeds = {"config": {}, "model": {}, "cluster": {}, "plan": {}}
    for name, config in CONFIGS.items():
        path = save(os.path.join(folder, f"config-{name}.json"), config)
        out = os.path.join(folder, f"model-{name}.json")
        run(lplan, "import", path, "-q", "-o", out)
        seeds["config"][name], seeds["model"][name] = read(path), read(out)
    for name in CLUSTERS:
        text = read(os.path.join(ROOT, "examples", "clusters", f"{name}.json"))
        save(os.path.join(folder, f"cluster-{name}.json"), text)
        seeds["cluster"][name] = text
    for name, (model, devices, batch, pins) in PLANS.items():
        out = os.path.join(folder, f"plan-{name}.json")
        run(lplan, "plan", os.path.join(folder, f"model-{model}.json"), "host", "--gpus",
            str(devices), "--global-batch", str(batch), "--seq", "8", "--pin", pins, "-q", "-o", out)
        seeds["plan"][name] = read(out)
    return seeds


def save_bytes(source, folder, name):
    with open(source, "rb") as file, open(os.path.join(folder, name), "wb") as kept:
        kept.write(file.read())
