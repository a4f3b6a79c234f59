/* Functions that replace NCCL's on emulated devices. The ranks are threads or processes of one
 * machine, and meet in shared memory that has the group's id as its name. A gathering is work of a
 * stream as NCCL's is: it can be recorded in a graph, and a rank waits in it for the others. */
#ifndef PENSTOCK_TESTS_CUDA_NCCL_STAND_IN_H
#define PENSTOCK_TESTS_CUDA_NCCL_STAND_IN_H

#ifdef __cplusplus
extern "C" {
#endif

enum nccl_state {
    NCCL_WORKS,
    NCCL_IS_MISSING,
    NCCL_LACKS_A_FUNCTION,
    NCCL_IS_BROKEN,
    NCCL_FAILS,     /* after it is open */
    NCCL_FAILS_AT_1 /* the same, but only rank 1's gatherings */
};

/* Replaces NCCL from now on, in the given state. */
void nccl_stand_in(enum nccl_state state);
/* Returns how often all ranks have met since then, and the number of open communicators of this
 * process. */
int nccl_stand_in_meetings(void);
int nccl_stand_in_open(void);

#ifdef __cplusplus
}
#endif

#endif
