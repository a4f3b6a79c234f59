/* DESIGN: the CUDA backend.
 *
 * All ops of a backend queue their kernels on one stream and return; `await` is where the host
 * waits, for the results of one step, while the next one may be queued behind it (and `download`,
 * for all that was queued). A step's arrays are read before step_begin returns (step.cu). `run`
 * has a decode step's kernels launched as one graph (graph.cu).
 * Activations are of one type (bfloat16 unless asked otherwise) in buffers that the engine plans as
 * float32; gains, frequencies and logits are float32. What the host does itself beside the device,
 * such as sampling, runs on the threads of a CPU backend that is opened for it.
 *
 * After a call of CUDA has failed, ops do nothing and `failed` tells (error.cu).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/all_reduce.cuh"
#include "kernels/cuda/angles.cuh"
#include "kernels/cuda/attention_work.cuh"
#include "kernels/cuda/cublas.cuh"
#include "kernels/cuda/embed.cuh"
#include "kernels/cuda/find.cuh"
#include "kernels/cuda/graph.cuh"
#include "kernels/cuda/heads.cuh"
#include "kernels/cuda/kv.cuh"
#include "kernels/cuda/products.cuh"
#include "kernels/cuda/ranges.cuh"
#include "kernels/cuda/room.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/sampler.cuh"
#include "kernels/cuda/stamps.cuh"
#include "kernels/cuda/step.cuh"
#include "kernels/cuda/swap.cuh"

struct cuda {
    struct backend head;
    struct backend *host; /* the CPU's, for the host's own work */
    enum dtype act;
    bool free_order; /* products of floats may be cuBLAS's */
    struct step_limits limits;
    cudaStream_t stream;
    cudaEvent_t fetched[MAX_IN_FLIGHT]; /* behind the copies of a step's results */
    struct step_memory step;
    bool laid_out; /* the step is on the device already, perhaps with more rows */
    struct graphs graphs;
    struct attention_work attention;
    struct staging staging; /* of weights, while they are loaded */
    struct angle_table angles;
    struct stamps stamps;
    struct products products;
    struct all_reduce all_reduce;
    char architecture[16]; /* "sm_90" */
};

static struct cuda *cuda_of(struct backend *b) {
    return (struct cuda *)b;
}

/* ---- memory --------------------------------------------------------------------------------- */

static void op_memory(struct backend *b, struct device_memory *out) {
    (void)b;
    *out = room_left();
}

static void *op_buffer_new(struct backend *b, size_t bytes) {
    void *memory;
    if (!cuda_took(cudaMalloc(&memory, bytes))) return nullptr;
    cuda_must(cudaMemsetAsync(memory, 0, bytes, cuda_of(b)->stream), "zeroing memory");
    return memory;
}

static void op_buffer_free(struct backend *b, void *buffer, size_t bytes) {
    (void)bytes;
    cuda_must(cudaStreamSynchronize(cuda_of(b)->stream), "waiting for the stream");
    cuda_must(cudaFree(buffer), "freeing memory");
}

static void op_upload(struct backend *b, void *device, const void *host, size_t bytes) {
    if (cuda_failed()) return;
    cuda_must(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cuda_of(b)->stream),
              "copying to the device");
    cuda_must(cudaStreamSynchronize(cuda_of(b)->stream), "waiting for the stream");
}

static void op_download(struct backend *b, void *host, const void *device, size_t bytes) {
    if (cuda_failed()) return;
    cuda_must(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cuda_of(b)->stream),
              "copying from the device");
    cuda_must(cudaStreamSynchronize(cuda_of(b)->stream), "waiting for the stream");
}

static void *op_host_new(struct backend *b, size_t bytes) {
    (void)b;
    void *memory;
    return cuda_took(cudaMallocHost(&memory, bytes)) ? memset(memory, 0, bytes) : nullptr;
}

static void op_host_free(struct backend *b, void *host, size_t bytes) {
    (void)bytes;
    cuda_must(cudaStreamSynchronize(cuda_of(b)->stream), "waiting for the stream");
    cuda_must(cudaFreeHost(host), "freeing pinned memory");
}

static void op_fetch(struct backend *b, int mark, void *host, const void *device, size_t bytes) {
    struct cuda *cuda = cuda_of(b);
    assert(mark >= 0 && mark < MAX_IN_FLIGHT);
    if (cuda_failed()) return;
    if (bytes > 0)
        cuda_must(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cuda->stream),
                  "copying results");
    cuda_must(cudaEventRecord(cuda->fetched[mark], cuda->stream), "recording an event");
}

static void op_await(struct backend *b, int mark) {
    assert(mark >= 0 && mark < MAX_IN_FLIGHT);
    if (cuda_failed()) return;
    cuda_must(cudaEventSynchronize(cuda_of(b)->fetched[mark]), "waiting for results");
}

static bool op_failed(struct backend *b, struct err *err) {
    (void)b;
    return cuda_failure(err);
}

static enum status op_matrix_new(struct backend *b, struct matrix **out, enum dtype type, int N,
                                 int K, const void *rows, enum matrix_form form, struct err *err) {
    struct cuda *cuda = cuda_of(b);
    return matrix_make(out, &cuda->staging, cuda->act, cuda->free_order, type, N, K, rows, form,
                       err);
}

static enum status op_matrix_random(struct backend *b, struct matrix **out, enum dtype type, int N,
                                    int K, uint64_t seed, enum matrix_form form, struct err *err) {
    struct cuda *cuda = cuda_of(b);
    return matrix_make_random(out, &cuda->staging, cuda->act, cuda->free_order, type, N, K, seed,
                              form, err);
}

static void op_matrix_free(struct backend *b, struct matrix *matrix) {
    cuda_must(cudaStreamSynchronize(cuda_of(b)->stream), "waiting for the stream");
    matrix_drop(matrix);
}

static size_t op_matrix_bytes(const struct matrix *matrix) {
    return matrix->bytes;
}

static size_t op_kv_bytes(struct backend *b, const struct kv_config *config) {
    struct cuda *cuda = cuda_of(b);
    struct attention_work work;
    const size_t cache = kv_cache_bytes(config);
    if (cache > SIZE_MAX / 4) return SIZE_MAX;
    const size_t attention = attention_work_bytes(&work, cuda->act, &cuda->limits, config);
    return cache + attention + step_memory_bytes(&work, config->block_size) +
           angles_bytes(cuda->limits.max_rows, config->D / 2);
}

/* What steps over such a cache work in. */
static enum status take_work(struct cuda *cuda, const struct kv_config *config, struct err *err) {
    cuda_must(cudaStreamSynchronize(cuda->stream), "waiting for the stream");
    graphs_drop(&cuda->graphs); /* they have the old memory in them */
    attention_work_free(&cuda->attention);
    enum status status =
        attention_work_new(&cuda->attention, cuda->act, &cuda->limits, config, err);
    if (!status)
        status = step_memory_reserve(&cuda->step, &cuda->attention, config->block_size,
                                     cuda->stream, err);
    if (!status)
        status =
            angles_take(&cuda->angles, cuda->limits.max_rows, config->D / 2, cuda->stream, err);
    return status;
}

static enum status op_kv_new(struct backend *b, struct kv_cache **out,
                             const struct kv_config *config, struct err *err) {
    struct cuda *cuda = cuda_of(b);
    struct kv_cache *cache;
    staging_release(&cuda->staging); /* the weights are there */
    enum status status = kv_cache_new(&cache, config, err);
    if (status) return status;
    status = take_work(cuda, config, err);
    if (status)
        kv_cache_free(cache);
    else
        *out = cache;
    return status;
}

static void op_kv_free(struct backend *b, struct kv_cache *cache) {
    cuda_must(cudaStreamSynchronize(cuda_of(b)->stream), "waiting for the stream");
    graphs_drop(&cuda_of(b)->graphs);
    kv_cache_free(cache);
}

/* ---- swapping ------------------------------------------------------------------------------- */

static enum status op_swap_new(struct backend *b, struct kv_swap **out, struct kv_cache *cache,
                               int64_t bytes, int *n_slots, struct err *err) {
    return kv_swap_new(out, cache, &SWAP_SIZES, bytes, n_slots, cuda_of(b)->stream, err);
}

/* ---- a step --------------------------------------------------------------------------------- */

static void op_step_begin(struct backend *b, const struct step *step, struct kv_cache *cache) {
    struct cuda *cuda = cuda_of(b);
    cuda->angles.inv_freq = NULL;
    if (cuda_failed()) return;
    if (cuda->laid_out) return;
    step_upload(&cuda->step, step, 0, &cuda->attention, cache->config.block_size, cuda->stream);
    step_copy_blocks(&cuda->step.at, step, cache, cuda->stream);
}

/* A pass that a graph may stand for. */
struct forward_pass {
    void (*forward)(void *arg, const struct step *step);
    void *arg;
    const struct step *step; /* with the graph's rows */
};

static void queue_forward(void *arg) {
    const struct forward_pass *pass = (const struct forward_pass *)arg;
    pass->forward(pass->arg, pass->step);
}

static void op_run(struct backend *b, const struct step *step, struct kv_cache *cache,
                   void (*forward)(void *arg, const struct step *step), void *arg) {
    struct cuda *cuda = cuda_of(b);
    if (cuda_failed()) return;
    const int rows = graphs_rows(&cuda->graphs, step);
    if (rows == 0) {
        forward(arg, step);
        return;
    }
    step_upload(&cuda->step, step, rows, &cuda->attention, cache->config.block_size, cuda->stream);
    struct step padded = *step;
    padded.M = padded.S = padded.R = rows;
    struct forward_pass pass = {forward, arg, &padded};
    const struct graph_key key = {rows, cuda->attention.plan.n_items, step->sampled, cache};
    cuda->laid_out = true;
    graphs_run(&cuda->graphs, &key, cuda->stream, queue_forward, &pass);
    cuda->laid_out = false;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static void op_embed(struct backend *b, float *y, const struct matrix *embedding) {
    struct cuda *cuda = cuda_of(b);
    const struct device_step *at = &cuda->step.at;
    embed_rows(y, &embedding->packed, at->token, at->sampled, at->M, cuda->stream);
}

static void op_gather(struct backend *b, float *y, const float *x, int K) {
    struct cuda *cuda = cuda_of(b);
    const struct device_step *at = &cuda->step.at;
    rows_gather(cuda->act, y, x, at->logit_row, at->R, K, cuda->stream);
}

/* ---- heads ---------------------------------------------------------------------------------- */

static void op_rope_write(struct backend *b, struct kv_cache *cache, int layer,
                          const struct rope *rope, int H, float *q, float *k, const float *v) {
    struct cuda *cuda = cuda_of(b);
    assert(layer >= 0 && layer < cache->config.L);
    struct heads_args args = {};
    args.q = {q, H, NULL, NULL};
    args.k = {k, cache->config.G, NULL, NULL};
    args.v = {(void *)v, cache->config.G, NULL, NULL};
    args.M = cuda->step.at.M;
    args.D = cache->config.D;
    args.D_rope = rope->D_rope;
    args.layout = rope->layout;
    if (rope->D_rope > 0) {
        angles_make(&cuda->angles, &cuda->step.at, rope->inv_freq, rope->D_rope / 2, cuda->stream);
        args.cosine = cuda->angles.cosine;
        args.sine = cuda->angles.sine;
    }
    args.cache = cache;
    args.layer = layer;
    args.slot = cuda->step.at.slot;
    heads_prepare(cuda->act, &args, cuda->stream);
}

static void op_attention(struct backend *b, float *y, const float *q, const struct kv_cache *cache,
                         int layer, int H, float scale) {
    struct cuda *cuda = cuda_of(b);
    assert(H == cuda->limits.H);
    attention_work_run(&cuda->attention, y, q, cache, layer, &cuda->step.at, scale, cuda->stream);
}

/* ---- products ------------------------------------------------------------------------------- */

static void op_matmul(struct backend *b, float *const *y, const float *x, const struct norm *norm,
                      struct matrix *const *w, int n, int M) {
    products_multiply(&cuda_of(b)->products, y, x, norm, w, n, M);
}

static void op_matmul_add(struct backend *b, float *sum, const float *x, struct matrix *w, int M) {
    products_add(&cuda_of(b)->products, sum, x, w, M);
}

static void op_gated_mlp(struct backend *b, float *sum, const float *x, const struct norm *norm,
                         struct matrix *gate, struct matrix *up, struct matrix *down, int M) {
    products_gated(&cuda_of(b)->products, sum, x, norm, gate, up, down, M);
}

static void op_all_reduce(struct backend *b, float *x, float *part, int M, int K) {
    struct cuda *cuda = cuda_of(b);
    all_reduce_run(&cuda->all_reduce, cuda->act, x, part, M, K, cuda->stream);
}

static void op_logits(struct backend *b, float *y, const float *x, const struct norm *norm,
                      struct matrix *head, int R) {
    products_logits(&cuda_of(b)->products, y, x, norm, head, R);
}

/* ---- sampling ------------------------------------------------------------------------------- */

static struct device_sampler *op_sampler_new(struct backend *b, int V, int sequences, int most) {
    (void)b;
    return device_sampler_new(V, sequences, most);
}

static void op_sampler_free(struct backend *b, struct device_sampler *sampler) {
    device_sampler_free(sampler, cuda_of(b)->stream);
}

static void op_sample(struct backend *b, struct device_sampler *sampler, float *logits,
                      const struct sample *samples, int n, int32_t *ids, struct sampled *results) {
    if (cuda_failed()) return;
    device_sampler_run(sampler, logits, samples, n, ids, results, cuda_of(b)->stream);
}

/* ---- the host's own work -------------------------------------------------------------------- */

static void op_parallel(struct backend *b, void (*fn)(void *arg, int i), void *arg, int n) {
    struct backend *host = cuda_of(b)->host;
    host->ops->parallel(host, fn, arg, n);
}

/* ---- the device's clock --------------------------------------------------------------------- */

static void op_stamp(struct backend *b, int i) {
    stamps_set(&cuda_of(b)->stamps, i, cuda_of(b)->stream);
}

static uint64_t op_stamped_ns(struct backend *b, int from, int to) {
    return stamps_between(&cuda_of(b)->stamps, from, to);
}

static void op_limits(struct backend *b, struct device_limits *out) {
    measure_limits(out, cuda_of(b)->stream);
}

/* ---- open and close ------------------------------------------------------------------------- */

static void op_close(struct backend *b) {
    struct cuda *cuda = cuda_of(b);
    if (cuda->stream) cuda_must(cudaStreamSynchronize(cuda->stream), "waiting for the stream");
    staging_release(&cuda->staging);
    stamps_free(&cuda->stamps);
    graphs_close(&cuda->graphs);
    step_memory_close(&cuda->step);
    attention_work_free(&cuda->attention);
    for (cudaEvent_t event : cuda->fetched)
        if (event) cuda_must(cudaEventDestroy(event), "freeing an event");
    angles_free(&cuda->angles);
    products_close(&cuda->products);
    all_reduce_close(&cuda->all_reduce);
    if (cuda->stream) cuda_must(cudaStreamDestroy(cuda->stream), "closing a stream");
    backend_close(cuda->host);
    cuda_failure_close();
    free(cuda);
}

static const struct backend_ops cuda_ops = {
    .memory = op_memory,
    .buffer_new = op_buffer_new,
    .buffer_free = op_buffer_free,
    .matrix_new = op_matrix_new,
    .matrix_random = op_matrix_random,
    .matrix_free = op_matrix_free,
    .matrix_bytes = op_matrix_bytes,
    .kv_bytes = op_kv_bytes,
    .kv_new = op_kv_new,
    .kv_free = op_kv_free,
    .swap_bytes = kv_swap_bytes,
    .swap_new = op_swap_new,
    .swap_free = kv_swap_free,
    .swap_reserve = kv_swap_reserve,
    .swap_out = kv_swap_out,
    .swap_in = kv_swap_in,
    .swap_arrive = kv_swap_arrive,
    .run = op_run,
    .step_begin = op_step_begin,
    .embed = op_embed,
    .matmul = op_matmul,
    .matmul_add = op_matmul_add,
    .gated_mlp = op_gated_mlp,
    .all_reduce = op_all_reduce,
    .logits = op_logits,
    .rope_write = op_rope_write,
    .attention = op_attention,
    .gather = op_gather,
    .sampler_new = op_sampler_new,
    .sampler_free = op_sampler_free,
    .sample = op_sample,
    .upload = op_upload,
    .download = op_download,
    .host_new = op_host_new,
    .host_free = op_host_free,
    .fetch = op_fetch,
    .await = op_await,
    .failed = op_failed,
    .parallel = op_parallel,
    .close = op_close,
    .stamp = op_stamp,
    .stamped_ns = op_stamped_ns,
    .limits = op_limits,
};

enum { DEFAULT_GRAPHS = 64 };

static enum status find_cublas(struct err *err) {
    if (cublas_open()) return STATUS_OK;
    return err_set(err, STATUS_USAGE, "deterministic",
                   "--no-deterministic: cuBLAS could not be loaded (libcublas.so.13, .12); install "
                   "it, or leave the option out");
}

static enum status check_config(const struct backend_config *config, struct err *err) {
    const enum dtype act = config->activations;
    if (config->max_rows <= 0 || config->max_k <= 0 || config->max_k > NORM_MOST_K)
        return err_set(err, STATUS_USAGE, NULL, "a CUDA backend needs rows, and 1 to %d inputs",
                       NORM_MOST_K);
    if (config->max_seqs <= 0 || config->max_context <= 0 || config->heads <= 0)
        return err_set(err, STATUS_USAGE, NULL,
                       "a CUDA backend needs sequences, a context and query heads");
    assert(config->graph_rows >= 0 && config->graph_rows <= config->max_rows &&
           config->graph_rows <= config->max_seqs);
    if (act != DTYPE_F32 && act != DTYPE_F16 && act != DTYPE_BF16)
        return err_set(err, STATUS_USAGE, "dtype", "activations are float32, float16 or bfloat16");
    return STATUS_OK;
}

/* The stream and its events. */
static enum status open_stream(struct cuda *cuda, struct err *err) {
    enum status status =
        room_made(cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking), "stream", err);
    for (cudaEvent_t &event : cuda->fetched)
        if (!status)
            status =
                room_made(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event", err);
    if (!status) status = step_memory_open(&cuda->step, err);
    return status;
}

/* Where cuBLAS multiplies, steps are not captured: it takes memory when it likes to. */
static int graph_rows(const struct backend_config *config) {
    const bool ours = !config->free_order || config->graph_rows <= GEMM_SKINNY_ROWS;
    return ours ? config->graph_rows : (int)GEMM_SKINNY_ROWS;
}

enum status backend_cuda_open(struct backend **out, const struct backend_config *config,
                              struct err *err) {
    cudaDeviceProp prop;
    struct backend *host;
    const struct backend_config host_config = {config->threads, NULL, 1, 1, DTYPE_F32};
    enum status status = check_config(config, err);
    if (!status) status = device_find(&prop, config->rank, err);
    if (!status && config->free_order) status = find_cublas(err);
    if (!status) status = backend_cpu_open(&host, &host_config, err);
    if (status) return status;
    cuda_failure_open();
    struct cuda *cuda = (struct cuda *)mem_calloc(1, sizeof *cuda);
    cuda->host = host;
    cuda->act = config->activations;
    cuda->free_order = config->free_order;
    cuda->limits = {config->max_rows, config->max_seqs, config->max_context, config->heads};
    snprintf(cuda->architecture, sizeof cuda->architecture, "sm_%d%d", prop.major, prop.minor);
    cuda->head = {&cuda_ops, "cuda", cuda->architecture, host->n_threads, false, MAX_IN_FLIGHT};
    cuda->head.ranges = nvtx_ranges();
    early_grids_find();
    graphs_open(&cuda->graphs, graph_rows(config),
                config->graphs ? config->graphs : DEFAULT_GRAPHS);
    status = open_stream(cuda, err);
    if (!status)
        status = products_open(&cuda->products, cuda->act, config->max_rows, config->max_k,
                               cuda->stream, err);
    if (!status) status = all_reduce_open(&cuda->all_reduce, cuda->act, config, err);
    if (status) {
        op_close(&cuda->head);
        return status;
    }
    staging_open(&cuda->staging, host, cuda->stream);
    *out = &cuda->head;
    return STATUS_OK;
}
