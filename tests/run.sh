#!/bin/sh
# Runs all tests, stage by stage, and stops at the first stage that fails. `tests/run.sh asan e2e` runs only those
# stages. The last lines are a summary for a log: one line per stage, with counts. The stages of `make soak` take hours
# and run only if they are named: fuzz asan_slow tsan_slow checked_slow chaos_soak mutants schemas_soak openapi_soak packages_soak restarts conversations kills. So
# do those of `make clients`: clients, and suites, a part of it.
set -eu
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
# Without a GPU, the CUDA kernels that nvcc compiles cannot run, so it is enough that they compile for one architecture,
# without expensive optimizations.
docker/gpus.sh >/dev/null || export PENSTOCK_CUDA_ONLY="${PENSTOCK_CUDA_ONLY:-90-real}" PENSTOCK_CUDA_QUICK="${PENSTOCK_CUDA_QUICK:-ON}"
summary=
started=$(date +%s)
mkdir -p build/logs

# A compiler on a full disk fails without a message.
check_space() {
    free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1048576)}')
    [ "$free" -ge 8 ] || echo "run.sh: only $free GiB are free in $(pwd); all stages of make test need 8 GiB" >&2
}
check_space

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
    summary="$summary$(printf '%-10s %s' "$stage" "$1")
"
}

# The thread sanitizer needs address randomization switched off; a container may not allow that.
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

# The tests of the CUDA kernels need a C++ compiler, and those of ranks in several processes Open MPI. setup.sh installs both
# only for the tests. A folder that was configured without one of them is configured again.
with_tools() {
    if [ -f "$1/CMakeCache.txt" ] && ! { grep -q '^CMAKE_CXX_COMPILER:[A-Z]*=/' "$1/CMakeCache.txt" &&
        grep -q '^MPI_FOUND:INTERNAL=1' "$1/CMakeCache.txt"; }; then
        rm -f "$1/build.ninja"
    fi
}

tidy() {
    python3 tests/house.py --self-test
    python3 tests/house.py --check-recipes
    docs/architecture.py --check
    python3 tests/rooms.py --self-test
    python3 tests/rooms.py
    python3 tests/english.py --self-test
    python3 tests/english.py
    python3 tests/asserts.py --self-test
    python3 tests/asserts.py
    python3 tests/tidy.py --self-test
    python3 tests/mutate.py --self-test
    python3 tests/tidy.py
    passed "$(python3 tests/tidy.py | tail -n 1)"
}

release() {
    with_tools build
    docker/build.sh release "$jobs"
    unit release --label-exclude soak
}

# Suites that would take minutes under sanitizers have the label slow; the release build runs them.
asan() {
    docker/build.sh asan "$jobs" suites
    ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 unit asan --label-exclude slow
}

tsan() {
    docker/build.sh tsan "$jobs" thread_suites
    TSAN_OPTIONS=history_size=4 unit tsan --label-regex threads --label-exclude slow
}

# logged COMMAND...: shows a command's output and keeps it in the stage's log, whose last line becomes the stage's summary.
logged() {
    log=build/logs/$stage.txt
    echo 1 >"build/logs/$stage.code"
    { "$@" 2>&1 && echo 0 >"build/logs/$stage.code"; } | tee "$log"
    [ "$(cat "build/logs/$stage.code")" = 0 ] || exit 1
    passed "$(tail -n 1 "$log")"
}

# python_tests VENV FOLDER [pytest arguments]
python_tests() {
    venv=$1 folder=$2
    shift 2
    logged "$venv/bin/python" -m pytest -q -p no:cacheprovider "$@" "$folder"
}

# Half of the time is waiting, so as many files run at once as there are cores, at most 8: conftest.py gives each worker ports.
e2e() {
    docker/build.sh release "$jobs"
    docker/fetch_model.sh
    docker/venv.sh
    workers=$((jobs < 8 ? jobs : 8))
    python_tests .venv tests/e2e -o asyncio_default_fixture_loop_scope=function -n "$workers" --dist loadfile
}

# Installs, and asks man pages, completion and units; installed packages are tested by packages_soak.
packages() {
    docker/setup.sh packages
    docker/build.sh release "$jobs" installed
    docker/fetch_model.sh
    docker/prometheus.sh
    docker/venv.sh
    python_tests .venv tests/packages -o asyncio_default_fixture_loop_scope=function
}

# Lintian, the same bytes twice, a bare Debian in which the package is installed, upgraded and purged, the wheel in a fresh
# environment, both images, two releases, and alerts that fire by faults. Needs root. Like `make package`, it has a build
# without CUDA; soak_cuda.py makes one with CUDA for its package.
packages_soak() {
    docker/setup.sh packages packages_soak
    PENSTOCK_CUDA=OFF docker/build.sh cpu "$jobs" installed
    docker/fetch_model.sh
    docker/prometheus.sh
    docker/venv.sh
    JOBS=$jobs PACKAGED=build/cpu logged .venv/bin/python -m pytest -q -p no:cacheprovider tests/packages/soak_*.py
}

# chaos_of PRESET MINUTES [flags]: hostile requests, mixed with valid ones, to the program of a preset.
chaos_of() {
    preset=$1 minutes=$2 folder=build/$1
    shift 2
    [ "$preset" != release ] || folder=build
    docker/build.sh "$preset" "$jobs" penstock
    logged plain_addresses python3 -u tests/chaos/chaos.py --binary "$folder/penstock" --minutes "$minutes" "$@"
}

chaos() {
    chaos_of asan "${CHAOS_MINUTES:-3}"
}

# The same with other seeds: a million requests with the address sanitizer (about an hour; CHAOS_MINUTES is the limit), then for
# longer with the thread sanitizer; then without a sanitizer, and memory must not grow. Longer rounds start fewer servers.
chaos_soak() {
    seed=$(($(date +%s) % 1000000 * 1000))
    chaos_of asan "${CHAOS_MINUTES:-180}" --seed "$seed" --round 60 --requests "${CHAOS_REQUESTS:-1000000}"
    chaos_of tsan "${CHAOS_MINUTES:-60}" --seed "$seed" --round 60
    chaos_of release 10 --seed "$seed" --round 60 --memory
}

# The values that JSON schemas accept, compared with the suite of JSON Schema, pydantic and jsonschema.
schemas() {
    docker/build.sh release "$jobs" schema_driver
    docker/venv.sh build/schemas/venv tests/schemas/requirements.txt
    python_tests build/schemas/venv tests/schemas "$@"
}

# The same with as many random schemas as fit in an hour.
schemas_soak() {
    first=$(($(date +%s) % 1000000 * 1000))
    SEEDS=$first:$((first + 99999)) schemas -k generated
}

# ---- clients: programs of other projects -------------------------------------------------------------------------

with_clients() {
    docker/setup.sh clients
    docker/build.sh release "$jobs" penstock
    docker/fetch_model.sh
    docker/venv.sh build/clients/venv tests/clients/requirements.txt
}

# MaskBench and vLLM's parsers, if they are there, and the JSON Schema Test Suite.
suites() {
    docker/build.sh release "$jobs" schema_driver penstock
    docker/venv.sh build/schemas/venv tests/schemas/requirements.txt
    docker/venv.sh build/clients/agents tests/clients/requirements_agents.txt
    logged build/schemas/venv/bin/python -u tests/clients/suites.py
}

clients() {
    with_clients
    suites
    docker/prometheus.sh
    for venv in openai2 agents torch aiperf aider; do
        docker/venv.sh build/clients/$venv tests/clients/requirements_$venv.txt
    done
    python_tests build/clients/openai2 tests/clients/sdks_openai2.py --seen build/clients/seen_openai2.json
    python_tests build/clients/agents tests/clients/sdks_agents.py tests/clients/sdks_schemas.py tests/clients/sdks_stores.py \
        --seen build/clients/seen_agents.json
    python_tests build/clients/venv tests/clients --seen build/clients/seen.json
    python3 tests/clients/compatibility.py build/clients/seen.json build/clients/seen_openai2.json build/clients/seen_agents.json
}

# The web page in Debian's Chromium. Pictures of it are in build/page.
browser() {
    docker/setup.sh browser
    docker/build.sh release "$jobs" penstock
    docker/fetch_model.sh
    docker/venv.sh build/browser/venv tests/browser/requirements.txt
    python_tests build/browser/venv tests/browser
}

# ---- soak: stages that take longer than CI allows ------------------------------------------------------------------

fuzz() {
    docker/setup.sh fuzz
    docker/build.sh fuzz "$jobs" fuzzers
    tests/fuzz/run.sh "${FUZZ_SECONDS:-60}"
    passed "$(find tests/fuzz -name 'fuzz_*.c' | wc -l) fuzzers, ${FUZZ_SECONDS:-60} s each"
}

asan_slow() {
    docker/build.sh asan "$jobs" suites
    ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 unit asan --label-regex slow
    with_tools build/asan_emulated
    docker/build.sh asan_emulated "$jobs" cuda_suites
    ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 unit asan_emulated --label-regex cuda
}

# The slowest race-checked suites.
checked_slow() {
    docker/build.sh release "$jobs"
    unit release --label-regex soak
}

# The CUDA emulation runs its threads as fibers, which the thread sanitizer does not support.
tsan_slow() {
    docker/build.sh tsan "$jobs" suites
    TSAN_OPTIONS=history_size=4 unit tsan --label-regex slow --label-exclude cuda
}

# Bugs that are planted one at a time and must be found by the suites: a random sample of each room, and the patches.
mutants() {
    with_tools build
    docker/build.sh release "$jobs"
    docker/fetch_model.sh
    docker/venv.sh
    minutes=${SOAK_MINUTES:-30}
    logged python3 -u tests/mutate.py --sample 25 --seed "${SEED:-$(date +%s)}" --minutes "$minutes"
    logged python3 -u tests/mutate.py --patches --minutes "$minutes"
    logged python3 -u tests/mutate.py --kind cuda --sample 5 --seed "${SEED:-$(date +%s)}" --minutes "$minutes"
}

# The requests that schemathesis makes from /openapi.json, with more random ones for each path.
openapi_soak() {
    docker/build.sh release "$jobs" penstock
    docker/venv.sh
    OPENAPI_EXAMPLES=${OPENAPI_EXAMPLES:-2000} python_tests .venv tests/e2e/test_openapi.py
}

# Many clients of two servers, one of which is restarted repeatedly.
restarts() {
    with_clients
    PYTHONPATH=tests:tests/e2e logged build/clients/venv/bin/python -u tests/clients/soak.py --minutes "${SOAK_MINUTES:-30}"
}

# 41 conversations of 6 turns behind vllm-router, and with one server.
conversations() {
    with_clients
    KV_AWARE_CONVERSATIONS=41 KV_AWARE_TURNS=6 python_tests build/clients/venv tests/clients/test_kv_aware.py
}

# A server with --state-dir, and one with --prefix-store, that are killed at random moments.
kills() {
    docker/build.sh release "$jobs" penstock
    docker/venv.sh
    PENSTOCK_KILLS=${PENSTOCK_KILLS:-200} python_tests .venv tests/e2e/test_promises.py -k no_promise_is_lost
    STORE_KILLS=${PENSTOCK_KILLS:-200} python_tests .venv tests/e2e/test_prefix_store.py -k kills
}

# More requests to ranks in several processes, and 200 kills of one.
ranks() {
    docker/setup.sh test
    with_tools build
    docker/build.sh release "$jobs"
    docker/fetch_model.sh
    docker/venv.sh
    MPI_SOAK=1 python_tests .venv tests/e2e/test_mpi.py tests/e2e/test_mpi_cuda.py
    python_tests .venv tests/e2e/soak_mpi_hosts.py
}

# shellcheck disable=SC2048  # stages are words
for stage in ${*:-tidy release asan tsan chaos schemas packages browser e2e}; do
    case $stage in
    tidy) say "tidy: include direction, sizes, dead files, what the docs name" ;;
    release) say "release: unit suites, fuzz seeds, CUDA kernels under emulation, plain and race-checked" ;;
    asan) say "asan: the same with address and undefined-behaviour sanitizers" ;;
    tsan) say "tsan: suites with threads, with the thread sanitizer" ;;
    chaos) say "chaos: ${CHAOS_MINUTES:-3} minutes of hostile requests beside valid ones, with sanitizers" ;;
    schemas) say "schemas: JSON Schema's test suite, pydantic's schemas, random ones" ;;
    packages) say "packages: make install, man pages, completion in three shells, units, Dockerfiles" ;;
    e2e) say "e2e: the program, over HTTP" ;;
    browser) say "browser: the web page in headless Chromium" ;;
    suites) say "suites: MaskBench, the JSON Schema Test Suite, vLLM's tests of its parsers" ;;
    clients) say "clients: the program and what others made for such servers" ;;
    fuzz) say "fuzz: each parser's fuzzer for ${FUZZ_SECONDS:-60} s" ;;
    asan_slow) say "asan_slow: the slow suites and the emulated kernels with address and undefined-behaviour sanitizers" ;;
    tsan_slow) say "tsan_slow: the slow suites with the thread sanitizer" ;;
    checked_slow) say "checked_slow: the slowest race-checked suites" ;;
    chaos_soak) say "chaos_soak: ${CHAOS_REQUESTS:-1000000} hostile requests, then ${CHAOS_MINUTES:-60} minutes with the thread sanitizer, then memory" ;;
    mutants) say "mutants: planted bugs that the tests must find" ;;
    ranks) say "ranks: ranks in several processes and on two hosts (network namespaces: needs root), with more requests and ${RANK_KILLS:-200} kills" ;;
    schemas_soak) say "schemas_soak: 100,000 random schemas of other seeds" ;;
    openapi_soak) say "openapi_soak: ${OPENAPI_EXAMPLES:-2000} random requests to each path of /openapi.json" ;;
    packages_soak) say "packages_soak: lintian, both packages in a bare Debian, their units under systemd, the wheel, the images, two releases, alerts by faults" ;;
    restarts) say "restarts: ${SOAK_MINUTES:-30} minutes of clients behind a proxy while a server is restarted" ;;
    conversations) say "conversations: 41 behind vllm-router return to the blocks of their beginning" ;;
    kills) say "kills: servers with promises and with a prefix store are killed ${PENSTOCK_KILLS:-200} times" ;;
    *) echo "run.sh: unknown stage $stage" >&2; exit 2 ;;
    esac
    $stage
done
stage="done"
