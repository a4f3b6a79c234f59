/* A step's arrays on the device. */
#ifndef PENSTOCK_CUDA_STEP_CUH
#define PENSTOCK_CUDA_STEP_CUH

#include "kernels/cuda/attention/workspace.cuh"

/* Memory for steps: one block that is filled on the host and copied at once. */
struct step_memory {
    int32_t *host[MAX_IN_FLIGHT];      /* pinned; steps use them alternately */
    cudaEvent_t copied[MAX_IN_FLIGHT]; /* the last copy has read `host` */
    int turn;                          /* the one that the next step uses */
    int32_t *device;
    size_t capacity;       /* numbers, of each */
    struct device_step at; /* the step that was copied last */
};

/* Creates events only. May be closed even if it has failed. */
enum status step_memory_open(struct step_memory *memory, struct err *err);
void step_memory_close(struct step_memory *memory);

/* Allocates memory for all steps within the limits, over a cache with blocks of B and the plans of
 * `work`; waits for the stream. Fails with STATUS_USAGE if there is none. */
enum status step_memory_reserve(struct step_memory *memory, const struct attention_workspace *work,
                                int B, cudaStream_t stream, struct err *err);

/* The bytes that it allocates on the device; it pins twice as many. */
size_t step_memory_bytes(const struct attention_workspace *work, int B);

/* Plans the step's attention and queues the copy of its arrays. Waits for nothing but the copy of
 * the step before the last one.
 *
 * With `rows`, a step whose sequences have one row each is laid out for a graph of that many rows:
 * missing rows are padding and write nothing, and addresses and the number of items depend only on
 * `rows` and a coarse class of each plan's size. 0: no padding. */
void step_upload(struct step_memory *memory, const struct step *step, int rows,
                 struct attention_workspace *work, int B, cudaStream_t stream);

/* Queues the step's block copies: in one launch for each kind of blocks, or one by one if a copy
 * reads or writes what another one writes. */
void step_copy_blocks(const struct device_step *at, const struct step *step, struct kv_cache *cache,
                      cudaStream_t stream);

#endif
