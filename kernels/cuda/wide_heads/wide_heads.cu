/* Attention of wide heads: chooses the kernel. */
#include "kernels/cuda/wide_heads/wide_heads.cuh"

#include "kernels/cuda/wide_heads/launch.cuh"

/* The heads that have a kernel. */
struct wide_size {
    int D, D_value;
    size_t bytes[3]; /* of shared memory, for 1, 2 and 4 tiles */
};

template <int DK, int DV> static constexpr wide_size size_of() {
    return {DK,
            DV,
            {wide_memory<wide_kind<__half, DK, DV, 1>>::BYTES,
             wide_memory<wide_kind<__half, DK, DV, 2>>::BYTES,
             wide_memory<wide_kind<__half, DK, DV, 4>>::BYTES}};
}

/* Gemma 4; the latent attention of DeepSeek, Kimi and GLM; that of Mistral Small 4. */
static constexpr wide_size sizes[] = {size_of<512, 512>(), size_of<576, 512>(),
                                      size_of<320, 256>()};
static_assert(sizes[0].bytes[2] <= 163 << 10, "64 vectors of a head of 512 fit a block of sm_80");
static_assert(sizes[1].bytes[0] <= 99 << 10, "16 vectors fit every device from sm_80 on");

static int tiles_of(enum dtype act, const struct kv_view *kv, int D_value, size_t block_bytes) {
    if (act != DTYPE_F16 && act != DTYPE_BF16) return 0;
    if (kv->type != KV_F16 && kv->type != KV_BF16) return 0;
    assert(D_value > 0 && D_value <= kv->D);
    for (const wide_size &size : sizes) {
        if (size.D != kv->D || size.D_value != D_value) continue;
        return size.bytes[2] <= block_bytes   ? 4
               : size.bytes[1] <= block_bytes ? 2
               : size.bytes[0] <= block_bytes ? 1
                                              : 0;
    }
    return 0;
}

/* The tiles of a block for items of at most `vectors` vectors. */
static int tiles_for(int vectors, int most) {
    const int tiles = vectors <= 16 ? 1 : vectors <= 32 ? 2 : 4;
    return tiles < most ? tiles : most;
}

static void run(enum dtype act, const struct attention_args *args,
                const struct attention_plan *plan, int most_tiles, cudaStream_t stream) {
    const attention_launch how = {act, plan->heads, plan->head_parts,
                                  args->kv.G * plan->head_parts};
    auto *run_type = args->kv.type == KV_F16 ? wide_heads_run_f16 : wide_heads_run_bf16;
    assert(most_tiles > 0 && args->H % args->kv.G == 0);
    assert((args->kv.type == KV_F16 || args->kv.type == KV_BF16) && plan->n_chunks == 0);
    orders_refuse("its heads are wider than 256 numbers, or its attention is latent");
    const int splits = tiles_for(plan->split_vectors, most_tiles);
    const int whole = tiles_for(WHOLE_VECTORS, most_tiles);
    /* a graph's plans differ, so one launch takes all their items */
    const bool together = splits == whole || plan->is_fixed || plan->n_whole == 0;
    const int rest = together ? WIDE_SPLITS | WIDE_WHOLE : WIDE_SPLITS;
    if (together || plan->n_items > plan->n_whole)
        run_type(*args, how, {plan->n_items, splits, rest}, stream);
    if (!together) run_type(*args, how, {plan->n_items, whole, WIDE_WHOLE}, stream);
}

const struct attention_wide wide_heads = {tiles_of, run};
