#!/usr/bin/env bash
# run_all.sh - builds and tests everything: gcc, gcc with sanitizers, clang, lint. The last line is
# "N passed, N failed"; the exit code is 0 only when nothing failed.
#
#   tests/run_all.sh            everything: trainers are built, run under MPI and compared too
#   tests/run_all.sh --quick    the quick suites and lint of one build, in a minute or two
set -u
cd "$(dirname "$0")/.." || exit 1
exec </dev/null

quick=
suites=()
if [ "${1:-}" = --quick ]; then
    quick=1
    suites=(--no-suite slow)
fi

# MPI in a container, as root, with more ranks than cores; shared memory only, so starts are quick.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

results=()
built_good=0
built_bad=0

# build FOLDER OPTIONS...: configures once and compiles. Counted as one check.
build() {
    local folder=$1
    shift
    echo "== build $folder"
    if [ ! -f "$folder/build.ninja" ]; then
        rm -rf "$folder"
        meson setup "$folder" "$@" || { built_bad=$((built_bad + 1)); return 1; }
    fi
    if meson compile -C "$folder"; then
        built_good=$((built_good + 1))
    else
        echo "FAILED: build $folder"
        built_bad=$((built_bad + 1))
        return 1
    fi
}

# run FOLDER OPTIONS...: runs its tests and keeps the log for the count. MPI jobs that failed get one more
# try, which the count tells.
run() {
    local folder=$1 logs=$1/meson-logs unsteady
    shift
    echo "== test $folder"
    rm -f "$logs/testlog.json" "$logs/again.json"
    results+=("$logs/testlog.json")
    meson test -C "$folder" --no-rebuild --print-errorlogs "$@" && return
    read -ra unsteady < <(python3 tests/count_results.py --unsteady "$logs/testlog.json")
    [ ${#unsteady[@]} -eq 0 ] ||
        meson test -C "$folder" --no-rebuild --print-errorlogs --logbase again \
            --timeout-multiplier 4 "${unsteady[@]}"
}

# Limits are for what hangs: a busy machine is no failure.
build build && run build --timeout-multiplier 4 "${suites[@]}"
[ -z "$quick" ] || exec python3 tests/count_results.py "$built_good" "$built_bad" "${results[@]}"

export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}"
export LSAN_OPTIONS="${LSAN_OPTIONS:-suppressions=$PWD/tests/lsan.supp:print_suppressions=0}"
# Instrumented code compiles slowly when optimised, and its warnings are false ones: the plain builds
# judge warnings.
build build-asan -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 -Dwerror=false \
    -Dc_args=-fno-sanitize-recover=all &&
    run build-asan --no-suite lint --no-suite noasan --no-suite slow --timeout-multiplier 4

if command -v clang >/dev/null; then
    CC=clang build build-clang -Doptimization=0 -Ddebug=false
else
    echo "== no clang here: its build is left out"
fi

exec python3 tests/count_results.py "$built_good" "$built_bad" "${results[@]}"
