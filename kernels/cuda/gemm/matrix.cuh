/* Weights on the device: packed from a file's rows, quantised, or random. */
#ifndef PENSTOCK_CUDA_MATRIX_CUH
#define PENSTOCK_CUDA_MATRIX_CUH

#include "kernels/cuda/gemm/gemm.cuh"
#include "kernels/cuda/runtime/staging.cuh"

/* A weight, packed for products. */
struct matrix {
    struct gemm_weights packed;
    void *memory;
    size_t bytes;
};

/* The available methods for products besides the mma.sync kernels. */
struct gemm_ways {
    bool cublas; /* float weights of 16 bits are stored in rows, as cuBLAS needs them */
    bool e4m3;   /* e4m3 weights are multiplied with e4m3 activations (gemm_generation) */
};

/* Implements matrix_new of the op table, for products of activations of `act`. The rows pass
 * through `staging` in parts; the work may still run on return. MATRIX_FLOAT32 requires float32
 * activations, which store all weights in float32. */
enum status matrix_alloc(struct matrix **out, struct staging *staging, enum dtype act,
                         struct gemm_ways ways, enum dtype type, int N, int K, const void *rows,
                         enum matrix_form form, struct err *err);
/* Implements matrix_random of the op table. */
enum status matrix_alloc_random(struct matrix **out, struct staging *staging, enum dtype act,
                                struct gemm_ways ways, enum dtype type, int N, int K, uint64_t seed,
                                enum matrix_form form, struct err *err);
void matrix_free(struct matrix *matrix);

/* codes[N][K] of e4m3 and scales[N] from rows of a float type: the scale is the row's largest
 * magnitude / 448, at least the smallest normal float, and a code is the nearest to weight / scale,
 * ties to even. */
void quantise_e4m3(uint8_t *codes, float *scales, enum dtype type, const void *rows, int N, int K,
                   cudaStream_t stream);

/* data = bytes from .. to of the matrix that `w` describes (kernels/dtype.h): the same bytes as the
 * host's random_weights_fill. `from` is a multiple of piece_bytes. */
void random_rows(void *data, const struct random_weights *w, size_t from, size_t to,
                 cudaStream_t stream);

#endif
