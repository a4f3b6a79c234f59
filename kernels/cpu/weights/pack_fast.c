/* The fast packing of 16 rows of a file into a panel. For these types a few operations on whole
 * words turn the codes of a block into bytes. The rest is interleaving four bytes of each row: a
 * transposition of 32-bit words, which compilers turn into shuffles of any instruction set. Packing
 * row by row (pack.c) gives the same bytes and takes several times as long. */
#include <string.h>

#include "kernels/cpu/cpu.h"

typedef uint32_t word4 __attribute__((vector_size(16)));

enum { LINE = 4 * LANES };

static inline word4 load(const uint8_t *from) {
    word4 words;
    memcpy(&words, from, sizeof words);
    return words;
}

static inline uint32_t load_word(const uint8_t *from) {
    uint32_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

/* ---- a block of 16 rows --------------------------------------------------------------------- */

/* Writes four lines of a block from 16 bytes of each of 16 rows. */
static inline void transpose_rows(uint8_t *to, const word4 rows[LANES]) {
    for (int lane = 0; lane < LANES; lane += 4, to += 16) {
        word4 a = rows[lane], b = rows[lane + 1], c = rows[lane + 2], d = rows[lane + 3];
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
}

/* Writes four lines from the 16 bytes at `from` in each row, xor `flip`. */
static inline void transpose_bytes(uint8_t *to, const uint8_t *from, size_t row_bytes,
                                   uint32_t flip) {
    word4 rows[LANES];
    for (int lane = 0; lane < LANES; lane++, from += row_bytes) rows[lane] = load(from) ^ flip;
    transpose_rows(to, rows);
}

void pack_bytes(uint8_t *codes, const uint8_t *bytes, size_t row_bytes) {
    for (int i = 0; i < 2; i++)
        transpose_bytes(codes + 4 * i * LINE, bytes + 16 * i, row_bytes, 0x80808080);
}

/* Writes four lines from 32 bytes of each row, using their low or their high nibbles. The first
 * half gives the low nibbles of the lines, the second half the high ones. */
static inline void transpose_nibbles(uint8_t *to, const uint8_t *from, size_t row_bytes,
                                     bool high) {
    word4 rows[LANES];
    const uint32_t low_bits = 0x0f0f0f0f;
    for (int lane = 0; lane < LANES; lane++, from += row_bytes) {
        word4 a = load(from), b = load(from + 16);
        rows[lane] =
            high ? (a >> 4 & low_bits) | (b & ~low_bits) : (a & low_bits) | (b & low_bits) << 4;
    }
    transpose_rows(to, rows);
}

/* Writes half a word of each row. */
static inline void halves(uint8_t *to, const uint8_t *from, size_t row_bytes) {
    for (int lane = 0; lane < LANES; lane++, from += row_bytes) memcpy(to + 2 * lane, from, 2);
}

/* ---- 32 weights a block: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 --------------------------------------- */

/* Moves bit i of weight i to bit g of byte t, for weight 4g + t. */
static inline uint32_t gather_fifth_bits(uint32_t bits) {
    uint32_t all = 0;
    for (int t = 0; t < 4; t++) {
        uint32_t x = bits >> t & 0x11111111;
        x = (x | x >> 3) & 0x03030303;
        x = (x | x >> 6) & 0x000f000f;
        all |= ((x | x >> 12) & 0xff) << 8 * t;
    }
    return all;
}

static inline void fifth_line(uint8_t *to, const uint8_t *from, size_t row_bytes) {
    uint32_t line[LANES];
    for (int lane = 0; lane < LANES; lane++)
        line[lane] = load_word(from + (size_t)lane * row_bytes);
    for (int lane = 0; lane < LANES; lane++) line[lane] = gather_fifth_bits(line[lane]);
    memcpy(to, line, sizeof line);
}

static inline void simple_panel(uint8_t *codes, uint8_t *scales, const struct matrix *w,
                                const uint8_t *from, size_t row_bytes, const struct format format) {
    bool has_min = format.has_min, eight = format.bits == 8, five = format.bits == 5;
    size_t high_at = has_min ? 4 : 2, codes_at = high_at + (five ? 4 : 0);
    size_t block_bytes = codes_at + (eight ? 32 : 16);
    const uint8_t *next = from + LANES * row_bytes;
    for (int i = 0; i < w->n_blocks; i++, from += block_bytes, next += LANES * block_bytes) {
        /* The next panel's rows follow this one's. They are prefetched block by block, because the
         * processor does not recognise 16 interleaved rows as a stream. */
        for (size_t at = 0; at < LANES * block_bytes; at += 64) __builtin_prefetch(next + at);
        halves(scales, from, row_bytes);
        if (has_min) halves(scales + 2 * LANES, from + 2, row_bytes);
        if (eight)
            pack_bytes(codes, from + codes_at, row_bytes);
        else
            transpose_bytes(codes, from + codes_at, row_bytes, 0);
        if (five) fifth_line(codes + 4 * LINE, from + high_at, row_bytes);
        codes += w->code_bytes;
        scales += w->scale_bytes;
    }
}

/* ---- 256 weights in 8 blocks: Q4_K, Q5_K, Q6_K ---------------------------------------------- */

/* Packs `bits` bits of each byte, starting at `shift`, of `groups` words of each row into one
 * word. */
static inline void high_line(uint8_t *to, const uint8_t *from, size_t row_bytes, int shift,
                             int groups, int bits) {
    uint32_t line[LANES] = {0}, mask = bits == 1 ? 0x01010101 : 0x03030303;
    for (int lane = 0; lane < LANES; lane++, from += row_bytes) {
        for (int g = 0; g < groups; g++)
            line[lane] |= (load_word(from + 4 * g) >> shift & mask) << g * bits;
    }
    memcpy(to, line, sizeof line);
}

/* Two bytes per block and row: scale and minimum. */
static void k_scales(uint8_t *small, const uint8_t *from, size_t row_bytes) {
    for (int lane = 0; lane < LANES; lane++, from += row_bytes) {
        for (int i = 0; i < 8; i++) {
            uint8_t *to = small + i * 2 * LANES + lane;
            block_k_scales(from, i, &to[0], &to[LANES]);
        }
    }
}

static inline void k_panel(uint8_t *codes, uint8_t *scales, const struct matrix *w,
                           const uint8_t *from, size_t row_bytes, const struct format format) {
    bool five = format.bits == 5;
    size_t nibbles_at = five ? 48 : 16, block_bytes = nibbles_at + 128;
    for (int super = 0; super < w->n_blocks / 8; super++, from += block_bytes) {
        halves(scales, from, row_bytes);
        halves(scales + 2 * LANES, from + 2, row_bytes);
        k_scales(scales + 4 * LANES, from + 4, row_bytes);
        for (int i = 0; i < 8; i++, codes += w->code_bytes) {
            transpose_nibbles(codes, from + nibbles_at + i / 2 * 32, row_bytes, i % 2);
            if (five) high_line(codes + 4 * LINE, from + 16, row_bytes, i, 8, 1);
        }
        scales += w->scale_bytes;
    }
}

static void q6_k_panel(uint8_t *codes, uint8_t *scales, const struct matrix *w, const uint8_t *from,
                       size_t row_bytes) {
    for (int super = 0; super < w->n_blocks / 8; super++, from += 210) {
        halves(scales, from + 208, row_bytes);
        for (int i = 0; i < 8; i++, codes += w->code_bytes) {
            uint8_t *small = scales + 2 * LANES + i * 2 * LANES;
            for (size_t lane = 0; lane < LANES; lane++) {
                small[lane] = from[lane * row_bytes + 192 + 2 * (size_t)i];
                small[lane + LANES] = from[lane * row_bytes + 193 + 2 * (size_t)i];
            }
            transpose_nibbles(codes, from + i / 4 * 64 + i % 2 * 32, row_bytes, i % 4 / 2);
            const uint8_t *pairs = from + 128 + i / 4 * 32;
            high_line(codes + 4 * LINE, pairs, row_bytes, i % 4 * 2, 4, 2);
            high_line(codes + 5 * LINE, pairs + 16, row_bytes, i % 4 * 2, 4, 2);
        }
        scales += w->scale_bytes;
    }
}

/* ---- a panel -------------------------------------------------------------------------------- */

/* Returns false if the type's blocks of `bytes` bytes have another layout. */
static inline bool format_panel(uint8_t *codes, uint8_t *scales, const struct matrix *w,
                                const uint8_t *rows, size_t row_bytes, const int bytes,
                                const struct format format) {
    const bool four_or_five = format.bits == 4 || format.bits == 5;
    const int whole = format.bits == 8 ? 32 : format.bits == 5 ? 20 : 16;
    if (!format.super && (four_or_five || format.bits == 8) &&
        bytes == whole + (format.has_min ? 4 : 2))
        simple_panel(codes, scales, w, rows, row_bytes, format);
    else if (format.super && format.has_min && four_or_five && bytes == 16 + 8 * whole)
        k_panel(codes, scales, w, rows, row_bytes, format);
    else if (format.super && !format.has_min && format.bits == 6 && bytes == 210)
        q6_k_panel(codes, scales, w, rows, row_bytes);
    else
        return false;
    return true;
}

bool pack_panel(struct matrix *w, int panel, const uint8_t *rows, size_t row_bytes) {
    assert(panel >= 0 && panel < w->n_panels);
    if (matrix_is_float(w) || matrix_is_half(w)) return false;
    uint8_t *codes = (uint8_t *)matrix_codes(w, panel, 0);
    uint8_t *scales = (uint8_t *)matrix_scales(w, panel, 0);
    switch (w->type) {
#define ENTRY(TYPE, name, number, elements, bytes, ...)                                            \
    case DTYPE_##TYPE:                                                                             \
        return format_panel(codes, scales, w, rows, row_bytes, bytes,                              \
                            (struct format)FORMAT(__VA_ARGS__));
        QUANT_TYPES(ENTRY)
#undef ENTRY
    default:
        return false;
    }
}
