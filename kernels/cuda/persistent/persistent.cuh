/* Decode steps of small models as one cooperative grid (docs/cuda/kernels.md, "A persistent step"):
 * a list of orders instead of a graph of launches. It serves steps of up to 16 rows whose ops are
 * all orders (runtime/orders.cuh): dense models of 16-bit weights and activations, heads of 64 or
 * 128, keys and values of float16 or bfloat16, on one device. */
#ifndef PENSTOCK_CUDA_PERSISTENT_CUH
#define PENSTOCK_CUDA_PERSISTENT_CUH

#include "kernels/cuda/runtime/orders.cuh"

/* Eight warps, so that a thread may have all the registers that attention takes. */
constexpr int STEP_WARPS = 8, STEP_THREADS = STEP_WARPS * WARP;

/* Steps of more rows are no lists of orders. */
constexpr int STEP_ROWS = 16;

/* A device's part: where the blocks of a grid meet. */
struct persistent {
    bool wanted;
    int multiprocessors;
    unsigned *word; /* of grid_barrier.cuh; zero between launches */
    bool said_why_not;
    uint64_t launched; /* steps */
};

/* A step that can be launched. */
struct persistent_step;

/* Prepares the calling thread's device. If no persistent steps are wanted, it does nothing. Fails
 * with STATUS_USAGE where the device cannot run cooperative grids or has no room. */
enum status persistent_open(struct persistent *all, bool wanted, const cudaDeviceProp *prop,
                            struct err *err);
void persistent_close(struct persistent *all);

/* Makes a step of what queue(arg) would launch, and does not launch it; it waits for the stream.
 * NULL if the step has ops that are no orders, or if memory is lacking: then it is said once. */
struct persistent_step *persistent_record(struct persistent *all, cudaStream_t stream,
                                          void (*queue)(void *arg), void *arg);
/* False if the device has no memory or no room for the grid: then nothing was queued, it is said
 * once, and no further step is wanted. */
bool persistent_launch(struct persistent *all, const struct persistent_step *step,
                       cudaStream_t stream);
/* May be NULL. The step has ended, or the call waits for it. */
void persistent_free(struct persistent_step *step);

/* The kernel for activations of a type and so many groups of 8 rows, 1 or 2. */
using step_kernel_type = void(const struct order *orders, int n, unsigned *word);
step_kernel_type *step_kernel_bf16(int groups);
step_kernel_type *step_kernel_f16(int groups);

#endif
