/* Memory that is taken at the start. What does not fit is told in one sentence, and nothing is left
 * behind: only what a running step needs ends the process (cuda_must). */
#ifndef PENSTOCK_CUDA_ROOM_CUH
#define PENSTOCK_CUDA_ROOM_CUH

#include "kernels/cuda/device.cuh"

/* What a piece of memory is for, and what makes it smaller: "the weights", "give a smaller model".
 * `param` is the option that is at fault, or NULL. */
struct room {
    const char *what, *param, *way_out;
};

/* Takes memory of the device, or pinned memory of the host; 0 bytes are NULL. Fails with
 * STATUS_USAGE, with *out NULL. */
enum status room_device(void **out, size_t bytes, const struct room *room, struct err *err);
enum status room_pinned(void **out, size_t bytes, const struct room *room, struct err *err);
/* Memory of the device that holds zeros for every stream: a stream of ours would not wait for a
 * cudaMemset, so this does. */
enum status room_zeros(void **out, size_t bytes, const struct room *room, struct err *err);

/* A stream or an event that could not be made at the start. */
enum status room_made(cudaError_t error, const char *what, struct err *err);

/* What the device has now. */
struct device_memory room_left();

#endif
