/* Sums over ranks: every rank gathers the rows of all, and adds them up in the ranks' order. */
#ifndef PENSTOCK_CUDA_ALL_REDUCE_CUH
#define PENSTOCK_CUDA_ALL_REDUCE_CUH

#include "kernels/cuda/nccl.cuh"

enum { MOST_GATHERED = 32 << 20 }; /* bytes at once, unless one row of all ranks is more */

struct all_reduce {
    const struct cuda_group *group; /* NULL: the backend computes alone */
    int rank;
    void *gathered; /* [ranks][rows][K] of some of the rows */
    size_t bytes;
};

/* Takes memory for rows of max_k at most; nothing without a group. Fails with STATUS_USAGE where
 * there is no room. */
enum status all_reduce_open(struct all_reduce *all, enum dtype act,
                            const struct backend_config *config, struct err *err);
void all_reduce_close(struct all_reduce *all);

/* The op of that name: kernels.h. */
void all_reduce_run(const struct all_reduce *all, enum dtype act, void *x, void *part, int M, int K,
                    cudaStream_t stream);

/* x[M][K] = the sum of gathered[ranks][M][K] from rank 0 on, in float32 and rounded once;
 * part[M][K], unless it is NULL, = 0. */
void all_reduce_sum(enum dtype act, void *x, void *part, const void *gathered, int ranks, int M,
                    int K, cudaStream_t stream);

#endif
