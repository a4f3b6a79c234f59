#include "counted/work.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

/* Loads and stores instead of additions: an atomic addition for each block would be slow. */
static _Atomic uint64_t units;

static void add_units(uint64_t n) {
    uint64_t before = atomic_load_explicit(&units, memory_order_relaxed);
    atomic_store_explicit(&units, before + n, memory_order_relaxed);
}

uint64_t work_done(void) {
    return atomic_load_explicit(&units, memory_order_relaxed);
}

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) {
    add_units(1);
}

static void add_bytes(size_t n) {
    add_units(1 + n / WORK_BYTES);
}

/* The linker passes all calls of NAME to __wrap_NAME, and those of __real_NAME to NAME. */
void *__real_memcpy(void *to, const void *from, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n);
void *__real_memmove(void *to, const void *from, size_t n);
void *__wrap_memmove(void *to, const void *from, size_t n);
void *__real_memset(void *to, int byte, size_t n);
void *__wrap_memset(void *to, int byte, size_t n);
int __real_memcmp(const void *a, const void *b, size_t n);
int __wrap_memcmp(const void *a, const void *b, size_t n);
void *__real_memchr(const void *in, int byte, size_t n);
void *__wrap_memchr(const void *in, int byte, size_t n);
void *__real_realloc(void *block, size_t n);
void *__wrap_realloc(void *block, size_t n);
size_t __real_strlen(const char *text);
size_t __wrap_strlen(const char *text);
int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

void *__wrap_memcpy(void *to, const void *from, size_t n) {
    add_bytes(n);
    return __real_memcpy(to, from, n);
}

void *__wrap_memmove(void *to, const void *from, size_t n) {
    add_bytes(n);
    return __real_memmove(to, from, n);
}

void *__wrap_memset(void *to, int byte, size_t n) {
    add_bytes(n);
    return __real_memset(to, byte, n);
}

int __wrap_memcmp(const void *a, const void *b, size_t n) {
    add_bytes(n);
    return __real_memcmp(a, b, n);
}

void *__wrap_memchr(const void *in, int byte, size_t n) {
    const char *found = __real_memchr(in, byte, n);
    add_bytes(found ? (size_t)(found - (const char *)in) : n);
    return (void *)found;
}

/* It may copy the whole block. */
void *__wrap_realloc(void *block, size_t n) {
    add_bytes(n);
    return __real_realloc(block, n);
}

size_t __wrap_strlen(const char *text) {
    size_t n = __real_strlen(text);
    add_bytes(n);
    return n;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *t) {
    if (clock != CLOCK_THREAD_CPUTIME_ID) return __real_clock_gettime(clock, t);
    uint64_t ns = work_done();
    *t = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    return 0;
}
