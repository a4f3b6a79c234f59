#!/bin/sh
# run.sh SECONDS: runs each fuzzer for that long. New inputs are kept in build/fuzz/corpus. An input that breaks something is
# written to build/fuzz/found, and the script fails.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p build/fuzz/found
for source in tests/fuzz/fuzz_*.c; do
    parser=$(basename "$source" .c)
    parser=${parser#fuzz_}
    mkdir -p "build/fuzz/corpus/$parser"
    echo "fuzz: $parser for $1 s"
    "build/fuzz/fuzz_$parser" -max_total_time="$1" -verbosity=0 -print_final_stats=1 -timeout=10 \
        -artifact_prefix="build/fuzz/found/$parser-" "build/fuzz/corpus/$parser" "tests/fuzz/corpus/$parser" \
        2>"build/fuzz/$parser.log" || {
        tail -n 60 "build/fuzz/$parser.log"
        exit 1
    }
    sed -n 's/stat::number_of_executed_units:/  inputs tried:/p' "build/fuzz/$parser.log"
done
