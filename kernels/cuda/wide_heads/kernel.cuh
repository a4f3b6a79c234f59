/* wide_heads_kernel: a block takes up to 64 query vectors of a key-value head through the units of
 * an item.
 *
 *   queries (shared memory)           keys of a unit            each of 8 warps
 *   [vectors][DK]               x     [32][DK]            ->    a fourth of DK, for 16 positions
 *   the 4 parts of a score            -> 8 lanes a vector       maximum, weights, sum of the unit
 *   weights [vectors][32]       x     values [32][DV]     ->    DV / 8 numbers of all vectors
 *
 * So keys are read once for all vectors of the block, and the sums of values are in the registers
 * of eight warps: 32 numbers a thread for each 16 vectors. The results depend only on a vector and
 * on absolute positions, not on the number of vectors. */
#ifndef PENSTOCK_CUDA_WIDE_HEADS_KERNEL_CUH
#define PENSTOCK_CUDA_WIDE_HEADS_KERNEL_CUH

#include "kernels/cuda/wide_heads/feed.cuh"

/* The items that a launch takes. */
enum { WIDE_SPLITS = 1, WIDE_WHOLE = 2 };

/* The vectors that a block takes at a time. */
struct wide_group {
    const attention_item &item;
    head_block block;
    int y, first_vector; /* of the item's */
    seen range;          /* positions that the vectors see */
    __device__ __forceinline__ vector_place place(int row) const {
        return place_of(item, block, first_vector + row);
    }
};

__device__ __forceinline__ int wide_warp() {
    return (int)threadIdx.x / WARP;
}
__device__ __forceinline__ int wide_lane() {
    return (int)threadIdx.x % WARP;
}
/* A number of each vector; the first two are integers. */
template <class C> __device__ __forceinline__ float *wide_numbers(enum wide_number n) {
    return reinterpret_cast<float *>(dyn_smem<char>() + wide_memory<C>::NUMBERS) + n * C::VECTORS;
}
template <class C> __device__ __forceinline__ int32_t *wide_sight(enum wide_number n) {
    return reinterpret_cast<int32_t *>(wide_numbers<C>(n));
}

/* ---- queries -------------------------------------------------------------------------------- */

/* Eight numbers of a query, as the cache's type. */
template <class T>
__device__ __forceinline__ Vec16<T> query_piece(const attention_args &args, enum dtype act,
                                                size_t at) {
    const uint16_t *from = static_cast<const uint16_t *>(args.q) + at;
    if ((act == DTYPE_F16) == std::is_same<T, __half>::value)
        return load16(reinterpret_cast<const T *>(from));
    Vec16<T> out;
#pragma unroll
    for (int e = 0; e < 8; e++)
        out.v[e] = from_float<T>(act == DTYPE_F16
                                     ? to_float(reinterpret_cast<const __half *>(from)[e])
                                     : to_float(reinterpret_cast<const __nv_bfloat16 *>(from)[e]));
    return out;
}

/* Copies a group's queries to shared memory. Missing vectors are zeros. */
template <class C>
__device__ __forceinline__ void load_group(const attention_args &args, enum dtype act,
                                           const wide_group &group) {
    using T = typename C::T;
    constexpr int PIECES = C::DK / 8;
    for (int i = (int)threadIdx.x; i < C::VECTORS * PIECES; i += WIDE_THREADS) {
        const int row = i / PIECES, piece = i % PIECES;
        const vector_place place = group.place(row);
        Vec16<T> out = {};
        if (place.exists)
            out = query_piece<T>(args, act,
                                 ((size_t)place.row * args.H + place.head) * C::DK + piece * 8);
        store16(reinterpret_cast<T *>(dyn_smem<char>() + wide_place<C>(row, piece)), out);
    }
}

/* ---- scores --------------------------------------------------------------------------------- */

/* The index of a partial score. Eight columns are permuted, so that stores meet no bank conflict.
 */
template <class C> __device__ __forceinline__ int score_at(int part, int row, int column) {
    return (part * C::VECTORS + row) * UNIT + (column ^ row % 4 * 8);
}

template <class C> __device__ __forceinline__ float *wide_scores() {
    return reinterpret_cast<float *>(dyn_smem<char>() + wide_memory<C>::SCORES);
}

/* Partial scores of all vectors: this warp takes step `part` of each line of 64 numbers, for 16
 * positions. */
template <class C> __device__ __forceinline__ void multiply_unit_keys(const char *keys) {
    const int lane = wide_lane(), part = wide_warp() % WIDE_PARTS;
    const int first = wide_warp() / WIDE_PARTS * 16;
    const char *key =
        keys + wide_place<C>(first + lane % 8 + lane / 16 * 8, 2 * part + lane / 8 % 2);
    const char *query = dyn_smem<char>() + wide_place<C>(lane % 16, 2 * part + lane / 16);
    float s[C::TILES][2][4] = {};
#pragma unroll(C::TILES == 4 ? 4 : C::LINES) /* others would spill registers at 64 vectors */
    for (int k = 0; k < C::LINES; k++) {
        uint32_t b[4];
        ldmatrix_x4(b, key + k * LINE_BYTES);
#pragma unroll
        for (int m = 0; m < C::TILES; m++) {
            uint32_t a[4];
            ldmatrix_x4(a, query + (2 * m * C::LINES + k) * LINE_BYTES);
            mma_m16n8k16<typename C::T>(s[m][0], a, {b[0], b[1]});
            mma_m16n8k16<typename C::T>(s[m][1], a, {b[2], b[3]});
        }
    }
#pragma unroll
    for (int i = 0; i < C::TILES * 4; i++) {
        const int m = i / 4, n = i / 2 % 2, r = i % 2;
        const int at = score_at<C>(part, 16 * m + lane / 4 + 8 * r, first + 8 * n + lane % 4 * 2);
        store_vec<2>(wide_scores<C>() + at, Vec<float, 2>{{s[m][n][2 * r], s[m][n][2 * r + 1]}});
    }
}

/* ---- softmax -------------------------------------------------------------------------------- */

/* Eight lanes share a vector and have four positions of a unit each. A warp takes four vectors, or
 * twice four of 64. */
template <class C> struct wide_rows {
    static constexpr int AT_ONCE = WIDE_THREADS / 8;
    static constexpr int N = C::VECTORS < AT_ONCE ? 1 : C::VECTORS / AT_ONCE;

    static __device__ __forceinline__ int row(int i) {
        return i * AT_ONCE + (int)threadIdx.x / 8;
    }
    /* True for a whole warp. */
    static __device__ __forceinline__ bool exists(int i) {
        return row(i) < C::VECTORS;
    }
    static __device__ __forceinline__ bool is_first_lane() {
        return threadIdx.x % 8 == 0;
    }
};

/* Begins the softmax of all vectors, each by its first lane. */
template <class C>
__device__ __forceinline__ void rows_begin(const attention_args &args, const wide_group &group) {
    using rows = wide_rows<C>;
#pragma unroll
    for (int i = 0; i < rows::N; i++) {
        if (!rows::exists(i) || !rows::is_first_lane()) continue;
        const int row = rows::row(i);
        const vector_place place = group.place(row);
        wide_sight<C>(SEES_FIRST)[row] = place.exists ? args.seen[place.row].first : 0;
        wide_sight<C>(SEES_LAST)[row] = place.exists ? args.seen[place.row].last : -1;
        wide_numbers<C>(SPAN_MOST)[row] = wide_numbers<C>(ALL_MOST)[row] = -INFINITY;
        wide_numbers<C>(SPAN_SUM)[row] = wide_numbers<C>(ALL_SUM)[row] = 0.0f;
    }
    __syncwarp();
}

/* Subtracts the slope times the distance of a position from a vector's product with its key. */
__device__ __forceinline__ float wide_sloped(const attention_args &args, const wide_group &group,
                                             int row, int position, float product) {
    const vector_place place = group.place(row);
    if (!place.exists) return product;
    const float distance = fabsf((float)(position - args.position[place.row]));
    return fmaf(-args.slopes[place.head] / args.scale, distance, product);
}

/* Adds the parts of four scores of a vector, scales and masks them. */
template <class C>
__device__ __forceinline__ void read_scores(float (&s)[4], int row, const attention_args &args,
                                            const wide_group &group, int start) {
    const int column = (int)threadIdx.x % 8 * 4;
    const int first = wide_sight<C>(SEES_FIRST)[row], last = wide_sight<C>(SEES_LAST)[row];
    Vec<float, 4> sum = load_vec<4>(wide_scores<C>() + score_at<C>(0, row, column));
#pragma unroll
    for (int part = 1; part < WIDE_PARTS; part++) {
        const Vec<float, 4> more = load_vec<4>(wide_scores<C>() + score_at<C>(part, row, column));
#pragma unroll
        for (int e = 0; e < 4; e++) sum.v[e] = sum.v[e] + more.v[e];
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int position = start + column + e;
        float product = sum.v[e];
        if (args.slopes) product = wide_sloped(args, group, row, position, product);
        s[e] = position >= first && position <= last ? scaled<C>(args, product) : -INFINITY;
    }
}

/* The largest number of a vector's eight lanes, and their sum. */
__device__ __forceinline__ float lanes_max(float x) {
#pragma unroll
    for (int apart = 1; apart < 8; apart *= 2) x = fmaxf(x, __shfl_xor_sync(FULL_MASK, x, apart));
    return x;
}
__device__ __forceinline__ float lanes_sum(float x) {
#pragma unroll
    for (int apart = 1; apart < 8; apart *= 2) x = x + __shfl_xor_sync(FULL_MASK, x, apart);
    return x;
}

/* Makes the unit's scores weights relative to the largest score of the span so far. Unseen
 * positions have weight 0, so a unit that a vector does not see leaves its sums unchanged. */
template <class C>
__device__ __forceinline__ void weigh_unit(const attention_args &args, const wide_group &group,
                                           int start) {
    using rows = wide_rows<C>;
    const int piece = (int)threadIdx.x % 8;
#pragma unroll
    for (int i = 0; i < rows::N; i++) {
        if (!rows::exists(i)) break;
        const int row = rows::row(i);
        float s[4];
        read_scores<C>(s, row, args, group, start);
        const float before = wide_numbers<C>(SPAN_MOST)[row];
        const float most = fmaxf(before, lanes_max(fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3]))));
        const float base = base_of(most), old = exp2_approximate(before - base);
        Vec<uint32_t, 2> pairs;
        float sum = 0.0f;
#pragma unroll
        for (int e = 0; e < 2; e++) {
            pairs.v[e] = pack(exp2_approximate(s[2 * e] - base),
                              exp2_approximate(s[2 * e + 1] - base), typename C::T());
            const float2 both = unpack(pairs.v[e], typename C::T());
            sum = sum + (both.x + both.y);
        }
        sum = lanes_sum(sum);
        char *to = reinterpret_cast<char *>(wide_scores<C>()) + row * SCORE_BYTES;
        to += (piece / 2 ^ row % 8) * 16 + piece % 2 * 8;
        __syncwarp(); /* all lanes have read the vector's first parts, whose place this is */
        store_vec<2>(reinterpret_cast<uint32_t *>(to), pairs);
        if (!rows::is_first_lane()) continue;
        wide_numbers<C>(SPAN_MOST)[row] = most;
        wide_numbers<C>(SPAN_SUM)[row] = fmaf(wide_numbers<C>(SPAN_SUM)[row], old, sum);
        wide_numbers<C>(UNIT_OLD)[row] = old;
    }
    __syncwarp();
}

/* ---- values --------------------------------------------------------------------------------- */

/* This warp's numbers of all vectors' values. */
template <class C> using wide_sums = float[C::TILES][C::CHUNKS][4];
template <class C> using wide_totals = volatile float[C::TILES][C::CHUNKS][4];

/* o = o * the unit's factor + weights x values. */
template <class C>
__device__ __forceinline__ void multiply_unit_values(wide_sums<C> &o, const char *values) {
    const int lane = wide_lane();
#pragma unroll
    for (int m = 0; m < C::TILES; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float old = wide_numbers<C>(UNIT_OLD)[16 * m + lane / 4 + 8 * r];
#pragma unroll
            for (int c = 0; c < C::CHUNKS; c++) {
                o[m][c][2 * r] *= old;
                o[m][c][2 * r + 1] *= old;
            }
        }
    const char *weight = reinterpret_cast<const char *>(wide_scores<C>()) + lane % 16 * SCORE_BYTES;
    const int at = wide_place<C>(lane % 16, wide_warp() * C::CHUNKS + lane / 16);
#pragma unroll
    for (int half = 0; half < 2; half++) { /* of the unit's positions */
        uint32_t p[C::TILES][4];
#pragma unroll
        for (int m = 0; m < C::TILES; m++)
            ldmatrix_x4(p[m],
                        weight + 16 * m * SCORE_BYTES + ((2 * half + lane / 16) ^ lane % 8) * 16);
#pragma unroll
        for (int c = 0; c < C::CHUNKS; c += 2) {
            uint32_t v[4];
            ldmatrix_x4_trans(v, values + (at ^ c * 16) + half * 2 * C::LINES * LINE_BYTES);
#pragma unroll
            for (int m = 0; m < C::TILES; m++) {
                mma_m16n8k16<typename C::T>(o[m][c], p[m], {v[0], v[1]});
                mma_m16n8k16<typename C::T>(o[m][c + 1], p[m], {v[2], v[3]});
            }
        }
    }
}

/* ---- spans ---------------------------------------------------------------------------------- */

/* Merges the softmax of a span, and begins the next one. */
template <class C>
__device__ __forceinline__ void merge_rows(const attention_args &args, const wide_group &group) {
    using rows = wide_rows<C>;
#pragma unroll
    for (int i = 0; i < rows::N; i++) {
        if (!rows::exists(i) || !rows::is_first_lane()) continue;
        const int row = rows::row(i);
        float most = wide_numbers<C>(ALL_MOST)[row], sum = wide_numbers<C>(ALL_SUM)[row];
        const merging by =
            merge_sums(most, sum, wide_numbers<C>(SPAN_MOST)[row], wide_numbers<C>(SPAN_SUM)[row]);
        wide_numbers<C>(ALL_MOST)[row] = most;
        wide_numbers<C>(ALL_SUM)[row] = sum;
        wide_numbers<C>(SPAN_MOST)[row] = -INFINITY;
        wide_numbers<C>(SPAN_SUM)[row] = 0.0f;
        wide_numbers<C>(SPAN_OLD)[row] = by.old;
        wide_numbers<C>(SPAN_NOW)[row] = by.now;
        const vector_place place = group.place(row);
        if (place.exists)
            wide_numbers<C>(WHOLE_FACTOR)[row] = weight_of_all(args, place.head, most, sum);
    }
}

/* Merges the span into the total and clears it. The last span's call also leaves the factors of
 * the whole. */
template <class C>
__device__ __forceinline__ void merge_group_span(wide_totals<C> &total, wide_sums<C> &o,
                                                 const attention_args &args,
                                                 const wide_group &group) {
    const int lane = wide_lane();
    merge_rows<C>(args, group);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < C::TILES * 2; i++) {
        const int m = i / 2, r = i % 2, row = 16 * m + lane / 4 + 8 * r;
        const merging by = {wide_numbers<C>(SPAN_OLD)[row], wide_numbers<C>(SPAN_NOW)[row]};
#pragma unroll
        for (int c = 0; c < C::CHUNKS; c++)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; e++) {
                total[m][c][e] = merge_value(total[m][c][e], o[m][c][e], by);
                o[m][c][e] = 0.0f;
            }
    }
}

/* Writes y. Adding +0 gives all zeros the same sign: a unit that a vector does not see may change
 * it. */
template <class C>
__device__ __forceinline__ void finish_group(const wide_totals<C> &total,
                                             const attention_args &args, enum dtype act,
                                             const wide_group &group) {
    const int lane = wide_lane();
#pragma unroll
    for (int i = 0; i < C::TILES * 2; i++) {
        const int m = i / 2, r = i % 2, row = 16 * m + lane / 4 + 8 * r;
        const vector_place place = group.place(row);
        if (!place.exists) continue;
        const float whole = wide_numbers<C>(WHOLE_FACTOR)[row];
        const size_t at = ((size_t)place.row * args.H + place.head) * C::DV +
                          (size_t)(wide_warp() * C::OWN + lane % 4 * 2);
#pragma unroll
        for (int c = 0; c < C::CHUNKS; c++)
            store_pair(act, args.y, at + 8 * c, total[m][c][2 * r] * whole + 0.0f,
                       total[m][c][2 * r + 1] * whole + 0.0f);
    }
}

/* Writes the parts of a span. */
template <class C>
__device__ __forceinline__ void leave_group(const wide_sums<C> &o, const attention_args &args,
                                            int n_y, const wide_group &group) {
    using rows = wide_rows<C>;
    const int lane = wide_lane();
    const auto part = [&](int row) {
        return part_at(args, group.item, group.block, n_y, group.y, group.item.span,
                       group.first_vector + row, C::DV);
    };
#pragma unroll
    for (int i = 0; i < rows::N; i++) {
        const int row = rows::row(i);
        if (!rows::exists(i) || !rows::is_first_lane() || !group.place(row).exists) continue;
        store_vec<2>(part(row) + C::DV, Vec<float, 2>{{wide_numbers<C>(SPAN_MOST)[row],
                                                       wide_numbers<C>(SPAN_SUM)[row]}});
    }
#pragma unroll
    for (int i = 0; i < C::TILES * 2; i++) {
        const int m = i / 2, r = i % 2, row = 16 * m + lane / 4 + 8 * r;
        if (!group.place(row).exists) continue;
        float *to = part(row) + wide_warp() * C::OWN + lane % 4 * 2;
#pragma unroll
        for (int c = 0; c < C::CHUNKS; c++)
            store_vec<2>(to + 8 * c, Vec<float, 2>{{o[m][c][2 * r], o[m][c][2 * r + 1]}});
    }
}

/* Merges the spans from their parts in memory, for a pair of numbers of a vector. */
template <class C>
__device__ __forceinline__ void
merge_group_parts(const attention_args &args, const attention_launch &how,
                  const attention_item &item, int y, int vector, int d) {
    const head_block block = block_of(args, how, y);
    const vector_place place = place_of(item, block, vector);
    if (!place.exists) return;
    const int first = args.seen[place.row].first, last = args.seen[place.row].last;
    merged_pair x;
    for (int span = first / SPAN; span <= last / SPAN; span++) {
        const float *from = part_at(args, item, block, how.n_y, y, span, vector, C::DV);
        const float2 part = __ldcg(reinterpret_cast<const float2 *>(from + C::DV));
        x.add(part.x, part.y, __ldcg(reinterpret_cast<const float2 *>(from + d)));
    }
    const float whole = weight_of_all(args, place.head, x.most, x.sum);
    store_pair(how.act, args.y, ((size_t)place.row * args.H + place.head) * C::DV + d,
               x.low * whole + 0.0f, x.high * whole + 0.0f);
}

/* ---- the kernel ----------------------------------------------------------------------------- */

/* Takes a group through its units, into y or into parts. */
template <class C>
__device__ __forceinline__ void attend_group(const attention_args &args,
                                             const attention_launch &how, const wide_group &group) {
    __syncthreads(); /* the earlier group has read its slots */
    rows_begin<C>(args, group);
    load_group<C>(args, how.act, group);
    wide_feed<C> feed(args, group.item, group.block.kv_head, group.range);
    wide_sums<C> o = {};
    wide_totals<C> total = {};
    const bool merges = group.item.part < 0;
    for (int start = group.range.begin / UNIT * UNIT; start < group.range.end; start += UNIT) {
        multiply_unit_keys<C>(feed.keys());
        feed.end_scores();
        weigh_unit<C>(args, group, start);
        multiply_unit_values<C>(o, feed.values());
        const int end = start + UNIT;
        if (merges && (end % SPAN == 0 || end >= group.range.end))
            merge_group_span<C>(total, o, args, group);
    }
    feed.end_copies();
    if (merges)
        finish_group<C>(total, args, how.act, group);
    else
        leave_group<C>(o, args, how.n_y, group);
}

/* The positions that a group's vectors see, within the item's span if it has one. */
template <class C>
__device__ __forceinline__ seen group_range(const attention_args &args, const attention_launch &how,
                                            const attention_item &item, int first_vector) {
    const seen all = seen_by_vectors(args, item, how.heads, first_vector, C::VECTORS);
    if (item.span < 0) return all;
    return {max(all.begin, item.span * SPAN), min(all.end, (item.span + 1) * SPAN)};
}

template <class C>
__global__ void __launch_bounds__(WIDE_THREADS, C::BLOCKS)
    wide_heads_kernel(const __grid_constant__ attention_args args,
                      const __grid_constant__ attention_launch how, int kinds) {
    const attention_item &item = args.items[blockIdx.x];
    grid_begin();
    if (item.rows == 0 || !(kinds & (item.span < 0 ? WIDE_WHOLE : WIDE_SPLITS))) return;
    const int y = (int)blockIdx.y, vectors = item.rows * how.heads;
    for (int first = 0; first < vectors; first += C::VECTORS) {
        const seen range = group_range<C>(args, how, item, first);
        attend_group<C>(args, how, {item, block_of(args, how, y), y, first, range});
    }
    if (item.part < 0 || !last_neighbour(args, how, item, y)) return;
    for (int at = (int)threadIdx.x; at < vectors * (C::DV / 2); at += WIDE_THREADS)
        merge_group_parts<C>(args, how, item, y, at / (C::DV / 2), at % (C::DV / 2) * 2);
}

#endif
