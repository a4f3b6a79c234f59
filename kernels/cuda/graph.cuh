/* Decode steps as CUDA graphs. */
#ifndef PENSTOCK_CUDA_GRAPH_CUH
#define PENSTOCK_CUDA_GRAPH_CUH

#include "kernels/cuda/device.cuh"

/* What a graph has in its nodes: steps of which this is the same are replayed by one. */
struct graph_key {
    int rows;               /* of the launches: a bucket */
    int items;              /* of attention's plan: a class */
    const int32_t *sampled; /* where late tokens are read */
    const struct kv_cache *cache;
};

/* A key that was met. */
struct graph {
    struct graph_key key;
    cudaGraphExec_t exec; /* NULL: the key was met once */
    uint64_t used;        /* the run that used it last */
};

struct graphs {
    int most_rows; /* of a step that runs as a graph */
    int most, n;
    struct graph *all; /* [most] */
    uint64_t runs;
    bool failed; /* a step could not be made a graph: no other one is recorded */
};

/* For steps of up to most_rows rows, 0: none; `most` graphs are kept, at least MAX_IN_FLIGHT. */
void graphs_open(struct graphs *graphs, int most_rows, int most);
/* Drops all graphs: what they refer to is going. The stream has ended. */
void graphs_drop(struct graphs *graphs);
void graphs_close(struct graphs *graphs);

/* Rows of the graph that would run a step: the least bucket that holds it. 0: it runs as it is. The
 * buckets are 1, 2, 4, 8, and from there on the multiples of 8, and the most rows. */
int graphs_rows(const struct graphs *graphs, const struct step *step);

/* Queues on the stream what queue(arg) queues there: by calling it when the key is met for the
 * first time, then by a graph, which the second time is recorded from it. Where that is refused, or
 * its launch lacks memory, by calling it. */
void graphs_run(struct graphs *graphs, const struct graph_key *key, cudaStream_t stream,
                void (*queue)(void *arg), void *arg);

#endif
