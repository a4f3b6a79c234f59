/* attention_workspace: attention as the backend runs it: the memory for the plans of all steps,
 * allocated before the first one, a step's plans, and the choice between the tensor cores and
 * float32. */
#ifndef PENSTOCK_CUDA_ATTENTION_WORK_CUH
#define PENSTOCK_CUDA_ATTENTION_WORK_CUH

#include "kernels/cuda/attention/attention.cuh"

/* The limits of all steps, and the windows of the layers, with a plan for each. */
struct step_limits {
    int max_rows, max_seqs, max_context;
    int H;
    bool wgmma;    /* for chunks, where all layers have kernels for them */
    int n_windows; /* 0: no layer has a window */
    struct attention_window windows[MAX_WINDOWS];
};

struct attention_workspace {
    enum dtype act; /* DTYPE_F32: nothing is planned */
    struct step_limits limits;
    int D;                                   /* what the memory was allocated for; 0: none was */
    int G[MAX_WINDOWS];                      /* key-value heads of each plan */
    int64_t max_parts[MAX_WINDOWS];          /* that there is memory for */
    int max_items;                           /* of a plan */
    bool chunks;                             /* of steps that have some go through wgmma */
    int kinds;                               /* of blocks: 2 if there are window blocks, else 1 */
    float *parts;                            /* of the layer that runs */
    int32_t *counters;                       /* zero between launches */
    struct attention_plan plan[MAX_WINDOWS]; /* of the step, for each window */
    const struct attention_item *items[MAX_WINDOWS]; /* of the step, on the device */
};

/* Allocates the memory for attention over such a cache: parts for decode rows over all that the
 * cache holds, or over max_seqs full contexts if that is less. Rows that would need more (shared
 * prefixes count once in it) become whole items: slower, the same bits. Fails with STATUS_USAGE if
 * the GPU lacks memory, or if no kernel supports such heads. */
enum status attention_workspace_new(struct attention_workspace *work, enum dtype act,
                                    const struct step_limits *limits,
                                    const struct kv_config *config, struct err *err);
/* The bytes that it allocates; fills in the sizes of *work without allocating. */
size_t attention_workspace_bytes(struct attention_workspace *work, enum dtype act,
                                 const struct step_limits *limits, const struct kv_config *config);
void attention_workspace_free(struct attention_workspace *work);

/* Plans a step for limits.windows[window] into `items`, host memory for max_items; returns how many
 * there are. With `rows`, those of a graph: enough for any plan of the step's class, the last
 * ones without work. A class holds plans of up to rows * 2^n items. */
int attention_workspace_plan(struct attention_workspace *work, int window,
                             struct attention_item *items, const struct step *step, int rows);

/* y = attention of q over one layer, for the planned step; its items name the start of their line
 * of the table. */
void attention_workspace_run(struct attention_workspace *work, void *y, const void *q,
                             const struct kv_cache *cache, int layer,
                             const struct device_step *step, const struct attention *how,
                             cudaStream_t stream);

#endif
