/* The CUDA backend's struct and tables of functions. */
#ifndef PENSTOCK_CUDA_BACKEND_CUH
#define PENSTOCK_CUDA_BACKEND_CUH

#include "kernels/cuda/attention/rope.cuh"
#include "kernels/cuda/attention/workspace.cuh"
#include "kernels/cuda/experts/experts.cuh"
#include "kernels/cuda/gemm/ops.cuh"
#include "kernels/cuda/graph.cuh"
#include "kernels/cuda/runtime/nccl.cuh"
#include "kernels/cuda/step.cuh"
#include "kernels/cuda/timing.cuh"

struct cuda {
    struct backend head;
    struct backend *host; /* the CPU backend for the host's own work */
    enum dtype act;
    struct gemm_ways ways; /* available methods for products */
    struct step_limits limits;
    cudaStream_t stream;
    cudaEvent_t fetched[MAX_IN_FLIGHT]; /* recorded after the copies of a step's results */
    struct step_memory step;
    bool laid_out; /* op_run has already uploaded the step, possibly padded */
    struct graphs graphs;
    struct persistent persistent;
    struct attention_workspace attention;
    struct staging staging; /* for weights, during loading */
    struct angle_table angles;
    struct timers timers;
    struct gemm_workspace gemm;
    struct expert_workspace experts;
    struct all_reduce all_reduce;
    char architecture[16]; /* "sm_90" */
};

static inline struct cuda *cuda_of(struct backend *b) {
    return (struct cuda *)b;
}

/* The programs whose steps are recorded: the model's, and that of a layer that guesses ahead. */
static inline int programs_of(const struct cuda *cuda) {
    return cuda->limits.guesses_ahead ? 2 : 1;
}

extern const struct compute_ops cuda_compute_ops; /* backend_compute.cu */
extern const struct memory_ops cuda_memory_ops;   /* backend_memory.cu */
extern const struct cache_ops cuda_cache_ops;
extern const struct swap_ops cuda_swap_ops;

#endif
