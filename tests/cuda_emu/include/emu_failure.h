/* Lets a test break the emulated device. */
#ifndef CUDA_EMU_FAILURE_H
#define CUDA_EMU_FAILURE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of calls: launches of kernels and graphs; copies and fills that are queued; waits of the
 * host for a stream or an event; records of events; allocations of device memory and pinned memory.
 */
enum emu_call { EMU_LAUNCH, EMU_COPY, EMU_WAIT, EMU_RECORD, EMU_ALLOCATE, EMU_N_CALLS };

/* Makes the n-th call of a kind from now on fail; 1 is the next one. for_good: as after a fault of
 * a kernel, queued work is lost and all later calls fail, except those that free memory, streams
 * and events. Otherwise only this call fails and does nothing. */
void emu_break(enum emu_call kind, int n, bool for_good);

/* Has that call failed? */
bool emu_is_broken(void);

/* Makes the device work again. Objects of the old device can only be freed. */
void emu_mend(void);

#ifdef __cplusplus
}
#endif

#endif
