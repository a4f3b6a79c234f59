/* Use of the CUDA runtime at start-up: a device, memory, and ranges for a profiler. A failure is
 * reported in one sentence, and everything is freed. */
#ifndef PENSTOCK_CUDA_RUNTIME_CUH
#define PENSTOCK_CUDA_RUNTIME_CUH

#include "kernels/cuda/runtime/device.cuh"

/* Selects a device for the calling thread's calls and fills in its properties. Fails with
 * STATUS_USAGE if it does not exist or cannot run the kernels. */
enum status device_select(cudaDeviceProp *prop, int device, struct err *err);

/* Does the program contain code for the selected device? */
bool device_has_code();

/* Logs in one line which code runs on a device, and whether grids begin early there
 * (early_grids_find). */
void device_log(const cudaDeviceProp *prop, int device);

/* Records a failure as cuda_check does, but one that is no call of CUDA's; `why` is copied. Any
 * thread. */
void cuda_fail(const struct err *why);

/* The purpose of a piece of memory and how to reduce it: "the weights", "give a smaller model".
 * `param` is the option at fault, or NULL. */
struct alloc_hint {
    const char *what, *param, *remedy;
};

/* Allocate device memory, or pinned host memory; *out is NULL for 0 bytes. They fail with
 * STATUS_USAGE and *out NULL. */
enum status device_alloc(void **out, size_t bytes, const struct alloc_hint *hint, struct err *err);
enum status pinned_alloc(void **out, size_t bytes, const struct alloc_hint *hint, struct err *err);
/* Device memory that is zero for every stream: it waits for the cudaMemset, because a non-blocking
 * stream would not. */
enum status device_calloc(void **out, size_t bytes, const struct alloc_hint *hint, struct err *err);

/* Reports a stream or an event that could not be created at start-up. */
enum status cuda_handle_ok(cudaError_t error, const char *what, struct err *err);

/* Returns the device's memory now. */
struct device_memory device_memory_now();
/* Returns the shared memory that the device of the calling thread gives a block at most; 0 if it
 * cannot be asked, which is recorded as a failure. */
size_t device_block_bytes();

/* Returns NVTX's ranges, or NULL without a profiler. A profiler names its library in
 * NVTX_INJECTION64_PATH. */
const struct range_ops *nvtx_ranges();

#endif
