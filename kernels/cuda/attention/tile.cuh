/* attention_tile: the part of attention that one warp computes on the tensor cores. The rows of the
 * products are 16 query vectors. A step of positions forms the columns of the first product
 * (scores) and the K dimension of the second. A lane with g = lane / 4 and t = lane % 4 holds
 * numbers of vectors g and g + 8, "its two rows" r = 0 and 1, in columns 2t and 2t + 1 of every
 * eight. All results depend only on the vector and the absolute positions. */
#ifndef PENSTOCK_CUDA_ATTENTION_TILE_CUH
#define PENSTOCK_CUDA_ATTENTION_TILE_CUH

#include <math.h>
#include <type_traits>
#include <utility>

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/runtime/ptx.cuh"

constexpr float LOG2E = 1.44269504f;

/* Operands of type T (__half or __nv_bfloat16), cache elements of type R, heads of at most DP
 * numbers; numbers above D are zeros. EXACT: D is DP, and the cache has tiles if its elements are
 * T. CAPS: scores may have a cap and slopes. */
template <class T_, class R_, int DP_, bool EXACT_ = false, bool CAPS_ = true>
struct attention_kind {
    using T = T_;
    using R = R_;
    static constexpr bool EXACT = EXACT_, CAPS = CAPS_;
    static constexpr int DP = DP_;
    static constexpr int STEP = DP > 128 ? 16 : 32; /* positions per slot of a split item */
    static constexpr bool CONVERTS = !std::is_same<T, R>::value;
    static constexpr bool TILES = EXACT && !CONVERTS;
    /* A slot holds keys or values of some positions for ldmatrix: rows of 16-byte chunks. The same
     * chunk of eight rows must lie in different banks. So the chunks of a row are permuted or, if
     * their number is not a multiple of eight, the distance of rows is an odd number of chunks. */
    static constexpr int CHUNKS = DP / 8;
    static constexpr bool SWIZZLED = CHUNKS % 8 == 0;
    static constexpr int STRIDE = SWIZZLED ? CHUNKS : CHUNKS + 1;
    static constexpr int ROW_BYTES = STRIDE * 16;
    static_assert(DP % 32 == 0 && SPLIT % STEP == 0, "whole products and splits");
    static_assert(!TILES || DP % KV_COLUMN == 0, "whole columns");
};

template <class C> __device__ __forceinline__ int head_size(const attention_args &args) {
    return C::EXACT ? C::DP : args.kv.D;
}

template <class C> __device__ __forceinline__ int chunk_at(int row, int chunk) {
    if (C::SWIZZLED) chunk ^= row & 7;
    return (row * C::STRIDE + chunk) * 16;
}

/* The offset `rows` rows and `chunks` chunks after the one at `at`. If chunks are permuted, the
 * sums of rows and chunks must not carry; then only bits of `at` flip, and the rest is a constant.
 */
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

__device__ __forceinline__ void store_pair(enum dtype act, void *y, size_t at, float low,
                                           float high) {
    const uint32_t pair =
        act == DTYPE_F16 ? pack(low, high, __half()) : pack(low, high, __nv_bfloat16());
    *reinterpret_cast<uint32_t *>(static_cast<uint16_t *>(y) + at) = pair;
}

/* ---- the vectors of a warp ------------------------------------------------------------------ */

/* The heads of an item's vectors: a part of the query heads of a key-value head. */
struct head_block {
    /* query heads first..first+n-1, packed as if there were `heads` */
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

/* The query vectors of a warp and the positions that they see; a missing vector sees no position.
 */
template <class C> struct queries {
    uint32_t a[C::DP / 16][4];
    int first[2], last[2];
    size_t at[2]; /* offset of the vector in q and y */
    /* if scores have slopes: the vector's position, and its slope divided by their scale */
    int position[2];
    float slope[2];
};

template <class C>
__device__ __forceinline__ void load_queries(queries<C> &q, enum dtype act,
                                             const attention_args &args, const attention_item &item,
                                             const head_block &block, int first_vector) {
    using T = typename C::T;
    const int lane = threadIdx.x % WARP, D = head_size<C>(args);
    const bool is_f16 = act == DTYPE_F16;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const vector_place place = place_of(item, block, first_vector + lane / 4 + 8 * r);
        q.first[r] = 0;
        q.last[r] = -1;
        q.at[r] = 0;
        if (place.exists) {
            q.last[r] = args.seen[place.row].last;
            q.first[r] = args.seen[place.row].first;
            q.at[r] = ((size_t)place.row * args.H + place.head) * D;
        }
        if (C::CAPS && args.slopes) {
            q.position[r] = place.exists ? args.position[place.row] : 0;
            q.slope[r] = place.exists ? args.slopes[place.head] / args.scale : 0.0f;
        }
        const uint16_t *from = static_cast<const uint16_t *>(args.q) + q.at[r] + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < C::DP / 8; i++) {
            const bool there = place.exists && (C::EXACT || 8 * i + lane % 4 * 2 < D);
            const uint32_t *pair = reinterpret_cast<const uint32_t *>(from + 8 * i);
            q.a[i / 2][i % 2 * 2 + r] = there ? *pair : 0u;
        }
    }
    if (is_f16 == std::is_same<T, __half>::value) return;
#pragma unroll
    for (int i = 0; i < C::DP / 4; i++) {
        uint32_t &pair = q.a[i / 4][i % 4];
        const float2 both = is_f16 ? unpack(pair, __half()) : unpack(pair, __nv_bfloat16());
        pair = pack(both.x, both.y, T());
    }
}

/* ---- scores and softmax weights of a split --------------------------------------------------- */

/* Rows are the warp's vectors, columns a split's positions. */
using scores = float[SPLIT / 8][4];
using weights = uint32_t[SPLIT / 16][4];

/* Sums of values weighted by exp2(score - most), and the sum of these weights. */
template <class C, class O = float> struct softmax {
    float most[2], sum[2];
    O o[C::DP / 8][4];
};
/* The total of all earlier spans, used once per span: `volatile` keeps these sums out of the
 * registers, which the span and its splits need. */
template <class C> using softmax_total = softmax<C, volatile float>;

template <class C, class O> __device__ __forceinline__ void softmax_clear(softmax<C, O> &x) {
    x.most[0] = x.most[1] = -INFINITY;
    x.sum[0] = x.sum[1] = 0.0f;
#pragma unroll
    for (int c = 0; c < C::DP / 8; c++)
#pragma unroll
        for (int e = 0; e < 4; e++) x.o[c][e] = 0.0f;
}

/* s = q . keys, for the scores from column FIRST on and a slot of ROWS positions. Each ldmatrix
 * loads 16 positions of 16 numbers: matrices 0 and 1 are the halves of the first eight positions, 2
 * and 3 those of the next eight. */
template <class C, int FIRST, int ROWS>
__device__ __forceinline__ void multiply_keys(scores &s, const queries<C> &q, const char *slot) {
    const int lane = threadIdx.x % WARP;
    const int at = chunk_at<C>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int j = FIRST / 8; j < (FIRST + ROWS) / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[j][e] = 0.0f;
#pragma unroll
    for (int k = 0; k < C::DP / 16; k++)
#pragma unroll
        for (int i = 0; i < ROWS / 8; i += 2) {
            uint32_t keys[4];
            float(*columns)[4] = &s[FIRST / 8 + i];
            ldmatrix_x4(keys, slot + chunk_after<C>(at, 8 * i, 2 * k));
            mma_m16n8k16<typename C::T>(columns[0], q.a[k], {keys[0], keys[1]});
            mma_m16n8k16<typename C::T>(columns[1], q.a[k], {keys[2], keys[3]});
        }
}

/* Subtracts the slope times the distance of a position from a vector's product with its key. */
template <class C>
__device__ __forceinline__ float sloped(const attention_args &args, const queries<C> &q, int r,
                                        int position, float product) {
    if (!C::CAPS || !args.slopes) return product;
    return fmaf(-q.slope[r], fabsf((float)(position - q.position[r])), product);
}

/* Converts a score to a power of two. */
template <class C>
__device__ __forceinline__ float scaled(const attention_args &args, float product) {
    if (!C::CAPS || args.cap == 0.0f) return product * (args.scale * LOG2E);
    const float e = exp2_approximate(product * (args.scale / args.cap * 2.0f * LOG2E));
    return args.cap * LOG2E * (1.0f - __fdividef(2.0f, e + 1.0f)); /* tanh */
}

/* Scales and masks the scores of the split at `start`. Returns the maximum of each row, in all four
 * lanes that share it. ALL: all rows see the whole split. */
template <class C, bool ALL>
__device__ __forceinline__ void mask(scores &s, float (&most)[2], const queries<C> &q,
                                     const attention_args &args, int start) {
    const int column = start + threadIdx.x % 4 * 2;
    const int first[2] = {q.first[0] - column, q.first[1] - column};
    const int last[2] = {q.last[0] - column, q.last[1] - column};
    most[0] = most[1] = -INFINITY;
#pragma unroll
    for (int j = 0; j < SPLIT / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = e / 2, here = 8 * j + e % 2;
            const bool seen = ALL || (here >= first[r] && here <= last[r]);
            const float product = sloped<C>(args, q, r, column + here, s[j][e]);
            s[j][e] = seen ? scaled<C>(args, product) : -INFINITY;
            most[r] = fmaxf(most[r], s[j][e]);
        }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r] = fmaxf(most[r], __shfl_xor_sync(FULL_MASK, most[r], 1));
        most[r] = fmaxf(most[r], __shfl_xor_sync(FULL_MASK, most[r], 2));
    }
}

/* The base that scores are relative to: 0 for a row that has seen nothing, so that infinities are
 * not subtracted. */
__device__ __forceinline__ float base_of(float most) {
    return most == -INFINITY ? 0.0f : most;
}

/* A split without its values: the largest score, and the sum of exp2(score - most). */
struct split_weight {
    float most[2], sum[2];
};

/* Writes the softmax weights of the split to p, as operands. The sum is over the rounded weights,
 * so that these add up to one. */
template <class C, bool ALL = false>
__device__ __forceinline__ split_weight weigh(weights &p, scores &s, const queries<C> &q,
                                              const attention_args &args, int start) {
    using T = typename C::T;
    split_weight x;
    mask<C, ALL>(s, x.most, q, args, start);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float base = base_of(x.most[r]);
        x.sum[r] = 0.0f;
#pragma unroll
        for (int j = 0; j < SPLIT / 8; j++) {
            const uint32_t pair = pack(exp2_approximate(s[j][2 * r] - base),
                                       exp2_approximate(s[j][2 * r + 1] - base), T());
            const float2 both = unpack(pair, T());
            x.sum[r] = x.sum[r] + (both.x + both.y);
            p[j / 2][j % 2 * 2 + r] = pair;
        }
        x.sum[r] = x.sum[r] + __shfl_xor_sync(FULL_MASK, x.sum[r], 1);
        x.sum[r] = x.sum[r] + __shfl_xor_sync(FULL_MASK, x.sum[r], 2);
    }
    return x;
}

/* o += p . values, for two adjacent groups of 8 numbers from chunk c on and the weights from
 * position FIRST on. Each ldmatrix loads 16 positions of 16 numbers, transposed: matrices 0 and 1
 * are the halves of the positions in the first eight numbers, 2 and 3 those in the next eight. */
template <class C, int FIRST, int ROWS>
__device__ __forceinline__ void multiply_values(float (*o)[4], const weights &p, const char *slot,
                                                int c) {
    const int lane = threadIdx.x % WARP, at = chunk_at<C>(lane % 16, lane / 16);
#pragma unroll
    for (int i = 0; i < ROWS / 16; i++) {
        uint32_t values[4];
        ldmatrix_x4_trans(values, slot + chunk_after<C>(at, 16 * i, c));
        mma_m16n8k16<typename C::T>(o[0], p[FIRST / 16 + i], {values[0], values[1]});
        mma_m16n8k16<typename C::T>(o[1], p[FIRST / 16 + i], {values[2], values[3]});
    }
}

/* ---- merging -------------------------------------------------------------------------------- */

__device__ __forceinline__ bool sees_split(int first, int last, int split) {
    return first < (split + 1) * SPLIT && last >= split * SPLIT;
}

__device__ __forceinline__ bool sees_span(int first, int last, int span) {
    return first < (span + 1) * SPAN && last >= span * SPAN;
}

/* The factors of both sides when a split is merged into the earlier ones of its span, or a span
 * into the earlier ones. The initial state is (-inf, 0). */
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

/* Merges a split into its span, for the rows that see it: 16 numbers of the vectors at a time, as
 * soon as their sums are complete. For other rows the split's sums are zero, so nothing changes. */
template <class C>
__device__ __forceinline__ void merge_split(softmax<C> &span, const weights &p,
                                            const split_weight &part, const queries<C> &q,
                                            const char *values, int split) {
    merging by[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        by[r] = {1.0f, -0.0f};
        if (sees_split(q.first[r], q.last[r], split))
            by[r] = merge_sums(span.most[r], span.sum[r], part.most[r], part.sum[r]);
    }
#pragma unroll
    for (int c = 0; c < C::CHUNKS; c += 2) {
        float o[2][4] = {};
        multiply_values<C, 0, SPLIT>(o, p, values, c);
#pragma unroll
        for (int e = 0; e < 8; e++)
            span.o[c + e / 4][e % 4] =
                merge_value(span.o[c + e / 4][e % 4], o[e / 4][e % 4], by[e / 2 % 2]);
    }
}

/* Merges a span, for the rows that see it. */
template <class C>
__device__ __forceinline__ void merge_span(softmax_total<C> &total, const softmax<C> &span,
                                           const queries<C> &q, int number) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (!sees_span(q.first[r], q.last[r], number)) continue;
        const merging by = merge_sums(total.most[r], total.sum[r], span.most[r], span.sum[r]);
#pragma unroll
        for (int c = 0; c < C::DP / 8; c++)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; e++)
                total.o[c][e] = merge_value(total.o[c][e], span.o[c][e], by);
    }
}

/* The final factor of the values: 1 / the sum, including a head's sink. */
__device__ __forceinline__ float weight_of_all(const attention_args &args, int head, float most,
                                               float sum) {
    if (!args.sinks) return 1.0f / sum;
    const float old = merge_sums(most, sum, args.sinks[head] * LOG2E, 1.0f).old;
    return old / sum;
}

/* Writes y of the vectors that exist. */
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
