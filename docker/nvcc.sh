#!/bin/sh
# nvcc.sh: prints the path of the CUDA compiler that every build uses (docker/build.sh, CMakeLists.txt), or nothing: that of the
# folder CUDA_PATH, else the one in the path, else, if no CUDA_PATH is set, that of /usr/local/cuda.
for nvcc in "${CUDA_PATH:-/nowhere}/bin/nvcc" "$(command -v nvcc)" "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc"; do
    [ ! -x "$nvcc" ] || exec echo "$nvcc"
done
