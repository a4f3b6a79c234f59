#!/bin/sh
# build.sh PRESET JOBS [TARGET]: configures the preset's folder if it is not configured yet, and builds. It prints
# little unless something fails. PENSTOCK_CUDA=OFF in the environment leaves the CUDA backend out when a folder is
# configured. A folder without it is configured again when a build needs it. PENSTOCK_CUDA_ONLY=90-real compiles the
# CUDA kernels only for that architecture, PENSTOCK_CUDA_ONLY=native only for those of this machine's GPUs. Both apply
# to a new folder, and to one that was made for other GPUs. A folder with all architectures keeps them, and a build
# without either setting, or with PENSTOCK_CUDA_ONLY=all, adds the missing ones. PENSTOCK_CUDA_ONLY=default compiles for
# one architecture and says so if nvcc is installed but this machine has no GPU; otherwise it means all.
# PENSTOCK_CUDA_QUICK=ON is for tests that only compile the kernels: nvcc leaves out expensive optimizations. It applies
# to a new folder; a build without it configures the folder again and compiles the kernels in full.
set -eu
cd "$(dirname "$0")/.."
preset=$1 jobs=$2 target=${3:-all}

folder=build/$preset
[ "$preset" != release ] || folder=build
cuda=${PENSTOCK_CUDA:-AUTO}
only=${PENSTOCK_CUDA_ONLY:-}
quick=${PENSTOCK_CUDA_QUICK:-OFF}

# Prints the architectures of this machine's GPUs, "80-real;90-real", without those below 8.0, which the kernels do not
# support. Prints nothing, which means all, if nvcc does not know one of them: the PTX among all of them runs on it.
native() {
    known=$("$(docker/nvcc.sh)" --list-gpu-code 2>/dev/null) || return 0
    found=
    for capability in $(docker/gpus.sh); do
        number=$(echo "$capability" | tr -d .)
        case $number in
        [0-7][0-9]) continue ;;
        esac
        echo "$known" | grep -qx "sm_$number" || return 0
        found="${found:+$found;}$number-real"
    done
    echo "$found"
}
# Succeeds if nvcc is installed and is used, but this machine has no GPU.
only_compiles() {
    [ "$cuda" != OFF ] && [ -n "$(docker/nvcc.sh)" ] && ! gpus=$(docker/gpus.sh) && [ -z "$gpus" ]
}

one=
case $only in
native) only=$(native) ;;
all) only= ;;
default)
    only=
    ! only_compiles || only=90-real one=yes
    ;;
esac

was_off=$(grep -c '^PENSTOCK_CUDA:[A-Z]*=OFF' "$folder/CMakeCache.txt" 2>/dev/null || true)
was_only=$(sed -n 's/^PENSTOCK_CUDA_ONLY:STRING=//p' "$folder/CMakeCache.txt" 2>/dev/null || true)
was_quick=$(grep -c '^PENSTOCK_CUDA_QUICK:[A-Z]*=ON' "$folder/CMakeCache.txt" 2>/dev/null || true)
lacks=
[ "${was_off:-0}" = 0 ] || lacks=yes
[ -z "$was_only" ] || [ "$only" = "$was_only" ] || lacks=yes
[ "${was_quick:-0}" = 0 ] || [ "$quick" = ON ] || lacks=yes
if [ ! -f "$folder/build.ninja" ] || { [ "$cuda" != OFF ] && [ -n "$lacks" ]; }; then
    cmake --preset "$preset" -DPENSTOCK_CUDA="$cuda" -DPENSTOCK_CUDA_ONLY="$only" \
        -DPENSTOCK_CUDA_QUICK="$quick" >"/tmp/penstock_configure.$$" 2>&1 || {
        cat "/tmp/penstock_configure.$$" >&2
        rm -f "/tmp/penstock_configure.$$"
        exit 1
    }
    rm -f "/tmp/penstock_configure.$$"
fi
if [ -n "$one" ] && grep -q '^PENSTOCK_CUDA_ONLY:STRING=90-real$' "$folder/CMakeCache.txt"; then
    echo "No GPU: CUDA kernels for one architecture ($only); for all: make build PENSTOCK_CUDA_ONLY=all"
fi
quiet=
[ -t 1 ] || quiet=--quiet
cmake --build "$folder" --parallel "$jobs" --target "$target" -- $quiet
