/* Products for up to 16 rows, bound by reading the weights.
 *
 * A block is one tile of 16 outputs, or that tile of both matrices of a pair; a warp is one range
 * of a tile's slabs. Each warp reads its weights once, in pieces of 512 bytes, with several slabs
 * in flight, and the rows of x, which all blocks share and the caches hold. At the end the ranges'
 * sums meet in shared memory and are added in the order of the ranges.
 *
 * If x is to be normed first, each block does that into its shared memory while its first weights
 * arrive, with the sums of norm_kernel, so that the bits are the same. */
#include "kernels/cuda/gemm/range.cuh"

/* ---- the norm ------------------------------------------------------------------------------- */

/* The distance of normed rows: whole slabs, and half a slab against bank conflicts. */
__host__ __device__ __forceinline__ int normed_wide(int slabs) {
    return slabs * GEMM_SLAB + GEMM_SLAB / 2;
}

/* Writes the normed rows of x to the block's shared memory. A warp does the work of one warp of
 * norm_kernel for one row, then of another. `parts` is [M][NORM_WARPS]. */
template <class T>
__device__ __forceinline__ void norm_rows(T *to, float *parts, const Product<T> &p,
                                          const struct norm &norm) {
    constexpr int N = Vec16<T>::N;
    const int warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
    const int K = p.w.K, wide = normed_wide(p.w.slabs);
    for (int i = threadIdx.x / WARP; i < p.M * NORM_WARPS; i += warps) {
        const int m = i / NORM_WARPS, first = (i % NORM_WARPS * WARP + lane) * N;
        float squares = 0.0f;
        for (int k = first; k < K; k += NORM_THREADS * N) {
            const Vec16<T> in = load16(p.x + (size_t)m * K + k);
            store16(to + m * wide + k, in);
#pragma unroll
            for (int e = 0; e < N; e++) squares = norm_add_square(squares, to_float(in.v[e]));
        }
        squares = warp_sum(squares);
        if (lane == 0) parts[i] = squares;
    }
    __syncthreads();
    for (int i = threadIdx.x / WARP; i < p.M * NORM_WARPS; i += warps) {
        const int m = i / NORM_WARPS, first = (i % NORM_WARPS * WARP + lane) * N;
        const float part = lane < NORM_WARPS ? parts[m * NORM_WARPS + lane] : 0.0f;
        const float r = norm_factor(warp_sum(part), K, norm.epsilon);
        for (int k = first; k < K; k += NORM_THREADS * N) { /* what the lane has put there */
            Vec16<T> v = load16(to + m * wide + k);
#pragma unroll
            for (int e = 0; e < N; e += 4) {
                const Vec<float, 4> gain = load_vec<4>(norm.gain + k + e);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    v.v[e + j] = from_float<T>(norm_value(to_float(v.v[e + j]), r, gain.v[j]));
            }
            store16(to + m * wide + k, v);
        }
    }
    __syncthreads();
}

/* ---- the kernel ----------------------------------------------------------------------------- */

/* The warps that a block needs for a product. */
template <class T> __host__ __device__ __forceinline__ int warps_of(const Product<T> &p) {
    return p.w.ranges << p.pair;
}

template <class F, class T, int C, bool ALIGNED, bool NORMED>
__global__ void __launch_bounds__(MAX_WARPS *WARP)
    skinny_kernel(const __grid_constant__ Products<T> all) {
    constexpr int ROWS = C * GEMM_GROUP;
    grid_let_next();
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int number = number_of(all, (int)blockIdx.x), tile = (int)blockIdx.x - all.first[number];
    const Product<T> &p = all.of[number];
    const int ranges = p.w.ranges, slabs = p.w.slabs, up = warp >= ranges && p.pair;
    /* another product of the launch may have more ranges */
    const int mine = warp - (up ? ranges : 0);
    const struct gemm_weights &w = up ? p.up : p.w;
    Range<F> range = {w, place_of_tile<F>(w, tile), range_start(slabs, ranges, min(mine, ranges)),
                      range_start(slabs, ranges, min(mine + 1, ranges))};
    range.load_first(lane); /* before the previous grid, which writes x, has ended */
    grid_wait();
    const T *x = p.x;
    int apart = p.w.K;
    float *sums = dyn_smem<float>(); /* [warps][ROWS][SUMS_WIDE] */
    if constexpr (NORMED) {
        T *normed = dyn_smem<T>();
        apart = normed_wide(slabs);
        sums = reinterpret_cast<float *>(normed + p.M * apart);
        norm_rows(normed, sums, p, all.norm);
        x = normed;
    }
    if (mine < ranges) {
        float acc[C][4] = {};
        sum_range<F, T, C, ALIGNED>(acc, range, x, apart, p.M, lane);
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int m = c * GEMM_GROUP + lane % 4 * 2 + i % 2, n = lane / 4 + i / 2 * 8;
                sums[(warp * ROWS + m) * SUMS_WIDE + n] = acc[c][i];
            }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * GEMM_TILE; i += blockDim.x) {
        const int m = i / GEMM_TILE, n = i % GEMM_TILE;
        store_output(p, m, tile * GEMM_TILE + n, [&](int part) {
            float total = 0.0f;
            for (int r = part * ranges; r < (part + 1) * ranges; r++)
                total = total + sums[(r * ROWS + m) * SUMS_WIDE + n];
            return total;
        });
    }
}

/* ---- launching ------------------------------------------------------------------------------ */

/* The most shared memory of a launch; a row's padding fills its last slab, plus half a slab. */
constexpr size_t SKINNY_SMEM = MAX_WARPS * 2 * GEMM_GROUP * SUMS_WIDE * sizeof(float) +
                               GEMM_NORM_BYTES + GEMM_SKINNY_ROWS * (GEMM_SLAB + GEMM_SLAB / 2) * 2;
static_assert(SKINNY_SMEM <= 99 << 10, "what the smallest of the devices has");

template <class F, class T, int C> static void skinny(const Products<T> &all, cudaStream_t stream) {
    int warps = 0;
    for (const Product<T> &p : all.of) warps = warps_of(p) > warps ? warps_of(p) : warps;
    assert(warps <= MAX_WARPS);
    const Product<T> &p = *all.of;
    size_t smem = sizeof(float) * warps * C * GEMM_GROUP * SUMS_WIDE;
    auto kernel = skinny_kernel<F, T, C, true, false>;
    if constexpr (F::ANY_K)
        if (p.w.K % F::RUN != 0) kernel = skinny_kernel<F, T, C, false, false>;
    if (all.norm.gain) {
        kernel = skinny_kernel<F, T, C, true, true>;
        smem += sizeof(T) * p.M * normed_wide(p.w.slabs);
    }
    assert(smem <= SKINNY_SMEM);
    if (smem > DEFAULT_SMEM) allow_smem(kernel, SKINNY_SMEM); /* the same always: see allow_smem */
    launch(kernel, dim3(all.first[GEMM_MAX_JOBS]), dim3(warps * WARP), smem, stream, all);
}

template <class T>
static void skinny_of(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm,
                      int M, cudaStream_t stream) {
    Products<T> all = products_of<T>(jobs, n, x, M, 1);
    if (norm) all.norm = *norm;
    auto run = [&](auto format) {
        using F = decltype(format);
        if (M <= GEMM_GROUP)
            skinny<F, T, 1>(all, stream);
        else
            skinny<F, T, 2>(all, stream);
    };
    if (jobs->w->format == GEMM_ROWS)
        run(FormatRows());
    else
        for_format(jobs->w->format, run);
}

static_assert(NORM_WARPS <= SUMS_WIDE, "the parts of a row's squares have room among the sums");

void gemm_skinny(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm, int M,
                 cudaStream_t stream) {
    static_assert(MAX_WARPS * 2 * GEMM_GROUP * SUMS_WIDE * sizeof(float) <= DEFAULT_SMEM,
                  "sums fit");
    assert(M <= GEMM_SKINNY_ROWS);
    assert(!norm || (uintptr_t)norm->gain % 16 == 0);
    if (jobs->w->act == DTYPE_F16)
        skinny_of<__half>(jobs, n, x, norm, M, stream);
    else
        skinny_of<__nv_bfloat16>(jobs, n, x, norm, M, stream);
}
