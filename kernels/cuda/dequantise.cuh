/* Reading one weight of a row in GGUF's layouts: the readable way, with the operations of the CPU's
 * dequantise (kernels/cpu/dequantise.c) in its order, so that the floats have the same bits. Fast
 * kernels unpack whole blocks in ways of their own. */
#ifndef PENSTOCK_CUDA_DEQUANTISE_CUH
#define PENSTOCK_CUDA_DEQUANTISE_CUH

#include <type_traits>

#include "kernels/cuda/device.cuh"

/* Calls fn with a constant whose ::value is the type of the weights: for_weight(type, [&](auto tag)
 * { constexpr enum dtype TYPE = decltype(tag)::value; ... }). */
template <enum dtype TYPE> using weight_tag = std::integral_constant<enum dtype, TYPE>;
template <class F> void for_weight(enum dtype type, F fn) {
    switch (type) {
    case DTYPE_F32:
        return fn(weight_tag<DTYPE_F32>());
    case DTYPE_F16:
        return fn(weight_tag<DTYPE_F16>());
    case DTYPE_BF16:
        return fn(weight_tag<DTYPE_BF16>());
    case DTYPE_Q4_0:
        return fn(weight_tag<DTYPE_Q4_0>());
    case DTYPE_Q4_1:
        return fn(weight_tag<DTYPE_Q4_1>());
    case DTYPE_Q5_0:
        return fn(weight_tag<DTYPE_Q5_0>());
    case DTYPE_Q5_1:
        return fn(weight_tag<DTYPE_Q5_1>());
    case DTYPE_Q8_0:
        return fn(weight_tag<DTYPE_Q8_0>());
    case DTYPE_Q4_K:
        return fn(weight_tag<DTYPE_Q4_K>());
    case DTYPE_Q5_K:
        return fn(weight_tag<DTYPE_Q5_K>());
    case DTYPE_Q6_K:
        return fn(weight_tag<DTYPE_Q6_K>());
    case DTYPE_I16:
    case DTYPE_E4M3:
        break; /* of no weight */
    }
}

/* Blocks are an even number of bytes long and halves stand at even places in them. */
__device__ __forceinline__ float half_at(const uint8_t *p) {
    return __half2float(*reinterpret_cast<const __half *>(p));
}

/* Weight i < 32 of a block: its code, of 4 bits and in some formats a fifth. */
__device__ __forceinline__ int nibble_at(const uint8_t *p, int i) {
    return i < 16 ? p[i] & 15 : p[i - 16] >> 4;
}
__device__ __forceinline__ int fifth_bit(const uint8_t *p, int i) {
    return (p[i / 8] >> (i % 8) & 1) << 4;
}

/* Scale and minimum of block i of the 8 of Q4_K and Q5_K, 6 bits each in 12 bytes. */
__device__ __forceinline__ int k_scale(const uint8_t *p, int i) {
    return i < 4 ? p[i] & 63 : (p[i + 4] & 15) | p[i - 4] >> 6 << 4;
}
__device__ __forceinline__ int k_min(const uint8_t *p, int i) {
    return i < 4 ? p[i + 4] & 63 : p[i + 4] >> 4 | p[i] >> 6 << 4;
}

/* Weight j < 256 of a block of Q4_K (FIFTH false) or Q5_K. */
template <bool FIFTH> __device__ __forceinline__ float k_weight(const uint8_t *p, int j) {
    const int i = j / 32;
    const uint8_t *nibbles = p + (FIFTH ? 48 : 16) + i / 2 * 32;
    int code = nibbles[j % 32] >> i % 2 * 4 & 15;
    if (FIFTH) code |= (p[16 + j % 32] >> i & 1) << 4;
    const float scale = half_at(p) * (float)k_scale(p + 4, i);
    const float min = half_at(p + 2) * (float)-k_min(p + 4, i);
    const float value = scale * (float)code;
    return k_min(p + 4, i) ? value + min : value;
}

__device__ __forceinline__ float q6_k_weight(const uint8_t *p, int j) {
    const int i = j / 32, half = i / 4;
    const int low = p[half * 64 + i % 2 * 32 + j % 32] >> i % 4 / 2 * 4 & 15;
    const int high = p[128 + half * 32 + j % 32] >> i % 4 * 2 & 3;
    const int scale = reinterpret_cast<const int8_t *>(p)[192 + j / 16];
    return half_at(p + 208) * (float)scale * (float)((low | high << 4) - 32);
}

/* Weight k of a row. */
template <enum dtype TYPE> __device__ __forceinline__ float weight_at(const uint8_t *row, int k) {
    if constexpr (TYPE == DTYPE_F32) {
        return reinterpret_cast<const float *>(row)[k];
    } else if constexpr (TYPE == DTYPE_F16) {
        return half_at(row + 2 * (size_t)k);
    } else if constexpr (TYPE == DTYPE_BF16) {
        return to_float(reinterpret_cast<const __nv_bfloat16 *>(row)[k]);
    } else if constexpr (TYPE == DTYPE_Q4_0) {
        const uint8_t *p = row + (size_t)(k / 32) * 18;
        return half_at(p) * (float)(nibble_at(p + 2, k % 32) - 8);
    } else if constexpr (TYPE == DTYPE_Q4_1) {
        const uint8_t *p = row + (size_t)(k / 32) * 20;
        return half_at(p) * (float)nibble_at(p + 4, k % 32) + half_at(p + 2);
    } else if constexpr (TYPE == DTYPE_Q5_0) {
        const uint8_t *p = row + (size_t)(k / 32) * 22;
        const int code = nibble_at(p + 6, k % 32) | fifth_bit(p + 2, k % 32);
        return half_at(p) * (float)(code - 16);
    } else if constexpr (TYPE == DTYPE_Q5_1) {
        const uint8_t *p = row + (size_t)(k / 32) * 24;
        const int code = nibble_at(p + 8, k % 32) | fifth_bit(p + 4, k % 32);
        return half_at(p) * (float)code + half_at(p + 2);
    } else if constexpr (TYPE == DTYPE_Q8_0) {
        const uint8_t *p = row + (size_t)(k / 32) * 34;
        return half_at(p) * (float)reinterpret_cast<const int8_t *>(p)[2 + k % 32];
    } else if constexpr (TYPE == DTYPE_Q4_K) {
        return k_weight<false>(row + (size_t)(k / 256) * 144, k % 256);
    } else if constexpr (TYPE == DTYPE_Q5_K) {
        return k_weight<true>(row + (size_t)(k / 256) * 176, k % 256);
    } else {
        static_assert(TYPE == DTYPE_Q6_K, "a type of weights");
        return q6_k_weight(row + (size_t)(k / 256) * 210, k % 256);
    }
}

#endif
