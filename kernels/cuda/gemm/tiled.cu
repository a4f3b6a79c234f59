/* The launches of the kernel for many rows. */
#include "kernels/cuda/gemm/tiled.cuh"

/* Blocks that share weights are neighbours in the grid. */
template <class F, class T, class S>
static void tiled(const struct gemm_job *jobs, int n, const void *x, int M, cudaStream_t stream) {
    constexpr int BYTES = Ring<F, S>::BYTES;
    static_assert(BYTES <= 99 << 10, "what the smallest of the devices has");
    auto kernel = tiled_kernel<F, T, S, false>;
    if constexpr (F::ANY_K)
        if (jobs->w->K % 8 != 0) kernel = tiled_kernel<F, T, S, true>;
    if (BYTES > DEFAULT_SMEM) allow_smem(kernel, BYTES);
    const Products<T> all = products_of<T>(jobs, n, x, M, S::NB);
    launch(kernel,
           dim3((unsigned)((M + S::ROWS - 1) / S::ROWS), (unsigned)all.first[GEMM_MAX_JOBS]),
           dim3(S::THREADS), BYTES, stream, all);
}

template <class T>
static void tiled_of(const struct gemm_job *jobs, int n, const void *x, int M,
                     cudaStream_t stream) {
    for_format(jobs->w->format, [&](auto format) {
        using F = decltype(format);
        if (M <= SMALL_ROWS)
            tiled<F, T, Small>(jobs, n, x, M, stream);
        else
            tiled<F, T, Large>(jobs, n, x, M, stream);
    });
}

void gemm_tiled(const struct gemm_job *jobs, int n, const void *x, int M, cudaStream_t stream) {
    if (jobs->w->act == DTYPE_F16)
        tiled_of<__half>(jobs, n, x, M, stream);
    else
        tiled_of<__nv_bfloat16>(jobs, n, x, M, stream);
}
