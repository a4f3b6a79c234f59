/* DESIGN: decode steps as CUDA graphs.
 *
 * A decode step of a large model is some hundreds of launches, and at one row each kernel takes but
 * microseconds: the host would launch about as slowly as the device computes. So a step in which
 * every sequence has one row is queued as one graph: a copy of the step's arrays, then the graph,
 * then sampling, whose launches follow the settings of the samples.
 *
 * A graph is recorded once and has its launches' arguments and grids in it. So what changes from
 * step to step lies in device memory, where the arrays' places depend on the bucket alone
 * (step.cu). A bucket's graph runs as many rows as the bucket has; those that the step has not are
 * padding, which writes no keys or values and has no work in attention. One more thing is in the
 * key: a coarse class of how many blocks attention has, so that a short context does not pay for
 * the grid of a long one. As a row's bits depend on no other row and no grid, they are those of
 * plain launches.
 *
 * A key that is met for the first time runs plainly, padded as the graph will be: what a first run
 * takes (memory for angles, the loading of kernels) is then not met under capture, and a batch size
 * that comes but once costs no recording. The second time it is recorded, which takes the host
 * about as long as launching it, and the instantiation. No more than `most` are kept; the one that
 * was used longest ago goes, which no step in flight uses, as there are at least as many graphs as
 * those.
 *
 * A step that cannot be recorded or instantiated is launched plainly, and so are all new keys from
 * then on, after one warning: the cause, as a rule missing memory, would cost each of them the same
 * attempt. Graphs that are there go on, and one whose launch lacks memory is dropped likewise: that
 * is no failure of the device.
 */
#include "kernels/cuda/graph.cuh"

#include <stdlib.h>

enum { FINE_BUCKET = 8 };

/* ---- open and close ------------------------------------------------------------------------- */

void graphs_open(struct graphs *graphs, int most_rows, int most) {
    assert(most_rows >= 0 && most >= MAX_IN_FLIGHT);
    *graphs = {};
    graphs->most_rows = most_rows;
    graphs->most = most;
    graphs->all = (struct graph *)mem_calloc((size_t)most, sizeof *graphs->all);
}

static void drop(const struct graph *graph) {
    if (graph->exec) cuda_must(cudaGraphExecDestroy(graph->exec), "freeing a graph");
}

void graphs_drop(struct graphs *graphs) {
    for (int i = 0; i < graphs->n; i++) drop(&graphs->all[i]);
    graphs->n = 0;
}

void graphs_close(struct graphs *graphs) {
    graphs_drop(graphs);
    free(graphs->all);
    *graphs = {};
}

/* ---- which one ------------------------------------------------------------------------------ */

int graphs_rows(const struct graphs *graphs, const struct step *step) {
    const int M = step->M;
    if (M > graphs->most_rows || step->S != M || step->R != M || step->n_copies > 0) return 0;
    int rows = (M + FINE_BUCKET - 1) / FINE_BUCKET * FINE_BUCKET;
    while (rows <= FINE_BUCKET && rows / 2 >= M) rows /= 2;
    return rows < graphs->most_rows ? rows : graphs->most_rows;
}

static bool same(const struct graph_key *a, const struct graph_key *b) {
    return a->rows == b->rows && a->items == b->items && a->sampled == b->sampled &&
           a->cache == b->cache;
}

static struct graph *find(struct graphs *graphs, const struct graph_key *key) {
    for (int i = 0; i < graphs->n; i++)
        if (same(&graphs->all[i].key, key)) return &graphs->all[i];
    return nullptr;
}

/* A place for a new key: a free one, or that of the graph that was used longest ago. */
static struct graph *add(struct graphs *graphs, const struct graph_key *key) {
    struct graph *place = graphs->all;
    if (graphs->n < graphs->most) {
        place = &graphs->all[graphs->n++];
    } else {
        for (int i = 1; i < graphs->n; i++)
            if (graphs->all[i].used < place->used) place = &graphs->all[i];
        assert(place->used + MAX_IN_FLIGHT <= graphs->runs + 1); /* it has ended */
        drop(place);
    }
    *place = {};
    place->key = *key;
    return place;
}

/* ---- recording ------------------------------------------------------------------------------ */

/* Other threads may do to their own streams what they like meanwhile. */
static cudaError_t capture(cudaGraph_t *out, cudaStream_t stream, void (*queue)(void *arg),
                           void *arg) {
    *out = nullptr;
    const cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess) return error;
    queue(arg);
    return cudaStreamEndCapture(stream, out);
}

/* No new step is recorded any more. */
static void refuse(struct graphs *graphs, const struct graph *graph, cudaError_t error) {
    cudaGetLastError(); /* it has been dealt with */
    if (!graphs->failed)
        log_line(LOG_WARNING,
                 "a step of %d rows could not be made a CUDA graph (%s); new batch sizes are "
                 "launched kernel by kernel, which is slower",
                 graph->key.rows, cudaGetErrorString(error));
    graphs->failed = true;
}

/* Leaves graph->exec as it is where the device refuses. */
static void record(struct graphs *graphs, struct graph *graph, cudaStream_t stream,
                   void (*queue)(void *arg), void *arg) {
    cudaGraph_t recorded;
    cudaGraphExec_t exec = nullptr;
    cudaError_t error = capture(&recorded, stream, queue, arg);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&exec, recorded, 0);
    if (recorded) cuda_must(cudaGraphDestroy(recorded), "freeing a recording");
    if (error == cudaSuccess)
        graph->exec = exec;
    else
        refuse(graphs, graph, error);
}

/* Returns whether the graph was queued; where memory lacked, it is gone. */
static bool launched(struct graphs *graphs, struct graph *graph, cudaStream_t stream) {
    const cudaError_t error = cudaGraphLaunch(graph->exec, stream);
    if (error != cudaErrorMemoryAllocation) {
        cuda_must(error, "launching a graph");
        return true;
    }
    refuse(graphs, graph, error);
    drop(graph);
    graph->exec = nullptr;
    return false;
}

void graphs_run(struct graphs *graphs, const struct graph_key *key, cudaStream_t stream,
                void (*queue)(void *arg), void *arg) {
    struct graph *graph = find(graphs, key);
    const bool known = graph != nullptr;
    if (!known) graph = add(graphs, key);
    graph->used = ++graphs->runs;
    if (known && !graph->exec && !graphs->failed) record(graphs, graph, stream, queue, arg);
    if (!graph->exec || !launched(graphs, graph, stream)) queue(arg);
}
