/* Waits for a word to change. It spins first, because most changes take only microseconds, then it
 * sleeps. */
#ifndef PENSTOCK_KERNELS_CPU_WAIT_H
#define PENSTOCK_KERNELS_CPU_WAIT_H

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "config/config.h"

enum { SPIN_NS = 100000, PAUSES_A_LOOK_AT_THE_CLOCK = 64 };

static inline void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static inline void futex_wake(_Atomic uint32_t *word, int n) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static inline void cpu_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Spins until *word differs from `value`. Returns false after SPIN_NS. With more threads than cores
 * (`crowded`) it yields while spinning, because the thread that it waits for may need the core. */
static inline bool spin_while(_Atomic uint32_t *word, uint32_t value, bool crowded) {
    uint64_t until = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < PAUSES_A_LOOK_AT_THE_CLOCK; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) return true;
            cpu_pause();
        }
        if (crowded) sched_yield();
    } while (now_ns() < until);
    return false;
}

#endif
