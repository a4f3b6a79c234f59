/* Errors of the program under test, and the settings. */
#include <map>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "include/emu_threads.h"
#include "internal.h"

namespace emu {

enum { SAID = 2, EXIT_CODE = 66 };

static const void *kernel_now;
static unsigned errors;

void report_kernel(const void *kernel) {
    kernel_now = kernel;
}

unsigned error_count() {
    return errors;
}

/* The number of errors of this kind in the kernel. Never freed: errors may still be reported while
 * the program ends. */
static unsigned &times_seen(const char *kind) {
    static auto *seen = new std::map<std::pair<std::string, const void *>, unsigned>;
    return (*seen)[{kind, kernel_now}];
}

/* A program with errors must not end with success. */
static void at_end() {
    fprintf(stderr, "cuda_emu: %u error%s\n", errors, errors == 1 ? "" : "s");
    fflush(nullptr);
    _exit(EXIT_CODE);
}

void report(const char *kind, const char *format, ...) {
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (errors++ == 0) atexit(at_end);
    if (times_seen(kind)++ >= SAID) return;
    fprintf(stderr, "cuda_emu: %s: %s", kind, text);
    if (in_kernel())
        fprintf(stderr, " [block %u,%u,%u thread %u,%u,%u]", blockIdx.x, blockIdx.y, blockIdx.z,
                threadIdx.x, threadIdx.y, threadIdx.z);
    fprintf(stderr, "\n");
}

/* ---- settings ------------------------------------------------------------------------------- */

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

order running_order() {
    static const order chosen = [] {
        std::string name = setting("CUDA_EMU_ORDER", "random");
        return name == "fifo" ? order::FIFO : name == "lifo" ? order::LIFO : order::RANDOM;
    }();
    return chosen;
}

bool stream_runs_now() {
    const char *lazy = setting("CUDA_EMU_LAZY", "1");
    return strcmp(lazy, "random") == 0 ? random_below(2) == 0 : atoi(lazy) == 0;
}

int architecture() {
    return atoi(setting("CUDA_EMU_ARCH", "90"));
}

int shared_most() {
    const int arch = architecture();
    if (arch == 80 || arch == 87) return 163 << 10;
    return arch < 90 || arch >= 120 ? 99 << 10 : SHARED_MOST;
}

int ptx_version() {
    return atoi(setting("CUDA_EMU_PTX", setting("CUDA_EMU_ARCH", "90")));
}

bool is_told_to_fail(const char *call) {
    return strcmp(setting("CUDA_EMU_FAIL", ""), call) == 0;
}

/* xorshift64*, Vigna 2016. */
unsigned random_below(unsigned n) {
    static uint64_t state = strtoull(setting("CUDA_EMU_SEED", "1"), nullptr, 10) * 2 + 1;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (unsigned)((state * 0x2545f4914f6cdd1dull >> 32) * n >> 32);
}

} // namespace emu
