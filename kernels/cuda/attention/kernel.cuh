/* attention_kernel for whole items and split items. One file per type of cache (attention/f16.cu
 * and so on) includes this and instantiates the kernels for all head sizes. */
#ifndef PENSTOCK_CUDA_ATTENTION_KERNEL_CUH
#define PENSTOCK_CUDA_ATTENTION_KERNEL_CUH

#include "kernels/cuda/attention/feed.cuh"
#include "kernels/cuda/runtime/orders.cuh"

/* ---- items ---------------------------------------------------------------------------------- */

/* The division of a launch's work. */
struct attention_launch {
    enum dtype act;
    int heads, head_parts; /* as planned */
    int n_y;               /* blocks per item: key-value heads times head_parts */
};

/* A launch as an order (runtime/orders.cuh). */
struct attention_work {
    attention_args args;
    attention_launch how;
};

__device__ __forceinline__ head_block block_of(const attention_args &args,
                                               const attention_launch &how, int y) {
    const int group = args.H / args.kv.G, kv_head = y / how.head_parts;
    const int first = y % how.head_parts * how.heads;
    return {kv_head, kv_head * group + first, min(how.heads, group - first), how.heads};
}

/* The range of positions that an item's rows see. */
struct seen {
    int begin, end;
};
__device__ __forceinline__ seen seen_by(const attention_args &args, int row, int n) {
    return {args.seen[row].first, args.seen[row + n - 1].last + 1};
}

/* The same for at most `most` vectors, fewer at the end; an empty range if there are none. */
__device__ __forceinline__ seen seen_by_vectors(const attention_args &args,
                                                const attention_item &item, int heads,
                                                int first_vector, int most) {
    const int n_vectors = item.rows * heads;
    if (first_vector >= n_vectors) return {0, 0};
    const int first = first_vector / heads;
    const int last = (min(first_vector + most, n_vectors) - 1) / heads;
    return seen_by(args, item.row + first, last - first + 1);
}

/* Each warp takes 16 vectors through all splits that the rows see. Splits that none of its vectors
 * sees are skipped, because they would not change the result. */
template <class C>
__device__ __forceinline__ void attend_whole(const attention_args &args,
                                             const attention_launch &how,
                                             const attention_item &item, int y) {
    const head_block block = block_of(args, how, y);
    const int first_vector = threadIdx.x / WARP * SPLIT_VECTORS;
    const seen all = seen_by(args, item.row, item.rows);
    const seen mine = seen_by_vectors(args, item, how.heads, first_vector, SPLIT_VECTORS);
    int split = all.begin / SPLIT;
    feeder<C, ATTENTION_THREADS, SPLIT, attention_memory<C>::WHOLE_RING> feed(
        args, item, block.kv_head, split * SPLIT, all.begin, all.end, dyn_smem<char>());
    queries<C> q;
    load_queries<C>(q, how.act, args, item, block, first_vector);
    softmax<C> span;
    softmax_total<C> total;
    softmax_clear<C>(span);
    softmax_clear<C>(total);
    for (; split * SPLIT < all.end; split++) {
        const int start = split * SPLIT;
        const bool works = start < mine.end && start + SPLIT > mine.begin;
        weights p;
        split_weight part;
        const char *keys = feed.template next<0>();
        if (works) {
            scores s;
            multiply_keys<C, 0, SPLIT>(s, q, keys);
            part = weigh<C>(p, s, q, args, start);
        }
        const char *values = feed.template next<1>();
        if (works) merge_split<C>(span, p, part, q, values, split);
        if ((start + SPLIT) % SPAN != 0 && start + SPLIT < all.end) continue;
        merge_span<C>(total, span, q, start / SPAN);
        softmax_clear<C>(span);
    }
    feed.end_copies();
    finish<C>(total, q, how.act, args);
}

/* ---- split items ---------------------------------------------------------------------------- */

/* The work of a block's warps: a span's splits for one y or, if the rows see only a few splits of
 * one span, these splits for several adjacent y. */
struct span_block {
    /* range of splits that the rows see in a span; in the first warp's */
    int first_split, end_split;
    int base;  /* split of the first warp */
    int warps; /* warps per y */
    int first_y, end_y;
};

__device__ __forceinline__ int spans_of(const attention_item &item) {
    return (item.first_split + item.n_splits - 1) / SPAN_SPLITS - item.first_split / SPAN_SPLITS +
           1;
}

__device__ __forceinline__ span_block span_block_of(const attention_item &item, int first_y,
                                                    int n_y) {
    const bool alone = spans_of(item) == 1;
    const int warps = alone ? item.n_splits : SPAN_SPLITS;
    return {item.first_split,
            item.first_split + item.n_splits,
            alone ? item.first_split : item.span * SPAN_SPLITS,
            warps,
            first_y,
            min(first_y + ATTENTION_WARPS / warps, n_y)};
}

/* The shared memory of a warp. */
template <class C> __device__ __forceinline__ char *memory_of(int warp) {
    return dyn_smem<char>() + warp * attention_memory<C>::WARP_BYTES;
}

template <class C, int... I>
__device__ __forceinline__ void multiply_all_keys(scores &s, const queries<C> &q, auto &feed,
                                                  std::integer_sequence<int, I...>) {
    (multiply_keys<C, I * C::STEP, C::STEP>(s, q, feed.template next<I>()), ...);
}
template <class C, int... I>
__device__ __forceinline__ void multiply_all_values(float (*o)[4], const weights &p, auto &feed,
                                                    std::integer_sequence<int, I...>) {
    const auto multiply = [&]<int NUMBER>(std::integral_constant<int, NUMBER>) {
        const char *slot = feed.template next<(int)sizeof...(I) + NUMBER>();
#pragma unroll
        for (int c = 0; c < C::CHUNKS; c += 2)
            multiply_values<C, NUMBER * C::STEP, C::STEP>(o + c, p, slot, c);
    };
    (multiply(std::integral_constant<int, I>()), ...);
}

/* Stores a split's vectors in the warp's memory. */
template <class C>
__device__ __forceinline__ void leave_part(const split_weight &part, const float (*o)[4],
                                           char *memory) {
    const int lane = threadIdx.x % WARP;
    __syncwarp(); /* all lanes have read the old content */
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float *to =
            reinterpret_cast<float *>(memory) + (lane / 4 + 8 * r) * attention_memory<C>::PART_ROW;
        if (lane % 4 == 0) store_vec<2>(to + C::DP, Vec<float, 2>{{part.most[r], part.sum[r]}});
#pragma unroll
        for (int c = 0; c < C::CHUNKS; c++)
            store_vec<2>(to + 8 * c + lane % 4 * 2, Vec<float, 2>{{o[c][2 * r], o[c][2 * r + 1]}});
    }
}

/* One warp computes one split. */
template <class C>
__device__ __forceinline__ void attend_split(const attention_args &args,
                                             const attention_launch &how,
                                             const attention_item &item, int y, int split) {
    const head_block block = block_of(args, how, y);
    const seen all = seen_by(args, item.row, item.rows);
    const int begin = max(all.begin, split * SPLIT), end = min(all.end, (split + 1) * SPLIT);
    char *memory = memory_of<C>(threadIdx.x / WARP);
    feeder<C, WARP, C::STEP, SPLIT_RING> feed(args, item, block.kv_head, split * SPLIT, begin, end,
                                              memory);
    const std::make_integer_sequence<int, SPLIT / C::STEP> slots;
    queries<C> q;
    load_queries<C>(q, how.act, args, item, block, 0);
    scores s;
    weights p;
    multiply_all_keys<C>(s, q, feed, slots);
    const split_weight part = weigh<C>(p, s, q, args, split * SPLIT);
    float o[C::CHUNKS][4] = {};
    multiply_all_values<C>(o, p, feed, slots);
    feed.end_copies();
    leave_part<C>(part, o, memory);
}

/* The merged values of a pair of numbers of a vector. The operations equal those in registers. */
struct merged_pair {
    float most = -INFINITY, sum = 0.0f, low = 0.0f, high = 0.0f;
    __device__ __forceinline__ void add(float part_most, float part_sum, float2 pair) {
        const merging by = merge_sums(most, sum, part_most, part_sum);
        low = merge_value(low, pair.x, by);
        high = merge_value(high, pair.y, by);
    }
};

/* Writes the final y of one pair of a vector. */
__device__ __forceinline__ void finish_pair(const attention_args &args, enum dtype act,
                                            const vector_place &place, int d,
                                            const merged_pair &x) {
    const float whole = weight_of_all(args, place.head, x.most, x.sum);
    store_pair(act, args.y, ((size_t)place.row * args.H + place.head) * args.kv.D + d,
               x.low * whole, x.high * whole);
}

/* The address of a vector's part of a span: D_value values, maximum, sum. */
__device__ __forceinline__ float *part_at(const attention_args &args, const attention_item &item,
                                          const head_block &block, int n_y, int y, int span,
                                          int vector, int D_value) {
    const int before = span - item.first_split / SPAN_SPLITS;
    const size_t n = (size_t)before * (item.rows * block.heads) + vector;
    return args.parts + ((item.part + n) * n_y + y) * (D_value + 2);
}

/* Merges the splits of a span, stored by the block's warps, for one pair of numbers of a vector:
 * into y, or into a part if the rows see more spans. */
template <class C>
__device__ __forceinline__ void
merge_splits(const attention_args &args, const attention_launch &how, const attention_item &item,
             const span_block &all, int y, int vector, int d) {
    const head_block block = block_of(args, how, y);
    const vector_place place = place_of(item, block, vector);
    if (!place.exists) return;
    const int first = args.seen[place.row].first, last = args.seen[place.row].last;
    const int first_warp = (y - all.first_y) * all.warps;
    merged_pair x;
    for (int i = 0; i < all.warps; i++) {
        if (!sees_split(first, last, all.base + i)) continue;
        const float *from = reinterpret_cast<const float *>(memory_of<C>(first_warp + i)) +
                            vector * attention_memory<C>::PART_ROW;
        x.add(from[C::DP], from[C::DP + 1], *reinterpret_cast<const float2 *>(from + d));
    }
    if (item.part < 0) {
        finish_pair(args, how.act, place, d, x);
        return;
    }
    float *to = part_at(args, item, block, how.n_y, y, item.span, vector, args.kv.D);
    store_vec<2>(to + d, Vec<float, 2>{{x.low, x.high}});
    if (d == 0) store_vec<2>(to + args.kv.D, Vec<float, 2>{{x.most, x.sum}});
}

/* Merges the spans from their parts in memory. */
__device__ __forceinline__ void merge_spans(const attention_args &args, const attention_launch &how,
                                            const attention_item &item, int y, int vector, int d) {
    const head_block block = block_of(args, how, y);
    const vector_place place = place_of(item, block, vector);
    if (!place.exists) return;
    const int first = args.seen[place.row].first, last = args.seen[place.row].last;
    merged_pair x;
    for (int span = first / SPAN; span <= last / SPAN; span++) {
        const float *from = part_at(args, item, block, how.n_y, y, span, vector, args.kv.D);
        const float2 part = __ldcg(reinterpret_cast<const float2 *>(from + args.kv.D));
        x.add(part.x, part.y, __ldcg(reinterpret_cast<const float2 *>(from + d)));
    }
    finish_pair(args, how.act, place, d, x);
}

/* Is this block the last one of its rows? If so, it sees the writes of the others and has reset the
 * counter to zero. */
__device__ __forceinline__ bool last_neighbour(const attention_args &args,
                                               const attention_launch &how,
                                               const attention_item &item, int y) {
    __shared__ int arrived;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        int32_t *counter = args.counters + (size_t)item.counter * how.n_y + y;
        arrived = atomicAdd(counter, 1) + 1;
        if (arrived == item.n_neighbours) *counter = 0;
    }
    __syncthreads();
    if (arrived < item.n_neighbours) return false;
    __threadfence();
    return true;
}

/* One warp per split of a span. The first ATTENTION_WARPS of THREADS have a split, and all of them
 * merge. If one block serves several adjacent y, the blocks of the others end at once. */
template <class C, int THREADS>
__device__ __forceinline__ void attend_splits(const attention_args &args,
                                              const attention_launch &how,
                                              const attention_item &item, int first_y) {
    const span_block all = span_block_of(item, first_y, how.n_y);
    if (all.first_y % (ATTENTION_WARPS / all.warps) != 0) return;
    const int warp = threadIdx.x / WARP, y = all.first_y + warp / all.warps;
    const int split = all.base + warp % all.warps;
    if (y < all.end_y && split >= all.first_split && split < all.end_split)
        attend_split<C>(args, how, item, y, split);
    __syncthreads();
    const int pairs = args.kv.D / 2, n = item.rows * how.heads * pairs;
    for (int merged = all.first_y; merged < all.end_y; merged++)
        for (int at = threadIdx.x; at < n; at += THREADS)
            merge_splits<C>(args, how, item, all, merged, at / pairs, at % pairs * 2);
    if (item.part < 0 || !last_neighbour(args, how, item, all.first_y)) return;
    for (int at = threadIdx.x; at < n; at += THREADS)
        merge_spans(args, how, item, all.first_y, at / pairs, at % pairs * 2);
}

template <class C>
__global__ void __launch_bounds__(ATTENTION_THREADS, attention_memory<C>::BLOCKS)
    attention_kernel(const __grid_constant__ attention_args args,
                     const __grid_constant__ attention_launch how) {
    const attention_item item = args.items[blockIdx.x]; /* copied before the step's first kernel */
    grid_begin();
    if (item.rows == 0) return;
    if (item.span < 0)
        attend_whole<C>(args, how, item, (int)blockIdx.y);
    else
        attend_splits<C, ATTENTION_THREADS>(args, how, item, (int)blockIdx.y);
}

/* ---- launching ------------------------------------------------------------------------------ */

/* The kinds of heads and caches that persistent steps support. */
template <class C>
constexpr bool in_one_grid = C::EXACT && !C::CAPS && !C::CONVERTS && C::DP <= 128;

template <class T, class R, int DP, bool EXACT = false, bool CAPS = true>
static void attention_launch_of(const attention_args &args, const attention_launch &how,
                                int n_items, cudaStream_t stream) {
    using C = attention_kind<T, R, DP, EXACT, CAPS>;
    constexpr size_t smem = attention_memory<C>::BYTES;
    if constexpr (in_one_grid<C>) {
        const attention_work work = {args, how};
        const order_head head = {
            ORDER_ATTENTION, n_items, how.n_y, std::is_same_v<T, __half> ? DTYPE_F16 : DTYPE_BF16,
            how.act,         0,       smem};
        if (orders_add(head, &work, sizeof work)) return;
    } else {
        orders_refuse(
            "its heads are not of 64 or 128 numbers, or their scores have a cap or slopes");
    }
    if (smem > DEFAULT_SMEM) allow_smem(attention_kernel<C>, smem);
    launch(attention_kernel<C>, dim3(n_items, how.n_y), dim3(ATTENTION_THREADS), smem, stream, args,
           how);
}

/* Heads of 64, 128 and 256 are compile-time constants, unless a 16-bit cache lacks tiles; also with
 * a cap (Gemma 2) or slopes (Jina BERT). */
template <class T, class R>
static void attention_launch_all(const attention_args &args, const attention_launch &how,
                                 int n_items, cudaStream_t stream) {
    const int D = args.kv.D;
    const int exact = sizeof(R) == 1 || kv_has_tiles(sizeof(R), D, args.kv.B) ? D : 0;
    const bool caps = args.cap != 0.0f || args.slopes;
    auto *run = exact == 64 && !caps    ? attention_launch_of<T, R, 64, true, false>
                : exact == 64           ? attention_launch_of<T, R, 64, true>
                : exact == 128 && !caps ? attention_launch_of<T, R, 128, true, false>
                : exact == 128          ? attention_launch_of<T, R, 128, true>
                : exact == 256 && !caps ? attention_launch_of<T, R, 256, true, false>
                : exact == 256          ? attention_launch_of<T, R, 256, true>
                : D <= 32               ? attention_launch_of<T, R, 32>
                : D <= 96               ? attention_launch_of<T, R, 96>
                : D <= 128              ? attention_launch_of<T, R, 128>
                                        : attention_launch_of<T, R, 256>;
    run(args, how, n_items, stream);
}

#endif
