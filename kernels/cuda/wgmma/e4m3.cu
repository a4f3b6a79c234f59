/* Launches products of e4m3 on sm_90a. */
#include "kernels/cuda/wgmma/e4m3.cuh"

#include "kernels/cuda/wgmma/launch.cuh"
#include "kernels/cuda/wgmma/wgmma.cuh"

/* Blocks for up to 16, up to 64 and more rows; with fewer rows there are more stages. */
using Few = WideE4m3<16, 16>;
using Some = WideE4m3<64, 12>;
using Many = WideE4m3<128, 8>;

/* An upper bound on whole blocks of each kind, a multiple of 64. */
static size_t rows_room(int M) {
    return ((size_t)M + Many::ROWS - 1) / Many::ROWS * Many::ROWS;
}

size_t wide_e4m3_bytes(int M, int K) {
    const size_t slabs = ((size_t)K + GEMM_SLAB - 1) / GEMM_SLAB;
    return rows_room(M) * (slabs * E4M3_LINE + sizeof(float));
}

template <class T>
static void quantise(const WideWork<T> &work, float *scales, const void *x, const struct norm *norm,
                     cudaStream_t stream) {
    const Product<T> &p = work.all.of[0];
    const Quantising<T> q = {input_rows<T>(x, norm, p.M, p.w.K), work.x, scales, p.w.slabs};
    auto kernel = norm ? quantise_rows_kernel<T, true> : quantise_rows_kernel<T, false>;
    launch(kernel, dim3((unsigned)work.x.rows), dim3(NORM_THREADS), 0, stream, q);
}

/* The scales follow all lines. */
template <class T, class S>
static void multiply(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm,
                     int M, cudaStream_t stream, const struct gemm_scratch *scratch) {
    WideWork<T> work = wide_work<S, T>(jobs, n, x, M, scratch);
    float *scales =
        reinterpret_cast<float *>(work.x.lines + work.x.offset(jobs->w->slabs, 0, E4M3_LINE));
    work.scales = scales;
    quantise(work, scales, x, norm, stream);
    launch_wide<S>(work, stream);
}

template <class T>
static void multiply_of(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm,
                        int M, cudaStream_t stream, const struct gemm_scratch *scratch) {
    if (M <= Few::ROWS)
        multiply<T, Few>(jobs, n, x, norm, M, stream, scratch);
    else if (M <= Some::ROWS)
        multiply<T, Some>(jobs, n, x, norm, M, stream, scratch);
    else
        multiply<T, Many>(jobs, n, x, norm, M, stream, scratch);
}

void wide_e4m3(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm, int M,
               cudaStream_t stream, const struct gemm_scratch *scratch) {
    assert(scratch && scratch->wide && wide_e4m3_bytes(M, jobs->w->K) <= scratch->wide_bytes);
    assert(jobs->w->K % 8 == 0 && jobs->w->scale_slabs == jobs->w->slabs);
    if (jobs->w->act == DTYPE_F16)
        multiply_of<__half>(jobs, n, x, norm, M, stream, scratch);
    else
        multiply_of<__nv_bfloat16>(jobs, n, x, norm, M, stream, scratch);
}
