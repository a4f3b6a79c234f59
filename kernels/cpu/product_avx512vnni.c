/* Quantised products with AVX-512 VNNI: a panel of 16 outputs times up to 16 rows of a tile, all
 * sums in registers over the whole of K.
 *
 * A block's codes are unpacked once into 8 registers of unsigned bytes, group g of 4 inputs in
 * register g. For each row, vpdpbusd adds code * activation of 4 inputs in every lane, the
 * activations being broadcast from memory; it does not saturate, so the sum is exact. What a code
 * is too large by (`zero`) is taken off at the start: the sum begins at -zero * (sum of the
 * activations). Then the float part, as order.md has it. */
#include "kernels/cpu/sixteen.h"

/* The activations of one block of a tile. */
struct inputs {
    const int8_t *q;
    const float *scale, *sum;
    const int32_t *minus_sum;
    int width;
};

/* Sum of code * activation over groups from..to-1, less what the codes are too large by. */
INLINE __m512i dot(const __m512i *v, const int8_t *q, const int32_t *minus_sum, const int from,
                   const int to, const int zero_shift) {
    __m512i sum = _mm512_setzero_si512();
    if (zero_shift >= 0)
        sum = _mm512_slli_epi32(_mm512_set1_epi32(*minus_sum), (unsigned)zero_shift);
    UNROLL for (int g = from; g < to; g++) {
        int32_t four;
        memcpy(&four, q + 4 * g, sizeof four);
        sum = _mm512_dpbusd_epi32(sum, v[g], _mm512_set1_epi32(four));
    }
    return sum;
}

INLINE __m512 add_scaled(__m512 acc, __m512i sum, __m512 d, float scale) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(d, _mm512_set1_ps(scale)), acc);
}

/* One block's share of n rows. */
INLINE void add_block(__m512 *acc, const __m512i *v, const __m512 *d, __m512 m, struct inputs in,
                      const int n, const struct kind kind) {
    REPEAT(r, n) {
        const int8_t *q = in.q + r * BLOCK;
        if (kind.bits == 6) {
            acc[r] =
                add_scaled(acc[r], dot(v, q, in.minus_sum + in.width + r, 0, 4, kind.zero_shift),
                           d[0], in.scale[r]);
            acc[r] = add_scaled(acc[r],
                                dot(v, q, in.minus_sum + 2 * in.width + r, 4, 8, kind.zero_shift),
                                d[1], in.scale[r]);
        } else {
            acc[r] = add_scaled(acc[r], dot(v, q, in.minus_sum + r, 0, 8, kind.zero_shift), d[0],
                                in.scale[r]);
            if (kind.has_min) acc[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(in.sum[r]), acc[r]);
        }
    }
}

/* What the kernels are given: a panel, a tile and its rows, and where the results go. */
struct call {
    const struct matrix *w;
    const struct activations *a;
    int panel, tile, rows;
    float *y;
    size_t stride;
};

INLINE struct inputs inputs_at(const struct call *c, int i) {
    size_t at = activation_at(c->a, c->tile, i, 0);
    return (struct inputs){c->a->q + at * BLOCK, c->a->scale + at, c->a->sum + at,
                           activation_minus_sum(c->a, c->tile, i, 0), c->a->width};
}

INLINE void store_rows(const struct call *c, const __m512 *acc, const int n) {
    size_t outputs = (size_t)(c->w->N - c->panel * LANES);
    REPEAT(r, n) {
        if (r >= c->rows) return;
        lanes_store_first(c->y + (size_t)r * c->stride, acc[r], outputs < LANES ? outputs : LANES);
    }
}

INLINE void product_rows(const struct call *c, const int n, const struct kind kind) {
    __m512 acc[LANES];
    REPEAT(r, n) acc[r] = _mm512_setzero_ps();
    const uint8_t *codes = matrix_codes(c->w, c->panel, 0);
    size_t step = c->w->code_bytes, share = fetch_share(c->w);
    const uint8_t *ahead = codes + AHEAD;
    for (int i = 0; i < c->w->n_blocks; i++, codes += step, ahead += share) {
        __m512i v[8];
        __m512 d[2], m = _mm512_setzero_ps();
        if (c->tile == 0) fetch(ahead, share);
        unpack(v, codes, kind.bits);
        unpack_scales(d, &m, matrix_scales(c->w, c->panel, i), i, kind);
        add_block(acc, v, d, m, inputs_at(c, i), n, kind);
    }
    store_rows(c, acc, n);
}

/* ---- one function for each type and number of rows ------------------------------------------ */

typedef void rows_fn(const struct call *);

#define ROWS(type, n, ...)                                                                         \
    static void type##_##n(const struct call *c) {                                                 \
        product_rows(c, n, (struct kind){__VA_ARGS__});                                            \
    }
/* clang-format off */
#define TYPE(type, ...)                                                                            \
    ROWS(type, 1, __VA_ARGS__) ROWS(type, 2, __VA_ARGS__) ROWS(type, 4, __VA_ARGS__)               \
    ROWS(type, 8, __VA_ARGS__) ROWS(type, 12, __VA_ARGS__) ROWS(type, 16, __VA_ARGS__)             \
    static rows_fn *const type##_rows[] = {type##_1, type##_2, type##_4, type##_8, type##_12,      \
                                           type##_16};
/* clang-format on */

TYPE(q4_0, 4, 3, false, false)
TYPE(q4_1, 4, -1, true, false)
TYPE(q5_0, 5, 4, false, false)
TYPE(q5_1, 5, -1, true, false)
TYPE(q8_0, 8, 7, false, false)
TYPE(q4_k, 4, -1, true, true)
TYPE(q5_k, 5, -1, true, true)
TYPE(q6_k, 6, 5, false, true)

static rows_fn *const *rows_of(enum dtype type) {
    switch (type) {
    case DTYPE_Q4_0:
        return q4_0_rows;
    case DTYPE_Q4_1:
        return q4_1_rows;
    case DTYPE_Q5_0:
        return q5_0_rows;
    case DTYPE_Q5_1:
        return q5_1_rows;
    case DTYPE_Q8_0:
        return q8_0_rows;
    case DTYPE_Q4_K:
        return q4_k_rows;
    case DTYPE_Q5_K:
        return q5_k_rows;
    default:
        assert(type == DTYPE_Q6_K);
        return q6_k_rows;
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
