/* Launches the kernel for many rows on sm_100 and its family. */
#include "kernels/cuda/tcgen05/wide.cuh"
#include "kernels/cuda/wgmma/arrange.cuh"

using Narrow = TensorShape<128>;
using Broad = TensorShape<256>;
enum { TENSOR_MULTIPROCESSORS = 148 }; /* multiprocessors of a B200, with one block each */

bool gemm_has_tcgen05(void) {
    int device = 0, major = 0, minor = 0;
    cuda_check(cudaGetDevice(&device), "asking for the GPU");
    cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
               "asking for the GPU's capability");
    cuda_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
               "asking for the GPU's capability");
    return major == 10 && (minor == 0 || minor == 3);
}

/* The sequential work of a multiprocessor, in rows. */
template <class S> static int turns(int M, int blocks) {
    const int pieces = (M + S::ROWS - 1) / S::ROWS * blocks;
    return (pieces + TENSOR_MULTIPROCESSORS - 1) / TENSOR_MULTIPROCESSORS * S::ROWS;
}

template <class T, class S>
static void wide(const struct gemm_job *jobs, int n, const void *x, int M, cudaStream_t stream,
                 const struct gemm_scratch *scratch) {
    const WideWork<T> work = wide_work<S, T>(jobs, n, x, M, scratch);
    const int shares = work.pieces * work.shares;
    const int blocks = shares < TENSOR_MULTIPROCESSORS ? shares : TENSOR_MULTIPROCESSORS;
    auto kernel = tensor_kernel<T, S>;
    arrange(&work.x, x, M, jobs->w->K, stream);
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
static void wide_of(const struct gemm_job *jobs, int n, const void *x, int M, cudaStream_t stream,
                    const struct gemm_scratch *scratch) {
    const int blocks = products_of<T>(jobs, n, x, M, Broad::NB).first[GEMM_MAX_JOBS];
    if (broad_fits(M, jobs->w->K, scratch) && turns<Broad>(M, blocks) <= turns<Narrow>(M, blocks))
        wide<T, Broad>(jobs, n, x, M, stream, scratch);
    else
        wide<T, Narrow>(jobs, n, x, M, stream, scratch);
}

void gemm_tcgen05(const struct gemm_job *jobs, int n, const void *x, int M, cudaStream_t stream,
                  const struct gemm_scratch *scratch) {
    if (jobs->w->act == DTYPE_F16)
        wide_of<__half>(jobs, n, x, M, stream, scratch);
    else
        wide_of<__nv_bfloat16>(jobs, n, x, M, stream, scratch);
}
