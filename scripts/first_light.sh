#!/usr/bin/env bash
# first_light.sh - the main job in one go, from nothing: install what is needed, build lplan, import two models, plan
# them for this machine and a 70B model for 64 H100s, print the reports, prove, build trainers, and train the small model for
# 60 steps on 4 ranks, compared with one rank.
#
#   scripts/first_light.sh [FOLDER]      everything it makes goes there (default: first-light)
set -eu
out=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/.."
out=${out:-first-light}
scripts/setup.sh

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }

say "build lplan"
if [ ! -f build/build.ninja ]; then
    meson setup build >/dev/null
fi
meson compile -C build lplan >/dev/null
lplan=build/lplan
mkdir -p "$out"

say "import: a Llama of 10 M parameters and GPT-2 124M"
run $lplan import examples/models/llama-10m.json -o "$out/llama-10m.model.json"
run $lplan import examples/models/gpt2.json -o "$out/gpt2.model.json"

say "plan: Llama-3.1-70B on 64 H100"
run $lplan plan examples/models/llama-3.1-70b.json dgx-h100 --gpus 64 --global-batch 512 --seq 8192 --recipe bf16 \
    -o "$out/llama-70b.plan.json"

say "plan: GPT-2 124M on this machine"
run $lplan plan "$out/gpt2.model.json" host --gpus 2 --global-batch 8 --seq 64 -o "$out/gpt2.plan.json"

say "plan: the small model on 4 ranks of this machine, twice: dp x tp, and tp x pp"
small="--global-batch 8 --seq 64"
run $lplan plan "$out/llama-10m.model.json" host --gpus 1 $small --pin mbs=1 -o "$out/one.plan.json" -q
run $lplan plan "$out/llama-10m.model.json" host --gpus 4 $small --pin dp=2,tp=2,zero=1 -o "$out/dp-tp.plan.json"
run $lplan plan "$out/llama-10m.model.json" host --gpus 4 $small --pin tp=2,pp=2,sp=1,zero=1 -o "$out/tp-pp.plan.json" -q

say "prove both"
run $lplan prove "$out/dp-tp.plan.json"
run $lplan prove "$out/tp-pp.plan.json"

say "build three trainers"
for plan in one dp-tp tp-pp; do
    run $lplan build "$out/$plan.plan.json" -o "$out/$plan"
done

# Real text that every Debian has: the licences.
text="$out/text.txt"
cat /usr/share/common-licenses/* >"$text" 2>/dev/null || cat ./*.md >"$text"
options="--data $text --lr 5e-4 --warmup 20 --seed 7 --threads 1"

say "train: one rank, 60 steps"
run $lplan run "$out/one" $options --steps 60 --log "$out/one/run" --quiet
for plan in dp-tp tp-pp; do
    say "train: $plan on 4 ranks, 60 steps"
    run $lplan run "$out/$plan" $options --steps 60 --log "$out/$plan/run"
    run python3 scripts/compare_runs.py "$out/one/run" "$out/$plan/run"
done

say "deterministic: 4 processes and one process with 4 virtual ranks, bit for bit"
run $lplan run "$out/dp-tp" $options --steps 20 --deterministic --log "$out/dp-tp/mpi" --save "$out/mpi.safetensors" --quiet
run $lplan run "$out/dp-tp" $options --steps 20 --deterministic --virtual --log "$out/dp-tp/virtual" \
    --save "$out/virtual.safetensors" --quiet
cmp "$out/mpi.safetensors" "$out/virtual.safetensors"
run python3 scripts/compare_runs.py --bits "$out/dp-tp/mpi" "$out/dp-tp/virtual"
say "done"
