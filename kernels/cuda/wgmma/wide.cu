/* Launches the kernel for many rows on sm_90a. */
#include "kernels/cuda/wgmma/arrange.cuh"
#include "kernels/cuda/wgmma/launch.cuh"
#include "kernels/cuda/wgmma/wgmma.cuh"

using Narrow = Wide<128>;
using Broad = Wide<192>;

/* An upper bound on whole blocks of either kind. */
static int padded_rows(int M) {
    return M + Broad::ROWS - 1;
}

size_t wide_bytes(enum dtype act, int M, int K) {
    const size_t slabs = ((size_t)K + GEMM_SLAB - 1) / GEMM_SLAB;
    if (act == DTYPE_F32 || M < GEMM_WIDE_ROWS) return 0;
    return (size_t)padded_rows(M) * slabs * LINE_BYTES;
}

bool wide_serves(const struct gemm_weights *w, int M, const struct gemm_scratch *scratch) {
    if (!scratch || !scratch->wide || M < GEMM_WIDE_ROWS) return false;
    return w->format == GEMM_16 && w->K % 8 == 0 &&
           wide_bytes(w->act, M, w->K) <= scratch->wide_bytes;
}

/* The sequential work of a multiprocessor, in units of the smallest rows. */
template <class S> static int turns(int M, int blocks) {
    const int pieces = (M + S::ROWS - 1) / S::ROWS * blocks;
    const int each = S::ROWS * (MAX_WARPS / shares_of(pieces, MAX_WARPS));
    return (pieces + MULTIPROCESSORS - 1) / MULTIPROCESSORS * each;
}

template <class T, class S>
static void wide(const struct gemm_job *jobs, int n, const void *x, int M, cudaStream_t stream,
                 const struct gemm_scratch *scratch) {
    const WideWork<T> work = wide_work<S, T>(jobs, n, x, M, scratch);
    arrange(&work.x, x, M, jobs->w->K, stream);
    launch_wide<S>(work, stream);
}

/* The broad block moves fewer bytes per product, which compensates for up to an eighth more
 * products. */
template <class T>
static void wide_of(const struct gemm_job *jobs, int n, const void *x, int M, cudaStream_t stream,
                    const struct gemm_scratch *scratch) {
    const int blocks = products_of<T>(jobs, n, x, M, Broad::NB).first[GEMM_MAX_JOBS];
    if (turns<Broad>(M, blocks) * 8 <= turns<Narrow>(M, blocks) * 9)
        wide<T, Broad>(jobs, n, x, M, stream, scratch);
    else
        wide<T, Narrow>(jobs, n, x, M, stream, scratch);
}

static void multiply(const struct gemm_job *jobs, int n, const void *x, int M, cudaStream_t stream,
                     const struct gemm_scratch *scratch) {
    assert(n > 0 && n <= GEMM_MAX_JOBS && wide_serves(jobs->w, M, scratch));
    if (jobs->w->act == DTYPE_F16)
        wide_of<__half>(jobs, n, x, M, stream, scratch);
    else
        wide_of<__nv_bfloat16>(jobs, n, x, M, stream, scratch);
}

const struct gemm_generation wgmma_products = {wide_bytes, wide_serves, multiply, wide_e4m3_bytes,
                                               wide_e4m3};
