/* Chooses the kernel of a product. */
#include "kernels/cuda/gemm/mainloop.cuh"
#include "kernels/cuda/rows/rows.cuh"
#include "kernels/cuda/runtime/cublas.cuh"

/* cuBLAS adds the residual, after which only scaling is possible; the rest of the epilogue runs as
 * separate kernels. */
static void by_cublas(const struct gemm_job *job, const void *x, int M, cudaStream_t stream) {
    static const struct gemm_epilogue none = {};
    const struct gemm_weights *w = job->w;
    const struct gemm_epilogue *end = job->epilogue ? job->epilogue : &none;
    const enum dtype out = end->float_out ? DTYPE_F32 : w->act;
    const size_t n = (size_t)M * (size_t)w->N;
    const bool adds = end->residual != NULL;
    const float early = adds ? end->scale : 1, late = adds ? 1 : end->scale;
    assert(!job->up);
    assert(!adds || (end->residual == job->y && !end->activate && end->cap == 0));
    cublas_product(w->act, job->y, x, w->codes, M, w->N, w->K, end->float_out, adds, early, stream);
    if (end->bias) rows_bias(out, job->y, end->bias, early, M, w->N, stream);
    if (end->activate) rows_gate(out, end->activation, job->y, job->y, NULL, n, stream);
    if (late != 1 || end->cap != 0) rows_cap(out, job->y, late, end->cap, n, stream);
}

/* The kernel for few rows can read cuBLAS's rows, too. */
static bool has_mma_kernel(const struct gemm_weights *w, int M) {
    if (w->format != GEMM_ROWS) return w->format != GEMM_FLOAT;
    return w->act != DTYPE_F32 && M <= GEMM_SKINNY_ROWS;
}

bool gemm_is_pair(const struct gemm_weights *gate, const struct gemm_weights *up, int M) {
    return has_mma_kernel(gate, M) && gate->format == up->format && gate->act == up->act &&
           gate->N == up->N && gate->K == up->K;
}

/* Are M rows multiplied by the instructions of the device's generation? */
static bool by_generation(const struct gemm_weights *w, int M, const struct gemm_scratch *scratch) {
    return M > GEMM_SKINNY_ROWS && scratch && scratch->generation &&
           scratch->generation->serves(w, M, scratch);
}

bool gemm_takes_norm(const struct gemm_weights *w, const struct norm *norm, int M,
                     const struct gemm_scratch *scratch) {
    if (w->format == GEMM_E4M3 || by_generation(w, M, scratch)) return norm->kind == NORM_RMS;
    return norm->kind == NORM_RMS && has_mma_kernel(w, M) && M <= GEMM_SKINNY_ROWS &&
           w->K % 8 == 0 && (int64_t)M * w->K * 2 <= GEMM_NORM_BYTES;
}

/* Multiplies up to GEMM_MAX_JOBS products of one format. */
static void multiply_alike(const struct gemm_job *jobs, int n, const void *x,
                           const struct norm *norm, int M, cudaStream_t stream,
                           const struct gemm_scratch *scratch) {
    const enum gemm_format format = jobs->w->format;
    assert(!norm || gemm_takes_norm(jobs->w, norm, M, scratch));
    if (format == GEMM_ROWS && !has_mma_kernel(jobs->w, M))
        for (int i = 0; i < n; i++) by_cublas(&jobs[i], x, M, stream);
    else if (format == GEMM_FLOAT)
        for (int i = 0; i < n; i++) gemm_float(&jobs[i], x, M, stream);
    else if (format == GEMM_E4M3)
        scratch->generation->multiply_e4m3(jobs, n, x, norm, M, stream, scratch);
    else if (M <= GEMM_SKINNY_ROWS)
        gemm_skinny(jobs, n, x, norm, M, stream);
    else if (by_generation(jobs->w, M, scratch))
        scratch->generation->multiply(jobs, n, x, norm, M, stream, scratch);
    else
        gemm_tiled(jobs, n, x, M, stream, scratch);
}

void gemm(const struct gemm_weights *w, void *y, const void *x, int M,
          const struct gemm_epilogue *epilogue, cudaStream_t stream,
          const struct gemm_scratch *scratch) {
    const struct gemm_job job = {w, y, epilogue};
    multiply_alike(&job, 1, x, NULL, M, stream, scratch);
}

/* Multiplies the products with the format of jobs[first]. */
static void multiply_format(const struct gemm_job *jobs, int first, int n, const void *x,
                            const struct norm *norm, int M, cudaStream_t stream,
                            const struct gemm_scratch *scratch) {
    struct gemm_job alike[GEMM_MAX_JOBS];
    int count = 0;
    for (int i = first; i < n; i++) {
        if (jobs[i].w->format == jobs[first].w->format) alike[count++] = jobs[i];
        if (count < GEMM_MAX_JOBS && i < n - 1) continue;
        if (count) multiply_alike(alike, count, x, norm, M, stream, scratch);
        count = 0;
    }
}

void gemm_many(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm, int M,
               cudaStream_t stream, const struct gemm_scratch *scratch) {
    for (int i = 0; i < n; i++) {
        bool first = true;
        assert(jobs[i].w->K == jobs->w->K && jobs[i].w->act == jobs->w->act);
        for (int j = 0; j < i; j++) first = first && jobs[j].w->format != jobs[i].w->format;
        if (first) multiply_format(jobs, i, n, x, norm, M, stream, scratch);
    }
}
