/* Lets a test control the emulated device's memory. */
#ifndef CUDA_EMU_MEMORY_H
#define CUDA_EMU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets whether a device is present. Initially it is. */
void emu_present(bool there);

/* Sets the size of the device's memory from now on; initially 16 GiB. */
void emu_memory_set(size_t bytes);

/* Returns the bytes in use, of the device and pinned. */
size_t emu_memory_used(void);

/* Makes the n-th allocation from now on fail, of device memory or pinned; 0: none. Resets the
 * count. */
void emu_fail_at(int n);

/* Returns the number of allocation calls since then. */
int emu_allocations(void);

#ifdef __cplusplus
}
#endif

#endif
