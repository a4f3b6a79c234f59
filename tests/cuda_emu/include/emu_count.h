/* For tests: how many grids the emulation has run so far, what stood between graphs, and which
 * blocks run. */
#ifndef CUDA_EMU_COUNT_H
#define CUDA_EMU_COUNT_H

#ifdef __cplusplus
extern "C" {
#endif

unsigned long emu_grids_run(void);
/* Those of them that were cooperative. */
unsigned long emu_cooperative_run(void);

/* What was queued between the graph that was launched last and the graph before it: copies and
 * fills, and kernels, in the stream of both; copies and fills in other streams. */
struct emu_between {
    unsigned long copies, launches, copies_elsewhere;
};
void emu_between_graphs(struct emu_between *out);

/* Of each grid that is launched from now on only the last n blocks run; 0: all. */
void emu_run_last_blocks(unsigned n);

#ifdef __cplusplus
}
#endif

#endif
