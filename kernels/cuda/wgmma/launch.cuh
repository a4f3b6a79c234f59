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

/* Places the parts of n products for a number of shares, and returns their bytes. Products of
 * different ranges leave different numbers of parts. */
template <class S, class T> size_t place_parts(WideWork<T> *work, int n, int shares) {
    struct Sharing *share = &work->all.share;
    share->blocks = shares;
    for (int i = 0; i < n; i++) {
        const int pieces = work->across * (work->all.first[i + 1] - work->all.first[i]);
        const int parts = parts_of(work->all.of[i].w.ranges, shares);
        assert(pieces > 0 && parts > 0);
        share->first[i + 1] = share->first[i] + pieces * parts;
    }
    if (shares == 1) return 0;
    return (size_t)share->first[n] * S::ROWS * S::NB * GEMM_TILE * sizeof(float);
}

/* Divides the ranges of a piece if there are at most half as many pieces as multiprocessors, among
 * as many blocks as the memory for parts allows. */
template <class S, class T>
void share_ranges(WideWork<T> *work, int n, const struct gemm_scratch *scratch) {
    int most = 1;
    for (int i = 0; i < n; i++)
        if (work->all.of[i].w.ranges > most) most = work->all.of[i].w.ranges;
    work->all.share.in = {scratch->counters, scratch->parts};
    int shares = shares_of(work->pieces, most);
    while (place_parts<S>(work, n, shares) > scratch->bytes) shares /= 2;
    assert(work->all.share.blocks >= 1 && work->all.share.first[0] == 0);
    assert(shares == 1 || work->pieces * CONSUMERS <= GEMM_SCRATCH_COUNTERS);
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

/* The blocks for 16-bit numbers: up to 32 rows, up to 64, and more. With few rows the bound is the
 * weights' bytes, so 112 to 128 KiB of weights are under way. */
using WideFew = Wide<32, 8>;
using WideSome = Wide<64, 7>;
using WideNarrow = Wide<128>;
using WideBroad = Wide<192>;

/* The sequential work of a multiprocessor, in units of the smallest rows. */
template <class S, class T> int turns(const WideWork<T> &work) {
    const int each = S::ROWS * (MAX_WARPS / work.all.share.blocks);
    return (work.pieces + MULTIPROCESSORS - 1) / MULTIPROCESSORS * each;
}

/* The broad block moves fewer bytes per product, which compensates for up to an eighth more
 * products. */
template <class T> bool is_broad_better(const WideWork<T> &narrow, const WideWork<T> &broad) {
    return turns<WideBroad>(broad) * 8 <= turns<WideNarrow>(narrow) * 9;
}

/* Multiplies the arranged rows. */
template <class S, class T> void launch_wide(const WideWork<T> &work, cudaStream_t stream) {
    const int shares = work.shares();
    const int blocks = shares < MULTIPROCESSORS ? shares : MULTIPROCESSORS;
    assert(blocks > 0);
    auto kernel = wide_kernel<T, S>;
    allow_smem(kernel, S::BYTES);
    launch(kernel, dim3((unsigned)blocks), dim3(S::THREADS), S::BYTES, stream, work);
}

#endif
