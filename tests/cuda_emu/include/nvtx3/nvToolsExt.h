/* NVTX as a test sees it: what is pushed and popped is written down (tests/cuda_emu/ranges.cpp). */
#ifndef PENSTOCK_EMU_NVTX_H
#define PENSTOCK_EMU_NVTX_H

#ifdef __cplusplus
extern "C" {
#endif

int nvtxRangePushA(const char *name);
int nvtxRangePop(void);

/* What was pushed ("name(") and popped (")") since the last call, as one text: the caller's to
 * free. */
char *emu_ranges_taken(void);

#ifdef __cplusplus
}
#endif

#endif
