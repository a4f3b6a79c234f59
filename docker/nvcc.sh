#!/bin/sh
# nvcc.sh: prints the path of the CUDA compiler for all builds (docker/build.sh, CMakeLists.txt), or nothing. It is the
# compiler in the folder CUDA_PATH, else the one in the path, else, if CUDA_PATH is not set, that of /usr/local/cuda.
for nvcc in "${CUDA_PATH:-/nowhere}/bin/nvcc" "$(command -v nvcc)" "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc"; do
    [ ! -x "$nvcc" ] || exec echo "$nvcc"
done
