/* Taking weights to the device, in GGUF's own layout or as float32. */
#include "kernels/cuda/matrix.cuh"

#include <stdlib.h>

static enum status check_shape(enum dtype type, int N, int K, struct err *err) {
    const int elements = dtype_block_elements(type);
    if (elements == 0 || N <= 0 || K <= 0 || K % elements != 0)
        return err_set(err, STATUS_BAD_FILE, NULL, "a matrix of %d rows of %d cannot be of type %d",
                       N, K, type);
    return STATUS_OK;
}

/* Copies n weights as float32, some at a time. */
static void copy_as_float(float *to, enum dtype type, const void *rows, size_t n) {
    const size_t AT_ONCE = 1 << 16; /* a whole number of every type's blocks */
    float *piece = (float *)mem_alloc(AT_ONCE * sizeof *piece);
    for (size_t i = 0; i < n; i += AT_ONCE) {
        const size_t count = n - i < AT_ONCE ? n - i : AT_ONCE;
        dequantise(type, (const uint8_t *)rows + dtype_bytes(type, i), piece, count);
        cuda_must(cudaMemcpy(to + i, piece, count * sizeof *piece, cudaMemcpyHostToDevice),
                  "copying weights");
    }
    free(piece);
}

enum status matrix_make(struct matrix **out, enum dtype type, int N, int K, const void *rows,
                        bool as_float, struct err *err) {
    enum status status = check_shape(type, N, K, err);
    if (status) return status;
    struct matrix made = {};
    made.type = as_float ? DTYPE_F32 : type;
    made.N = N;
    made.K = K;
    made.row_bytes = dtype_bytes(made.type, (size_t)K);
    made.bytes = made.row_bytes * (size_t)N;
    void *memory = nullptr;
    cudaError_t error = cudaMalloc(&memory, made.bytes);
    if (error != cudaSuccess) {
        cudaGetLastError(); /* it has been dealt with */
        return err_set(err, STATUS_USAGE, "device",
                       "the GPU has no room for the weights: %zu MiB more are needed",
                       made.bytes >> 20);
    }
    made.rows = (uint8_t *)memory;
    if (as_float && type != DTYPE_F32)
        copy_as_float((float *)made.rows, type, rows, (size_t)N * (size_t)K);
    else
        cuda_must(cudaMemcpy(made.rows, rows, made.bytes, cudaMemcpyHostToDevice),
                  "copying weights");
    *out = (struct matrix *)mem_alloc(sizeof made);
    **out = made;
    return STATUS_OK;
}

void matrix_drop(struct matrix *matrix) {
    if (!matrix) return;
    cuda_must(cudaFree(matrix->rows), "freeing weights");
    free(matrix);
}
