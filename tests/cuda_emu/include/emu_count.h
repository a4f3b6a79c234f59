/* For tests in C: how many grids the emulation has run so far, and what stood between graphs. */
#ifndef CUDA_EMU_COUNT_H
#define CUDA_EMU_COUNT_H

#ifdef __cplusplus
extern "C" {
#endif

unsigned long emu_grids_run(void);

/* What was queued in the stream of the graph that was launched last, between it and the graph
 * before it in that stream: copies and fills; kernels. */
struct emu_between {
    unsigned long copies, launches;
};
void emu_between_graphs(struct emu_between *out);

#ifdef __cplusplus
}
#endif

#endif
