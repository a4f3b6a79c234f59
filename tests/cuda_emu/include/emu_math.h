/* Device arithmetic: functions of CUDA that the C library lacks, or has under other names. The fast
 * ones (__expf and the like) are as exact as the C library's here; their errors on a device are not
 * emulated. */
#ifndef CUDA_EMU_MATH_H
#define CUDA_EMU_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "emu.h"

/* ---- floats --------------------------------------------------------------------------------- */

inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
inline float __expf(float x) {
    return expf(x);
}
inline float __logf(float x) {
    return logf(x);
}
inline float __sinf(float x) {
    return sinf(x);
}
inline float __cosf(float x) {
    return cosf(x);
}
inline float __fdividef(float a, float b) {
    return a / b;
}
inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline float __fsqrt_rn(float x) {
    return sqrtf(x);
}
inline float __frcp_rn(float x) {
    return 1.0f / x;
}
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
inline float __saturatef(float x) {
    return x < 0 ? 0 : x > 1 ? 1 : x;
}
inline int __float2int_rn(float x) {
    return (int)rintf(x);
}
inline unsigned long long __double2ull_rn(double x) {
    return (unsigned long long)rint(x);
}
inline unsigned long long __float2ull_rn(float x) {
    return (unsigned long long)rintf(x);
}
inline long long __float2ll_rn(float x) {
    return (long long)rintf(x);
}
inline float __int2float_rn(int x) {
    return (float)x;
}
inline float __uint2float_rn(unsigned x) {
    return (float)x;
}

/* ---- bits ----------------------------------------------------------------------------------- */

namespace emu {
template <class To, class From> To bits_of(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
} // namespace emu

inline int __float_as_int(float x) {
    return emu::bits_of<int>(x);
}
inline unsigned __float_as_uint(float x) {
    return emu::bits_of<unsigned>(x);
}
inline float __int_as_float(int x) {
    return emu::bits_of<float>(x);
}
inline float __uint_as_float(unsigned x) {
    return emu::bits_of<float>(x);
}
inline long long __double_as_longlong(double x) {
    return emu::bits_of<long long>(x);
}
inline double __longlong_as_double(long long x) {
    return emu::bits_of<double>(x);
}
inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
inline int __clz(int x) {
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (by & 31));
}

/* Returns c plus the products of four signed bytes. */
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8) c += (int)(int8_t)(a >> i) * (int8_t)(b >> i);
    return c;
}

/* Byte i of the result is the byte of (b, a) that nibble i of `pick` selects. If the nibble's top
 * bit is set, that byte's sign fills the byte. */
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned pick) {
    uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned nibble = pick >> 4 * i & 15, byte = (unsigned)(bytes >> 8 * (nibble & 7)) & 255;
        if (nibble & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * i;
    }
    return result;
}

/* ---- extremes, cache hints ------------------------------------------------------------------ */

inline int min(int a, int b) {
    return a < b ? a : b;
}
inline int max(int a, int b) {
    return a > b ? a : b;
}
inline unsigned min(unsigned a, unsigned b) {
    return a < b ? a : b;
}
inline unsigned max(unsigned a, unsigned b) {
    return a > b ? a : b;
}
inline float min(float a, float b) {
    return fminf(a, b);
}
inline float max(float a, float b) {
    return fmaxf(a, b);
}

#define EMU_LOAD(name)                                                                             \
    template <class T> T name(const T *p) {                                                        \
        return *p;                                                                                 \
    }
EMU_LOAD(__ldg)
EMU_LOAD(__ldcs)
EMU_LOAD(__ldcg)
EMU_LOAD(__ldca)
EMU_LOAD(__ldlu)

#define EMU_STORE(name)                                                                            \
    template <class T> void name(T *p, T value) {                                                  \
        *p = value;                                                                                \
    }
EMU_STORE(__stcs)
EMU_STORE(__stcg)
EMU_STORE(__stwt)

#endif
