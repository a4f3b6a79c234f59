/* For tests: the number of grids that the emulation has run, the work between graphs, and a limit
 * on the blocks that run. */
#ifndef CUDA_EMU_COUNT_H
#define CUDA_EMU_COUNT_H

#ifdef __cplusplus
extern "C" {
#endif

unsigned long emu_grids_run(void);
/* The number of cooperative grids among them. */
unsigned long emu_cooperative_run(void);

/* The work that was queued between the last launched graph and the graph before it: copies and
 * fills, and kernels, in the stream of both; copies and fills in other streams. */
struct emu_between {
    unsigned long copies, launches, copies_elsewhere;
};
void emu_between_graphs(struct emu_between *out);

/* From now on only the last n blocks of each launched grid run; 0: all. */
void emu_run_last_blocks(unsigned n);

#ifdef __cplusplus
}
#endif

#endif
