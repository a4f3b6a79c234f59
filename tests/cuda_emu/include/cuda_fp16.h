/* Half precision for the emulation, by the compiler's _Float16. Conversions round to nearest, ties
 * to even, as in CUDA. Arithmetic is done in float and rounded once. For one addition,
 * multiplication or fma of halves this is the rounding of the exact result. */
#ifndef CUDA_EMU_FP16_H
#define CUDA_EMU_FP16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cuda_runtime_api.h"

struct __half_raw {
    unsigned short x;
};

struct __half {
    uint16_t bits;
    __half() = default;
    __half(const __half_raw &raw) : bits(raw.x) {}
    explicit __half(float value) {
        _Float16 rounded = (_Float16)value;
        memcpy(&bits, &rounded, sizeof bits);
    }
    operator float() const {
        _Float16 value;
        memcpy(&value, &bits, sizeof value);
        return (float)value;
    }
};
typedef __half half;

struct alignas(4) __half2 {
    __half x, y;
};
typedef __half2 half2;

inline float __half2float(__half h) {
    return (float)h;
}
inline __half __float2half(float x) {
    return __half(x);
}
inline __half __float2half_rn(float x) {
    return __half(x);
}
inline __half __ushort_as_half(unsigned short bits) {
    return __half(__half_raw{bits});
}
inline unsigned short __half_as_ushort(__half h) {
    return h.bits;
}
inline __half2 __halves2half2(__half x, __half y) {
    return {x, y};
}
inline __half2 __half2half2(__half x) {
    return {x, x};
}
inline __half __low2half(__half2 h) {
    return h.x;
}
inline __half __high2half(__half2 h) {
    return h.y;
}
inline float2 __half22float2(__half2 h) {
    return {(float)h.x, (float)h.y};
}
inline __half2 __floats2half2_rn(float x, float y) {
    return {__half(x), __half(y)};
}
inline __half2 __float22half2_rn(float2 f) {
    return {__half(f.x), __half(f.y)};
}

inline __half __hadd(__half a, __half b) {
    return __half((float)a + (float)b);
}
inline __half __hsub(__half a, __half b) {
    return __half((float)a - (float)b);
}
inline __half __hmul(__half a, __half b) {
    return __half((float)a * (float)b);
}
inline __half __hfma(__half a, __half b, __half c) {
    return __half((float)fma((double)(float)a, (double)(float)b, (double)(float)c));
}
inline __half2 __hadd2(__half2 a, __half2 b) {
    return {__hadd(a.x, b.x), __hadd(a.y, b.y)};
}
inline __half2 __hsub2(__half2 a, __half2 b) {
    return {__hsub(a.x, b.x), __hsub(a.y, b.y)};
}
inline __half2 __hmul2(__half2 a, __half2 b) {
    return {__hmul(a.x, b.x), __hmul(a.y, b.y)};
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}

#endif
