/* The memory of the backend's device: buffers, weights, the KV cache with the work memory of steps,
 * and swapped blocks. */
#include <string.h>

#include "kernels/cuda/attention/kv.cuh"
#include "kernels/cuda/attention/kv_swap.cuh"
#include "kernels/cuda/backend.cuh"
#include "kernels/cuda/recurrent/states.cuh"
#include "kernels/cuda/runtime/runtime.cuh"

/* ---- buffers -------------------------------------------------------------------------------- */

static void op_memory(struct backend *b, struct device_memory *out) {
    (void)b;
    *out = device_memory_now();
}

static void *op_buffer_new(struct backend *b, size_t bytes) {
    void *memory;
    if (!cuda_alloc_ok(cudaMalloc(&memory, bytes))) return nullptr;
    cuda_check(cudaMemsetAsync(memory, 0, bytes, cuda_of(b)->stream), "zeroing memory");
    return memory;
}

static void op_buffer_free(struct backend *b, void *buffer, size_t bytes) {
    (void)bytes;
    cuda_check(cudaStreamSynchronize(cuda_of(b)->stream), "waiting for the stream");
    cuda_check(cudaFree(buffer), "freeing memory");
}

static void op_upload(struct backend *b, void *device, const void *host, size_t bytes) {
    if (cuda_failed()) return;
    cuda_check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cuda_of(b)->stream),
               "copying to the device");
    cuda_check(cudaStreamSynchronize(cuda_of(b)->stream), "waiting for the stream");
}

static void op_download(struct backend *b, void *host, const void *device, size_t bytes) {
    if (cuda_failed()) return;
    cuda_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cuda_of(b)->stream),
               "copying from the device");
    cuda_check(cudaStreamSynchronize(cuda_of(b)->stream), "waiting for the stream");
}

static void *op_host_new(struct backend *b, size_t bytes) {
    (void)b;
    void *memory;
    return cuda_alloc_ok(cudaMallocHost(&memory, bytes)) ? memset(memory, 0, bytes) : nullptr;
}

static void op_host_free(struct backend *b, void *host, size_t bytes) {
    (void)bytes;
    cuda_check(cudaStreamSynchronize(cuda_of(b)->stream), "waiting for the stream");
    cuda_check(cudaFreeHost(host), "freeing pinned memory");
}

static void op_fetch(struct backend *b, int mark, void *host, const void *device, size_t bytes) {
    struct cuda *cuda = cuda_of(b);
    assert(mark >= 0 && mark < MAX_IN_FLIGHT);
    if (cuda_failed()) return;
    if (bytes > 0)
        cuda_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cuda->stream),
                   "copying results");
    cuda_check(cudaEventRecord(cuda->fetched[mark], cuda->stream), "recording an event");
}

static void op_await(struct backend *b, int mark) {
    assert(mark >= 0 && mark < MAX_IN_FLIGHT);
    if (cuda_failed()) return;
    cuda_check(cudaEventSynchronize(cuda_of(b)->fetched[mark]), "waiting for results");
}

/* ---- weights -------------------------------------------------------------------------------- */

/* The type of a matrix's inputs: float32 if the matrix is stored as float32 beside 16-bit
 * activations, as a router is. */
static enum dtype act_of(const struct cuda *cuda, enum matrix_form form) {
    return form == MATRIX_FLOAT32 ? DTYPE_F32 : cuda->act;
}

static enum status op_matrix_new(struct backend *b, struct matrix **out, enum dtype type, int N,
                                 int K, const void *rows, enum matrix_form form, struct err *err) {
    struct cuda *cuda = cuda_of(b);
    return matrix_alloc(out, &cuda->staging, act_of(cuda, form), cuda->ways, type, N, K, rows, form,
                        err);
}

static enum status op_matrix_random(struct backend *b, struct matrix **out, enum dtype type, int N,
                                    int K, uint64_t seed, enum matrix_form form, struct err *err) {
    struct cuda *cuda = cuda_of(b);
    return matrix_alloc_random(out, &cuda->staging, act_of(cuda, form), cuda->ways, type, N, K,
                               seed, form, err);
}

static void op_matrix_free(struct backend *b, struct matrix *matrix) {
    cuda_check(cudaStreamSynchronize(cuda_of(b)->stream), "waiting for the stream");
    matrix_free(matrix);
}

static size_t op_matrix_bytes(const struct matrix *matrix) {
    return matrix->bytes;
}

/* ---- the KV cache --------------------------------------------------------------------------- */

static size_t op_kv_bytes(struct backend *b, const struct kv_config *config) {
    struct cuda *cuda = cuda_of(b);
    struct attention_workspace work;
    const size_t cache = kv_cache_bytes(config), states = states_bytes(config);
    if (cache > SIZE_MAX / 4 || states > SIZE_MAX / 4) return SIZE_MAX;
    const size_t attention = attention_workspace_bytes(&work, cuda->act, &cuda->limits, config);
    return cache + states + attention + step_memory_bytes(&work, config->block_size) +
           angles_bytes(cuda->limits.max_rows, kv_largest_head(config) / 2);
}

/* Allocates the work memory of steps over the cache. */
static enum status alloc_work(struct cuda *cuda, const struct kv_config *config, struct err *err) {
    cuda_check(cudaStreamSynchronize(cuda->stream), "waiting for the stream");
    graphs_clear(&cuda->graphs); /* they refer to the old memory */
    attention_workspace_free(&cuda->attention);
    enum status status =
        attention_workspace_new(&cuda->attention, cuda->act, &cuda->limits, config, err);
    if (!status)
        status = step_memory_reserve(&cuda->step, &cuda->attention, config->block_size,
                                     cuda->stream, err);
    if (!status)
        status = angles_alloc(&cuda->angles, cuda->limits.max_rows, kv_largest_head(config) / 2,
                              cuda->stream, err);
    return status;
}

static enum status op_kv_new(struct backend *b, struct kv_cache **out,
                             const struct kv_config *config, struct err *err) {
    struct cuda *cuda = cuda_of(b);
    struct kv_cache *cache;
    staging_release(&cuda->staging); /* all weights are loaded by now */
    enum status status = kv_cache_new(&cache, config, err);
    if (status) return status;
    status = states_new(cache, config, err);
    if (!status) status = alloc_work(cuda, config, err);
    if (!status) {
        *out = cache;
        return STATUS_OK;
    }
    states_free(cache);
    kv_cache_free(cache);
    return status;
}

static void op_kv_free(struct backend *b, struct kv_cache *cache) {
    cuda_check(cudaStreamSynchronize(cuda_of(b)->stream), "waiting for the stream");
    graphs_clear(&cuda_of(b)->graphs);
    if (cache) states_free(cache);
    kv_cache_free(cache);
}

/* ---- swapping ------------------------------------------------------------------------------- */

static enum status op_swap_new(struct backend *b, struct kv_swap **out, struct kv_cache *cache,
                               int64_t bytes, int n_slots[N_BLOCK_KINDS], struct err *err) {
    return kv_swap_new(out, cache, &SWAP_SIZES, bytes, n_slots, cuda_of(b)->stream, err);
}

const struct memory_ops cuda_memory_ops = {
    .available = op_memory,
    .buffer_new = op_buffer_new,
    .buffer_free = op_buffer_free,
    .host_new = op_host_new,
    .host_free = op_host_free,
    .matrix_new = op_matrix_new,
    .matrix_random = op_matrix_random,
    .matrix_free = op_matrix_free,
    .matrix_bytes = op_matrix_bytes,
    .upload = op_upload,
    .download = op_download,
    .fetch = op_fetch,
    .await = op_await,
};

const struct cache_ops cuda_cache_ops = {
    .kv_bytes = op_kv_bytes,
    .kv_new = op_kv_new,
    .kv_free = op_kv_free,
};

const struct swap_ops cuda_swap_ops = {
    .swap_bytes = kv_swap_bytes,
    .swap_new = op_swap_new,
    .swap_free = kv_swap_free,
    .swap_reserve = kv_swap_reserve,
    .swap_out = kv_swap_out,
    .swap_in = kv_swap_in,
    .swap_arrive = kv_swap_arrive,
};
