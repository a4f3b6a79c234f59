/* Weights on the device. */
#ifndef PENSTOCK_CUDA_MATRIX_CUH
#define PENSTOCK_CUDA_MATRIX_CUH

#include "kernels/cuda/device.cuh"

/* As matrix_new and matrix_free of the op table. */
enum status matrix_make(struct matrix **out, enum dtype type, int N, int K, const void *rows,
                        bool as_float, struct err *err);
void matrix_drop(struct matrix *matrix);

#endif
