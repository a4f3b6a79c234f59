/* Attention, the simple way: a warp a query vector. The context is taken 32 positions at a time
 * from position 0, a position a lane for the scores and a dimension a lane for the values, with a
 * running maximum (Milakov and Gimelshein 2018). The order depends on nothing but the position. */
#include "kernels/cuda/attention_plain.cuh"

enum { ATTENTION_WARPS = 4, LANE_DIMENSIONS = ATTENTION_PLAIN_MOST_D / WARP };

struct attention_args {
    const int32_t *position, *sequence, *table;
    int table_stride, H, G, D, block_size;
    size_t head_line; /* elements of one head in a block: B * D */
    float scale;
};

/* The element where a position's vector of head g begins. */
__device__ __forceinline__ size_t line_of(const attention_args &a, const int32_t *table, int g,
                                          int position) {
    const size_t block = (size_t)table[position / a.block_size];
    return (block * a.G + g) * a.head_line + (size_t)(position % a.block_size) * a.D;
}

template <class T, class KV>
__global__ void __launch_bounds__(ATTENTION_WARPS *WARP)
    attention_kernel(T *__restrict__ y, const T *__restrict__ q, const KV *__restrict__ keys,
                     const KV *__restrict__ values, const attention_args a) {
    __shared__ float weights[ATTENTION_WARPS][WARP];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int m = blockIdx.x, h = blockIdx.y * ATTENTION_WARPS + warp;
    if (h >= a.H) return; /* a whole warp */
    const int g = h * a.G / a.H, n = a.position[m] + 1;
    const int32_t *table = a.table + (size_t)a.sequence[m] * a.table_stride;
    const size_t vector = ((size_t)m * a.H + h) * a.D;
    float out[LANE_DIMENSIONS] = {}, most = -INFINITY, sum = 0.0f;
    for (int start = 0; start < n; start += WARP) {
        const int count = min(n - start, (int)WARP);
        float score = -INFINITY;
        if (lane < count) {
            const KV *key = keys + line_of(a, table, g, start + lane);
            float dot = 0.0f;
            for (int d = 0; d < a.D; d++)
                dot = fmaf(to_float(q[vector + d]), to_float(key[d]), dot);
            score = dot * a.scale;
        }
        const float now = fmaxf(most, warp_max(score)), old = expf(most - now);
        const float weight = expf(score - now);
        sum = fmaf(sum, old, warp_sum(weight));
        most = now;
        weights[warp][lane] = weight;
        __syncwarp();
        for (int i = 0; i < LANE_DIMENSIONS; i++) out[i] = out[i] * old;
        for (int j = 0; j < count; j++) {
            const KV *value = values + line_of(a, table, g, start + j);
            for (int i = 0; i * WARP + lane < a.D; i++)
                out[i] = fmaf(weights[warp][j], to_float(value[i * WARP + lane]), out[i]);
        }
        __syncwarp(); /* the weights are written again */
    }
    for (int i = 0; i * WARP + lane < a.D; i++)
        y[vector + i * WARP + lane] = from_float<T>(out[i] / sum);
}

void attention_plain(enum dtype act, void *y, const void *q, const struct kv_cache *cache,
                     int layer, const struct device_step *step, int H, float scale,
                     cudaStream_t stream) {
    const struct kv_config *c = &cache->config;
    assert(c->D <= ATTENTION_PLAIN_MOST_D && H % c->G == 0);
    const attention_args a = {
        step->position, step->sequence, step->table,   step->table_stride,           H,
        c->G,           c->D,           c->block_size, (size_t)c->block_size * c->D, scale};
    const uint8_t *keys = cache->keys + (size_t)layer * cache->layer_bytes;
    const uint8_t *values = cache->values + (size_t)layer * cache->layer_bytes;
    const dim3 grid(step->M, (H + ATTENTION_WARPS - 1) / ATTENTION_WARPS);
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        for_activation(c->dtype, [&](auto kv_zero) {
            using KV = decltype(kv_zero);
            launch(attention_kernel<T, KV>, grid, dim3(ATTENTION_WARPS * WARP), 0, stream, (T *)y,
                   (const T *)q, (const KV *)keys, (const KV *)values, a);
        });
    });
}
