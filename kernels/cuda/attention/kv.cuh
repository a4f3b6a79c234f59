/* The paged cache's memory and its blocks. */
#ifndef PENSTOCK_CUDA_KV_CUH
#define PENSTOCK_CUDA_KV_CUH

#include "kernels/cuda/runtime/device.cuh"

/* Implement kv_new and kv_free of the op table. The cache stores float32, float16, bfloat16, or
 * e4m3 in heads of a multiple of 16 numbers, except if keys contain the values. */
enum status kv_cache_new(struct kv_cache **out, const struct kv_config *config, struct err *err);
void kv_cache_free(struct kv_cache *cache);

/* Returns the bytes that it needs, or SIZE_MAX on overflow. */
size_t kv_cache_bytes(const struct kv_config *config);

/* Copies blocks from[i] to to[i] in all layers of a kind, concurrently: no block may be both source
 * and target, or target twice. The kind must have layers. The lists are device memory. */
void kv_copy(struct kv_cache *cache, enum block_kind kind, const int32_t *from, const int32_t *to,
             int n, cudaStream_t stream);

/* Swapping: kv_gather copies blocks block[0..n) to `stage`, [n][2][L] pieces (keys, then values;
 * [n][L] if keys contain the values) of kv_piece_bytes, and kv_scatter copies them back. L are the
 * layers of the kind. A piece is block_bytes of elements, followed by G scales if they are e4m3. If
 * layers differ, the pieces of one group follow those of another. The list has at most KV_LIST
 * blocks and is read before the return. */
enum { KV_LIST = 256 };
size_t kv_piece_bytes(const struct kv_cache *cache);
void kv_gather(void *stage, const struct kv_cache *cache, enum block_kind kind,
               const int32_t *block, int n, cudaStream_t stream);
void kv_scatter(struct kv_cache *cache, enum block_kind kind, const void *stage,
                const int32_t *block, int n, cudaStream_t stream);
/* Returns the bytes of a stage of n blocks. */
size_t kv_stage_bytes(const struct kv_cache *cache, enum block_kind kind, int n);

#endif
