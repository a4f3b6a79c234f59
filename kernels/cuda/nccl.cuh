/* NCCL, which is loaded when several GPUs are asked for and never linked. It moves what each rank
 * has to all of them; adding up is done here (all_reduce.cuh), in one order. */
#ifndef PENSTOCK_CUDA_NCCL_CUH
#define PENSTOCK_CUDA_NCCL_CUH

#include "kernels/cuda/device.cuh"

/* The group of rank_group_cuda_new: a communicator for each rank, whose device has its number. */
struct cuda_group {
    struct rank_group head;
    struct ncclComm *comm[MAX_RANKS];
};

/* Has functions come from `find` (a name's address, or NULL) in place of the library: for tests. */
void nccl_find_with(void *(*find)(const char *name));

/* received[ranks][bytes] = what each rank sends; the ranks' calls, each on its own thread, meet on
 * the devices. */
void nccl_gather(const struct cuda_group *group, int rank, const void *send, void *received,
                 size_t bytes, cudaStream_t stream);

#endif
