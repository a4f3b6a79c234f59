/* kernels/cuda/wgmma: products and attention by instructions of sm_90a. */
#ifndef PENSTOCK_CUDA_WGMMA_CUH
#define PENSTOCK_CUDA_WGMMA_CUH

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/gemm/gemm.cuh"

/* From this number of rows on, weights of GEMM_16 are multiplied by wgmma. Fewer rows, and so all
 * steps that are one grid (persistent/), use mma.sync. */
enum { GEMM_WIDE_ROWS = GEMM_SKINNY_ROWS + 1 };

extern const struct gemm_generation wgmma_products;
extern const struct attention_chunks wgmma_chunks;

/* Implement `bytes` and `serves` for all kernels whose rows are lines (lines.cuh). */
size_t wide_bytes(enum dtype act, int M, int K);
bool wide_serves(const struct gemm_weights *w, int M, const struct gemm_scratch *scratch);

/* Implement `e4m3_bytes` and `multiply_e4m3`. */
size_t wide_e4m3_bytes(int M, int K);
void wide_e4m3(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm, int M,
               cudaStream_t stream, const struct gemm_scratch *scratch);

#endif
