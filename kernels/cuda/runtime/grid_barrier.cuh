/* DESIGN: a barrier of all blocks of a cooperative grid, in two halves, so that a block can do
 * between them what needs nothing of the others.
 *
 * One word of global memory. Each block adds 1 when it arrives, and block 0 as much as makes the
 * sum of all 2^31: the highest bit changes when the last one arrives, and the others are zeros
 * again, so the word is ready for the next use and the next grid, whatever its size. Who waits
 * compares the highest bit with what it was at its own arrival; it cannot change twice before that
 * block arrives again.
 *
 *     all threads: write ... __syncthreads
 *     thread 0:    arrive (release) ... poll (acquire)
 *     all threads: __syncthreads ... read
 *
 * Order of memory. The first __syncthreads puts the block's writes before thread 0's arrival, which
 * releases them. Arrivals change one word one after the other, so who acquires the last of them
 * sees what all blocks wrote before theirs; the second __syncthreads hands that to the other
 * threads. Polls are loads: an atomic that changes nothing would take its turn among the arrivals.
 */
#ifndef PENSTOCK_CUDA_GRID_BARRIER_CUH
#define PENSTOCK_CUDA_GRID_BARRIER_CUH

#include "kernels/cuda/runtime/ptx.cuh"

/* All threads of a block arrive; what thread 0 gets it gives to grid_barrier_wait. The word is zero
 * before its first use. */
__device__ __forceinline__ unsigned grid_barrier_arrive(unsigned *word) {
    constexpr unsigned PHASE = 1u << 31;
    unsigned before = 0;
    __syncthreads();
    if (threadIdx.x == 0)
        before = add_release(word, blockIdx.x == 0 ? PHASE - (gridDim.x - 1) : 1u);
    return before;
}

/* All threads of a block wait until all blocks have arrived; then each sees what all wrote before
 * that. Between the two calls the threads of a block may meet in __syncthreads. */
__device__ __forceinline__ void grid_barrier_wait(unsigned *word, unsigned before) {
    if (threadIdx.x == 0)
        while ((load_acquire(word) ^ before) >> 31 == 0) __nanosleep(20);
    __syncthreads();
}

#endif
