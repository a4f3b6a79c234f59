/* Launches the kernel for 17 and more rows on sm_90a. */
#include "kernels/cuda/wgmma/arrange.cuh"
#include "kernels/cuda/wgmma/launch.cuh"
#include "kernels/cuda/wgmma/wgmma.cuh"

/* Whole blocks of the kind for M rows, or an upper bound if there are two kinds. */
static int padded_rows(int M) {
    if (M <= WideFew::ROWS) return WideFew::ROWS;
    return M <= WideSome::ROWS ? WideSome::ROWS : M + WideBroad::ROWS - 1;
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

template <class T, class S>
static void wide(const WideWork<T> &work, const void *x, const struct norm *norm,
                 cudaStream_t stream) {
    const Product<T> &p = work.all.of[0];
    arrange<T>(&work.x, x, norm, p.M, p.w.K, stream);
    launch_wide<S>(work, stream);
}

template <class T>
static void wide_of(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm,
                    int M, cudaStream_t stream, const struct gemm_scratch *scratch) {
    if (M <= WideFew::ROWS)
        return wide<T, WideFew>(wide_work<WideFew, T>(jobs, n, x, M, scratch), x, norm, stream);
    if (M <= WideSome::ROWS)
        return wide<T, WideSome>(wide_work<WideSome, T>(jobs, n, x, M, scratch), x, norm, stream);
    const WideWork<T> narrow = wide_work<WideNarrow, T>(jobs, n, x, M, scratch);
    const WideWork<T> broad = wide_work<WideBroad, T>(jobs, n, x, M, scratch);
    if (is_broad_better(narrow, broad))
        wide<T, WideBroad>(broad, x, norm, stream);
    else
        wide<T, WideNarrow>(narrow, x, norm, stream);
}

static void multiply(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm,
                     int M, cudaStream_t stream, const struct gemm_scratch *scratch) {
    assert(n > 0 && n <= GEMM_MAX_JOBS && wide_serves(jobs->w, M, scratch));
    if (jobs->w->act == DTYPE_F16)
        wide_of<__half>(jobs, n, x, norm, M, stream, scratch);
    else
        wide_of<__nv_bfloat16>(jobs, n, x, norm, M, stream, scratch);
}

const struct gemm_generation wgmma_products = {wide_bytes, wide_serves, multiply, wide_e4m3_bytes,
                                               wide_e4m3};
