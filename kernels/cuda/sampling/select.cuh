/* DESIGN: finds the best ids of a row without sorting it.
 *
 * A block processes one row. Every id has a key (sampling/math.cuh), smaller for a better id.
 * Top-k, top-p, the draw and the n best ids are all the same question: in the order of keys, at
 * which key does the running count, or the running sum of shares, first reach an amount? Radix
 * selection answers it by digits: a histogram over the first digit of the keys shows the digit in
 * which the amount is reached, a histogram over the second digit of the keys with that first digit
 * shows the second digit, and so on until one key remains. Counts and sums are integers, so the
 * order of additions does not matter.
 *
 * Most rows need no histogram over all ids. While the row is read for other purposes, the ids at
 * least as good as `floor` are put on a list in shared memory. The floor is the worst among the
 * best ids of the P pairs of threads, so the list has at least P ids, and P * (ln P + 0.6) on
 * average for a row in random order. If the amount is reached within the list, the answer is found
 * there. Otherwise the histograms are over the row until the keys of a digit fit on the list.
 *
 *     keys   better <------------------------------------------------------------> worse
 *            [ the list: all keys up to the floor ][ only in the row                   ]
 */
#ifndef PENSTOCK_CUDA_SAMPLE_SELECT_CUH
#define PENSTOCK_CUDA_SAMPLE_SELECT_CUH

#include "kernels/cuda/sampling/math.cuh"
#include "kernels/cuda/sampling/sampling.cuh"

/* the key found */
struct amount {
    unsigned count;
    uint64 sum;
};

__device__ __forceinline__ struct amount plus(const struct amount &a, const struct amount &b) {
    return {a.count + b.count, a.sum + b.sum};
}
__device__ __forceinline__ struct amount minus(const struct amount &a, const struct amount &b) {
    return {a.count - b.count, a.sum - b.sum};
}

/* The digit in which an amount is reached, the amount before it, and the amount in it. */
struct crossing {
    int digit;
    struct amount before, in;
};

/* The shared memory of a block of THREADS. */
template <int THREADS> struct workspace {
    static constexpr int WARPS = THREADS / WARP, DIGIT_BITS = __builtin_ctz(THREADS);
    static constexpr int DIGITS = THREADS, LIST = 6 * THREADS;
    unsigned *count;           /* [DIGITS] histogram of ids ... */
    uint64 *sum;               /* [DIGITS] ... and of shares */
    uint64 *list;              /* [LIST] keys, unordered */
    unsigned *listed;
    uint64 *part;              /* [WARPS] for reductions */
    uint64 *key;
    struct crossing *crossing; /* [1] */
};

/* ---- reductions ----------------------------------------------------------------------------- */

/* Reductions over a block, with the result in every thread. Each may be called again at once. */
template <int THREADS>
__device__ __forceinline__ unsigned block_largest(const workspace<THREADS> &w, unsigned x) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    x = __reduce_max_sync(FULL_MASK, x);
    if (lane == 0) w.part[warp] = x;
    __syncthreads();
    x = lane < w.WARPS ? (unsigned)w.part[lane] : 0u;
    __syncthreads();
    return __reduce_max_sync(FULL_MASK, x);
}

template <int THREADS>
__device__ __forceinline__ unsigned block_smallest(const workspace<THREADS> &w, unsigned x) {
    return ~block_largest<THREADS>(w, ~x);
}

__device__ __forceinline__ uint64 warp_total(uint64 x) {
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2) x = x + __shfl_xor_sync(FULL_MASK, x, apart);
    return x;
}

template <int THREADS>
__device__ __forceinline__ uint64 block_total(const workspace<THREADS> &w, uint64 x) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    x = warp_total(x);
    if (lane == 0) w.part[warp] = x;
    __syncthreads();
    x = lane < w.WARPS ? w.part[lane] : 0;
    __syncthreads();
    return warp_total(x);
}

/* ---- the row -------------------------------------------------------------------------------- */

/* A row of logits after penalties and bans. */
struct logit_row {
    const float *logits;    /* [V] */
    const uint32_t *counts; /* [V] or NULL: no penalties and bans */
    const uint32_t *mask;   /* [(V + 31) / 32] or NULL: all ids are allowed */
    int V;
    float repetition, frequency, presence;
};

__device__ __forceinline__ float penalised(const struct logit_row &row, float logit,
                                           uint32_t count) {
    if (count == 0) return logit;
    if (count & (SAMPLE_FORBIDDEN | SAMPLE_DUE)) return -INFINITY;
    if (row.repetition != 1.0f)
        logit = logit > 0.0f ? logit / row.repetition : logit * row.repetition;
    const uint32_t generated = count & SAMPLE_GENERATED;
    if (generated > 0) logit = logit - (row.frequency * (float)generated + row.presence);
    return logit;
}

/* Returns the length of a warp's run in [from, to): whole steps of the warp if possible, so that it
 * loads whole cache lines. */
template <int THREADS, int N> __device__ __forceinline__ int run_of_warp(int from, int to) {
    constexpr int WARPS = THREADS / WARP;
    const int unit = to - from >= THREADS * N ? WARP * N : N;
    return ((to - from + WARPS - 1) / WARPS + unit - 1) / unit * unit;
}

/* Calls fn(id, logit) for the ids in [from, to), each in one thread; within a thread ids rise. N
 * logits are loaded at once; `from`, `to` and the row are aligned to that. Several loads are in
 * flight before the first is used: a block must keep about 32 KiB in flight to use its share of the
 * bandwidth. */
template <int THREADS, int N, class F>
__device__ __forceinline__ void for_ids(const struct logit_row &row, int from, int to, F fn) {
    constexpr int STEP = WARP * N, AHEAD = 2;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int run = run_of_warp<THREADS, N>(from, to), first = from + warp * run;
    const int end = first + run < to ? first + run : to;
    for (int id = first + lane * N; id < end; id += AHEAD * STEP) {
        Vec<float, N> logit[AHEAD];
        Vec<uint32_t, N> count[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (id + a * STEP < end) logit[a] = load_vec<N>(row.logits + id + a * STEP);
        if (row.counts)
#pragma unroll
            for (int a = 0; a < AHEAD; a++)
                if (id + a * STEP < end) count[a] = load_vec<N>(row.counts + id + a * STEP);
        uint32_t may_come[AHEAD]; /* N ids share a word of the mask */
        if (row.mask)
#pragma unroll
            for (int a = 0; a < AHEAD; a++)
                if (id + a * STEP < end)
                    may_come[a] = row.mask[(id + a * STEP) / 32] >> (id + a * STEP) % 32;
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
#pragma unroll
            for (int i = 0; i < N; i++) {
                if (id + a * STEP >= end) continue;
                float x = logit[a].v[i];
                if (row.counts) x = penalised(row, x, count[a].v[i]);
                if (row.mask && !(may_come[a] >> i & 1)) x = -INFINITY;
                fn(id + a * STEP + i, x);
            }
    }
}

/* ---- histograms ----------------------------------------------------------------------------- */

template <int THREADS>
__device__ __forceinline__ void clear_histogram(const workspace<THREADS> &w) {
    w.count[threadIdx.x] = 0;
    w.sum[threadIdx.x] = 0;
}

__device__ __forceinline__ bool reaches(const struct amount &a, bool by_sum, uint64 wanted) {
    return (by_sum ? a.sum : (uint64)a.count) >= wanted;
}

/* Finds the digit in which the wanted amount is reached; all digits together reach it. The first
 * warp calls it: each lane sums adjacent digits, and the lane that reaches the amount searches. */
template <int THREADS>
__device__ __forceinline__ void find_crossing(const workspace<THREADS> &w, bool by_sum,
                                              uint64 wanted) {
    constexpr int EACH = w.DIGITS / WARP;
    const int lane = threadIdx.x, first = lane * EACH;
    struct amount mine = {0, 0};
#pragma unroll
    for (int j = 0; j < EACH; j++) { /* lanes start at different offsets, to use all banks */
        const int digit = first + (j + lane) % EACH;
        mine = plus(mine, {w.count[digit], w.sum[digit]});
    }
    struct amount upto = mine;
#pragma unroll
    for (int apart = 1; apart < WARP; apart *= 2) {
        const struct amount before = {__shfl_up_sync(FULL_MASK, upto.count, apart),
                                      __shfl_up_sync(FULL_MASK, upto.sum, apart)};
        if (lane >= apart) upto = plus(upto, before);
    }
    const unsigned there = __ballot_sync(FULL_MASK, reaches(upto, by_sum, wanted));
    if (lane != __ffs((int)there) - 1) return;
    struct crossing c = {first, minus(upto, mine), {w.count[first], w.sum[first]}};
    while (!reaches(plus(c.before, c.in), by_sum, wanted)) {
        c.before = plus(c.before, c.in);
        c.digit++;
        c.in = {w.count[c.digit], w.sum[c.digit]};
    }
    *w.crossing = c;
}

/* ---- selecting ------------------------------------------------------------------------------ */

/* The ids of a row, ranked by RANK: rank(logit), NO_RANK for ids that do not count, and
 * share(rank). */
template <int THREADS, int N, class RANK> struct selection {
    workspace<THREADS> w;
    struct logit_row row;
    RANK ranking;
    bool has_list; /* it contains all keys up to the floor, with this amount: */
    struct amount listed;
};

/* Calls fn(key) for all ids that count, from the list or from the row. */
template <int THREADS, int N, class RANK, class F>
__device__ __forceinline__ void for_keys(const selection<THREADS, N, RANK> &s, bool in_list, F fn) {
    if (in_list) {
        const unsigned n = *s.w.listed;
        for (unsigned i = threadIdx.x; i < n; i += THREADS) fn(s.w.list[i]);
        return;
    }
    for_ids<THREADS, N>(s.row, 0, s.row.V, [&](int id, float logit) {
        const unsigned rank = s.ranking.rank(logit);
        if (rank != NO_RANK) fn(key_of(rank, id));
    });
}

/* Puts a key on the list if there is space. */
template <int THREADS>
__device__ __forceinline__ void put_on_list(const workspace<THREADS> &w, uint64 key) {
    const unsigned at = atomicAdd(w.listed, 1u);
    if (at < w.LIST) w.list[at] = key;
}

/* Reads the row once: lists the ids at least as good as the floor, and returns the amount of all
 * ids that count. Calls `also` with every logit. */
template <int THREADS, int N, class RANK, class F>
__device__ __forceinline__ struct amount list_best(selection<THREADS, N, RANK> &s, unsigned floor,
                                                   F also) {
    if (threadIdx.x == 0) *s.w.listed = 0;
    __syncthreads();
    struct amount all = {0, 0}, best = {0, 0};
    for_ids<THREADS, N>(s.row, 0, s.row.V, [&](int id, float logit) {
        also(logit);
        const unsigned rank = s.ranking.rank(logit);
        if (rank == NO_RANK) return;
        const struct amount one = {1, s.ranking.share(rank)};
        all = plus(all, one);
        if (rank > floor) return;
        best = plus(best, one);
        put_on_list<THREADS>(s.w, key_of(rank, id));
    });
    /* These contain barriers, after which the list is complete. */
    all = {(unsigned)block_total<THREADS>(s.w, all.count), block_total<THREADS>(s.w, all.sum)};
    s.listed = {*s.w.listed, block_total<THREADS>(s.w, best.sum)};
    s.has_list = s.listed.count <= s.w.LIST;
    return all;
}

/* The keys that begin with the digits of `prefix`, the bits above `shift`. */
struct digits {
    uint64 prefix;
    int shift;
};

__device__ __forceinline__ bool begins_with(uint64 key, const struct digits &known) {
    return key >> known.shift == known.prefix;
}

/* Finds the digit after the known ones at which the wanted amount is reached; in every thread. */
template <int THREADS, int N, class RANK>
__device__ __forceinline__ struct crossing next_digit(const selection<THREADS, N, RANK> &s,
                                                      bool in_list, const struct digits &known,
                                                      int shift, bool by_sum, uint64 wanted) {
    const unsigned mask = (1u << (known.shift - shift)) - 1;
    clear_histogram<THREADS>(s.w);
    __syncthreads();
    for_keys(s, in_list, [&](uint64 key) {
        if (!begins_with(key, known)) return;
        const unsigned digit = (unsigned)(key >> shift) & mask;
        atomicAdd(&s.w.count[digit], 1u);
        atomicAdd(&s.w.sum[digit], s.ranking.share(rank_of_key(key)));
    });
    __syncthreads();
    if (threadIdx.x < WARP) find_crossing<THREADS>(s.w, by_sum, wanted);
    __syncthreads();
    return *s.w.crossing;
}

/* Rebuilds the list from the keys in the row with this prefix. It has space for all of them. */
template <int THREADS, int N, class RANK>
__device__ __forceinline__ void list_digits(selection<THREADS, N, RANK> &s,
                                            const struct digits &known) {
    s.has_list = false; /* the old content is gone */
    if (threadIdx.x == 0) *s.w.listed = 0;
    __syncthreads();
    for_keys(s, false, [&](uint64 key) {
        if (begins_with(key, known)) put_on_list<THREADS>(s.w, key);
    });
    __syncthreads();
}

/* A key, and the amount of all ids up to and including it. */
struct found {
    uint64 key;
    struct amount upto;
};

/* Finds the key at which the wanted amount is reached. The amount of all ids must reach it. */
template <int THREADS, int N, class RANK>
__device__ __forceinline__ struct found select_key(selection<THREADS, N, RANK> &s, bool by_sum,
                                                   uint64 wanted) {
    bool in_list = s.has_list && reaches(s.listed, by_sum, wanted);
    struct digits known = {0, KEY_BITS};
    struct crossing c = {0, {0, 0}, {2, 0}};
    struct amount before = {0, 0};
    while (c.in.count > 1 && known.shift > 0) {
        const int shift = known.shift > s.w.DIGIT_BITS ? known.shift - s.w.DIGIT_BITS : 0;
        c = next_digit(s, in_list, known, shift, by_sum,
                       wanted - (by_sum ? before.sum : (uint64)before.count));
        before = plus(before, c.before);
        known = {known.prefix << (known.shift - shift) | (unsigned)c.digit, shift};
        if (!in_list && c.in.count <= s.w.LIST) {
            list_digits(s, known);
            in_list = true;
        }
    }
    for_keys(s, true, [&](uint64 key) {
        if (begins_with(key, known)) *s.w.key = key;
    });
    __syncthreads();
    return {*s.w.key, plus(before, c.in)};
}

#endif
