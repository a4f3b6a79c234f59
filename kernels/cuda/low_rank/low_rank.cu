/* DESIGN: two kernels per op.
 *
 * Products with A. An inner product has 16 partial sums, each a chain over K, so K cannot be
 * divided. A warp takes some ranks of one tile, and the matrix streams through a ring in shared
 * memory, so that many loads are in flight although each chain is sequential:
 *
 *     stage    RANKS lines of A [256], in the adapter's type | up to 8 rows of x [256]
 *     lanes    WARP / RANKS per rank, each with 16 / lanes adjacent partial sums
 *
 * With few rows a warp takes 2 ranks, which spreads the matrices over as many multiprocessors as
 * possible; with many it takes 8, which share the loads of x. The order of sums is the same.
 *
 * Products with B. A thread takes one output of all rows of a tile: it reads each number of B once,
 * and the inner products from shared memory. The same kernel then adds or activates the outputs.
 *
 * No GPU has run these kernels. For 16 rows of 4 adapters of rank 16, K and N 4096, the kernel of A
 * waits for about three round trips to memory and that of B for two: 3 and 2 us (estimated). */
#include "kernels/cuda/low_rank/low_rank.cuh"

#include "kernels/cuda/rows/math.cuh"
#include "kernels/cuda/runtime/ordered.cuh"
#include "kernels/cuda/runtime/ptx.cuh"
#include "kernels/cuda/runtime/runtime.cuh"

constexpr int CHUNK = 256;   /* columns of a stage */
constexpr int FEW_ROWS = 64; /* up to here a warp takes FEW_RANKS ranks, else MANY_RANKS */
constexpr int FEW_RANKS = 2, MANY_RANKS = 8, CHANGE_THREADS = 128;

/* ---- products with A ------------------------------------------------------------------------ */

template <class T> struct inner_args {
    float *inner; /* [M][LOW_RANK_JOBS][max_rank] */
    const T *x;   /* [M][K] */
    const struct adapter_tile *tiles;
    const struct low_rank *of[LOW_RANK_JOBS];
    int K, max_rank;
};

/* The shared memory of a block, which is one warp. */
template <class T, int RANKS> struct inner_ring {
    static constexpr int LANES = WARP / RANKS;          /* of a rank */
    static constexpr int EACH = PARTIAL_SUMS / LANES;   /* partial sums of a lane */
    static constexpr int A_LINE = CHUNK + PARTIAL_SUMS; /* apart in banks */
    static constexpr int A_BYTES = RANKS * A_LINE * (int)sizeof(float);
    static constexpr int STAGE = A_BYTES + ADAPTER_TILE * CHUNK * (int)sizeof(T);
    static constexpr int STAGES = DEFAULT_SMEM / STAGE;
    static_assert(STAGES >= 2 && STAGE % 16 == 0 && A_BYTES % 16 == 0, "a ring of whole pieces");

    /* Lines of A_LINE numbers in the adapter's type. */
    template <class E> static __device__ __forceinline__ E *a(int stage) {
        return reinterpret_cast<E *>(dyn_smem<unsigned char>() + stage * STAGE);
    }
    static __device__ __forceinline__ T *x(int stage) {
        return reinterpret_cast<T *>(dyn_smem<unsigned char>() + stage * STAGE + A_BYTES);
    }
};

/* Copies a part of a line of which `left` elements are left; zeros follow the last one. A line
 * that is not aligned is copied at once. */
template <class E>
__device__ __forceinline__ void copy_line(E *to, const E *from, int left, int lane) {
    constexpr int N = 16 / (int)sizeof(E);
    const bool aligned = reinterpret_cast<uintptr_t>(from) % 16 == 0;
    for (int at = lane * N; at < CHUNK; at += WARP * N) {
        const int here = min(max(left - at, 0), N);
        if (aligned) {
            cp_async16(to + at, here > 0 ? from + at : from, here * (int)sizeof(E));
            continue;
        }
        for (int i = 0; i < N; i++) to[at + i] = i < here ? from[at + i] : from_float<E>(0.0f);
    }
}

/* The work of a block: ranks first .. first + RANKS - 1 of one adapter, for the rows of a tile. */
template <class T, int RANKS> struct inner_block {
    using ring = inner_ring<T, RANKS>;
    const inner_args<T> &args;
    const struct adapter_tile &tile;
    const struct low_rank own;
    int first, lane;

    template <class E> __device__ __forceinline__ void fill(int chunk) const {
        const int stage = chunk % ring::STAGES, k = chunk * CHUNK, left = args.K - k;
        for (int i = 0; i < RANKS; i++) {
            const int rank = min(first + i, own.rank - 1);
            const E *line = static_cast<const E *>(own.a) + (size_t)rank * args.K + k;
            copy_line(ring::template a<E>(stage) + i * ring::A_LINE, line, left, lane);
        }
        for (int m = 0; m < tile.n; m++)
            copy_line(ring::x(stage) + m * CHUNK, args.x + (size_t)tile.row[m] * args.K + k, left,
                      lane);
    }

    /* Adds a stage to the partial sums of the first ROWS rows; those after the last are copies. */
    template <int ROWS, class E>
    __device__ __forceinline__ void add(float (&sum)[ROWS][ring::EACH], int chunk) const {
        const int stage = chunk % ring::STAGES;
        const int part = lane % ring::LANES * ring::EACH;
        const int columns = min(CHUNK, args.K - chunk * CHUNK);
        const E *a = ring::template a<E>(stage) + lane / ring::LANES * ring::A_LINE + part;
        const T *x = ring::x(stage) + part;
#pragma unroll 4
        for (int k = 0; k < columns; k += PARTIAL_SUMS) {
            const Vec<E, ring::EACH> w = load_vec<ring::EACH>(a + k);
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
                const T *row = x + min(m, tile.n - 1) * CHUNK + k;
                const Vec<T, ring::EACH> v = load_vec<ring::EACH>(row);
#pragma unroll
                for (int i = 0; i < ring::EACH; i++)
                    sum[m][i] = fmaf(to_float(v.v[i]), to_float(w.v[i]), sum[m][i]);
            }
        }
    }

    /* The tree over the partial sums of a rank, in the first of its lanes. */
    static __device__ __forceinline__ float tree(const float (&sum)[ring::EACH]) {
        if constexpr (ring::EACH == 1) {
            return ordered_tree(sum[0]);
        } else {
            static_assert(ring::EACH == 4, "widths 8 and 4 are between lanes, 2 and 1 inside");
            float s[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[i] = sum[i] + __shfl_down_sync(FULL_MASK, sum[i], 2);
                s[i] = s[i] + __shfl_down_sync(FULL_MASK, s[i], 1);
            }
            return (s[0] + s[2]) + (s[1] + s[3]);
        }
    }

    template <int ROWS, class E> __device__ __forceinline__ void run() const {
        const int chunks = (args.K + CHUNK - 1) / CHUNK;
        const int rank = first + lane / ring::LANES;
        float sum[ROWS][ring::EACH] = {};
        for (int i = 0; i < ring::STAGES; i++) {
            if (i < chunks) fill<E>(i);
            cp_async_commit();
        }
        for (int i = 0; i < chunks; i++) {
            cp_async_wait<ring::STAGES - 1>();
            __syncwarp();
            add<ROWS, E>(sum, i);
            __syncwarp(); /* the stage may be filled again */
            if (i + ring::STAGES < chunks) fill<E>(i + ring::STAGES);
            cp_async_commit();
        }
        cp_async_wait<0>(); /* the last groups are empty */
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            const float total = tree(sum[m]);
            if (m >= tile.n || lane % ring::LANES > 0 || rank >= own.rank) continue;
            const size_t at = (size_t)tile.row[m] * LOW_RANK_JOBS + blockIdx.z;
            args.inner[at * args.max_rank + rank] = total;
        }
    }

    template <class E> __device__ __forceinline__ void run_rows() const {
        if (tile.n == 1)
            run<1, E>();
        else if (tile.n == 2)
            run<2, E>();
        else if (tile.n <= 4)
            run<4, E>();
        else
            run<ADAPTER_TILE, E>();
    }
};

/* Calls fn with a zero of a type of adapters' numbers. All threads of a block have the same. */
template <class F> __device__ __forceinline__ void for_type(enum dtype type, F fn) {
    if (type == DTYPE_F16)
        fn(__half());
    else if (type == DTYPE_BF16)
        fn(__nv_bfloat16());
    else
        fn(0.0f);
}

/* One warp per tile, RANKS ranks and projection. */
template <class T, int RANKS>
__global__ void __launch_bounds__(WARP) inner_kernel(const __grid_constant__ inner_args<T> args) {
    grid_begin();
    const struct adapter_tile &tile = args.tiles[blockIdx.x];
    const struct low_rank *of = args.of[blockIdx.z];
    if (tile.n == 0 || tile.adapter == 0 || !of) return;
    const struct low_rank own = of[tile.adapter];
    const int first = (int)blockIdx.y * RANKS;
    if (first >= own.rank) return;
    const inner_block<T, RANKS> block = {args, tile, own, first, (int)threadIdx.x};
    for_type(own.type, [&](auto zero) { block.template run_rows<decltype(zero)>(); });
}

/* ---- products with B ------------------------------------------------------------------------ */

struct change_args {
    const float *inner; /* [M][LOW_RANK_JOBS][max_rank] */
    const struct adapter_tile *tiles;
    struct low_rank_job job[LOW_RANK_JOBS];
    int max_rank;
};

/* A column in all rows of a tile. */
struct changed_column {
    float sum[ADAPTER_TILE];
    float scale;
    bool is_changed;

    /* The whole block calls it. `inner` is shared memory for the inner products of projection i. */
    __device__ __forceinline__ void load(const change_args &args, const struct adapter_tile &tile,
                                         int i, int column, float *inner) {
        const struct low_rank_job &job = args.job[i];
        struct low_rank own = {};
        if (job.of && tile.adapter > 0) own = job.of[tile.adapter];
#pragma unroll
        for (int m = 0; m < ADAPTER_TILE; m++) sum[m] = 0.0f;
        is_changed = own.rank > 0;
        scale = own.scale * job.scale;
        for (int at = threadIdx.x; at < own.rank * ADAPTER_TILE; at += CHANGE_THREADS) {
            const int m = at % ADAPTER_TILE, row = tile.row[min(m, tile.n - 1)];
            inner[at] =
                args.inner[((size_t)row * LOW_RANK_JOBS + i) * args.max_rank + at / ADAPTER_TILE];
        }
        __syncthreads();
        if (column >= job.N) return;
        for_type(own.type, [&](auto zero) { this->add<decltype(zero)>(own, column, inner); });
    }
    /* `inner` are the inner products, [rank][ADAPTER_TILE]. */
    template <class E>
    __device__ __forceinline__ void add(const struct low_rank &own, int column,
                                        const float *inner) {
        const E *b = static_cast<const E *>(own.b_panels) + column % LOW_RANK_PANEL +
                     (size_t)(column / LOW_RANK_PANEL) * own.rank * LOW_RANK_PANEL;
#pragma unroll 8
        for (int r = 0; r < own.rank; r++) {
            const float number = to_float(b[r * LOW_RANK_PANEL]);
#pragma unroll
            for (int m = 0; m < ADAPTER_TILE; m++)
                sum[m] = fmaf(inner[r * ADAPTER_TILE + m], number, sum[m]);
        }
    }
    __device__ __forceinline__ float apply(int m, float y) const {
        return is_changed ? fmaf(sum[m], scale, y) : y;
    }
};

/* The rows of a tile are known at run time, their sums are registers. */
template <class F>
__device__ __forceinline__ void for_rows(const struct adapter_tile &tile, int N, int column, F fn) {
#pragma unroll
    for (int m = 0; m < ADAPTER_TILE; m++)
        if (m < tile.n) fn(m, (size_t)tile.row[m] * N + column);
}

/* Rows without an adapter stay as they are. blockIdx.z is the projection. */
template <class T>
__global__ void __launch_bounds__(CHANGE_THREADS)
    change_kernel(const __grid_constant__ change_args args) {
    grid_begin();
    const struct adapter_tile &tile = args.tiles[blockIdx.y];
    const int column = (int)(blockIdx.x * CHANGE_THREADS + threadIdx.x), i = blockIdx.z;
    const struct low_rank_job &job = args.job[i];
    if (tile.n == 0 || tile.adapter == 0 || (int)blockIdx.x * CHANGE_THREADS >= job.N) return;
    struct changed_column changed;
    changed.load(args, tile, i, column, dyn_smem<float>());
    if (column >= job.N || !changed.is_changed) return;
    T *y = static_cast<T *>(job.y);
    for_rows(tile, job.N, column,
             [&](int m, size_t at) { y[at] = from_float<T>(changed.apply(m, to_float(y[at]))); });
}

template <class T>
__global__ void __launch_bounds__(CHANGE_THREADS)
    sum_kernel(const __grid_constant__ change_args args, T *sum) {
    grid_begin();
    const struct adapter_tile &tile = args.tiles[blockIdx.y];
    const int column = (int)(blockIdx.x * CHANGE_THREADS + threadIdx.x);
    const struct low_rank_job &job = args.job[0];
    if (tile.n == 0) return;
    struct changed_column changed;
    changed.load(args, tile, 0, column, dyn_smem<float>());
    if (column >= job.N) return;
    for_rows(tile, job.N, column, [&](int m, size_t at) {
        sum[at] = from_float<T>(changed.apply(m, job.from[at]) + to_float(sum[at]));
    });
}

template <class T, bool GATED>
__global__ void __launch_bounds__(CHANGE_THREADS)
    activate_kernel(const __grid_constant__ change_args args, T *y, enum activation activation) {
    grid_begin();
    const struct adapter_tile &tile = args.tiles[blockIdx.y];
    const int column = (int)(blockIdx.x * CHANGE_THREADS + threadIdx.x), N = args.job[0].N;
    if (tile.n == 0) return;
    struct changed_column gate, up;
    gate.load(args, tile, 0, column, dyn_smem<float>());
    if (GATED) up.load(args, tile, 1, column, dyn_smem<float>() + args.max_rank * ADAPTER_TILE);
    if (column >= N) return;
    for_rows(tile, N, column, [&](int m, size_t at) {
        const float value = gate.apply(m, args.job[0].from[at]);
        y[at] = from_float<T>(GATED ? gated(activation, value, up.apply(m, args.job[1].from[at]))
                                    : activated(activation, value));
    });
}

/* ---- memory and launches -------------------------------------------------------------------- */

enum status low_rank_open(struct low_rank_workspace *work, enum dtype act, int max_rank,
                          int max_rows, int max_k, cudaStream_t stream, struct err *err) {
    static const struct alloc_hint hint = {"the products of adapters", "max-num-batched-tokens",
                                           "lower {max-num-batched-tokens} or {max-lora-rank}"};
    assert(max_rank >= 0 && max_rows > 0 && max_k > 0 && !work->inner);
    *work = {};
    work->act = act;
    work->stream = stream;
    work->max_rank = max_rank;
    if (max_rank == 0) return STATUS_OK;
    const size_t rows = (size_t)max_rows;
    void *inner = nullptr;
    enum status status =
        device_alloc(&inner, rows * LOW_RANK_JOBS * (size_t)max_rank * sizeof(float), &hint, err);
    work->inner = static_cast<float *>(inner);
    for (float *&outputs : work->outputs) {
        void *memory = nullptr;
        if (!status)
            status = device_alloc(&memory, rows * (size_t)max_k * sizeof(float), &hint, err);
        outputs = static_cast<float *>(memory);
    }
    return status;
}

void low_rank_close(struct low_rank_workspace *work) {
    cuda_check(cudaFree(work->inner), "freeing memory for adapters");
    for (float *outputs : work->outputs)
        cuda_check(cudaFree(outputs), "freeing memory for adapters");
    *work = {};
}

template <class T, int RANKS>
static void launch_inner(const struct low_rank_workspace *work, const struct adapter_tiles *tiles,
                         const inner_args<T> &args, int n) {
    using ring = inner_ring<T, RANKS>;
    const unsigned ranks = (unsigned)((work->max_rank + RANKS - 1) / RANKS);
    launch(inner_kernel<T, RANKS>, dim3((unsigned)tiles->n, ranks, (unsigned)n), dim3(WARP),
           (size_t)ring::STAGES * ring::STAGE, work->stream, args);
}

void low_rank_inner(const struct low_rank_workspace *work, const struct adapter_tiles *tiles,
                    const struct low_rank_job *jobs, int n, const void *x, int M, int K) {
    assert(n > 0 && n <= LOW_RANK_JOBS && tiles->n > 0 && K > 0 && work->inner);
    for_activation(work->act, [&](auto zero) {
        using T = decltype(zero);
        inner_args<T> args = {work->inner, (const T *)x, tiles->tile, {}, K, work->max_rank};
        for (int i = 0; i < n; i++) args.of[i] = jobs[i].of;
        if (M <= FEW_ROWS)
            launch_inner<T, FEW_RANKS>(work, tiles, args, n);
        else
            launch_inner<T, MANY_RANKS>(work, tiles, args, n);
    });
}

static struct change_args args_of(const struct low_rank_workspace *work,
                                  const struct adapter_tiles *tiles,
                                  const struct low_rank_job *jobs, int n) {
    struct change_args args = {work->inner, tiles->tile, {}, work->max_rank};
    assert(n > 0 && n <= LOW_RANK_JOBS && tiles->n > 0);
    for (int i = 0; i < n; i++) args.job[i] = jobs[i];
    return args;
}

static dim3 change_grid(const struct adapter_tiles *tiles, const struct low_rank_job *jobs, int n,
                        int deep) {
    int N = 0;
    for (int i = 0; i < n; i++) N = max_int(N, jobs[i].N);
    return dim3((unsigned)((N + CHANGE_THREADS - 1) / CHANGE_THREADS), (unsigned)tiles->n,
                (unsigned)deep);
}

/* The inner products of n projections of a tile. */
static size_t change_smem(const struct low_rank_workspace *work, int n) {
    const size_t bytes = (size_t)n * (size_t)work->max_rank * ADAPTER_TILE * sizeof(float);
    assert(bytes <= DEFAULT_SMEM);
    return bytes;
}

void low_rank_change(const struct low_rank_workspace *work, const struct adapter_tiles *tiles,
                     const struct low_rank_job *jobs, int n) {
    const struct change_args args = args_of(work, tiles, jobs, n);
    for_activation(work->act, [&](auto zero) {
        using T = decltype(zero);
        launch(change_kernel<T>, change_grid(tiles, jobs, n, n), dim3(CHANGE_THREADS),
               change_smem(work, 1), work->stream, args);
    });
}

void low_rank_sum(const struct low_rank_workspace *work, const struct adapter_tiles *tiles,
                  const struct low_rank_job *job, void *sum) {
    const struct change_args args = args_of(work, tiles, job, 1);
    assert(job->from && sum);
    for_activation(work->act, [&](auto zero) {
        using T = decltype(zero);
        launch(sum_kernel<T>, change_grid(tiles, job, 1, 1), dim3(CHANGE_THREADS),
               change_smem(work, 1), work->stream, args, (T *)sum);
    });
}

void low_rank_activate(const struct low_rank_workspace *work, const struct adapter_tiles *tiles,
                       const struct low_rank_job *jobs, int n, enum activation activation,
                       void *y) {
    const struct change_args args = args_of(work, tiles, jobs, n);
    assert((n == 1 || n == 2) && jobs[0].from && (n == 1 || jobs[0].N == jobs[1].N));
    for_activation(work->act, [&](auto zero) {
        using T = decltype(zero);
        auto kernel = n == 2 ? activate_kernel<T, true> : activate_kernel<T, false>;
        launch(kernel, change_grid(tiles, jobs, n, 1), dim3(CHANGE_THREADS), change_smem(work, n),
               work->stream, args, (T *)y, activation);
    });
}
