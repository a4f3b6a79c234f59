/* Products for many rows on sm_100 and its family, whose tensor cores have separate memory
 * (tcgen05). This code compiles but has never run on a device.
 *
 * Work is divided and copied as for sm_90a (kernels/cuda/wgmma/wide.cuh): a block processes one
 * piece after the other, 128 outputs (8 tiles) by ROWS rows, and its producer fills a ring of
 * STAGES buffers. The difference is the division of labour among four warpgroups:
 *
 *     consumers   two, each with half of the rows: they add the sums of ranges, and finish
 *     movers      one: a tile's slab is packed in the layout of registers, which a descriptor of
 *                 shared memory cannot express, so its warps copy it to tensor memory, which
 *                 accepts this layout
 *     the last    one thread is the producer, one starts all products
 *
 * Tensor memory holds the sums of BUFFERS ranges, ROWS columns each, then the weights of the ring's
 * stages, 32 columns each.
 *
 *     full[s]    the bytes of a stage; movers and products wait for it
 *     ready[s]   one arrival per mover after its tiles are in tensor memory; products wait for it
 *     empty[s]   a slab's products are complete; the producer and the movers wait for it
 *     done[b]    a range's products are complete; consumers wait for it
 *     taken[b]   one arrival per consumer warp after it has loaded the range's sums
 *     sums[g]    a barrier of a consumer's warps
 *
 * The order of sums is that of the other kernels: the slabs of a range, then the ranges. */
#ifndef PENSTOCK_CUDA_TCGEN05_WIDE_CUH
#define PENSTOCK_CUDA_TCGEN05_WIDE_CUH

#include "kernels/cuda/tcgen05/ptx100.cuh"
#include "kernels/cuda/wgmma/launch.cuh"

/* A block of ROWS rows; members have the same meaning as in WideShape. */
template <int ROWS_> struct TensorShape {
    static constexpr int ROWS = ROWS_, LINE = LINE_BYTES, STAGES = 4, NB = 8;
    static constexpr int THREADS = (CONSUMERS + 2) * WARPGROUP;
    static constexpr int SUMS = ROWS / CONSUMERS; /* sums per thread, for one output */
    static constexpr int TILE_BYTES = GEMM_TILE * LINE;
    static constexpr int X_BYTES = ROWS * LINE, STAGE = X_BYTES + NB * TILE_BYTES;
    static constexpr int SLAB_COLUMNS = LINE / 4, BUFFERS = 256 / ROWS;
    static constexpr int WEIGHTS_AT = BUFFERS * ROWS; /* in tensor memory */
    /* a consumer's warp passes its sums through shared memory in parts of this many rows */
    static constexpr int PART_ROWS = 32, PART = PART_ROWS * WARP;
    static constexpr int PARTS_AT = STAGES * STAGE;
    static constexpr int WARPS = CONSUMERS * WARPGROUP / WARP; /* of consumers */
    static constexpr int BARRIERS_AT = PARTS_AT + WARPS * PART * (int)sizeof(float);
    static constexpr int BARRIERS = 3 * STAGES + CONSUMERS + 2 * BUFFERS;
    static constexpr int WORDS_AT = BARRIERS_AT + BARRIERS * 8, WORDS = CONSUMERS + 1;
    static constexpr int BYTES = WORDS_AT + WORDS * 4 + SWIZZLE_BYTES;
    static_assert(NB * GEMM_TILE == TENSOR_LANES && STAGE % SWIZZLE_BYTES == 0, "whole lanes");
    static_assert(WEIGHTS_AT + STAGES * SLAB_COLUMNS <= TENSOR_COLUMNS, "what there is");
    static_assert(BYTES <= 227 << 10, "the limit of a block of sm_100");
};
/* The ring of a shape's sums, for Turn. */
template <class S> struct SumsOf { static constexpr int STAGES = S::BUFFERS; };

/* Its shared memory; the barriers that sm_90a's kernel has too are at the same offsets. */
template <class S> struct TensorMemory : WideMemory<S> {
    uint64_t *ready, *done, *taken;
    int *arrived;   /* per consumer, for is_last_share */
    uint32_t *base; /* the address of tensor memory */
    __device__ __forceinline__ TensorMemory() {
        ready = this->sums + CONSUMERS;
        done = ready + S::STAGES;
        taken = done + S::BUFFERS;
        arrived = reinterpret_cast<int *>(this->ring + S::WORDS_AT);
        base = reinterpret_cast<uint32_t *>(arrived + CONSUMERS);
    }
    __device__ __forceinline__ void make_barriers() const {
        for (int i = 0; i < S::STAGES; i++) {
            mbarrier_init(this->full + i, 1);
            mbarrier_init(this->empty + i, 1);
            mbarrier_init(ready + i, WARPGROUP / WARP);
        }
        for (int i = 0; i < CONSUMERS; i++) mbarrier_init(this->sums + i, WARPGROUP / WARP);
        for (int i = 0; i < S::BUFFERS; i++) {
            mbarrier_init(done + i, 1);
            mbarrier_init(taken + i, S::WARPS);
        }
        fence_proxy_async();
    }
};

/* ---- the movers ----------------------------------------------------------------------------- */

/* Copies two tiles of a stage into the 32 lanes of tensor memory that this warp can access. */
template <class S>
__device__ __forceinline__ void move_tiles(const TensorMemory<S> &memory, int stage) {
    const int warp = (int)threadIdx.x % WARPGROUP / WARP, lane = (int)threadIdx.x % WARP;
    const uint8_t *tiles = memory.ring + stage * S::STAGE + S::X_BYTES;
    const uint32_t to = *memory.base + S::WEIGHTS_AT + stage * S::SLAB_COLUMNS;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int tile = warp * 2 + i;
        uint32_t w[STEPS][4];
#pragma unroll
        for (int step = 0; step < STEPS; step++)
            load_words<false, 4>(w[step], tiles + tile * S::TILE_BYTES + (step * WARP + lane) * 16);
        tensor_store_slab(to + ((uint32_t)(tile * GEMM_TILE) << 16), w);
    }
}

/* A stage's weights in tensor memory were multiplied before its buffer is full again. */
template <class S, class T>
__device__ __forceinline__ void move(const WideWork<T> &work, const TensorMemory<S> &memory) {
    Turn<S> turn;
    for (int i = (int)blockIdx.x; i < work.shares(); i += (int)gridDim.x) {
        const Piece piece = piece_of<S>(work, i);
        const struct gemm_weights &w = work.all.of[piece.number].w;
        const int end = range_start(w.slabs, w.ranges, piece.end_range);
        int slab = range_start(w.slabs, w.ranges, piece.range);
        for (; slab < end; slab++, turn.next()) {
            mbarrier_wait(memory.full + turn.stage, turn.parity);
            tensor_fence_after();
            move_tiles(memory, turn.stage);
            tensor_fence_before();
            __syncwarp();
            if (threadIdx.x % WARP == 0) mbarrier_arrive(memory.ready + turn.stage);
        }
    }
}

/* ---- the products --------------------------------------------------------------------------- */

/* Starts the products of a slab; the first of a range does not add. */
template <class S, class T>
__device__ __forceinline__ void multiply_slab(const TensorMemory<S> &memory, int stage, uint32_t d,
                                              bool first) {
    const uint64_t x = tensor_matrix(memory.ring + stage * S::STAGE);
    const uint32_t w = *memory.base + S::WEIGHTS_AT + stage * S::SLAB_COLUMNS;
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        tensor_product(d, w + step * (S::SLAB_COLUMNS / STEPS),
                       x + (uint64_t)step * (STEP_BYTES / 16), product_kind<T, S::ROWS>(),
                       !first || step > 0);
}

/* Waits until all products and all arrivals at stages are complete. */
template <class S>
__device__ __forceinline__ void wait_for_all(const TensorMemory<S> &memory, Turn<S> turn) {
    for (int i = 0; i < S::STAGES; i++, turn.next())
        mbarrier_wait(memory.empty + turn.stage, turn.parity ^ 1);
}

template <class S, class T>
__device__ __forceinline__ void multiply_all(const WideWork<T> &work,
                                             const TensorMemory<S> &memory) {
    Turn<S> turn;
    Turn<SumsOf<S>> to;
    for (int i = (int)blockIdx.x; i < work.shares(); i += (int)gridDim.x) {
        const Piece piece = piece_of<S>(work, i);
        const struct gemm_weights &w = work.all.of[piece.number].w;
        for (int range = piece.range; range < piece.end_range; range++, to.next()) {
            const int begin = range_start(w.slabs, w.ranges, range);
            const int end = range_start(w.slabs, w.ranges, range + 1);
            mbarrier_wait(memory.taken + to.stage, to.parity ^ 1);
            for (int slab = begin; slab < end; slab++, turn.next()) {
                mbarrier_wait(memory.full + turn.stage, turn.parity);
                mbarrier_wait(memory.ready + turn.stage, turn.parity);
                tensor_fence_after();
                multiply_slab<S, T>(memory, turn.stage, *memory.base + to.stage * S::ROWS,
                                    slab == begin);
                tensor_commit(memory.empty + turn.stage);
            }
            tensor_commit(memory.done + to.stage);
        }
    }
    wait_for_all(memory, turn);
}

/* ---- a consumer ----------------------------------------------------------------------------- */

/* total += the sums of a range from tensor memory, for this thread's output and its consumer's
 * rows; with `left` the sums stay there. */
template <class S>
__device__ __forceinline__ void take_sums(float (&total)[S::SUMS], float *left, uint32_t from) {
#pragma unroll
    for (int i = 0; i < S::SUMS; i += 16) {
        float acc[16];
        tensor_load(acc, from + i);
        if (left) leave_sums(left + i * WARPGROUP, acc);
#pragma unroll
        for (int j = 0; j < 16; j++) total[i + j] = total[i + j] + acc[j];
    }
}

/* Stores the totals: a lane has an output, or with a pair the upper lanes have its `up`. They pass
 * through shared memory, because a loop cannot index registers. */
template <class S, class T>
__device__ __forceinline__ void finish_tensor(const Product<T> &p, const Piece &piece,
                                              const float (&total)[S::SUMS], float *part,
                                              const Consumer &me) {
    const int wide = WARP >> p.pair;
    const int n = piece.tile * GEMM_TILE + me.warp * wide + me.lane;
    const int row = piece.row + me.group * S::SUMS;
#pragma unroll
    for (int first = 0; first < S::SUMS; first += S::PART_ROWS) {
        __syncwarp(); /* all lanes have read the previous part */
#pragma unroll
        for (int i = 0; i < S::PART_ROWS; i++) part[i * WARP + me.lane] = total[first + i];
        __syncwarp();
        if (me.lane >= wide) continue;
        for (int i = 0; i < S::PART_ROWS; i++)
            store_output(p, row + first + i, n,
                         [&](int up) { return part[i * WARP + me.lane + up * GEMM_TILE]; });
    }
}

template <class S, class T>
__device__ __forceinline__ void consume_sums(const WideWork<T> &work,
                                             const TensorMemory<S> &memory) {
    Consumer me = {(int)threadIdx.x / WARPGROUP, (int)threadIdx.x % WARPGROUP / WARP,
                   (int)threadIdx.x % WARP, 0};
    float *part = memory.parts + (me.group * (WARPGROUP / WARP) + me.warp) * S::PART;
    const uint32_t mine = *memory.base + ((uint32_t)(me.warp * WARP) << 16) + me.group * S::SUMS;
    Turn<SumsOf<S>> turn;
    for (int i = (int)blockIdx.x; i < work.shares(); i += (int)gridDim.x) {
        const Piece piece = piece_of<S>(work, i);
        const Product<T> &p = work.all.of[piece.number];
        float total[S::SUMS] = {};
        for (int range = piece.range; range < piece.end_range; range++, turn.next()) {
            const int left_part = piece.part + range - piece.range;
            float *left = piece.part == 0 ? nullptr : left_of<S>(work, piece, left_part, me);
            mbarrier_wait(memory.done + turn.stage, turn.parity);
            tensor_fence_after();
            take_sums<S>(total, left, mine + turn.stage * S::ROWS);
            tensor_fence_before();
            __syncwarp();
            if (me.lane == 0) mbarrier_arrive(memory.taken + turn.stage);
        }
        if (work.all.share.blocks > 1 &&
            !join_shares<S>(total, work, piece, memory.arrived + me.group, memory.sums + me.group,
                            me))
            continue;
        finish_tensor<S>(p, piece, total, part, me);
    }
}

/* Registers per thread of consumers and of the others; a block has 64 Ki. */
constexpr int TENSOR_CONSUMER_REGISTERS = 200, TENSOR_OTHER_REGISTERS = 56;

template <class T, class S>
__global__ void __launch_bounds__(S::THREADS, 1)
    tensor_kernel(const __grid_constant__ WideWork<T> work) {
    grid_begin();
    const TensorMemory<S> memory;
    const int group = (int)threadIdx.x / WARPGROUP;
    if (threadIdx.x < WARP) tensor_take(memory.base);
    if (threadIdx.x == 0) memory.make_barriers();
    tensor_fence_before();
    __syncthreads();
    tensor_fence_after();
    if (group < CONSUMERS) {
        registers_take<TENSOR_CONSUMER_REGISTERS>();
        consume_sums<S>(work, memory);
    } else {
        registers_give<TENSOR_OTHER_REGISTERS>();
        if (group == CONSUMERS)
            move<S>(work, memory);
        else if (threadIdx.x % WARPGROUP == 0)
            produce<S>(work, memory);
        else if (threadIdx.x % WARPGROUP == WARP)
            multiply_all<S>(work, memory);
    }
    tensor_fence_before();
    __syncthreads();
    tensor_fence_after();
    if (threadIdx.x < WARP) tensor_give(*memory.base);
}

#endif
