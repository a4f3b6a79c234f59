/* The path of processors with AVX-VNNI and without AVX-512 (Alder Lake, Sierra Forest, Zen 5c and
 * later). */
#define PATH avxvnni
#include "kernels/cpu/simd/path.inc"
