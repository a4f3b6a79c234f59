/* The path of processors with AVX2, FMA and F16C (Haswell, Zen and later). */
#define PATH avx2
#include "kernels/cpu/simd/path.inc"
