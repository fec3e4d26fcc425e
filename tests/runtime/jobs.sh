#!/bin/sh
# jobs.sh - whole jobs of tests/runtime/world: bits that must agree, and ends that must be clean.
#
#     jobs.sh WORLD bits|shake|resume|ends
#
# Every case prints one line; the first that is wrong ends the script with what it saw.
set -u
world=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
i=0
while [ $i -lt 400 ]; do
    echo "line $i of a small text, whose bytes are the tokens: $((i * i % 97))"
    i=$((i + 1))
done > text

die() {
    echo "wrong: $*"
    [ -f said ] && cat said
    exit 1
}

# run STATUS SECONDS TEST RANKS mpi|virtual OPTIONS...: the exit status wanted, and by when.
run() {
    want=$1 limit=$2 LP_TEST=$3 LP_RANKS=$4 how=$5
    shift 5
    export LP_TEST LP_RANKS
    case $how in
    mpi) set -- mpirun -np "$LP_RANKS" "$world" --data text "$@" ;;
    *) set -- "$world" --virtual --data text "$@" ;;
    esac
    start=$(date +%s)
    timeout "$limit" "$@" > said 2>&1
    got=$?
    [ $got -eq "$want" ] || die "$LP_TEST on $LP_RANKS ranks ($how): status $got, wanted $want"
    echo "ok: $LP_TEST on $LP_RANKS ranks ($how): status $got after $(($(date +%s) - start)) s"
}

# says TEXT: exactly one line of ours in what the job said, and it holds TEXT.
says() {
    [ "$(grep -c '^lplan: ' said)" -eq 1 ] || die "not one line of ours"
    grep -q -e "$1" said || die "it does not say: $1"
}

losses() {
    sed 's/,"lr".*//' "$1/log.jsonl"
}

bits() {
    for ranks in 2 4; do
        for how in mpi virtual; do
            run 0 60 train $ranks $how --steps 12 --warmup 3 --quiet --log $how --save $how.safetensors \
                --dump-grads $how.grads --trace $how.trace
            # Every step marks two batches, on each rank.
            [ "$(grep -c '"name":"batch","ph":"X","pid":1,' $how.trace)" -eq 24 ] || die "$how.trace"
            [ "$(tail -n 1 $how.trace)" = ']' ] || die "$how.trace is cut"
        done
        cmp mpi.safetensors virtual.safetensors || die "weights differ between mpi and virtual"
        cmp mpi.grads virtual.grads || die "gradients differ between mpi and virtual"
        losses mpi > a
        losses virtual > b
        cmp a b || die "losses differ between mpi and virtual"
        [ "$(wc -l < a)" -eq 12 ] || die "log.jsonl has not 12 lines"
    done
    # Another number of ranks adds the same numbers in another order: near, and seldom equal.
    run 0 60 train 1 virtual --steps 12 --warmup 3 --quiet --log one --save one.safetensors
    near virtual one 12
    # A run that starts from saved weights reads the same file under any number of ranks.
    run 0 60 train 2 mpi --steps 0 --quiet --init mpi.safetensors --save again.safetensors
    cmp mpi.safetensors again.safetensors || die "weights change by loading and saving"
}

# near A B: the losses of two runs, step by step from the last ones.
near() {
    losses "$1" | tail -n "$3" > a
    losses "$2" | tail -n "$3" > b
    paste -d, a b | awk -F'[:,]' '{ d = $4 - $10; if (d < 0) d = -d; if (d > 1e-5 * $4 || $4 == "") exit 1 }' ||
        die "losses of $1 and $2 are not near"
}

# Late messages change no bit, whatever is late; where a wait is missing they do. Collectives too.
shake() {
    run 0 60 train 4 virtual --steps 4 --quiet --save still.safetensors
    seed=1
    while [ $seed -le ${LP_SEEDS:-50} ]; do
        LP_TEST=train LP_RANKS=4 timeout 60 "$world" --virtual --data text --steps 4 --quiet \
            --save shaken.safetensors --shake $seed > said 2>&1 || die "shaken with $seed: it ended"
        cmp still.safetensors shaken.safetensors || die "weights differ when shaken with $seed"
        seed=$((seed + 1))
    done
    echo "ok: the same bits with $((seed - 1)) seeds"
    for seed in 1 2 3; do
        run 0 60 train 4 mpi --steps 4 --quiet --save shaken.safetensors --shake $seed
        cmp still.safetensors shaken.safetensors || die "weights differ when shaken with $seed (mpi)"
        run 0 60 collectives 3 virtual --shake $seed
    done
    differ=0
    for seed in 1 2 3 4 5; do
        run 0 60 careless 4 virtual --steps 4 --quiet --save shaken.safetensors --shake $seed
        cmp -s still.safetensors shaken.safetensors || differ=$((differ + 1))
    done
    [ $differ -gt 0 ] || die "a missing wait does not show in 5 shaken runs"
    echo "ok: a missing wait shows in $differ of 5 runs"
}

resume() {
    run 0 60 train 4 mpi --steps 12 --quiet --log whole --save whole.safetensors --checkpoint all --checkpoint-every 5
    [ "$(ls all | tr '\n' ' ')" = "step-000000000005 step-000000000010 step-000000000012 " ] ||
        die "checkpoints: $(ls all)"
    mkdir early
    cp -r all/step-000000000005 early
    # The same plan goes on with the same bits, under either transport.
    for how in mpi virtual; do
        run 0 60 train 4 $how --steps 12 --quiet --log later --save later.safetensors --resume early --checkpoint $how
        cmp whole.safetensors later.safetensors || die "weights differ after resuming ($how)"
        losses whole | tail -n 7 > a
        losses later > b
        cmp a b || die "losses differ after resuming ($how)"
        cmp all/step-000000000012/speed.safetensors $how/step-000000000012/speed.safetensors ||
            die "the moment differs after resuming ($how)"
    done
    # Another plan goes on with the same numbers.
    run 0 60 train 2 mpi --steps 12 --quiet --log other --resume early
    near whole other 7
    # Only the newest are kept, and a half-written one is not resumed from.
    run 0 60 train 2 virtual --steps 12 --quiet --checkpoint kept --checkpoint-every 2 --keep 2
    [ "$(ls kept | tr '\n' ' ')" = "step-000000000010 step-000000000012 " ] || die "kept: $(ls kept)"
    cp -r kept/step-000000000012 kept/step-000000000014.part
    run 0 60 train 2 virtual --steps 12 --quiet --resume kept --log none
    [ ! -s none/log.jsonl ] || die "a run that was complete made steps"
    # Another plan reads other parts, of the same bits; a bit that changed is noticed, and what to do said.
    run 0 60 train 4 mpi --steps 12 --quiet --checkpoint kept --keep 2
    run 0 60 train 2 virtual --steps 12 --quiet --resume kept
    printf 'x' | dd of=kept/step-000000000012/speed.safetensors bs=1 seek=2000 conv=notrunc 2> dd
    rm -r kept/step-000000000014.part
    run 1 60 train 2 virtual --resume kept
    says 'speed.safetensors is damaged: it does not hold the bits that were saved; .*move kept/step-000000000012 away'
    sed -i 's/"speed"/"speet"/' kept/step-000000000012/state.json
    run 1 60 train 2 virtual --resume kept
    says 'state.json: byte [0-9]*: bits of an unknown kind of state; .*move kept/step-000000000012 away'
    mv kept/step-000000000012 kept/bad
    run 0 60 train 2 virtual --steps 12 --quiet --resume kept
    # A disk that is full, for one rank or all: one line, and nothing of the half is left.
    run 1 60 full 4 mpi --steps 3 --quiet --log log --checkpoint kept
    says 'cannot write kept/step-000000000003.part/speed.safetensors: File too large'
    run 1 60 full 4 virtual --steps 3 --quiet --log log --checkpoint kept
    says 'cannot write kept/step-000000000003.part/model.safetensors: File too large'
    run 1 60 full 4 virtual --steps 3 --quiet --log log --save kept/w.safetensors
    says 'cannot write kept/w.safetensors: File too large'
    [ "$(ls kept | tr '\n' ' ')" = "bad step-000000000010 " ] || die "left of a full disk: $(ls kept)"
    run 1 60 train 2 virtual --trace nowhere/t --log log
    says '(stage 0): --trace nowhere/t: cannot write in nowhere/: No such file'
    # The word of an earlier run is none of this one's.
    echo 'an older failure' > log/failure
    export LP_ARENA=4000000000000000
    run 3 60 train 2 virtual --log log
    unset LP_ARENA
    says 'not enough memory: the arenas of this machine.s ranks need 8000000000000000 bytes'
    # What is wrong with a checkpoint is said.
    echo '{"format":"lplan-checkpoint/1","samples":81,"seed":1}' > early/step-000000000005/state.json
    run 1 60 train 2 virtual --resume early
    says '81 samples are no whole number of this plan.s steps of 16'
    echo '{"format":"lplan-checkpoint/9","samples":80,"seed":1}' > early/step-000000000005/state.json
    run 1 60 train 2 virtual --resume early
    says 'state.json: byte [0-9]*: no state of lplan-checkpoint/1'
    echo '{"format":"lplan-checkpoint/1","samples":80,"seed":2}' > early/step-000000000005/state.json
    run 1 60 train 2 virtual --resume early
    says 'the seed was 2'
    rm early/step-000000000005/speed.safetensors
    echo '{"format":"lplan-checkpoint/1","samples":80,"seed":1}' > early/step-000000000005/state.json
    run 1 60 train 2 virtual --resume early
    says 'speed.safetensors: No such file'
    run 1 60 train 2 virtual --resume nowhere
    says 'no checkpoint there'
}

ends() {
    for how in mpi virtual; do
        run 124 60 hang 4 $how --timeout 4 --log log
        says 'rank 3 (pid [0-9]*) is at step 2, `a place to misbehave`, busy for'
        grep -q 'a place to misbehave' log/failure || die "no log/failure"
        run 124 60 hang 2 $how --timeout 4
        says 'rank 0 (stage 0), step 2, `gradients`: reduce-scatter .* waiting for rank 1 (stage 0)'
        run 1 60 nan 2 $how
        says 'the loss of step 2 is nan'
        run 70 60 leak 2 $how
        # both ranks made the mistake, and both may say so before the other ends them
        grep -q '^lplan: .*ended with its recv in flight' said || die "the leak was not named"
        run 0 60 stop 2 $how --steps 100 --log log --save stopped.safetensors
        [ "$(wc -l < log/log.jsonl)" -eq 3 ] || die "it did not stop after the step of the signal"
        [ -s stopped.safetensors ] || die "it did not save"
        rm stopped.safetensors
    done
    run 137 29 die 3 mpi --log log
    grep -q '"step":2 .*"at":"a place to misbehave' log/rank-2.status || die "the dead rank left no trace"
    # Starting wrongly.
    LP_TEST=train LP_RANKS=4 "$world" --data text > said 2>&1
    [ $? -eq 2 ] || die "4 ranks in one process started"
    says 'this plan has 4 ranks, but 1 was started: .*mpirun -np 4'
    LP_TEST=train LP_RANKS=4 mpirun -np 2 "$world" --data text > said 2>&1
    [ $? -eq 2 ] || die "4 ranks in two processes started"
    says 'this plan has 4 ranks, but 2 were started'
    LP_TEST=train LP_RANKS=1 mpirun -np 2 "$world" --data text > said 2>&1
    [ $? -eq 2 ] || die "1 rank in two processes started"
    says 'this plan has 1 ranks, but 2 were started'
    LP_TEST=train LP_RANKS=2 mpirun -np 2 "$world" --virtual --data text > said 2>&1
    [ $? -eq 2 ] || die "--virtual in two processes started"
    says 'but 2 were started'
    LP_TEST=train LP_RANKS=2 mpirun -np 2 "$world" --date text > said 2>&1
    [ $? -eq 2 ] || die "an unknown option was taken"
    says 'unknown option `--date`'
    LP_TEST=train LP_RANKS=2 LP_ARENA=4000000000000000 mpirun -np 2 "$world" --data text > said 2>&1
    [ $? -eq 3 ] || die "an arena larger than the machine was taken"
    says 'not enough memory: the arenas of this machine.s ranks need 8000000000000000 bytes'
    LP_TEST=train LP_RANKS=2 mpirun -np 2 "$world" --data absent > said 2>&1
    [ $? -eq 1 ] || die "an absent file was taken"
    says 'absent: No such file'
}

$2
