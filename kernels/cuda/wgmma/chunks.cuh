/* Attention for chunks of prompts on sm_90a: items of up to CHUNK_VECTORS query vectors.
 *
 * A block of three warpgroups stays on its multiprocessor and processes one item and key-value head
 * after the other. One warp, the producer, fills a ring of slots alternately with keys and values
 * of a split, as tiles of 8 positions in their layout in the cache (kv_layout.cuh). Two warpgroups,
 * the consumers, take 64 vectors each, 16 per warp. Queries and softmax weights are register
 * operands; the tensor cores read keys and values from shared memory.
 *
 *     full[s]    the producer's arrival and the bytes of a slot; consumers wait for it
 *     empty[s]   one arrival per consumer warp after its products; the producer waits for it
 *     keys[g]    one arrival per warp of the other consumer after it has queued its products;
 *                consumer g waits for it before it multiplies by keys. So the consumers alternate,
 *                and the softmax of one overlaps with the products of the other
 *
 * Softmax and merging are those of the other kernel (tile.cuh), in the same order: the sums of a
 * split begin with zero, and splits and spans are merged one by one. */
#ifndef PENSTOCK_CUDA_WGMMA_CHUNKS_CUH
#define PENSTOCK_CUDA_WGMMA_CHUNKS_CUH

#include "kernels/cuda/attention/kernel.cuh"
#include "kernels/cuda/wgmma/wide.cuh"

constexpr int CHUNK_THREADS = (CONSUMERS + 1) * WARPGROUP;
constexpr int CONSUMER_VECTORS = CHUNK_VECTORS / CONSUMERS;
static_assert(CONSUMER_VECTORS == WARPGROUP / WARP * SPLIT_VECTORS, "16 vectors a warp");

template <class C> struct ChunkMemory {
    static constexpr int STAGES = 6;
    /* bytes, as are the sizes below */
    static constexpr int LINE = KV_COLUMN * 2, COLUMN = KV_TILE * LINE;
    static constexpr int TILE = C::DP / KV_COLUMN * COLUMN, SLOT = SPLIT / KV_TILE * TILE;
    static constexpr int BARRIERS = 2 * STAGES + CONSUMERS;
    static constexpr int BYTES = STAGES * SLOT + BARRIERS * 8 + SWIZZLE_BYTES;
    static_assert(C::TILES && COLUMN == SWIZZLE_BYTES, "tiles that wgmma reads as they lie");
    uint8_t *ring;
    uint64_t *full, *empty, *keys;
    __device__ __forceinline__ ChunkMemory() {
        uint8_t *all = dyn_smem<uint8_t>();
        ring = all + (SWIZZLE_BYTES - shared_address(all) % SWIZZLE_BYTES) % SWIZZLE_BYTES;
        full = reinterpret_cast<uint64_t *>(ring + STAGES * SLOT);
        empty = full + STAGES;
        keys = empty + STAGES;
    }
    __device__ __forceinline__ void make_barriers() const {
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(full + i, 1);
            mbarrier_init(empty + i, CONSUMERS * WARPGROUP / WARP);
        }
        for (int i = 0; i < CONSUMERS; i++) mbarrier_init(keys + i, WARPGROUP / WARP);
        fence_proxy_async();
    }
};

/* An item and a part of the query heads, from its number in the launch. */
struct chunk {
    attention_item item;
    head_block heads;
    seen all; /* range seen by its rows */
};
__device__ __forceinline__ chunk chunk_of(const attention_args &args, const attention_launch &how,
                                          int i) {
    const attention_item item = args.items[i / how.n_y];
    return {item, block_of(args, how, i % how.n_y), seen_by(args, item.row, item.rows)};
}

/* ---- the producer --------------------------------------------------------------------------- */

/* The positions of a tile that its lane copies: first..end-1, starting at `vector`. */
struct tile_rows {
    int vector, first, end;
};

/* Lane i gets the positions of tile i of the split at `start` that the item's rows see; other lanes
 * get an empty range. */
__device__ __forceinline__ tile_rows rows_of_tile(const attention_args &args, const chunk &work,
                                                  int start, int lane) {
    const int position = start + lane * KV_TILE, B = args.kv.B;
    const int first = max(work.all.begin - position, 0);
    const int end = min(work.all.end - position, KV_TILE);
    if (lane >= SPLIT / KV_TILE || first >= end) return {0, 0, 0};
    const int32_t *table = args.table + (size_t)work.item.sequence * args.table_stride;
    const size_t vector = kv_vector(args.kv, table[position / B], work.heads.kv_head, position % B);
    return {(int)vector, first, end};
}

/* Fills the rest of a slot with zeros: positions `begin` to `end` of the split. */
template <class C> __device__ __forceinline__ void clear_rest(uint8_t *slot, int begin, int end) {
    using S = ChunkMemory<C>;
    for (int at = (int)threadIdx.x % WARP * 16; at < S::SLOT; at += WARP * 16) {
        const int row = at / S::TILE * KV_TILE + at % S::COLUMN / S::LINE;
        if (row < begin || row >= end)
            store16(reinterpret_cast<uint32_t *>(slot + at), Vec16<uint32_t>{});
    }
}

/* Copies a lane's tile, or only the seen lines of each column. */
template <class C>
__device__ __forceinline__ void copy_tile(uint8_t *to, const void *elements, const tile_rows &rows,
                                          uint64_t *full) {
    using S = ChunkMemory<C>;
    const uint8_t *from = static_cast<const uint8_t *>(elements) + (size_t)rows.vector * C::DP * 2;
    if (rows.end - rows.first == KV_TILE) {
        bulk_copy(to, from, S::TILE, full);
    } else if (rows.end > rows.first) {
        const int line = rows.first * S::LINE, bytes = (rows.end - rows.first) * S::LINE;
        for (int at = line; at < S::TILE; at += S::COLUMN)
            bulk_copy(to + at, from + at, bytes, full);
    }
}

/* Fills a slot with keys or values of the split at `start`. */
template <class C>
__device__ __forceinline__ void fill_slot(const ChunkMemory<C> &memory,
                                          const Turn<ChunkMemory<C>> &turn, const void *elements,
                                          const chunk &work, int start, const tile_rows &rows) {
    using S = ChunkMemory<C>;
    const int lane = (int)threadIdx.x % WARP;
    const int begin = max(work.all.begin - start, 0), end = min(work.all.end - start, SPLIT);
    uint8_t *slot = memory.ring + turn.stage * S::SLOT;
    uint64_t *full = memory.full + turn.stage;
    mbarrier_wait(memory.empty + turn.stage, turn.parity ^ 1);
    if (end - begin < SPLIT) {
        clear_rest<C>(slot, begin, end);
        fence_proxy_async();
    }
    __syncwarp(); /* all lanes have cleared their part */
    if (lane == 0) mbarrier_arrive_expect(full, (unsigned)(end - begin) * C::DP * 2);
    __syncwarp();
    copy_tile<C>(slot + lane * S::TILE, elements, rows, full);
}

template <class C>
__device__ __forceinline__ void produce_splits(const attention_args &args,
                                               const attention_launch &how, int n,
                                               const ChunkMemory<C> &memory) {
    const int lane = (int)threadIdx.x % WARP;
    Turn<ChunkMemory<C>> turn;
    fence_proxy_async(); /* keys and values were written by a kernel's threads */
    for (int i = (int)blockIdx.x; i < n; i += (int)gridDim.x) {
        const chunk work = chunk_of(args, how, i);
        for (int start = work.all.begin / SPLIT * SPLIT; start < work.all.end; start += SPLIT) {
            const tile_rows rows = rows_of_tile(args, work, start, lane);
            fill_slot<C>(memory, turn, args.kv.keys, work, start, rows);
            turn.next();
            fill_slot<C>(memory, turn, args.kv.values, work, start, rows);
            turn.next();
        }
    }
}

/* ---- a consumer ----------------------------------------------------------------------------- */

struct chunk_consumer {
    int group, warp, lane; /* warp: index in the warpgroup */
    unsigned parity;       /* of its next turn to multiply by keys */
    __device__ __forceinline__ int first_vector() const {
        return group * CONSUMER_VECTORS + warp * SPLIT_VECTORS;
    }
};

/* Each consumer waits for the other once per split; the first one begins. */
__device__ __forceinline__ void wait_for_other(uint64_t *keys, chunk_consumer &me) {
    mbarrier_wait(keys + me.group, me.parity ^ (me.group == 0));
    me.parity ^= 1;
}
__device__ __forceinline__ void let_other(uint64_t *keys, const chunk_consumer &me) {
    __syncwarp();
    if (me.lane == 0) mbarrier_arrive(keys + (me.group ^ 1));
}

/* Releases the slot after the warp's products. */
template <class C>
__device__ __forceinline__ void leave_slot(const ChunkMemory<C> &memory, Turn<ChunkMemory<C>> &turn,
                                           const chunk_consumer &me) {
    __syncwarp();
    if (me.lane == 0) mbarrier_arrive(memory.empty + turn.stage);
    turn.next();
}

/* The sums of a product as registers. */
template <int COLUMNS> __device__ __forceinline__ auto &sums_of(float (&x)[COLUMNS][4]) {
    return reinterpret_cast<float(&)[COLUMNS * 4]>(x);
}
/* Queues s = q . keys for the slot's 64 positions. */
template <class C>
__device__ __forceinline__ void queue_keys(scores &s, const queries<C> &q, const uint8_t *slot) {
    using S = ChunkMemory<C>;
    constexpr int STEPS = KV_COLUMN / 16; /* of a column */
    const uint64_t keys = shared_matrix(slot, S::TILE);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < C::DP / 16; k++)
        wgmma_m64k16<typename C::T>(sums_of(s), q.a[k],
                                    keys + (uint64_t)(k / STEPS * S::COLUMN + k % STEPS * 32) / 16,
                                    k > 0);
    wgmma_commit();
}

/* o = p . values for all numbers of a head. */
template <class C>
__device__ __forceinline__ void multiply_slot(float (&o)[C::DP / 8][4], const weights &p,
                                              const uint8_t *slot) {
    using S = ChunkMemory<C>;
    const uint64_t values = shared_matrix_rows(slot, S::TILE, S::COLUMN);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < SPLIT / 16; i++)
        wgmma_m64k16_rows<typename C::T>(
            sums_of(o), p[i], values + (uint64_t)(i * (16 / KV_TILE) * S::TILE) / 16, i > 0);
    wgmma_commit();
    wgmma_wait<0>(sums_of(o));
}

/* Like merge_split, for complete values. */
template <class C>
__device__ __forceinline__ void merge_products(softmax<C> &span, const float (&o)[C::DP / 8][4],
                                               const split_weight &part, const queries<C> &q,
                                               int split) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        merging by = {1.0f, -0.0f};
        if (sees_split(q.first[r], q.last[r], split))
            by = merge_sums(span.most[r], span.sum[r], part.most[r], part.sum[r]);
#pragma unroll
        for (int c = 0; c < C::DP / 8; c++)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; e++)
                span.o[c][e] = merge_value(span.o[c][e], o[c][e], by);
    }
}

/* Do all of a warp's vectors see all of a split? Usually they do, and no masks are needed. */
template <class C> __device__ __forceinline__ bool all_see(const queries<C> &q, int start) {
    const int first = max(q.first[0], q.first[1]), last = min(q.last[0], q.last[1]);
    return __all_sync(FULL_MASK, first <= start && last >= start + SPLIT - 1);
}

/* Processes a split for the warpgroup's vectors; its keys and values are the next two slots. */
template <class C>
__device__ __forceinline__ void
attend_slots(const attention_args &args, softmax<C> &span, const queries<C> &q, int start,
             const ChunkMemory<C> &memory, Turn<ChunkMemory<C>> &turn, chunk_consumer &me) {
    using S = ChunkMemory<C>;
    weights p;
    scores s;
    mbarrier_wait(memory.full + turn.stage, turn.parity);
    wait_for_other(memory.keys, me);
    queue_keys<C>(s, q, memory.ring + turn.stage * S::SLOT);
    let_other(memory.keys, me);
    wgmma_wait<0>(sums_of(s));
    leave_slot(memory, turn, me);
    const bool all = all_see(q, start);
    const split_weight part =
        all ? weigh<C, true>(p, s, q, args, start) : weigh<C>(p, s, q, args, start);
    mbarrier_wait(memory.full + turn.stage, turn.parity);
    float o[C::DP / 8][4];
    multiply_slot<C>(o, p, memory.ring + turn.stage * S::SLOT);
    leave_slot(memory, turn, me);
    merge_products<C>(span, o, part, q, start / SPLIT);
}

/* Skips a split that none of the warpgroup's vectors sees; it would not change the result. */
template <class C>
__device__ __forceinline__ void pass_slots(const ChunkMemory<C> &memory, Turn<ChunkMemory<C>> &turn,
                                           chunk_consumer &me) {
    mbarrier_wait(memory.full + turn.stage, turn.parity);
    wait_for_other(memory.keys, me);
    let_other(memory.keys, me);
    leave_slot(memory, turn, me);
    mbarrier_wait(memory.full + turn.stage, turn.parity);
    leave_slot(memory, turn, me);
}

template <class C>
__device__ __forceinline__ void consume_splits(const attention_args &args,
                                               const attention_launch &how, int n,
                                               const ChunkMemory<C> &memory) {
    chunk_consumer me = {(int)threadIdx.x / WARPGROUP, (int)threadIdx.x % WARPGROUP / WARP,
                         (int)threadIdx.x % WARP, 0};
    Turn<ChunkMemory<C>> turn;
    for (int i = (int)blockIdx.x; i < n; i += (int)gridDim.x) {
        const chunk work = chunk_of(args, how, i);
        const seen mine = seen_by_vectors(args, work.item, how.heads, me.group * CONSUMER_VECTORS,
                                          CONSUMER_VECTORS);
        queries<C> q;
        softmax<C> span;
        softmax_total<C> total;
        load_queries<C>(q, how.act, args, work.item, work.heads, me.first_vector());
        softmax_clear<C>(span);
        softmax_clear<C>(total);
        for (int start = work.all.begin / SPLIT * SPLIT; start < work.all.end; start += SPLIT) {
            if (start < mine.end && start + SPLIT > mine.begin)
                attend_slots<C>(args, span, q, start, memory, turn, me);
            else
                pass_slots<C>(memory, turn, me);
            if ((start + SPLIT) % SPAN != 0 && start + SPLIT < work.all.end) continue;
            merge_span<C>(total, span, q, start / SPAN);
            softmax_clear<C>(span);
        }
        finish<C>(total, q, how.act, args);
    }
}

/* ---- the kernel ----------------------------------------------------------------------------- */

/* Processes n items and parts of query heads. */
template <class C>
__global__ void __launch_bounds__(CHUNK_THREADS, 1)
    chunk_kernel(const __grid_constant__ attention_args args,
                 const __grid_constant__ attention_launch how, int n) {
    grid_begin();
    const ChunkMemory<C> memory;
    if (threadIdx.x == 0) memory.make_barriers();
    __syncthreads();
    if (threadIdx.x >= CONSUMERS * WARPGROUP) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x < CONSUMERS * WARPGROUP + WARP) produce_splits<C>(args, how, n, memory);
    } else {
        registers_take<CONSUMER_REGISTERS>();
        consume_splits<C>(args, how, n, memory);
    }
}

#endif
