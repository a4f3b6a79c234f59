/* Transposes vectors of 16 rows into vectors whose lanes are the rows. */
#ifndef PENSTOCK_KERNELS_CPU_VEC16_ROWS_H
#define PENSTOCK_KERNELS_CPU_VEC16_ROWS_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/vec16.h"

#ifdef __AVX512F__

/* Loads 32 bfloat16 numbers: those at even positions, and the others. */
INLINE void vec16_load_brain_pairs(const uint8_t *p, vec16 *even, vec16 *odd) {
    __m512i pairs = _mm512_loadu_si512(p);
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    *odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000)));
}

/* Packs 32 numbers within -127..127 into bytes: those at even positions, and the others. */
INLINE __m256i ints_pair_bytes(ints even, ints odd) {
    __m512i words = _mm512_mask_mov_epi16(even, 0xaaaaaaaa, _mm512_slli_epi32(odd, 16));
    return _mm512_cvtepi16_epi8(words);
}

/* Lane i of the result is the largest lane of the i-th vector. Each round folds vectors in halves
 * and joins two of them: rows 8 apart, then 4, 2 and 1. */
INLINE ints ints_largest_of_rows(const ints rows[LANES]) {
    const __m512i order = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
    __m512i a[8], b[4], c[2];
    UNROLL_FOR(i, 8) {
        __m512i x = rows[i], y = rows[i + 8];
        a[i] = _mm512_max_epi32(_mm512_shuffle_i32x4(x, y, 0x44), _mm512_shuffle_i32x4(x, y, 0xee));
    }
    UNROLL_FOR(i, 4) {
        __m512i x = a[i], y = a[i + 4];
        b[i] = _mm512_max_epi32(_mm512_shuffle_i32x4(x, y, 0x88), _mm512_shuffle_i32x4(x, y, 0xdd));
    }
    UNROLL_FOR(i, 2) {
        __m512i x = b[i], y = b[i + 2];
        c[i] = _mm512_max_epi32(_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y));
    }
    __m512 x = _mm512_castsi512_ps(c[0]), y = _mm512_castsi512_ps(c[1]);
    __m512i first = _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x88));
    __m512i last = _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xdd));
    return _mm512_permutexvar_epi32(order, _mm512_max_epi32(first, last));
}

/* 16 bytes each of rows i, i + 4, i + 8 and i + 12. */
INLINE __m512i bytes_of_four_rows(const uint8_t (*rows)[BLOCK]) {
    __m512i all = _mm512_castsi128_si512(_mm_load_si128((const __m128i *)rows[0]));
    all = _mm512_inserti32x4(all, _mm_load_si128((const __m128i *)rows[4]), 1);
    all = _mm512_inserti32x4(all, _mm_load_si128((const __m128i *)rows[8]), 2);
    return _mm512_inserti32x4(all, _mm_load_si128((const __m128i *)rows[12]), 3);
}

/* pack_bytes() for contiguous rows. The stores bypass the caches, which would first load the old
 * lines; _mm_sfence() completes them. */
INLINE void pack_block(uint8_t *codes, const uint8_t rows[LANES][BLOCK]) {
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    for (int half = 0; half < 2; half++) {
        const uint8_t(*at)[BLOCK] = (const uint8_t(*)[BLOCK])(rows[0] + 16 * half);
        __m512i a = bytes_of_four_rows(at), b = bytes_of_four_rows(at + 1);
        __m512i c = bytes_of_four_rows(at + 2), d = bytes_of_four_rows(at + 3);
        __m512i low[2] = {_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d)};
        __m512i high[2] = {_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d)};
        __m512i line[4] = {
            _mm512_unpacklo_epi64(low[0], low[1]), _mm512_unpackhi_epi64(low[0], low[1]),
            _mm512_unpacklo_epi64(high[0], high[1]), _mm512_unpackhi_epi64(high[0], high[1])};
        UNROLL_FOR(i, 4) {
            void *to = codes + 64 * (4 * half + i);
            _mm512_stream_si512(to, _mm512_xor_si512(line[i], sign));
        }
    }
}

#else

INLINE void vec16_load_brain_pairs(const uint8_t *p, vec16 *even, vec16 *odd) {
    const __m256i above = _mm256_set1_epi32((int)0xffff0000);
    __m256i low = _mm256_loadu_si256((const __m256i *)p);
    __m256i high = _mm256_loadu_si256((const __m256i *)(p + 32));
    *even = (vec16){_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)),
                    _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
    *odd = (vec16){_mm256_castsi256_ps(_mm256_and_si256(low, above)),
                   _mm256_castsi256_ps(_mm256_and_si256(high, above))};
}

INLINE __m256i ints_pair_bytes(ints even, ints odd) {
    __m256i low = _mm256_blend_epi16(even.low, _mm256_slli_epi32(odd.low, 16), 0xaa);
    __m256i high = _mm256_blend_epi16(even.high, _mm256_slli_epi32(odd.high, 16), 0xaa);
    return _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
}

INLINE ints ints_largest_of_rows(const ints rows[LANES]) {
    _Alignas(32) uint32_t most[LANES];
    for (int i = 0; i < LANES; i++) most[i] = ints_largest(rows[i]);
    return (ints){_mm256_load_si256((const __m256i *)most),
                  _mm256_load_si256((const __m256i *)(most + 8))};
}

INLINE void pack_block(uint8_t *codes, const uint8_t rows[LANES][BLOCK]) {
    pack_bytes(codes, rows[0], BLOCK);
}

#endif

#endif
