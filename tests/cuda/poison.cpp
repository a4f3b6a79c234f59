#include "tests/cuda/poison.h"

#include "kernels/cuda/backend.cuh"

extern "C" void poison_on_cuda(struct backend *b, struct kv_cache *cache, int32_t window_block) {
    const size_t bytes = cache->block_bytes, G = (size_t)cache->config.G;
    const cudaStream_t stream = cuda_of(b)->stream;
    for (int layer = 0; layer < cache->config.L; layer++) {
        if (cache->layer[layer].kind != KV_WINDOW_BLOCKS) continue;
        const size_t place = cache->layer[layer].first + (size_t)window_block;
        for (uint8_t *elements : {cache->keys, cache->values})
            cuda_check(cudaMemsetAsync(elements + place * bytes, 0xff, bytes, stream), "poison");
        if (!cache->key_scale) continue;
        for (float *scales : {cache->key_scale, cache->value_scale})
            cuda_check(cudaMemsetAsync(scales + place * G, 0xff, G * sizeof(float), stream),
                       "poison");
    }
}

extern "C" void poison_state_on_cuda(struct backend *b, struct kv_cache *cache, int32_t state) {
    const size_t bytes = kv_state_bytes(&cache->config);
    assert(cache->states && state >= 0 && state < cache->config.n_states);
    uint8_t *states = reinterpret_cast<uint8_t *>(cache->states);
    cuda_check(cudaMemsetAsync(states + (size_t)state * bytes, 0xff, bytes, cuda_of(b)->stream),
               "poison");
}
