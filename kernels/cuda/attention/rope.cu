/* Bias, QK norm, RoPE and the write to the cache, in one launch: one warp reads and writes each
 * vector of a head. A lane takes pairs (the two numbers that RoPE rotates together), so that only
 * the norm's sum is exchanged.
 *
 * In an e4m3 cache a block's first vector sets its scale. If the block begins in the same step, a
 * warp prepares that vector as well instead of waiting for another warp; otherwise the scale is
 * stored already. Either way it is the same number. */
#include "kernels/cuda/attention/rope.cuh"

#include <type_traits>

#include "kernels/cuda/attention/kv_layout.cuh"
#include "kernels/cuda/runtime/ptx.cuh"
#include "kernels/cuda/runtime/runtime.cuh"

enum { ROPE_WARPS = 4, ANGLE_THREADS = 256 };

/* ---- angles --------------------------------------------------------------------------------- */

__global__ void __launch_bounds__(ANGLE_THREADS)
    angles_kernel(float *__restrict__ cosine, float *__restrict__ sine,
                  const int32_t *__restrict__ position, const float *__restrict__ inv_freq,
                  float scale, int M, int pairs) {
    grid_begin();
    const int i = blockIdx.x * ANGLE_THREADS + threadIdx.x;
    if (i >= M * pairs) return;
    const float angle = (float)position[i / pairs] * inv_freq[i % pairs];
    float s, c;
    sincosf(angle, &s, &c);
    sine[i] = s * scale;
    cosine[i] = c * scale;
}

size_t angles_bytes(int max_rows, int pairs) {
    return 2 * (size_t)max_rows * (size_t)pairs * sizeof(float);
}

enum status angles_alloc(struct angle_table *table, int max_rows, int pairs, cudaStream_t stream,
                         struct err *err) {
    static const struct alloc_hint hint = {"the table of RoPE angles", "max-num-batched-tokens",
                                           "lower --max-num-batched-tokens"};
    if (pairs <= table->max_pairs) return STATUS_OK;
    cuda_check(cudaStreamSynchronize(stream), "waiting for the stream");
    angles_free(table);
    void *memory;
    const enum status status = device_alloc(&memory, angles_bytes(max_rows, pairs), &hint, err);
    if (status) return status;
    table->cosine = (float *)memory;
    table->sine = table->cosine + (size_t)max_rows * (size_t)pairs;
    table->max_pairs = pairs;
    return STATUS_OK;
}

void angles_free(struct angle_table *table) {
    cuda_check(cudaFree(table->cosine), "freeing angles");
    *table = angle_table{};
}

void angles_make(struct angle_table *table, const int32_t *position, const struct rope *rope, int M,
                 cudaStream_t stream) {
    const int pairs = rope->D_rope / 2;
    const float scale = rope->scale == 0 ? 1 : rope->scale;
    if (table->inv_freq == rope->inv_freq && table->pairs == pairs && table->scale == scale) return;
    assert(pairs <= table->max_pairs); /* a head's, which op_kv_new has made room for */
    table->inv_freq = rope->inv_freq;
    table->pairs = pairs;
    table->scale = scale;
    const int blocks = (M * pairs + ANGLE_THREADS - 1) / ANGLE_THREADS;
    launch(angles_kernel, dim3(blocks), dim3(ANGLE_THREADS), 0, stream, table->cosine, table->sine,
           position, rope->inv_freq, scale, M, pairs);
}

/* ---- one vector ----------------------------------------------------------------------------- */

/* Vectors of a kind as the kernel sees them, with their destination. */
template <class T> struct head_vectors {
    T *x;
    int n;
    const float *bias, *gain;
    bool norms_own;
    uint8_t *cache; /* of the layer; NULL: the vectors are changed in place */
    float *scale;   /* of the layer, for e4m3: [n_blocks][n] */
};

template <class T> struct kernel_args {
    head_vectors<T> q, k, v;
    int D, D_rope, block_size;
    float epsilon;
    enum rope_layout layout;
    const float *cosine, *sine, *q_scale;
    int q_scale_every;
    const int32_t *position, *slot;
};

/* A vector with its bias and norm. */
template <class T> struct vector {
    const T *x;
    const float *bias, *gain;
    bool norms_own;
    float scale, mean; /* of the norm; an RMSNorm takes no mean off */
    __device__ __forceinline__ float biased(int d) const {
        return bias ? to_float(x[d]) + bias[d] : to_float(x[d]);
    }
    __device__ __forceinline__ float at(int d) const {
        return gain ? (biased(d) - mean) * scale * gain[d] : biased(d);
    }
};

/* Destinations of a vector's numbers: stored, */
template <class OUT> struct Store {
    OUT *to;
    float scale;
    __device__ __forceinline__ void put(int d, float x) {
        to[d] = from_float<OUT>(x * scale);
    }
};
/* only their maximum, rounded to T, */
template <class T> struct Largest {
    float most;
    __device__ __forceinline__ void put(int, float x) {
        most = fmaxf(most, fabsf(to_float(from_float<T>(x))));
    }
};
/* or stored as e4m3, after rounding to T. */
template <class T> struct Scaled {
    __nv_fp8_e4m3 *to;
    float scale;
    __device__ __forceinline__ void put(int d, float x) {
        to[d] = __nv_fp8_e4m3(to_float(from_float<T>(x)) / scale);
    }
};

/* Rotates the pairs of a vector. */
template <class T, class Out>
__device__ __forceinline__ void rotate_pairs(Out &out, const vector<T> &in, const kernel_args<T> &a,
                                             int m, int lane) {
    const int pairs = a.D_rope / 2;
    const bool adjacent = a.layout == ROPE_ADJACENT;
    for (int i = lane; i < pairs; i += WARP) {
        const float c = a.cosine[(size_t)m * pairs + i], s = a.sine[(size_t)m * pairs + i];
        const int first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + pairs;
        const float x = in.at(first), y = in.at(second);
        out.put(first, x * c - y * s);
        out.put(second, y * c + x * s);
    }
}

/* Takes one vector through bias, norm and rotation. The whole warp calls it. */
template <class T, class Out>
__device__ __forceinline__ void prepare_vector(Out &out, vector<T> in, const kernel_args<T> &a,
                                               int m, bool rotated, int lane) {
    if (in.gain) {
        float sum = 0.0f, squares = 0.0f;
        for (int d = lane; in.norms_own && d < a.D; d += WARP) sum += in.biased(d);
        if (in.norms_own) in.mean = warp_sum(sum) / (float)a.D;
        for (int d = lane; d < a.D; d += WARP) {
            const float x = in.biased(d) - in.mean;
            squares = fmaf(x, x, squares);
        }
        in.scale = 1.0f / sqrtf(warp_sum(squares) / (float)a.D + a.epsilon);
        __syncwarp(); /* in place: all lanes read before one writes */
    }
    if (rotated) rotate_pairs(out, in, a, m, lane);
    for (int d = (rotated ? a.D_rope : 0) + lane; d < a.D; d += WARP) out.put(d, in.at(d));
}

/* The same for row m's vector, at offset `offset` of a block of an e4m3 cache. A step's rows of one
 * block stand together, in the order of their offsets. */
template <class T>
__device__ __forceinline__ void prepare_e4m3(__nv_fp8_e4m3 *to, float *stored, const vector<T> &in,
                                             const head_vectors<T> &g, const kernel_args<T> &a,
                                             int m, int offset, bool rotated, int lane) {
    const int first = m - offset;
    float scale;
    if (first >= 0 && a.slot[first] == a.slot[m] - offset) {
        vector<T> other = in;
        other.x -= (size_t)offset * g.n * a.D;
        Largest<T> largest{0.0f};
        prepare_vector(largest, other, a, first, rotated, lane);
        scale = kv_scale(warp_max(largest.most));
    } else {
        scale = *stored;
    }
    if (offset == 0 && lane == 0) *stored = scale;
    Scaled<T> out{to, scale};
    prepare_vector(out, in, a, m, rotated, lane);
}

/* ---- the kernel ----------------------------------------------------------------------------- */

/* A warp a vector: the queries of a row, then its keys, then its values. */
template <class T, class KV>
__global__ void __launch_bounds__(ROPE_WARPS *WARP) prepare_kernel(const kernel_args<T> a) {
    grid_begin();
    const int m = blockIdx.x, lane = threadIdx.x % WARP;
    int head = blockIdx.y * ROPE_WARPS + threadIdx.x / WARP;
    const bool is_q = head < a.q.n, is_k = !is_q && head < a.q.n + a.k.n;
    if (head >= a.q.n + a.k.n + a.v.n) return; /* a whole warp */
    const head_vectors<T> &g = is_q ? a.q : is_k ? a.k : a.v;
    head -= is_q ? 0 : is_k ? a.q.n : a.q.n + a.k.n;
    T *x = g.x + ((size_t)m * g.n + head) * a.D;
    const float *gain = g.gain && g.norms_own ? g.gain + (size_t)head * a.D : g.gain;
    const float *bias = g.bias ? g.bias + (size_t)head * a.D : nullptr;
    const vector<T> in{x, bias, gain, g.norms_own, 1.0f, 0.0f};
    const bool rotated = (is_q || is_k) && a.D_rope > 0;
    if (!g.cache) {
        const bool scaled = is_q && a.q_scale;
        Store<T> back{x, scaled ? a.q_scale[a.position[m] / a.q_scale_every] : 1.0f};
        prepare_vector(back, in, a, m, rotated, lane);
        return;
    }
    if (a.slot[m] < 0) return; /* padding */
    const int slot = a.slot[m], block = slot / a.block_size, offset = slot % a.block_size;
    const size_t column = (size_t)block * g.n + head;
    KV *to = reinterpret_cast<KV *>(g.cache) + (column * a.block_size + offset) * a.D;
    if constexpr (std::is_same_v<KV, __nv_fp8_e4m3>) {
        prepare_e4m3(to, g.scale + column, in, g, a, m, offset, rotated, lane);
    } else {
        Store<KV> out{to, 1.0f};
        prepare_vector(out, in, a, m, rotated, lane);
    }
}

/* ---- launching ------------------------------------------------------------------------------ */

template <class T>
static head_vectors<T> vectors_of(const struct head_group *g, uint8_t *cache, float *scale) {
    return {(T *)g->x, g->x ? g->n : 0, g->bias, g->gain, g->norms_own, cache, scale};
}

/* Calls fn with a value of the cache's element type; without a cache, of any type. */
template <class Fn> static void for_elements(const struct kv_cache *cache, Fn fn) {
    if (cache && cache->config.dtype == DTYPE_E4M3)
        fn(__nv_fp8_e4m3());
    else
        for_activation(cache ? cache->config.dtype : DTYPE_F32, fn);
}

/* Keys or values with their destination in a layer's cache. */
template <class T>
static head_vectors<T> cached_vectors(const struct rope_args *args, const struct head_group *g,
                                      uint8_t *blocks, float *scales) {
    const struct kv_cache *cache = args->cache;
    if (!cache) return vectors_of<T>(g, nullptr, nullptr);
    const size_t before = cache->layer[args->layer].first;
    return vectors_of<T>(g, blocks + before * cache->block_bytes,
                         scales ? scales + before * (size_t)cache->config.G : nullptr);
}

void rope_prepare(enum dtype act, const struct rope_args *args, cudaStream_t stream) {
    static const struct kv_cache none = {};
    const struct kv_cache *cache = args->cache ? args->cache : &none;
    assert(args->D_rope % 2 == 0 && args->D_rope <= args->D);
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        const kernel_args<T> a = {
            vectors_of<T>(&args->q, nullptr, nullptr),
            cached_vectors<T>(args, &args->k, cache->keys, cache->key_scale),
            cached_vectors<T>(args, &args->v, cache->values, cache->value_scale),
            args->D,
            args->D_rope,
            cache->config.block_size,
            args->epsilon,
            args->layout,
            args->cosine,
            args->sine,
            args->q_scale,
            args->q_scale_every,
            args->position,
            args->slot};
        const int heads = a.q.n + a.k.n + a.v.n;
        const dim3 grid(args->M, (heads + ROPE_WARPS - 1) / ROPE_WARPS);
        for_elements(args->cache, [&](auto kv_zero) {
            launch(prepare_kernel<T, decltype(kv_zero)>, grid, dim3(ROPE_WARPS * WARP), 0, stream,
                   a);
        });
    });
}
