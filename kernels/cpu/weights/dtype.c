/* The types of weights: names, sizes, and half precision. */
#include <string.h>

#include "kernels/cpu/cpu.h"

struct dtype_entry {
    int dtype;
    const char *name;
    int elements, bytes; /* of one block */
};

static const struct dtype_entry entries[] = {
#define ENTRY(TYPE, name, number, elements, bytes, ...) {number, #name, elements, bytes},
    WEIGHT_TYPES(ENTRY) LOOKUP_TYPES(ENTRY)
#undef ENTRY
};

static const struct dtype_entry *entry_of(int dtype) {
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (entries[i].dtype == dtype) return &entries[i];
    return NULL;
}

const char *dtype_name(int dtype) {
    const struct dtype_entry *entry = entry_of(dtype);
    return entry ? entry->name : NULL;
}

int dtype_block_elements(int dtype) {
    const struct dtype_entry *entry = entry_of(dtype);
    return entry ? entry->elements : 0;
}

int dtype_block_bytes(int dtype) {
    const struct dtype_entry *entry = entry_of(dtype);
    return entry ? entry->bytes : 0;
}

size_t dtype_bytes(enum dtype dtype, size_t n) {
    const struct dtype_entry *entry = entry_of(dtype);
    assert(entry && n % (size_t)entry->elements == 0);
    return n / (size_t)entry->elements * (size_t)entry->bytes;
}

/* ---- half precision: 1 sign, 5 exponent (bias 15), 10 fraction bits (IEEE 754-2008, binary16)  */

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 31, fraction = half & 0x3ff;
    if (exponent == 31) { /* infinity; a NaN is made quiet, as the machine's instruction does */
        uint32_t quiet = fraction ? 0x400000 : 0;
        return float_of_bits(sign | 0x7f800000 | quiet | fraction << 13);
    }
    if (exponent == 0) { /* subnormal: fraction * 2^-24, exact in float */
        float value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Removes the low `drop` bits of `n`, rounding to the nearest, ties to even. */
static uint32_t shift_rounded(uint32_t n, unsigned drop) {
    uint32_t half = 1u << (drop - 1), rest = n & ((1u << drop) - 1), kept = n >> drop;
    return kept + (rest > half || (rest == half && (kept & 1)));
}

uint16_t float_to_half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t magnitude = bits & 0x7fffffff;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000) return sign | 0x7e00 | (magnitude >> 13 & 0x3ff);
    if (magnitude >= 0x477ff000) return sign | 0x7c00; /* 65520 and above rounds to infinity */
    if (magnitude < 0x33000000) return sign;           /* below 2^-25: zero */
    uint32_t exponent = magnitude >> 23;
    if (exponent >= 113) /* normal; a carry out of the fraction increments the exponent correctly */
        return (uint16_t)(sign | shift_rounded(magnitude - (112u << 23), 13));
    uint32_t fraction = (magnitude & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | shift_rounded(fraction, 126 - exponent));
}
