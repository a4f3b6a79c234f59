/* Memory for settings of samples that are uploaded separately. */
#ifndef PENSTOCK_CUDA_PASSAGE_CUH
#define PENSTOCK_CUDA_PASSAGE_CUH

#include "kernels/cuda/runtime/device.cuh"

/* The same bytes on the host and on the device, both aligned to SETTINGS_ALIGN. */
enum { SETTINGS_ALIGN = 16 };
struct settings_memory {
    uint8_t *host; /* pinned */
    uint8_t *device;
};

static inline bool settings_are_aligned(const struct settings_memory *memory) {
    return ((uintptr_t)memory->host | (uintptr_t)memory->device) % SETTINGS_ALIGN == 0;
}

/* Memory for one launch's settings. */
struct passage {
    struct settings_memory memory;
    size_t capacity;
    cudaEvent_t copied; /* recorded when the device has the settings */
    cudaEvent_t used;   /* recorded after the kernels that read them */
};

/* One passage per step in flight, so that filling it never waits for the running step. */
struct passages {
    struct passage all[MAX_IN_FLIGHT];
    uint64_t n_taken;
    cudaStream_t copies; /* runs beside the stream of the steps */
};

void passages_open(struct passages *passages);
void passages_close(struct passages *passages);

/* Returns the next passage with room for `bytes` bytes. The caller fills it, sends it, and marks it
 * as used after the kernels that read it are queued. Returns NULL if the device has failed. Waits
 * for its previous readers; if it must grow, for all work. */
struct passage *passage_take(struct passages *passages, size_t bytes);

/* Copies a passage beside the stream's work; work queued on the stream afterwards waits for the
 * copy. */
void passage_send(const struct passages *passages, const struct passage *passage, size_t bytes,
                  cudaStream_t stream);

/* Marks that all readers of the passage have been queued on the stream. */
void passage_mark_used(const struct passage *passage, cudaStream_t stream);

#endif
