/* Quantised products with AVX-VNNI: a panel's 16 outputs in two halves of 8. A block's codes are
 * unpacked once; then rows go along it in fours, so that codes and activations that were read serve
 * several products and no sum waits for the one before. The sums of all rows stay in the nearest
 * cache.
 *
 * vpdpbusd multiplies unsigned codes by signed activations and adds four products at once into 32
 * bits. It does not saturate, so the sum is exact; what a code is too large by is taken off at the
 * start. */
#include "kernels/cpu/eight.h"

/* Adds the exact sums of code * activation over groups from..to-1 to dots[n][2], for n rows. */
INLINE void multiply(__m256i (*dots)[2], const __m256i (*v)[2], const int8_t *q, const int n,
                     const int from, const int to) {
    UNROLL for (int g = from; g < to; g++) {
        REPEAT(r, n) {
            __m256i inputs = four_inputs(q + r * BLOCK, g);
            dots[r][0] = _mm256_dpbusd_avx_epi32(dots[r][0], v[g][0], inputs);
            dots[r][1] = _mm256_dpbusd_avx_epi32(dots[r][1], v[g][1], inputs);
        }
    }
}

/* A block of a panel, unpacked: for both halves of the outputs codes by group, scales (two for 6
 * bits) and minima. */
struct unpacked {
    __m256i v[8][2];
    __m256 d[2][2], m[2];
};

INLINE void unpack_block(struct unpacked *u, const struct call *c, int i, const struct kind kind) {
    REPEAT(half, 2) {
        __m256i v[8];
        __m256 d[2], m = _mm256_setzero_ps();
        unpack(v, matrix_codes(c->w, c->panel, i) + half * 32, kind.bits);
        unpack_scales(d, &m, matrix_scales(c->w, c->panel, i), i, half, kind);
        REPEAT(g, 8) u->v[g][half] = v[g];
        u->d[0][half] = d[0];
        if (kind.bits == 6) u->d[1][half] = d[1];
        u->m[half] = m;
    }
}

/* Adds to acc[n][16] the share of groups from..to-1 of block i: those that have d for a scale. */
INLINE void add_groups(const struct call *c, float (*acc)[LANES], const struct unpacked *u, int i,
                       int row, const int n, const int from, const int to, const struct kind kind) {
    size_t at = activation_at(c->a, c->tile, i, row), width = (size_t)c->a->width;
    const int32_t *minus_sum = activation_minus_sum(c->a, c->tile, i, row);
    const float *scale = c->a->scale + at, *sum = c->a->sum + at;
    const int part = kind.bits == 6 ? 1 + from / 4 : 0; /* of the sums of activations */
    __m256i dots[4][2];
    REPEAT(r, n) {
        dots[r][0] = dots[r][1] =
            kind.zero ? _mm256_set1_epi32(minus_sum[part * width + (size_t)r] * kind.zero)
                      : _mm256_setzero_si256();
    }
    multiply(dots, u->v, c->a->q + at * BLOCK, n, from, to);
    REPEAT(r, n) {
        REPEAT(half, 2) {
            __m256 s = _mm256_loadu_ps(acc[r] + half * EIGHT);
            s = add_scaled(s, dots[r][half], u->d[from / 4][half], scale[r]);
            if (kind.has_min) s = _mm256_fmadd_ps(u->m[half], _mm256_set1_ps(sum[r]), s);
            _mm256_storeu_ps(acc[r] + half * EIGHT, s);
        }
    }
}

/* Adds block i's share to n rows from `row` on. */
INLINE void add_rows(const struct call *c, float (*acc)[LANES], const struct unpacked *u, int i,
                     int row, const int n, const struct kind kind) {
    if (kind.bits == 6) {
        add_groups(c, acc + row, u, i, row, n, 0, 4, kind);
        add_groups(c, acc + row, u, i, row, n, 4, 8, kind);
    } else {
        add_groups(c, acc + row, u, i, row, n, 0, 8, kind);
    }
}

INLINE void product_rows(const struct call *c, float (*acc)[LANES], const struct kind kind) {
    size_t share = fetch_share(c->w);
    const uint8_t *ahead = matrix_codes(c->w, c->panel, 0) + AHEAD;
    for (int i = 0; i < c->w->n_blocks; i++, ahead += share) {
        struct unpacked u;
        int row = 0;
        if (c->tile == 0) fetch(ahead, share);
        unpack_block(&u, c, i, kind);
        for (; row + 4 <= c->rows; row += 4) add_rows(c, acc, &u, i, row, 4, kind);
        if (row + 2 <= c->rows) add_rows(c, acc, &u, i, row, 2, kind), row += 2;
        if (row < c->rows) add_rows(c, acc, &u, i, row, 1, kind);
    }
}

#define PRODUCT avxvnni_product
#include "kernels/cpu/product_eight.inc"
