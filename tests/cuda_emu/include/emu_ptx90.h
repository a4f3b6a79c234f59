/* Emulated versions of the functions of kernels/cuda/runtime/ptx90.cuh: mbarriers, bulk copies,
 * products of warpgroups, and transfers of registers between warpgroups. The rules are in
 * barriers.cpp and wgmma.cpp. */
#ifndef CUDA_EMU_PTX90_H
#define CUDA_EMU_PTX90_H

#include "cuda_fp8.h"
#include "emu_ptx.h"

namespace emu {

void mbarrier_init(uint64_t *barrier, unsigned count);
void mbarrier_arrive(uint64_t *barrier, unsigned expected_bytes, site at);
void mbarrier_wait(uint64_t *barrier, unsigned parity, site at);
void bulk_copy(void *to, const void *from, unsigned bytes, uint64_t *barrier, site at);
void proxy_fence();

uint32_t shared_address(const void *p);
void wgmma_fence();
/* The kind of a product: its columns, bytes of an element, whether it adds to d, and whether lines
 * of b hold adjacent columns instead of adjacent k. */
struct wgmma_kind {
    int columns, width;
    element_of element;
    bool adds, rows;
    bool operator==(const wgmma_kind &) const = default;
};
void wgmma(float *d, const uint32_t *a, uint64_t b, const wgmma_kind &kind, site at);
inline float e4m3_element(uint16_t bits) {
    return e4m3_value((uint8_t)bits);
}
void wgmma_commit();
void wgmma_wait(int pending, site at);
void set_registers(int count, bool more, site at);

} // namespace emu

inline uint32_t shared_address(const void *p) {
    return emu::shared_address(p);
}

/* ---- mbarriers, bulk copies ----------------------------------------------------------------- */

inline void mbarrier_init(uint64_t *barrier, unsigned count) {
    emu::mbarrier_init(barrier, count);
}
inline void mbarrier_arrive(uint64_t *barrier, EMU_SITE) {
    emu::mbarrier_arrive(barrier, 0, EMU_HERE);
}
inline void mbarrier_arrive_expect(uint64_t *barrier, unsigned bytes, EMU_SITE) {
    emu::mbarrier_arrive(barrier, bytes, EMU_HERE);
}
inline void mbarrier_wait(uint64_t *barrier, unsigned parity, EMU_SITE) {
    emu::mbarrier_wait(barrier, parity, EMU_HERE);
}
inline void bulk_copy(void *to, const void *from, unsigned bytes, uint64_t *barrier, EMU_SITE) {
    emu::bulk_copy(to, from, bytes, barrier, EMU_HERE);
}
inline void fence_proxy_async() {
    emu::proxy_fence();
}

/* ---- products of a warpgroup ---------------------------------------------------------------- */

inline void wgmma_fence() {
    emu::wgmma_fence();
}
inline void wgmma_commit() {
    emu::wgmma_commit();
}
template <int PENDING, int R> void wgmma_wait(float (&)[R], EMU_SITE) {
    emu::wgmma_wait(PENDING, EMU_HERE);
}

template <class T> constexpr emu::element_of emu_element = nullptr;
template <> inline constexpr emu::element_of emu_element<__half> = emu::half_element;
template <> inline constexpr emu::element_of emu_element<__nv_bfloat16> = emu::bfloat16_element;

template <class T, int R>
void wgmma_m64k16(float (&d)[R], const uint32_t (&a)[4], uint64_t b, bool adds = true, EMU_SITE) {
    emu::wgmma(d, a, b, {2 * R, 2, emu_element<T>, adds, false}, EMU_HERE);
}
template <class T, int R>
void wgmma_m64k16_rows(float (&d)[R], const uint32_t (&a)[4], uint64_t b, bool adds = true,
                       EMU_SITE) {
    emu::wgmma(d, a, b, {2 * R, 2, emu_element<T>, adds, true}, EMU_HERE);
}
template <bool ADDS, int R>
void wgmma_e4m3(float (&d)[R], const uint32_t (&a)[4], uint64_t b, EMU_SITE) {
    emu::wgmma(d, a, b, {2 * R, 1, emu::e4m3_element, ADDS, false}, EMU_HERE);
}

/* ---- registers ------------------------------------------------------------------------------ */

template <int COUNT> void registers_take(EMU_SITE) {
    emu::set_registers(COUNT, true, EMU_HERE);
}
template <int COUNT> void registers_give(EMU_SITE) {
    emu::set_registers(COUNT, false, EMU_HERE);
}

#endif
