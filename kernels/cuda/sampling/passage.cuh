/* Memory through which the settings of samples go to the device by themselves. */
#ifndef PENSTOCK_CUDA_PASSAGE_CUH
#define PENSTOCK_CUDA_PASSAGE_CUH

#include "kernels/cuda/runtime/device.cuh"

/* The same bytes on both sides. */
struct settings_memory {
    uint8_t *host; /* pinned */
    uint8_t *device;
};

/* Memory for one launch's settings. */
struct passage {
    struct settings_memory memory;
    size_t capacity;
    cudaEvent_t copied; /* the device has the settings */
    cudaEvent_t used;   /* the kernels that read them have ended */
};

/* One for each step in flight, so that filling it never waits for the running step. */
struct passages {
    struct passage all[MAX_IN_FLIGHT];
    uint64_t n_taken;
    cudaStream_t copies; /* beside what steps do */
};

void passages_open(struct passages *passages);
void passages_close(struct passages *passages);

/* The next passage, with room for that many bytes: filled, sent, read by kernels of a stream, and
 * marked as used there. NULL if the device has failed. Waits for those that read it before; if it
 * grows, for all that runs. */
struct passage *passage_take(struct passages *passages, size_t bytes);

/* Copies a passage beside what the stream does; what the stream is given next waits for it. */
void passage_send(const struct passages *passages, const struct passage *passage, size_t bytes,
                  cudaStream_t stream);

/* What the stream was given so far is all that reads the passage. */
void passage_mark_used(const struct passage *passage, cudaStream_t stream);

#endif
