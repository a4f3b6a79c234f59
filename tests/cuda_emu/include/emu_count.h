/* For tests in C: how many grids the emulation has run so far. */
#ifndef CUDA_EMU_COUNT_H
#define CUDA_EMU_COUNT_H

#ifdef __cplusplus
extern "C" {
#endif

unsigned long emu_grids_run(void);

#ifdef __cplusplus
}
#endif

#endif
