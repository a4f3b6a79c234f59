/* Quantising weights as they are loaded. */
#ifndef PENSTOCK_CUDA_QUANTISE_CUH
#define PENSTOCK_CUDA_QUANTISE_CUH

#include "kernels/cuda/device.cuh"

/* codes[N][K] of e4m3 and scales[N] from rows of a float type: the scale is the row's largest size
 * / 448, or the smallest normal float where that is more, and a code the nearest to weight / scale,
 * ties to even. */
void quantise_e4m3(uint8_t *codes, float *scales, enum dtype type, const void *rows, int N, int K,
                   cudaStream_t stream);

#endif
