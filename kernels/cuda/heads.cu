/* Bias, QK norm, RoPE and the write to the cache, in one launch: each vector of a head is read once
 * and written once, by one warp. A lane takes pairs (the two numbers that RoPE turns together), so
 * that nothing is exchanged but the norm's sum. */
#include "kernels/cuda/heads.cuh"

#include "kernels/cuda/kv_e4m3.cuh"
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

/* The two numbers of a pair, turned. */
template <class T, class OUT>
__device__ __forceinline__ void turn_pairs(OUT *out, const vector<T> &in, const kernel_args<T> &a,
                                           int m, int lane) {
    const int pairs = a.D_rope / 2;
    const bool adjacent = a.layout == ROPE_ADJACENT;
    for (int i = lane; i < pairs; i += WARP) {
        const float c = a.cosine[(size_t)m * pairs + i], s = a.sine[(size_t)m * pairs + i];
        const int first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + pairs;
        const float x = in.at(first), y = in.at(second);
        out[first] = from_float<OUT>(x * c - y * s);
        out[second] = from_float<OUT>(y * c + x * s);
    }
}

/* Takes one vector through bias, norm and turn. The whole warp comes here. */
template <class T, class OUT>
__device__ __forceinline__ void prepare_vector(OUT *out, vector<T> in, const kernel_args<T> &a,
                                               int m, bool turned, int lane) {
    if (in.gain) {
        float squares = 0.0f;
        for (int d = lane; d < a.D; d += WARP) squares = fmaf(in.biased(d), in.biased(d), squares);
        in.scale = 1.0f / sqrtf(warp_sum(squares) / (float)a.D + a.epsilon);
        __syncwarp(); /* in place: all have read before one writes */
    }
    if (turned) turn_pairs(out, in, a, m, lane);
    for (int d = (turned ? a.D_rope : 0) + lane; d < a.D; d += WARP)
        out[d] = from_float<OUT>(in.at(d));
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
        prepare_vector(x, in, a, m, turned, lane);
        return;
    }
    if (a.slot[m] < 0) return; /* nobody's row */
    const int slot = a.slot[m], block = slot / a.block_size, offset = slot % a.block_size;
    KV *blocks = reinterpret_cast<KV *>(g.cache);
    const size_t line = ((size_t)block * g.n + head) * a.block_size + offset;
    prepare_vector(blocks + line * a.D, in, a, m, turned, lane);
}

/* ---- launching ------------------------------------------------------------------------------ */

template <class T> static group<T> group_of(const struct head_group *g, uint8_t *cache) {
    return {(T *)g->x, g->x ? g->n : 0, g->bias, g->gain, cache};
}

static void prepare(enum dtype act, const struct heads_args *args, cudaStream_t stream) {
    const struct kv_cache *cache = args->cache;
    uint8_t *keys = cache ? cache->keys + (size_t)args->layer * cache->layer_bytes : nullptr;
    uint8_t *values = cache ? cache->values + (size_t)args->layer * cache->layer_bytes : nullptr;
    const int B = cache ? cache->config.block_size : 1;
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        const kernel_args<T> a = {group_of<T>(&args->q, nullptr),
                                  group_of<T>(&args->k, keys),
                                  group_of<T>(&args->v, values),
                                  args->D,
                                  args->D_rope,
                                  B,
                                  args->epsilon,
                                  args->layout,
                                  args->cosine,
                                  args->sine,
                                  args->slot};
        const int heads = a.q.n + a.k.n + a.v.n;
        const dim3 grid(args->M, (heads + HEADS_WARPS - 1) / HEADS_WARPS);
        for_activation(cache ? cache->config.dtype : act, [&](auto kv_zero) {
            launch(prepare_kernel<T, decltype(kv_zero)>, grid, dim3(HEADS_WARPS * WARP), 0, stream,
                   a);
        });
    });
}

static bool changes(const struct head_group *g, int D_rope) {
    return g->x && (g->bias || g->gain || D_rope);
}

/* In their own place first: a group that nothing is done to is left out. */
static void prepare_e4m3(enum dtype act, const struct heads_args *args, cudaStream_t stream) {
    assert(args->k.x && args->v.x);
    struct heads_args in_place = *args;
    in_place.cache = nullptr;
    if (!changes(&args->q, args->D_rope)) in_place.q = {};
    if (!changes(&args->k, args->D_rope)) in_place.k = {};
    if (!changes(&args->v, 0)) in_place.v = {};
    prepare(act, &in_place, stream);
    const struct kv_e4m3 layer = kv_e4m3_of(args->cache, args->layer);
    kv_write_e4m3(act, &layer, args->k.x, args->v.x, args->slot, args->M, stream);
}

void heads_prepare(enum dtype act, const struct heads_args *args, cudaStream_t stream) {
    assert(args->D_rope % 2 == 0 && args->D_rope <= args->D);
    if (args->cache && args->cache->config.dtype == DTYPE_E4M3)
        prepare_e4m3(act, args, stream);
    else
        prepare(act, args, stream);
}
