/* attention_kernel: feeding the tensor cores, and the two kinds of items. One file for each type of
 * cache (attention/f16.cu and so on) includes this and instantiates the kernels for all head sizes.
 *
 * Keys and values of a step pass through a ring of slots in shared memory in the order of use:
 * keys, values, keys of the next step. A team fills its ring: the block for a whole item, one warp
 * for its split. Copies are several slots ahead, and one barrier a slot is enough: after it all
 * copies for the slot are visible, and every thread has finished with the slot before, which is
 * filled next.
 *
 *          ring    | values n-1 | keys n | values n | keys n+1 |
 *                    filled next  used     in flight
 */
#ifndef PENSTOCK_CUDA_ATTENTION_KERNEL_CUH
#define PENSTOCK_CUDA_ATTENTION_KERNEL_CUH

#include "kernels/cuda/attention/tile.cuh"

constexpr int ATTENTION_THREADS = ATTENTION_WARPS * WARP;
constexpr int WHOLE_RING = 4, SPLIT_RING = 3; /* slots of a team's ring */

template <class C> struct attention_memory {
    static constexpr int RAW_SLOT =
        C::CONVERTS ? C::STEP * C::DP * (int)sizeof(typename C::R) : C::SLOT;
    static constexpr int CONVERTED = C::CONVERTS ? C::SLOT : 0;
    static constexpr int WARP_BYTES = CONVERTED + SPLIT_RING * RAW_SLOT;
    static constexpr int BYTES = ATTENTION_WARPS * WARP_BYTES;
    static_assert(CONVERTED + WHOLE_RING * RAW_SLOT <= BYTES, "a whole item's ring fits too");
};

/* ---- feeding -------------------------------------------------------------------------------- */

/* A team's ring over the positions [begin, end); other positions of a step, and steps beyond them,
 * are zeros and not read. Slots are filled with keys and values in turn. Which a call fills or uses
 * is known when it is compiled, and places in the ring and in the table are moved on by a step. */
template <class C, int TEAM, int RING> struct feeder {
    static constexpr int SLOT = attention_memory<C>::RAW_SLOT;
    const struct kv_view &kv;
    const int32_t *table; /* of the sequence */
    int head;             /* key-value head */
    int D;
    int begin, end;
    char *converted, *ring;
    int start;           /* of the first step */
    int filled, used;    /* offsets of the next slots of the ring */
    int position;        /* this lane's in the step that is filled next */
    int entry, offset;   /* its entry of the table, its place in that block */
    int entries, places; /* by which these move on with a step */
    int used_position;   /* this lane's in the step that is used */
    int vector;          /* this lane's in the step that is being filled; -1: none */

    __device__ __forceinline__ feeder(const attention_args &args, const attention_item &item,
                                      int head_, int begin_, int end_, char *memory)
        : kv(args.kv), table(args.table + (size_t)item.sequence * args.table_stride), head(head_),
          D(head_size<C>(args)), begin(begin_), end(end_), converted(memory),
          ring(memory + attention_memory<C>::CONVERTED), start(begin_ / C::STEP * C::STEP),
          filled(0), used(0), position(start + (int)threadIdx.x % WARP), entry(position / kv.B),
          offset(position % kv.B), entries(C::STEP / kv.B), places(C::STEP % kv.B),
          used_position(position), vector(-1) {
        fill<0>();
        fill<1>();
        if (RING == 4) fill<0>();
        static_assert(RING == 3 || RING == 4, "what the calls above fill");
    }

    static __device__ __forceinline__ unsigned rank() {
        return threadIdx.x % TEAM;
    }

    static __device__ __forceinline__ void meet() {
        if (TEAM == WARP)
            __syncwarp();
        else
            __syncthreads();
    }

    static __device__ __forceinline__ int after(int slot) {
        return slot + SLOT < RING * SLOT ? slot + SLOT : 0;
    }

    /* Whether a lane looks up a position; those above STEP look up none. */
    __device__ __forceinline__ bool looks_up(int p) const {
        return (int)threadIdx.x % WARP < C::STEP && p >= begin && p < end;
    }

    /* Starts the copies of the next slot and ends their group. */
    template <int VALUES> __device__ __forceinline__ void fill() {
        if (VALUES == 0) {
            vector = looks_up(position) ? (int)kv_vector(kv, table[entry], head, offset) : -1;
            position += C::STEP;
            entry += entries;
            offset += places;
            if (offset >= kv.B) {
                offset -= kv.B;
                entry++;
            }
        }
        copy(ring + filled, static_cast<const typename C::R *>(VALUES ? kv.values : kv.keys));
        filled = after(filled);
        cp_async_commit();
    }

    /* A lane copies the same chunk of every APART-th row, if whole rows make up a team's copies. */
    __device__ __forceinline__ void copy(char *slot, const typename C::R *from) {
        constexpr unsigned N = 16 / (int)sizeof(typename C::R), CHUNKS = C::DP / N;
        constexpr unsigned APART = TEAM % CHUNKS == 0 ? TEAM / CHUNKS : 0;
        static_assert(C::STEP * CHUNKS % WARP == 0, "whole warps shuffle");
        const char *all = reinterpret_cast<const char *>(from),
                   *column = all + rank() % CHUNKS * 16;
        /* unknown: a shift takes more */
        const unsigned bytes = (unsigned)kv.D * (unsigned)sizeof *from;
        const int place = chunk_at<C>((int)(rank() / CHUNKS), (int)(rank() % CHUNKS));
#pragma unroll
        for (unsigned i = 0; i < C::STEP * CHUNKS; i += TEAM) {
            const unsigned mine = i + rank();
            if (C::STEP * CHUNKS % TEAM != 0 && mine >= C::STEP * CHUNKS) break; /* a whole warp */
            const unsigned row = mine / CHUNKS, chunk = mine % CHUNKS;
            const int at = __shfl_sync(FULL_MASK, vector, (int)row);
            const bool there = at != -1 && (C::EXACT || (int)(chunk * N) < D);
            const int to = C::CONVERTS ? (int)(mine * 16)
                           : APART     ? chunk_after<C>(place, (int)(i / CHUNKS), 0)
                                       : chunk_at<C>((int)row, (int)chunk);
            cp_async16(slot + to,
                       (APART ? column : all + chunk * 16) + (uint64_t)(unsigned)at * bytes,
                       there ? 16 : 0);
        }
    }

    /* The next slot, as the products want it: keys, then values. */
    template <int VALUES> __device__ __forceinline__ const char *next() {
        cp_async_wait<RING - 2>();
        meet();
        fill<(VALUES + RING - 1) % 2>();
        char *raw = ring + used;
        used = after(used);
        if (!C::CONVERTS) return raw;
        convert(raw, VALUES ? kv.value_scale : kv.key_scale);
        if (VALUES) used_position += C::STEP;
        meet();
        return converted;
    }

    /* After the last slot: ends the open groups, which are empty. */
    __device__ __forceinline__ void end_copies() {
        cp_async_wait<0>();
    }

    /* Converts 8-bit elements to operands, times their blocks' scales. */
    __device__ __forceinline__ void convert(const char *raw, const float *scales) {
        using T = typename C::T;
        using R = typename C::R;
        constexpr int CHUNKS = C::DP / 16;
        const int p = used_position;
        const float scale = looks_up(p) ? scales[kv_scale_index(kv, table[p / kv.B], head)] : 0.0f;
#pragma unroll
        for (int i = 0; i < C::STEP * CHUNKS; i += TEAM) {
            const int mine = i + (int)rank();
            if (mine >= C::STEP * CHUNKS) break; /* a whole warp */
            const int row = mine / CHUNKS, chunk = mine % CHUNKS;
            const float by = __shfl_sync(FULL_MASK, scale, row);
            const Vec16<R> in = load16(reinterpret_cast<const R *>(raw + row * C::DP + chunk * 16));
#pragma unroll
            for (int side = 0; side < 2; side++) {
                Vec16<T> out;
#pragma unroll
                for (int e = 0; e < 8; e++)
                    out.v[e] = from_float<T>(kv_float(in.v[8 * side + e]) * by);
                store16(reinterpret_cast<T *>(converted + chunk_at<C>(row, 2 * chunk + side)), out);
            }
        }
    }
};

/* ---- items ---------------------------------------------------------------------------------- */

/* How a launch is cut. */
struct attention_launch {
    enum dtype act;
    int heads, head_parts; /* as planned */
};

__device__ __forceinline__ head_block block_of(const attention_args &args,
                                               const attention_launch &how, int y) {
    const int group = args.H / args.kv.G, kv_head = y / how.head_parts;
    const int first = y % how.head_parts * how.heads;
    return {kv_head, kv_head * group + first, min(how.heads, group - first), how.heads};
}

/* The positions that an item's rows see. */
struct seen {
    int begin, end;
};
__device__ __forceinline__ seen seen_by(const attention_args &args, int row, int n) {
    return {first_seen(args, args.position[row]), args.position[row + n - 1] + 1};
}

/* The same for a warp's vectors; empty if it has none. */
__device__ __forceinline__ seen seen_by_warp(const attention_args &args, const attention_item &item,
                                             int heads, int first_vector) {
    const int n_vectors = item.rows * heads;
    if (first_vector >= n_vectors) return {0, 0};
    const int first = first_vector / heads;
    const int last = (min(first_vector + SPLIT_VECTORS, n_vectors) - 1) / heads;
    return seen_by(args, item.row + first, last - first + 1);
}

/* Each warp takes 16 vectors through all positions that the rows see. Steps that none of its
 * vectors sees would change nothing and are skipped. */
template <class C>
__device__ __forceinline__ void
attend_whole(const attention_args &args, const attention_launch &how, const attention_item &item) {
    const head_block block = block_of(args, how, blockIdx.y);
    const int first_vector = threadIdx.x / WARP * SPLIT_VECTORS;
    const seen all = seen_by(args, item.row, item.rows);
    const seen mine = seen_by_warp(args, item, how.heads, first_vector);
    feeder<C, ATTENTION_THREADS, WHOLE_RING> feed(args, item, block.kv_head, all.begin, all.end,
                                                  dyn_smem<char>());
    queries<C> q;
    load_queries<C>(q, how.act, args, item, block, first_vector);
    softmax<C> part;
    softmax_total<C> total;
    softmax_clear<C>(part);
    softmax_clear<C>(total);
    for (int start = feed.start; start < all.end; start += C::STEP) {
        const bool works = start < mine.end && start + C::STEP > mine.begin;
        weights<C> p;
        const char *keys = feed.template next<0>();
        if (works) {
            scores<C> s;
            multiply_keys<C>(s, q, keys);
            weigh<C>(p, part, s, q, args, start);
        }
        const char *values = feed.template next<1>();
        if (works) multiply_values<C>(part, p, values);
        if ((start + C::STEP) % SPLIT != 0 && start + C::STEP < all.end) continue;
        softmax_close<C>(part);
        merge_split<C>(total, part, q, start / SPLIT);
        softmax_clear<C>(part);
    }
    feed.end_copies();
    finish<C>(total, q, how.act, args);
}

/* The address of a vector's part of a split: maximum, sum, D values. */
__device__ __forceinline__ float *part_at(const attention_args &args, const attention_item &item,
                                          const head_block &block, int y, int split, int vector) {
    const size_t n = (size_t)(split - item.first_split) * (item.rows * block.heads) + vector;
    return args.parts + ((item.part + n) * gridDim.y + y) * (args.kv.D + 2);
}

template <class C>
__device__ __forceinline__ void store_part(const softmax<C> &part, const queries<C> &q,
                                           const attention_args &args, const attention_item &item,
                                           const head_block &block, int y, int split) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (q.last[r] < 0) continue;
        float *to = part_at(args, item, block, y, split, lane / 4 + 8 * r);
        if (lane % 4 == 0) store_vec<2>(to, Vec<float, 2>{{part.most[r], part.sum[r]}});
#pragma unroll
        for (int c = 0; c < C::DP / 8; c++) {
            const int d = 8 * c + lane % 4 * 2;
            if (d < args.kv.D)
                store_vec<2>(to + 2 + d, Vec<float, 2>{{part.o[c][2 * r], part.o[c][2 * r + 1]}});
        }
    }
}

/* One warp, one split; rows with a single split are finished here. */
template <class C>
__device__ __forceinline__ void attend_split(const attention_args &args,
                                             const attention_launch &how,
                                             const attention_item &item, int y, int split) {
    const head_block block = block_of(args, how, y);
    const seen all = seen_by(args, item.row, item.rows);
    const int begin = max(all.begin, split * SPLIT), end = min(all.end, (split + 1) * SPLIT);
    char *memory = dyn_smem<char>() + threadIdx.x / WARP * attention_memory<C>::WARP_BYTES;
    feeder<C, WARP, SPLIT_RING> feed(args, item, block.kv_head, begin, end, memory);
    queries<C> q;
    load_queries<C>(q, how.act, args, item, block, 0);
    softmax<C> part;
    softmax_clear<C>(part);
    for (int start = feed.start; start < end; start += C::STEP) {
        scores<C> s;
        weights<C> p;
        multiply_keys<C>(s, q, feed.template next<0>());
        weigh<C>(p, part, s, q, args, start);
        multiply_values<C>(part, p, feed.template next<1>());
    }
    feed.end_copies();
    softmax_close<C>(part);
    if (item.n_splits > 1) {
        store_part<C>(part, q, args, item, block, y, split);
        return;
    }
    softmax_total<C> total;
    softmax_clear<C>(total);
    merge_split<C>(total, part, q, split);
    finish<C>(total, q, how.act, args);
}

/* y of one pair of numbers of a vector, from the parts in memory. The same operations as
 * merge_split and finish. */
__device__ __forceinline__ void merge_parts(const attention_args &args, const attention_launch &how,
                                            const attention_item &item, const head_block &block,
                                            int y, int vector, int d) {
    const vector_place place = place_of(item, block, vector);
    if (!place.exists) return;
    const int last = args.position[place.row], first = first_seen(args, last);
    float most = -INFINITY, sum = 0.0f, low = 0.0f, high = 0.0f;
    for (int split = first / SPLIT; split <= last / SPLIT; split++) {
        const float *from = part_at(args, item, block, y, split, vector);
        const float2 part = __ldcg(reinterpret_cast<const float2 *>(from));
        const float2 pair = __ldcg(reinterpret_cast<const float2 *>(from + 2 + d));
        const merging by = merge_sums(most, sum, part.x, part.y);
        low = merge_value(low, pair.x, by);
        high = merge_value(high, pair.y, by);
    }
    const float whole = weight_of_all(args, place.head, most, sum);
    store_pair(how.act, args.y, ((size_t)place.row * args.H + place.head) * args.kv.D + d,
               low * whole, high * whole);
}

/* Whether this block is the last one of its rows; then it sees what the others wrote, and has reset
 * the counter to zero. */
__device__ __forceinline__ bool last_neighbour(const attention_args &args,
                                               const attention_item &item) {
    __shared__ int arrived;
    __threadfence();
    __syncthreads();
    if (item.n_neighbours == 1) return true;
    if (threadIdx.x == 0) {
        int32_t *counter = args.counters + (size_t)item.counter * gridDim.y + blockIdx.y;
        arrived = atomicAdd(counter, 1) + 1;
        if (arrived == item.n_neighbours) *counter = 0;
    }
    __syncthreads();
    if (arrived < item.n_neighbours) return false;
    __threadfence();
    return true;
}

/* A warp for each of up to four splits. For rows of one or two splits one block serves several
 * neighbouring y, and the blocks of the others end at once. */
template <class C>
__device__ __forceinline__ void
attend_splits(const attention_args &args, const attention_launch &how, const attention_item &item) {
    const int warps = min(item.n_splits, ATTENTION_WARPS), n_y = ATTENTION_WARPS / warps;
    const int first_y = blockIdx.y, end_y = min(first_y + n_y, (int)gridDim.y);
    if (first_y % n_y != 0) return;
    const int warp = threadIdx.x / WARP, y = first_y + warp / warps;
    const int split = item.split + warp % warps;
    const bool works = y < end_y && split < item.first_split + item.n_splits;
    if (works) attend_split<C>(args, how, item, y, split);
    if (item.n_splits == 1 || !last_neighbour(args, item)) return;
    const int pairs = args.kv.D / 2;
    for (int merged = first_y; merged < end_y; merged++) {
        const head_block block = block_of(args, how, merged);
        const int n = item.rows * how.heads * pairs;
        for (int at = threadIdx.x; at < n; at += ATTENTION_THREADS)
            merge_parts(args, how, item, block, merged, at / pairs, at % pairs * 2);
    }
}

template <class C>
__global__ void __launch_bounds__(ATTENTION_THREADS)
    attention_kernel(const __grid_constant__ attention_args args,
                     const __grid_constant__ attention_launch how) {
    const attention_item item = args.items[blockIdx.x]; /* copied before the step's first kernel */
    grid_begin();
    if (item.rows == 0) return;
    if (item.split < 0)
        attend_whole<C>(args, how, item);
    else
        attend_splits<C>(args, how, item);
}

/* ---- launching ------------------------------------------------------------------------------ */

template <class T, class R, int DP, bool EXACT = false>
static void attention_launch_of(const attention_args &args, const attention_launch &how,
                                int n_items, cudaStream_t stream) {
    using C = attention_kind<T, R, DP, EXACT>;
    constexpr size_t smem = attention_memory<C>::BYTES;
    if (smem > DEFAULT_SMEM) allow_smem(attention_kernel<C>, smem);
    launch(attention_kernel<C>, dim3(n_items, args.kv.G * how.head_parts), dim3(ATTENTION_THREADS),
           smem, stream, args, how);
}

template <class T, class R>
static void attention_launch_all(const attention_args &args, const attention_launch &how,
                                 int n_items, cudaStream_t stream) {
    const int D = args.kv.D, exact = args.cap == 0.0f ? D : 0;
    auto *run = exact == 64    ? attention_launch_of<T, R, 64, true>
                : exact == 128 ? attention_launch_of<T, R, 128, true>
                : D <= 32      ? attention_launch_of<T, R, 32>
                : D <= 64      ? attention_launch_of<T, R, 64>
                : D <= 96      ? attention_launch_of<T, R, 96>
                : D <= 128     ? attention_launch_of<T, R, 128>
                               : attention_launch_of<T, R, 256>;
    run(args, how, n_items, stream);
}

#endif
