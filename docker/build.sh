#!/bin/sh
# build.sh PRESET JOBS [TARGET]: configures the preset's folder if it is not configured yet, and builds. It prints little
# unless something fails. PENSTOCK_CUDA=OFF in the environment leaves the CUDA backend out when a folder is configured; a
# folder that was configured without it is configured again when a build wants it. PENSTOCK_CUDA_ONLY=90-real compiles the CUDA
# kernels for that architecture alone in a new folder; a build without it makes the folder whole.
set -eu
cd "$(dirname "$0")/.."
preset=$1 jobs=$2 target=${3:-all}

folder=build/$preset
[ "$preset" != release ] || folder=build
cuda=${PENSTOCK_CUDA:-AUTO}
only=${PENSTOCK_CUDA_ONLY:-}
was_off=$(grep -c '^PENSTOCK_CUDA:[A-Z]*=OFF' $folder/CMakeCache.txt 2>/dev/null || true)
was_only=$(sed -n 's/^PENSTOCK_CUDA_ONLY:STRING=//p' $folder/CMakeCache.txt 2>/dev/null || true)
if [ ! -f $folder/build.ninja ] || { [ "$cuda" != OFF ] && [ "${was_off:-0}" != 0 ]; } || { [ -z "$only" ] && [ -n "$was_only" ]; }; then
    cmake --preset "$preset" -DPENSTOCK_CUDA="$cuda" -DPENSTOCK_CUDA_ONLY="$only" >"/tmp/penstock_configure.$$" 2>&1 || {
        cat "/tmp/penstock_configure.$$" >&2
        rm -f "/tmp/penstock_configure.$$"
        exit 1
    }
    rm -f "/tmp/penstock_configure.$$"
fi
quiet=
[ -t 1 ] || quiet=--quiet
cmake --build $folder --parallel "$jobs" --target "$target" -- $quiet
