/* Writing a cache of e4m3: a warp for each vector. The scale of its block is made from the block's
 * first vector where this step brings it, by every warp for itself, so that none waits for another;
 * else it is read. Either way it is the same number. */
#include "kernels/cuda/kv_e4m3.cuh"

#include "kernels/cuda/ptx.cuh"

enum { KV_WARPS = 4 };

template <class T> __device__ __forceinline__ float largest_of(const T *x, int D) {
    float most = 0.0f;
    for (int d = threadIdx.x % WARP; d < D; d += WARP) most = fmaxf(most, fabsf(to_float(x[d])));
    return warp_max(most);
}

/* blockIdx.y: 0 for keys, 1 for values. */
template <class T>
__global__ void __launch_bounds__(KV_WARPS *WARP)
    kv_write_e4m3_kernel(const kv_e4m3 layer, const T *k, const T *v,
                         const int32_t *__restrict__ slot, int M) {
    grid_begin();
    const int vector = blockIdx.x * KV_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int row = vector / layer.G, head = vector % layer.G, D = layer.D;
    if (row >= M || slot[row] < 0) return; /* nobody's row */
    const T *x = (blockIdx.y ? v : k) + (size_t)vector * D;
    float *scales = blockIdx.y ? layer.value_scale : layer.key_scale;
    const int block = slot[row] / layer.B, offset = slot[row] % layer.B;
    float *stored = scales + (size_t)block * layer.G + head;
    const bool brought = row >= offset && slot[row - offset] == block * layer.B;
    float scale;
    if (brought)
        scale = kv_scale(largest_of(x - (size_t)offset * layer.G * D, D));
    else
        scale = *stored;
    if (offset == 0 && lane == 0) *stored = scale;
    __nv_fp8_e4m3 *to = (blockIdx.y ? layer.values : layer.keys) +
                        (((size_t)block * layer.G + head) * layer.B + offset) * D;
    for (int d = lane; d < D; d += WARP) to[d] = __nv_fp8_e4m3(to_float(x[d]) / scale);
}

struct kv_e4m3 kv_e4m3_of(const struct kv_cache *cache, int layer) {
    const struct kv_config *c = &cache->config;
    const size_t at = (size_t)layer * cache->layer_bytes;
    const size_t scale = (size_t)layer * (size_t)c->n_blocks * (size_t)c->G;
    assert(c->dtype == DTYPE_E4M3);
    return {c->G,
            c->D,
            c->block_size,
            (__nv_fp8_e4m3 *)(cache->keys + at),
            (__nv_fp8_e4m3 *)(cache->values + at),
            cache->key_scale + scale,
            cache->value_scale + scale};
}

void kv_write_e4m3(enum dtype act, const struct kv_e4m3 *layer, const void *k, const void *v,
                   const int32_t *slot, int M, cudaStream_t stream) {
    const int blocks = (M * layer->G + KV_WARPS - 1) / KV_WARPS;
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        launch(kv_write_e4m3_kernel<T>, dim3(blocks, 2), dim3(KV_WARPS * WARP), 0, stream, *layer,
               (const T *)k, (const T *)v, slot, M);
    });
}
