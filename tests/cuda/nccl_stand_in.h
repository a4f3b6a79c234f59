/* NCCL with functions of our own in the place of the library's: ranks are threads that meet, and
 * copies among them are the host's, which a real collective is not. */
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
    NCCL_FAILS /* once it is open */
};

/* From now on NCCL is this, in the state given. */
void nccl_stand_in(enum nccl_state state);
/* How often all ranks have met since, and how many communicators are open. */
int nccl_stand_in_meetings(void);
int nccl_stand_in_open(void);

#ifdef __cplusplus
}
#endif

#endif
