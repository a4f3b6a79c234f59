#!/bin/sh
# Checks and times the CUDA kernels and serving on the GPU of this machine, in one call of at most 9 minutes, and writes
# a report after each step.
#     bench/gpu.sh               correctness and kernels
#     bench/gpu.sh correctness   op tests on the device compared with the CPU, then under compute-sanitizer
#     bench/gpu.sh kernels       times of all kernels compared with cuBLAS and with limits measured in the same run
#     bench/gpu.sh first         the first call on a GPU: suites, limits, products by mma.sync; then wgmma, its bits and its times
#     bench/gpu.sh serve         a whole server without HTTP: the same tokens as the CPU, speeds and goals, peers
#     bench/gpu.sh build         builds the programs only; no GPU is needed
#     bench/gpu.sh carry         builds for sm_90 alone; packs the programs and the server with their libraries in one archive
# It needs the CUDA toolkit, CMake, a C++ compiler and Python. bench/gpu/run.py lists the variables that it reads, among
# them GPU_PROGRAMS, a folder of programs that were built on another machine.
set -eu
cd "$(dirname "$0")/.."
exec python3 bench/gpu/run.py "$@"
