/* Functions that replace NCCL's. Ranks are threads that meet, and the host copies data among them,
 * unlike a real collective. */
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
    NCCL_FAILS /* after it is open */
};

/* Replaces NCCL from now on, in the given state. */
void nccl_stand_in(enum nccl_state state);
/* Returns how often all ranks have met since then, and the number of open communicators. */
int nccl_stand_in_meetings(void);
int nccl_stand_in_open(void);

#ifdef __cplusplus
}
#endif

#endif
