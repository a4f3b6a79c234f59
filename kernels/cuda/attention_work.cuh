/* attention_work: attention as the backend runs it. The memory that a step's plan needs, taken
 * before the first step and for all of them, the plan, and the choice between the tensor cores and
 * float32. */
#ifndef PENSTOCK_CUDA_ATTENTION_WORK_CUH
#define PENSTOCK_CUDA_ATTENTION_WORK_CUH

#include "kernels/cuda/attention.cuh"

/* What all steps are within. */
struct step_limits {
    int max_rows, max_seqs, max_context;
    int H;
};

struct attention_work {
    enum dtype act; /* DTYPE_F32: nothing is planned */
    struct step_limits limits;
    int G, D;           /* what the memory was taken for; 0: none was */
    int64_t most_parts; /* that there is memory for */
    int most_items;
    float *parts;
    int32_t *counters;                  /* zero between launches */
    struct attention_plan plan;         /* of the step */
    const struct attention_item *items; /* of the step, on the device */
};

/* Takes the memory for attention over such a cache: parts for decode rows of all that the cache
 * holds, or of max_seqs full contexts where that is less. Rows for which that is not enough (long
 * beginnings in common are counted once in it) become whole items: slower, the same bits. Fails
 * with STATUS_USAGE where the GPU has no room, or no kernel takes such heads. */
enum status attention_work_new(struct attention_work *work, enum dtype act,
                               const struct step_limits *limits, const struct kv_config *config,
                               struct err *err);
/* The bytes that it takes; fills in the sizes of *work without taking anything. */
size_t attention_work_bytes(struct attention_work *work, enum dtype act,
                            const struct step_limits *limits, const struct kv_config *config);
void attention_work_free(struct attention_work *work);

/* Plans a step into `items`, host memory for most_items; returns how many there are. With `rows`,
 * those of a graph: so many that any plan of the step's class has room, the last ones without
 * work. A class holds plans of up to rows * 2^n items. */
int attention_work_plan(struct attention_work *work, struct attention_item *items,
                        const struct step *step, int rows);

/* y = attention of q over one layer, for the step that was planned, whose items name lines of the
 * table by where they begin. */
void attention_work_run(struct attention_work *work, void *y, const void *q,
                        const struct kv_cache *cache, int layer, const struct device_step *step,
                        float scale, cudaStream_t stream);

#endif
