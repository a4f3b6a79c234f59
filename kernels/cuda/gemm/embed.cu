/* The embedding: one block a row. Rows are read from the packed layout of products, so that a tied
 * head needs no second copy. Codes and scales are complete in it, and weights of the activations'
 * type were rounded as a look-up would round them: the bits are those of the file's rows. A step
 * reads M rows of K weights, very little beside its products. */
#include "kernels/cuda/gemm/ops.cuh"

#include "kernels/cuda/gemm/format.cuh"

constexpr int EMBED_THREADS = 256;

/* The row of the matrix that the block copies; -1: none. */
__device__ __forceinline__ int row_of(const int32_t *row, const int32_t *sampled) {
    const int32_t id = row[blockIdx.x];
    return id < 0 && sampled ? sampled[-1 - id] : id; /* pending_token */
}

/* Makes y the scaled weight, or adds that to it. */
template <class T> __device__ __forceinline__ void put(T *y, float weight, float scale, bool add) {
    const float value = weight * scale;
    *y = from_float<T>(add ? to_float(*y) + value : value);
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

/* A thread takes a quarter of a slab's row at a time: one lane's share in a product. */
template <class F, class T>
__global__ void __launch_bounds__(EMBED_THREADS)
    embed_kernel(T *__restrict__ y, const struct gemm_weights w, const int32_t *__restrict__ rows,
                 const int32_t *__restrict__ sampled, float scale, bool add) {
    grid_begin();
    const int id = row_of(rows, sampled), g = id % GEMM_GROUP, side = id % GEMM_TILE / GEMM_GROUP;
    if (id < 0) return;
    const Place tile = place_of_tile<F>(w, id / GEMM_TILE);
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
                const int k = slab * GEMM_SLAB + column_of<F>(step, t, 4 * half);
                if (k < w.K) put(row + k, v.x, scale, add);
                if (k + 1 < w.K) put(row + k + 1, v.y, scale, add);
            }
        }
    }
}

/* Rows of the activations' type. */
template <class T>
__global__ void __launch_bounds__(EMBED_THREADS)
    embed_rows_kernel(T *__restrict__ y, const T *__restrict__ matrix, int K,
                      const int32_t *__restrict__ rows, const int32_t *__restrict__ sampled,
                      float scale, bool add) {
    grid_begin();
    const int id = row_of(rows, sampled);
    if (id < 0) return;
    const T *from = matrix + (size_t)id * K;
    T *to = y + (size_t)blockIdx.x * K;
    for (int k = threadIdx.x; k < K; k += EMBED_THREADS) put(to + k, to_float(from[k]), scale, add);
}

template <class T>
static void embed(T *y, const struct gemm_weights *w, const int32_t *rows, const int32_t *sampled,
                  float scale, bool add, int M, cudaStream_t stream) {
    const dim3 grid((unsigned)M), block(EMBED_THREADS);
    if (w->format == GEMM_FLOAT || w->format == GEMM_ROWS) {
        launch(embed_rows_kernel<T>, grid, block, 0, stream, y,
               reinterpret_cast<const T *>(w->codes), w->K, rows, sampled, scale, add);
        return;
    }
    if constexpr (sizeof(T) == 2)
        for_format(w->format, [&](auto format) {
            launch(embed_kernel<decltype(format), T>, grid, block, 0, stream, y, *w, rows, sampled,
                   scale, add);
        });
}

void embed_rows(void *y, const struct gemm_weights *w, const int32_t *rows, const int32_t *sampled,
                float scale, bool add, int M, cudaStream_t stream) {
    for_activation(w->act, [&](auto zero) {
        embed(static_cast<decltype(zero) *>(y), w, rows, sampled, scale, add, M, stream);
    });
}
