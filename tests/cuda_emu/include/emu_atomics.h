/* Atomics on shared and global memory. Threads are fibers, so a plain read and write is atomic.
 * Another thread may run at the switch before it. */
#ifndef CUDA_EMU_ATOMICS_H
#define CUDA_EMU_ATOMICS_H

#include <type_traits>

#include "emu.h"

namespace emu {

template <class T, class F> EMU_UNCHECKED T atomic(T *p, F change) {
    maybe_switch();
    note_access(p, sizeof(T), true, true);
    T old = *p;
    *p = change(old);
    if (*p != old) note_progress();
    return old;
}

/* A read that does not race with atomics. */
template <class T> EMU_UNCHECKED T atomic_load(const T *p) {
    maybe_switch();
    note_access(p, sizeof(T), false, true);
    return *p;
}

} // namespace emu

#define EMU_ATOMIC(name, changed)                                                                  \
    template <class T> T name(T *p, std::type_identity_t<T> value) {                               \
        return emu::atomic(p, [value] EMU_UNCHECKED(T old) -> T {                                  \
            (void)old;                                                                             \
            return (T)(changed);                                                                   \
        });                                                                                        \
    }
EMU_ATOMIC(atomicAdd, old + value)
EMU_ATOMIC(atomicSub, old - value)
EMU_ATOMIC(atomicExch, value)
EMU_ATOMIC(atomicMin, old < value ? old : value)
EMU_ATOMIC(atomicMax, old > value ? old : value)
EMU_ATOMIC(atomicAnd, old &value)
EMU_ATOMIC(atomicOr, old | value)
EMU_ATOMIC(atomicXor, old ^ value)
EMU_ATOMIC(atomicInc, old >= value ? 0 : old + 1)

template <class T>
T atomicCAS(T *p, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
    return emu::atomic(
        p, [compare, value] EMU_UNCHECKED(T old) -> T { return old == compare ? value : old; });
}

#endif
