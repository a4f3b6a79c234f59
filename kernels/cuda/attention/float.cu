/* Attention in float32, the oracle mode. The order of operations and the bits are those of
 * kernels/cpu/order.md. A block takes one query vector through the chunks of its context. It serves
 * checking, heads that are too wide for the other kernel, and latent attention. It is slow, because
 * every query vector reads all keys and values itself. */
#include <math.h>

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/runtime/ordered.cuh"
#include "kernels/cuda/runtime/ptx.cuh"

constexpr int CHUNK = 256;                          /* one thread per position of a chunk */
constexpr int OWN = ATTENTION_WIDEST_VALUE / CHUNK; /* numbers of a value per thread */

/* The maximum over the block, in every thread. */
__device__ __forceinline__ float block_max(float x) {
    __shared__ float part[CHUNK / WARP];
    x = warp_max(x);
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = x;
    __syncthreads();
    float most = part[0];
#pragma unroll
    for (int i = 1; i < CHUNK / WARP; i++) most = fmaxf(most, part[i]);
    return most;
}

/* The sum of e[begin..end) with number j in partial sum j % 16, and a tree over these; in lane 0 of
 * warp 0. */
__device__ __forceinline__ float ordered_sum(const float *e, int begin, int end) {
    const int lane = threadIdx.x % PARTIAL_SUMS;
    float sum = 0.0f;
    for (int j = lane; j < end; j += PARTIAL_SUMS)
        if (j >= begin) sum = sum + e[j];
    return ordered_tree(sum);
}

template <class R> struct float_head {
    const kv_view &kv;
    const int32_t *table;
    int head;

    __device__ __forceinline__ size_t vector(int position) const {
        return kv_vector(kv, table[position / kv.B], head, position % kv.B);
    }
    __device__ __forceinline__ float scale(const float *scales, int position) const {
        if (sizeof(R) > 1) return 1.0f;
        return scales[kv_scale_index(kv, table[position / kv.B], head)];
    }
    __device__ __forceinline__ float score(const float *q, int position) const {
        const R *keys = static_cast<const R *>(kv.keys);
        const bool tiles = kv_has_tiles(sizeof(R), kv.D, kv.B);
        const size_t key = vector(position);
        const float by = scale(kv.key_scale, position);
        float dot = 0.0f;
        for (int d = 0; d < kv.D; d++)
            dot = fmaf(q[d], kv_float(keys[kv_element(tiles, key, d, kv.D)]) * by, dot);
        return dot;
    }
    __device__ __forceinline__ float value(int position, int d) const {
        const bool tiles = kv_has_tiles(sizeof(R), kv.D, kv.B);
        const size_t at = kv_element(tiles, vector(position), d, kv.D);
        return kv_float(static_cast<const R *>(kv.values)[at]) * scale(kv.value_scale, position);
    }
};

template <class T, class R>
__global__ void __launch_bounds__(CHUNK)
    attention_float_kernel(const __grid_constant__ attention_args args, int D_value,
                           const int32_t *__restrict__ sequence) {
    __shared__ float e[CHUNK], chunk_sum;
    grid_begin();
    float *q = dyn_smem<float>();
    const int row = blockIdx.x, h = blockIdx.y, j = threadIdx.x, D = args.kv.D;
    if (args.position[row] < 0) return; /* padding */
    const size_t vector = (size_t)row * args.H + h, at = vector * D, to = vector * D_value;
    const int first = args.seen[row].first, last = args.seen[row].last;
    const float_head<R> head = {args.kv, args.table + (size_t)sequence[row] * args.table_stride,
                                (int)((size_t)h * args.kv.G / args.H)};
    for (int d = j; d < D; d += CHUNK) q[d] = to_float(static_cast<const T *>(args.q)[at + d]);
    float most = 0.0f, sum = 0.0f, o[OWN] = {}; /* o: numbers j, j + CHUNK of the value */
    for (int start = first / CHUNK * CHUNK; start <= last; start += CHUNK) {
        const int begin = max(first - start, 0), end = min(last + 1 - start, CHUNK);
        const bool seen = j >= begin && j < end;
        __syncthreads(); /* q is written; e and the sum were read */
        float s = -INFINITY;
        if (seen) {
            s = head.score(q, start + j) * args.scale;
            if (args.slopes)
                s = s - args.slopes[h] * fabsf((float)(start + j - args.position[row]));
            if (args.cap != 0.0f) s = args.cap * ordered_tanh(s / args.cap);
        }
        const float chunk_most = block_max(s);
        if (seen) e[j] = ordered_exp(s - chunk_most);
        __syncthreads();
        if (j < WARP) {
            const float total = ordered_sum(e, begin, end);
            if (j == 0) chunk_sum = total;
        }
        float part[OWN] = {};
#pragma unroll
        for (int n = 0; n < OWN; n++)
            for (int i = begin; i < end && j + n * CHUNK < D_value; i++)
                part[n] = fmaf(e[i], head.value(start + i, j + n * CHUNK), part[n]);
        __syncthreads();
        if (start <= first) {
            most = chunk_most, sum = chunk_sum;
#pragma unroll
            for (int n = 0; n < OWN; n++) o[n] = part[n];
            continue;
        }
        const float larger = chunk_most > most ? chunk_most : most;
        const float old = ordered_exp(most - larger), now = ordered_exp(chunk_most - larger);
        most = larger;
        sum = fmaf(chunk_sum, now, sum * old);
#pragma unroll
        for (int n = 0; n < OWN; n++) o[n] = fmaf(part[n], now, o[n] * old);
    }
    if (args.sinks) {
        const float sink = args.sinks[h], larger = sink > most ? sink : most;
        const float old = ordered_exp(most - larger);
        sum = fmaf(sum, old, ordered_exp(sink - larger));
#pragma unroll
        for (int n = 0; n < OWN; n++) o[n] = o[n] * old;
    }
#pragma unroll
    for (int n = 0; n < OWN; n++)
        if (j + n * CHUNK < D_value)
            static_cast<T *>(args.y)[to + j + n * CHUNK] = from_float<T>(o[n] / sum);
}

/* ---- launching ------------------------------------------------------------------------------ */

void attention_float(enum dtype act, const struct attention_args *args, int D_value,
                     const int32_t *sequence, int M, cudaStream_t stream) {
    const struct kv_view *kv = &args->kv;
    assert(kv->D <= ATTENTION_WIDEST && args->H % kv->G == 0);
    assert(D_value > 0 && D_value <= kv->D && D_value <= ATTENTION_WIDEST_VALUE);
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        auto *kernel = kv->type == KV_F32    ? attention_float_kernel<T, float>
                       : kv->type == KV_F16  ? attention_float_kernel<T, __half>
                       : kv->type == KV_BF16 ? attention_float_kernel<T, __nv_bfloat16>
                                             : attention_float_kernel<T, __nv_fp8_e4m3>;
        launch(kernel, dim3(M, args->H), dim3(CHUNK), kv->D * sizeof(float), stream, *args, D_value,
               sequence);
    });
}
