#!/bin/sh
# launch.sh - `lplan run` around world.c: what a user sees when a job ends, well or badly.
#
#     launch.sh LPLAN WORLD
set -u
lplan=$(realpath "$1") world=$(realpath "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
mkdir job
job=job
ln -s "$world" job/trainer
echo "a small text whose bytes are the tokens" > text
# The launcher itself must bring what Open MPI needs.
for name in $(env | sed -n 's/^\(OMPI_[A-Z_a-z]*\)=.*/\1/p'); do
    unset "$name"
done

die() {
    echo "wrong: $*"
    cat out err
    exit 1
}

# run STATUS TEST RANKS OPTIONS...
run() {
    want=$1 LP_TEST=$2 LP_RANKS=$3
    shift 3
    export LP_TEST LP_RANKS
    timeout 90 "$lplan" run $job --data text "$@" > out 2> err
    got=$?
    [ $got -eq "$want" ] || die "$LP_TEST on $LP_RANKS ranks: status $got, wanted $want"
    echo "ok: $LP_TEST on $LP_RANKS ranks: status $got"
}

# errs TEXT: errors are one line, ours, with TEXT.
errs() {
    [ "$(wc -l < err)" -eq 1 ] || die "errors are not one line"
    grep -q -e "^lplan: .*$1" err || die "it does not say: $1"
}

run 0 train 3 --steps 3
[ -s err ] && die "errors of a good run"
grep -q '^step 2/3  loss ' out || die "no line of step 2"
[ "$(wc -l < job/run/log.jsonl)" -eq 3 ] || die "no log in job/run"
run 0 train 3 --steps 3 --virtual
grep -q '3 ranks (1 stage), threads' out || die "--virtual did not run as threads"
run 0 train 1 --steps 3
run 137 die 3
errs 'rank 2 (stage 0, host .*, pid [0-9]*) died of signal 9 (Killed) at step 2, `a place to misbehave`'
run 137 die 1
errs 'rank 0 (stage 0, host .*, pid [0-9]*) died of signal 9 (Killed) at step 2, `a place to misbehave`'
run 3 exit 3 --log elsewhere
errs 'rank 2 (stage 0, host .*) ended with status 3 at step 2, `a place to misbehave`'
run 124 hang 3 --timeout 4
errs 'waiting for rank 2 (stage 0); rank 2 (pid [0-9]*) is at step 2, `a place to misbehave`, busy for'
# A rank that never joins: the others wait in MPI's start, where no watchdog of ours lives.
mkdir late
cat > late/trainer <<END
#!/bin/sh
[ "\${OMPI_COMM_WORLD_RANK:-0}" = 1 ] && exec sleep 100.$$
exec "$world" "\$@"
END
chmod +x late/trainer
job=late
run 124 train 3 --timeout 5
errs '0 of 3 ranks have begun 5 s after mpirun was started'
pgrep -f "sleep 100[.]$$" > /dev/null && die "a rank is left"
job=job
run 1 nan 2
errs 'the loss of step 2 is nan'
run 2 train 2 --date text
errs 'unknown option `--date`'

# Asked to stop, it saves and ends well.
rm -r job/run
LP_TEST=train LP_RANKS=2 "$lplan" run job --data text --steps 100000000 --save w.safetensors > out 2> err &
launcher=$!
i=0
while [ ! -s job/run/log.jsonl ] || [ "$(wc -l < job/run/log.jsonl)" -lt 3 ]; do
    i=$((i + 1))
    [ $i -lt 300 ] || die "no step in 30 s"
    sleep 0.1
done
kill -TERM $launcher
wait $launcher || die "status $? after SIGTERM"
[ -s w.safetensors ] || die "no weights after SIGTERM"
echo "ok: SIGTERM saves"

"$lplan" run nowhere > out 2> err
[ $? -eq 1 ] || die "nowhere was run"
grep -q 'lplan build PLAN -o nowhere makes it' err || die "no remedy"
"$lplan" run > out 2> err
[ $? -eq 2 ] || die "run without DIR"
