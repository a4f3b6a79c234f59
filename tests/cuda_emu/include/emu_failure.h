/* What a test may do to the emulated device: break it. */
#ifndef CUDA_EMU_FAILURE_H
#define CUDA_EMU_FAILURE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of calls: launches of kernels and graphs; copies and fills that are queued; waits of the
 * host for a stream or an event; records of events; allocations, of device memory and pinned. */
enum emu_call { EMU_LAUNCH, EMU_COPY, EMU_WAIT, EMU_RECORD, EMU_ALLOCATE, EMU_N_CALLS };

/* Lets the n-th call of a kind from now on fail, 1 being the next one. Where it fails for good, as
 * after a fault of a kernel, what was queued is lost and every call fails from then on, but memory,
 * streams and events are freed; otherwise the one call alone does nothing. */
void emu_break(enum emu_call kind, int n, bool for_good);

/* Has the call failed that was told to? */
bool emu_is_broken(void);

/* The device is as new; what was made on it can only be freed. */
void emu_mend(void);

#ifdef __cplusplus
}
#endif

#endif
