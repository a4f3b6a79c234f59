/* Writing a cache of e4m3. */
#ifndef PENSTOCK_CUDA_KV_E4M3_CUH
#define PENSTOCK_CUDA_KV_E4M3_CUH

#include "kernels/cuda/kv_layout.cuh"

/* One layer, to be written. */
struct kv_e4m3 {
    int G, D, B;
    __nv_fp8_e4m3 *keys, *values;   /* [n_blocks][G][B][D] */
    float *key_scale, *value_scale; /* [n_blocks][G] */
};

struct kv_e4m3 kv_e4m3_of(const struct kv_cache *cache, int layer);

/* Puts k[M][G][D] and v[M][G][D] into slots slot[M] (block * B + offset). A row at offset 0 sets
 * its block's scales (kv_scale). The rows of a block that one call brings stand together, in the
 * order of their offsets, as the rows of a step do. */
void kv_write_e4m3(enum dtype act, const struct kv_e4m3 *layer, const void *k, const void *v,
                   const int32_t *slot, int M, cudaStream_t stream);

#endif
