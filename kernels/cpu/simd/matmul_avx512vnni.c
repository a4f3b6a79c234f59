/* Quantised products with AVX-512 VNNI: a panel of 16 outputs times up to 16 rows of a tile, all
 * sums in registers over the whole of K.
 *
 * A block's codes are unpacked once into 8 registers of unsigned bytes, group g of 4 inputs in
 * register g. For each row, vpdpbusd adds code * activation of 4 inputs in every lane, the
 * activations being broadcast from memory; it does not saturate, so the sum is exact. The
 * zero point is corrected at the start: the sum begins at -zero * (sum of the activations). Then
 * the float part, as order.md has it. */
#include "kernels/cpu/simd/peak.h"
#include "kernels/cpu/simd/unpack_512.h"

/* sum + code * activation of a group of 4 inputs: vpdpbusd with a broadcast operand, in whose place
 * gcc 12 writes two instructions. */
INLINE __m512i add_group(__m512i sum, __m512i codes, const int8_t *inputs) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(codes), "m"(*(const int8_t(*)[4])inputs));
    return sum;
}

/* Sum of code * activation over groups from..to-1, minus the zero-point correction. */
INLINE __m512i dot(const __m512i *v, const int8_t *q, const int32_t *minus_sum, const int from,
                   const int to, const int zero) {
    __m512i sum = _mm512_setzero_si512();
    if (zero) /* a power of two */
        sum = _mm512_slli_epi32(_mm512_set1_epi32(*minus_sum), (unsigned)__builtin_ctz(zero));
    UNROLL for (int g = from; g < to; g++) sum = add_group(sum, v[g], q + 4 * g);
    return sum;
}

INLINE __m512 add_scaled(__m512 acc, __m512i sum, __m512 d, float scale) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(d, _mm512_set1_ps(scale)), acc);
}

/* One block's share of n rows. */
INLINE void add_block(__m512 *acc, const __m512i *v, const __m512 *d, const __m512 *m,
                      struct inputs in, const int n, const struct format format) {
    UNROLL_FOR(r, n) {
        const int8_t *q = in.q + r * BLOCK;
        if (format.halved) {
            UNROLL_FOR(half, 2) {
                const int32_t *minus = in.minus_sum + (1 + half) * in.width + r;
                acc[r] = add_scaled(acc[r], dot(v, q, minus, 4 * half, 4 * half + 4, format.zero),
                                    d[half], in.scale[r]);
                float sum = in.scale[r] * (float)-*minus;
                if (format.has_min) acc[r] = _mm512_fmadd_ps(m[half], _mm512_set1_ps(sum), acc[r]);
            }
        } else {
            acc[r] = add_scaled(acc[r], dot(v, q, in.minus_sum + r, 0, 8, format.zero), d[0],
                                in.scale[r]);
            if (format.has_min) acc[r] = _mm512_fmadd_ps(m[0], _mm512_set1_ps(in.sum[r]), acc[r]);
        }
    }
}

INLINE void store_rows(const struct call *c, const __m512 *acc, const int n) {
    size_t outputs = (size_t)(c->w->N - c->panel * LANES);
    UNROLL_FOR(r, n) {
        if (r >= c->rows) return;
        vec16_store_first(c->y + (size_t)r * c->stride, acc[r], outputs < LANES ? outputs : LANES);
    }
}

INLINE void product_rows(const struct call *c, const int n, const struct format format) {
    __m512 acc[LANES];
    UNROLL_FOR(r, n) acc[r] = _mm512_setzero_ps();
    const uint8_t *codes = matrix_codes(c->w, c->panel, 0);
    size_t step = c->w->code_bytes, share = fetch_share(c->w);
    const uint8_t *ahead = codes + AHEAD;
    struct inputs in = inputs_at(c, 0);
    for (int i = 0; i < c->w->n_blocks; i++, codes += step, ahead += share, inputs_next(&in)) {
        __m512i v[8];
        __m512 d[2], m[2];
        if (c->tile == 0) fetch(ahead, share);
        unpack(v, codes, format);
        unpack_scales(d, m, matrix_scales(c->w, c->panel, i), i, format);
        add_block(acc, v, d, m, in, n, format);
    }
    store_rows(c, acc, n);
}

/* ---- one function for each type and number of rows ------------------------------------------ */

typedef void rows_fn(const struct call *);

#define ROWS(name, n, ...)                                                                         \
    static void name##_##n(const struct call *c) {                                                 \
        product_rows(c, n, (struct format)FORMAT(__VA_ARGS__));                                    \
    }
/* clang-format off */
#define ENTRY(TYPE, name, number, elements, bytes, ...)                                            \
    ROWS(name, 1, __VA_ARGS__) ROWS(name, 2, __VA_ARGS__) ROWS(name, 4, __VA_ARGS__)               \
    ROWS(name, 8, __VA_ARGS__) ROWS(name, 12, __VA_ARGS__) ROWS(name, 16, __VA_ARGS__)             \
    static rows_fn *const name##_rows[] = {name##_1, name##_2, name##_4, name##_8, name##_12,      \
                                           name##_16};
QUANT_TYPES(ENTRY)
#undef ENTRY
/* clang-format on */

static rows_fn *const *rows_of(enum dtype type) {
    switch (type) {
#define ENTRY(TYPE, name, ...)                                                                     \
    case DTYPE_##TYPE:                                                                             \
        return name##_rows;
        QUANT_TYPES(ENTRY)
#undef ENTRY
    default:
        assert(!"a quantised type");
        return NULL;
    }
}

/* The kernel of the least number of rows that is enough. Rows that are computed without being
 * asked for read what comes next in the activations and are not stored. */
void avx512vnni_product(const struct matrix *w, int panel, const struct activations *a, int tile,
                        int rows, float *y, size_t stride) {
    static const uint8_t kernel[LANES + 1] = {0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5};
    struct call call = {w, a, panel, tile, rows, y, stride};
    rows_of(w->type)[kernel[rows]](&call);
}

/* ---- the peak ------------------------------------------------------------------------------- */

/* The most that AVX-512 can multiply and add. */

static void int8(void *arg, int part) {
    (void)arg;
    __m512i sum[PEAK_SUMS], a = _mm512_set1_epi32(part), b = _mm512_set1_epi32(0x01020304);
    for (int j = 0; j < PEAK_SUMS; j++) sum[j] = a;
    for (int i = 0; i < PEAK_ROUNDS; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < PEAK_SUMS; j++) sum[j] = _mm512_dpbusd_epi32(sum[j], a, b);
    }
    for (int j = 1; j < PEAK_SUMS; j++) sum[0] = _mm512_add_epi32(sum[0], sum[j]);
    peak_sink = _mm512_cvtsi512_si32(sum[0]);
}

void peak_float_avx512vnni(void *arg, int part) {
    (void)arg;
    __m512 sum[PEAK_SUMS], a = _mm512_set1_ps((float)part), b = _mm512_set1_ps(0.5f);
    for (int j = 0; j < PEAK_SUMS; j++) sum[j] = a;
    for (int i = 0; i < PEAK_ROUNDS; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < PEAK_SUMS; j++) sum[j] = _mm512_fmadd_ps(sum[j], b, a);
    }
    for (int j = 1; j < PEAK_SUMS; j++) sum[0] = _mm512_add_ps(sum[0], sum[j]);
    peak_sink = (int)_mm512_cvtss_f32(sum[0]);
}

const struct peak_loops avx512vnni_peaks = {
    .int8 = {"vpdpbusd, 512 bits", PEAK_LOOPS * 64.0, int8},
    .float32 = {"vfmadd, 512 bits", PEAK_LOOPS * 16.0, peak_float_avx512vnni},
};
