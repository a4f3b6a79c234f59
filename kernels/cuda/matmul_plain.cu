/* The product, the simple way: a warp an output, a weight a lane at a time. It is the oracle of the
 * fast ones on the device. Sums: lane l takes k = l, l + 32, ..., then the tree of warp_sum. */
#include "kernels/cuda/matmul_plain.cuh"

#include "kernels/cuda/dequantise.cuh"

enum { PRODUCT_WARPS = 4 };

template <class T, class OUT, enum dtype TYPE>
__global__ void __launch_bounds__(PRODUCT_WARPS *WARP)
    product_kernel(OUT *__restrict__ y, const T *__restrict__ x, const uint8_t *__restrict__ rows,
                   size_t row_bytes, int N, int K) {
    const int n = blockIdx.x * PRODUCT_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const size_t m = blockIdx.y;
    if (n >= N) return; /* a whole warp */
    const uint8_t *row = rows + (size_t)n * row_bytes;
    float sum = 0.0f;
    for (int k = lane; k < K; k += WARP)
        sum = fmaf(to_float(x[m * K + k]), weight_at<TYPE>(row, k), sum);
    sum = warp_sum(sum);
    if (lane == 0) y[m * N + n] = from_float<OUT>(sum);
}

template <class T, class OUT>
static void product(OUT *y, const T *x, const struct matrix *w, int M, cudaStream_t stream) {
    enum { MOST_ROWS = 65535 }; /* of a grid */
    for (int m = 0; m < M; m += MOST_ROWS) {
        const int rows = M - m < MOST_ROWS ? M - m : MOST_ROWS;
        const dim3 grid((w->N + PRODUCT_WARPS - 1) / PRODUCT_WARPS, rows);
        for_weight(w->type, [&](auto tag) {
            launch(product_kernel<T, OUT, decltype(tag)::value>, grid, dim3(PRODUCT_WARPS * WARP),
                   0, stream, y + (size_t)m * w->N, x + (size_t)m * w->K, w->rows, w->row_bytes,
                   w->N, w->K);
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
