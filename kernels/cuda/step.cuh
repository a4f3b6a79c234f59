/* A step's arrays on the device. */
#ifndef PENSTOCK_CUDA_STEP_CUH
#define PENSTOCK_CUDA_STEP_CUH

#include "kernels/cuda/attention_work.cuh"

/* Memory for steps: a block that is filled on the host and copied as one. */
struct step_memory {
    int32_t *host[MAX_IN_FLIGHT];      /* pinned; steps take them by turns */
    cudaEvent_t copied[MAX_IN_FLIGHT]; /* the last copy has read `host` */
    int turn;                          /* of the step that comes next */
    int32_t *device;
    size_t capacity;       /* numbers, of each */
    struct device_step at; /* the step that was copied last */
};

/* Takes nothing but an event. May be closed even where it has failed. */
enum status step_memory_open(struct step_memory *memory, struct err *err);
void step_memory_close(struct step_memory *memory);

/* Makes room for all steps within the limits, over a cache with blocks of B and a plan of `work`;
 * waits for the stream. Fails with STATUS_USAGE where there is none. */
enum status step_memory_reserve(struct step_memory *memory, const struct attention_work *work,
                                int B, cudaStream_t stream, struct err *err);

/* The bytes of the device, and twice as many pinned ones, that it takes. */
size_t step_memory_bytes(const struct attention_work *work, int B);

/* Plans the step's attention and queues the copy of its arrays. Waits for nothing but the copy of
 * the step before the last one.
 *
 * With `rows`, a step whose sequences have one row each is laid out for a graph of so many rows:
 * the rows that it has not are there, but write nowhere, and where things are and how many items
 * the plan has depend on `rows` and a coarse class of the plan's size alone. 0: as it is. */
void step_upload(struct step_memory *memory, const struct step *step, int rows,
                 struct attention_work *work, int B, cudaStream_t stream);

/* The step's copies of blocks: all at once, or one by one where one reads or writes what another
 * one writes. */
void step_copy_blocks(const struct device_step *at, const struct step *step, struct kv_cache *cache,
                      cudaStream_t stream);

#endif
