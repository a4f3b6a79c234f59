/* Launches the kernel for many rows on sm_100 and its family. */
#include "kernels/cuda/tcgen05/wide.cuh"

#include "kernels/cuda/tcgen05/tcgen05.cuh"
#include "kernels/cuda/wgmma/arrange.cuh"
#include "kernels/cuda/wgmma/wgmma.cuh"

using Narrow = TensorShape<128>;
using Broad = TensorShape<256>;
enum {
    TENSOR_MULTIPROCESSORS = 148, /* multiprocessors of a B200, with one block each */
    TENSOR_MIN_ROWS = 65,         /* fewer rows use mma.sync */
};

static size_t bytes(enum dtype act, int M, int K) {
    return M < TENSOR_MIN_ROWS ? 0 : wide_bytes(act, M, K);
}

static bool serves(const struct gemm_weights *w, int M, const struct gemm_scratch *scratch) {
    return M >= TENSOR_MIN_ROWS && wide_serves(w, M, scratch);
}

/* The sequential work of a multiprocessor, in rows. */
template <class S> static int turns(int M, int blocks) {
    const int pieces = (M + S::ROWS - 1) / S::ROWS * blocks;
    return (pieces + TENSOR_MULTIPROCESSORS - 1) / TENSOR_MULTIPROCESSORS * S::ROWS;
}

template <class T, class S>
static void wide(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm, int M,
                 cudaStream_t stream, const struct gemm_scratch *scratch) {
    const WideWork<T> work = wide_work<S, T>(jobs, n, x, M, scratch);
    const int shares = work.shares();
    const int blocks = shares < TENSOR_MULTIPROCESSORS ? shares : TENSOR_MULTIPROCESSORS;
    assert(shares > 0);
    auto kernel = tensor_kernel<T, S>;
    arrange<T>(&work.x, x, norm, M, jobs->w->K, stream);
    allow_smem(kernel, S::BYTES);
    launch(kernel, dim3((unsigned)blocks), dim3(S::THREADS), S::BYTES, stream, work);
}

/* Do whole blocks of the broad kind have space for their lines? */
static bool broad_fits(int M, int K, const struct gemm_scratch *scratch) {
    const size_t rows = ((size_t)M + Broad::ROWS - 1) / Broad::ROWS * Broad::ROWS;
    const size_t slabs = ((size_t)K + GEMM_SLAB - 1) / GEMM_SLAB;
    return rows * slabs * LINE_BYTES <= scratch->wide_bytes;
}

template <class T>
static void wide_of(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm,
                    int M, cudaStream_t stream, const struct gemm_scratch *scratch) {
    const int blocks = products_of<T>(jobs, n, x, M, Broad::NB).first[GEMM_MAX_JOBS];
    if (broad_fits(M, jobs->w->K, scratch) && turns<Broad>(M, blocks) <= turns<Narrow>(M, blocks))
        wide<T, Broad>(jobs, n, x, norm, M, stream, scratch);
    else
        wide<T, Narrow>(jobs, n, x, norm, M, stream, scratch);
}

static void multiply(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm,
                     int M, cudaStream_t stream, const struct gemm_scratch *scratch) {
    assert(n > 0 && n <= GEMM_MAX_JOBS && serves(jobs->w, M, scratch));
    if (jobs->w->act == DTYPE_F16)
        wide_of<__half>(jobs, n, x, norm, M, stream, scratch);
    else
        wide_of<__nv_bfloat16>(jobs, n, x, norm, M, stream, scratch);
}

const struct gemm_generation *tcgen05_products(void) {
    static const struct gemm_generation products = {bytes, serves, multiply, nullptr, nullptr};
    return &products;
}
