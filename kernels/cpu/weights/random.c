/* Random weights, so that speed and memory can be measured from a model's shapes alone.
 *
 * A matrix consists of pieces of 8 weights, or of 8 bytes for types with blocks. Each piece is a
 * function of the seed and its index, so any thread on any device can make it. Float weights are
 * -127 to 127 times a power of two: the same numbers in every float type. Blocks are random bytes
 * except for their scales in half precision. These are powers of two, or chosen such that the mean
 * of the weights is about 0. The power is the one for which a row times K independent numbers of
 * size 1 has a size nearest to 1, so activations keep their size through all layers. */
#include <math.h>

#include "kernels/cpu/cpu.h"

/* In Q4_K, Q5_K and Q6_K the scales of sub-blocks are random too; the deviations account for this.
 */
static const struct random_kind {
    enum dtype type;
    int scale_at, min_at;
    double deviation, mean;
} kinds[] = {
#define ENTRY(TYPE, name, number, elements, bytes, bits, zero, has_min, super, halved, table,      \
              scales, ...)                                                                         \
    {DTYPE_##TYPE, __VA_ARGS__},
    WEIGHT_TYPES(ENTRY)
#undef ENTRY
};

void random_weights_plan(struct random_weights *out, enum dtype type, int K, uint64_t seed) {
    assert(K > 0);
    const struct random_kind *kind = kinds;
    while (kind->type != type) assert(kind < kinds + sizeof kinds / sizeof *kinds - 1), kind++;
    double unit = exp2(-round(log2(sqrt((double)K) * kind->deviation)));
    *out = (struct random_weights){.type = type,
                                   .seed = seed,
                                   .unit = (float)unit,
                                   .block_bytes = dtype_block_bytes(type),
                                   .scale_at = kind->scale_at,
                                   .min_at = kind->min_at,
                                   .scale_bytes = 2,
                                   .scale = float_to_half((float)unit),
                                   .min = float_to_half((float)(unit * kind->mean))};
    if (type == DTYPE_MXFP4) out->scale_bytes = 1, out->scale = (uint16_t)(128 + ilogb(unit));
    bool blocks = dtype_block_elements(type) > 1;
    out->piece_bytes = blocks ? 8 : 8 * dtype_block_bytes(type);
}

/* Element i of the sequence of SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t word_at(uint64_t seed, uint64_t i) {
    uint64_t x = seed + (i + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static void put_float(const struct random_weights *w, uint8_t *out, int j, int8_t code) {
    float value = (float)(code == -128 ? 0 : code) * w->unit;
    uint16_t half = float_to_half(value);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t brain = (uint16_t)(bits >> 16);
    if (w->type == DTYPE_F32)
        memcpy(out + 4 * j, &value, 4);
    else
        memcpy(out + 2 * j, w->type == DTYPE_F16 ? &half : &brain, 2);
}

static uint8_t block_byte(const struct random_weights *w, uint64_t at, uint8_t random) {
    int in_block = (int)(at % (uint64_t)w->block_bytes);
    if (w->scale_at >= 0 && in_block - w->scale_at >= 0 && in_block - w->scale_at < w->scale_bytes)
        return (uint8_t)(w->scale >> 8 * (in_block - w->scale_at));
    if (w->min_at >= 0 && in_block - w->min_at >= 0 && in_block - w->min_at < 2)
        return (uint8_t)(w->min >> 8 * (in_block - w->min_at));
    return random;
}

void random_weights_fill(const struct random_weights *w, void *data, size_t from, size_t to) {
    size_t each = (size_t)w->piece_bytes;
    assert(from <= to && from % each == 0);
    for (size_t at = from; at < to; at += each) {
        uint64_t word = word_at(w->seed, at / each);
        uint8_t piece[32];
        for (int j = 0; j < 8; j++, word >>= 8) {
            if (w->scale_at < 0)
                put_float(w, piece, j, (int8_t)(word & 255));
            else
                piece[j] = block_byte(w, at + (uint64_t)j, (uint8_t)(word & 255));
        }
        memcpy((uint8_t *)data + at, piece, to - at < each ? to - at : each);
    }
}

/* ---- the op --------------------------------------------------------------------------------- */

struct filling {
    const struct random_weights *weights;
    void *data;
    size_t bytes;
};
enum { PART_BYTES = 1 << 20 }; /* a whole number of pieces of every type */

static void fill_part(void *arg, int i) {
    const struct filling *filling = arg;
    size_t from = (size_t)i * PART_BYTES, left = filling->bytes - from;
    size_t to = from + (left < PART_BYTES ? left : PART_BYTES);
    random_weights_fill(filling->weights, filling->data, from, to);
}

enum status matrix_random(struct backend *b, struct matrix **out, enum dtype type, int N, int K,
                          uint64_t seed, enum matrix_form form, struct err *err) {
    struct random_weights weights;
    struct filling filling = {&weights, NULL, (size_t)N * dtype_bytes(type, (size_t)K)};
    random_weights_plan(&weights, type, K, seed);
    filling.data = mem_large(filling.bytes);
    b->device->parallel(b, fill_part, &filling,
                        (int)((filling.bytes + PART_BYTES - 1) / PART_BYTES));
    enum status status = b->memory->matrix_new(b, out, type, N, K, filling.data, form, err);
    mem_large_free(filling.data, filling.bytes);
    return status;
}
