/* Decode steps as CUDA graphs. */
#ifndef PENSTOCK_CUDA_GRAPH_CUH
#define PENSTOCK_CUDA_GRAPH_CUH

#include "kernels/cuda/persistent/persistent.cuh"

/* The properties that determine a graph's nodes. Steps with equal keys replay one graph. */
struct graph_key {
    int rows;               /* of the launches: a bucket */
    int items[MAX_WINDOWS]; /* size classes of attention's plans */
    const int32_t *sampled; /* source of pending tokens */
    const struct kv_cache *cache;
    bool one_grid; /* the step may run as a persistent step */
    bool adapts;   /* some rows have adapters: more launches, and never a persistent step */
    const struct program *program;
};

/* A key that occurred. */
struct kernel_graph {
    struct graph_key key;
    cudaGraphExec_t exec; /* if neither this nor `step` is set, only one step had the key */
    struct persistent_step *step;
    uint64_t used; /* number of the last run that used it */
};

struct graphs {
    int max_rows; /* maximum rows of a step that runs as a graph */
    int max_graphs, n;
    struct kernel_graph *all; /* [max_graphs] */
    uint64_t runs;
    bool failed;                   /* a capture failed: no new key is recorded */
    struct persistent *persistent; /* for keys with one_grid */
};

/* Prepares graphs for steps of up to max_rows rows (0: graphs are off). Keeps max_graphs graphs, at
 * least MAX_IN_FLIGHT. `persistent` must outlive them; if it is NULL, no key may have
 * `one_grid`. */
void graphs_open(struct graphs *graphs, int max_rows, int max_graphs,
                 struct persistent *persistent = nullptr);
/* Frees all graphs. Call it before the memory that they refer to is freed. The stream must be
 * idle. */
void graphs_clear(struct graphs *graphs);
void graphs_close(struct graphs *graphs);

/* Returns the rows of the smallest bucket that fits a step, or 0 if the step does not run as a
 * graph. The buckets are 1, 2, 4, 8, then multiples of 8, and the maximum. */
int graphs_rows(const struct graphs *graphs, const struct step *step);

/* Returns the rows of the i-th bucket in ascending order, or 0 after the last one. */
int graphs_bucket(const struct graphs *graphs, int i);

/* Queues the work of queue(arg) on the stream. For a new key it calls queue. The second time it
 * records a graph or, if the key allows it and all its ops are orders, a persistent step, and
 * launches that from then on. If recording is refused or a launch lacks memory, it calls queue. */
void graphs_run(struct graphs *graphs, const struct graph_key *key, cudaStream_t stream,
                void (*queue)(void *arg), void *arg);

#endif
