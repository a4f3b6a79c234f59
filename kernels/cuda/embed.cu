/* The embedding: one block a row. Rows are read out of the layout that products want, so that a
 * head which is tied to the embedding needs no second copy. Codes and scales are whole in it, and
 * what it holds in the activations' type was rounded as a look-up would have rounded it: the bits
 * are those of the file's rows. A step reads M rows of K weights, which is nothing beside its
 * products. */
#include "kernels/cuda/embed.cuh"

#include "kernels/cuda/gemm_format.cuh"

constexpr int EMBED_THREADS = 256;

__device__ __forceinline__ int token_of(const int32_t *token, const int32_t *sampled) {
    const int32_t id = token[blockIdx.x];
    return id < 0 ? sampled[-1 - id] : id; /* late_token */
}

/* The pair of weights 2 * i, 2 * i + 1 that one register of a fragment holds, as floats. */
template <class F, class T>
__device__ __forceinline__ float2 weights_of(const Slab<F> &w, uint32_t codes, int step, int side) {
    const auto pair = bits_as<typename Pair<T>::type>(codes);
    float2 v = {to_float(pair.x), to_float(pair.y)};
    if constexpr (F::FOLDS != 0) {
        const int fold = step / PART_STEPS<F>;
        const float scale = F::scale(w, fold, side);
        v = {v.x * scale, v.y * scale};
        if constexpr (F::MIN) {
            const float min = F::min(w, fold, side);
            v = {v.x + min, v.y + min};
        }
    }
    return v;
}

/* A thread takes a quarter of a slab's row at a time: what one lane of a product's warp has of
 * it. */
template <class F, class T>
__global__ void __launch_bounds__(EMBED_THREADS)
    embed_kernel(T *__restrict__ y, const struct gemm_weights w, const int32_t *__restrict__ token,
                 const int32_t *__restrict__ sampled) {
    grid_begin();
    const int id = token_of(token, sampled), g = id % GROUP, side = id % TILE / GROUP;
    const Place tile = place_of_tile<F>(w, id / TILE);
    T *row = y + (size_t)blockIdx.x * w.K;
    for (int i = threadIdx.x; i < w.slabs * 4; i += EMBED_THREADS) {
        const int slab = i / 4, t = i % 4;
        Slab<F> share;
        load_slab<F, false>(share, place_of_slab<F>(w, tile, slab), 4 * g + t);
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            uint32_t a[4];
            F::template fragment<T>(a, share, step);
#pragma unroll
            for (int half = 0; half < 2; half++) { /* of the step's columns */
                const float2 v = weights_of<F, T>(share, a[2 * half + side], step, side);
                const int k = slab * SLAB + column_of<F>(step, t, 4 * half);
                if (k < w.K) row[k] = from_float<T>(v.x);
                if (k + 1 < w.K) row[k + 1] = from_float<T>(v.y);
            }
        }
    }
}

/* Rows of the activations' type. */
template <class T>
__global__ void __launch_bounds__(EMBED_THREADS)
    embed_rows_kernel(T *__restrict__ y, const T *__restrict__ rows,
                      const int32_t *__restrict__ token, const int32_t *__restrict__ sampled,
                      int K) {
    grid_begin();
    const T *from = rows + (size_t)token_of(token, sampled) * K;
    T *to = y + (size_t)blockIdx.x * K;
    for (int k = threadIdx.x; k < K; k += EMBED_THREADS) to[k] = from[k];
}

template <class T>
static void embed(void *y, const struct gemm_weights *w, const int32_t *token,
                  const int32_t *sampled, int M, cudaStream_t stream) {
    const dim3 grid((unsigned)M), block(EMBED_THREADS);
    if (w->format == GEMM_FLOAT || w->format == GEMM_ROWS) {
        launch(embed_rows_kernel<T>, grid, block, 0, stream, static_cast<T *>(y),
               reinterpret_cast<const T *>(w->codes), token, sampled, w->K);
        return;
    }
    if constexpr (sizeof(T) == 2)
        for_format(w->format, [&](auto format) {
            launch(embed_kernel<decltype(format), T>, grid, block, 0, stream, static_cast<T *>(y),
                   *w, token, sampled);
        });
}

void embed_rows(void *y, const struct gemm_weights *w, const int32_t *token, const int32_t *sampled,
                int M, cudaStream_t stream) {
    for_activation(w->act,
                   [&](auto zero) { embed<decltype(zero)>(y, w, token, sampled, M, stream); });
}
