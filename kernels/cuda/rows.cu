/* Ops on rows. All of them are bound by memory: a row is read once, in 16-byte pieces where its
 * length allows, and written once. */
#include "kernels/cuda/rows.cuh"

/* ---- norms ---------------------------------------------------------------------------------- */

enum { NORM_THREADS = 256 };

/* One block a row. The sums need the whole row before the first output, so it waits in shared
 * memory, as floats. */
template <class T, int N, bool LAYER>
__global__ void __launch_bounds__(NORM_THREADS)
    norm_kernel(T *y, T *x, const T *add, const float *__restrict__ gain,
                const float *__restrict__ bias, int K, float epsilon) {
    float *row = dyn_smem<float>();
    const size_t at = (size_t)blockIdx.x * K;
    float sum = 0.0f, squares = 0.0f;
    for (int k = threadIdx.x * N; k < K; k += NORM_THREADS * N) {
        Vec<T, N> in = load_vec<N>(x + at + k);
        if (add) {
            const Vec<T, N> more = load_vec<N>(add + at + k);
#pragma unroll
            for (int i = 0; i < N; i++)
                in.v[i] = from_float<T>(to_float(in.v[i]) + to_float(more.v[i]));
            store_vec<N>(x + at + k, in);
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float value = to_float(in.v[i]);
            row[k + i] = value;
            sum = sum + value;
            squares = fmaf(value, value, squares);
        }
    }
    float mean = 0.0f;
    if (LAYER) { /* the variance is taken around the mean, so that nothing cancels */
        mean = block_sum<NORM_THREADS>(sum) / (float)K;
        squares = 0.0f;
        for (int k = threadIdx.x * N; k < K; k += NORM_THREADS * N)
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float apart = row[k + i] - mean;
                squares = fmaf(apart, apart, squares);
            }
    }
    const float r = 1.0f / sqrtf(block_sum<NORM_THREADS>(squares) / (float)K + epsilon);
    for (int k = threadIdx.x * N; k < K; k += NORM_THREADS * N) {
        Vec<T, N> out;
#pragma unroll
        for (int i = 0; i < N; i++) {
            float value = (row[k + i] - mean) * r * gain[k + i];
            if (LAYER) value = value + bias[k + i];
            out.v[i] = from_float<T>(value);
        }
        store_vec<N>(y + at + k, out);
    }
}

/* ---- launching ------------------------------------------------------------------------------ */

template <class T, int N>
static void norm(void *y, void *x, const void *add, const float *gain, const float *bias, int M,
                 int K, float epsilon, cudaStream_t stream) {
    auto kernel = bias ? norm_kernel<T, N, true> : norm_kernel<T, N, false>;
    const size_t smem = (size_t)K * sizeof(float);
    if (smem > DEFAULT_SMEM) allow_smem(kernel, smem);
    launch(kernel, dim3(M), dim3(NORM_THREADS), smem, stream, (T *)y, (T *)x, (const T *)add, gain,
           bias, K, epsilon);
}

void rows_norm(enum dtype act, void *y, void *x, const void *add, const float *gain,
               const float *bias, int M, int K, float epsilon, cudaStream_t stream) {
    assert(K > 0 && K <= NORM_MOST_K);
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = Vec16<T>::N;
        if (K % N == 0)
            norm<T, N>(y, x, add, gain, bias, M, K, epsilon, stream);
        else
            norm<T, 1>(y, x, add, gain, bias, M, K, epsilon, stream);
    });
}
