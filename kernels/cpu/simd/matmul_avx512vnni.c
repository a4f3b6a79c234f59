/* Quantised products with AVX-512 VNNI: a panel of 16 outputs times up to 16 rows of a tile, with
 * all sums in registers over the whole of K.
 *
 * A block's codes are unpacked once into 8 registers of unsigned bytes; register g has group g of 4
 * inputs. For each row, interleaved with three others, vpdpbusd adds code * activation of 4 inputs
 * in every lane, with the activations broadcast from memory. It does not saturate, so the sum is
 * exact. The zero point is corrected at the start: the initial sum is -zero * (sum of the
 * activations). The float part follows in the order of order.md. */
#include <assert.h>

#include "kernels/cpu/simd/peak.h"
#include "kernels/cpu/simd/unpack_512.h"

enum { IN_TURN = 4 }; /* rows whose sums are interleaved */

/* sum + code * activation of a group of 4 inputs: vpdpbusd with a broadcast operand. gcc 12 would
 * use two instructions. */
INLINE __m512i add_group(__m512i sum, __m512i codes, const int8_t *inputs) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(codes), "m"(*(const int8_t(*)[4])inputs));
    return sum;
}

/* For n rows: sum of code * activation over groups from..to-1, minus the zero-point correction. */
INLINE void dot_rows(__m512i *sum, const __m512i *v, const int8_t *q, const int32_t *minus_sum,
                     const int n, const int from, const int to, const int zero) {
    UNROLL_FOR(r, n) {
        sum[r] = _mm512_setzero_si512();
        if (zero) /* a power of two */
            sum[r] =
                _mm512_slli_epi32(_mm512_set1_epi32(minus_sum[r]), (unsigned)__builtin_ctz(zero));
    }
    UNROLL for (int g = from; g < to; g++) {
        UNROLL_FOR(r, n) sum[r] = add_group(sum[r], v[g], q + r * BLOCK + 4 * g);
    }
}

INLINE __m512 add_scaled(__m512 acc, __m512i sum, __m512 d, float scale) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(d, _mm512_set1_ps(scale)), acc);
}

/* Adds one block's contribution to n rows, starting with `row`. */
INLINE void add_rows(__m512 *acc, const __m512i *v, const __m512 *d, const __m512 *m,
                     struct inputs in, const int row, const int n, const struct format format) {
    const int parts = format.halved ? 2 : 1, groups = 8 / parts;
    UNROLL_FOR(part, parts) {
        const int32_t *minus = in.minus_sum + row;
        if (format.halved) minus += (1 + part) * in.width;
        __m512i sum[IN_TURN];
        dot_rows(sum, v, in.q + row * BLOCK, minus, n, part * groups, (part + 1) * groups,
                 format.zero);
        UNROLL_FOR(r, n) {
            const float scale = in.scale[row + r];
            acc[row + r] = add_scaled(acc[row + r], sum[r], d[part], scale);
            float added = format.halved ? scale * (float)-minus[r] : in.sum[row + r];
            if (format.has_min)
                acc[row + r] = _mm512_fmadd_ps(m[part], _mm512_set1_ps(added), acc[row + r]);
        }
    }
}

/* The same for all rows: IN_TURN at a time, because an addition has a latency of 4 cycles or
 * more. */
INLINE void add_block(__m512 *acc, const __m512i *v, const __m512 *d, const __m512 *m,
                      struct inputs in, const int n, const struct format format) {
    const int each = n < IN_TURN ? n : IN_TURN;
    UNROLL for (int row = 0; row < n; row += each) add_rows(acc, v, d, m, in, row, each, format);
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

/* Chooses the kernel with the smallest sufficient number of rows. Its extra rows read the bytes
 * that follow the activations, and are not stored. */
void avx512vnni_product(const struct matrix *w, int panel, const struct activations *a, int tile,
                        int rows, float *y, size_t stride) {
    assert(panel >= 0 && panel < w->n_panels && rows > 0);
    static const uint8_t kernel[LANES + 1] = {0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5};
    struct call call = {w, a, panel, tile, rows, y, stride};
    rows_of(w->type)[kernel[rows]](&call);
}

/* ---- the peak ------------------------------------------------------------------------------- */

/* The peak rate of multiply-adds with AVX-512. */

/* sum + a * b, as in add_group. The sum is passed by value: as an operand, an element of an array
 * would stay in memory. */
INLINE __m512i add_four(__m512i sum, __m512i a, __m512i b) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

static void int8(void *arg, int part) {
    (void)arg;
    __m512i sum[PEAK_SUMS], a = _mm512_set1_epi32(part), b = _mm512_set1_epi32(0x01020304);
    UNROLL_FOR(j, PEAK_SUMS) sum[j] = a;
    for (int i = 0; i < PEAK_ROUNDS; i++) UNROLL_FOR(j, PEAK_SUMS) sum[j] = add_four(sum[j], a, b);
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
