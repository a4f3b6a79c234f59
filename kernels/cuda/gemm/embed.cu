/* The embedding: one block per row. Rows are read from the packed layout of products, so a tied
 * head needs no second copy. The layout has the complete codes and scales, and weights of the
 * activations' type are rounded as a look-up would round them: the bits equal those of the file's
 * rows. A step reads M rows of K weights, little beside its products. */
#include "kernels/cuda/gemm/ops.cuh"

#include "kernels/cuda/gemm/format.cuh"
#include "kernels/cuda/runtime/orders.cuh"

constexpr int EMBED_THREADS = 256;

template <class F, class T>
__global__ void __launch_bounds__(EMBED_THREADS)
    embed_kernel(const __grid_constant__ EmbedArgs<T> a) {
    grid_begin();
    embed_row<F>(a, (int)blockIdx.x);
}

/* Rows of the activations' type. */
template <class T>
__global__ void __launch_bounds__(EMBED_THREADS)
    embed_rows_kernel(const __grid_constant__ EmbedArgs<T> a) {
    grid_begin();
    const int id = row_of(a.rows, a.sampled, (int)blockIdx.x), K = a.w.K;
    if (id < 0) return;
    const T *from = reinterpret_cast<const T *>(a.w.codes) + (size_t)id * K;
    T *to = a.y + (size_t)blockIdx.x * K;
    for (int k = threadIdx.x; k < K; k += EMBED_THREADS)
        put(to + k, to_float(from[k]), a.scale, a.add);
}

template <class T> static void embed(const EmbedArgs<T> &args, int M, cudaStream_t stream) {
    const dim3 grid((unsigned)M), block(EMBED_THREADS);
    const enum gemm_format format = args.w.format;
    if (format != GEMM_16) orders_refuse(MISFIT_WEIGHTS);
    if (format == GEMM_FLOAT || format == GEMM_ROWS) {
        launch(embed_rows_kernel<T>, grid, block, 0, stream, args);
        return;
    }
    if constexpr (sizeof(T) == 2)
        for_format(format, [&](auto of) {
            using F = decltype(of);
            if constexpr (std::is_same_v<F, Format16>)
                launch_or_order({ORDER_EMBED, M, 1, DTYPE_F32, args.w.act, 0, 0},
                                embed_kernel<F, T>, grid, block, stream, args);
            else
                launch(embed_kernel<F, T>, grid, block, 0, stream, args);
        });
}

void embed_rows(void *y, const struct gemm_weights *w, const int32_t *rows, const int32_t *sampled,
                float scale, bool add, int M, cudaStream_t stream) {
    for_activation(w->act, [&](auto zero) {
        using T = decltype(zero);
        embed(EmbedArgs<T>{static_cast<T *>(y), *w, rows, sampled, scale, add}, M, stream);
    });
}
