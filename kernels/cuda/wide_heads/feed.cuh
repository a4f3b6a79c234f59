/* wide_feed: the shared memory of a block, and the copies of keys and values to it.
 *
 * A unit is UNIT positions. There are two slots of one unit each. In latent attention a slot has a
 * unit's keys, which are its values too, and the next unit is copied during the use of this one.
 * Otherwise slot 0 has keys and slot 1 values: values are copied during the scores, and the next
 * keys during the sums of values.
 *
 *        latent   | unit n      | unit n+1    |      other    | keys n+1    | values n    |
 *                   used          in flight                     in flight     used
 *
 * A slot and the queries consist of tiles of 8 rows, as the cache does (kv_layout.cuh): tile
 * [D / 64][8][64], and the 16-byte piece i of line r is at i ^ r. So a cache of tiles is copied
 * unchanged, and ldmatrix meets no bank conflict. */
#ifndef PENSTOCK_CUDA_WIDE_HEADS_FEED_CUH
#define PENSTOCK_CUDA_WIDE_HEADS_FEED_CUH

#include "kernels/cuda/attention/kernel.cuh"

constexpr int UNIT = 32; /* positions */
constexpr int WIDE_WARPS = 8, WIDE_THREADS = WIDE_WARPS * WARP;
constexpr int WIDE_PARTS = 4;    /* partial sums of a score: a step of a line of 64 numbers each */
constexpr int LINE_BYTES = 1024; /* of a tile: 8 rows of 64 numbers */
constexpr int SCORE_BYTES = UNIT * (int)sizeof(float); /* a row of scores */

/* Keys of DK numbers of type T, and values of DV. SHARED: values are the first numbers of keys. A
 * block takes TILES times 16 vectors at a time. */
template <class T_, int DK_, int DV_, int TILES_> struct wide_kind {
    using T = T_;
    static constexpr int DK = DK_, DV = DV_, TILES = TILES_;
    static constexpr bool CAPS = true, SHARED = DK != DV;
    static constexpr int VECTORS = 16 * TILES, LINES = DK / KV_COLUMN;
    static constexpr int OWN = DV / WIDE_WARPS, CHUNKS = OWN / 8; /* numbers of a warp's values */
    static constexpr int BLOCKS = TILES == 1 ? 2 : 1;             /* per multiprocessor */
    static_assert(DK % KV_COLUMN == 0 && DV <= DK, "whole lines");
    static_assert(CHUNKS == 4 || CHUNKS == 8, "pieces of a warp are in one line");
};

/* The numbers that a block keeps for each vector: the positions that it sees; the softmax of the
 * span and of all earlier spans; the factors of a unit, of a span (two), and of the whole. */
enum wide_number {
    SEES_FIRST,
    SEES_LAST,
    SPAN_MOST,
    SPAN_SUM,
    ALL_MOST,
    ALL_SUM,
    UNIT_OLD,
    SPAN_OLD,
    SPAN_NOW,
    WHOLE_FACTOR,
    N_WIDE_NUMBERS
};

/* Offsets in the dynamic shared memory. The weights of a unit take the place of its first partial
 * scores. */
template <class C> struct wide_memory {
    static constexpr int SLOT = UNIT * C::DK * 2;
    static constexpr int SLOTS = C::VECTORS * C::DK * 2;
    static constexpr int SCORES = SLOTS + 2 * SLOT;
    static constexpr int NUMBERS = SCORES + WIDE_PARTS * C::VECTORS * SCORE_BYTES;
    static constexpr int BYTES = NUMBERS + N_WIDE_NUMBERS * C::VECTORS * (int)sizeof(float);
};

/* The offset of a row's piece of 8 numbers. */
template <class C> __device__ __forceinline__ int wide_place(int row, int piece) {
    const int line = row / KV_TILE * C::LINES + piece / 8;
    return line * LINE_BYTES + row % KV_TILE * 128 + (piece % 8 ^ row % KV_TILE) * 16;
}

/* Copies the units of the positions [begin, end) in order. Other positions are zeros and are not
 * read. Each lane looks up one position of a unit, two units before its use. */
template <class C> struct wide_feed {
    using T = typename C::T;
    const attention_args &args;
    const int32_t *table; /* the sequence's block table */
    int head, begin, end;
    char *slots;
    int used;  /* slot of the unit in use, in latent attention */
    int start; /* position of the next unit to look up */
    int now;   /* the vector of this lane's position in the unit being copied; -1: outside */
    int next;  /* the same for the unit after it */

    __device__ __forceinline__ wide_feed(const attention_args &args_, const attention_item &item,
                                         int head_, const seen &range)
        : args(args_), table(args.table + (size_t)item.sequence * args.table_stride), head(head_),
          begin(range.begin), end(range.end), slots(dyn_smem<char>() + wide_memory<C>::SLOTS),
          used(0), start(begin / UNIT * UNIT) {
        now = look_up();
        next = look_up();
        copy(slots, args.kv.keys);
    }

    __device__ __forceinline__ int look_up() {
        const int position = start + (int)threadIdx.x % WARP;
        start += UNIT;
        if (position < begin || position >= end) return -1;
        const struct kv_view &kv = args.kv;
        return (int)kv_vector(kv, table[position / kv.B], head, position % kv.B);
    }

    __device__ __forceinline__ void advance() {
        now = next;
        next = look_up();
    }

    /* Starts the copies of a unit and ends their group. Two warps copy a tile; a thread copies the
     * same piece of each line of a row. */
    __device__ __forceinline__ void copy(char *slot, const void *from) {
        const int tile = (int)threadIdx.x / 64, row = (int)threadIdx.x / 8 % KV_TILE;
        const int piece = (int)threadIdx.x % 8;
        static_assert(WIDE_THREADS / 64 * KV_TILE == UNIT, "64 threads copy a tile");
        const bool tiles = kv_has_tiles(sizeof(T), C::DK, args.kv.B);
        const int at = __shfl_sync(FULL_MASK, now, tile * KV_TILE + row); /* -1: outside */
        const size_t first = kv_element(tiles, (size_t)(at < 0 ? 0 : at), (piece ^ row) * 8, C::DK);
        const char *source = reinterpret_cast<const char *>(static_cast<const T *>(from) + first);
        const int apart = tiles ? LINE_BYTES : KV_COLUMN * (int)sizeof(T);
        slot += tile * C::LINES * LINE_BYTES + (int)threadIdx.x % 64 * 16;
#pragma unroll
        for (int line = 0; line < C::LINES; line++)
            cp_async16(slot + line * LINE_BYTES, source + line * apart, at < 0 ? 0 : 16);
        cp_async_commit();
    }

    /* Returns the next unit's keys. All threads call these three in turn. */
    __device__ __forceinline__ const char *keys() {
        cp_async_wait<0>();
        __syncthreads(); /* the keys are visible, and the other slot is free */
        const char *slot = slots + used * wide_memory<C>::SLOT;
        if (!C::SHARED) {
            copy(slots + wide_memory<C>::SLOT, args.kv.values);
            return slot;
        }
        advance();
        used ^= 1;
        copy(slots + used * wide_memory<C>::SLOT, args.kv.keys);
        return slot;
    }
    /* Ends the use of the keys for scores, which are then visible. */
    __device__ __forceinline__ void end_scores() {
        __syncthreads();
        if (C::SHARED) return;
        advance();
        copy(slots, args.kv.keys);
    }
    /* Returns the unit's values; its weights are then visible. */
    __device__ __forceinline__ const char *values() {
        if (!C::SHARED) cp_async_wait<1>();
        __syncthreads();
        return slots + (C::SHARED ? used ^ 1 : 1) * wide_memory<C>::SLOT;
    }
    /* After the last unit: ends the open group, which has zeros only. */
    __device__ __forceinline__ void end_copies() {
        cp_async_wait<0>();
    }
};

#endif
