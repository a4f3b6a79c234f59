#include "kernels/cuda/runtime/nccl.cuh"

#include "kernels/cuda/runtime/ptx.cuh"
#include "kernels/cuda/runtime/runtime.cuh"

constexpr int SUM_THREADS = 256;

/* ---- kernels -------------------------------------------------------------------------------- */

/* Each thread processes N adjacent elements. */
template <class T, int N>
__global__ void __launch_bounds__(SUM_THREADS)
    sum_kernel(T *x, T *part, const T *gathered, int ranks, size_t n) {
    grid_begin();
    const size_t at = ((size_t)blockIdx.x * SUM_THREADS + threadIdx.x) * N;
    if (at >= n) return;
    float sum[N];
    Vec<T, N> row = load_vec<N>(gathered + at);
    for (int i = 0; i < N; i++) sum[i] = to_float(row.v[i]);
    for (int r = 1; r < ranks; r++) {
        row = load_vec<N>(gathered + (size_t)r * n + at);
        for (int i = 0; i < N; i++) sum[i] = sum[i] + to_float(row.v[i]);
    }
    for (int i = 0; i < N; i++) row.v[i] = from_float<T>(sum[i]);
    store_vec<N>(x + at, row);
    if (!part) return;
    for (int i = 0; i < N; i++) row.v[i] = from_float<T>(0.0f);
    store_vec<N>(part + at, row);
}

/* ---- launching ------------------------------------------------------------------------------ */

template <class T, int N>
static void sum(void *x, void *part, const void *gathered, int ranks, size_t n,
                cudaStream_t stream) {
    const size_t per_block = (size_t)SUM_THREADS * N;
    launch(sum_kernel<T, N>, dim3((unsigned)((n + per_block - 1) / per_block)), dim3(SUM_THREADS),
           0, stream, (T *)x, (T *)part, (const T *)gathered, ranks, n);
}

void all_reduce_sum(enum dtype act, void *x, void *part, const void *gathered, int ranks, int M,
                    int K, cudaStream_t stream) {
    const size_t n = (size_t)M * (size_t)K;
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        if (K % Vec16<T>::N == 0) /* rows are aligned wherever they begin */
            sum<T, Vec16<T>::N>(x, part, gathered, ranks, n, stream);
        else
            sum<T, 1>(x, part, gathered, ranks, n, stream);
    });
}

/* ---- the op --------------------------------------------------------------------------------- */

static size_t element_bytes(enum dtype act) {
    return act == DTYPE_F32 ? 4 : 2;
}

enum status all_reduce_open(struct all_reduce *all, enum dtype act,
                            const struct backend_config *config, struct err *err) {
    static const struct alloc_hint sums = {"the buffer of sums over ranks", NULL,
                                           "give a smaller model"};
    if (!config->group) return STATUS_OK;
    all->group = (struct cuda_group *)config->group;
    all->rank = config->rank;
    const size_t row = (size_t)config->group->ranks * (size_t)config->max_k * element_bytes(act);
    const size_t rows = MAX_GATHERED / row, most = (size_t)config->max_rows;
    all->bytes = row * (rows < 1 ? 1 : rows < most ? rows : most);
    return device_alloc(&all->gathered, all->bytes, &sums, err);
}

void all_reduce_close(struct all_reduce *all) {
    cuda_check(cudaFree(all->gathered), "freeing memory for sums over ranks");
}

/* Processes the rows in parts that fit the gather buffer. The split depends only on M and K, so all
 * ranks split alike. */
void all_reduce_run(const struct all_reduce *all, enum dtype act, void *x, void *part, int M, int K,
                    cudaStream_t stream) {
    assert(all->group);
    const int ranks = cuda_group_ranks(all->group);
    const size_t row = (size_t)K * element_bytes(act);
    const size_t at_once = all->bytes / ((size_t)ranks * row);
    assert(at_once > 0);
    for (size_t m = 0; m < (size_t)M; m += at_once) {
        const size_t left = (size_t)M - m, count = left < at_once ? left : at_once;
        char *rows = (char *)x + m * row, *mine = all->rank ? (char *)part + m * row : NULL;
        nccl_gather(all->group, all->rank, mine ? mine : rows, all->gathered, count * row, stream);
        all_reduce_sum(act, rows, mine, all->gathered, ranks, (int)count, K, stream);
    }
}
