/* Launches attention's kernel for chunks on sm_90a. */
#include "kernels/cuda/wgmma/chunks.cuh"

#include "kernels/cuda/wgmma/launch.cuh"
#include "kernels/cuda/wgmma/wgmma.cuh"

static bool serves(const struct kv_view *kv) {
    return (kv->type == KV_F16 || kv->type == KV_BF16) && (kv->D == 64 || kv->D == 128) &&
           kv_has_tiles(2, kv->D, kv->B);
}

template <class T, int D, bool CAPS>
static void launch_chunks(const attention_args &args, const attention_launch &how, int n_items,
                          cudaStream_t stream) {
    using C = attention_kind<T, T, D, true, CAPS>;
    const int n = n_items * how.n_y, blocks = n < MULTIPROCESSORS ? n : MULTIPROCESSORS;
    auto kernel = chunk_kernel<C>;
    allow_smem(kernel, ChunkMemory<C>::BYTES);
    launch(kernel, dim3((unsigned)blocks), dim3(CHUNK_THREADS), ChunkMemory<C>::BYTES, stream, args,
           how, n);
}

template <class T>
static void launch_all_chunks(const attention_args &args, const attention_launch &how, int n_items,
                              cudaStream_t stream) {
    const bool caps = args.cap != 0.0f || args.slopes;
    auto *run = args.kv.D == 64 ? (caps ? launch_chunks<T, 64, true> : launch_chunks<T, 64, false>)
                : caps          ? launch_chunks<T, 128, true>
                                : launch_chunks<T, 128, false>;
    run(args, how, n_items, stream);
}

static void run(const attention_args &args, const attention_launch &how, int n_items,
                cudaStream_t stream) {
    assert(serves(&args.kv));
    if (args.kv.type == KV_F16)
        launch_all_chunks<__half>(args, how, n_items, stream);
    else
        launch_all_chunks<__nv_bfloat16>(args, how, n_items, stream);
}

const struct attention_chunks wgmma_chunks = {serves, run};
