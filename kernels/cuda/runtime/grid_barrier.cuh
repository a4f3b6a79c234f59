/* DESIGN: a barrier of all blocks of a cooperative grid, in two halves, so that a block can do
 * independent work between them.
 *
 * The state is one word of global memory. Each block adds 1 when it arrives; block 0 adds the value
 * that makes the sum of all 2^31. So the highest bit flips when the last block arrives, the other
 * bits are zero again, and the word is ready for the next use and the next grid of any size. A
 * waiting block compares the highest bit with its value at the block's own arrival; it cannot flip
 * twice before this block arrives again.
 *
 *     all threads: write ... __syncthreads
 *     thread 0:    arrive (release) ... poll (acquire)
 *     all threads: __syncthreads ... read
 *
 * Memory order. The first __syncthreads orders the block's writes before thread 0's arrival, which
 * releases them. Arrivals modify one word in sequence, so a thread that acquires the last one sees
 * the writes of all blocks before their arrivals; the second __syncthreads passes them on to the
 * other threads. Polls are loads: an atomic would queue among the arrivals.
 */
#ifndef PENSTOCK_CUDA_GRID_BARRIER_CUH
#define PENSTOCK_CUDA_GRID_BARRIER_CUH

#include "kernels/cuda/runtime/ptx.cuh"

/* All threads of a block arrive. Thread 0 passes its result to grid_barrier_wait. The word is zero
 * before its first use. */
__device__ __forceinline__ unsigned grid_barrier_arrive(unsigned *word) {
    constexpr unsigned PHASE = 1u << 31;
    unsigned before = 0;
    __syncthreads();
    if (threadIdx.x == 0)
        before = add_release(word, blockIdx.x == 0 ? PHASE - (gridDim.x - 1) : 1u);
    return before;
}

/* All threads of a block wait until all blocks have arrived. Each then sees all writes before the
 * arrivals. Between the two calls the threads of a block may use __syncthreads. */
__device__ __forceinline__ void grid_barrier_wait(unsigned *word, unsigned before) {
    if (threadIdx.x == 0)
        while ((load_acquire(word) ^ before) >> 31 == 0) __nanosleep(20);
    __syncthreads();
}

#endif
