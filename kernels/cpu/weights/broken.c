/* Finds blocks whose scale or minimum is not finite, without reading their codes. */
#include <string.h>

#include "kernels/cpu/cpu.h"

/* The place of a scale in a block: a half, or a byte that is the exponent of a power of two. */
struct broken_place {
    int at;
    bool is_exponent;
};

enum { MAX_PLACES = 2 };

/* Writes the places of a type's scale and minimum. Returns their number. */
static int places_of(enum dtype type, struct broken_place out[MAX_PLACES]) {
    static const struct {
        enum dtype type;
        enum scales scales;
        int scale_at, min_at;
    } entries[] = {
#define ENTRY(TYPE, name, number, elements, bytes, bits, zero, has_min, super, halved, table,      \
              scales, scale_at, min_at, ...)                                                       \
    {DTYPE_##TYPE, scales, scale_at, min_at},
        QUANT_TYPES(ENTRY)
#undef ENTRY
        /* LOOKUP_TYPES */
        {DTYPE_IQ1_M, SCALES_HALF, 48, -1},
        {DTYPE_IQ1_S, SCALES_HALF, 0, -1},
        {DTYPE_IQ2_XXS, SCALES_HALF, 0, -1},
        {DTYPE_IQ2_XS, SCALES_HALF, 0, -1},
        {DTYPE_IQ2_S, SCALES_HALF, 0, -1},
        {DTYPE_IQ3_XXS, SCALES_HALF, 0, -1},
        {DTYPE_IQ3_S, SCALES_HALF, 0, -1},
    };
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        if (entries[i].type != type || entries[i].scales == SCALES_FLOAT) continue;
        out[0] = (struct broken_place){entries[i].scale_at, entries[i].scales == SCALES_BRAIN};
        out[1] = (struct broken_place){entries[i].min_at, false};
        return entries[i].min_at < 0 ? 1 : 2;
    }
    return 0;
}

static bool half_is_finite(const uint8_t *p) {
    return (p[1] & 0x7c) != 0x7c;
}

/* IQ1_M stores the nibbles of its scale at the tops of 4 words; the exponent is in the last two. */
static bool iq1_m_is_finite(const uint8_t *p) {
    const uint8_t half[2] = {0, (uint8_t)((p[55] & 0xf0) | p[53] >> 4)};
    return half_is_finite(half);
}

/* Returns the first of n blocks without a finite number at that place, or n. */
static size_t first_broken(enum dtype type, struct broken_place place, const uint8_t *p, size_t n) {
    size_t bytes = (size_t)dtype_block_bytes((int)type), i = 0;
    if (type == DTYPE_IQ1_M)
        while (i < n && iq1_m_is_finite(p + i * bytes)) i++;
    else if (place.is_exponent)
        while (i < n && p[i * bytes + (size_t)place.at] != 255) i++;
    else
        while (i < n && half_is_finite(p + i * bytes + place.at)) i++;
    return i;
}

size_t dtype_broken_block(enum dtype type, const void *data, size_t n) {
    struct broken_place place[MAX_PLACES];
    int places = places_of(type, place);
    for (int i = 0; i < places; i++) n = first_broken(type, place[i], data, n);
    return n;
}
