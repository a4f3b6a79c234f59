/* Weights on the device. */
#ifndef PENSTOCK_CUDA_MATRIX_CUH
#define PENSTOCK_CUDA_MATRIX_CUH

#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/staging.cuh"

/* A weight, packed for products. */
struct matrix {
    struct gemm_weights packed;
    void *memory;
    size_t bytes;
};

/* As matrix_new and matrix_free of the op table, for products of activations of `act`. The rows go
 * through `staging` in parts; the work may still be under way when matrix_make returns.
 * MATRIX_FLOAT32 is possible with activations of float32 only, which have all weights in
 * float32. With `cublas`, floats that stay 16 bits are kept in rows, as cuBLAS wants them. */
enum status matrix_make(struct matrix **out, struct staging *staging, enum dtype act, bool cublas,
                        enum dtype type, int N, int K, const void *rows, enum matrix_form form,
                        struct err *err);
/* As matrix_random of the op table. */
enum status matrix_make_random(struct matrix **out, struct staging *staging, enum dtype act,
                               bool cublas, enum dtype type, int N, int K, uint64_t seed,
                               enum matrix_form form, struct err *err);
void matrix_drop(struct matrix *matrix);

#endif
