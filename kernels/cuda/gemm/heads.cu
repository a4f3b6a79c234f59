/* Products per head (struct head_linear), by the kernel for rows grouped by expert: a head is an
 * expert whose rows are all rows of the step.
 *
 *     x [M][H][x_stride] - split -> [H][M][K] - product -> [H][M][N] - join -> y [M][H][y_stride]
 *
 * So weights of all types serve, and a row's bits do not depend on the number of rows. One product
 * takes as many heads as the workspace holds. */
#include "kernels/cuda/gemm/grouped.cuh"
#include "kernels/cuda/gemm/ops.cuh"
#include "kernels/cuda/runtime/ptx.cuh"

enum { HEAD_THREADS = 128 };

/* The numbers of some heads in rows of all H heads: n of `stride` each, from head `first` on. */
struct head_part {
    int H, first, n, stride;
};

__device__ __forceinline__ size_t number_at(const head_part &p, int m, int h) {
    return ((size_t)m * p.H + p.first + h) * p.stride;
}

/* Copies a row's numbers of a head to [heads][M][n], and lists the rows of each block of the
 * product. */
template <class T>
__global__ void __launch_bounds__(HEAD_THREADS)
    split_kernel(T *to, const T *from, const head_part part, struct expert_rows *list) {
    grid_begin();
    const int m = blockIdx.x, h = blockIdx.y, M = gridDim.x;
    const size_t row = (size_t)h * M + m, at = number_at(part, m, h);
    for (int i = threadIdx.x; i < part.n; i += HEAD_THREADS) to[row * part.n + i] = from[at + i];
    if (threadIdx.x > 0 || m % GROUPED_ROWS > 0) return;
    const int blocks = (M + GROUPED_ROWS - 1) / GROUPED_ROWS;
    list[h * blocks + m / GROUPED_ROWS] = {part.first + h, (int)row, min((int)GROUPED_ROWS, M - m)};
}

/* Copies [heads][M][n] to the rows' numbers of each head. */
template <class T>
__global__ void __launch_bounds__(HEAD_THREADS)
    join_kernel(T *to, const T *from, const head_part part) {
    grid_begin();
    const int m = blockIdx.x, h = blockIdx.y, M = gridDim.x;
    const size_t row = (size_t)h * M + m, at = number_at(part, m, h);
    for (int i = threadIdx.x; i < part.n; i += HEAD_THREADS) to[at + i] = from[row * part.n + i];
}

/* ---- launching ------------------------------------------------------------------------------ */

/* The products of n heads from `first` on. The list takes the place of normalised rows: it has 12
 * bytes for up to 16 rows of a head, which have at least 16 numbers each. */
static void multiply_heads(struct gemm_workspace *work, void *y, const void *x,
                           const struct head_linear *linear, int M, int first, int n) {
    const struct gemm_weights *w = &linear->w->packed;
    const int H = linear->H, N = linear->N, blocks = (M + GROUPED_ROWS - 1) / GROUPED_ROWS;
    const dim3 grid((unsigned)M, (unsigned)n), block(HEAD_THREADS);
    struct expert_rows *list = (struct expert_rows *)work->normed;
    static_assert(sizeof *list <= GEMM_TILE, "a row's list entry fits its outputs");
    for_activation(work->act, [&](auto zero) {
        using T = decltype(zero);
        launch(split_kernel<T>, grid, block, 0, work->stream, (T *)work->gate, (const T *)x,
               head_part{H, first, w->K, linear->x_stride}, list);
        const struct grouping g = {list, n * blocks, N};
        const struct gemm_job job = {w, work->up};
        grouped_product(&job, work->gate, &g, work->stream);
        launch(join_kernel<T>, grid, block, 0, work->stream, (T *)y, (const T *)work->up,
               head_part{H, first, N, linear->y_stride});
    });
}

void gemm_heads(struct gemm_workspace *work, void *y, const void *x,
                const struct head_linear *linear, int M) {
    const struct gemm_weights *w = &linear->w->packed;
    const int H = linear->H, N = linear->N, most = w->K > N ? w->K : N;
    assert(w->N == H * N && N % GEMM_TILE == 0 && w->act == work->act);
    assert(w->K <= linear->x_stride && N <= linear->y_stride);
    if (M == 0) return;
    const size_t fitting = work->numbers / ((size_t)M * (size_t)most);
    const int at_once = fitting < (size_t)H ? (int)fitting : H;
    assert(at_once > 0);
    for (int first = 0; first < H; first += at_once)
        multiply_heads(work, y, x, linear, M, first, min_int(at_once, H - first));
}
