/* Quantised products with AVX-VNNI: a panel's 16 outputs in two halves of 8. With more than four
 * rows, a block's codes are unpacked once. Then four rows at a time are multiplied with it, so that
 * loaded codes and activations serve several products and sums do not wait for each other. The sums
 * of all rows stay in the L1 cache. Up to four rows: matmul_quant_256.inc.
 *
 * vpdpbusd multiplies unsigned codes by signed activations and adds four products at once into 32
 * bits. It does not saturate, so the sum is exact. The zero point is corrected at the start. */
#include "kernels/cpu/simd/peak.h"
#include "kernels/cpu/simd/unpack_256.h"

/* Adds the exact sums of code * activation over groups from..to-1 to dots[n][2], for n rows. */
INLINE void multiply(__m256i (*dots)[2], const __m256i (*v)[2], const int8_t *q, const int n,
                     const int from, const int to) {
    UNROLL for (int g = from; g < to; g++) {
        UNROLL_FOR(r, n) {
            __m256i inputs = four_inputs(q + r * BLOCK, g);
            dots[r][0] = _mm256_dpbusd_avx_epi32(dots[r][0], v[g][0], inputs);
            dots[r][1] = _mm256_dpbusd_avx_epi32(dots[r][1], v[g][1], inputs);
        }
    }
}

/* An unpacked block of a panel: for both halves of the outputs the codes by group, scales and
 * minima, two of each for halved types. */
struct unpacked {
    __m256i v[8][2];
    __m256 d[2][2], m[2][2];
};

INLINE void unpack_block(struct unpacked *u, const struct call *c, int i,
                         const struct format format) {
    UNROLL_FOR(part, 2) {
        __m256i v[8];
        __m256 d[2], m[2];
        unpack(v, matrix_codes(c->w, c->panel, i) + part * 32, format);
        unpack_scales(d, m, matrix_scales(c->w, c->panel, i), i, part, format);
        UNROLL_FOR(g, 8) u->v[g][part] = v[g];
        u->d[0][part] = d[0];
        u->m[0][part] = m[0];
        if (format.halved) u->d[1][part] = d[1], u->m[1][part] = m[1];
    }
}

/* Adds to acc[n][16] the contribution of groups from..to-1 of block i, whose scale is d. */
INLINE void add_groups(const struct call *c, float (*acc)[LANES], const struct unpacked *u, int i,
                       int row, const int n, const int from, const int to,
                       const struct format format) {
    size_t at = activation_at(c->a, c->tile, i, row), width = (size_t)c->a->width;
    const int32_t *minus_sum = activation_minus_sum(c->a, c->tile, i, row);
    const float *scale = c->a->scale + at, *sum = c->a->sum + at;
    const int half = from / 4;
    if (format.halved) minus_sum += (size_t)(1 + half) * width;
    __m256i dots[4][2];
    UNROLL_FOR(r, n) {
        dots[r][0] = dots[r][1] =
            format.zero ? _mm256_set1_epi32(minus_sum[r] * format.zero) : _mm256_setzero_si256();
    }
    multiply(dots, u->v, c->a->q + at * BLOCK, n, from, to);
    UNROLL_FOR(r, n) {
        float added = format.halved ? scale[r] * (float)-minus_sum[r] : sum[r];
        UNROLL_FOR(part, 2) {
            __m256 s = _mm256_loadu_ps(acc[r] + part * VEC8);
            s = add_scaled(s, dots[r][part], u->d[half][part], scale[r]);
            if (format.has_min) s = _mm256_fmadd_ps(u->m[half][part], _mm256_set1_ps(added), s);
            _mm256_storeu_ps(acc[r] + part * VEC8, s);
        }
    }
}

/* Adds block i's contribution to n rows, starting with `row`. */
INLINE void add_rows(const struct call *c, float (*acc)[LANES], const struct unpacked *u, int i,
                     int row, const int n, const struct format format) {
    if (format.halved) {
        add_groups(c, acc + row, u, i, row, n, 0, 4, format);
        add_groups(c, acc + row, u, i, row, n, 4, 8, format);
    } else {
        add_groups(c, acc + row, u, i, row, n, 0, 8, format);
    }
}

INLINE void product_rows(const struct call *c, float (*acc)[LANES], const struct format format) {
    size_t share = fetch_share(c->w);
    const uint8_t *ahead = matrix_codes(c->w, c->panel, 0) + AHEAD;
    for (int i = 0; i < c->w->n_blocks; i++, ahead += share) {
        struct unpacked u;
        int row = 0;
        if (c->tile == 0) fetch(ahead, share);
        unpack_block(&u, c, i, format);
        for (; row + 4 <= c->rows; row += 4) add_rows(c, acc, &u, i, row, 4, format);
        if (row + 2 <= c->rows) add_rows(c, acc, &u, i, row, 2, format), row += 2;
        if (row < c->rows) add_rows(c, acc, &u, i, row, 1, format);
    }
}

INLINE void multiply_few(__m256i (*sum)[2], const struct block *block, const int part, const int n,
                         const struct format format) {
    const int groups = format.halved ? 4 : 8;
    UNROLL_FOR(r, n)
    sum[r][0] = sum[r][1] = minus_zero(minus_sums(block, part, format)[r], format.zero);
    UNROLL_FOR(k, groups) {
        const int g = kth_group(part, k, format);
        UNROLL_FOR(half, 2) {
            __m256i v = group_codes(block->codes + 32 * half, block->values, g, format);
            UNROLL_FOR(r, n) {
                __m256i inputs = four_inputs(block->q + r * BLOCK, g);
                sum[r][half] = _mm256_dpbusd_avx_epi32(sum[r][half], v, inputs);
            }
        }
    }
}

#define PRODUCT avxvnni_product
#include "kernels/cpu/simd/matmul_quant_256.inc"

/* ---- the peak ------------------------------------------------------------------------------- */

/* The peak rate of multiply-adds with AVX-VNNI; its float loop is that of AVX2. The instruction is
 * written as assembly, because gcc 12 copies each sum around the intrinsic. The sum is passed by
 * value: as an operand, an element of an array would stay in memory. */

INLINE __m256i add_four(__m256i sum, __m256i a, __m256i b) {
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
    return sum;
}

static void int8(void *arg, int part) {
    (void)arg;
    __m256i sum[PEAK_SUMS], a = _mm256_set1_epi32(part), b = _mm256_set1_epi32(0x01020304);
    UNROLL_FOR(j, PEAK_SUMS) sum[j] = a;
    for (int i = 0; i < PEAK_ROUNDS; i++) UNROLL_FOR(j, PEAK_SUMS) sum[j] = add_four(sum[j], a, b);
    for (int j = 1; j < PEAK_SUMS; j++) sum[0] = _mm256_add_epi32(sum[0], sum[j]);
    peak_sink = _mm256_extract_epi32(sum[0], 0);
}

const struct peak_loops avxvnni_peaks = {
    .int8 = {"vpdpbusd, 256 bits", PEAK_LOOPS * 32.0, int8},
    .float32 = {"vfmadd, 256 bits", PEAK_LOOPS * 8.0, peak_float_avx2},
};
