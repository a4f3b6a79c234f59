/* FP8 for the emulation: e4m3 of the OCP specification, without infinities, at most 448, rounded to
 * nearest, ties to even. Conversions saturate, like CUDA's constructor from float. */
#ifndef CUDA_EMU_FP8_H
#define CUDA_EMU_FP8_H

#include <math.h>
#include <stdint.h>

#include "cuda_runtime_api.h"

typedef uint8_t __nv_fp8_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace emu {

inline float e4m3_value(uint8_t bits) {
    int exponent = bits >> 3 & 15, mantissa = bits & 7;
    if ((bits & 127) == 127) return NAN;
    float size =
        exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    return bits & 128 ? -size : size;
}

/* Steps are 2^-9 below 2^-6, and an eighth of the power of two elsewhere. */
inline uint8_t e4m3_bits(float value) {
    uint8_t sign = signbit(value) ? 128 : 0;
    float size = fabsf(value);
    if (size != size) return 127;
    if (size >= 448) return sign | 126;
    int exponent = size < 0x1p-6f ? -6 : ilogbf(size);
    float steps = rintf(ldexpf(size, 3 - exponent)); /* 0..16; 16 carries into the exponent */
    return (uint8_t)(sign | (size < 0x1p-6f ? (int)steps : (exponent + 6) * 8 + (int)steps));
}

} // namespace emu

struct __nv_fp8_e4m3 {
    __nv_fp8_storage_t __x;
    __nv_fp8_e4m3() = default;
    explicit __nv_fp8_e4m3(float value) : __x(emu::e4m3_bits(value)) {}
    explicit operator float() const {
        return emu::e4m3_value(__x);
    }
};

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float value, __nv_saturation_t,
                                                __nv_fp8_interpretation_t) {
    return emu::e4m3_bits(value);
}

#endif
