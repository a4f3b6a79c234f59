/* attention_workspace: attention in the backend. Holds the memory for the plans of all steps,
 * allocated before the first one, and a step's plans.
 *
 * It chooses the kernel of a layer: attention_run for heads of up to 256 numbers with values of
 * their own; otherwise limits.wide if it has a kernel for these heads, activations, this cache and
 * this device; otherwise, and for float32, attention_float. */
#ifndef PENSTOCK_CUDA_ATTENTION_WORK_CUH
#define PENSTOCK_CUDA_ATTENTION_WORK_CUH

#include "kernels/cuda/attention/attention.cuh"

/* The limits of all steps, and the windows of the layers; each window has a plan. */
struct step_limits {
    int max_rows, max_seqs, max_context;
    int H;                                 /* of windows without their own */
    const struct attention_chunks *chunks; /* used if it serves all layers; NULL: not used */
    int n_windows;                         /* 0: a single window of length 0 */
    struct attention_window windows[MAX_WINDOWS];
    bool both_ways;     /* rows see the rows after them, and have token types */
    int max_adapters;   /* the largest number of a row's adapter; 0: no row has one */
    bool guesses_ahead; /* steps have next tokens, and some have rows of hidden vectors */
    const struct attention_wide *wide; /* NULL: attention_float serves wide heads */
};

struct attention_workspace {
    enum dtype act; /* DTYPE_F32: nothing is planned */
    struct step_limits limits;
    int D;                                   /* value size of the parts; 0: not allocated */
    size_t block_bytes;                      /* shared memory that the device gives a block */
    int most_heads;                          /* query heads per block in plans */
    int G[MAX_WINDOWS];                      /* key-value heads of each plan */
    int64_t max_parts[MAX_WINDOWS];          /* capacity */
    int max_items;                           /* per plan */
    bool chunks;                             /* steps have chunk items (limits.chunks) */
    int kinds;                               /* kinds of blocks: 2 with window blocks, else 1 */
    bool has_attention;                      /* false: all layers are recurrent */
    bool has_states;                         /* some layers are recurrent */
    float *parts;                            /* of the running layer */
    int32_t *counters;                       /* zero between launches */
    struct attention_plan plan[MAX_WINDOWS]; /* the step's plan for each window */
    const struct attention_item *items[MAX_WINDOWS]; /* the step's items on the device */
    const struct attention_range *seen[MAX_WINDOWS]; /* [M] what each row of the step sees */
};

/* Allocates the memory for attention over the cache: parts for decode rows over all positions of
 * the cache, or over max_seqs full contexts if that is less. Rows that need more (shared prefixes
 * count once here) become whole items: slower, with the same bits. Fails with STATUS_USAGE if the
 * GPU lacks memory, or if no kernel supports such heads. */
enum status attention_workspace_new(struct attention_workspace *work, enum dtype act,
                                    const struct step_limits *limits,
                                    const struct kv_config *config, struct err *err);
/* Returns the bytes that attention_workspace_new allocates; fills in the sizes of *work without
 * allocating. */
size_t attention_workspace_bytes(struct attention_workspace *work, enum dtype act,
                                 const struct step_limits *limits, const struct kv_config *config);
void attention_workspace_free(struct attention_workspace *work);

/* Returns what rows see in layers with limits.windows[window]. */
struct attention_sight attention_workspace_sight(const struct attention_workspace *work,
                                                 int window);

/* Plans a step for limits.windows[window] into `items`, host memory for max_items. Returns their
 * number. With `rows`, returns the number for a graph: enough for any plan of the step's class, the
 * last ones without work. A class holds plans of up to rows * 2^n items. */
int attention_workspace_plan(struct attention_workspace *work, int window,
                             struct attention_item *items, const struct step *step, int rows);

/* y = attention of q over one layer, for the planned step. Its items contain the offset of their
 * line in the table. */
void attention_workspace_run(struct attention_workspace *work, void *y, const void *q,
                             const struct kv_cache *cache, int layer,
                             const struct device_step *step, const struct attention *how,
                             cudaStream_t stream);

#endif
