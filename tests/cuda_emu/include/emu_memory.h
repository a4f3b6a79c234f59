/* What a test may do to the emulated device's memory. */
#ifndef CUDA_EMU_MEMORY_H
#define CUDA_EMU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Is there a device? There is until it is taken away. */
void emu_present(bool there);

/* The device's memory from now on; 16 GiB unless set. */
void emu_memory_set(size_t bytes);

/* Bytes in use, of the device and pinned. */
size_t emu_memory_used(void);

/* Lets the n-th allocation from now on fail, of device memory or pinned; 0: none. Counts anew. */
void emu_fail_at(int n);

/* Allocations that were asked for since then. */
int emu_allocations(void);

#ifdef __cplusplus
}
#endif

#endif
