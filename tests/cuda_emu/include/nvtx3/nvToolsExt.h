/* NVTX for tests: pushes and pops are recorded (tests/cuda_emu/ranges.cpp). */
#ifndef PENSTOCK_EMU_NVTX_H
#define PENSTOCK_EMU_NVTX_H

#ifdef __cplusplus
extern "C" {
#endif

int nvtxRangePushA(const char *name);
int nvtxRangePop(void);

/* Returns the pushes ("name(") and pops (")") since the last call as one text. The caller frees it.
 */
char *emu_ranges_taken(void);

#ifdef __cplusplus
}
#endif

#endif
