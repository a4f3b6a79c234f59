/* attention_tile: what one warp computes of attention on the tensor cores. 16 query vectors stand
 * in the rows of the products; a step of positions in the columns of the first product (scores) is
 * the K of the second. A lane with g = lane / 4 and t = lane % 4 holds numbers of vectors g and g +
 * 8, "its two rows" r = 0 and 1, in the columns 2t and 2t + 1 of every eight. All of it depends on
 * the vector and the absolute positions only. */
#ifndef PENSTOCK_CUDA_ATTENTION_TILE_CUH
#define PENSTOCK_CUDA_ATTENTION_TILE_CUH

#include <math.h>
#include <type_traits>

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/runtime/ptx.cuh"

constexpr float LOG2E = 1.44269504f;

/* Operands of type T (__half or __nv_bfloat16), cache elements of type R, heads of at most DP
 * numbers: above D they are zeros. EXACT: D is DP, and scores have no cap. */
template <class T_, class R_, int DP_, bool EXACT_ = false> struct attention_kind {
    using T = T_;
    using R = R_;
    static constexpr bool EXACT = EXACT_;
    static constexpr int DP = DP_;
    static constexpr int STEP = DP > 128 ? 16 : 32; /* positions at a time */
    static constexpr bool CONVERTS = !std::is_same<T, R>::value;
    /* A slot holds the keys or values of a step for ldmatrix: rows of 16-byte chunks. Eight rows at
     * one chunk must lie in different banks: the chunks of a row are permuted, or, if their number
     * is no multiple of eight, rows are an odd number of chunks apart. */
    static constexpr int CHUNKS = DP / 8;
    static constexpr bool SWIZZLED = CHUNKS % 8 == 0;
    static constexpr int STRIDE = SWIZZLED ? CHUNKS : CHUNKS + 1;
    static constexpr int SLOT = STEP * STRIDE * 16;
    static_assert(DP % 32 == 0 && SPLIT % STEP == 0, "whole products and splits");
};

template <class C> __device__ __forceinline__ int head_size(const attention_args &args) {
    return C::EXACT ? C::DP : args.kv.D;
}

template <class C> __device__ __forceinline__ int chunk_at(int row, int chunk) {
    if (C::SWIZZLED) chunk ^= row & 7;
    return (row * C::STRIDE + chunk) * 16;
}

/* The place `rows` rows down and `chunks` chunks on from the one at `at`. Where chunks are
 * permuted, no bit of the sums of rows and chunks may carry; then only bits of `at` flip, and the
 * rest is a constant. */
template <class C> __device__ __forceinline__ int chunk_after(int at, int rows, int chunks) {
    if (C::SWIZZLED) return (at ^ (chunks ^ (rows & 7)) * 16) + rows * C::STRIDE * 16;
    return at + (rows * C::STRIDE + chunks) * 16;
}

/* ---- pairs of operands ---------------------------------------------------------------------- */

__device__ __forceinline__ uint32_t pack(float low, float high, __half) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&pair);
}
__device__ __forceinline__ uint32_t pack(float low, float high, __nv_bfloat16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&pair);
}
__device__ __forceinline__ float2 unpack(uint32_t pair, __half) {
    return __half22float2(*reinterpret_cast<const __half2 *>(&pair));
}
__device__ __forceinline__ float2 unpack(uint32_t pair, __nv_bfloat16) {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&pair));
}

/* Two neighbours of the activations, as operands of type T. */
template <class T>
__device__ __forceinline__ uint32_t load_pair(enum dtype act, const void *x, size_t at) {
    const uint32_t pair =
        *reinterpret_cast<const uint32_t *>(static_cast<const uint16_t *>(x) + at);
    const bool same = (act == DTYPE_F16) == std::is_same<T, __half>::value;
    if (same) return pair;
    const float2 both = act == DTYPE_F16 ? unpack(pair, __half()) : unpack(pair, __nv_bfloat16());
    return pack(both.x, both.y, T());
}

__device__ __forceinline__ void store_pair(enum dtype act, void *y, size_t at, float low,
                                           float high) {
    const uint32_t pair =
        act == DTYPE_F16 ? pack(low, high, __half()) : pack(low, high, __nv_bfloat16());
    *reinterpret_cast<uint32_t *>(static_cast<uint16_t *>(y) + at) = pair;
}

/* ---- the vectors of a warp ------------------------------------------------------------------ */

/* The heads of an item's vectors: a part of the query heads of a key-value head. */
struct head_block {
    /* query heads first..first+n-1; packed as if there were `heads` */
    int kv_head, first, n, heads;
};

struct vector_place {
    int row, head;
    bool exists;
};

__device__ __forceinline__ vector_place place_of(const attention_item &item,
                                                 const head_block &block, int vector) {
    const int row = vector / block.heads, head = vector % block.heads;
    return {item.row + row, block.first + head, row < item.rows && head < block.n};
}

/* The query vectors of a warp and the positions that they see; a missing vector sees none. */
template <class C> struct queries {
    uint32_t a[C::DP / 16][4];
    int first[2], last[2];
    size_t at[2]; /* of the vector in q and y */
};

__device__ __forceinline__ int first_seen(const attention_args &args, int position) {
    return args.window ? max(position - args.window + 1, 0) : 0;
}

template <class C>
__device__ __forceinline__ void load_queries(queries<C> &q, enum dtype act,
                                             const attention_args &args, const attention_item &item,
                                             const head_block &block, int first_vector) {
    const int lane = threadIdx.x % WARP, D = head_size<C>(args);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const vector_place place = place_of(item, block, first_vector + lane / 4 + 8 * r);
        q.first[r] = 0;
        q.last[r] = -1;
        q.at[r] = 0;
        if (place.exists) {
            q.last[r] = args.position[place.row];
            q.first[r] = first_seen(args, q.last[r]);
            q.at[r] = ((size_t)place.row * args.H + place.head) * D;
        }
#pragma unroll
        for (int k = 0; k < C::DP / 16; k++)
#pragma unroll
            for (int side = 0; side < 2; side++) {
                const int d = 16 * k + 8 * side + lane % 4 * 2;
                q.a[k][2 * side + r] =
                    place.exists && d < D ? load_pair<typename C::T>(act, args.q, q.at[r] + d) : 0u;
            }
    }
}

/* ---- one step of positions ------------------------------------------------------------------ */

/* The softmax of a split so far: the largest score, the sum of exp2(score - most), and the sum of
 * values weighted by those. Scores are in powers of two. `sum` is this lane's share. */
template <class C, class O = float> struct softmax {
    float most[2], sum[2];
    O o[C::DP / 8][4];
};
/* The softmax of the splits before, needed once a split. For large heads `volatile` keeps its
 * values out of the registers, which the current split fills. */
template <class C>
using softmax_total = softmax<C, std::conditional_t<(C::DP > 128), volatile float, float>>;

template <class C, class O> __device__ __forceinline__ void softmax_clear(softmax<C, O> &x) {
    x.most[0] = x.most[1] = -INFINITY;
    x.sum[0] = x.sum[1] = 0.0f;
#pragma unroll
    for (int c = 0; c < C::DP / 8; c++)
#pragma unroll
        for (int e = 0; e < 4; e++) x.o[c][e] = 0.0f;
}

template <class C> using scores = float[C::STEP / 8][4];
template <class C> using weights = uint32_t[C::STEP / 16][4];

/* s = q . keys. Each ldmatrix loads 16 positions of 16 numbers: matrices 0 and 1 are the halves of
 * the first eight positions, 2 and 3 those of the next. */
template <class C>
__device__ __forceinline__ void multiply_keys(scores<C> &s, const queries<C> &q, const char *slot) {
    const int lane = threadIdx.x % WARP;
    const int at = chunk_at<C>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int j = 0; j < C::STEP / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[j][e] = 0.0f;
#pragma unroll
    for (int k = 0; k < C::DP / 16; k++)
#pragma unroll
        for (int j = 0; j < C::STEP / 8; j += 2) {
            uint32_t keys[4];
            ldmatrix_x4(keys, slot + chunk_after<C>(at, 8 * j, 2 * k));
            mma_m16n8k16<typename C::T>(s[j], q.a[k], {keys[0], keys[1]});
            mma_m16n8k16<typename C::T>(s[j + 1], q.a[k], {keys[2], keys[3]});
        }
}

/* A score in powers of two. */
template <class C>
__device__ __forceinline__ float scaled(const attention_args &args, float product) {
    if (C::EXACT || args.cap == 0.0f) return product * (args.scale * LOG2E);
    const float e = exp2_approximate(product * (args.scale / args.cap * 2.0f * LOG2E));
    return args.cap * LOG2E * (1.0f - __fdividef(2.0f, e + 1.0f)); /* tanh */
}

/* Scales and masks the scores of the positions from `start`; the largest of each row, in all four
 * lanes that share it. */
template <class C>
__device__ __forceinline__ void mask(scores<C> &s, float (&most)[2], const queries<C> &q,
                                     const attention_args &args, int start) {
    const int column = start + threadIdx.x % 4 * 2;
    const int first[2] = {q.first[0] - column, q.first[1] - column};
    const int last[2] = {q.last[0] - column, q.last[1] - column};
    most[0] = most[1] = -INFINITY;
#pragma unroll
    for (int j = 0; j < C::STEP / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = e / 2, here = 8 * j + e % 2;
            const bool seen = here >= first[r] && here <= last[r];
            s[j][e] = seen ? scaled<C>(args, s[j][e]) : -INFINITY;
            most[r] = fmaxf(most[r], s[j][e]);
        }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r] = fmaxf(most[r], __shfl_xor_sync(FULL_MASK, most[r], 1));
        most[r] = fmaxf(most[r], __shfl_xor_sync(FULL_MASK, most[r], 2));
    }
}

/* The number that scores are relative to: 0 for a row that has seen nothing, so that infinities are
 * not subtracted. */
__device__ __forceinline__ float base_of(float most) {
    return most == -INFINITY ? 0.0f : most;
}

/* Rescales a split's sums to a new largest score. The factor is mostly one, and then it is
 * skipped. */
template <class C> __device__ __forceinline__ void rescale(softmax<C> &x, const float (&most)[2]) {
    float by[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float now = fmaxf(x.most[r], most[r]);
        by[r] = exp2_approximate(x.most[r] - base_of(now));
        x.most[r] = now;
        x.sum[r] = x.sum[r] * by[r];
    }
    if (!__any_sync(FULL_MASK, by[0] != 1.0f || by[1] != 1.0f)) return;
#pragma unroll
    for (int c = 0; c < C::DP / 8; c++)
#pragma unroll
        for (int e = 0; e < 4; e++) x.o[c][e] = x.o[c][e] * by[e / 2];
}

/* Adds a step's scores to the softmax; p are the weights of its values, as operands. The sum is of
 * the rounded weights, so that these add up to one. */
template <class C>
__device__ __forceinline__ void weigh(weights<C> &p, softmax<C> &x, scores<C> &s,
                                      const queries<C> &q, const attention_args &args, int start) {
    using T = typename C::T;
    float most[2];
    mask<C>(s, most, q, args, start);
    rescale<C>(x, most);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float base = base_of(x.most[r]);
#pragma unroll
        for (int j = 0; j < C::STEP / 8; j++) {
            const uint32_t pair = pack(exp2_approximate(s[j][2 * r] - base),
                                       exp2_approximate(s[j][2 * r + 1] - base), T());
            const float2 both = unpack(pair, T());
            x.sum[r] = x.sum[r] + (both.x + both.y);
            p[j / 2][j % 2 * 2 + r] = pair;
        }
    }
}

/* o += p . values. Each ldmatrix loads 16 positions of 16 numbers, transposed: matrices 0 and 1
 * are the halves of the positions in the first eight numbers, 2 and 3 those in the next. */
template <class C>
__device__ __forceinline__ void multiply_values(softmax<C> &x, const weights<C> &p,
                                                const char *slot) {
    const int lane = threadIdx.x % WARP, at = chunk_at<C>(lane % 16, lane / 16);
#pragma unroll
    for (int i = 0; i < C::STEP / 16; i++)
#pragma unroll
        for (int c = 0; c < C::CHUNKS; c += 2) {
            uint32_t values[4];
            ldmatrix_x4_trans(values, slot + chunk_after<C>(at, 16 * i, c));
            mma_m16n8k16<typename C::T>(x.o[c], p[i], {values[0], values[1]});
            mma_m16n8k16<typename C::T>(x.o[c + 1], p[i], {values[2], values[3]});
        }
}

/* ---- splits --------------------------------------------------------------------------------- */

/* Adds up the lanes' shares of the sums, which completes the split's softmax. */
template <class C> __device__ __forceinline__ void softmax_close(softmax<C> &x) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        x.sum[r] = x.sum[r] + __shfl_xor_sync(FULL_MASK, x.sum[r], 1);
        x.sum[r] = x.sum[r] + __shfl_xor_sync(FULL_MASK, x.sum[r], 2);
    }
}

__device__ __forceinline__ bool sees_split(int first, int last, int split) {
    return first < (split + 1) * SPLIT && last >= split * SPLIT;
}

/* Merging a split into those before it: both sides' factors. `total` begins at (-inf, 0). */
struct merging {
    float old, now;
};
__device__ __forceinline__ merging merge_sums(float &most, float &sum, float part_most,
                                              float part_sum) {
    const float larger = fmaxf(most, part_most), base = base_of(larger);
    const merging by = {exp2_approximate(most - base), exp2_approximate(part_most - base)};
    most = larger;
    sum = fmaf(part_sum, by.now, sum * by.old);
    return by;
}
__device__ __forceinline__ float merge_value(float total, float part, const merging &by) {
    return fmaf(part, by.now, total * by.old);
}

/* Merges a split, for the rows that see it. */
template <class C>
__device__ __forceinline__ void merge_split(softmax_total<C> &total, const softmax<C> &part,
                                            const queries<C> &q, int split) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (!sees_split(q.first[r], q.last[r], split)) continue;
        const merging by = merge_sums(total.most[r], total.sum[r], part.most[r], part.sum[r]);
#pragma unroll
        for (int c = 0; c < C::DP / 8; c++)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; e++)
                total.o[c][e] = merge_value(total.o[c][e], part.o[c][e], by);
    }
}

/* What values are multiplied by in the end: 1 / the sum, to which a head's sink adds. */
__device__ __forceinline__ float weight_of_all(const attention_args &args, int head, float most,
                                               float sum) {
    if (!args.sinks) return 1.0f / sum;
    const float old = merge_sums(most, sum, args.sinks[head] * LOG2E, 1.0f).old;
    return old / sum;
}

/* y of the vectors that exist. */
template <class C>
__device__ __forceinline__ void finish(const softmax_total<C> &total, const queries<C> &q,
                                       enum dtype act, const attention_args &args) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (q.last[r] < 0) continue;
        const int D = head_size<C>(args), head = (int)(q.at[r] / D % args.H);
        const float whole = weight_of_all(args, head, total.most[r], total.sum[r]);
#pragma unroll
        for (int c = 0; c < C::DP / 8; c++) {
            const int d = 8 * c + threadIdx.x % 4 * 2;
            if (d < D)
                store_pair(act, args.y, q.at[r] + d, total.o[c][2 * r] * whole,
                           total.o[c][2 * r + 1] * whole);
        }
    }
}

#endif
