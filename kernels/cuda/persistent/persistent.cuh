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

/* The kernel for activations of a type and so many groups of 8 rows, 1 or 2. */
using step_kernel_type = void(const struct order *orders, int n, unsigned *word);

/* A step that can be launched: a part of what persistent_plan takes. */
struct persistent_step {
    bool taken;
    struct order *orders; /* device memory */
    int n;
    size_t smem;
    step_kernel_type *kernel;
};

/* A device's part. */
struct persistent {
    unsigned *word; /* of grid_barrier.cuh; zero between launches. NULL: no such steps are wanted */
    int multiprocessors;
    int max_rows;       /* of steps that may be one grid; 0: none may */
    const char *misfit; /* why larger ones may not; NULL: nothing is against them */
    int blocks;         /* of a grid */
    int n_orders;       /* of the longest step */
    int n_steps;        /* that are kept */
    struct order *host; /* [n_steps][n_orders], pinned: what is copied to the steps' own */
    struct order *device;
    struct persistent_step *steps; /* [n_steps] */
    bool said_why_not;
    uint64_t launched; /* steps */
};

/* Prepares the calling thread's device. If no persistent steps are wanted, it does nothing. Fails
 * with STATUS_USAGE where the device cannot run cooperative grids or has no room. */
enum status persistent_open(struct persistent *all, bool wanted, const cudaDeviceProp *prop,
                            struct err *err);
void persistent_close(struct persistent *all);

/* Looks whether what queue(arg) would launch, for a step of so many rows, can be one grid, and
 * launches nothing. Called at the start, with more rows each time; false: it cannot, and
 * `misfit` says why. */
bool persistent_consider(struct persistent *all, int rows, void (*queue)(void *arg), void *arg);
/* Then takes the memory for n_steps steps like those that can, and says in the log what was
 * decided. Fails with STATUS_USAGE if there is none. */
enum status persistent_plan(struct persistent *all, int n_steps, struct err *err);

/* Makes a step of what queue(arg) would launch, and does not launch it. NULL if it has ops that are
 * no orders: then it is said once. The steps before the last MAX_IN_FLIGHT - 1 have ended. */
struct persistent_step *persistent_record(struct persistent *all, cudaStream_t stream,
                                          void (*queue)(void *arg), void *arg);
/* False if the device has no memory or no room for the grid: then nothing was queued, it is said
 * once, and no further step is wanted. */
bool persistent_launch(struct persistent *all, const struct persistent_step *step,
                       cudaStream_t stream);
/* May be NULL. The step has ended, or is the last one. */
void persistent_free(struct persistent_step *step);

step_kernel_type *step_kernel_bf16(int groups);
step_kernel_type *step_kernel_f16(int groups);

#endif
