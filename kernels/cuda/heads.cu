/* Bias, QK norm, RoPE and the write to the cache, in one launch: each vector of a head is read and
 * written by one warp. A lane takes pairs (the two numbers that RoPE turns together), so that
 * nothing is exchanged but the norm's sum.
 *
 * In a cache of e4m3 a block's scale comes of its first vector. A warp whose block begins in the
 * same step prepares that one for itself, too, and so waits for nobody; else the scale is stored.
 * Either way it is the same number. */
#include "kernels/cuda/heads.cuh"

#include <type_traits>

#include "kernels/cuda/kv_layout.cuh"
#include "kernels/cuda/ptx.cuh"

enum { HEADS_WARPS = 4, ANGLE_THREADS = 256 };

/* ---- angles --------------------------------------------------------------------------------- */

__global__ void __launch_bounds__(ANGLE_THREADS)
    angles_kernel(float *__restrict__ cosine, float *__restrict__ sine,
                  const int32_t *__restrict__ position, const float *__restrict__ inv_freq, int M,
                  int pairs) {
    grid_begin();
    const int i = blockIdx.x * ANGLE_THREADS + threadIdx.x;
    if (i >= M * pairs) return;
    const float angle = (float)position[i / pairs] * inv_freq[i % pairs];
    sincosf(angle, sine + i, cosine + i);
}

void heads_angles(float *cosine, float *sine, const int32_t *position, const float *inv_freq, int M,
                  int pairs, cudaStream_t stream) {
    const int blocks = (M * pairs + ANGLE_THREADS - 1) / ANGLE_THREADS;
    launch(angles_kernel, dim3(blocks), dim3(ANGLE_THREADS), 0, stream, cosine, sine, position,
           inv_freq, M, pairs);
}

/* ---- one vector ----------------------------------------------------------------------------- */

/* A group as the kernel sees it: where its vectors go to. */
template <class T> struct group {
    T *x;
    int n;
    const float *bias, *gain;
    uint8_t *cache; /* of the layer, or NULL: the vectors go back */
    float *scale;   /* of the layer, for e4m3: [n_blocks][n] */
};

template <class T> struct kernel_args {
    group<T> q, k, v;
    int D, D_rope, block_size;
    float epsilon;
    enum rope_layout layout;
    const float *cosine, *sine;
    const int32_t *slot;
};

/* A vector being worked on: its numbers with the bias, scaled by the norm. */
template <class T> struct vector {
    const T *x;
    const float *bias, *gain;
    float scale;
    __device__ __forceinline__ float biased(int d) const {
        return bias ? to_float(x[d]) + bias[d] : to_float(x[d]);
    }
    __device__ __forceinline__ float at(int d) const {
        return gain ? biased(d) * scale * gain[d] : biased(d);
    }
};

/* What becomes of a vector's numbers: they are stored, */
template <class OUT> struct Store {
    OUT *to;
    __device__ __forceinline__ void put(int d, float x) {
        to[d] = from_float<OUT>(x);
    }
};
/* the largest is looked for, among them as T has them, */
template <class T> struct Largest {
    float most;
    __device__ __forceinline__ void put(int, float x) {
        most = fmaxf(most, fabsf(to_float(from_float<T>(x))));
    }
};
/* or they are stored as e4m3, rounded to T before. */
template <class T> struct Scaled {
    __nv_fp8_e4m3 *to;
    float scale;
    __device__ __forceinline__ void put(int d, float x) {
        to[d] = __nv_fp8_e4m3(to_float(from_float<T>(x)) / scale);
    }
};

/* The two numbers of a pair, turned. */
template <class T, class Out>
__device__ __forceinline__ void turn_pairs(Out &out, const vector<T> &in, const kernel_args<T> &a,
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

/* Takes one vector through bias, norm and turn. The whole warp comes here. */
template <class T, class Out>
__device__ __forceinline__ void prepare_vector(Out &out, vector<T> in, const kernel_args<T> &a,
                                               int m, bool turned, int lane) {
    if (in.gain) {
        float squares = 0.0f;
        for (int d = lane; d < a.D; d += WARP) squares = fmaf(in.biased(d), in.biased(d), squares);
        in.scale = 1.0f / sqrtf(warp_sum(squares) / (float)a.D + a.epsilon);
        __syncwarp(); /* in place: all have read before one writes */
    }
    if (turned) turn_pairs(out, in, a, m, lane);
    for (int d = (turned ? a.D_rope : 0) + lane; d < a.D; d += WARP) out.put(d, in.at(d));
}

/* The same, for row m's vector in a block's place `offset` of a cache of e4m3. The rows of a block
 * that one step brings stand together, in the order of their offsets. */
template <class T>
__device__ __forceinline__ void prepare_e4m3(__nv_fp8_e4m3 *to, float *stored, const vector<T> &in,
                                             const group<T> &g, const kernel_args<T> &a, int m,
                                             int offset, bool turned, int lane) {
    const int first = m - offset;
    float scale;
    if (first >= 0 && a.slot[first] == a.slot[m] - offset) {
        vector<T> other = in;
        other.x -= (size_t)offset * g.n * a.D;
        Largest<T> largest{0.0f};
        prepare_vector(largest, other, a, first, turned, lane);
        scale = kv_scale(warp_max(largest.most));
    } else {
        scale = *stored;
    }
    if (offset == 0 && lane == 0) *stored = scale;
    Scaled<T> out{to, scale};
    prepare_vector(out, in, a, m, turned, lane);
}

/* ---- the kernel ----------------------------------------------------------------------------- */

/* A warp a vector: the queries of a row, then its keys, then its values. */
template <class T, class KV>
__global__ void __launch_bounds__(HEADS_WARPS *WARP) prepare_kernel(const kernel_args<T> a) {
    grid_begin();
    const int m = blockIdx.x, lane = threadIdx.x % WARP;
    int head = blockIdx.y * HEADS_WARPS + threadIdx.x / WARP;
    const bool is_q = head < a.q.n, is_k = !is_q && head < a.q.n + a.k.n;
    if (head >= a.q.n + a.k.n + a.v.n) return; /* a whole warp */
    const group<T> &g = is_q ? a.q : is_k ? a.k : a.v;
    head -= is_q ? 0 : is_k ? a.q.n : a.q.n + a.k.n;
    T *x = g.x + ((size_t)m * g.n + head) * a.D;
    const vector<T> in{x, g.bias ? g.bias + (size_t)head * a.D : nullptr, g.gain, 1.0f};
    const bool turned = (is_q || is_k) && a.D_rope > 0;
    if (!g.cache) {
        Store<T> back{x};
        prepare_vector(back, in, a, m, turned, lane);
        return;
    }
    if (a.slot[m] < 0) return; /* nobody's row */
    const int slot = a.slot[m], block = slot / a.block_size, offset = slot % a.block_size;
    const size_t column = (size_t)block * g.n + head;
    KV *to = reinterpret_cast<KV *>(g.cache) + (column * a.block_size + offset) * a.D;
    if constexpr (std::is_same_v<KV, __nv_fp8_e4m3>) {
        prepare_e4m3(to, g.scale + column, in, g, a, m, offset, turned, lane);
    } else {
        Store<KV> out{to};
        prepare_vector(out, in, a, m, turned, lane);
    }
}

/* ---- launching ------------------------------------------------------------------------------ */

template <class T>
static group<T> group_of(const struct head_group *g, uint8_t *cache, float *scale) {
    return {(T *)g->x, g->x ? g->n : 0, g->bias, g->gain, cache, scale};
}

/* Calls fn with a value of the type that a cache's elements have; without a cache, of any. */
template <class Fn> static void for_elements(const struct kv_cache *cache, Fn fn) {
    if (cache && cache->config.dtype == DTYPE_E4M3)
        fn(__nv_fp8_e4m3());
    else
        for_activation(cache ? cache->config.dtype : DTYPE_F32, fn);
}

/* Where a layer's keys or values go. */
template <class T>
static group<T> written_group(const struct heads_args *args, const struct head_group *g,
                              uint8_t *blocks, float *scales) {
    const struct kv_cache *cache = args->cache;
    if (!cache) return group_of<T>(g, nullptr, nullptr);
    const size_t before = (size_t)args->layer * (size_t)cache->config.n_blocks;
    return group_of<T>(g, blocks + (size_t)args->layer * cache->layer_bytes,
                       scales ? scales + before * (size_t)cache->config.G : nullptr);
}

void heads_prepare(enum dtype act, const struct heads_args *args, cudaStream_t stream) {
    static const struct kv_cache none = {};
    const struct kv_cache *cache = args->cache ? args->cache : &none;
    assert(args->D_rope % 2 == 0 && args->D_rope <= args->D);
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        const kernel_args<T> a = {
            group_of<T>(&args->q, nullptr, nullptr),
            written_group<T>(args, &args->k, cache->keys, cache->key_scale),
            written_group<T>(args, &args->v, cache->values, cache->value_scale),
            args->D,
            args->D_rope,
            cache->config.block_size,
            args->epsilon,
            args->layout,
            args->cosine,
            args->sine,
            args->slot};
        const int heads = a.q.n + a.k.n + a.v.n;
        const dim3 grid(args->M, (heads + HEADS_WARPS - 1) / HEADS_WARPS);
        for_elements(args->cache, [&](auto kv_zero) {
            launch(prepare_kernel<T, decltype(kv_zero)>, grid, dim3(HEADS_WARPS * WARP), 0, stream,
                   a);
        });
    });
}
