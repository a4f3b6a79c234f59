/* Products for the op table: with the norm before them, their biases, the activation between them
 * and the sum after them; and products per head. */
#ifndef PENSTOCK_CUDA_GEMM_OPS_CUH
#define PENSTOCK_CUDA_GEMM_OPS_CUH

#include "kernels/cuda/gemm/matrix.cuh"
#include "kernels/cuda/low_rank/low_rank.cuh"

/* Results between the kernels of one op: [max_rows][max_k] each, of the activations' type. */
struct gemm_workspace {
    enum dtype act;
    cudaStream_t stream;
    void *memory;
    void *normed, *gate, *up;
    size_t numbers; /* capacity of each */
    struct gemm_scratch scratch;
    struct low_rank_workspace low; /* opened by the caller; zero: no adapters */
};

/* With a generation, its products serve many rows and GEMM_E4M3; NULL: those of mma.sync serve all.
 * Fails with STATUS_USAGE if the device is out of memory. */
enum status gemm_workspace_open(struct gemm_workspace *work, enum dtype act, int max_rows,
                                int max_k, const struct gemm_generation *generation,
                                cudaStream_t stream, struct err *err);
void gemm_workspace_close(struct gemm_workspace *work);

/* Implement matmul, matmul_add, mlp and logits of the op table. */
void gemm_matmul(struct gemm_workspace *work, float *const *y, const float *x,
                 const struct norm *norm, const struct linear *linear, int n, int M);
void gemm_matmul_add(struct gemm_workspace *work, float *sum, const void *x,
                     const struct linear *linear, int M);
void gemm_mlp(struct gemm_workspace *work, float *sum, const float *x, const struct norm *norm,
              const struct mlp *mlp, int M);
/* y[M][K] = mlp(the normalised rows of the workspace), in the activations' type. */
void gemm_mlp_alone(struct gemm_workspace *work, void *y, const struct mlp *mlp, int M);
void gemm_logits(struct gemm_workspace *work, float *y, const float *x, const struct norm *norm,
                 const struct lm_head *head, int R);

/* Implements matmul_heads: heads.cu. The larger of a head's K and N is at most max_k. */
void gemm_heads(struct gemm_workspace *work, void *y, const void *x,
                const struct head_linear *linear, int M);

/* y[M][K] = rows[0..M) of the matrix times scale; with `add` this is added to y. The matrix [V][K]
 * is packed for products: the file's weights, dequantised and rounded to the activations' type. A
 * negative number is a pending token (kernels/step.h), read from `sampled`; if `sampled` is NULL,
 * it means no row, and y is unchanged. */
void embed_rows(void *y, const struct gemm_weights *w, const int32_t *rows, const int32_t *sampled,
                float scale, bool add, int M, cudaStream_t stream);

#endif
