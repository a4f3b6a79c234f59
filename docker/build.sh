#!/bin/sh
# build.sh PRESET JOBS [TARGET]: configures where that was not done yet and builds, saying little unless something breaks.
set -eu
cd "$(dirname "$0")/.."
preset=$1 jobs=$2 target=${3:-all}

folder=build/$preset
[ "$preset" != release ] || folder=build
if [ ! -f $folder/build.ninja ]; then
    cmake --preset "$preset" >"/tmp/penstock_configure.$$" 2>&1 || {
        cat "/tmp/penstock_configure.$$" >&2
        rm -f "/tmp/penstock_configure.$$"
        exit 1
    }
    rm -f "/tmp/penstock_configure.$$"
fi
quiet=
[ -t 1 ] || quiet=--quiet
cmake --build $folder --parallel "$jobs" --target "$target" -- $quiet
