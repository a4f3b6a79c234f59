/* A step's arrays on the device. */
#ifndef PENSTOCK_CUDA_STEP_CUH
#define PENSTOCK_CUDA_STEP_CUH

#include "kernels/cuda/attention/workspace.cuh"

/* Memory for steps: blocks that are filled on the host and uploaded with one copy. */
struct step_memory {
    int32_t *host[MAX_IN_FLIGHT];      /* pinned; used in turn */
    cudaEvent_t copied[MAX_IN_FLIGHT]; /* recorded after the last copy from `host` */
    int turn;                          /* index of the next step's buffer */
    int32_t *device;
    size_t capacity;       /* numbers per buffer */
    struct device_step at; /* the step that was copied last */
};

/* Creates the events. step_memory_close may follow even after a failure. */
enum status step_memory_open(struct step_memory *memory, struct err *err);
void step_memory_close(struct step_memory *memory);

/* Allocates memory for all steps within the limits, over a cache with blocks of B and the plans of
 * `work`. Waits for the stream. Fails with STATUS_USAGE if memory is short. */
enum status step_memory_reserve(struct step_memory *memory, const struct attention_workspace *work,
                                int B, cudaStream_t stream, struct err *err);

/* Returns the device bytes that step_memory_reserve allocates; it pins twice as many. */
size_t step_memory_bytes(const struct attention_workspace *work, int B);

/* Plans the step's attention and queues the copy of its arrays. Waits only for the copy of the last
 * step that used the same buffer.
 *
 * If `rows` is not 0, a step with one row per sequence is laid out for a graph of that many rows.
 * Missing rows are padding and write nothing. Addresses and the number of items then depend only on
 * `rows` and a coarse class of each plan's size. */
void step_upload(struct step_memory *memory, const struct step *step, int rows,
                 struct attention_workspace *work, int B, cudaStream_t stream);

/* Queues the step's block copies: one launch per kind of blocks, or one launch per copy if a copy
 * reads or writes a block that another one writes. */
void step_copy_blocks(const struct device_step *at, const struct step *step, struct kv_cache *cache,
                      cudaStream_t stream);

#endif
