/* A thread's variables, barriers, and functions that a warp's lanes run together. */
#ifndef CUDA_EMU_THREADS_H
#define CUDA_EMU_THREADS_H

#include <string.h>

#include "emu.h"

/* Constants for a thread: they hold its values whenever it runs. */
extern const uint3 threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;

/* ---- barriers and fences -------------------------------------------------------------------- */

inline void __syncthreads(EMU_SITE) {
    emu::barrier(0, EMU_HERE);
}
inline int __syncthreads_count(int predicate, EMU_SITE) {
    return emu::barrier(predicate != 0, EMU_HERE);
}
inline int __syncthreads_or(int predicate, EMU_SITE) {
    return emu::barrier(predicate != 0, EMU_HERE) != 0;
}
inline int __syncthreads_and(int predicate, EMU_SITE) {
    return emu::barrier(predicate == 0, EMU_HERE) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_SITE) {
    emu::warp_collective(mask, nullptr, nullptr, true, EMU_HERE);
}
inline void __threadfence() {
    emu::note_fence();
}
inline void __threadfence_block() {}
inline void __nanosleep(unsigned, EMU_SITE) {
    emu::sleep(EMU_HERE);
}

[[noreturn]] inline void __trap() {
    emu::report("trap", "a kernel called __trap()");
    __builtin_trap();
}

/* The rules guarantee only the calling lane. */
inline unsigned __activemask() {
    return 1u << emu::lane();
}

/* ---- shuffles ------------------------------------------------------------------------------- */

namespace emu {

template <class T> struct shuffled {
    T in, out;
    int from;
};

template <class T> EMU_UNCHECKED void shuffle_lanes(void *const arguments[32], unsigned mask) {
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        auto *me = static_cast<shuffled<T> *>(arguments[l]);
        auto *from = static_cast<const shuffled<T> *>(arguments[me->from]);
        if (from) {
            me->out = from->in;
            continue;
        }
        memset(static_cast<void *>(&me->out), 0xff, sizeof(T));
        report("shuffle", "lane %d reads lane %d, which does not take part", l, me->from);
    }
}

template <class T> T shuffle(unsigned mask, T value, int from, site at) {
    shuffled<T> mine{value, value, from};
    warp_collective(mask, shuffle_lanes<T>, &mine, false, at);
    return mine.out;
}

} // namespace emu

template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMU_SITE) {
    int base = emu::lane() & ~(width - 1);
    return emu::shuffle(mask, value, base | (source & (width - 1)), EMU_HERE);
}

template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, EMU_SITE) {
    int lane = emu::lane(), source = lane ^ bits;
    return emu::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, EMU_HERE);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_SITE) {
    int lane = emu::lane(), source = lane - (int)delta;
    return emu::shuffle(mask, value, source < (lane & ~(width - 1)) ? lane : source, EMU_HERE);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_SITE) {
    int lane = emu::lane(), source = lane + (int)delta;
    return emu::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, EMU_HERE);
}

/* ---- votes and reductions ------------------------------------------------------------------- */

namespace emu {

enum vote_kind { BALLOT, MATCH, SUM, LEAST, MOST, LEAST_SIGNED, MAX_SIGNED, OR, AND };

struct vote_of {
    uint64_t in;
    unsigned out;
    vote_kind kind;
};

/* Unions, sums and extremes of the lanes' values, with the same result for all lanes. MATCH: the
 * lanes that hold the same value. */
void vote_lanes(void *const arguments[32], unsigned mask);

inline unsigned vote(unsigned mask, uint64_t in, vote_kind kind, site at) {
    vote_of mine{in, 0, kind};
    warp_collective(mask, vote_lanes, &mine, false, at);
    return mine.out;
}

} // namespace emu

inline unsigned __ballot_sync(unsigned mask, int predicate, EMU_SITE) {
    return emu::vote(mask, predicate != 0, emu::BALLOT, EMU_HERE);
}
inline int __any_sync(unsigned mask, int predicate, EMU_SITE) {
    return emu::vote(mask, predicate != 0, emu::OR, EMU_HERE) != 0;
}
inline int __all_sync(unsigned mask, int predicate, EMU_SITE) {
    return emu::vote(mask, predicate != 0, emu::AND, EMU_HERE) != 0;
}
template <class T> unsigned __match_any_sync(unsigned mask, T value, EMU_SITE) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return emu::vote(mask, bits, emu::MATCH, EMU_HERE);
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value, EMU_SITE) {
    return emu::vote(mask, value, emu::SUM, EMU_HERE);
}
inline int __reduce_add_sync(unsigned mask, int value, EMU_SITE) {
    return (int)emu::vote(mask, (unsigned)value, emu::SUM, EMU_HERE);
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value, EMU_SITE) {
    return emu::vote(mask, value, emu::LEAST, EMU_HERE);
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value, EMU_SITE) {
    return emu::vote(mask, value, emu::MOST, EMU_HERE);
}
inline int __reduce_min_sync(unsigned mask, int value, EMU_SITE) {
    return (int)emu::vote(mask, (unsigned)value, emu::LEAST_SIGNED, EMU_HERE);
}
inline int __reduce_max_sync(unsigned mask, int value, EMU_SITE) {
    return (int)emu::vote(mask, (unsigned)value, emu::MAX_SIGNED, EMU_HERE);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, EMU_SITE) {
    return emu::vote(mask, value, emu::OR, EMU_HERE);
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value, EMU_SITE) {
    return emu::vote(mask, value, emu::AND, EMU_HERE);
}

#endif
