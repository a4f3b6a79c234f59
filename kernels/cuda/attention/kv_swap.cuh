/* Swapped cache blocks in host memory. */
#ifndef PENSTOCK_CUDA_SWAP_CUH
#define PENSTOCK_CUDA_SWAP_CUH

#include "kernels/cuda/attention/kv.cuh"

/* Bytes of a chunk of host memory and of a stage on the device; each holds at least one block. */
struct swap_sizes {
    size_t chunk, stage;
};
constexpr struct swap_sizes SWAP_SIZES = {64 << 20, 32 << 20};

/* Implements swap_new of the op table, for steps that run on `stream`. */
enum status kv_swap_new(struct kv_swap **out, struct kv_cache *cache,
                        const struct swap_sizes *sizes, int64_t bytes, int n_slots[N_BLOCK_KINDS],
                        cudaStream_t stream, struct err *err);
/* Implement the ops of these names; the backend argument is ignored. */
size_t kv_swap_bytes(struct backend *b, const struct kv_config *config);
void kv_swap_free(struct backend *b, struct kv_swap *swap);
bool kv_swap_reserve(struct backend *b, struct kv_swap *swap, enum block_kind kind, int n);
void kv_swap_out(struct backend *b, struct kv_swap *swap, enum block_kind kind,
                 const int32_t *block, const int32_t *slot, int n);
void kv_swap_in(struct backend *b, struct kv_swap *swap, enum block_kind kind, const int32_t *slot,
                const int32_t *block, int n);
void kv_swap_arrive(struct backend *b, struct kv_swap *swap);

#endif
