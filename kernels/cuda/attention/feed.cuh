/* attention_feed: moves keys and values from the cache to the products.
 *
 * Keys and values pass through a ring of slots in shared memory in the order of use. A team fills
 * its ring. For a whole item the team is the block, and a slot has a split's keys or values. For a
 * split item it is one warp; slots are shorter and alternate as keys, keys, values, values. Copies
 * are several slots ahead, and one barrier per slot suffices: after it all copies for the slot are
 * visible, and every thread has finished with the previous slot, which is filled next.
 *
 *          ring    | values n-1 | keys n | values n | keys n+1 |
 *                    filled next  used     in flight
 */
#ifndef PENSTOCK_CUDA_ATTENTION_FEED_CUH
#define PENSTOCK_CUDA_ATTENTION_FEED_CUH

#include "kernels/cuda/attention/tile.cuh"

constexpr int ATTENTION_THREADS = ATTENTION_WARPS * WARP;
constexpr int SPLIT_RING = 3; /* slots of a warp's ring */

template <class C> struct attention_memory {
    static constexpr int RAW_ROW = C::CONVERTS ? C::DP * (int)sizeof(typename C::R) : C::ROW_BYTES;
    static constexpr int CONVERTED_ROW = C::CONVERTS ? C::ROW_BYTES : 0;
    static constexpr int WARP_BYTES = C::STEP * (CONVERTED_ROW + SPLIT_RING * RAW_ROW);
    static constexpr int BYTES = ATTENTION_WARPS * WARP_BYTES;
    static constexpr int BLOCKS = C::DP > 64 ? 2 : C::DP > 32 ? 3 : 4; /* per multiprocessor */
    static constexpr int WHOLE_RING = C::DP > 128 ? 3 : 4;
    static_assert(SPLIT * (CONVERTED_ROW + WHOLE_RING * RAW_ROW) <= BYTES, "a whole item's ring");
    /* A split's vectors in a warp's memory, before merging: D values, the largest score, the sum.
     * The distance of rows in banks is a multiple of 8 and not of 32. */
    static constexpr int PART_ROW = C::DP + 8;
    static_assert(SPLIT_VECTORS * PART_ROW * (int)sizeof(float) <= WARP_BYTES, "a warp's part");
};

/* A team's ring over the positions [begin, end), starting with the split at `start`. Other
 * positions of a slot, and elements beyond D, are zeros and not read. A slot has ROWS positions.
 * The slot of a call is a compile-time constant; offsets in the ring and in the table advance by
 * splits. */
template <class C, int TEAM, int ROWS, int RING> struct feeder {
    static constexpr int SLOT = ROWS * attention_memory<C>::RAW_ROW;
    static constexpr int SLOTS = SPLIT / ROWS;     /* slots for a split's keys */
    static constexpr bool ENDLESS = ROWS == SPLIT; /* otherwise there is one split */
    static constexpr int LOOKUPS = SPLIT / WARP;
    const struct kv_view &kv;
    const int32_t *table; /* the sequence's block table */
    int head;             /* key-value head */
    int D;
    int begin, end;
    char *converted, *ring;
    int filled, used;   /* ring offsets of the next slots */
    int start;          /* position of the next split to look up */
    int used_start;     /* position of the split in use */
    int entry[LOOKUPS]; /* table entries for this lane's positions in the split, 32 apart */
    int offset[LOOKUPS];
    int ahead[LOOKUPS];  /* their vectors; -1: outside the range */
    int vector[LOOKUPS]; /* the same for the split being filled */

    __device__ __forceinline__ feeder(const attention_args &args, const attention_item &item,
                                      int head_, int start_, int begin_, int end_, char *memory)
        : kv(args.kv), table(args.table + (size_t)item.sequence * args.table_stride), head(head_),
          D(head_size<C>(args)), begin(begin_), end(end_), converted(memory),
          ring(memory + ROWS * attention_memory<C>::CONVERTED_ROW), filled(0), used(0),
          start(start_), used_start(start_) {
#pragma unroll
        for (int i = 0; i < LOOKUPS; i++) {
            const int position = start + i * WARP + (int)threadIdx.x % WARP;
            entry[i] = position / kv.B;
            offset[i] = position % kv.B;
        }
        look_up();
        fill<0>();
        fill<1>();
        if (RING == 4 || !ENDLESS) fill<2>();
        static_assert(ENDLESS ? RING == 3 || RING == 4 : RING == 3,
                      "the calls above fill all slots");
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

    __device__ __forceinline__ bool looks_up(int p) const {
        return p >= begin && p < end;
    }

    /* Looks up the vectors of the next split and advances. */
    __device__ __forceinline__ void look_up() {
#pragma unroll
        for (int i = 0; i < LOOKUPS; i++) {
            const int position = start + i * WARP + (int)threadIdx.x % WARP;
            ahead[i] =
                looks_up(position) ? (int)kv_vector(kv, table[entry[i]], head, offset[i]) : -1;
            entry[i] += SPLIT / kv.B;
            offset[i] += SPLIT % kv.B;
            if (offset[i] >= kv.B) {
                offset[i] -= kv.B;
                entry[i]++;
            }
        }
        start += SPLIT;
    }

    /* Starts the copies of a slot, given by its number from the first or, if ENDLESS, of any slot
     * with the same role. Ends their group, which is empty after the only split. */
    template <int NUMBER> __device__ __forceinline__ void fill() {
        constexpr bool VALUES = NUMBER / SLOTS % 2;
        constexpr int ROW = NUMBER % SLOTS * ROWS;
        if (ENDLESS || NUMBER < 2 * SLOTS) {
            if (!VALUES && ROW == 0) {
#pragma unroll
                for (int i = 0; i < LOOKUPS; i++) vector[i] = ahead[i];
                if (ENDLESS) look_up();
            }
            copy<ROW>(ring + filled,
                      static_cast<const typename C::R *>(VALUES ? kv.values : kv.keys));
            filled = after(filled);
        }
        cp_async_commit();
    }

    /* The vector of a row of the split. `fixed` is the same row except for the lane's part, which
     * keeps it below 32. */
    template <bool FIXED> __device__ __forceinline__ int vector_of(int row, int fixed) const {
        const int lane = row % WARP;
        if (FIXED) return __shfl_sync(FULL_MASK, vector[fixed / WARP], lane);
        const int low = __shfl_sync(FULL_MASK, vector[0], lane);
        const int high = __shfl_sync(FULL_MASK, vector[1], lane);
        return row < WARP ? low : high;
    }

    /* The bytes by which rows of a tile are closer to each other than in the slot. */
    static constexpr unsigned STEP = C::TILES ? (C::DP - KV_COLUMN) * 2 : 0;
    /* The offset of a lane's chunk in its tile, minus the slot's rows before it. */
    static __device__ __forceinline__ int lane_place() {
        constexpr unsigned CHUNKS = C::DP / 8, LINE = KV_COLUMN / 8;
        const unsigned row = rank() / CHUNKS % KV_TILE, chunk = rank() % CHUNKS;
        return (int)((chunk / LINE * KV_TILE * LINE + chunk % LINE) * 16 - row * STEP);
    }

    /* A lane copies the same chunk of every APART-th row if whole rows make up a team's copies.
     * Rows of tiles have the same permutation in the cache and in a slot, so a chunk keeps its
     * place. */
    template <int ROW> __device__ __forceinline__ void copy(char *slot, const typename C::R *from) {
        constexpr unsigned N = 16 / (int)sizeof(typename C::R), CHUNKS = C::DP / N;
        constexpr unsigned APART = TEAM % CHUNKS == 0 ? TEAM / CHUNKS : 0;
        constexpr bool FIXED = APART > 0 && APART <= WARP;
        static_assert(ROWS * CHUNKS % WARP == 0, "whole warps shuffle");
        static_assert(!C::TILES || APART > 0, "whole rows of tiles");
        /* unsigned, because a signed division would need more instructions */
        const unsigned bytes = (unsigned)kv.D * (unsigned)sizeof *from;
        const char *column = reinterpret_cast<const char *>(from) + lane_place();
        const int place = chunk_at<C>((int)(rank() / CHUNKS), (int)(rank() % CHUNKS));
        if (C::CONVERTS || C::TILES) slot += rank() * 16;
        const bool tiles = kv_has_tiles(sizeof *from, D, kv.B);
#pragma unroll
        for (unsigned i = 0; i < ROWS * CHUNKS; i += TEAM) {
            const unsigned mine = i + rank();
            /* true for a whole warp */
            if (ROWS * CHUNKS % TEAM != 0 && mine >= ROWS * CHUNKS) break;
            const unsigned row = mine / CHUNKS, chunk = mine % CHUNKS;
            const int at = vector_of<FIXED>(ROW + (int)row, ROW + (int)(i / CHUNKS));
            const bool there = at != -1 && (C::EXACT || (int)(chunk * N) < D);
            char *to = slot;
            if (C::CONVERTS || C::TILES)
                to += (int)i * 16;
            else
                to += APART ? chunk_after<C>(place, (int)(i / CHUNKS), 0)
                            : chunk_at<C>((int)row, (int)chunk);
            const void *piece =
                (column + (uint64_t)(unsigned)at * bytes) - (int)(i / CHUNKS % KV_TILE * STEP);
            if (!C::TILES) piece = from + kv_element(tiles, (unsigned)at, (int)(chunk * N), kv.D);
            cp_async16(to, piece, there ? 16 : 0);
        }
    }

    /* Returns the next slot, ready for the products, given by its number from the first or, if
     * ENDLESS, of any slot with the same role. An ENDLESS ring has a spare slot, which is filled
     * here; otherwise a slot is free from the second call on. */
    template <int NUMBER> __device__ __forceinline__ const char *next() {
        constexpr bool VALUES = NUMBER / SLOTS % 2;
        cp_async_wait<!ENDLESS && NUMBER == 0 ? RING - 1 : RING - 2>();
        meet();
        if (ENDLESS)
            fill<(NUMBER + RING - 1) % 2>();
        else if (NUMBER > 0)
            fill<NUMBER + RING - 1>();
        char *raw = ring + used;
        used = after(used);
        if (!C::CONVERTS) return raw;
        convert(raw, used_start + NUMBER % SLOTS * ROWS, VALUES ? kv.value_scale : kv.key_scale);
        if (VALUES && ENDLESS) used_start += SPLIT;
        meet();
        return converted;
    }

    /* After the last slot: ends the open groups, which are empty. */
    __device__ __forceinline__ void end_copies() {
        cp_async_wait<0>();
    }

    /* Converts 8-bit elements of the positions from `first` on to operands, multiplied by their
     * blocks' scales. */
    __device__ __forceinline__ void convert(const char *raw, int first, const float *scales) {
        using T = typename C::T;
        using R = typename C::R;
        constexpr int CHUNKS = C::DP / 16;
        float scale[LOOKUPS];
#pragma unroll
        for (int i = 0; i < LOOKUPS; i++) {
            const int p = first + i * WARP + (int)threadIdx.x % WARP;
            scale[i] = i * WARP < ROWS && looks_up(p)
                           ? scales[kv_scale_index(kv, table[p / kv.B], head)]
                           : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < ROWS * CHUNKS; i += TEAM) {
            const int mine = i + (int)rank();
            if (mine >= ROWS * CHUNKS) break; /* true for a whole warp */
            const int row = mine / CHUNKS, chunk = mine % CHUNKS;
            const float low = __shfl_sync(FULL_MASK, scale[0], row % WARP);
            const float high = __shfl_sync(FULL_MASK, scale[1], row % WARP);
            const float by = row < WARP ? low : high;
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

#endif
