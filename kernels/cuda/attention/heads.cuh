/* The processing of a head's vector between its product and attention: one warp reads and writes
 * it. A lane handles pairs (the two numbers that RoPE rotates together), so that only the norm's
 * sum is exchanged. The kernels of rope.cu and of persistent steps use this.
 *
 * In an e4m3 cache the first vector of a block sets its scale. If the block begins in the same
 * step, each warp computes that vector as well instead of waiting for another warp; otherwise the
 * scale is already stored. Both give the same number. */
#ifndef PENSTOCK_CUDA_HEADS_CUH
#define PENSTOCK_CUDA_HEADS_CUH

#include <type_traits>

#include "kernels/cuda/attention/kv_layout.cuh"
#include "kernels/cuda/attention/rope.cuh"

/* ---- angles --------------------------------------------------------------------------------- */

struct angles_args {
    float *cosine, *sine; /* [M][pairs] */
    const int32_t *position;
    const float *inv_freq;
    float scale;
    int M, pairs;
};

/* Computes the angle of pair i % pairs of row i / pairs. */
__device__ __forceinline__ void make_angle(const angles_args &a, int i) {
    const float angle = (float)a.position[i / a.pairs] * a.inv_freq[i % a.pairs];
    float s, c;
    sincosf(angle, &s, &c);
    a.sine[i] = s * a.scale;
    a.cosine[i] = c * a.scale;
}

/* ---- one vector ----------------------------------------------------------------------------- */

/* The vectors of one kind (queries, keys or values) and their destination. */
template <class T> struct head_vectors {
    T *x;
    int n;
    const float *bias, *gain;
    bool norms_own;
    uint8_t *cache; /* of the layer; NULL: the vectors are changed in place */
    float *scale;   /* of the layer, for e4m3: [n_blocks][n] */
};

template <class T> struct heads_args {
    head_vectors<T> q, k, v;
    int D, D_rope, block_size;
    float epsilon;
    enum rope_layout layout;
    const float *cosine, *sine, *q_scale;
    int q_scale_every;
    const int32_t *position, *slot;
};

/* A vector with its bias and norm. */
template <class T> struct head_vector {
    const T *x;
    const float *bias, *gain;
    bool norms_own;
    float scale, mean; /* of the norm; the mean is 0 for RMSNorm */
    __device__ __forceinline__ float biased(int d) const {
        return bias ? to_float(x[d]) + bias[d] : to_float(x[d]);
    }
    __device__ __forceinline__ float at(int d) const {
        return gain ? (biased(d) - mean) * scale * gain[d] : biased(d);
    }
};

/* Destinations of a vector's numbers: memory, */
template <class OUT> struct Store {
    OUT *to;
    float scale;
    __device__ __forceinline__ void put(int d, float x) {
        to[d] = from_float<OUT>(x * scale);
    }
};
/* vector `vector` of a cache, */
template <class KV> struct Cached {
    KV *cache;
    size_t vector;
    int D;
    bool tiles;
    __device__ __forceinline__ void put(int d, float x) {
        cache[kv_element(tiles, vector, d, D)] = from_float<KV>(x);
    }
};
/* only their maximum, rounded to T, */
template <class T> struct Largest {
    float most;
    __device__ __forceinline__ void put(int, float x) {
        most = fmaxf(most, fabsf(to_float(from_float<T>(x))));
    }
};
/* or e4m3 after rounding to T. */
template <class T> struct Scaled {
    __nv_fp8_e4m3 *to;
    float scale;
    __device__ __forceinline__ void put(int d, float x) {
        to[d] = __nv_fp8_e4m3(to_float(from_float<T>(x)) / scale);
    }
};

/* Rotates the pairs of a vector. */
template <class T, class Out>
__device__ __forceinline__ void rotate_pairs(Out &out, const head_vector<T> &in,
                                             const heads_args<T> &a, int m, int lane) {
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

/* Applies bias, norm and rotation to one vector. The whole warp calls it. */
template <class T, class Out>
__device__ __forceinline__ void prepare_vector(Out &out, head_vector<T> in, const heads_args<T> &a,
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
        __syncwarp(); /* in place: all lanes read before any lane writes */
    }
    if (rotated) rotate_pairs(out, in, a, m, lane);
    for (int d = (rotated ? a.D_rope : 0) + lane; d < a.D; d += WARP) out.put(d, in.at(d));
}

/* The same for row m's vector, at offset `offset` of a block of an e4m3 cache. A step's rows of one
 * block are adjacent and ordered by offset. */
template <class T>
__device__ __forceinline__ void
prepare_e4m3(__nv_fp8_e4m3 *to, float *stored, const head_vector<T> &in, const head_vectors<T> &g,
             const heads_args<T> &a, int m, int offset, bool rotated, int lane) {
    const int first = m - offset;
    float scale;
    if (first >= 0 && a.slot[first] == a.slot[m] - offset) {
        head_vector<T> other = in;
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

/* ---- a warp's work -------------------------------------------------------------------------- */

template <class T> __host__ __device__ __forceinline__ int heads_of(const heads_args<T> &a) {
    return a.q.n + a.k.n + a.v.n;
}

/* Processes vector `head` of row m: the row's queries precede its keys, then its values. The whole
 * warp calls it. */
template <class T, class KV>
__device__ __forceinline__ void prepare_head(const heads_args<T> &a, int m, int head, int lane) {
    const bool is_q = head < a.q.n, is_k = !is_q && head < a.q.n + a.k.n;
    const head_vectors<T> &g = is_q ? a.q : is_k ? a.k : a.v;
    head -= is_q ? 0 : is_k ? a.q.n : a.q.n + a.k.n;
    T *x = g.x + ((size_t)m * g.n + head) * a.D;
    const float *gain = g.gain && g.norms_own ? g.gain + (size_t)head * a.D : g.gain;
    const float *bias = g.bias ? g.bias + (size_t)head * a.D : nullptr;
    const head_vector<T> in{x, bias, gain, g.norms_own, 1.0f, 0.0f};
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
    const size_t vector = column * (size_t)a.block_size + (size_t)offset;
    KV *cache = reinterpret_cast<KV *>(g.cache);
    if constexpr (std::is_same_v<KV, __nv_fp8_e4m3>) {
        prepare_e4m3(cache + vector * (size_t)a.D, g.scale + column, in, g, a, m, offset, rotated,
                     lane);
    } else {
        Cached<KV> out{cache, vector, a.D, kv_has_tiles(sizeof(KV), a.D, a.block_size)};
        prepare_vector(out, in, a, m, rotated, lane);
    }
}

#endif
