/* The product, the simple way: a thread an output, over K in order, as the CPU's float product does
 * it (kernels/cpu/order.md). In float32 it has that one's bits, and it is the oracle of the fast
 * products on the device. */
#include "kernels/cuda/matmul_plain.cuh"

#include "kernels/cuda/dequantise.cuh"

enum { PRODUCT_THREADS = 128 };

template <class T, class OUT, enum dtype TYPE>
__global__ void __launch_bounds__(PRODUCT_THREADS)
    product_kernel(OUT *__restrict__ y, const T *__restrict__ x, const uint8_t *__restrict__ rows,
                   size_t row_bytes, int N, int K) {
    const int n = blockIdx.x * PRODUCT_THREADS + threadIdx.x;
    const size_t m = blockIdx.y;
    if (n >= N) return;
    const uint8_t *row = rows + (size_t)n * row_bytes;
    float sum = 0.0f;
    for (int k = 0; k < K; k++) sum = fmaf(to_float(x[m * K + k]), weight_at<TYPE>(row, k), sum);
    y[m * N + n] = from_float<OUT>(sum);
}

template <class T, class OUT>
static void product(OUT *y, const T *x, const struct matrix *w, int M, cudaStream_t stream) {
    enum { MOST_ROWS = 65535 }; /* of a grid */
    for (int m = 0; m < M; m += MOST_ROWS) {
        const int rows = M - m < MOST_ROWS ? M - m : MOST_ROWS;
        const dim3 grid((w->N + PRODUCT_THREADS - 1) / PRODUCT_THREADS, rows);
        for_weight(w->type, [&](auto tag) {
            launch(product_kernel<T, OUT, decltype(tag)::value>, grid, dim3(PRODUCT_THREADS), 0,
                   stream, y + (size_t)m * w->N, x + (size_t)m * w->K, w->rows, w->row_bytes, w->N,
                   w->K);
        });
    }
}

void matmul_plain(enum dtype act, enum dtype out, void *y, const void *x, const struct matrix *w,
                  int M, cudaStream_t stream) {
    assert(out == act || out == DTYPE_F32);
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        if (out == DTYPE_F32)
            product<T, float>((float *)y, (const T *)x, w, M, stream);
        else
            product<T, T>((T *)y, (const T *)x, w, M, stream);
    });
}
