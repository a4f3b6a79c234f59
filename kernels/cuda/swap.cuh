/* Blocks of the cache in the host's memory. */
#ifndef PENSTOCK_CUDA_SWAP_CUH
#define PENSTOCK_CUDA_SWAP_CUH

#include "kernels/cuda/kv.cuh"

/* Memory is taken in slabs of the host's and stages of the device's: of so many bytes, or a block
 * where that is larger. */
struct swap_sizes {
    size_t slab, stage;
};
constexpr struct swap_sizes SWAP_SIZES = {64 << 20, 32 << 20};

/* As swap_new of the op table, for steps that run on `stream`. */
enum status kv_swap_new(struct kv_swap **out, struct kv_cache *cache,
                        const struct swap_sizes *sizes, int64_t bytes, int *n_slots,
                        cudaStream_t stream, struct err *err);
/* These are ops as they stand; the backend is not looked at. */
size_t kv_swap_bytes(struct backend *b, const struct kv_config *config);
void kv_swap_free(struct backend *b, struct kv_swap *swap);
bool kv_swap_reserve(struct backend *b, struct kv_swap *swap, int n);
void kv_swap_out(struct backend *b, struct kv_swap *swap, const int32_t *block, const int32_t *slot,
                 int n);
void kv_swap_in(struct backend *b, struct kv_swap *swap, const int32_t *slot, const int32_t *block,
                int n);
void kv_swap_arrive(struct backend *b, struct kv_swap *swap);

#endif
