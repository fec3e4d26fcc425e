"""cases.py - broken files as edits of good ones: (name, edit, words of the message[, mark]).

An edit is (old, new): the one place in the seed's text where `old` stands is rewritten, and the error
must point at the line where `new` begins - or at the line of `mark`, when the case names one. A function
makes the whole text instead. Words is a regular expression that the message must contain."""
import json


def edited(part, change):
    """The text with one value rewritten in the parsed JSON; change gets that part of it."""
    def make(text):
        root = json.loads(text)
        change(root[part] if part else root)
        return json.dumps(root, indent=2)
    return make


def deep(text):
    return "[" * 100000 + text


WORDS = "*/ ??/ \\\"; system(\\\"id\\\"); //"

MODEL = [
    ("empty", lambda text: "", "end of file"),
    ("cut off", lambda text: text[:700], "end of file"),
    ("cut off in a name", lambda text: text[:text.index('"model.embed') + 5], "end of|newline"),
    ("not UTF-8", lambda text: text.encode().replace(b"token", b"to\xffen", 1), "UTF-8"),
    ("a NUL", lambda text: text.encode().replace(b"token", b"to\0en", 1), "near|control|token"),
    ("brackets 100,000 deep", deep, "depth|deep"),
    ("a list", lambda text: "[1]", "expected an object"),
    ("a string for a dim", ('"h": 16', '"h": "16"'), "expected an integer"),
    ("a dim of 1e18", ('"h": 16', '"h": 1000000000000000000'), "between 1 and"),
    ("a dim beyond 64 bits", ('"h": 16', '"h": 99999999999999999999'), "too big"),
    ("a negative dim", ('"h": 16', '"h": -16'), "between 1 and"),
    ("half a dim", ('"h": 16', '"h": 16.5'), "fraction"),
    ("NaN", ('"init_std": 0.02', '"init_std": NaN'), "NaN|token"),
    ("duplicate key", ('"h": 16', '"h": 16,\n"h": 17'), "duplicate"),
    ("unknown key", ('"init_std"', '"init_sdt"'), "did you mean .init_std"),
    ("a huge product of dims", edited("dims", lambda d: d.update(h=2**39, f=2**39)), "2\\^59|2\\^62"),
    ("a name with quotes", ('"out": "gate"', f'"out": "{WORDS}"'), "is not an identifier"),
    ("a name with a newline", ('"out": "gate"', '"out": "ga\\nte"'), "is not an identifier"),
    ("a parameter name with quotes", ('"lm_head.weight"', f'"{WORDS}"'), "no parameter name"),
    ("a parameter name with a newline", ('"lm_head.weight"', '"lm\\nhead"'), "no parameter name"),
    ("a model name with a comment's end", ('"config-llama"', f'"{WORDS}"'), "no model name"),
    ("a dim name with a semicolon", ('"h": 16,', '"h;": 16, "h": 16,'), "is not an identifier"),
    ("a name of 10,000 letters", ('"out": "gate"', f'"out": "{"g" * 10000}"'), "is not an identifier"),
    ("the batch as a parameter's dim", edited("blocks", lambda b: b["embed"]["ops"].insert(0, {
        "op": "embedding", "in": "positions", "out": "p", "rows": "v", "cols": ["b"], "table": "t"})),
     "as large as the job"),
    ("a cycle", ('"in": "n1",\n          "out": "q"', '"in": "o",\n          "out": "q"'),
     "is made before this op"),
    ("reads itself", ('"in": "n2",\n          "out": "up"', '"in": "up",\n          "out": "up"'),
     "is made before this op"),
    ("shapes that do not add", ('["x", "o"]', '["x", "q"]'), "do not add"),
    ("an op that nobody reads", ('["active", "up"]', '["active", "active"]'), "nothing reads",
     '"out": "up"'),
    ("an odd head", ('"d": 4', '"d": 5'), "pair up", '{\n          "op": "rope"'),
    ("no loss", edited("blocks", lambda b: b["head"]["ops"].pop()), "nothing reads|no loss"),
    ("no layer number in a repeated name",
     ('"model.layers.{i}.mlp.up_proj.weight"', '"up.weight"'), "has no {i}"),
    ("an unknown block", ('"block": "layer"', '"block": "layre"'), "did you mean .layer"),
    ("a million layers", ('"repeat": 2', '"repeat": 1000000'), "between 1 and"),
    ("a Hugging Face config's key", ('"format": "lplan-model/1"', '"format": "gguf"'), "unknown word"),
]

CLUSTER = [
    ("cut off", lambda text: text[:300], "end of"),
    ("no devices", ('"devices": 4', '"devices": 0'), "between 1 and"),
    ("widths that do not multiply", ('"devices": 4', '"devices": 6'), "multiply to 4"),
    ("a name with a comment's end", ('"name": "host"', '"name": "*/ system()"'), "not a name"),
    ("a name with a newline", ('"name": "shm"', '"name": "a\\nb"'), "not a name"),
    ("bandwidth as text", ('"bytes_per_s": 3000000000', '"bytes_per_s": "3 GB"'), "expected an integer"),
    ("no bandwidth", ('"bytes_per_s": 3000000000', '"bytes_per_s": 0'), "of at least|between"),
    ("a negative latency", ('"latency_ns": 1000', '"latency_ns": -1'), "between 0 and"),
    ("memory of 1e18 bytes", ('"memory_bytes": 5368709120', '"memory_bytes": 1000000000000000000'),
     "between 1 and"),
    ("more margin than memory", ('"margin_bytes": 268435456', '"margin_bytes": 5368709121'), "leaves nothing"),
    ("five levels of links", edited(None, lambda c: c.update(links=c["links"] * 5)), "1 to 4 link levels"),
    ("no links", edited(None, lambda c: c.update(links=[])), "1 to 4 link levels"),
    ("an unknown target", ('"target": "host"', '"target": "hots"'), "did you mean .host"),
    ("a duplicate key", ('"launch_ns": 1000', '"launch_ns": 1000,\n"launch_ns": 1'), "duplicate"),
]


def plan_class(index, change):
    return edited("classes", lambda classes: change(classes[index]))


PLAN = [
    ("cut off", lambda text: text[:5000], "end of file"),
    ("a model instead", lambda text: json.dumps(json.loads(text)["model"], indent=1),
     "this is a model file, not a plan"),
    ("another format", ('"lplan-plan/1"', '"lplan-plan/9"'), "this lplan reads"),
    ("an unknown key", ('"bucket_bytes"', '"bucket_byte"'), "did you mean .bucket_bytes"),
    ("wrong ranks", ('"ranks": 2', '"ranks": 3'), "are not 3 ranks"),
    ("more ranks than devices", lambda text: text.replace('"devices": 2', '"devices": 1').replace(
        '"width": 2', '"width": 1'), "2 ranks on a cluster of 1"),
    ("2^40 ranks", ('"ranks": 2', '"ranks": 1099511627776'), "between 1 and"),
    ("a mesh of 2^39 ranks", edited(None, lambda p: p.update(
        mesh=[{"extent": 1 << 13, "role": "tp", "level": 0}] * 3)), "multiply to more than"),
    ("an extent of 1", ('"extent": 2', '"extent": 1'), "between 2 and"),
    ("an unknown role", ('"role": "tp"', '"role": "pp"'), "unknown word"),
    ("a link level that is not there", ('"level": 0', '"level": 3'), "level 3 of a cluster with 1"),
    ("micro-batches that do not add up", ('"micro_batches": 1', '"micro_batches": 3'),
     "is not the global batch 2"),
    ("micro-batches beyond 64 bits", edited(None, lambda p: p.update(
        micro_batch=1 << 29, micro_batches=1 << 20)), "is not the global batch|2\\^59"),
    ("cuts that do not cover", ('"first_link": [0, 5]', '"first_link": [0, 4]'), "do not cover"),
    ("cuts that begin late", ('"first_link": [0, 5]', '"first_link": [1, 5]'), "do not cover"),
    ("an empty stage", ('"first_link": [0, 5]', '"first_link": [0, 0]'), "stage 0 has no layer"),
    ("cuts missing", ('"first_link": [0, 5]', '"first_link": [0]'), "1 numbers for 1 stages"),
    ("negative cuts", ('"first_link": [0, 5]', '"first_link": [-1, 5]'), "between 0 and"),
    ("a choice of no letter", ('"q": ["g"]', '"q": ["z"]'), "is no choice of q"),
    ("a choice that is illegal", ('"n2": ["R"]', '"n2": ["h"]'), "is no choice of n2|cannot be placed"),
    ("a sum that is none", ('"active": ["f"]', '"active": ["+0"]'), "is no choice of active"),
    ("a choice with a tail", ('"x1": ["+01"]', '"x1": ["+01\\"*/"]'), "is no choice of x1"),
    ("too many choices", ('"q": ["g"]', '"q": ["g", "g"]'), "2 choices for 1 atoms"),
    ("a choice missing", plan_class(1, lambda c: c["nodes"].pop("d.wide")), "missing key .d.wide"),
    ("a node that is not there", plan_class(1, lambda c: c["nodes"].update(zz=["R"])), "unknown key .zz"),
    ("a home over an unknown dim", ('up_proj.weight": "{f:a0}"', 'up_proj.weight": "{q:a0}"'),
     "is not a placement"),
    ("a home over an unknown atom", ('up_proj.weight": "{f:a0}"', 'up_proj.weight": "{f:a5}"'),
     "names an atom that the mesh lacks"),
    ("a home that is a sum", ('up_proj.weight": "{f:a0}"', 'up_proj.weight": "{sum(a0)}"'), "is Partial"),
    ("a home that does not divide", lambda text: text.replace('"f": 24', '"f": 25'),
     "does not divide|cannot be placed"),
    ("tied homes that differ", plan_class(2, lambda c: c["homes"].update(
        {"model.embed_tokens.weight": "{v:a0}"})), "tied parameter model.embed_tokens.weight"),
    ("a seam that does not fit", plan_class(1, lambda c: c.update(out="{}")), "hands on another placement"),
    ("a saved copy that cannot be made", ('"loss.max": "{}"', '"loss.max": "{max(a0)}"'),
     "no way to bring"),
    ("a placement with a comment's end", ('"out": "{s:a0}"', '"out": "{s:a0}*/"'), "is not a placement"),
    ("a placement of 100,000 letters", ('"token": "{}"', f'"token": "{"{" * 100000}"'),
     "is not a placement"),
    ("the model edited", edited("model", lambda m: m["blocks"]["layer"]["ops"].pop(3)), ""),
    ("a layer more in the model", ('"repeat": 3', '"repeat": 4'), "do not cover the chain of 6",
     '"first_link"'),
    ("an unknown recipe", ('"recipe": "fp32"', '"recipe": "fp8\\n"'), "unknown recipe"),
    ("beta of 2", ('"beta1": 0.9', '"beta1": 2'), "between 0 and 1"),
    ("state over an atom that is not there", ('"state_atoms": []', '"state_atoms": [1]'), "between 0 and 0"),
    ("state of a class behind the plan's", plan_class(1, lambda c: c.update(
        cut={"state_atoms": [], "state_memory": "nvme"})), "in nvme, behind the plan's home"),
    ("gradients in two memories", edited(None, lambda p: (
        p.update(gradient_memory="nvme"), p["classes"][1].update(cut={"state_atoms": [], "gradient_memory": "dram"}))),
     "keeps gradients in dram, others in nvme"),
    ("rows of 1e18 ns", ('"hop_ns": 0', '"hop_ns": 1000000000000000000'), "between 0 and"),
    ("rows of another plan", edited("rows", lambda r: r.update(forward_ns=[1, 2])), "2 numbers for 1 stages"),
]
