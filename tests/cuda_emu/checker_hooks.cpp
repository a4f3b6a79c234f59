/* The functions that the compiler calls with -fsanitize=thread, and the emulation's calls for
 * accesses that the compiler does not see. */
#include "checker.h"

namespace emu {

void note_access(const void *p, size_t n, bool write, bool atomic) {
    checker_access(p, n, write, atomic, __builtin_return_address(0));
}

void note_fence() {
    checker_fence();
}

/* A device traps if an access is not aligned to its size. The compiler aligns variables on a
 * thread's stack, so they are not checked. */
static void report_misaligned(const void *p, size_t n) {
    const char *stacks = block_stacks();
    const range local{stacks, stacks + (size_t)STACK_BYTES * MAX_THREADS};
    if (in_kernel() && !local.has(p))
        report("misaligned", "%zu bytes at %p: %s", n, p, describe(p).c_str());
}

/* `n` is a power of two. */
static void aligned_access(const void *p, size_t n, bool write, const void *pc) {
    if ((uintptr_t)p & (n - 1)) report_misaligned(p, n);
    checker_access(p, n, write, false, pc);
}

} // namespace emu

#define CALLER __builtin_return_address(0)
#define HOOKS(n)                                                                                   \
    void __tsan_read##n(void *p) {                                                                 \
        emu::aligned_access(p, n, false, CALLER);                                                  \
    }                                                                                              \
    void __tsan_write##n(void *p) {                                                                \
        emu::aligned_access(p, n, true, CALLER);                                                   \
    }                                                                                              \
    void __tsan_volatile_read##n(void *p) {                                                        \
        emu::aligned_access(p, n, false, CALLER);                                                  \
    }                                                                                              \
    void __tsan_volatile_write##n(void *p) {                                                       \
        emu::aligned_access(p, n, true, CALLER);                                                   \
    }                                                                                              \
    void __tsan_unaligned_read##n(void *p) {                                                       \
        emu::checker_access(p, n, false, false, CALLER);                                           \
    }                                                                                              \
    void __tsan_unaligned_write##n(void *p) {                                                      \
        emu::checker_access(p, n, true, false, CALLER);                                            \
    }

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void *p, long n) {
    emu::checker_access(p, (size_t)n, false, false, CALLER);
}
void __tsan_write_range(void *p, long n) {
    emu::checker_access(p, (size_t)n, true, false, CALLER);
}

/* Host code in the same files: counts of shared pointers, guards of local statics, flags. */
int __tsan_atomic32_fetch_add(volatile void *p, int value, int) {
    return __atomic_fetch_add(static_cast<volatile int *>(p), value, __ATOMIC_SEQ_CST);
}
char __tsan_atomic8_load(const volatile void *p, int) {
    return __atomic_load_n(static_cast<const volatile char *>(p), __ATOMIC_ACQUIRE);
}
void __tsan_atomic8_store(volatile void *p, char value, int) {
    __atomic_store_n(static_cast<volatile char *>(p), value, __ATOMIC_RELEASE);
}
char __tsan_atomic8_exchange(volatile void *p, char value, int) {
    return __atomic_exchange_n((volatile char *)p, value, __ATOMIC_SEQ_CST);
}

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void *, void *) {}
void __tsan_vptr_read(void *) {}
}
