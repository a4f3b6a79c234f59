/* emu: what emulated device code asks of the emulation. Kernels never name it: the headers beside
 * this one give them CUDA's own names for it.
 *
 * Every CUDA thread is a fiber, the blocks of a grid run one after another, or in turns, on the
 * host thread that waits for the stream. Shared memory is a static variable, marked so that the
 * emulation finds it in the program's symbol table.
 */
#ifndef CUDA_EMU_EMU_H
#define CUDA_EMU_EMU_H

#include <memory>
#include <stddef.h>
#include <stdint.h>

#include "cuda_runtime_api.h"

/* Functions that reach into other threads' stacks, and so must not be seen by the race checker. */
#define EMU_UNCHECKED __attribute__((no_sanitize("thread")))

/* The caller's place in the source, as last arguments of a function that CUDA calls without. */
#define EMU_SITE const char *emu_file = __builtin_FILE(), int emu_line = __builtin_LINE()
#define EMU_HERE (emu::site{emu_file, emu_line})

namespace emu {

struct site {
    const char *file;
    int line;
};

/* ---- the running thread --------------------------------------------------------------------- */

int lane();             /* of the running thread in its warp */
void *dynamic_shared(); /* the block's dynamic shared memory */

/* Waits for all threads of the block that have not ended; returns how many gave a predicate. */
int barrier(int predicate, site at);

/* Waits for the lanes of the mask; the last to arrive runs `exchange` on the arguments of all
 * (NULL for a lane that takes no part). A collective that orders memory is a __syncwarp. */
using exchange = void (*)(void *const arguments[32], unsigned mask);
void warp_collective(unsigned mask, exchange fn, void *argument, bool orders_memory, site at);

/* A point where another thread of the block may run. */
void maybe_switch();
/* Where the grid's blocks live at once: waits for its block's next turn; elsewhere the same. */
void sleep(site at);
/* Something has happened that others may have waited for. */
void note_progress();

/* Waits for the grids before this one in its stream. */
void grid_wait();

/* ---- memory --------------------------------------------------------------------------------- */

/* Tells the race checker of an access that the compiler does not show it. */
void note_access(const void *p, size_t n, bool write, bool atomic);
void note_fence();

/* A wide access must be aligned to its size. Every build looks. */
inline void must_be_aligned(const void *p, size_t n);

void cp_async(void *to, const void *from, int bytes, int total);
void cp_async_commit();
void cp_async_wait(int pending);

/* ---- launches, errors ----------------------------------------------------------------------- */

/* A kernel with its parameters as they were at the launch. */
struct body {
    std::shared_ptr<void> parameters;
    size_t bytes; /* of the parameters */
    void (*call)(void *parameters);
};
cudaError_t launch(const cudaLaunchConfig_t &config, const void *kernel, const body &body);
cudaError_t get_attributes(cudaFuncAttributes *out);
cudaError_t set_attribute(const void *kernel, cudaFuncAttribute attribute, int value);

/* An error in the program under test: it is printed once for its kind and kernel, counted, and ends
 * the process with a code of its own. */
void report(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
unsigned error_count();

inline void must_be_aligned(const void *p, size_t n) {
    if ((uintptr_t)p % n != 0) report("misaligned", "%zu bytes at %p", n, p);
}

} // namespace emu

#endif
