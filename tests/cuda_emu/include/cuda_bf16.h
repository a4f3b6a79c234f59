/* bfloat16 for the emulation: the upper half of a float, rounded to nearest, ties to even. */
#ifndef CUDA_EMU_BF16_H
#define CUDA_EMU_BF16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cuda_runtime_api.h"

struct __nv_bfloat16_raw {
    unsigned short x;
};

struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(const __nv_bfloat16_raw &raw) : bits(raw.x) {}
    explicit __nv_bfloat16(float value) {
        uint32_t word;
        memcpy(&word, &value, sizeof word);
        uint32_t rounded = word + 0x7fffu + (word >> 16 & 1);
        bits = value != value ? 0x7fff : (uint16_t)(rounded >> 16);
    }
    operator float() const {
        uint32_t word = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &word, sizeof value);
        return value;
    }
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

inline float __bfloat162float(__nv_bfloat16 b) {
    return (float)b;
}
inline __nv_bfloat16 __float2bfloat16(float x) {
    return __nv_bfloat16(x);
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    return __nv_bfloat16(x);
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    return __nv_bfloat16(__nv_bfloat16_raw{bits});
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) {
    return b.bits;
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
    return {x, y};
}
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) {
    return {x, x};
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 b) {
    return b.x;
}
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 b) {
    return b.y;
}
inline float2 __bfloat1622float2(__nv_bfloat162 b) {
    return {(float)b.x, (float)b.y};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 f) {
    return {__nv_bfloat16(f.x), __nv_bfloat16(f.y)};
}

inline __nv_bfloat16 __hadd(__nv_bfloat16 a, __nv_bfloat16 b) {
    return __nv_bfloat16((float)a + (float)b);
}
inline __nv_bfloat16 __hmul(__nv_bfloat16 a, __nv_bfloat16 b) {
    return __nv_bfloat16((float)a * (float)b);
}
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    return __nv_bfloat16((float)fma((double)(float)a, (double)(float)b, (double)(float)c));
}
inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b) {
    return {__hadd(a.x, b.x), __hadd(a.y, b.y)};
}
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) {
    return {__hmul(a.x, b.x), __hmul(a.y, b.y)};
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}

#endif
