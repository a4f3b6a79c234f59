/* emu: the interface between emulated device code and the emulation. Kernels do not use these
 * names: the other headers here define CUDA's names for them.
 *
 * Each CUDA thread is a fiber. The blocks of a grid run one after another, or in turns, on the host
 * thread that waits for the stream. Shared memory is a static variable with a tag, by which the
 * emulation finds it in the program's symbol table.
 */
#ifndef CUDA_EMU_EMU_H
#define CUDA_EMU_EMU_H

#include <memory>
#include <stddef.h>
#include <stdint.h>

#include "cuda_runtime_api.h"

/* Functions that access other threads' stacks, so the race checker must not see them. */
#define EMU_UNCHECKED __attribute__((no_sanitize("thread")))

/* The caller's place in the source, as the last arguments of a function that CUDA calls without
 * them. */
#define EMU_SITE const char *emu_file = __builtin_FILE(), int emu_line = __builtin_LINE()
#define EMU_HERE (emu::site{emu_file, emu_line})

namespace emu {

struct site {
    const char *file;
    int line;
};

/* ---- the running thread --------------------------------------------------------------------- */

int lane();             /* the running thread's lane in its warp */
void *dynamic_shared(); /* the block's dynamic shared memory */

/* Waits for all threads of the block that have not ended. Returns the number of true predicates. */
int barrier(int predicate, site at);

/* Waits for the lanes of the mask. The last one to arrive runs `exchange` on the arguments of all
 * lanes (NULL for a lane that does not take part). A collective that orders memory is a __syncwarp.
 */
using exchange = void (*)(void *const arguments[32], unsigned mask);
void warp_collective(unsigned mask, exchange fn, void *argument, bool orders_memory, site at);

/* At this point another thread of the block may run. */
void maybe_switch();
/* If the grid's blocks are alive at the same time: waits for its block's next turn. Otherwise like
 * maybe_switch. */
void sleep(site at);
/* Records an event that other threads may have waited for. */
void note_progress();

/* Waits for the grids before this one in its stream. */
void grid_wait();

/* ---- memory --------------------------------------------------------------------------------- */

/* Reports an access that the compiler does not show to the race checker. */
void note_access(const void *p, size_t n, bool write, bool atomic);
void note_fence();

/* Fails unless a wide access is aligned to its size, in all builds. */
inline void must_be_aligned(const void *p, size_t n);

void cp_async(void *to, const void *from, int bytes, int total);
void cp_async_commit();
void cp_async_wait(int pending);

/* ---- launches, errors ----------------------------------------------------------------------- */

/* A kernel with a copy of its parameters at the launch. */
struct body {
    std::shared_ptr<void> parameters;
    size_t bytes; /* of the parameters */
    void (*call)(void *parameters);
};
cudaError_t launch(const cudaLaunchConfig_t &config, const void *kernel, const body &body);
cudaError_t get_attributes(cudaFuncAttributes *out);
cudaError_t set_attribute(const void *kernel, cudaFuncAttribute attribute, int value);

/* An error in the program under test. It is printed once per kind and kernel and counted, and the
 * process ends with a special exit code. */
void report(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
unsigned error_count();

inline void must_be_aligned(const void *p, size_t n) {
    if ((uintptr_t)p % n != 0) report("misaligned", "%zu bytes at %p", n, p);
}

} // namespace emu

#endif
