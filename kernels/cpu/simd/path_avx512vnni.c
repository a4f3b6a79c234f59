/* The path of processors with AVX-512 VNNI (Ice Lake, Cascade Lake, Zen 4 and later). */
#define PATH avx512vnni
#include "kernels/cpu/simd/path.inc"
