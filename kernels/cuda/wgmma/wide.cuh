/* Products for many rows on sm_90a, whose tensor cores multiply 64 outputs at once (wgmma).
 *
 * A block of three warpgroups stays on its multiprocessor and processes one piece of work after the
 * other: 128 outputs (8 tiles) by ROWS rows. One thread, the producer, fills a ring of STAGES
 * buffers by bulk copies: per slab, one contiguous range of x and one of each tile. Two warpgroups,
 * the consumers, take 4 tiles each. A warp loads its tile's slab into registers, where it is an
 * operand without conversion, and multiplies it by x in shared memory. While one consumer waits for
 * its products, the products of the other run.
 *
 *     full[s]    the producer's arrival and the bytes of a stage; consumers wait for it
 *     empty[s]   one arrival per consumer warp after its products; the producer waits for it
 *     sums[g]    a barrier of a consumer's warps, since the producer takes no part in barriers of
 *                the block
 *
 * The order of sums is that of the other kernels: the slabs of a range, then the ranges. If there
 * are few pieces, several blocks share the ranges of each. The first share adds its ranges and
 * stores their total in memory, because it begins the sum. The others store the sums of each range.
 * The last consumer of a piece adds all these parts in order:
 *
 *     8 ranges, 2 shares    [ range 0 + 1 + 2 + 3 ][ 4 ][ 5 ][ 6 ][ 7 ]
 *                           part 0                  1    2    3    4     */
#ifndef PENSTOCK_CUDA_WGMMA_WIDE_CUH
#define PENSTOCK_CUDA_WGMMA_WIDE_CUH

#include "kernels/cuda/gemm/mainloop.cuh"
#include "kernels/cuda/runtime/ptx90.cuh"
#include "kernels/cuda/wgmma/lines.cuh"

constexpr int WARPGROUP = 128, CONSUMERS = 2;

/* A block of ROWS rows with LINE bytes per row and slab, and STAGES stages in the ring. */
template <int ROWS_, int LINE_, int STAGES_> struct WideShape {
    static constexpr int ROWS = ROWS_, LINE = LINE_, STAGES = STAGES_, NB = 8;
    static constexpr int THREADS = (CONSUMERS + 1) * WARPGROUP;
    static constexpr int SUMS = ROWS / 2; /* sums per thread, for 64 outputs by ROWS rows */
    static constexpr int TILE_BYTES = GEMM_TILE * LINE;
    static constexpr int X_BYTES = ROWS * LINE, STAGE = X_BYTES + NB * TILE_BYTES;
    /* the consumers' sums pass through shared memory in parts of this many rows */
    static constexpr int PART_ROWS = ROWS < 64 ? ROWS : 64;
    static constexpr int PART_WIDE = 64 + 4, PART = PART_ROWS * PART_WIDE;
    static constexpr int PARTS_AT = STAGES * STAGE;
    static constexpr int BARRIERS_AT = PARTS_AT + CONSUMERS * PART * (int)sizeof(float);
    static constexpr int BARRIERS = 2 * STAGES + CONSUMERS;
    /* including the padding that aligns the ring to 1,024 */
    static constexpr int BYTES = BARRIERS_AT + BARRIERS * 8 + SWIZZLE_BYTES;
    static_assert(ROWS % PART_ROWS == 0 && STAGE % SWIZZLE_BYTES == 0, "whole parts and swizzles");
    static_assert(BYTES <= 227 << 10, "the limit of a block of sm_90");
};
/* For 16-bit numbers. */
template <int ROWS, int STAGES = 4> struct Wide : WideShape<ROWS, LINE_BYTES, STAGES> {};

/* The work of a launch. `all.share.blocks` blocks share the ranges of each piece. */
template <class T> struct WideWork {
    Products<T> all;
    struct arranged x;
    const float *scales; /* e4m3: scales of the rows; else NULL */
    int across;          /* number of blocks of rows */
    int pieces;          /* of all products, each `across` times its blocks */
    __host__ __device__ int shares() const {
        return pieces * all.share.blocks;
    }
};

/* The number of parts that the shares of a piece leave for each consumer. */
__host__ __device__ __forceinline__ int parts_of(int ranges, int shares) {
    return 1 + ranges - range_start(ranges, shares, 1);
}

/* ---- a block's shared memory ---------------------------------------------------------------- */

template <class S> struct WideMemory {
    uint8_t *ring;
    float *parts;
    uint64_t *full, *empty, *sums;
    __device__ __forceinline__ WideMemory() {
        uint8_t *all = dyn_smem<uint8_t>();
        ring = all + (SWIZZLE_BYTES - shared_address(all) % SWIZZLE_BYTES) % SWIZZLE_BYTES;
        parts = reinterpret_cast<float *>(ring + S::PARTS_AT);
        full = reinterpret_cast<uint64_t *>(ring + S::BARRIERS_AT);
        empty = full + S::STAGES;
        sums = empty + S::STAGES;
    }
    __device__ __forceinline__ void make_barriers() const {
        for (int i = 0; i < S::STAGES; i++) {
            mbarrier_init(full + i, 1);
            mbarrier_init(empty + i, CONSUMERS * WARPGROUP / WARP);
        }
        for (int i = 0; i < CONSUMERS; i++) mbarrier_init(sums + i, WARPGROUP / WARP);
        fence_proxy_async();
    }
};

/* A position in the ring, and the parity of its phases. */
template <class S> struct Turn {
    int stage = 0;
    unsigned parity = 0;
    __device__ __forceinline__ void next() {
        if (++stage < S::STAGES) return;
        stage = 0;
        parity ^= 1;
    }
};

/* A piece of work or a share of it: its product, first tile, first row, ranges, and the first part
 * that it leaves. Part 0 is the total of the first share, or of the whole piece if it has only one
 * share. */
struct Piece {
    int index, number, tile, row;
    int range, end_range;
    int part;
};
template <class S, class T>
__device__ __forceinline__ Piece piece_of(const WideWork<T> &work, int i) {
    const int shares = work.all.share.blocks, index = i / shares, share = i % shares;
    const int block = index / work.across, number = number_of(work.all, block);
    const int ranges = work.all.of[number].w.ranges, each = S::NB >> work.all.of[number].pair;
    const int range = range_start(ranges, shares, share);
    return {index,
            number,
            (block - work.all.first[number]) * each,
            index % work.across * S::ROWS,
            range,
            range_start(ranges, shares, share + 1),
            share == 0 ? 0 : 1 + range - range_start(ranges, shares, 1)};
}

/* ---- the producer --------------------------------------------------------------------------- */

/* Copies a slab of the 8 tiles; the tiles of a pair's matrices alternate. Missing tiles are
 * replaced by the last one. */
template <class S, class T>
__device__ __forceinline__ void copy_tiles(uint8_t *to, const Product<T> &p, int first, int slab,
                                           uint64_t *full) {
#pragma unroll
    for (int i = 0; i < S::NB; i++) {
        const int wanted = first + (i >> p.pair), last = p.w.tiles - 1;
        const int tile = wanted < last ? wanted : last;
        const uint8_t *codes = (i & p.pair) ? p.up.codes : p.w.codes;
        bulk_copy(to + i * S::TILE_BYTES, codes + ((size_t)tile * p.w.slabs + slab) * S::TILE_BYTES,
                  S::TILE_BYTES, full);
    }
}

/* Calls use(piece, slab) for each slab of the block's pieces until it returns false. */
template <class S, class T, class Use>
__device__ __forceinline__ void each_slab(const WideWork<T> &work, Use use) {
    for (int i = (int)blockIdx.x; i < work.shares(); i += (int)gridDim.x) {
        const Piece piece = piece_of<S>(work, i);
        const struct gemm_weights &w = work.all.of[piece.number].w;
        const int end = range_start(w.slabs, w.ranges, piece.end_range);
        for (int slab = range_start(w.slabs, w.ranges, piece.range); slab < end; slab++)
            if (!use(piece, slab)) return;
    }
}

/* Announces a stage and copies the weights of a slab to it. */
template <class S, class T>
__device__ __forceinline__ void begin_stage(const WideWork<T> &work, const WideMemory<S> &memory,
                                            int stage, const Piece &piece, int slab) {
    mbarrier_arrive_expect(memory.full + stage, S::STAGE);
    copy_tiles<S>(memory.ring + stage * S::STAGE + S::X_BYTES, work.all.of[piece.number],
                  piece.tile, slab, memory.full + stage);
}

/* The first weights are copied before the kernel that arranges the rows has ended. */
template <class S, class T>
__device__ __forceinline__ void produce(const WideWork<T> &work, const WideMemory<S> &memory) {
    int begun = 0;
    each_slab<S>(work, [&](const Piece &piece, int slab) {
        begin_stage<S>(work, memory, begun, piece, slab);
        return ++begun < S::STAGES;
    });
    grid_wait();
    fence_proxy_async(); /* the rows were arranged by a kernel's threads */
    Turn<S> turn;
    each_slab<S>(work, [&](const Piece &piece, int slab) {
        if (begun > 0) {
            begun--;
        } else {
            mbarrier_wait(memory.empty + turn.stage, turn.parity ^ 1);
            begin_stage<S>(work, memory, turn.stage, piece, slab);
        }
        bulk_copy(memory.ring + turn.stage * S::STAGE,
                  work.x.lines + work.x.offset(slab, piece.row, S::LINE), S::X_BYTES,
                  memory.full + turn.stage);
        turn.next();
        return true;
    });
}

/* ---- a consumer ----------------------------------------------------------------------------- */

struct Consumer {
    int group, warp, lane; /* warp: index in the warpgroup */
    unsigned parity;       /* of the next barrier of its warps */
};

/* A barrier of the consumer's threads; their earlier writes to shared memory are visible
 * afterwards. */
__device__ __forceinline__ void meet(uint64_t *barrier, Consumer &me) {
    __syncwarp();
    if (me.lane == 0) mbarrier_arrive(barrier);
    mbarrier_wait(barrier, me.parity);
    me.parity ^= 1;
}

/* acc += a slab of the consumer's tiles times the rows, both in a stage. */
template <class S, class T>
__device__ __forceinline__ void use_wide_stage(float (&acc)[S::SUMS], const uint8_t *stage,
                                               const Consumer &me) {
    const uint64_t x = shared_matrix(stage);
    uint32_t a[STEPS][4];
    const uint8_t *tile =
        stage + S::X_BYTES + (me.group * (S::NB / CONSUMERS) + me.warp) * S::TILE_BYTES;
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        load_words<false, 4>(a[step], tile + (step * WARP + me.lane) * 16);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        wgmma_m64k16<T>(acc, a[step], x + (uint64_t)step * (STEP_BYTES / 16));
    wgmma_commit();
    wgmma_wait<0>(acc);
}

/* ---- sharing a piece ------------------------------------------------------------------------ */

/* The place of a thread's first four sums in a consumer's part. */
template <class S, class T>
__device__ __forceinline__ float *left_of(const WideWork<T> &work, const Piece &piece, int part,
                                          const Consumer &me) {
    const struct Sharing &share = work.all.share;
    const int parts = parts_of(work.all.of[piece.number].w.ranges, share.blocks);
    const int before = piece.index - work.all.first[piece.number] * work.across;
    const int at = share.first[piece.number] + before * parts + part;
    return share.in.parts + (size_t)(at * CONSUMERS + me.group) * S::SUMS * WARPGROUP +
           threadIdx.x % WARPGROUP * 4;
}
template <int SUMS>
__device__ __forceinline__ void add_sums(float (&total)[SUMS], const float (&acc)[SUMS]) {
#pragma unroll
    for (int i = 0; i < SUMS; i++) total[i] = total[i] + acc[i];
}
template <int SUMS>
__device__ __forceinline__ void leave_sums(float *left, const float (&acc)[SUMS]) {
#pragma unroll
    for (int i = 0; i < SUMS; i += 4)
        store_vec<4>(left + i * WARPGROUP,
                     Vec<float, 4>{{acc[i], acc[i + 1], acc[i + 2], acc[i + 3]}});
}
template <int SUMS>
__device__ __forceinline__ void add_left_sums(float (&total)[SUMS], const float *left) {
#pragma unroll
    for (int i = 0; i < SUMS; i += 4) {
        const float4 v = __ldcg(reinterpret_cast<const float4 *>(left + i * WARPGROUP));
        total[i] = total[i] + v.x;
        total[i + 1] = total[i + 1] + v.y;
        total[i + 2] = total[i + 2] + v.z;
        total[i + 3] = total[i + 3] + v.w;
    }
}

/* Is this consumer the last of its piece? If so, it sees the sums of the others and has reset their
 * counter. `arrived` is shared memory without another use. */
template <class T>
__device__ __forceinline__ bool is_last_share(const WideWork<T> &work, const Piece &piece,
                                              volatile int *arrived, uint64_t *meeting,
                                              Consumer &me) {
    __threadfence();
    meet(meeting, me);
    if (threadIdx.x % WARPGROUP == 0) {
        int32_t *counter = work.all.share.in.counters + piece.index * CONSUMERS + me.group;
        *arrived = atomicAdd(counter, 1) + 1;
        if (*arrived == work.all.share.blocks) *counter = 0;
    }
    meet(meeting, me);
    if (*arrived < work.all.share.blocks) return false;
    __threadfence();
    return true;
}

/* Ends a share whose other parts are in memory; `total` is the first share's part. Returns true for
 * the last consumer of the piece, whose total is then that of all ranges. */
template <class S, class T>
__device__ __forceinline__ bool join_shares(float (&total)[S::SUMS], const WideWork<T> &work,
                                            const Piece &piece, volatile int *arrived,
                                            uint64_t *meeting, Consumer &me) {
    if (piece.part == 0) leave_sums(left_of<S>(work, piece, 0, me), total);
    if (!is_last_share(work, piece, arrived, meeting, me)) return false;
    const int parts = parts_of(work.all.of[piece.number].w.ranges, work.all.share.blocks);
#pragma unroll
    for (int i = 0; i < S::SUMS; i++) total[i] = 0.0f;
    for (int part = 0; part < parts; part++)
        add_left_sums(total, left_of<S>(work, piece, part, me));
    return true;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* The totals pass through shared memory, so that rows of y are written in order. */
template <class S, class T>
__device__ __forceinline__ void finish_wide(const Product<T> &p, const Piece &piece,
                                            const float (&total)[S::SUMS], float *part,
                                            uint64_t *meeting, Consumer &me) {
    const int wide = S::NB / CONSUMERS * GEMM_TILE >> p.pair;
    const int first = piece.tile * GEMM_TILE + me.group * wide;
#pragma unroll
    for (int rows = 0; rows < S::ROWS; rows += S::PART_ROWS) {
        meet(meeting, me); /* all threads have read the previous part */
#pragma unroll
        for (int i = 0; i < S::PART_ROWS / 2; i++) {
            const int m = i / 4 * GEMM_GROUP + me.lane % 4 * 2 + i % 2;
            const int n = me.warp * GEMM_TILE + me.lane / 4 + i / 2 % 2 * 8;
            part[m * S::PART_WIDE + n] = total[rows / 2 + i];
        }
        meet(meeting, me);
        for (int i = (int)threadIdx.x % WARPGROUP; i < S::PART_ROWS * wide; i += WARPGROUP) {
            const int m = i / wide, n = i % wide;
            const float *sums =
                part + m * S::PART_WIDE + (n / GEMM_TILE << p.pair) * GEMM_TILE + n % GEMM_TILE;
            store_output(p, piece.row + rows + m, first + n,
                         [&](int up) { return sums[up * GEMM_TILE]; });
        }
    }
}

/* acc = the sum of a range of the piece. Each kind of shape has its own multiply_range. */
template <int ROWS, int STAGES, class T, class S>
__device__ __forceinline__ void
multiply_range(Wide<ROWS, STAGES>, float (&acc)[S::SUMS], const Product<T> &p, int range,
               const WideMemory<S> &memory, Turn<S> &turn, const Consumer &me) {
    const int end = range_start(p.w.slabs, p.w.ranges, range + 1);
#pragma unroll
    for (int i = 0; i < S::SUMS; i++) acc[i] = 0.0f;
    for (int slab = range_start(p.w.slabs, p.w.ranges, range); slab < end; slab++, turn.next()) {
        const uint8_t *stage = memory.ring + turn.stage * S::STAGE;
        mbarrier_wait(memory.full + turn.stage, turn.parity);
        use_wide_stage<S, T>(acc, stage, me);
        __syncwarp(); /* all lanes have loaded */
        if (me.lane == 0) mbarrier_arrive(memory.empty + turn.stage);
    }
}

/* The operation on the totals of a piece before its epilogue, one function per kind of shape. */
template <int ROWS, int STAGES, class T, int SUMS>
__device__ __forceinline__ void scale_totals(Wide<ROWS, STAGES>, float (&)[SUMS],
                                             const WideWork<T> &, const Piece &, const Consumer &) {
}

template <class S, class T>
__device__ __forceinline__ void consume(const WideWork<T> &work, const WideMemory<S> &memory) {
    Consumer me = {(int)threadIdx.x / WARPGROUP, (int)threadIdx.x % WARPGROUP / WARP,
                   (int)threadIdx.x % WARP, 0};
    float *part = memory.parts + me.group * S::PART;
    uint64_t *meeting = memory.sums + me.group;
    Turn<S> turn;
    float acc[S::SUMS];
    for (int i = (int)blockIdx.x; i < work.shares(); i += (int)gridDim.x) {
        const Piece piece = piece_of<S>(work, i);
        const Product<T> &p = work.all.of[piece.number];
        float total[S::SUMS] = {};
        for (int range = piece.range; range < piece.end_range; range++) {
            multiply_range(S(), acc, p, range, memory, turn, me);
            if (piece.part == 0)
                add_sums(total, acc);
            else
                leave_sums(left_of<S>(work, piece, piece.part + range - piece.range, me), acc);
        }
        if (work.all.share.blocks > 1 &&
            !join_shares<S>(total, work, piece, reinterpret_cast<int *>(part), meeting, me))
            continue;
        scale_totals(S(), total, work, piece, me);
        finish_wide<S>(p, piece, total, part, meeting, me);
    }
}

/* Registers per thread of the producer and of a consumer; a block has 64 Ki. */
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;

template <class T, class S>
__global__ void __launch_bounds__(S::THREADS, 1)
    wide_kernel(const __grid_constant__ WideWork<T> work) {
    grid_let_next();
    const WideMemory<S> memory;
    if (threadIdx.x == 0) memory.make_barriers();
    __syncthreads();
    if (threadIdx.x >= CONSUMERS * WARPGROUP) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * WARPGROUP)
            produce<S>(work, memory);
        else
            grid_wait();
    } else {
        registers_take<CONSUMER_REGISTERS>();
        grid_wait(); /* for the previous grids, which may read y or write a residual */
        consume<S>(work, memory);
    }
}

#endif
