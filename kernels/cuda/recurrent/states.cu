/* The state pool on the device: its memory, and copies of states. */
#include "kernels/cuda/recurrent/states.cuh"

#include "kernels/cuda/runtime/ptx.cuh"
#include "kernels/cuda/runtime/runtime.cuh"

enum { COPY_THREADS = 256, COPY_EACH = 16 }; /* numbers of a copy per thread */

/* Copies a part of a state, N numbers at a time. One block per part of each copy. */
template <int N>
__global__ void __launch_bounds__(COPY_THREADS)
    copy_states_kernel(float *states, size_t length, const int32_t *from, const int32_t *to) {
    grid_begin();
    const float *source = states + (size_t)from[blockIdx.y] * length;
    float *target = states + (size_t)to[blockIdx.y] * length;
    const size_t first = (size_t)blockIdx.x * COPY_THREADS * COPY_EACH;
#pragma unroll
    for (int i = 0; i < COPY_EACH / N; i++) {
        const size_t at = first + ((size_t)i * COPY_THREADS + threadIdx.x) * N;
        if (at < length) store_vec<N>(target + at, load_vec<N>(source + at));
    }
}

size_t states_bytes(const struct kv_config *config) {
    size_t bytes = (size_t)config->n_states;
    assert(config->n_states >= 0 && config->state_layers >= 0 && config->state_floats >= 0);
    if (!size_multiply(&bytes, (size_t)config->state_layers) ||
        !size_multiply(&bytes, (size_t)config->state_floats) ||
        !size_multiply(&bytes, sizeof(float)))
        return SIZE_MAX;
    return bytes;
}

enum status states_new(struct kv_cache *cache, const struct kv_config *config, struct err *err) {
    static const struct alloc_hint hint = {
        "the states of recurrent layers", "max-num-seqs",
        "lower {max-num-seqs}, {state-checkpoints} or {gpu-memory-utilization}"};
    assert(!cache->states);
    void *states = nullptr;
    const enum status status = device_calloc(&states, states_bytes(config), &hint, err);
    cache->states = static_cast<float *>(states);
    return status;
}

void states_free(struct kv_cache *cache) {
    cuda_check(cudaFree(cache->states), "freeing the states");
    cache->states = nullptr;
}

struct state_rows states_of(const struct kv_cache *cache, int layer,
                            const struct device_step *step) {
    const struct kv_config *c = &cache->config;
    assert(cache->states && layer >= 0 && layer < c->state_layers && step->state);
    return {cache->states + (size_t)layer * (size_t)c->state_floats,
            (size_t)c->state_layers * (size_t)c->state_floats,
            step->S,
            step->row_start,
            step->state,
            step->state_after,
            step->position};
}

void states_copy(struct kv_cache *cache, const int32_t *from, const int32_t *to, int n,
                 cudaStream_t stream) {
    const size_t length = kv_state_bytes(&cache->config) / sizeof(float);
    const size_t part = (size_t)COPY_THREADS * COPY_EACH;
    const dim3 grid((unsigned)((length + part - 1) / part), (unsigned)n);
    assert(cache->states && length > 0 && n > 0);
    auto kernel = length % 4 == 0 ? copy_states_kernel<4> : copy_states_kernel<1>;
    launch(kernel, grid, dim3(COPY_THREADS), 0, stream, cache->states, length, from, to);
}
