/* Ops on rows. All of them are limited by memory: a row is read once, in 16-byte pieces if its
 * length allows, and written once. */
#include "kernels/cuda/rows/rows.cuh"

#include <type_traits>

#include "kernels/cuda/rows/math.cuh"
#include "kernels/cuda/runtime/orders.cuh"
#include "kernels/cuda/runtime/ptx.cuh"

/* ---- norms ---------------------------------------------------------------------------------- */

/* A row of this many floats fits into the shared memory of a block on every device: sm_86 and
 * sm_120 allow 99 KiB. */
enum { NORM_KEPT_K = 24576 };
constexpr size_t NORM_SMEM = NORM_KEPT_K * sizeof(float);

/* Adjacent elements of a row, from the copy in shared memory, or read again if there is not one. */
template <class T, int N>
__device__ __forceinline__ Vec<float, N> norm_inputs(const float *kept, const T *x, int k) {
    Vec<float, N> out = {};
    Vec<T, N> in = {};
    if (!kept) in = load_vec<N>(x + k);
#pragma unroll
    for (int i = 0; i < N; i++) out.v[i] = kept ? kept[k + i] : to_float(in.v[i]);
    return out;
}

/* The sums of two vectors. */
template <class T, int N>
__device__ __forceinline__ Vec<T, N> add_vec(Vec<T, N> a, const Vec<T, N> &b) {
#pragma unroll
    for (int i = 0; i < N; i++) a.v[i] = from_float<T>(to_float(b.v[i]) + to_float(a.v[i]));
    return a;
}

/* The rows of a norm that are not in their usual places. */
struct norm_rows {
    const int32_t *from; /* [M] the row of x for each row of y; NULL: the same row */
    int stride;          /* numbers from a row of y to the next; 0: K */
};

/* Of rows: y = norm(x); y = (y + norm(x)) * sum_scale and x = 0; the same with norm(y + x). */
enum norm_mode { NORM_WRITES, NORM_ADDS, NORM_ADDS_OF_SUM };

/* One block per row. The sums need the whole row before the first output, so it is kept in shared
 * memory as floats; a longer row is read again from the L2 cache. A thread reads and writes the
 * same elements of a row. Only NORM_WRITES has other rows. */
template <class T, int N, bool LAYER, norm_mode MODE>
__global__ void __launch_bounds__(NORM_THREADS)
    norm_kernel(T *y, T *x, const float *__restrict__ gain, const float *__restrict__ bias, int K,
                float epsilon, float sum_scale, norm_rows rows) {
    grid_begin();
    float *kept = K <= NORM_KEPT_K ? dyn_smem<float>() : nullptr;
    constexpr bool ADD = MODE != NORM_WRITES;
    const size_t at = (size_t)blockIdx.x * (ADD || !rows.stride ? K : rows.stride);
    const size_t from = (size_t)(ADD || !rows.from ? (int)blockIdx.x : rows.from[blockIdx.x]) * K;
    float sum = 0.0f, squares = 0.0f;
    for (int k = threadIdx.x * N; k < K; k += NORM_THREADS * N) {
        Vec<T, N> in = load_vec<N>(x + from + k);
        if (MODE == NORM_ADDS_OF_SUM) {
            in = add_vec<T, N>(in, load_vec<N>(y + at + k));
            store_vec<N>(x + from + k, in);
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float value = to_float(in.v[i]);
            if (kept) kept[k + i] = value;
            sum = sum + value;
            squares = norm_add_square(squares, value);
        }
    }
    float mean = 0.0f;
    if (LAYER) { /* the variance is computed around the mean to avoid cancellation */
        mean = block_sum<NORM_THREADS>(sum) / (float)K;
        squares = 0.0f;
        for (int k = threadIdx.x * N; k < K; k += NORM_THREADS * N) {
            const Vec<float, N> in = norm_inputs<T, N>(kept, x + from, k);
#pragma unroll
            for (int i = 0; i < N; i++) squares = norm_add_square(squares, in.v[i] - mean);
        }
    }
    const float r = norm_factor(block_sum<NORM_THREADS>(squares), K, epsilon);
    for (int k = threadIdx.x * N; k < K; k += NORM_THREADS * N) {
        const Vec<float, N> in = norm_inputs<T, N>(kept, x + from, k);
        Vec<T, N> out = {};
        if (ADD) out = load_vec<N>(y + at + k);
        if (ADD) store_vec<N>(x + from + k, Vec<T, N>{});
#pragma unroll
        for (int i = 0; i < N; i++) {
            float value = norm_value(in.v[i] - mean, r, gain[k + i]);
            if (LAYER && bias) value = value + bias[k + i];
            if (ADD) value = (to_float(out.v[i]) + value) * sum_scale;
            out.v[i] = from_float<T>(value);
        }
        store_vec<N>(y + at + k, out);
    }
}

/* ---- elements ------------------------------------------------------------------------------- */

enum { ELEMENT_THREADS = 256 };

template <class T, int N>
__global__ void __launch_bounds__(ELEMENT_THREADS)
    gate_kernel(T *y, const T *gate, const T *up, enum activation kind, size_t columns,
                size_t stride, size_t n) {
    grid_begin();
    const size_t at = ((size_t)blockIdx.x * ELEMENT_THREADS + threadIdx.x) * N;
    if (at >= n) return;
    const Vec<T, N> in = load_vec<N>(gate + at);
    Vec<T, N> out = in;
    if (up) out = load_vec<N>(up + at / columns * stride + at % columns);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float x = to_float(in.v[i]);
        out.v[i] = from_float<T>(up ? gated(kind, x, to_float(out.v[i])) : activated(kind, x));
    }
    store_vec<N>(y + at, out);
}

template <class T>
__global__ void __launch_bounds__(ELEMENT_THREADS) widen_kernel(float *y, const T *x, size_t n) {
    grid_begin();
    const size_t at = (size_t)blockIdx.x * ELEMENT_THREADS + threadIdx.x;
    if (at < n) y[at] = to_float(x[at]);
}

template <class T, int N>
__global__ void __launch_bounds__(ELEMENT_THREADS)
    bias_kernel(T *x, const float *__restrict__ bias, float scale, int columns, size_t n) {
    grid_begin();
    const size_t at = ((size_t)blockIdx.x * ELEMENT_THREADS + threadIdx.x) * N;
    if (at >= n) return;
    const int column = (int)(at % (size_t)columns);
    Vec<T, N> sum = load_vec<N>(x + at);
#pragma unroll
    for (int i = 0; i < N; i++)
        sum.v[i] = from_float<T>(to_float(sum.v[i]) + scale * bias[column + i]);
    store_vec<N>(x + at, sum);
}

template <class T, int N>
__global__ void __launch_bounds__(ELEMENT_THREADS)
    cap_kernel(T *x, float scale, float cap, size_t n) {
    grid_begin();
    const size_t at = ((size_t)blockIdx.x * ELEMENT_THREADS + threadIdx.x) * N;
    if (at >= n) return;
    Vec<T, N> in = load_vec<N>(x + at);
#pragma unroll
    for (int i = 0; i < N; i++) in.v[i] = from_float<T>(capped(to_float(in.v[i]) * scale, cap));
    store_vec<N>(x + at, in);
}

/* One block per row. */
template <class T, int N>
__global__ void __launch_bounds__(ELEMENT_THREADS) gather_kernel(const gather_args<T> a) {
    grid_begin();
    gather_row<T, N>(a, (int)blockIdx.x);
}

template <int N>
__global__ void __launch_bounds__(ELEMENT_THREADS) exclude_kernel(float *y, size_t n) {
    grid_begin();
    const size_t at = ((size_t)blockIdx.x * ELEMENT_THREADS + threadIdx.x) * N;
    Vec<float, N> none = {};
    if (at >= n) return;
#pragma unroll
    for (int i = 0; i < N; i++) none.v[i] = -INFINITY;
    store_vec<N>(y + at, none);
}

/* A thread moves one logit, to its id's place. */
__global__ void __launch_bounds__(ELEMENT_THREADS)
    spread_kernel(float *y, const float *x, const int32_t *to, size_t K, size_t V, size_t n) {
    grid_begin();
    const size_t at = (size_t)blockIdx.x * ELEMENT_THREADS + threadIdx.x;
    if (at < n) y[at / K * V + (size_t)to[at % K]] = x[at];
}

/* ---- launching ------------------------------------------------------------------------------ */

/* Calls fn with the number of elements per thread: a 16-byte vector if it divides `length`, else
 * one. */
template <class T, class F> static void for_width(size_t length, F fn) {
    if (length % Vec16<T>::N == 0)
        fn(std::integral_constant<int, Vec16<T>::N>());
    else
        fn(std::integral_constant<int, 1>());
}

template <class T, int N, norm_mode MODE>
static void norm_of(void *y, void *x, const struct norm *norm, const norm_rows &rows, int M, int K,
                    cudaStream_t stream) {
    auto kernel =
        norm->kind == NORM_LAYER ? norm_kernel<T, N, true, MODE> : norm_kernel<T, N, false, MODE>;
    const size_t smem = K <= NORM_KEPT_K ? (size_t)K * sizeof(float) : 0;
    assert(K > 0 && K <= NORM_MAX_K && norm->gain);
    /* always the same size: see allow_smem */
    if (smem > DEFAULT_SMEM) allow_smem(kernel, NORM_SMEM);
    launch(kernel, dim3(M), dim3(NORM_THREADS), smem, stream, (T *)y, (T *)x, norm->gain,
           norm->bias, K, norm->epsilon, norm_sum_scale(norm), rows);
}

void rows_norm(enum dtype act, void *y, const void *x, const struct norm *norm, int M, int K,
               cudaStream_t stream) {
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        for_width<T>(K, [&](auto width) {
            norm_of<T, decltype(width)::value, NORM_WRITES>(y, const_cast<void *>(x), norm,
                                                            norm_rows{}, M, K, stream);
        });
    });
}

void rows_join(enum dtype act, void *y, const void *a, const void *other, const struct join *join,
               const int32_t *row, int M, int K, cudaStream_t stream) {
    assert(y != a && y != other && (!join->recalls || row));
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        for_width<T>(K, [&](auto width) {
            constexpr int N = decltype(width)::value;
            const norm_rows own = {nullptr, 2 * K}, named = {join->recalls ? row : nullptr, 2 * K};
            norm_of<T, N, NORM_WRITES>(y, const_cast<void *>(a), &join->norms[0], own, M, K,
                                       stream);
            norm_of<T, N, NORM_WRITES>((T *)y + K, const_cast<void *>(other), &join->norms[1],
                                       named, M, K, stream);
        });
    });
}

void rows_norm_add(enum dtype act, void *x, void *y, const struct norm *norm, int M, int K,
                   cudaStream_t stream) {
    assert(x != y);
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        for_width<T>(K, [&](auto width) {
            constexpr int N = decltype(width)::value;
            if (norm->of_sum)
                norm_of<T, N, NORM_ADDS_OF_SUM>(x, y, norm, norm_rows{}, M, K, stream);
            else
                norm_of<T, N, NORM_ADDS>(x, y, norm, norm_rows{}, M, K, stream);
        });
    });
}

static dim3 element_grid(size_t n, int per_thread) {
    const size_t per_block = (size_t)ELEMENT_THREADS * per_thread;
    return dim3((unsigned)((n + per_block - 1) / per_block));
}

void rows_hidden(enum dtype act, float *y, const void *x, const struct norm *norm, int from, int R,
                 int K, cudaStream_t stream) {
    const size_t n = (size_t)R * K, skipped = (size_t)from * K;
    assert(from >= 0 && R > 0 && K > 0);
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        launch(widen_kernel<T>, element_grid(n, 1), dim3(ELEMENT_THREADS), 0, stream, y,
               (const T *)x + skipped, n);
    });
    if (norm) rows_norm(DTYPE_F32, y, y, norm, R, K, stream);
}

template <class T, int N>
__global__ void __launch_bounds__(ELEMENT_THREADS)
    xielu_kernel(T *x, const struct xielu c, size_t n) {
    grid_begin();
    const size_t at = ((size_t)blockIdx.x * ELEMENT_THREADS + threadIdx.x) * N;
    if (at >= n) return;
    Vec<T, N> out = load_vec<N>(x + at);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float v = to_float(out.v[i]);
        const float bent = (expm1f(c.limit < v ? c.limit : v) - v) * c.negative;
        out.v[i] = from_float<T>((v > 0.0f ? v * v * c.positive : bent) + v * c.linear);
    }
    store_vec<N>(x + at, out);
}

template <class T, int N>
static void gate_of(enum activation kind, void *y, const void *x, const void *up, size_t columns,
                    size_t stride, size_t n, cudaStream_t stream) {
    launch(gate_kernel<T, N>, element_grid(n, N), dim3(ELEMENT_THREADS), 0, stream, (T *)y,
           (const T *)x, (const T *)up, kind, columns, stride, n);
}

void rows_gate(enum dtype act, enum activation kind, void *y, const void *x, const void *up,
               size_t n, cudaStream_t stream) {
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        for_width<T>(n, [&](auto width) {
            gate_of<T, decltype(width)::value>(kind, y, x, up, n, n, n, stream);
        });
    });
}

void rows_gate_apart(enum dtype act, enum activation kind, void *y, const void *x,
                     const void *times, int M, int N, int stride, cudaStream_t stream) {
    assert(N > 0 && stride >= N);
    const int both = N % 8 == 0 && stride % 8 == 0 ? N : 1;
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        for_width<T>(both, [&](auto width) {
            gate_of<T, decltype(width)::value>(kind, y, x, times, N, stride, (size_t)M * N, stream);
        });
    });
}

void rows_xielu(enum dtype act, void *x, const struct xielu *numbers, size_t n,
                cudaStream_t stream) {
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        for_width<T>(n, [&](auto width) {
            constexpr int N = decltype(width)::value;
            launch(xielu_kernel<T, N>, element_grid(n, N), dim3(ELEMENT_THREADS), 0, stream, (T *)x,
                   *numbers, n);
        });
    });
}

void rows_cap(enum dtype act, void *x, float scale, float cap, size_t n, cudaStream_t stream) {
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        for_width<T>(n, [&](auto width) {
            constexpr int N = decltype(width)::value;
            launch(cap_kernel<T, N>, element_grid(n, N), dim3(ELEMENT_THREADS), 0, stream, (T *)x,
                   scale, cap, n);
        });
    });
}

void rows_bias(enum dtype act, void *x, const float *bias, float scale, int M, int columns,
               cudaStream_t stream) {
    const size_t n = (size_t)M * columns;
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        for_width<T>(columns, [&](auto width) {
            constexpr int N = decltype(width)::value;
            launch(bias_kernel<T, N>, element_grid(n, N), dim3(ELEMENT_THREADS), 0, stream, (T *)x,
                   bias, scale, columns, n);
        });
    });
}

void rows_gather(enum dtype act, void *y, const void *x, const int32_t *row, int R, int K,
                 cudaStream_t stream) {
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        for_width<T>(K, [&](auto width) {
            constexpr int N = decltype(width)::value;
            const gather_args<T> args = {(T *)y, (const T *)x, row, K};
            const dim3 grid(R), block(ELEMENT_THREADS);
            if constexpr (sizeof(T) == 2 && N > 1)
                launch_or_order({ORDER_GATHER, R, 1, DTYPE_F32, act, 0, 0}, gather_kernel<T, N>,
                                grid, block, stream, args);
            else
                launch(gather_kernel<T, N>, grid, block, 0, stream, args);
        });
    });
}

void rows_spread(float *y, const float *x, const struct spread *spread, int R, int K,
                 cudaStream_t stream) {
    const size_t V = (size_t)spread->V, all = (size_t)R * V, n = (size_t)R * K;
    assert(R > 0 && K > 0 && spread->V >= K && spread->to);
    for_width<float>(all, [&](auto width) {
        constexpr int N = decltype(width)::value;
        launch(exclude_kernel<N>, element_grid(all, N), dim3(ELEMENT_THREADS), 0, stream, y, all);
    });
    launch(spread_kernel, element_grid(n, 1), dim3(ELEMENT_THREADS), 0, stream, y, x, spread->to,
           (size_t)K, V, n);
}
