/* Launches the kernel for many rows. */
#include "kernels/cuda/gemm/tiled.cuh"

/* The grid's blocks along the rows. */
template <class S> static int blocks_across(int M) {
    return (M + S::ROWS - 1) / S::ROWS;
}

/* Lets blocks share K if there are fewer than half as many blocks as fill the device, and if memory
 * suffices. */
template <class T, class S>
static void share_k(Products<T> *all, int n, int M, const struct gemm_scratch *scratch) {
    struct Sharing *share = &all->share;
    const int blocks = blocks_across<S>(M) * all->first[GEMM_MAX_JOBS];
    int most = 1;
    for (int i = 0; i < n; i++) {
        const int tall = all->first[i + 1] - all->first[i], ranges = all->of[i].w.ranges;
        share->first[i + 1] = share->first[i] + blocks_across<S>(M) * tall * ranges;
        most = ranges > most ? ranges : most;
    }
    share->blocks = 1;
    if (!scratch || (size_t)share->first[n] * S::PART * sizeof(float) > scratch->bytes) return;
    share->in = {scratch->counters, scratch->parts};
    while (share->blocks * 2 <= most && share->blocks * 2 * blocks <= GEMM_FULL_BLOCKS)
        share->blocks *= 2;
}

template <class T, class S>
static Products<T> tiled_products(const struct gemm_job *jobs, int n, const void *x, int M,
                                  const struct gemm_scratch *scratch) {
    Products<T> all = products_of<T>(jobs, n, x, M, S::NB);
    share_k<T, S>(&all, n, M, scratch);
    return all;
}

/* Blocks that share weights are adjacent in the grid. */
template <class F, class T, class S>
static void tiled(const struct gemm_job *jobs, int n, const void *x, int M, cudaStream_t stream,
                  const struct gemm_scratch *scratch) {
    constexpr int BYTES = Ring<F, S>::BYTES;
    static_assert(BYTES <= 98 << 10, "the limit of the smallest device, and a counter");
    auto kernel = tiled_kernel<F, T, S, false>;
    if constexpr (F::ANY_K)
        if (jobs->w->K % 8 != 0) kernel = tiled_kernel<F, T, S, true>;
    if (BYTES > DEFAULT_SMEM) allow_smem(kernel, BYTES);
    const Products<T> all = tiled_products<T, S>(jobs, n, x, M, scratch);
    const dim3 grid((unsigned)blocks_across<S>(M), (unsigned)all.first[GEMM_MAX_JOBS],
                    (unsigned)all.share.blocks);
    launch(kernel, grid, dim3(S::THREADS), BYTES, stream, all);
}

template <class T>
static void tiled_of(const struct gemm_job *jobs, int n, const void *x, int M, cudaStream_t stream,
                     const struct gemm_scratch *scratch) {
    for_format(jobs->w->format, [&](auto format) {
        using F = decltype(format);
        if (M <= SMALL_ROWS)
            tiled<F, T, Small>(jobs, n, x, M, stream, scratch);
        else
            tiled<F, T, Large>(jobs, n, x, M, stream, scratch);
    });
}

void gemm_tiled(const struct gemm_job *jobs, int n, const void *x, int M, cudaStream_t stream,
                const struct gemm_scratch *scratch) {
    if (jobs->w->act == DTYPE_F16)
        tiled_of<__half>(jobs, n, x, M, stream, scratch);
    else
        tiled_of<__nv_bfloat16>(jobs, n, x, M, stream, scratch);
}

/* ---- memory needs and traffic --------------------------------------------------------------- */

/* A launch whose blocks share K has at most GEMM_SCRATCH_COUNTERS blocks of 128 by 128 sums per
 * range. Launches with many ranges do not share: 32 MiB are enough for 8 ranges of 64 blocks. */
size_t gemm_scratch_bytes(enum dtype act, int M, int K) {
    const size_t rows = (size_t)blocks_across<Large>(M) * Large::ROWS;
    const size_t outputs = (size_t)K * GEMM_MAX_JOBS + GEMM_MAX_JOBS * Large::NB * GEMM_TILE;
    const size_t slabs = ((size_t)K + GEMM_SLAB - 1) / GEMM_SLAB;
    const size_t ranges = slabs < MAX_WARPS ? slabs : MAX_WARPS, most = (size_t)32 << 20;
    if (act == DTYPE_F32 || M <= GEMM_SKINNY_ROWS) return 0;
    if (rows > most / sizeof(float) / ranges / outputs) return most;
    return rows * outputs * ranges * sizeof(float);
}

template <class T, class S>
static struct gemm_flight flight_of(const struct gemm_job *jobs, int n, int M,
                                    const struct gemm_scratch *scratch) {
    const Products<T> all = tiled_products<T, S>(jobs, n, nullptr, M, scratch);
    int bytes = 0;
    for_format(jobs->w->format, [&](auto format) {
        bytes = (S::STAGES - 1) * (Ring<decltype(format), S>::STAGE - S::X_BYTES);
    });
    return {blocks_across<S>(M) * all.first[GEMM_MAX_JOBS] * all.share.blocks, bytes};
}

struct gemm_flight gemm_flight(const struct gemm_job *jobs, int n, int M,
                               const struct gemm_scratch *scratch) {
    assert(M > GEMM_SKINNY_ROWS && jobs->w->act != DTYPE_F32);
    return M <= SMALL_ROWS ? flight_of<__half, Small>(jobs, n, M, scratch)
                           : flight_of<__half, Large>(jobs, n, M, scratch);
}
