/* Kernels of one warp. Each runs one instruction of ptx.cuh, to compare it with the PTX manual. */
#ifndef PENSTOCK_TESTS_CUDA_PROBES_CUH
#define PENSTOCK_TESTS_CUDA_PROBES_CUH

#include "kernels/cuda/runtime/device.cuh"

/* d[32][4] += the product of fragments a[32][4] and b[32][2], which hold two elements of DTYPE_F16
 * or DTYPE_BF16 each. */
void probe_mma(enum dtype type, float *d, const uint32_t *a, const uint32_t *b,
               cudaStream_t stream);

/* out[32][4] = the result of ldmatrix_x4 for a tile [16][16] of 16-bit elements. Its four 8x8
 * matrices are read in the order top left, bottom left, top right, bottom right. */
enum probe_load { LOAD_X4, LOAD_X4_TRANS };
void probe_ldmatrix(enum probe_load how, uint32_t *out, const uint16_t *tile, cudaStream_t stream);

/* out[32][4] = in[32][4], by cp.async. Each lane copies `bytes` of its 16 bytes. */
void probe_cp_async(float *out, const float *in, int bytes, cudaStream_t stream);

/* out[256] = the numbers of all codes of e4m3, by e4m3_moved. */
void probe_e4m3(float *out, cudaStream_t stream);

#endif
