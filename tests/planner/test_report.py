#!/usr/bin/env python3
"""test_report.py - plan, explain, diff and whatif as a person and a script meet them. Speaks TAP.

    test_report.py LPLAN [TEST ...]  LPLAN_BLESS=1 rewrites the texts in reports/ (then read git diff)"""
import functools
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

LPLAN = os.path.abspath(sys.argv[1])
HERE = pathlib.Path(__file__).parent
ROOT = pathlib.Path(os.environ.get("LPLAN_SOURCE_ROOT", HERE.parents[1]))
MODELS = ROOT / "examples" / "models"
SMALL = [MODELS / "llama-10m.json", "host", "--gpus", "4", "--global-batch", "8", "--seq", "128"]
EIGHT_B = [MODELS / "llama-3-8b.json", "dgx-h100", "--gpus", "64", "--global-batch", "256",
           "--seq", "8192"]


def run(*arguments):
    return subprocess.run([LPLAN, *map(str, arguments)], capture_output=True, text=True,
                          check=False, stdin=subprocess.DEVNULL, timeout=300)


def good(*arguments):
    result = run(*arguments)
    assert result.returncode == 0, (arguments, result.returncode, result.stderr)
    return result.stdout


@functools.cache
def told(*arguments):
    """The report of a job that several tests read."""
    return good("plan", *arguments)


def misfit(*arguments):
    """A product all the same, and the exit code that says it does not fit."""
    result = run(*arguments)
    assert result.returncode == 3, (arguments, result.returncode, result.stderr)
    return result.stdout


def plan_file(folder, name, *arguments):
    path = os.path.join(folder, name)
    good("plan", *arguments, "-q", "-o", path)
    return path


def steady(text):
    """Without what the clock says."""
    return re.sub(r"; [0-9.]+ (ns|us|ms|s|min)$", "; TIME", text, flags=re.MULTILINE)


def golden(name, text):
    path = HERE / "reports" / name
    if os.environ.get("LPLAN_BLESS"):
        path.write_text(text, encoding="utf-8")
    expected = path.read_text(encoding="utf-8")
    assert text == expected, f"{name} differs; LPLAN_BLESS=1 accepts it\n{text}"


def test_report_texts():
    golden("llama-10m-host-4.txt", steady(told(*SMALL)))
    golden("llama-3-8b-h100-64.txt", steady(told(*EIGHT_B)))
    golden("llama-10m-host-4-pp2.txt", steady(told(*SMALL, "--pin", "pp=2,tp=2,sp=1")))


def test_report_answers_in_order():
    text = told(*EIGHT_B)
    wanted = ["1  What must be resident?", "2  What is sharded", "3  Which collective",
              "4  What is exposed", "5  Which physical link", "6  What new failure mode",
              "Why not a simpler plan?"]
    places = [text.index(title) for title in wanted]
    assert places == sorted(places)
    assert all(len(line) <= 100 for line in text.splitlines()), max(text.splitlines(), key=len)
    assert "\033" not in text, "colour although nobody looks"


def test_json_keys():
    mfu = [json.loads(good("plan", EIGHT_B[0], "dgx-h100", "--gpus", 8, "--recipe", recipe, "--pin", "tp=8,mbs=1",
                           "--json"))["predicted"]["mfu"] for recipe in ("bf16", "fp16")]
    assert mfu[0] == mfu[1], mfu  # of what products in 16 bits are done with
    for arguments in (SMALL, EIGHT_B):
        report = json.loads(told(*arguments, "--json"))
        predicted, search = report["predicted"], report["search"]
        assert {"step_ns", "tokens_per_s", "mfu", "peak_bytes", "exposed_ns"} <= set(predicted)
        assert {"considered", "cut_memory", "cut_bound", "simulated", "gap", "wall_ns"} <= set(search)
        assert {"tp", "dp", "pp", "zero", "sp", "recompute", "schedule", "micro_batch", "layers"} \
            <= set(report["placement"])
        assert {"tp", "dp", "pp"} <= set(predicted["exposed_ns"])
        assert isinstance(predicted["step_ns"], int) and 0 < predicted["mfu"] < 1
        assert len(predicted["peak_bytes"]) == report["placement"]["pp"]
        assert search["gap"] == 0
        assert search["considered"] == search["cut_memory"] + search["cut_bound"] + search["simulated"]
        assert search["plans"] >= search["simulated"] > 0
        assert {"global_batch", "sequence", "recipe"} <= set(report), report.keys()
        assert predicted["low_ns"] < predicted["step_ns"] < predicted["high_ns"]
        for stage in report["stages"]:
            assert sum(stage["spent_ns"].values()) == predicted["step_ns"], stage


def named(report):
    return {one["key"] for one in report["techniques"]}


def test_sections():
    whole = steady(told(*SMALL, "--pin", "pp=2,tp=2,sp=1"))
    parts = [steady(good("plan", *SMALL, "--pin", "pp=2,tp=2,sp=1", "--only", words))
             for words in ("head,named,search", "1,2,3", "4,5,6,ladder")]
    assert "\n".join(parts) == whole, parts
    with tempfile.TemporaryDirectory() as folder:
        path = plan_file(folder, "a.json", *SMALL, "--pin", "pp=2,tp=2,sp=1")
        assert good("explain", path, "--only", "1,2,3") == parts[1]
        for words in (["--only", "1"], ["--timeline"]):
            wrong = run("explain", path, *words, "--json")
            assert wrong.returncode == 2 and "--json alone has every section" in wrong.stderr, wrong
        wrong = run("explain", path, "--only", "7")
        assert wrong.returncode == 2 and "sections are head" in wrong.stderr, wrong
    wrong = run("plan", *SMALL, "--collectives", "ring,threes")
    assert wrong.returncode == 1 and "did you mean 'tree'" in wrong.stderr, wrong


def test_collectives_are_those_of_the_step():
    """What the bodies' lists send, times layers and micro-batches, is what the simulated Steps sent."""
    with tempfile.TemporaryDirectory() as folder:
        for pins in ("tp=4,sp=1,mbs=1", "cp=2,tp=2,sp=1,cp_by=gather,mbs=2",
                     "tp=2,dp=2,sp=1,mbs=1,0-1:recompute=full:tp=4:dp=1"):
            path = plan_file(folder, "a.json", *SMALL, "--pin", pins)
            micros = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["micro_batches"]
            told = json.loads(good("explain", path, "--collectives", "--json"))
            listed, sent = {}, {}
            for layer in told["layers"]:
                for one in layer["collectives"]:
                    assert one["why"] and one["ns"] > 0, one
                    times = layer["links"] * micros
                    count, size = listed.get(one["collective"], (0, 0))
                    listed[one["collective"]] = count + times, size + times * one["sent_bytes"]
            for row in told["step"]:
                if row["in_layers"]:
                    count, size = sent.get(row["collective"], (0, 0))
                    sent[row["collective"]] = count + row["count"], size + row["sent_bytes"]
            assert listed == sent and listed, (pins, listed, sent)
            text = good("explain", path, "--collectives", "--timeline")
            assert all(kind in text for kind in listed) and "a column is" in text, text


def test_techniques_are_recognised_in_plans():
    """By what the plan says: another home, other rows, and the name is another one."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(plan_file(folder, "a.json", *SMALL, "--pin", "dp=4,zero=1,mbs=1"))
        plan = json.loads(path.read_text(encoding="utf-8"))
        plan.pop("pins"), plan.pop("predicted")
        for change, there, gone in [({}, "zero1", "ddp"), ({"state_atoms": []}, "ddp", "zero1"),
                                    ({"gradient_atoms": plan["state_atoms"]}, "zero2", "zero1")]:
            path.write_text(json.dumps({**plan, **change}), encoding="utf-8")
            keys = named(json.loads(good("explain", path, "--json")))
            assert there in keys and gone not in keys, (change, keys)
        rows = os.path.join(folder, "rows.csv")
        pins = "pp=4,dp=1,tp=1,mbs=1,schedule="
        report = json.loads(good("plan", *SMALL, "--pin", pins + "1f1b", "--schedule-csv", rows, "--json"))
        assert "1f1b" in named(report)
        again = json.loads(good("plan", *SMALL, "--pin", pins + rows, "--json"))
        assert again["placement"]["schedule"] == "table" and "1f1b" in named(again), named(again)
        lines = pathlib.Path(rows).read_text(encoding="utf-8").splitlines()
        assert "3F0,3B0,3F1,3B1" in lines[3], lines
        lines[3] = lines[3].replace("3F0,3B0,3F1,3B1", "3F0,3F1,3B0,3B1")
        pathlib.Path(rows).write_text("\n".join(lines) + "\n", encoding="utf-8")
        other = json.loads(good("plan", *SMALL, "--pin", pins + rows, "--json"))
        assert "table" in named(other) and "1f1b" not in named(other), named(other)


def test_same_input_same_plan():
    with tempfile.TemporaryDirectory() as folder:
        first = plan_file(folder, "a.json", *EIGHT_B)
        second = plan_file(folder, "b.json", *EIGHT_B)
        with open(first, encoding="utf-8") as a, open(second, encoding="utf-8") as b:
            assert a.read() == b.read()


def test_plan_file_holds_pins_and_prediction():
    with tempfile.TemporaryDirectory() as folder:
        path = plan_file(folder, "a.json", *SMALL, "--pin", "pp=2")
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
        assert plan["format"] == "lplan-plan/1"
        assert "pp=2" in plan["pins"]
        again = json.loads(good("plan", *SMALL, "--pin", plan["pins"], "--json"))
        assert again["predicted"]["step_ns"] == plan["predicted"]["step_ns"]


def test_nothing_fits():
    result = run("plan", MODELS / "llama-3.1-405b.json", "dgx-h100", "--gpus", "8", "--seq", "8192", "--json")
    assert result.returncode == 3, result
    assert re.search(r"nothing fits: needs [0-9.]+ [KMGT]iB per device, 76.0 GiB available; "
                     r"largest: [a-z ]+ [0-9.]+ [KMGT]iB", result.stderr), result.stderr
    assert "help:" in result.stderr
    report = json.loads(result.stdout)
    tightest = report["search"]["tightest"]
    assert report["placement"] is None
    assert tightest["missing_bytes"] == tightest["needed_bytes"] - tightest["available_bytes"] > 0
    # pins that do not fit, where other plans do: the remedy is the plan without them
    result = run("plan", *EIGHT_B, "--pin", "tp=1,pp=1,recompute=none,zero=1")
    assert result.returncode == 3
    assert "without the pins tp=" in result.stderr, result.stderr
    result = run("plan", MODELS / "llama-3.1-70b.json", "dgx-h100", "--gpus", "8", "--seq", "4096",
                 "--global-batch", "64")
    assert result.returncode == 3 and re.search(r"it fits on \d+ devices", result.stderr), result


def test_bad_input_and_usage():
    for arguments, code, words in [
            (["plan", "/no/such/model.json", "host"], 1, "cannot read"),
            (["plan", MODELS / "gpt2.json", "dgx-h1000"], 1, "did you mean 'dgx-h100'?"),
            (["plan", *SMALL, "--pin", "tq=2"], 2, "did you mean tp?"),
            (["plan", *SMALL, "--pin", "tp=3"], 1, "pin tp=3 cannot share 4 devices: 3 does not"),
            (["plan", *SMALL, "--pin", "mbs=5"], 1, "pin mbs=5 contradicts the batch"),
            (["plan", MODELS / "llama-10m.json", "host", "--gpus", "13"], 1,
             "13 devices cannot share this job"),
            (["plan", MODELS / "llama-10m.json", "host", "--global-batch", str(2**40), "--pin", "mbs=1"], 1,
             "more than 32768 micro-batches of 1 on dp 4"),
            (["plan", *SMALL, "--recipe", "fp7"], 1, "unknown recipe fp7"),
            (["plan", *SMALL, "--time-limit", "soon"], 2, "is not a time"),
            (["plan"], 2, "MODEL CLUSTER"),
            (["whatif", "/no/such/plan.json", "--set", "gpus=2"], 1, "cannot read"),
            (["diff", "/no/such/plan.json"], 2, "A B")]:
        result = run(*arguments)
        assert result.returncode == code, (arguments, result)
        assert words in result.stderr, (arguments, result.stderr)


def test_help_names_every_pin():
    pins = re.search(r"pins are (.*)", run("plan", *SMALL, "--pin", "zzzz=1").stderr)[1].split()
    words = re.findall("[a-z_]+", good("help", "plan").split("--pin KEY=VALUE,...")[1].split("--")[0])
    assert len(pins) > 20 and set(pins) == set(words) - {"and", "homes"}, (pins, words)



def test_contradicting_pins():
    """Bad input, not a question of memory: exit 1, and all pins that contradict each other."""
    for pins, words in [
            ("tp=2,dp=4", "pins tp=2 x dp=4 cannot share 4 devices: 8 does not divide them"),
            ("tp=2,dp=1,pp=1", "tp=2 x dp=1 x pp=1 cannot share 4 devices: 2 of them would idle"),
            ("mbs=4,dp=4", "pins mbs=4 and dp=4 contradict the batch: 16 does not divide 8"),
            ("mbs=8,tp=2,pp=1", "mbs=8 and dp=2 (what tp and pp leave) contradict the batch"),
            ("layers=3+5,pp=4", "pins layers=3+5 and pp=4 contradict each other: 2 stages, and 4"),
            ("layers=3+4", "pin layers=3+4 contradicts the model: 7 in all; the model has 8"),
            ("layers=4+0+2+2", "leaves stage 1 without a layer"),
            ("tp=4,block=5", "pins block=5, tp=4, sp=0 and recompute=none")]:
        result = run("plan", *SMALL, "--pin", pins)
        assert result.returncode == 1 and words in result.stderr, (pins, result)
        assert result.stderr.count("error:") == 1 and "help:" in result.stderr, result.stderr
    with tempfile.TemporaryDirectory() as folder:
        deep = run("plan", one_layer(folder), *SMALL[1:], "--pin", "pp=4")
        assert deep.returncode == 1, deep
        assert "pin pp=4 contradicts the model: it has 1 layer" in deep.stderr, deep


def one_layer(folder):
    config = json.loads((MODELS / "llama-10m.json").read_text(encoding="utf-8"))
    config["num_hidden_layers"] = 1
    path = os.path.join(folder, "one.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    return path


def test_one_layer_in_stages():
    """The ends of the chain are links like others: a stage may hold one of them alone."""
    with tempfile.TemporaryDirectory() as folder:
        job = [one_layer(folder), "host", "--gpus", "6", "--seq", "64", "--global-batch", "12"]
        for stages, layers in [("1", [1]), ("2", None), ("3", [0, 1, 0])]:
            path = os.path.join(folder, "plan.json")
            report = json.loads(good("plan", *job, "--pin", f"pp={stages}", "--json"))
            assert layers is None or report["placement"]["layers"] == layers, report
            good("plan", *job, "--pin", f"pp={stages}", "-q", "-o", path)
            assert "proven" in good("prove", path, "--no-mutations")


def test_names_tell_parameters_apart():
    text = good("plan", MODELS / "gpt2.json", "host", "--pin", "tp=2", "--seq", "64")
    table = text[text.index("2  What is sharded"):text.index("between layers:")]
    assert "attn.c_proj" in table and "mlp.c_proj" in table and "c_attn.bias" in table, table
    assert not re.search(r" bias\b", table), table


def test_goodput():
    """Daly's interval is the best one of his own model; more devices fail more often."""
    def at(gpus):
        report = json.loads(good("plan", MODELS / "llama-3-8b.json", "dgx-h100", "--gpus", gpus,
                                 "--global-batch", "1024", "--seq", "8192", "--pin", "tp=8,pp=1",
                                 "--json"))
        return report["goodput"]

    def share(interval, it):
        mtbf, restart = it["mtbf_s"], 600
        return interval / (mtbf * math.exp(restart / mtbf)
                           * math.expm1((interval + it["checkpoint_s"]) / mtbf))
    few, many = at(64), at(1024)
    assert abs(few["mtbf_s"] * 64 - 50000 * 3600) < 1 and many["mtbf_s"] * 16 == few["mtbf_s"]
    for it in (few, many):
        best = max(share(it["interval_s"] * factor / 100, it) for factor in range(20, 500))
        assert best - 1e-5 < it["goodput"] < 1 and it["tag"] == "estimated", it
    assert many["goodput"] < few["goodput"] and many["slowest"] > few["slowest"]
    # of 64 and 1,024 normal numbers the largest are 2.36 and 3.24 deviations out (tables)
    assert abs(few["slowest"] / few["jitter"] - 2.36) < 0.03
    assert abs(many["slowest"] / many["jitter"] - 3.24) < 0.03
    text = " ".join(told(*EIGHT_B).split())
    assert re.search(r"Young, Daly\) leaves a goodput of [0-9.]+ % \[estimated\]", text), text
    assert re.search(r"expected [0-9.]+ % behind the mean, [0-9.]+ ms \[estimated\]", text), text


def test_outside_is_itemised():
    """Figure (c): one line each, which add up to what must stay within the margin."""
    names = ["context", "code", "libraries", "communicators", "graphs"]
    for arguments in (SMALL, EIGHT_B):
        report = json.loads(told(*arguments, "--json"))
        assert [line["name"] for line in report["outside"]] == names
        assert all(line["tag"] in ("measured", "estimated") and line["formula"]
                   for line in report["outside"])
        assert 0 < sum(line["bytes"] for line in report["outside"]) < report["margin_bytes"]
        text = told(*arguments)
        for line in report["outside"]:  # nobody measured what is not there
            tag = rf" \[{line['tag']}\]" if line["bytes"] else r"[^\]]"
            assert re.search(rf"^    {line['name']} .*{tag}$", text, re.MULTILINE), text


def test_ranks_of_experts_have_their_name():
    """What layers of experts exchange over ranks that share them is no work of dp or tp."""
    model = os.path.join(ROOT, "tests/e2e/models/moe.json")
    text = good("plan", model, "host", "--gpus", "2", "--global-batch", "8", "--seq", "16", "--pin",
                "dp=2,ep=2,tp=1,pp=1,mbs=1")
    assert re.search(r"^  ep +all_to_all +activations", text, re.MULTILINE), text
    assert "  ep, in layers  " in text, text


def test_time_limit():
    result = run("plan", *EIGHT_B, "--time-limit", "0.000001ms", "--json")
    assert result.returncode in (0, 3), result
    search = json.loads(result.stdout)["search"]
    assert search["open"] > 0 and search["considered"] == sum(
        search[key] for key in ("cut_memory", "cut_bound", "simulated", "open"))


def test_defaults_are_said():
    """No length and no batch given: the model's own, at most 4096, and the report says so."""
    def job(*arguments):
        text = told(*arguments)
        report = json.loads(told(*arguments, "--json"))
        return text, report["sequence"], report["global_batch"], report.get("defaulted")
    text, sequence, batch, defaulted = job(MODELS / "llama-10m.json", "host")
    assert (sequence, batch, defaulted) == (512, 8, "--seq, --global-batch")
    assert "(defaulted: --seq, --global-batch)" in text
    assert job(MODELS / "llama-10m.json", "host", "--seq", "64")[3] == "--global-batch"
    assert job(MODELS / "llama-10m.json", "host", "--seq", "64", "--global-batch", "4")[3] is None
    assert job(MODELS / "llama-3-8b.json", "dgx-h100")[1] == 4096
    with tempfile.TemporaryDirectory() as folder:
        for name, sequence in [("gpt2", 1024), ("llama-10m", 2048)]:
            path = os.path.join(folder, name + ".json")
            good("import", MODELS / (name + ".json"), "-q", "-o", path)
            assert job(path, "host")[1] == sequence, name
    long = run("plan", *SMALL[:-1], "1024", "-q")
    assert long.returncode == 0 and "longer than the 512 tokens" in long.stderr, long
    eight = run("plan", MODELS / "llama-10m.json", "host", "--gpus", "8", "-q")
    assert "host is one machine of 4 devices" in eight.stderr, eight
    idle = run("plan", MODELS / "llama-10m.json", "host", "--gpus", "1", "--pin", "zero=1", "-q")
    assert idle.returncode == 0 and "zero=1 has no effect" in idle.stderr, idle


def test_pinned_reports_contradict_nothing():
    text = told(*SMALL, "--pin", "pp=2,tp=2,sp=1")
    assert "nothing within these pins is faster" in text and "less time: tp 1 x dp 4" in text
    text = told(*SMALL)
    assert "nothing in the declared space is faster" in text and "is this plan" in text
    assert "less time" not in text and "0.0 % faster" not in text
    with tempfile.TemporaryDirectory() as folder:
        path = plan_file(folder, "a.json", *SMALL)
        titles = [column["placement"] for column in json.loads(good("explain", path, "--json"))["columns"]]
        assert len({json.dumps(title, sort_keys=True) for title in titles}) == len(titles)


def test_other_files_are_one_error():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model.json")
        good("import", MODELS / "gpt2.json", "-q", "-o", model)
        plan = plan_file(folder, "plan.json", *SMALL)
        for arguments, words in [
                (["explain", MODELS / "gpt2.json"], "this is a Hugging Face config, not a plan"),
                (["prove", model], "this is a model file, not a plan"),
                (["diff", plan, model], "this is a model file, not a plan"),
                (["build", ROOT / "examples" / "clusters" / "host.json", "-o", folder],
                 "this is a cluster file, not a plan"),
                (["import", plan], "this is a plan file, not a config"),
                (["import", model], "this is a model file, not a config"),
                (["plan", plan, "host"], "this is a plan file, not a model")]:
            result = run(*arguments)
            assert result.returncode == 1 and words in result.stderr, (arguments, result)
            assert result.stderr.count("error:") == 1 and "help:" in result.stderr, result.stderr


def test_example_plans_are_proven():
    plans = sorted((ROOT / "examples" / "plans").glob("*.json"))
    assert plans
    for plan in plans:
        assert "proven" in good("prove", plan, "--no-mutations"), plan


def test_diff():
    with tempfile.TemporaryDirectory() as folder:
        first = plan_file(folder, "a.json", *SMALL, "--pin", "dp=4")
        second = plan_file(folder, "b.json", *SMALL, "--pin", "pp=4")
        text = good("diff", first, second)
        for term in ("devices", "tp x dp x pp", "step", "against the first", "peak memory", "bubble",
                     "sent, shm"):
            assert any(line.strip().startswith(term) for line in text.splitlines()), (term, text)
        columns = json.loads(good("diff", first, second, "--json"))["columns"]
        assert [column["placement"]["pp"] for column in columns] == [1, 4]
        same = json.loads(good("diff", first, first, "--json"))["columns"]
        same[0].pop("title"), same[1].pop("title")
        assert same[0] == same[1]


def test_whatif():
    with tempfile.TemporaryDirectory() as folder:
        path = plan_file(folder, "8b.json", *EIGHT_B)
        text = good("whatif", path, "--sweep", "gpus=32,64,128")
        assert "gpus=32" in text and "against the first" in text
        columns = json.loads(good("whatif", path, "--sweep", "gpus=32,64,128", "--json"))["columns"]
        steps = [column["predicted"]["step_ns"] for column in columns]
        assert steps[1] > steps[0] == steps[2] > steps[3], steps
        fast = json.loads(good("whatif", path, "--set", "links.infiniband.bytes_per_s=x2",
                               "--set", "links.0.bytes_per_s=x2", "--json"))["columns"]
        assert fast[1]["predicted"]["step_ns"] < fast[0]["predicted"]["step_ns"]
        small = json.loads(good("whatif", path, "--sweep", "device.memory_bytes=40GiB,160GiB",
                                "--replan", "--json"))["columns"]
        assert max(small[1]["predicted"]["peak_bytes"]) <= 36 << 30
        assert small[2]["predicted"]["step_ns"] <= small[0]["predicted"]["step_ns"] \
            <= small[1]["predicted"]["step_ns"]
        none = json.loads(misfit("whatif", path, "--set", "device.memory_bytes=5GiB", "--replan",
                                 "--json"))["columns"]
        assert none[1]["placement"] is None and not none[1]["fits"]
        held = json.loads(misfit("whatif", path, "--set", "device.memory_bytes=40GiB", "--json"))
        assert not held["columns"][1]["fits"]
        longer = json.loads(good("whatif", path, "--set", "sequence=4096", "--json"))["columns"]
        assert longer[1]["predicted"]["step_ns"] < longer[0]["predicted"]["step_ns"]
        for wrong, words in [("device.memroy_bytes=1", "did you mean memory_bytes"),
                             ("links.ethernet.latency_ns=1", "names no link"),
                             ("moon=1", "knows no key"), ("gpus=many", "is not a number"),
                             ("links.0.bytes_per_s=nan", "is not a number"),
                             ("device.flops_f32=1", "expected an integer between 1000000 and"),
                             ("links.0.half_bytes=1e18", "not 1000000000000000000")]:
            result = run("whatif", path, "--set", wrong)
            assert result.returncode == 1 and words in result.stderr, (wrong, result)
        assert "more than 32768 micro-batches" in run("whatif", path, "--set", "global_batch=1e15").stderr
        assert "has no values" in run("whatif", path, "--sweep", "gpus=").stderr
        assert run("whatif", path).returncode == 2


def test_explain():
    with tempfile.TemporaryDirectory() as folder:
        path = plan_file(folder, "8b.json", *EIGHT_B, "--pin", "zero=1,shard=all")
        text = good("explain", path)
        assert "bound by compute" in text
        assert re.search(r"block 0: .* kept, of a layer and sequence +<- this plan", text), text
        assert "Simpler plans that do not fit" in text and "Twice as much of one thing" in text
        report = json.loads(good("explain", path, "--json"))
        assert {"placement", "predicted", "search", "ladder", "columns"} <= set(report)
        # a plan that is not the fastest says which is
        slow = plan_file(folder, "slow.json", *EIGHT_B, "--pin", "tp=8,pp=2")
        assert "the fastest" in good("explain", slow)


def test_trace():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        report = json.loads(good("plan", *SMALL, "--pin", "pp=2,tp=2", "--trace", path, "--json"))
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        work = [event for event in events if event["ph"] == "X"]
        assert {event["pid"] for event in work} == {0, 1}
        end = max(event["ts"] + event["dur"] for event in work)
        assert abs(end * 1000 - report["predicted"]["step_ns"]) < 2, end
        lanes = {}
        for event in work:
            lanes.setdefault((event["pid"], event["tid"]), []).append(event)
        for lane in lanes.values():
            lane.sort(key=lambda event: event["ts"])
            for one, two in zip(lane, lane[1:]):
                assert one["ts"] + one["dur"] <= two["ts"] + 0.0015, (one, two)


def test_page():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "page.html")
        good("plan", *SMALL, "--pin", "pp=4,schedule=1f1b", "-q", "--html", path)
        text = pathlib.Path(path).read_text(encoding="utf-8")
        assert text.count("<svg") == text.count("</svg>") == 3, "memory, time, pipeline"
        assert not re.search(r"https?:|<script|<link|src=", text), "one file, no script"
        assert len(re.findall("of micro-batch", text)) == 4 * 2 * 8, "a row for each part"
        assert "What must be resident?" in text and "Why not a simpler plan?" in text
        widths = [float(width) for width in re.findall(r'<rect x="[0-9.]+" y=0 width="([0-9.]+)"',
                                                       text.split("<svg")[2])]
        assert abs(sum(widths) - (960 - 76)) < 2, "a stage's step is a whole bar"


def main(of):
    tests = [(name, value) for name, value in sorted(of.items()) if name.startswith("test_")
             and (not sys.argv[2:] or name in sys.argv[2:])]
    print(f"1..{len(tests)}")
    failed = 0
    for number, (name, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} {name}", flush=True)
        except (AssertionError, KeyError, ValueError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"not ok {number} {name}")
            for line in f"{type(error).__name__}: {error}".splitlines():
                print("#", line)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(globals())
