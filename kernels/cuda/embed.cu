/* The embedding: one block a row, a weight a thread at a time. A step reads M rows of K weights,
 * which is nothing beside its products. */
#include "kernels/cuda/embed.cuh"

#include "kernels/cuda/dequantise.cuh"

enum { EMBED_THREADS = 256 };

template <class T, enum dtype TYPE>
__global__ void __launch_bounds__(EMBED_THREADS)
    embed_kernel(T *__restrict__ y, const uint8_t *__restrict__ rows, size_t row_bytes,
                 const int32_t *__restrict__ token, int K) {
    const uint8_t *row = rows + (size_t)token[blockIdx.x] * row_bytes;
    for (int k = threadIdx.x; k < K; k += EMBED_THREADS)
        y[(size_t)blockIdx.x * K + k] = from_float<T>(weight_at<TYPE>(row, k));
}

void embed_rows(enum dtype act, void *y, const struct matrix *w, const int32_t *token, int M,
                cudaStream_t stream) {
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        for_weight(w->type, [&](auto tag) {
            launch(embed_kernel<T, decltype(tag)::value>, dim3(M), dim3(EMBED_THREADS), 0, stream,
                   (T *)y, w->rows, w->row_bytes, token, w->K);
        });
    });
}
