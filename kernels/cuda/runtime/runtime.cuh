/* What the backend asks of the CUDA runtime at its start: a device, memory, and names for a
 * profiler. What does not fit is reported in one sentence, and everything is freed. */
#ifndef PENSTOCK_CUDA_RUNTIME_CUH
#define PENSTOCK_CUDA_RUNTIME_CUH

#include "kernels/cuda/runtime/device.cuh"

/* Selects a device for the calling thread's calls and fills in its properties. Fails with
 * STATUS_USAGE, and says why, if it does not exist or cannot run the kernels. */
enum status device_select(cudaDeviceProp *prop, int device, struct err *err);

/* Has the program code for the selected device? */
bool device_has_code();

/* Logs in one line which code runs on a device, and whether grids begin early there, which
 * early_grids_find has found. */
void device_log(const cudaDeviceProp *prop, int device);

/* What a piece of memory is for, and how to need less: "the weights", "give a smaller model".
 * `param` is the option at fault, or NULL. */
struct alloc_hint {
    const char *what, *param, *remedy;
};

/* Allocate memory of the device, or pinned memory of the host; *out is NULL for 0 bytes. They fail
 * with STATUS_USAGE and *out NULL. */
enum status device_alloc(void **out, size_t bytes, const struct alloc_hint *hint, struct err *err);
enum status pinned_alloc(void **out, size_t bytes, const struct alloc_hint *hint, struct err *err);
/* Device memory that holds zeros for every stream: it waits for the cudaMemset, for which a
 * non-blocking stream would not. */
enum status device_calloc(void **out, size_t bytes, const struct alloc_hint *hint, struct err *err);

/* Reports a stream or an event that could not be created at the start. */
enum status cuda_handle_ok(cudaError_t error, const char *what, struct err *err);

/* What the device has now. */
struct device_memory device_memory_now();

/* NVTX's ranges, or NULL if no profiler is attached: one names its library in
 * NVTX_INJECTION64_PATH. */
const struct range_ops *nvtx_ranges();

#endif
