#!/bin/sh
# Runs every test, stage by stage, and stops at the first stage that fails. `tests/run.sh asan e2e` runs only those stages.
# The last lines are the summary, in a form that fits a log: one line a stage, with counts.
set -eu
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
summary=
started=$(date +%s)
mkdir -p build/logs

say() {
    printf '\n== %s\n' "$*"
}

finish() {
    code=$?
    printf '\n== summary\n%s' "$summary"
    [ $code = 0 ] && echo "all passed in $(($(date +%s) - started)) s" && return
    echo "FAILED: $stage (output above)"
}
trap finish EXIT

passed() {
    summary="$summary$(printf '%-8s %s' "$stage" "$1")
"
}

# Thread sanitizer needs the address space where it expects it; a container may not let us ask for that.
plain_addresses() {
    if setarch -R true 2>/dev/null; then setarch -R "$@"; else "$@"; fi
}

# unit PRESET [ctest arguments]: runs the suites and counts programs and Check's checks.
unit() {
    preset=$1
    shift
    log=build/logs/$preset.txt
    code=0
    plain_addresses ctest --preset "$preset" --parallel "$jobs" --verbose "$@" >"$log" 2>&1 || code=$?
    if [ $code != 0 ]; then
        grep -E '^[0-9]+: .*:[FE]:|^[0-9]+: .*(ERROR|WARNING|SUMMARY): |\*\*\*|^[0-9]+: .*runtime error' "$log" || tail -n 60 "$log"
        sed -n '/tests passed/,$p' "$log"
        echo "the whole log: $log"
        exit 1
    fi
    programs=$(grep -c ' Test *#[0-9]*: .* Passed' "$log")
    checks=$(sed -n 's/.*100%: Checks: \([0-9]*\),.*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
    passed "$programs programs, $checks checks"
    echo "$programs programs, $checks checks"
}

# The CUDA kernels' tests want a C++ compiler, which setup.sh brings for the tests alone: a folder that was configured
# without one is configured again.
with_cxx() {
    if [ -f "$1/CMakeCache.txt" ] && ! grep -q '^CMAKE_CXX_COMPILER:[A-Z]*=/' "$1/CMakeCache.txt"; then
        rm -f "$1/build.ninja"
    fi
}

tidy() {
    python3 tests/tidy.py --self-test
    python3 tests/tidy.py
    passed "$(python3 tests/tidy.py | tail -n 1)"
}

release() {
    with_cxx build
    docker/build.sh release "$jobs"
    unit release
}

# Suites that would take minutes under sanitizers carry the label slow; the release build runs them.
asan() {
    with_cxx build/asan
    docker/build.sh asan "$jobs" suites
    ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 unit asan --label-exclude slow
}

tsan() {
    docker/build.sh tsan "$jobs" thread_suites
    TSAN_OPTIONS=history_size=4 unit tsan --label-regex threads --label-exclude slow
}

e2e() {
    docker/build.sh release "$jobs"
    docker/fetch_model.sh
    docker/venv.sh
    log=build/logs/e2e.txt
    echo 1 >build/logs/e2e.code
    { .venv/bin/python -m pytest -q -p no:cacheprovider -o asyncio_default_fixture_loop_scope=function tests/e2e 2>&1 &&
        echo 0 >build/logs/e2e.code; } | tee $log
    [ "$(cat build/logs/e2e.code)" = 0 ] || exit 1
    passed "$(tail -n 1 $log)"
}

for stage in ${*:-tidy release asan tsan e2e}; do
    case $stage in
    tidy) say "tidy: include direction, sizes, dead files" ;;
    release) say "release: unit suites, fuzz seeds, CUDA kernels under emulation, plain and race-checked" ;;
    asan) say "asan: the same with address and undefined-behaviour sanitizers" ;;
    tsan) say "tsan: suites with threads, with the thread sanitizer" ;;
    e2e) say "e2e: the program, over HTTP" ;;
    *) echo "run.sh: there is no stage $stage" >&2; exit 2 ;;
    esac
    $stage
done
stage=done
