/* Sums over ranks. NCCL is loaded if several GPUs are requested, and never linked. It gathers the
 * rows of all ranks; each rank adds them itself, in rank order. */
#ifndef PENSTOCK_CUDA_NCCL_CUH
#define PENSTOCK_CUDA_NCCL_CUH

#include "kernels/cuda/runtime/device.cuh"

/* The group of rank_group_cuda_new or gpu_group_join. It begins with a struct rank_group. */
struct cuda_group;
int cuda_group_ranks(const struct cuda_group *group);

/* The number of a rank's GPU in its process. */
int nccl_gpu(const struct rank_group *group, int rank);

/* For tests: looks functions up by `find` (which returns an address or NULL) instead of in the
 * library. */
void nccl_find_with(void *(*find)(const char *name));

/* Queues received[ranks][bytes] = the data that each rank sends. Each rank calls it on its own
 * thread, and the ranks meet on the devices. After a failure or an abort the data is undefined. */
void nccl_gather(struct cuda_group *group, int rank, const void *send, void *received, size_t bytes,
                 cudaStream_t stream);

enum { MAX_GATHERED = 32 << 20 }; /* bytes at once, unless one row of all ranks is larger */

struct all_reduce {
    struct cuda_group *group; /* NULL: a single rank */
    int rank;
    void *gathered; /* [ranks][rows][K] of some of the rows */
    size_t bytes;
};

/* Allocates memory for rows of at most max_k; nothing without a group. Fails with STATUS_USAGE if
 * the device is out of memory. */
enum status all_reduce_open(struct all_reduce *all, enum dtype act,
                            const struct backend_config *config, struct err *err);
void all_reduce_close(struct all_reduce *all);

/* The op of that name (kernels/ops.h). */
void all_reduce_run(const struct all_reduce *all, enum dtype act, void *x, void *part, int M, int K,
                    cudaStream_t stream);

/* x[M][K] = the sum of gathered[ranks][M][K], starting with rank 0, in float32 and rounded once;
 * part[M][K] = 0, unless it is NULL. */
void all_reduce_sum(enum dtype act, void *x, void *part, const void *gathered, int ranks, int M,
                    int K, cudaStream_t stream);

#endif
