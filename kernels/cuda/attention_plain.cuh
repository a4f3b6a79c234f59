/* Attention, the simple way. */
#ifndef PENSTOCK_CUDA_ATTENTION_PLAIN_CUH
#define PENSTOCK_CUDA_ATTENTION_PLAIN_CUH

#include "kernels/cuda/device.cuh"

enum { ATTENTION_PLAIN_MOST_D = 512 };

/* y[M][H][D] = softmax(scale * q . keys) . values, each row over positions 0..position of its
 * sequence in one layer; query head h reads key-value head h * G / H. */
void attention_plain(enum dtype act, void *y, const void *q, const struct kv_cache *cache,
                     int layer, const struct device_step *step, int H, float scale,
                     cudaStream_t stream);

#endif
