/* The embedding: one block a row, a weight a thread at a time. A step reads M rows of K weights,
 * which is nothing beside its products. */
#include "kernels/cuda/embed.cuh"

#include "kernels/cuda/dequantise.cuh"

enum { EMBED_THREADS = 256 };

template <class T, enum dtype TYPE>
__global__ void __launch_bounds__(EMBED_THREADS)
    embed_kernel(T *__restrict__ y, const uint8_t *__restrict__ rows, size_t row_bytes,
                 const int32_t *__restrict__ token, const int32_t *__restrict__ sampled, int K) {
    int32_t id = token[blockIdx.x];
    if (id < 0) id = sampled[-1 - id]; /* late_token */
    const uint8_t *row = rows + (size_t)id * row_bytes;
    for (int k = threadIdx.x; k < K; k += EMBED_THREADS)
        y[(size_t)blockIdx.x * K + k] = from_float<T>(weight_at<TYPE>(row, k));
}

void embed_rows(enum dtype act, void *y, const struct matrix *w, const int32_t *token,
                const int32_t *sampled, int M, cudaStream_t stream) {
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        for_weight(w->type, [&](auto tag) {
            launch(embed_kernel<T, decltype(tag)::value>, dim3(M), dim3(EMBED_THREADS), 0, stream,
                   (T *)y, w->rows, w->row_bytes, token, sampled, w->K);
        });
    });
}
