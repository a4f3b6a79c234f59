/* kernels/cpu/kv: the paged key-value cache, and what attention over a chunk of it is given. */
#ifndef PENSTOCK_KERNELS_CPU_KV_H
#define PENSTOCK_KERNELS_CPU_KV_H

#include "kernels/cpu/order.h"
#include "kernels/kernels.h"

/* Keys stand with their positions side by side, so that a lane is a position; values with a head's
 * numbers side by side. 64 bytes follow the keys, as a vector may read past the last position.
 * One head's part of a block:
 *
 *   float16, float32   keys [D][B], values [B][D_padded]
 *   int16, q8_0        codes in pairs, which one instruction multiplies and adds: keys
 *                      [D_padded/2][B][2] and values [B/2][D_padded][2] (a pair is two positions);
 *                      then the scales [n_scales][B], floats: a number is scale * code */
/* Layers whose blocks are alike: they have the same heads, and window blocks or not. */
struct kv_kind {
    int G, D, B;
    int D_padded; /* D rounded up to 16: the length of a value */
    bool coded;   /* integer codes and scales */
    int n_scales; /* of a head: one for each SCALED numbers; 0 for float types */
    size_t element_bytes;
    size_t head_key_codes, head_value_codes; /* bytes before the scales */
    size_t head_key_bytes, head_value_bytes; /* of one head's part of a block */
    size_t key_bytes, value_bytes;           /* of one block of one layer */
    bool has_window;
    int n_blocks;
    size_t L; /* layers of this kind */
    size_t keys_bytes, values_bytes;
    uint8_t *keys;   /* [n_blocks / KV_SLAB][L][KV_SLAB][G] */
    uint8_t *values; /* the same */
};

struct kv_cache {
    struct kv_config config;
    int n_kinds;
    struct kv_kind kind[MAX_KV_KINDS];
    struct kv_layer *layer; /* [L] */
};

/* Where a layer's blocks are: its kind, and its place among the layers of that. */
struct kv_layer {
    int kind, place;
};

/* Blocks whose memory lies together in all layers. The scheduler takes the lowest blocks first, so
 * the system gives memory as sequences come to need it, and a lightly used server stays small. */
enum { KV_SLAB = 8 };

/* Codes of keys and values go up to KEPT_CODES (127 in one byte), those of queries and of weights
 * over values up to USED_CODES: a sum of SCALED products stays below 2^31. */
enum { SCALED = 64, KEPT_CODES = 8191, USED_CODES = 4095 };

static inline const struct kv_kind *kv_kind(const struct kv_cache *cache, int layer) {
    return &cache->kind[cache->layer[layer].kind];
}

/* A step's table and slots as a kind of layers has them. */
static inline const int32_t *kv_table(const struct kv_kind *kv, const struct step *step) {
    return kv->has_window ? step->window_table : step->table;
}

static inline const int32_t *kv_slots(const struct kv_kind *kv, const struct step *step) {
    return kv->has_window ? step->window_slot : step->slot;
}

/* A block of the layer at a place, counted among those of the kind. */
static inline size_t kv_block(const struct kv_kind *kv, int place, int block) {
    size_t slab = (size_t)(block / KV_SLAB);
    return (slab * kv->L + (size_t)place) * KV_SLAB + (size_t)(block % KV_SLAB);
}

static inline uint8_t *kv_keys(const struct kv_kind *kv, int place, int block) {
    return kv->keys + kv_block(kv, place, block) * kv->key_bytes;
}

static inline uint8_t *kv_values(const struct kv_kind *kv, int place, int block) {
    return kv->values + kv_block(kv, place, block) * kv->value_bytes;
}

/* One head's part of those. */
static inline uint8_t *kv_head_keys(const struct kv_kind *kv, int place, int block, int g) {
    return kv_keys(kv, place, block) + (size_t)g * kv->head_key_bytes;
}

static inline uint8_t *kv_head_values(const struct kv_kind *kv, int place, int block, int g) {
    return kv_values(kv, place, block) + (size_t)g * kv->head_value_bytes;
}

/* Query vectors that read the same key-value head, with one chunk of the context. Query i sees the
 * positions begin[i] .. end[i] - 1 of the chunk; if there are none, its part is left as it is. Both
 * bounds rise with i, and nothing outside all of them is looked at. Out come each query's largest
 * score, the sum of its exponentials and the sum of values weighted by them. */
struct attend {
    const struct kv_kind *kv;
    int place, head;                  /* the layer's; key-value head */
    const int32_t *table;             /* of the sequence */
    int start;                        /* first position of the chunk, a multiple of CHUNK */
    int n;                            /* queries, at most QUERIES */
    const float *q[QUERIES];          /* [D] */
    int begin[QUERIES], end[QUERIES]; /* 0..CHUNK */
    float scale, cap;                 /* as of struct attention */
    float *scores;                    /* scratch [QUERIES][CHUNK + 2 * LANES] */
    int16_t *codes;                   /* scratch [QUERIES][D_padded] */
    float *scales;                    /* scratch [QUERIES][n_scales] */
    float *part[QUERIES];             /* out: [PART_VALUES + D_padded] */
};

enum { SCORE_STRIDE = CHUNK + 2 * LANES };

/* What a part holds: the largest score, the sum of exp(score - largest), and from PART_VALUES on,
 * aligned, the sum of values times those. */
enum { PART_MAX = 0, PART_SUM = 1, PART_VALUES = LANES };

#endif
