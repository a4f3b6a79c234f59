/* Products as the op table has them: with the norm before them, the gate between them and the sum
 * behind. */
#ifndef PENSTOCK_CUDA_PRODUCTS_CUH
#define PENSTOCK_CUDA_PRODUCTS_CUH

#include "kernels/cuda/matrix.cuh"

/* What stands between the kernels of one op: [max_rows][max_k] each, of the activations' type. */
struct products {
    enum dtype act;
    cudaStream_t stream;
    void *memory;
    void *normed, *gate, *up;
};

/* Takes the memory; fails as room_device does. Closing what was not opened does nothing. */
enum status products_open(struct products *p, enum dtype act, int max_rows, int max_k,
                          cudaStream_t stream, struct err *err);
void products_close(struct products *p);

/* As matmul, matmul_add, gated_mlp and logits of the op table. */
void products_multiply(struct products *p, float *const *y, const float *x, const struct norm *norm,
                       struct matrix *const *w, int n, int M);
void products_add(struct products *p, float *sum, const void *x, const struct matrix *w, int M);
void products_gated(struct products *p, float *x, const struct norm *norm,
                    const struct matrix *gate, const struct matrix *up, const struct matrix *down,
                    int M);
void products_logits(struct products *p, float *y, const float *x, const struct norm *norm,
                     const struct matrix *head, int R);

#endif
