/* Decode steps as CUDA graphs. */
#ifndef PENSTOCK_CUDA_GRAPH_CUH
#define PENSTOCK_CUDA_GRAPH_CUH

#include "kernels/cuda/persistent/persistent.cuh"

/* What a graph's nodes depend on: steps with equal keys replay one graph. */
struct graph_key {
    int rows;               /* of the launches: a bucket */
    int items[MAX_WINDOWS]; /* of attention's plans: their classes */
    const int32_t *sampled; /* where pending tokens are read */
    const struct kv_cache *cache;
    bool one_grid; /* it may be a persistent step */
};

/* A key that a step had. */
struct graph {
    struct graph_key key;
    cudaGraphExec_t exec; /* this, or `step`, or neither: only one step had the key */
    struct persistent_step *step;
    uint64_t used; /* the run that used it last */
};

struct graphs {
    int max_rows; /* of a step that runs as a graph */
    int max_graphs, n;
    struct graph *all; /* [max_graphs] */
    uint64_t runs;
    bool failed;                   /* a capture failed: no other step is recorded */
    struct persistent *persistent; /* for keys of one grid */
};

/* For steps of up to max_rows rows, 0: none; max_graphs graphs are kept, at least MAX_IN_FLIGHT.
 * Without `persistent`, which must outlive them, no key may say `one_grid`. */
void graphs_open(struct graphs *graphs, int max_rows, int max_graphs,
                 struct persistent *persistent = nullptr);
/* Frees all graphs, before what they refer to is freed. The stream must be idle. */
void graphs_clear(struct graphs *graphs);
void graphs_close(struct graphs *graphs);

/* Rows of the graph that would run a step: the smallest bucket that holds it. 0: it runs as it is.
 * The buckets are 1, 2, 4, 8, and from there on the multiples of 8, and the most rows. */
int graphs_rows(const struct graphs *graphs, const struct step *step);

/* The rows of the i-th bucket, from 0 on and ascending; 0: there are no more. */
int graphs_bucket(const struct graphs *graphs, int i);

/* Queues on the stream what queue(arg) queues there: for a new key by calling it; the second time
 * it is recorded as a graph or, if the key allows it and all its ops are orders, as a persistent
 * step, which is launched from then on. If recording is refused, or a launch
 * lacks memory, by calling it. */
void graphs_run(struct graphs *graphs, const struct graph_key *key, cudaStream_t stream,
                void (*queue)(void *arg), void *arg);

#endif
