/* Rows of x for kernels that normalise them as they read them. */
#ifndef PENSTOCK_CUDA_WGMMA_NORMED_CUH
#define PENSTOCK_CUDA_WGMMA_NORMED_CUH

#include "kernels/cuda/rows/math.cuh"

template <class T> struct InputRows {
    const T *x; /* [M][K], K a multiple of 8 */
    int M, K;
    struct norm norm; /* of x, an RMSNorm; gain NULL: no norm */
};
/* The rows of a product. */
template <class T> InputRows<T> input_rows(const void *x, const struct norm *norm, int M, int K) {
    return {static_cast<const T *>(x), M, K, norm ? *norm : (struct norm){}};
}

/* Loads 8 adjacent numbers of a row; with a norm, rounded as rows_norm rounds them. */
template <class T, bool NORMED>
__device__ __forceinline__ Vec<float, 8> numbers_of(const InputRows<T> &in, const T *row, int k,
                                                    float factor) {
    const Vec<T, 8> numbers = load_vec<8>(row + k);
    Vec<float, 8> out;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        out.v[i] = to_float(numbers.v[i]);
        if (NORMED)
            out.v[i] = to_float(from_float<T>(norm_value(out.v[i], factor, in.norm.gain[k + i])));
    }
    return out;
}

/* The factor of a row's norm, in the order of norm_kernel (rows/rows.cu). The whole block of
 * NORM_THREADS threads calls it. */
template <class T>
__device__ __forceinline__ float factor_of(const InputRows<T> &in, const T *row) {
    float squares = 0.0f;
    for (int k = (int)threadIdx.x * 8; k < in.K; k += NORM_THREADS * 8) {
        const Vec<T, 8> numbers = load_vec<8>(row + k);
#pragma unroll
        for (int i = 0; i < 8; i++) squares = norm_add_square(squares, to_float(numbers.v[i]));
    }
    return norm_factor(block_sum<NORM_THREADS>(squares), in.K, in.norm.epsilon);
}

#endif
