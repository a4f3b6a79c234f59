/* Reading GGUF's blocks on the device, a weight at a time, for packing. Layouts follow the GGUF
 * specification, as in kernels/cpu/weights/dequantise.c. */
#ifndef PENSTOCK_CUDA_GEMM_SOURCE_CUH
#define PENSTOCK_CUDA_GEMM_SOURCE_CUH

#include "kernels/cuda/runtime/device.cuh"

__device__ __forceinline__ uint32_t u16_at(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8;
}
__device__ __forceinline__ float float_of_half(uint32_t bits) {
    return __half2float(__ushort_as_half((unsigned short)bits));
}

/* A weight of a quantised type is scale() * (code() - ZERO), plus min() if it HAS_MIN, each
 * product rounded once. `row` is a row's first byte, k a column of it. */
template <enum dtype TYPE> struct Source;

/* ---- blocks of 32 --------------------------------------------------------------------------- */

/* A half, with MIN another, FIFTH bytes of fifth bits, then the codes. */
template <int BYTES_, int ZERO_, bool MIN, int FIFTH> struct Block32 {
    static constexpr int BYTES = BYTES_, ZERO = ZERO_, COLUMNS = 32;
    static constexpr bool HAS_MIN = MIN;
    static constexpr int BITS = 2 + 2 * MIN, CODES = BITS + FIFTH;
    __device__ static const uint8_t *block(const uint8_t *row, int k) {
        return row + (size_t)(k / 32) * BYTES;
    }
    __device__ static uint32_t d_bits(const uint8_t *row, int k) {
        return u16_at(block(row, k));
    }
    __device__ static uint32_t m_bits(const uint8_t *row, int k) {
        return u16_at(block(row, k) + 2);
    }
    __device__ static float scale(const uint8_t *row, int k) {
        return float_of_half(d_bits(row, k));
    }
    __device__ static float min(const uint8_t *row, int k) {
        return float_of_half(m_bits(row, k));
    }
    __device__ static int code(const uint8_t *row, int k) {
        const uint8_t *p = block(row, k);
        const int low = p[CODES + k % 16] >> k % 32 / 16 * 4 & 15;
        return FIFTH ? low | (p[BITS + k % 32 / 8] >> k % 8 & 1) << 4 : low;
    }
};
template <> struct Source<DTYPE_Q4_0> : Block32<18, 8, false, 0> {};
template <> struct Source<DTYPE_Q4_1> : Block32<20, 0, true, 0> {};
template <> struct Source<DTYPE_Q5_0> : Block32<22, 16, false, 4> {};
template <> struct Source<DTYPE_Q5_1> : Block32<24, 0, true, 4> {};
template <> struct Source<DTYPE_Q8_0> : Block32<34, 0, false, 0> {
    __device__ static int code(const uint8_t *row, int k) {
        return (int8_t)block(row, k)[2 + k % 32];
    }
};

/* ---- blocks of 256 -------------------------------------------------------------------------- */

/* d, dmin, 12 bytes of 6-bit scales and minima, FIFTH bytes of fifth bits, nibbles. */
template <int BYTES_, int FIFTH> struct BlockK {
    static constexpr int BYTES = BYTES_, ZERO = 0, COLUMNS = 256;
    static constexpr bool HAS_MIN = true;
    __device__ static const uint8_t *block(const uint8_t *row, int k) {
        return row + (size_t)(k / 256) * BYTES;
    }
    __device__ static uint32_t d_bits(const uint8_t *row, int k) {
        return u16_at(block(row, k));
    }
    __device__ static uint32_t m_bits(const uint8_t *row, int k) {
        return u16_at(block(row, k) + 2);
    }
    /* Those of the first four are whole in the low bits of bytes 0-3 and 4-7; the others have their
     * low nibbles in bytes 8-11 and two more bits on top of bytes 0-3 and 4-7. */
    __device__ static int scale_code(const uint8_t *row, int k) {
        const uint8_t *p = block(row, k) + 4;
        const int i = k % 256 / 32;
        return i < 4 ? p[i] & 63 : (p[i + 4] & 15) | p[i - 4] >> 6 << 4;
    }
    __device__ static int min_code(const uint8_t *row, int k) {
        const uint8_t *p = block(row, k) + 4;
        const int i = k % 256 / 32;
        return i < 4 ? p[i + 4] & 63 : p[i + 4] >> 4 | p[i] >> 6 << 4;
    }
    __device__ static float scale(const uint8_t *row, int k) {
        return float_of_half(d_bits(row, k)) * (float)scale_code(row, k);
    }
    __device__ static float min(const uint8_t *row, int k) {
        return float_of_half(m_bits(row, k)) * -(float)min_code(row, k);
    }
    __device__ static int code(const uint8_t *row, int k) {
        const uint8_t *p = block(row, k) + 16;
        const int i = k % 256 / 32, low = p[FIFTH + i / 2 * 32 + k % 32] >> i % 2 * 4 & 15;
        return FIFTH ? low | (p[k % 32] >> i & 1) << 4 : low;
    }
};
template <> struct Source<DTYPE_Q4_K> : BlockK<144, 0> {};
template <> struct Source<DTYPE_Q5_K> : BlockK<176, 32> {};

/* 128 bytes of nibbles, 64 of high pairs, 16 signed scales, d. */
template <> struct Source<DTYPE_Q6_K> {
    static constexpr int BYTES = 210, ZERO = 32, COLUMNS = 256;
    static constexpr bool HAS_MIN = false;
    __device__ static const uint8_t *block(const uint8_t *row, int k) {
        return row + (size_t)(k / 256) * BYTES;
    }
    __device__ static uint32_t d_bits(const uint8_t *row, int k) {
        return u16_at(block(row, k) + 208);
    }
    __device__ static int scale_code(const uint8_t *row, int k) {
        return (int8_t)block(row, k)[192 + k % 256 / 16];
    }
    __device__ static float scale(const uint8_t *row, int k) {
        return float_of_half(d_bits(row, k)) * (float)scale_code(row, k);
    }
    __device__ static float min(const uint8_t *, int) {
        return 0.0f;
    }
    __device__ static int code(const uint8_t *row, int k) {
        const uint8_t *p = block(row, k);
        const int i = k % 256 / 32, part = i / 4;
        const int low = p[part * 64 + i % 2 * 32 + k % 32] >> i % 4 / 2 * 4 & 15;
        return low | (p[128 + part * 32 + k % 32] >> i % 4 * 2 & 3) << 4;
    }
};

/* ---- any type ------------------------------------------------------------------------------- */

/* The weight as a float: the number that the CPU's dequantise() makes. */
template <class S> __device__ __forceinline__ float weight_of(const uint8_t *row, int k) {
    const float value = S::scale(row, k) * (float)(S::code(row, k) - S::ZERO);
    return S::HAS_MIN ? value + S::min(row, k) : value;
}
__device__ inline float weight_at(enum dtype type, const uint8_t *row, int k) {
    switch (type) {
    case DTYPE_F32:
        return reinterpret_cast<const float *>(row)[k];
    case DTYPE_F16:
        return float_of_half(u16_at(row + 2 * (size_t)k));
    case DTYPE_BF16:
        return __uint_as_float(u16_at(row + 2 * (size_t)k) << 16);
#define CASE(TYPE, ...)                                                                            \
    case DTYPE_##TYPE:                                                                             \
        return weight_of<Source<DTYPE_##TYPE>>(row, k);
        QUANT_TYPES(CASE)
#undef CASE
    case DTYPE_I16:
    case DTYPE_E4M3:
        break; /* of no weight */
    }
    return 0.0f;
}

#endif
