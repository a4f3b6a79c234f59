/* Kernels of one warp that run one instruction of ptx.cuh each, to compare it with what the PTX
 * manual says. */
#ifndef PENSTOCK_TESTS_CUDA_PROBES_CUH
#define PENSTOCK_TESTS_CUDA_PROBES_CUH

#include "kernels/cuda/runtime/device.cuh"

/* d[32][4] += the product of fragments a[32][4] and b[32][2] (two 16-bit elements each), of type
 * DTYPE_F16 or DTYPE_BF16. */
void probe_mma(enum dtype type, float *d, const uint32_t *a, const uint32_t *b,
               cudaStream_t stream);

/* out[32][4] = what ldmatrix_x4 gives of a tile [16][16] of 16-bit elements, whose four 8x8
 * matrices are taken left above, left below, right above, right below; out[32][2] of the first
 * two. */
enum probe_load { LOAD_X4, LOAD_X4_TRANS, LOAD_X2, LOAD_X2_TRANS };
void probe_ldmatrix(enum probe_load how, uint32_t *out, const uint16_t *tile, cudaStream_t stream);

/* out[32][4] = in[32][4], by cp.async, of which each lane copies `bytes` of its 16 bytes. */
void probe_cp_async(float *out, const float *in, int bytes, cudaStream_t stream);

#endif
