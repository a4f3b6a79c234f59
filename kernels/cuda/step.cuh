/* A step's arrays on the device. */
#ifndef PENSTOCK_CUDA_STEP_CUH
#define PENSTOCK_CUDA_STEP_CUH

#include "kernels/cuda/attention_work.cuh"

/* Memory for steps: a block that is filled on the host and copied as one. */
struct step_memory {
    int32_t *host;         /* pinned */
    int32_t *device;       /* as long */
    size_t capacity;       /* numbers */
    cudaEvent_t copied;    /* the last copy has read `host` */
    struct device_step at; /* the step that was copied last */
};

/* Takes nothing but an event. May be closed even where it has failed. */
enum status step_memory_open(struct step_memory *memory, struct err *err);
void step_memory_close(struct step_memory *memory);

/* Makes room for all steps within the limits, over a cache with blocks of B and a plan of `work`;
 * waits for the stream. Fails with STATUS_USAGE where there is none. */
enum status step_memory_reserve(struct step_memory *memory, const struct attention_work *work,
                                int B, cudaStream_t stream, struct err *err);

/* The bytes of the device, and as many pinned ones, that it takes. */
size_t step_memory_bytes(const struct attention_work *work, int B);

/* Plans the step's attention and queues the copy of its arrays. Waits only for the copy of the step
 * before. */
void step_upload(struct step_memory *memory, const struct step *step, struct attention_work *work,
                 int B, cudaStream_t stream);

#endif
