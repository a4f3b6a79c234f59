/* step_kernel: one cooperative grid that executes a step's orders in sequence. Each block takes
 * every gridDim.x-th item of an order; all blocks meet at a barrier between orders. The items are
 * computed by the same functions as in the kernels of single ops, so the bits are the same.
 *
 * A block copies an order to its shared memory during the previous order. Products prefetch their
 * first weights before they wait for their inputs, and the next weights before they finish a tile.
 */
#ifndef PENSTOCK_CUDA_PERSISTENT_KERNEL_CUH
#define PENSTOCK_CUDA_PERSISTENT_KERNEL_CUH

#include "kernels/cuda/attention/heads.cuh"
#include "kernels/cuda/attention/kernel.cuh"
#include "kernels/cuda/gemm/skinny.cuh"
#include "kernels/cuda/persistent/persistent.cuh"
#include "kernels/cuda/rows/math.cuh"
#include "kernels/cuda/runtime/grid_barrier.cuh"

static_assert(STEP_WARPS >= ATTENTION_WARPS, "a warp for each split of a span");

/* The barrier before the current order. */
struct wait_for_blocks {
    unsigned *word;
    unsigned before; /* result of grid_barrier_arrive */
    bool waits;
    __device__ __forceinline__ void operator()() const {
        if (waits) grid_barrier_wait(word, before);
    }
};

/* ---- the kinds of orders -------------------------------------------------------------------- */

/* These functions are calls and not part of the kernel, so that the registers of one kind of order
 * do not limit the others. */

/* Computes tiles of some products whose rows are normalised once. A warp takes every STEP_WARPS-th
 * part of a tile, as a warp of the skinny kernel does. */
template <class T, int C, bool NORMED>
__device__ __attribute__((noinline)) void do_products(const Products<T> &all, int items,
                                                      wait_for_blocks wait) {
    using F = Format16;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int item = (int)blockIdx.x, part = warp;
    TileWork<F, T> work;
    if (item < items) work = begin_tile<F>(all, item, part, lane);
    wait();
    if (item >= items) return;
    /* x, M and K are equal for all products */
    const BlockRows<T> rows = rows_of_block<NORMED>(*all.of, all.norm);
    while (true) {
        sum_tile<F, T, C, true>(rows, work, part, lane);
        const Product<T> &p = *work.p;
        const int tile = work.tile;
        part += STEP_WARPS;
        const bool complete = part - warp >= warps_of(p);
        if (complete) item += (int)gridDim.x, part = warp;
        if (item < items) work = begin_tile<F>(all, item, part, lane);
        if (!complete) continue;
        __syncthreads();
        finish_tile<T, C>(rows.sums, p, tile);
        if (item >= items) break;
        __syncthreads(); /* the sums are written again */
    }
}

template <class R, int DP>
__device__ __attribute__((noinline)) void do_attention(const attention_work &work, int items,
                                                       int across) {
    using C = attention_kind<R, R, DP, true, false>;
    for (int i = (int)blockIdx.x; i < items * across; i += (int)gridDim.x) {
        const attention_item item = work.args.items[i % items];
        if (item.rows == 0) continue;
        attend_splits<C, STEP_THREADS>(work.args, work.how, item, i / items);
        __syncthreads(); /* the warps' memory is written again */
    }
}

/* Computes attention for one kind of heads and cache. persistent.cu admits only this kind to a
 * list. */
__device__ __forceinline__ void do_attention_of(const attention_work &work, const order &order) {
    const bool f16 = order.type == DTYPE_F16;
    if (work.args.kv.D == 64 && f16)
        do_attention<__half, 64>(work, order.items, order.across);
    else if (work.args.kv.D == 64)
        do_attention<__nv_bfloat16, 64>(work, order.items, order.across);
    else if (f16)
        do_attention<__half, 128>(work, order.items, order.across);
    else
        do_attention<__nv_bfloat16, 128>(work, order.items, order.across);
}

/* One warp per head; adjacent heads are in different blocks. */
template <class T, class KV>
__device__ __attribute__((noinline)) void do_heads(const heads_args<T> &args, int rows) {
    const int heads = heads_of(args), lane = threadIdx.x % WARP;
    const int first = (int)(threadIdx.x / WARP * gridDim.x + blockIdx.x);
    for (int i = first; i < rows * heads; i += STEP_WARPS * (int)gridDim.x)
        prepare_head<T, KV>(args, i / heads, i % heads, lane);
}

/* ---- an order ------------------------------------------------------------------------------- */

template <class Args> __device__ __forceinline__ const Args &args_of(const order &order) {
    static_assert(sizeof(Args) <= ORDER_BYTES, "it has room in an order");
    return *reinterpret_cast<const Args *>(order.args);
}

template <class T, int C>
__device__ __forceinline__ void do_order(const order &order, const wait_for_blocks &wait) {
    const int items = order.items, first = (int)blockIdx.x, apart = (int)gridDim.x;
    if (order.kind == ORDER_PRODUCT)
        return do_products<T, C, false>(args_of<Products<T>>(order), items, wait);
    if (order.kind == ORDER_NORMED_PRODUCT)
        return do_products<T, C, true>(args_of<Products<T>>(order), items, wait);
    wait();
    if (order.kind == ORDER_ATTENTION) {
        do_attention_of(args_of<attention_work>(order), order);
    } else if (order.kind == ORDER_HEADS) {
        if (order.type == DTYPE_F16)
            do_heads<T, __half>(args_of<heads_args<T>>(order), items);
        else
            do_heads<T, __nv_bfloat16>(args_of<heads_args<T>>(order), items);
    } else if (order.kind == ORDER_ANGLES) {
        for (int i = first * STEP_THREADS + (int)threadIdx.x; i < items; i += apart * STEP_THREADS)
            make_angle(args_of<angles_args>(order), i);
    } else if (order.kind == ORDER_EMBED) {
        for (int m = first; m < items; m += apart)
            embed_row<Format16>(args_of<EmbedArgs<T>>(order), m);
    } else if (order.kind == ORDER_GATHER) {
        for (int m = first; m < items; m += apart)
            gather_row<T, Vec16<T>::N>(args_of<gather_args<T>>(order), m);
    }
}

/* ---- the kernel ----------------------------------------------------------------------------- */

/* Copies an order to shared memory. All threads can read it after the next __syncthreads. */
__device__ __forceinline__ void copy_order(order *to, const order *from) {
    constexpr int PIECE = 16, PIECES = sizeof(order) / PIECE;
    static_assert(PIECES <= STEP_THREADS, "a thread a piece");
    const int i = (int)threadIdx.x;
    if (i >= PIECES) return;
    store16(reinterpret_cast<uint32_t *>(to) + i * PIECE / 4,
            load16(reinterpret_cast<const uint32_t *>(from) + i * PIECE / 4));
}

template <class T, int C>
__global__ void __launch_bounds__(STEP_THREADS, 1)
    step_kernel(const order *orders, int n, unsigned *word) {
    __shared__ order near[2];
    unsigned before = 0;
    copy_order(&near[0], &orders[0]);
    __syncthreads();
    for (int i = 0; i < n; i++) {
        const order &now = near[i % 2];
        if (i + 1 < n) copy_order(&near[(i + 1) % 2], &orders[i + 1]);
        do_order<T, C>(now, {word, before, now.waits});
        if (now.meets)
            before = grid_barrier_arrive(word);
        else
            __syncthreads();
    }
}

#endif
