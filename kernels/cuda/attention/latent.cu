/* The keys of latent attention, and the rotated ends of its queries. One warp per vector: first the
 * heads of a row, then its key. */
#include "kernels/cuda/attention/latent.cuh"

#include "kernels/cuda/attention/kv_layout.cuh"
#include "kernels/cuda/runtime/ordered.cuh"
#include "kernels/cuda/runtime/ptx.cuh"

enum { LATENT_WARPS = 4 };

/* The keys of a layer. */
template <class KV> struct latent_keys {
    KV *keys; /* [n_blocks][1][B][D] */
    bool tiles;
};

/* The cosines and sines of a row, and the places of a pair. */
struct latent_angles {
    const float *cosine, *sine; /* [pairs] */
    int pairs;
    bool adjacent;
};

/* Rotates D_rope numbers; put(d, x) takes number d. */
template <class T, class Put>
__device__ __forceinline__ void rotate_end(const T *x, const latent_angles &a, int lane, Put put) {
    for (int i = lane; i < a.pairs; i += WARP) {
        const int first = a.adjacent ? 2 * i : i, second = a.adjacent ? 2 * i + 1 : i + a.pairs;
        const float u = to_float(x[first]), v = to_float(x[second]);
        put(first, u * a.cosine[i] - v * a.sine[i]);
        put(second, v * a.cosine[i] + u * a.sine[i]);
    }
}

/* The factor of an RMSNorm, in the order of kernels/cpu/order.md: both halves of the warp compute
 * it. */
template <class T>
__device__ __forceinline__ float latent_factor(const T *x, int n, float epsilon, int lane) {
    float squares = 0.0f;
    for (int d = lane % PARTIAL_SUMS; d < n; d += PARTIAL_SUMS)
        squares = fmaf(to_float(x[d]), to_float(x[d]), squares);
    const float all = __shfl_sync(FULL_MASK, ordered_tree(squares), 0);
    return 1.0f / sqrtf(all / (float)n + epsilon);
}

template <class T, class KV>
__device__ __forceinline__ void write_key(const latent_args &a, const latent_angles &angles,
                                          const latent_keys<KV> &to, int m, int lane) {
    const int D = a.rank + a.D_rope, slot = a.slot[m];
    if (slot < 0) return; /* padding */
    const T *x = static_cast<const T *>(a.k) + (size_t)m * D;
    const float factor = latent_factor(x, a.rank, a.epsilon, lane);
    auto put = [&](int d, float value) {
        to.keys[kv_element(to.tiles, (size_t)slot, d, D)] = from_float<KV>(value);
    };
    for (int d = lane; d < a.rank; d += WARP) put(d, to_float(x[d]) * factor * a.gain[d]);
    rotate_end(x + a.rank, angles, lane, [&](int d, float value) { put(a.rank + d, value); });
}

/* Writes the rotated end of a query, and scales all its numbers. */
template <class T>
__device__ __forceinline__ void write_query(const latent_args &a, const latent_angles &angles,
                                            int m, int head, int lane) {
    const size_t number = (size_t)m * a.H + head;
    const T *from = static_cast<const T *>(a.from) + number * (a.D_unrotated + a.D_rope);
    T *to = static_cast<T *>(a.q) + number * (a.rank + a.D_rope);
    const float scale = a.q_scale ? a.q_scale[a.position[m] / a.q_scale_every] : 1.0f;
    for (int d = lane; a.q_scale && d < a.rank; d += WARP)
        to[d] = from_float<T>(to_float(to[d]) * scale);
    rotate_end(from + a.D_unrotated, angles, lane,
               [&](int d, float value) { to[a.rank + d] = from_float<T>(value * scale); });
}

template <class T, class KV>
__global__ void __launch_bounds__(LATENT_WARPS *WARP)
    latent_kernel(const __grid_constant__ latent_args a, const latent_keys<KV> keys) {
    grid_begin();
    const int m = blockIdx.x, lane = threadIdx.x % WARP, pairs = a.D_rope / 2;
    const int head = blockIdx.y * LATENT_WARPS + threadIdx.x / WARP;
    const latent_angles angles = {a.cosine + (size_t)m * pairs, a.sine + (size_t)m * pairs, pairs,
                                  a.layout == ROPE_ADJACENT};
    if (head > a.H) return; /* true for a whole warp */
    if (head == a.H)
        write_key<T, KV>(a, angles, keys, m, lane);
    else
        write_query<T>(a, angles, m, head, lane);
}

void latent_prepare(enum dtype act, const struct latent_args *args, const struct kv_cache *cache,
                    int layer, cudaStream_t stream) {
    const struct kv_config *config = &cache->config;
    const dim3 grid((unsigned)args->M, (unsigned)(args->H / LATENT_WARPS + 1));
    assert(args->D_rope > 0 && args->D_rope % 2 == 0 && args->H > 0);
    assert(!args->q_scale || (args->q_scale_every > 1 && args->position));
    assert(cache->D_shared == args->rank && config->G == 1);
    assert(config->D == args->rank + args->D_rope && config->dtype != DTYPE_E4M3);
    uint8_t *keys = cache->keys + cache->layer[layer].first * cache->block_bytes;
    for_activation(act, [&](auto zero) {
        for_activation(config->dtype, [&](auto kv_zero) {
            using T = decltype(zero);
            using KV = decltype(kv_zero);
            const bool tiles = kv_has_tiles(sizeof(KV), config->D, config->block_size);
            launch(latent_kernel<T, KV>, grid, dim3(LATENT_WARPS * WARP), 0, stream, *args,
                   latent_keys<KV>{(KV *)keys, tiles});
        });
    });
}
