/* DESIGN: decode steps as CUDA graphs.
 *
 * A decode step of a large model has hundreds of launches, and with one row each kernel takes only
 * microseconds. So the host would launch about as slowly as the device computes. Therefore a step
 * in which every row wants logits (the last token of a sequence and its drafts) is queued as one
 * graph: first a copy of the step's arrays, then the graph, then sampling, whose launches depend on
 * the settings of the samples.
 *
 * A graph contains the arguments and grids of its launches. So all data that changes from step to
 * step is in device memory, at addresses that depend only on the bucket (step.cu). A bucket's graph
 * computes all rows of the bucket. Missing rows are padding: they write no keys or values and do no
 * work in attention. The key includes a coarse class of attention's grid sizes, so that a short
 * context does not pay for the grid of a long one. The bits of a row do not depend on other rows or
 * on grids, so they equal those of plain launches.
 *
 * The first step with a new key runs plainly, with the graph's padding. So first-time work (loading
 * kernels) does not happen under capture, and a batch size that occurs once is not recorded. The
 * second step is recorded; this takes the host about as long as the launches, plus the
 * instantiation. At most `max_graphs` graphs are kept, and the least recently used one is replaced.
 * No step in flight uses it, because there are at least as many graphs as steps in flight.
 *
 * If a step cannot be recorded or instantiated, it is launched plainly, one warning is logged, and
 * no new key is recorded any more: the cause, usually a lack of memory, would fail every attempt.
 * Existing graphs stay in use. If the launch of a graph lacks memory, the graph is freed; this is
 * not a failure of the device.
 *
 * With --persistent-step the second step of a key is first offered to kernels/cuda/persistent. If
 * all its ops are orders, a list of orders replaces the graph.
 */
#include "kernels/cuda/graph.cuh"

#include <stdlib.h>

enum { FINE_BUCKET = 8 };

/* ---- open and close ------------------------------------------------------------------------- */

void graphs_open(struct graphs *graphs, int max_rows, int max_graphs,
                 struct persistent *persistent) {
    assert(max_rows >= 0 && max_graphs >= MAX_IN_FLIGHT);
    *graphs = {};
    graphs->max_rows = max_rows;
    graphs->max_graphs = max_graphs;
    graphs->persistent = persistent;
    graphs->all = (struct kernel_graph *)mem_calloc((size_t)max_graphs, sizeof *graphs->all);
}

static void drop(const struct kernel_graph *graph) {
    if (graph->exec) cuda_check(cudaGraphExecDestroy(graph->exec), "freeing a graph");
    persistent_free(graph->step);
}

void graphs_clear(struct graphs *graphs) {
    for (int i = 0; i < graphs->n; i++) drop(&graphs->all[i]);
    graphs->n = 0;
}

void graphs_close(struct graphs *graphs) {
    graphs_clear(graphs);
    free(graphs->all);
    *graphs = {};
}

/* ---- choosing a graph ----------------------------------------------------------------------- */

int graphs_rows(const struct graphs *graphs, const struct step *step) {
    const int M = step->M;
    if (M > graphs->max_rows || step->R != M) return 0;
    if (step->n_copies > 0 || step->n_state_copies > 0) return 0;
    if (step->n_hidden > 0) return 0; /* it has fewer logits than rows */
    int rows = (M + FINE_BUCKET - 1) / FINE_BUCKET * FINE_BUCKET;
    while (rows <= FINE_BUCKET && rows / 2 >= M) rows /= 2;
    return rows < graphs->max_rows ? rows : graphs->max_rows;
}

int graphs_bucket(const struct graphs *graphs, int i) {
    enum { N_FINE = 3 }; /* 1, 2 and 4 */
    const int before = i == 0 ? 0 : i <= N_FINE ? 1 << (i - 1) : (i - N_FINE) * FINE_BUCKET;
    const int rows = i < N_FINE ? 1 << i : (i - N_FINE + 1) * FINE_BUCKET;
    if (before >= graphs->max_rows) return 0;
    return min_int(rows, graphs->max_rows);
}

static bool same(const struct graph_key *a, const struct graph_key *b) {
    for (int i = 0; i < MAX_WINDOWS; i++)
        if (a->items[i] != b->items[i]) return false;
    return a->rows == b->rows && a->sampled == b->sampled && a->cache == b->cache &&
           a->one_grid == b->one_grid && a->adapts == b->adapts && a->program == b->program;
}

/* Returns an entry for a new key: a free one, or the least recently used one. */
static struct kernel_graph *add(struct graphs *graphs, const struct graph_key *key) {
    struct kernel_graph *place = graphs->all;
    if (graphs->n < graphs->max_graphs) {
        place = &graphs->all[graphs->n++];
    } else {
        for (int i = 1; i < graphs->n; i++)
            if (graphs->all[i].used < place->used) place = &graphs->all[i];
        assert(place->used + MAX_IN_FLIGHT <= graphs->runs + 1); /* that step has ended */
        drop(place);
    }
    *place = {};
    place->key = *key;
    return place;
}

/* ---- recording ------------------------------------------------------------------------------ */

/* Stops the recording of new keys. */
static void refuse(struct graphs *graphs, const struct kernel_graph *graph, cudaError_t error) {
    cudaGetLastError(); /* the error is handled here */
    if (!graphs->failed)
        log_line(LOG_WARNING,
                 "a step of %d rows could not be made a CUDA graph (%s); new batch sizes are "
                 "launched kernel by kernel, which is slower",
                 graph->key.rows, cudaGetErrorString(error));
    graphs->failed = true;
}

/* Leaves graph->exec unchanged if the device refuses. */
static void capture(struct graphs *graphs, struct kernel_graph *graph, cudaStream_t stream,
                    void (*queue)(void *arg), void *arg) {
    cudaGraph_t recorded = nullptr;
    cudaGraphExec_t exec = nullptr;
    /* Other threads may use their own streams during the capture. */
    cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (error == cudaSuccess) {
        queue(arg);
        error = cudaStreamEndCapture(stream, &recorded);
    }
    if (error == cudaSuccess) error = cudaGraphInstantiate(&exec, recorded, 0);
    if (recorded) cuda_check(cudaGraphDestroy(recorded), "freeing a recording");
    if (error == cudaSuccess)
        graph->exec = exec;
    else
        refuse(graphs, graph, error);
}

static void record(struct graphs *graphs, struct kernel_graph *graph, cudaStream_t stream,
                   void (*queue)(void *arg), void *arg) {
    if (graph->key.one_grid && graphs->persistent->max_rows > 0)
        graph->step = persistent_record(graphs->persistent, stream, queue, arg);
    if (!graph->step) capture(graphs, graph, stream, queue, arg);
}

/* Returns true if a recording exists and was queued. Frees it if its launch lacks memory. */
static bool launched(struct graphs *graphs, struct kernel_graph *graph, cudaStream_t stream) {
    if (graph->step) {
        if (persistent_launch(graphs->persistent, graph->step, stream)) return true;
        persistent_free(graph->step);
        graph->step = nullptr;
    }
    if (!graph->exec) return false;
    const cudaError_t error = cudaGraphLaunch(graph->exec, stream);
    if (error != cudaErrorMemoryAllocation) {
        cuda_check(error, "launching a graph");
        return true;
    }
    refuse(graphs, graph, error);
    drop(graph);
    graph->exec = nullptr;
    return false;
}

void graphs_run(struct graphs *graphs, const struct graph_key *key, cudaStream_t stream,
                void (*queue)(void *arg), void *arg) {
    struct kernel_graph *graph = nullptr;
    for (int i = 0; i < graphs->n && !graph; i++)
        if (same(&graphs->all[i].key, key)) graph = &graphs->all[i];
    const bool known = graph != nullptr;
    if (!known) graph = add(graphs, key);
    graph->used = ++graphs->runs;
    if (known && !graph->exec && !graph->step && !graphs->failed)
        record(graphs, graph, stream, queue, arg);
    if (!launched(graphs, graph, stream)) queue(arg);
}
