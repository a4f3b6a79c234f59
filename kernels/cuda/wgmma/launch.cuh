/* Launches the kernels for many rows: chooses the blocks and the division of work. */
#ifndef PENSTOCK_CUDA_WGMMA_LAUNCH_CUH
#define PENSTOCK_CUDA_WGMMA_LAUNCH_CUH

#include "kernels/cuda/wgmma/wide.cuh"

/* multiprocessors of an H200, with one block each */
enum { MULTIPROCESSORS = GEMM_FULL_BLOCKS / 2 };

/* Returns the number of blocks that share a piece, for a given number of pieces. */
static inline int shares_of(int pieces, int most) {
    int shares = 1;
    while (shares * 2 <= most && pieces * shares * 2 <= MULTIPROCESSORS) shares *= 2;
    return shares;
}

/* Divides the ranges of a piece if there are at most half as many pieces as multiprocessors, and if
 * memory suffices. */
template <class S, class T>
void share_ranges(WideWork<T> *work, int n, const struct gemm_scratch *scratch) {
    const size_t sums = (size_t)S::ROWS * S::NB * GEMM_TILE;
    work->in = {scratch->counters, scratch->parts};
    work->shares = 1;
    for (int i = 0; i < n; i++)
        if (work->all.of[i].w.ranges > work->ranges) work->ranges = work->all.of[i].w.ranges;
    assert(work->ranges > 0 && work->pieces > 0);
    if ((size_t)(work->pieces * work->ranges) * sums * sizeof(float) > scratch->bytes) return;
    work->shares = shares_of(work->pieces, work->ranges);
}

/* The work of n products of M rows, whose lines are at the start of scratch->wide. */
template <class S, class T>
WideWork<T> wide_work(const struct gemm_job *jobs, int n, const void *x, int M,
                      const struct gemm_scratch *scratch) {
    WideWork<T> work = {products_of<T>(jobs, n, x, M, S::NB)};
    work.across = (M + S::ROWS - 1) / S::ROWS;
    work.pieces = work.across * work.all.first[GEMM_MAX_JOBS];
    work.x = {static_cast<uint8_t *>(scratch->wide), work.across * S::ROWS};
    share_ranges<S>(&work, n, scratch);
    return work;
}

/* Multiplies the arranged rows. */
template <class S, class T> void launch_wide(const WideWork<T> &work, cudaStream_t stream) {
    const int shares = work.pieces * work.shares;
    const int blocks = shares < MULTIPROCESSORS ? shares : MULTIPROCESSORS;
    assert(blocks > 0);
    auto kernel = wide_kernel<T, S>;
    allow_smem(kernel, S::BYTES);
    launch(kernel, dim3((unsigned)blocks), dim3(S::THREADS), S::BYTES, stream, work);
}

#endif
