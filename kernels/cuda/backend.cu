/* DESIGN: the CUDA backend.
 *
 * All ops of a backend queue their kernels on one stream and return. The host waits for the results
 * of one step in `await`, while the next step may already be queued; `download` waits for all work.
 * A step's arrays are read before step_begin returns (step.cu). `run` launches a decode step as one
 * graph (graph.cu).
 *
 * Activations have one type (bfloat16 by default) in buffers that the engine plans as float32.
 * Gains, frequencies and logits are float32. The host's own work, such as sampling, runs on the
 * threads of a CPU backend that is opened for it.
 *
 * After a failed CUDA call ops do nothing, and `failed` reports the failure (error.cu).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "kernels/gpu_group.h"
}
#include "kernels/cuda/backend.cuh"
#include "kernels/cuda/generation.cuh"
#include "kernels/cuda/rows/rows.cuh"
#include "kernels/cuda/runtime/cublas.cuh"
#include "kernels/cuda/runtime/runtime.cuh"
#include "kernels/cuda/sampling/sampling.cuh"
#include "kernels/cuda/wide_heads/wide_heads.cuh"

/* ---- sampling ------------------------------------------------------------------------------- */

static struct device_sampler *op_sampler_new(struct backend *b, int V, int rows, int most) {
    (void)b;
    return device_sampler_new(V, rows, most);
}

static void op_sampler_free(struct backend *b, struct device_sampler *sampler) {
    device_sampler_free(sampler, cuda_of(b)->stream);
}

static void op_sample(struct backend *b, struct device_sampler *sampler, float *logits,
                      const struct sample *samples, int n, const struct logit_changes *changes,
                      int32_t *ids, struct sampled *results) {
    if (cuda_failed()) return;
    device_sampler_run(sampler, logits, samples, n, changes, ids, results, cuda_of(b)->stream);
}

/* ---- the host's own work -------------------------------------------------------------------- */

static void op_parallel(struct backend *b, void (*fn)(void *arg, int i), void *arg, int n) {
    struct backend *host = cuda_of(b)->host;
    host->device->parallel(host, fn, arg, n);
}

/* ---- the device's clock --------------------------------------------------------------------- */

static void op_stamp(struct backend *b, int i) {
    timers_record(&cuda_of(b)->timers, i, cuda_of(b)->stream);
}

static uint64_t op_stamped_ns(struct backend *b, int from, int to) {
    return timers_ns(&cuda_of(b)->timers, from, to);
}

static void op_limits(struct backend *b, struct device_limits *out) {
    measure_limits(out, cuda_of(b)->stream);
}

static bool op_failed(struct backend *b, struct err *err) {
    (void)b;
    return cuda_failure(err);
}

bool gpu_is_idle(struct backend *b) {
    const cudaError_t error = cudaStreamQuery(cuda_of(b)->stream);
    if (error == cudaErrorNotReady) return false;
    cuda_check(error, "queued work");
    return true;
}

/* ---- open and close ------------------------------------------------------------------------- */

static void op_close(struct backend *b) {
    struct cuda *cuda = cuda_of(b);
    if (cuda->stream) cuda_check(cudaStreamSynchronize(cuda->stream), "waiting for the stream");
    staging_release(&cuda->staging);
    timers_free(&cuda->timers);
    graphs_close(&cuda->graphs);
    persistent_close(&cuda->persistent);
    step_memory_close(&cuda->step);
    attention_workspace_free(&cuda->attention);
    for (cudaEvent_t event : cuda->fetched)
        if (event) cuda_check(cudaEventDestroy(event), "freeing an event");
    angles_free(&cuda->angles);
    gemm_workspace_close(&cuda->gemm);
    expert_workspace_close(&cuda->experts);
    all_reduce_close(&cuda->all_reduce);
    if (cuda->stream) cuda_check(cudaStreamDestroy(cuda->stream), "closing a stream");
    backend_close(cuda->host);
    cuda_failure_close();
    free(cuda);
}

static const struct sampler_ops sampler_ops = {
    .sampler_new = op_sampler_new,
    .sampler_free = op_sampler_free,
    .sample = op_sample,
};

static const struct timer_ops timer_ops = {
    .stamp = op_stamp,
    .stamped_ns = op_stamped_ns,
    .limits = op_limits,
};

static const struct device_ops device_ops = {
    .failed = op_failed,
    .parallel = op_parallel,
    .close = op_close,
};

enum { DEFAULT_GRAPHS = 64 };

static enum status check_config(const struct backend_config *config, struct err *err) {
    const enum dtype act = config->activations;
    if (config->max_rows <= 0 || config->max_k <= 0 || config->max_k > NORM_MAX_K)
        return err_set(err, STATUS_USAGE, NULL, "a CUDA backend needs rows, and 1 to %d inputs",
                       NORM_MAX_K);
    if (config->max_seqs <= 0 || config->max_context <= 0 || config->heads <= 0)
        return err_set(err, STATUS_USAGE, NULL,
                       "a CUDA backend needs sequences, a context and query heads");
    assert(config->graph_rows >= 0 && config->graph_rows <= config->max_rows);
    assert(config->n_windows >= 0 && config->n_windows <= MAX_WINDOWS);
    assert(!config->both_ways || config->graph_rows == 0);
    assert(config->max_adapter_rank == 0 || config->max_adapters > 0);
    if (act != DTYPE_F32 && act != DTYPE_F16 && act != DTYPE_BF16)
        return err_set(err, STATUS_USAGE, "dtype", "activations are float32, float16 or bfloat16");
    return STATUS_OK;
}

/* Checks that the device supports all options of the configuration. */
static enum status check_device(const struct backend_config *config, const cudaDeviceProp *prop,
                                bool has_generation, struct err *err) {
    if (config->allow_batch_variant_gemm && !cublas_open())
        return err_set(err, STATUS_USAGE, "deterministic",
                       "{no-deterministic}: cuBLAS could not be loaded (libcublas.so.13, .12); "
                       "install it, or leave the option out");
    if (config->wgmma && !has_generation)
        return err_set(err, STATUS_USAGE, "wgmma",
                       "{wgmma}: %s has compute capability %d.%d, and only 9.0 (H100, H200) has "
                       "these instructions; leave the option out",
                       prop->name, prop->major, prop->minor);
    if (config->persistent_step && config->group)
        return err_set(err, STATUS_USAGE, "persistent-step",
                       "{persistent-step}: one grid runs on one GPU; leave the option or "
                       "{tensor-parallel-size} out");
    return STATUS_OK;
}

/* Creates the stream and its events. */
static enum status open_stream(struct cuda *cuda, struct err *err) {
    enum status status = cuda_handle_ok(
        cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking), "stream", err);
    for (cudaEvent_t &event : cuda->fetched)
        if (!status)
            status = cuda_handle_ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                    "event", err);
    if (!status) status = step_memory_open(&cuda->step, err);
    return status;
}

/* Logs the instructions for products of many rows while no device has confirmed them. */
static void log_unproven(const struct gpu_generation *generation) {
    log_line(LOG_WARNING,
             "wgmma: 16-bit weights are multiplied by %s in steps of more than 64 "
             "rows, which is unproven: it was compiled, but never run on a GPU",
             generation->name);
}

/* The graphs of one program. */
static int kept_graphs(const struct backend_config *config) {
    return config->graphs ? config->graphs : DEFAULT_GRAPHS;
}

/* Steps with cuBLAS products are not captured: cuBLAS may allocate memory at any time. */
static int graph_rows(const struct backend_config *config) {
    const bool ours = !config->allow_batch_variant_gemm || config->graph_rows <= GEMM_SKINNY_ROWS;
    return ours ? config->graph_rows : (int)GEMM_SKINNY_ROWS;
}

static struct step_limits limits_of(const struct backend_config *config,
                                    const struct gpu_generation *generation) {
    struct step_limits limits = {config->max_rows, config->max_seqs,   config->max_context,
                                 config->heads,    generation->chunks, config->n_windows};
    memcpy(limits.windows, config->windows, sizeof config->windows);
    limits.wide = &wide_heads;
    limits.both_ways = config->both_ways;
    limits.guesses_ahead = config->guesses_ahead;
    limits.max_adapters = config->max_adapter_rank > 0 ? config->max_adapters : 0;
    return limits;
}

static struct backend head_of(const struct cuda *cuda) {
    struct backend head = {&cuda_compute_ops,
                           &cuda_memory_ops,
                           &cuda_cache_ops,
                           &cuda_swap_ops,
                           &sampler_ops,
                           &timer_ops,
                           &device_ops,
                           "cuda",
                           cuda->architecture,
                           cuda->host->n_threads,
                           false,
                           MAX_IN_FLIGHT,
                           16};
    head.ranges = nvtx_ranges();
    return head;
}

/* Opens the stream and all workspaces. After an error op_close frees those that are open. */
static enum status open_workspaces(struct cuda *cuda, const struct backend_config *config,
                                   const struct gpu_generation *generation,
                                   const cudaDeviceProp *prop, struct err *err) {
    enum status status = open_stream(cuda, err);
    if (!status) status = persistent_open(&cuda->persistent, config->persistent_step, prop, err);
    if (!status)
        status = gemm_workspace_open(&cuda->gemm, cuda->act, config->max_rows, config->max_k,
                                     generation->products, cuda->stream, err);
    if (!status)
        status = low_rank_open(&cuda->gemm.low, cuda->act, config->max_adapter_rank,
                               config->max_rows, config->max_k, cuda->stream, err);
    cuda->gemm.low.tiles = cuda->step.at.tiles;
    if (!status)
        status = expert_workspace_open(&cuda->experts, &config->experts, cuda->act,
                                       config->max_rows, err);
    if (!status) status = all_reduce_open(&cuda->all_reduce, cuda->act, config, err);
    return status;
}

enum status backend_cuda_open(struct backend **out, const struct backend_config *config,
                              struct err *err) {
    cudaDeviceProp prop;
    struct backend *host;
    const struct backend_config host_config = {config->threads, NULL, 1, 1, DTYPE_F32};
    const int gpu = config->group ? nccl_gpu(config->group, config->rank) : config->rank;
    enum status status = check_config(config, err);
    if (!status) status = device_select(&prop, gpu, err);
    struct gpu_generation generation = {};
    const bool has_generation = !status && generation_find(&generation, &prop);
    if (!status) status = check_device(config, &prop, has_generation, err);
    if (!status) status = backend_cpu_open(&host, &host_config, err);
    if (status) return status;
    cuda_failure_open();
    struct cuda *cuda = (struct cuda *)mem_calloc(1, sizeof *cuda);
    cuda->host = host;
    cuda->act = config->activations;
    if (!config->wgmma) generation = {};
    const bool has_e4m3 = generation.products && generation.products->multiply_e4m3;
    cuda->ways = {config->allow_batch_variant_gemm, has_e4m3};
    cuda->limits = limits_of(config, &generation);
    snprintf(cuda->architecture, sizeof cuda->architecture, "sm_%d%d", prop.major, prop.minor);
    cuda->head = head_of(cuda);
    early_grids_find();
    device_log(&prop, gpu);
    if (generation.is_unproven) log_unproven(&generation);
    graphs_open(&cuda->graphs, graph_rows(config), kept_graphs(config) * programs_of(cuda),
                &cuda->persistent);
    status = open_workspaces(cuda, config, &generation, &prop, err);
    if (status) {
        op_close(&cuda->head);
        return status;
    }
    staging_open(&cuda->staging, host, cuda->stream);
    *out = &cuda->head;
    return STATUS_OK;
}
