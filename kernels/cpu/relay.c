/* The quick way from 16 rows of a file to a panel. All of these types keep the codes of a block in
 * bytes that need no more than a few operations on whole words; what is left is to put four bytes
 * of each row side by side: a transpose of 32-bit words, which compilers turn into shuffles of any
 * instruction set. Row by row (matrix.c) gives the same bytes and takes five times as long. */
#include <string.h>

#include "kernels/cpu/cpu.h"

typedef uint32_t word4 __attribute__((vector_size(16)));

enum { LINE = 4 * LANES };

/* ---- a block of 16 rows --------------------------------------------------------------------- */

/* Four lines of a block from 16 bytes of each of 4 rows. */
static inline void turn(uint8_t *to, word4 a, word4 b, word4 c, word4 d) {
    word4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    word4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    word4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    word4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    word4 line[4] = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                     __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                     __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                     __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
    for (int i = 0; i < 4; i++) memcpy(to + i * LINE, &line[i], sizeof line[i]);
}

static inline word4 load(const uint8_t *from) {
    word4 words;
    memcpy(&words, from, sizeof words);
    return words;
}

/* Four lines from the 16 bytes at `from` in each of 16 rows; the bits of `flip` change. */
static inline void turn_all(uint8_t *to, const uint8_t *from, size_t row_bytes, uint32_t flip) {
    word4 mask = {flip, flip, flip, flip};
    for (int lane = 0; lane < LANES; lane += 4, from += 4 * row_bytes)
        turn(to + 4 * lane, load(from) ^ mask, load(from + row_bytes) ^ mask,
             load(from + 2 * row_bytes) ^ mask, load(from + 3 * row_bytes) ^ mask);
}

/* Half a word of each row. */
static inline void halves(uint8_t *to, const uint8_t *from, size_t row_bytes) {
    for (int lane = 0; lane < LANES; lane++, from += row_bytes) memcpy(to + 2 * lane, from, 2);
}

/* The next panel's rows follow this one's: they are asked for block by block, because 16 rows read
 * side by side are no stream that a processor would see coming. */
static inline void prefetch(const uint8_t *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
}

/* ---- 32 weights a block: Q4_0, Q4_1, Q8_0 --------------------------------------------------- */

static inline void simple_panel(uint8_t *codes, uint8_t *scales, const struct matrix *w,
                                const uint8_t *from, size_t row_bytes, enum dtype type) {
    size_t codes_at = type == DTYPE_Q4_1 ? 4 : 2, block_bytes = codes_at + 16;
    uint32_t flip = type == DTYPE_Q8_0 ? 0x80808080 : 0;
    if (type == DTYPE_Q8_0) block_bytes += 16;
    const uint8_t *next = from + LANES * row_bytes;
    for (int i = 0; i < w->n_blocks; i++, from += block_bytes, next += LANES * block_bytes) {
        prefetch(next, LANES * block_bytes);
        halves(scales, from, row_bytes);
        if (type == DTYPE_Q4_1) halves(scales + 2 * LANES, from + 2, row_bytes);
        turn_all(codes, from + codes_at, row_bytes, flip);
        if (type == DTYPE_Q8_0) turn_all(codes + 4 * LINE, from + codes_at + 16, row_bytes, flip);
        codes += w->code_bytes;
        scales += w->scale_bytes;
    }
}

bool relay_whole_panel(struct matrix *w, int panel, const uint8_t *rows, size_t row_bytes) {
    if (matrix_is_float(w)) return false;
    uint8_t *codes = (uint8_t *)matrix_codes(w, panel, 0);
    uint8_t *scales = (uint8_t *)matrix_scales(w, panel, 0);
    switch (w->type) {
    case DTYPE_Q4_0:
        simple_panel(codes, scales, w, rows, row_bytes, DTYPE_Q4_0);
        return true;
    case DTYPE_Q4_1:
        simple_panel(codes, scales, w, rows, row_bytes, DTYPE_Q4_1);
        return true;
    case DTYPE_Q8_0:
        simple_panel(codes, scales, w, rows, row_bytes, DTYPE_Q8_0);
        return true;
    default:
        return false;
    }
}
