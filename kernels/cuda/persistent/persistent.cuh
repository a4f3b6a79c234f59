/* Decode steps of small models as one cooperative grid (docs/cuda/persistent.md):
 * a list of orders instead of a graph of launches. It supports steps of up to 16 rows whose ops are
 * all orders (runtime/orders.cuh): dense models with 16-bit weights and activations, heads of 64 or
 * 128, keys and values in float16 or bfloat16, on one device. */
#ifndef PENSTOCK_CUDA_PERSISTENT_CUH
#define PENSTOCK_CUDA_PERSISTENT_CUH

#include "kernels/cuda/runtime/orders.cuh"

/* With eight warps, each thread can have the registers that attention needs. */
constexpr int STEP_WARPS = 8, STEP_THREADS = STEP_WARPS * WARP;

/* Steps with more rows are launched as usual. */
constexpr int STEP_ROWS = 16;

/* The kernel for a type of activations and 1 or 2 groups of 8 rows. */
using step_kernel_type = void(const struct order *orders, int n, unsigned *word);

/* A step that can be launched; owned by `struct persistent`. */
struct persistent_step {
    bool taken;
    struct order *orders; /* device memory */
    int n;
    size_t smem;
    step_kernel_type *kernel;
};

/* The state of a device. */
struct persistent {
    /* for grid_barrier.cuh; zero between launches. NULL: persistent steps are off */
    unsigned *word;
    int multiprocessors;
    int max_rows;       /* maximum rows of a step as one grid; 0: no step is one */
    const char *misfit; /* why larger steps cannot be one grid; NULL: they can */
    int blocks;         /* blocks of a grid */
    int n_orders;       /* orders of the longest step */
    int n_steps;        /* number of kept steps */
    struct order *host; /* [n_steps][n_orders], pinned; source of the copies to the steps' orders */
    struct order *device;
    struct persistent_step *steps; /* [n_steps] */
    bool said_why_not;
    uint64_t launched; /* number of launched steps */
};

/* Prepares the calling thread's device. Does nothing if persistent steps are not requested. Fails
 * with STATUS_USAGE if the device does not support cooperative grids or is out of memory. */
enum status persistent_open(struct persistent *all, bool wanted, const cudaDeviceProp *prop,
                            struct err *err);
void persistent_close(struct persistent *all);

/* Checks, without launching, whether the launches of queue(arg) for a step of `rows` rows can be
 * one grid. Call it at start-up with rising numbers of rows. If it returns false, `misfit` gives
 * the reason. */
bool persistent_consider(struct persistent *all, int rows, void (*queue)(void *arg), void *arg);
/* Allocates memory for n_steps such steps and logs the decision. Fails with STATUS_USAGE if memory
 * is short. */
enum status persistent_plan(struct persistent *all, int n_steps, struct err *err);

/* Makes a step from the launches of queue(arg) without launching them. Returns NULL and logs once
 * if some launches are not orders. All steps before the last MAX_IN_FLIGHT - 1 must have ended. */
struct persistent_step *persistent_record(struct persistent *all, cudaStream_t stream,
                                          void (*queue)(void *arg), void *arg);
/* Launches a step. Returns false if the device lacks memory or space for the grid: nothing is
 * queued, a warning is logged once, and persistent steps are off from then on. */
bool persistent_launch(struct persistent *all, const struct persistent_step *step,
                       cudaStream_t stream);
/* The step must have ended or be the last one launched. NULL is allowed. */
void persistent_free(struct persistent_step *step);

step_kernel_type *step_kernel_bf16(int groups);
step_kernel_type *step_kernel_f16(int groups);

#endif
