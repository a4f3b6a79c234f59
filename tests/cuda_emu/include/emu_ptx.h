/* Emulated versions of the functions of kernels/cuda/runtime/ptx.cuh. Fragment layouts follow the
 * PTX manual, "Matrix fragments for mma.m16n8k16" and "ldmatrix": in a warp, lane l belongs to
 * group l / 4 and is number l % 4 of it. */
#ifndef CUDA_EMU_PTX_H
#define CUDA_EMU_PTX_H

#include <math.h>
#include <string.h>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "emu_atomics.h"

/* ---- numbers -------------------------------------------------------------------------------- */

constexpr bool CONVERTS_E4M3 = false; /* as before compute capability 8.9 */

inline float exp2_approximate(float x) {
    float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y;
}

/* ---- grids that follow one another ---------------------------------------------------------- */

inline void grid_let_next() {}
inline void grid_wait() {
    emu::grid_wait();
}

/* ---- words that blocks pass to one another --------------------------------------------------- */

inline unsigned add_release(unsigned *word, unsigned value) {
    emu::note_fence();
    return atomicAdd(word, value);
}
inline unsigned load_acquire(const unsigned *word) {
    const unsigned value = emu::atomic_load(word);
    emu::note_fence();
    return value;
}

/* ---- cp.async ------------------------------------------------------------------------------- */

inline void cp_async16(void *to, const void *from, int bytes = 16) {
    emu::cp_async(to, from, bytes, 16);
}
inline void cp_async_commit() {
    emu::cp_async_commit();
}
template <int N> void cp_async_wait() {
    emu::cp_async_wait(N);
}

/* ---- ldmatrix ------------------------------------------------------------------------------- */

namespace emu {

struct matrix_load {
    const char *row; /* of 8 elements of 16 bits */
    uint32_t out[4];
};
void load_matrices(void *const arguments[32], unsigned mask, int n, bool transposed);

template <int N, bool TRANSPOSED> void exchange_matrices(void *const arguments[32], unsigned mask) {
    load_matrices(arguments, mask, N, TRANSPOSED);
}

template <int N, bool TRANSPOSED> void ldmatrix(uint32_t *out, const void *row, site at) {
    matrix_load mine{static_cast<const char *>(row), {}};
    if (lane() < 8 * N) note_access(row, 16, false, false);
    warp_collective(0xffffffffu, exchange_matrices<N, TRANSPOSED>, &mine, false, at);
    for (int i = 0; i < N; i++) out[i] = mine.out[i];
}

} // namespace emu

inline void ldmatrix_x4(uint32_t (&out)[4], const void *row, EMU_SITE) {
    emu::ldmatrix<4, false>(out, row, EMU_HERE);
}
inline void ldmatrix_x4_trans(uint32_t (&out)[4], const void *row, EMU_SITE) {
    emu::ldmatrix<4, true>(out, row, EMU_HERE);
}

/* ---- bits ----------------------------------------------------------------------------------- */

inline uint32_t and_or(uint32_t a, uint32_t mask, uint32_t bits) {
    return (a & mask) | bits;
}

/* ---- mma ------------------------------------------------------------------------------------ */

namespace emu {

struct multiply {
    float d[4];
    uint32_t a[4], b[2];
};
using element_of = float (*)(uint16_t bits);
void multiply_matrices(void *const arguments[32], unsigned mask, element_of element);

inline float half_element(uint16_t bits) {
    return (float)__ushort_as_half(bits);
}
inline float bfloat16_element(uint16_t bits) {
    return (float)__ushort_as_bfloat16(bits);
}

template <element_of ELEMENT> void exchange_mma(void *const arguments[32], unsigned mask) {
    multiply_matrices(arguments, mask, ELEMENT);
}

template <element_of ELEMENT>
void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], site at) {
    multiply mine{{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    warp_collective(0xffffffffu, exchange_mma<ELEMENT>, &mine, false, at);
    for (int i = 0; i < 4; i++) d[i] = mine.d[i];
}

} // namespace emu

template <class T>
void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], EMU_SITE);

template <>
inline void mma_m16n8k16<__half>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                 const char *emu_file, int emu_line) {
    emu::mma<emu::half_element>(d, a, b, EMU_HERE);
}
template <>
inline void mma_m16n8k16<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2], const char *emu_file,
                                        int emu_line) {
    emu::mma<emu::bfloat16_element>(d, a, b, EMU_HERE);
}

#endif
