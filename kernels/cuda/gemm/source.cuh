/* Reads GGUF's blocks on the device, one weight at a time, for packing. Layouts follow the GGUF
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

/* A weight of a quantised type is scale() * (code() - ZERO), plus min() if it HAS_MIN, each product
 * rounded once. `row` is the first byte of a row, k a column. */
template <enum dtype TYPE> struct Source;

/* ---- blocks of 32 --------------------------------------------------------------------------- */

/* A half, with MIN another half, FIFTH bytes of fifth bits, then the codes. */
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
/* The 16 values of IQ4's codes. */
__device__ inline int value_of_nl4(int code) {
    constexpr int8_t VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};
    return VALUES[code];
}
template <> struct Source<DTYPE_IQ4_NL> : Block32<18, 0, false, 0> {
    __device__ static int code(const uint8_t *row, int k) {
        return value_of_nl4(Block32::code(row, k));
    }
};

/* A power of two, and 4-bit floats: 2^(byte - 128) times twice their value. */
template <> struct Source<DTYPE_MXFP4> : Block32<17, 0, false, 0> {
    __device__ static int exponent(const uint8_t *row, int k) {
        return *block(row, k);
    }
    __device__ static float scale(const uint8_t *row, int k) {
        const uint32_t e = (uint32_t)exponent(row, k);
        return __uint_as_float(e < 2 ? 0x200000u << e : (e - 1) << 23);
    }
    __device__ static int nibble(const uint8_t *row, int k) {
        return block(row, k)[1 + k % 16] >> k % 32 / 16 * 4 & 15;
    }
    __device__ static int code(const uint8_t *row, int k) {
        const int code = nibble(row, k), size = code & 7;
        const int value = size < 5 ? size : size == 5 ? 6 : size == 6 ? 8 : 12;
        return code < 8 ? value : -value;
    }
};
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
    /* Those of the first four blocks are the low bits of bytes 0-3 and 4-7; the others have their
     * low nibbles in bytes 8-11 and two more bits at the top of bytes 0-3 and 4-7. */
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

/* Blocks with a half d at offset D. */
template <int BYTES_, int D, int ZERO_, bool MIN> struct Block256 {
    static constexpr int BYTES = BYTES_, ZERO = ZERO_, COLUMNS = 256;
    static constexpr bool HAS_MIN = MIN;
    __device__ static const uint8_t *block(const uint8_t *row, int k) {
        return row + (size_t)(k / 256) * BYTES;
    }
    __device__ static uint32_t d_bits(const uint8_t *row, int k) {
        return u16_at(block(row, k) + D);
    }
    __device__ static float scale(const uint8_t *row, int k) {
        return float_of_half(d_bits(row, k));
    }
    __device__ static float min(const uint8_t *, int) {
        return 0.0f;
    }
    /* 32 bytes serve four runs of 32 weights, two bits each. */
    __device__ static int pair_at(const uint8_t *pairs, int k) {
        return pairs[k % 256 / 128 * 32 + k % 32] >> k % 128 / 32 * 2 & 3;
    }
};

/* 128 bytes of nibbles, 64 of high pairs, 16 signed scales, d. */
template <> struct Source<DTYPE_Q6_K> : Block256<210, 208, 32, false> {
    __device__ static int scale_code(const uint8_t *row, int k) {
        return (int8_t)block(row, k)[192 + k % 256 / 16];
    }
    __device__ static float scale(const uint8_t *row, int k) {
        return float_of_half(d_bits(row, k)) * (float)scale_code(row, k);
    }
    __device__ static int code(const uint8_t *row, int k) {
        const uint8_t *p = block(row, k);
        const int i = k % 256 / 32, part = i / 4;
        const int low = p[part * 64 + i % 2 * 32 + k % 32] >> i % 4 / 2 * 4 & 15;
        return low | (p[128 + part * 32 + k % 32] >> i % 4 * 2 & 3) << 4;
    }
};

/* Codes of quantised folders: a float32 (INT4H: a half), for INT4 and INT4H a zero point, then the
 * codes. */
__device__ __forceinline__ float float_at(const uint8_t *p) {
    return __uint_as_float(u16_at(p) | u16_at(p + 2) << 16);
}
template <> struct Source<DTYPE_INT4> : Block32<21, 0, true, 0> {
    __device__ static float scale(const uint8_t *row, int k) {
        return float_at(block(row, k));
    }
    __device__ static float min(const uint8_t *row, int k) {
        return scale(row, k) * -(float)block(row, k)[4];
    }
    __device__ static int code(const uint8_t *row, int k) {
        return block(row, k)[5 + k % 16] >> k % 32 / 16 * 4 & 15;
    }
};
template <> struct Source<DTYPE_INT4H> : Block32<19, 0, true, 0> {
    __device__ static float min(const uint8_t *row, int k) {
        return scale(row, k) * -(float)block(row, k)[2];
    }
    __device__ static int code(const uint8_t *row, int k) {
        return block(row, k)[3 + k % 16] >> k % 32 / 16 * 4 & 15;
    }
};
template <> struct Source<DTYPE_INT8> : Block32<36, 0, false, 0> {
    __device__ static float scale(const uint8_t *row, int k) {
        return float_at(block(row, k));
    }
    __device__ static int code(const uint8_t *row, int k) {
        return (int8_t)block(row, k)[4 + k % 32];
    }
};

/* 16 bytes of scales and minima, 64 of pairs, d, dmin. */
template <> struct Source<DTYPE_Q2_K> : Block256<84, 80, 0, true> {
    __device__ static uint32_t m_bits(const uint8_t *row, int k) {
        return u16_at(block(row, k) + 82);
    }
    /* A scale and, in the high nibble, a minimum. */
    __device__ static int scales_at(const uint8_t *row, int k) {
        return block(row, k)[k % 256 / 16];
    }
    __device__ static float scale(const uint8_t *row, int k) {
        return float_of_half(d_bits(row, k)) * (float)(scales_at(row, k) & 15);
    }
    __device__ static float min(const uint8_t *row, int k) {
        return float_of_half(m_bits(row, k)) * -(float)(scales_at(row, k) >> 4);
    }
    __device__ static int code(const uint8_t *row, int k) {
        return pair_at(block(row, k) + 16, k);
    }
};

/* 32 bytes of third bits, 64 of pairs, 12 of scales, d. */
template <> struct Source<DTYPE_Q3_K> : Block256<110, 108, 4, false> {
    __device__ static int scale_code(const uint8_t *row, int k) {
        const uint8_t *p = block(row, k) + 96;
        const int i = k % 256 / 16;
        return ((p[i % 8] >> i / 8 * 4 & 15) | (p[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32;
    }
    __device__ static float scale(const uint8_t *row, int k) {
        return float_of_half(d_bits(row, k)) * (float)scale_code(row, k);
    }
    __device__ static int code(const uint8_t *row, int k) {
        const uint8_t *p = block(row, k);
        return pair_at(p + 32, k) | (p[k % 32] >> k % 256 / 32 & 1) << 2;
    }
};

/* d, high pairs of 8 scales, their low nibbles, the codes. */
template <> struct Source<DTYPE_IQ4_XS> : Block256<136, 0, 0, false> {
    __device__ static int scale_code(const uint8_t *row, int k) {
        const uint8_t *p = block(row, k);
        const int i = k % 256 / 32, low = p[4 + i / 2] >> i % 2 * 4 & 15;
        const int high = (int)(u16_at(p + 2) >> 2 * i & 3);
        return (low | high << 4) - 32;
    }
    __device__ static float scale(const uint8_t *row, int k) {
        return float_of_half(d_bits(row, k)) * (float)scale_code(row, k);
    }
    __device__ static int nibble(const uint8_t *row, int k) {
        const uint8_t *p = block(row, k) + 8 + k % 256 / 32 * 16;
        return p[k % 16] >> k % 32 / 16 * 4 & 15;
    }
    __device__ static int code(const uint8_t *row, int k) {
        return value_of_nl4(nibble(row, k));
    }
};

/* 48 bytes of five base-3 digits, 4 bytes of four, d. */
template <> struct Source<DTYPE_TQ1_0> : Block256<54, 52, 1, false> {
    __device__ static int code(const uint8_t *row, int k) {
        const uint8_t *p = block(row, k);
        const int i = k % 256;
        const int at = i < 160 ? i % 32 : i < 240 ? 32 + i % 16 : 48 + i % 4;
        const int digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
        int byte = p[at];
        for (int j = 0; j < digit; j++) byte = byte * 3 & 255;
        return byte * 3 >> 8;
    }
};
template <> struct Source<DTYPE_TQ2_0> : Block256<66, 64, 1, false> {
    __device__ static int code(const uint8_t *row, int k) {
        return pair_at(block(row, k), k);
    }
};

/* d, then codes of BITS bits, the first in the lowest bits. */
template <int COLUMNS_, int BITS> struct BlockShort {
    static constexpr int BYTES = 2 + COLUMNS_ * BITS / 8, ZERO = 1, COLUMNS = COLUMNS_;
    static constexpr bool HAS_MIN = false;
    __device__ static const uint8_t *block(const uint8_t *row, int k) {
        return row + (size_t)(k / COLUMNS) * BYTES;
    }
    __device__ static uint32_t d_bits(const uint8_t *row, int k) {
        return u16_at(block(row, k));
    }
    __device__ static float scale(const uint8_t *row, int k) {
        return float_of_half(d_bits(row, k));
    }
    __device__ static float min(const uint8_t *, int) {
        return 0.0f;
    }
    __device__ static int bits_at(const uint8_t *row, int k) {
        const int bit = k % COLUMNS * BITS;
        return block(row, k)[2 + bit / 8] >> bit % 8 & ((1 << BITS) - 1);
    }
};
/* d if the bit is set, else -d. */
template <> struct Source<DTYPE_Q1_0> : BlockShort<128, 1> {
    __device__ static int code(const uint8_t *row, int k) {
        return 2 * bits_at(row, k);
    }
};
template <> struct Source<DTYPE_Q2_0> : BlockShort<64, 2> {
    __device__ static int code(const uint8_t *row, int k) {
        return bits_at(row, k);
    }
};

/* ---- any type -------------------------------------------------------------------------------- */

/* The weight as a float: equal to the CPU's dequantise(). */
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
#define CASE(TYPE, ...) case DTYPE_##TYPE:
        LOOKUP_TYPES(CASE)
#undef CASE
    case DTYPE_I16:
    case DTYPE_E4M3:
        break; /* other types have no weights here */
    }
    return 0.0f;
}

#endif
