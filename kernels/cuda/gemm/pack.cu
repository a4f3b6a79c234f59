/* Packs a file's rows into the layout of gemm/format.cuh on the device, optionally quantising them
 * first. It runs once per matrix, so it reads single weights and relies on the caches. */
#include <float.h>

#include "kernels/cuda/gemm/format.cuh"
#include "kernels/cuda/gemm/matrix.cuh"
#include "kernels/cuda/gemm/source.cuh"
#include "kernels/cuda/runtime/cublas.cuh"

constexpr int PACK_WARPS = 8, PACK_THREADS = PACK_WARPS * WARP;

/* Arguments of a packing kernel: `count` rows become the tiles from `first_tile` on. */
struct Packing {
    struct gemm_weights w;
    struct gemm_source from;
    size_t row_bytes;
    int first_tile, count;
};

/* The source of a row of a tile; NULL for padding. */
__device__ static const uint8_t *source_row(const Packing &p, int tile, int r, int *number) {
    *number = tile * GEMM_TILE + r;
    if (*number >= p.count) return nullptr;
    return static_cast<const uint8_t *>(p.from.rows) + *number * p.row_bytes;
}

/* fp8: the scale of a weight. */
__device__ static float scale_of_fp8(const Packing &p, int number, int k) {
    const int across = (p.w.K + p.from.scale_columns - 1) / p.from.scale_columns;
    return p.from.scales[(size_t)(number / p.from.scale_rows) * across + k / p.from.scale_columns];
}

__device__ static float source_value(const Packing &p, int tile, int r, int k) {
    int number;
    const uint8_t *row = source_row(p, tile, r, &number);
    if (!row || k >= p.w.K) return 0.0f;
    if (!p.from.fp8) return weight_at(p.from.type, row, k);
    const uint32_t bits = row[k]; /* e4m3 is a half with a smaller exponent */
    const float value = float_of_half((bits & 128u) << 8 | (bits & 127u) << 7) * 0x1p8f;
    return value * scale_of_fp8(p, number, k);
}

/* ---- codes ---------------------------------------------------------------------------------- */

/* The code of a weight in a format, from a source of the format's type, or of a type with the same
 * codes except for the zero. */
template <class F> __device__ int source_code(enum dtype, const uint8_t *row, int k) {
    return Source<F::TYPE>::code(row, k);
}
template <> __device__ int source_code<FormatFp8>(enum dtype, const uint8_t *row, int k) {
    return row[k];
}
template <> __device__ int source_code<FormatIQ4_XS>(enum dtype, const uint8_t *row, int k) {
    return Source<DTYPE_IQ4_XS>::nibble(row, k);
}
template <> __device__ int source_code<FormatMxfp4>(enum dtype, const uint8_t *row, int k) {
    return Source<DTYPE_MXFP4>::nibble(row, k);
}
template <> __device__ int source_code<FormatQ8_0>(enum dtype type, const uint8_t *row, int k) {
    return type == DTYPE_IQ4_NL ? Source<DTYPE_IQ4_NL>::code(row, k)
                                : Source<DTYPE_Q8_0>::code(row, k);
}
template <> __device__ int source_code<FormatQ4_0>(enum dtype type, const uint8_t *row, int k) {
    const int moved = Source<DTYPE_Q4_0>::ZERO - Source<DTYPE_TQ2_0>::ZERO;
    if (type == DTYPE_TQ1_0) return Source<DTYPE_TQ1_0>::code(row, k) + moved;
    if (type == DTYPE_TQ2_0) return Source<DTYPE_TQ2_0>::code(row, k) + moved;
    if (type == DTYPE_Q1_0) return Source<DTYPE_Q1_0>::code(row, k) + moved;
    if (type == DTYPE_Q2_0) return Source<DTYPE_Q2_0>::code(row, k) + moved;
    return Source<DTYPE_Q4_0>::code(row, k);
}
template <> __device__ int source_code<FormatInt4>(enum dtype type, const uint8_t *row, int k) {
    return type == DTYPE_INT4H ? Source<DTYPE_INT4H>::code(row, k)
                               : Source<DTYPE_INT4>::code(row, k);
}
template <> __device__ int source_code<FormatQ6_K>(enum dtype type, const uint8_t *row, int k) {
    const int moved = Source<DTYPE_Q6_K>::ZERO - Source<DTYPE_Q3_K>::ZERO;
    return type == DTYPE_Q3_K ? Source<DTYPE_Q3_K>::code(row, k) + moved
                              : Source<DTYPE_Q6_K>::code(row, k);
}

/* Inserts element e of a step into the words of a lane's share of a slab. */
template <class F>
__device__ __forceinline__ void put_code(Slab<F> &w, int step, int e, uint32_t code) {
    constexpr int BITS = F::CODE / 4;
    const int half = e % 2 * 16, r = e / 2; /* register r of the fragment */
    if (BITS == 8) {
        w.code[2 * step + e / 4] |= (code & 255) << 8 * (e % 4);
    } else if (BITS == 2) {
        w.code[step / 2] |= (code & 3) << (step % 2 * 8 + r * 2 + half);
    } else {
        w.code[step] |= (code & 15) << (r * 4 + half);
        if (BITS == 5) w.code[4] |= (code >> 4) << (step * 4 + r + half);
        if (BITS == 6) w.code[4 + step / 2] |= (code >> 4) << (step % 2 * 8 + r * 2 + half);
    }
}

/* ---- scales --------------------------------------------------------------------------------- */

/* A tile's rows g and g + 8 with their numbers. */
struct Rows {
    const uint8_t *row[2];
    int number[2];
};

__device__ static void put_half(uint32_t *words, int i, uint32_t bits) {
    words[i / 2] |= bits << 16 * (i % 2);
}
__device__ static void put_byte(uint32_t *words, int i, int byte) {
    words[i / 4] |= ((uint32_t)byte & 255) << 8 * (i % 4);
}

/* The half of a scale, for formats with only a scale, or a scale and a minimum. */
template <class F> __device__ uint32_t half_scale(enum dtype type, const uint8_t *row, int k) {
    switch (type) {
    case DTYPE_IQ4_NL:
        return Source<DTYPE_IQ4_NL>::d_bits(row, k);
    case DTYPE_TQ1_0:
        return Source<DTYPE_TQ1_0>::d_bits(row, k);
    case DTYPE_TQ2_0:
        return Source<DTYPE_TQ2_0>::d_bits(row, k);
    case DTYPE_Q1_0:
        return Source<DTYPE_Q1_0>::d_bits(row, k);
    case DTYPE_Q2_0:
        return Source<DTYPE_Q2_0>::d_bits(row, k);
    default:
        return Source<F::TYPE>::d_bits(row, k);
    }
}

/* Writes the scale and the minimum of a fold of a row, by the kind of the format's scales. */
template <class F, int CODE, bool MIN>
__device__ void put_scale(HalfScales<CODE, MIN>, Slab<F> &w, enum dtype type, const uint8_t *row,
                          int i, int k) {
    put_half(w.scale, i, half_scale<F>(type, row, k));
    if constexpr (MIN) put_half(w.scale, 4 + i, Source<F::TYPE>::m_bits(row, k));
}
template <class F, int CODE, bool MIN>
__device__ void put_scale(FloatScales<CODE, MIN>, Slab<F> &w, enum dtype type, const uint8_t *row,
                          int i, int k) {
    const bool half = type == DTYPE_INT4H;
    w.scale[i] =
        __float_as_uint(half ? Source<DTYPE_INT4H>::scale(row, k) : Source<F::TYPE>::scale(row, k));
    if constexpr (MIN)
        w.scale[4 + i] =
            __float_as_uint(half ? Source<DTYPE_INT4H>::min(row, k) : Source<F::TYPE>::min(row, k));
}
template <class F, int CODE>
__device__ void put_scale(ByteScales<CODE>, Slab<F> &w, enum dtype, const uint8_t *row, int i,
                          int k) {
    put_byte(w.scale, i, Source<F::TYPE>::scale_code(row, k));
    put_byte(w.scale, 4 + i, Source<F::TYPE>::min_code(row, k));
}
template <class F, int CODE, int FOLDS, int RUN>
__device__ void put_scale(SignedScales<CODE, FOLDS, RUN>, Slab<F> &w, enum dtype type,
                          const uint8_t *row, int i, int k) {
    put_byte(w.scale, i,
             type == DTYPE_Q3_K ? Source<DTYPE_Q3_K>::scale_code(row, k)
                                : Source<F::TYPE>::scale_code(row, k));
}
__device__ static void put_scale(FormatQ2_K, Slab<FormatQ2_K> &w, enum dtype, const uint8_t *row,
                                 int i, int k) {
    put_byte(w.scale, i, Source<DTYPE_Q2_K>::scales_at(row, k));
}
__device__ static void put_scale(FormatMxfp4, Slab<FormatMxfp4> &w, enum dtype, const uint8_t *row,
                                 int i, int k) {
    put_byte(w.scale, i, Source<DTYPE_MXFP4>::exponent(row, k));
}

template <class F>
__device__ void put_supers(Slab<F> &w, enum dtype type, const uint8_t *row, int side, int k) {
    if constexpr (F::SUPER != 0)
        put_half(w.super, side,
                 type == DTYPE_Q3_K ? Source<DTYPE_Q3_K>::d_bits(row, k)
                                    : Source<F::TYPE>::d_bits(row, k));
    if constexpr (F::SUPER == 8) put_half(w.super, 2 + side, Source<F::TYPE>::m_bits(row, k));
}

/* ---- kernels -------------------------------------------------------------------------------- */

template <int BYTES>
__device__ __forceinline__ void store_words(uint8_t *to, const uint32_t *from) {
    Vec<uint32_t, BYTES / 4> v;
#pragma unroll
    for (int i = 0; i < BYTES / 4; i++) v.v[i] = from[i];
    store_vec<BYTES / 4>(reinterpret_cast<uint32_t *>(to), v);
}

template <class F>
__device__ __forceinline__ void store_slab(const Slab<F> &w, const Place &place, int slab, int each,
                                           int lane) {
    constexpr int PIECES = F::CODE / 16;
    uint8_t *codes = const_cast<uint8_t *>(place.codes);
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        store_words<16>(codes + (i * WARP + lane) * 16, &w.code[4 * i]);
    if constexpr (F::CODE % 16 != 0)
        store_words<F::CODE % 16>(codes + PIECES * 16 * WARP + lane * (F::CODE % 16),
                                  &w.code[4 * PIECES]);
    if (lane % 4 != 0) return; /* the four lanes of a row have the same scales */
    if constexpr (F::SCALE != 0)
        if (slab % each == 0)
            store_words<F::SCALE>(const_cast<uint8_t *>(place.scales) + lane / 4 * F::SCALE,
                                  w.scale);
    if constexpr (F::SUPER != 0)
        if (slab % SUPER_SLABS == 0)
            store_words<F::SUPER>(const_cast<uint8_t *>(place.supers) + lane / 4 * F::SUPER,
                                  w.super);
}

/* A lane's share of a slab of codes. */
template <class F>
__device__ void collect_codes(Slab<F> &w, const Packing &p, const Rows &rows, int slab, int t) {
    for (int step = 0; step < STEPS; step++)
        for (int e = 0; e < 8; e++) {
            const int k = slab * GEMM_SLAB + column_of<F>(step, t, e);
            const uint8_t *row = rows.row[e / 2 % 2];
            if (row && k < p.w.K)
                put_code<F>(w, step, e, (uint32_t)source_code<F>(p.from.type, row, k));
        }
    for (int side = 0; side < 2; side++) {
        if (!rows.row[side]) continue;
        for (int fold = 0; fold < F::FOLDS; fold++) {
            const int k = slab * GEMM_SLAB + fold * (GEMM_SLAB / F::FOLDS);
            if (k >= p.w.K) continue;
            if constexpr (F::FOLDS == 1)
                w.scale[side] = __float_as_uint(scale_of_fp8(p, rows.number[side], k));
            else
                put_scale(F(), w, p.from.type, rows.row[side], 2 * fold + side, k);
        }
        put_supers<F>(w, p.from.type, rows.row[side], side, slab * GEMM_SLAB);
    }
}

/* One warp per slab; blockIdx.y selects the tile. */
template <class F, class T> __global__ void __launch_bounds__(PACK_THREADS) pack_kernel(Packing p) {
    grid_begin();
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    const int slab = (int)blockIdx.y * PACK_WARPS + (int)threadIdx.x / WARP;
    const int tile = (int)blockIdx.x;
    if (slab >= p.w.slabs) return;
    Slab<F> w = {};
    if constexpr (F::FOLDS == 0) {
        for (int step = 0; step < STEPS; step++)
            for (int e = 0; e < 8; e++) {
                const T value = from_float<T>(source_value(
                    p, tile, g + 8 * (e / 2 % 2), slab * GEMM_SLAB + column_of<F>(step, t, e)));
                put_half(&w.code[4 * step], e, bits_as<uint16_t>(value));
            }
    } else {
        Rows rows;
        for (int side = 0; side < 2; side++)
            rows.row[side] = source_row(p, tile, g + 8 * side, &rows.number[side]);
        collect_codes<F>(w, p, rows, slab, t);
    }
    store_slab<F>(w, place_of_slab<F>(p.w, place_of_tile<F>(p.w, p.first_tile + tile), slab), slab,
                  p.w.scale_slabs, lane);
}

/* Rows of the activations' type: one block per row. */
template <class T> __global__ void __launch_bounds__(PACK_THREADS) pack_rows_kernel(Packing p) {
    grid_begin();
    const int tile = (int)blockIdx.x / GEMM_TILE, r = (int)blockIdx.x % GEMM_TILE;
    T *row =
        reinterpret_cast<T *>(p.w.codes) + ((size_t)(p.first_tile + tile) * GEMM_TILE + r) * p.w.K;
    for (int k = threadIdx.x; k < p.w.K; k += PACK_THREADS)
        row[k] = from_float<T>(source_value(p, tile, r, k));
}

/* ---- planning, launching -------------------------------------------------------------------- */

static enum gemm_format format_for(enum dtype act, const struct gemm_source *source, int K) {
    if (source->cublas && K % GEMM_SLAB == 0 && cublas_open()) return GEMM_ROWS;
    if (act == DTYPE_F32) return GEMM_FLOAT;
    if (source->fp8) {
        const bool by_rows = source->scale_columns >= K && K % 8 == 0;
        return source->e4m3 && by_rows ? GEMM_E4M3 : GEMM_FP8;
    }
    switch (source->type) {
    case DTYPE_IQ4_NL: /* its values are bytes */
        return GEMM_Q8_0;
    case DTYPE_TQ1_0:
    case DTYPE_TQ2_0:
    case DTYPE_Q1_0:
    case DTYPE_Q2_0:
        return GEMM_Q4_0;
    case DTYPE_Q3_K:
        return GEMM_Q6_K;
    case DTYPE_INT4H:
        return GEMM_INT4;
#define SAME(NAME)                                                                                 \
    case DTYPE_##NAME:                                                                             \
        return GEMM_##NAME;
        SAME(Q8_0)
        SAME(INT8)
        SAME(Q4_0)
        SAME(Q4_1)
        SAME(INT4)
        SAME(Q4_K)
        SAME(Q5_0)
        SAME(Q5_1)
        SAME(Q5_K)
        SAME(Q6_K)
        SAME(Q2_K)
        SAME(IQ4_XS)
        SAME(MXFP4)
#undef SAME
    default:
        return GEMM_16;
    }
}

/* Bytes of the three parts of a matrix, rounded up to 256. */
struct Sizes {
    size_t codes, scales, supers;
};
static bool is_rows(const struct gemm_weights *w) {
    return w->format == GEMM_FLOAT || w->format == GEMM_ROWS;
}
static Sizes sizes_of(const struct gemm_weights *w) {
    auto whole = [](size_t n) { return (n + 255) / 256 * 256; };
    const size_t tiles = (size_t)w->tiles;
    if (is_rows(w))
        return {whole(tiles * GEMM_TILE * (size_t)w->K * (w->act == DTYPE_F32 ? 4 : 2)), 0, 0};
    Sizes sizes = {};
    for_format(w->format, [&](auto format) {
        using F = decltype(format);
        const size_t scales = (size_t)((w->slabs + w->scale_slabs - 1) / w->scale_slabs);
        const size_t supers = (size_t)((w->slabs + SUPER_SLABS - 1) / SUPER_SLABS);
        sizes = {whole(tiles * (size_t)w->slabs * F::CODE_BYTES),
                 whole(tiles * scales * F::SCALE_BYTES), whole(tiles * supers * F::SUPER_BYTES)};
    });
    return sizes;
}

size_t gemm_plan(struct gemm_weights *w, enum dtype act, const struct gemm_source *source, int N,
                 int K) {
    assert(N > 0 && K > 0);
    *w = {};
    w->format = format_for(act, source, K);
    w->act = act;
    w->N = N;
    w->K = K;
    w->tiles = (N + GEMM_TILE - 1) / GEMM_TILE;
    w->slabs = (K + GEMM_SLAB - 1) / GEMM_SLAB;
    /* one warp per range: about 2,000 warps read at once, and no range is empty */
    w->ranges = w->tiles >= 256 ? 8 : 16;
    if (w->ranges > w->slabs) w->ranges = w->slabs;
    w->scale_slabs = 1;
    if (w->format == GEMM_FP8 || w->format == GEMM_E4M3) {
        assert(source->scale_columns >= K || source->scale_columns % GEMM_SLAB == 0);
        w->scale_slabs = source->scale_columns >= K ? w->slabs : source->scale_columns / GEMM_SLAB;
    }
    const Sizes sizes = sizes_of(w);
    return sizes.codes + sizes.scales + sizes.supers;
}

void gemm_place(struct gemm_weights *w, void *memory) {
    assert((uintptr_t)memory % 256 == 0);
    const Sizes sizes = sizes_of(w);
    w->codes = static_cast<uint8_t *>(memory);
    w->scales = w->codes + sizes.codes;
    w->supers = w->scales + sizes.scales;
}

void gemm_pack(const struct gemm_weights *w, const struct gemm_source *source, int first, int count,
               cudaStream_t stream) {
    assert(first % GEMM_TILE == 0 && first + count <= w->N);
    assert(count % GEMM_TILE == 0 || first + count == w->N);
    const size_t row_bytes = source->fp8 ? (size_t)w->K : dtype_bytes(source->type, (size_t)w->K);
    const Packing p = {*w, *source, row_bytes, first / GEMM_TILE, count};
    const unsigned tiles = (unsigned)((count + GEMM_TILE - 1) / GEMM_TILE);
    if (is_rows(w)) {
        for_activation(w->act, [&](auto zero) {
            launch(pack_rows_kernel<decltype(zero)>, dim3(tiles * GEMM_TILE), dim3(PACK_THREADS), 0,
                   stream, p);
        });
        return;
    }
    const dim3 grid(tiles, (unsigned)((w->slabs + PACK_WARPS - 1) / PACK_WARPS));
    for_format(w->format, [&](auto format) {
        using F = decltype(format);
        auto kernel = w->act == DTYPE_F16 ? pack_kernel<F, __half> : pack_kernel<F, __nv_bfloat16>;
        launch(kernel, grid, dim3(PACK_THREADS), 0, stream, p);
    });
}

/* ---- quantising ----------------------------------------------------------------------------- */

constexpr int QUANTISE_THREADS = 256;
constexpr float MAX_E4M3 = 448.0f;

/* One block per row; it reads the row twice, for its largest weight and for its codes. */
__global__ void __launch_bounds__(QUANTISE_THREADS)
    quantise_kernel(uint8_t *__restrict__ codes, float *__restrict__ scales, enum dtype type,
                    const uint8_t *__restrict__ rows, size_t row_bytes, int K) {
    __shared__ float part[QUANTISE_THREADS / WARP];
    grid_begin();
    const uint8_t *row = rows + blockIdx.x * row_bytes;
    float most = 0.0f;
    for (int k = threadIdx.x; k < K; k += QUANTISE_THREADS)
        most = fmaxf(most, fabsf(weight_at(type, row, k)));
    most = warp_max(most);
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = most;
    __syncthreads();
    for (float other : part) most = fmaxf(most, other);
    const float scale = fmaxf(most / MAX_E4M3, FLT_MIN); /* a row of zeros has a scale too */
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
    for (int k = threadIdx.x; k < K; k += QUANTISE_THREADS)
        codes[(size_t)blockIdx.x * K + k] = __nv_fp8_e4m3(weight_at(type, row, k) / scale).__x;
}

void quantise_e4m3(uint8_t *codes, float *scales, enum dtype type, const void *rows, int N, int K,
                   cudaStream_t stream) {
    launch(quantise_kernel, dim3((unsigned)N), dim3(QUANTISE_THREADS), 0, stream, codes, scales,
           type, static_cast<const uint8_t *>(rows), dtype_bytes(type, (size_t)K), K);
}
