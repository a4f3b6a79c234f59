/* The launches of one cache type: f16.cu and bf16.cu include this. */
#ifndef PENSTOCK_CUDA_WIDE_HEADS_LAUNCH_CUH
#define PENSTOCK_CUDA_WIDE_HEADS_LAUNCH_CUH

#include "kernels/cuda/wide_heads/kernel.cuh"

/* A launch over all items of a plan. */
struct wide_launch {
    int n_items, tiles; /* of 16 vectors in a block: 1, 2 or 4 */
    int kinds;          /* WIDE_SPLITS, WIDE_WHOLE or both */
};

/* Defined in f16.cu and bf16.cu. */
void wide_heads_run_f16(const attention_args &args, const attention_launch &how,
                        const wide_launch &work, cudaStream_t stream);
void wide_heads_run_bf16(const attention_args &args, const attention_launch &how,
                         const wide_launch &work, cudaStream_t stream);

template <class C>
static void wide_launch_of(const attention_args &args, const attention_launch &how,
                           const wide_launch &work, cudaStream_t stream) {
    constexpr size_t smem = wide_memory<C>::BYTES;
    allow_smem(wide_heads_kernel<C>, smem);
    launch(wide_heads_kernel<C>, dim3((unsigned)work.n_items, (unsigned)how.n_y),
           dim3(WIDE_THREADS), smem, stream, args, how, work.kinds);
}

template <class T, int DK, int DV>
static void wide_launch_tiles(const attention_args &args, const attention_launch &how,
                              const wide_launch &work, cudaStream_t stream) {
    assert(work.tiles == 1 || work.tiles == 2 || work.tiles == 4);
    auto *run = work.tiles == 1   ? wide_launch_of<wide_kind<T, DK, DV, 1>>
                : work.tiles == 2 ? wide_launch_of<wide_kind<T, DK, DV, 2>>
                                  : wide_launch_of<wide_kind<T, DK, DV, 4>>;
    run(args, how, work, stream);
}

/* The sizes of wide_kinds in wide_heads.cu. */
template <class T>
static void wide_launch_all(const attention_args &args, const attention_launch &how,
                            const wide_launch &work, cudaStream_t stream) {
    auto *run = args.kv.D == 576   ? wide_launch_tiles<T, 576, 512>
                : args.kv.D == 512 ? wide_launch_tiles<T, 512, 512>
                                   : wide_launch_tiles<T, 320, 256>;
    run(args, how, work, stream);
}

#endif
