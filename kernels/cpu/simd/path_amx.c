/* The path of processors with AMX for bytes (Sapphire Rapids and later): products of many rows use
 * tiles, everything else is as with AVX-512 VNNI. */
#define PATH amx
#define GROUP_PRODUCT amx_group
#include "kernels/cpu/simd/path.inc"
