/* The choice between the kernels of products. */
#include "kernels/cuda/cublas.cuh"
#include "kernels/cuda/gemm_format.cuh"

void gemm(const struct gemm_weights *w, void *y, const void *x, int M,
          const struct gemm_epilogue *epilogue, cudaStream_t stream) {
    static const struct gemm_epilogue none = {};
    if (!epilogue) epilogue = &none;
    if (w->format == GEMM_ROWS) {
        assert(!epilogue->bias && !epilogue->residual && !w->gated);
        cublas_product(w->act, y, x, w->codes, M, w->N, w->K, epilogue->float_out, stream);
    } else if (w->format == GEMM_FLOAT) {
        gemm_float(w, y, x, M, epilogue, stream);
    } else if (M <= GEMM_SKINNY_ROWS) {
        gemm_skinny(w, y, x, M, epilogue, stream);
    } else {
        gemm_tiled(w, y, x, M, epilogue, stream);
    }
}
