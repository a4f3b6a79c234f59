/* kernels/cpu/kv: the paged KV cache, and the arguments of attention over one chunk of it. */
#ifndef PENSTOCK_KERNELS_CPU_KV_H
#define PENSTOCK_KERNELS_CPU_KV_H

#include <assert.h>

#include "kernels/cpu/order.h"
#include "kernels/kernels.h"

/* In keys, positions are contiguous, so a lane is a position. In values, the numbers of a head are
 * contiguous. 64 bytes of padding follow the keys, because a vector may read past the last
 * position. The layout of one head's part of a block:
 *
 *   float16, float32   keys [D][B], values [B][D_padded]
 *   int16, q8_0        codes in pairs, for an instruction that multiplies and adds pairs: keys
 *                      [D_padded/2][B][2] and values [B/2][D_padded][2] (a pair is two positions);
 *                      then the scales [n_scales][B], floats: a number is scale * code
 *
 * In a kind that shares, values are the first D_value numbers of the keys and take no memory. A
 * number and its code are the same as key and as value. */
/* A group of layers with equal heads and the same kind of blocks. */
struct kv_kind {
    int G, D, B;
    bool shares;                 /* values are a part of the keys */
    int D_padded;                /* D rounded up to 16 */
    int D_value, D_value_padded; /* the size of a value, and the length of a value row */
    bool coded;                  /* integer codes with scales */
    int n_scales;                /* scales per key: one per SCALED numbers; 0 for float types */
    int n_value_scales;
    size_t element_bytes;
    size_t head_key_codes, head_value_codes; /* bytes of the codes, before the scales */
    size_t head_key_bytes, head_value_bytes; /* one head's part of a block */
    size_t key_bytes, value_bytes;           /* one block of one layer */
    bool has_window;
    int n_blocks;
    size_t L; /* number of layers of this kind */
    size_t keys_bytes, values_bytes;
    uint8_t *keys;   /* [n_blocks / KV_SLAB][L][KV_SLAB][G] */
    uint8_t *values; /* the same */
};

struct kv_cache {
    struct kv_config config;
    int n_kinds;
    struct kv_kind kind[MAX_KV_KINDS];
    struct kv_layer *layer; /* [L] */
    size_t state_bytes;     /* of all states */
    float *states;          /* [n_states][state_layers][state_floats]; NULL: there are none */
};

/* The kind of a layer, and its index among the layers of that kind. */
struct kv_layer {
    int kind, place;
};

/* Returns the end of the rows from `row` on that an op of recurrent layers computes in one go: up
 * to `end`, or to a row after which the state is copied (step->state_after). */
static inline int state_rows_end(const struct step *step, int row, int end) {
    assert(row < end);
    if (!step->state_after) return end;
    while (row < end - 1 && step->state_after[row] < 0) row++;
    return row + 1;
}

/* A sequence's numbers in one recurrent layer. */
static inline float *kv_state(const struct kv_cache *cache, int state, int layer) {
    const struct kv_config *c = &cache->config;
    assert(state >= 0 && state < c->n_states && layer >= 0 && layer < c->state_layers);
    const size_t at = (size_t)state * (size_t)c->state_layers + (size_t)layer;
    return cache->states + at * (size_t)c->state_floats;
}

/* Number of blocks whose memory is adjacent across all layers. The scheduler takes the lowest free
 * blocks first, so the system provides memory on demand and a lightly used server stays small. */
enum { KV_SLAB = 8 };

/* The maximum codes of keys and values (127 in one byte), and the maximum codes of queries and
 * softmax weights: a sum of SCALED products stays below 2^31. */
enum { SCALED = 64, KEPT_CODES = 8191, USED_CODES = 4095 };

static inline const struct kv_kind *kv_kind(const struct kv_cache *cache, int layer) {
    return &cache->kind[cache->layer[layer].kind];
}

/* The block table and slots of a step for a kind of layers. */
static inline const int32_t *kv_table(const struct kv_kind *kv, const struct step *step) {
    return kv->has_window ? step->window_table : step->table;
}

static inline const int32_t *kv_slots(const struct kv_kind *kv, const struct step *step) {
    return kv->has_window ? step->window_slot : step->slot;
}

/* The index of a block of a layer among all blocks of its kind. */
static inline size_t kv_block(const struct kv_kind *kv, int place, int block) {
    size_t slab = (size_t)(block / KV_SLAB);
    return (slab * kv->L + (size_t)place) * KV_SLAB + (size_t)(block % KV_SLAB);
}

static inline uint8_t *kv_keys(const struct kv_kind *kv, int place, int block) {
    return kv->keys + kv_block(kv, place, block) * kv->key_bytes;
}

static inline uint8_t *kv_values(const struct kv_kind *kv, int place, int block) {
    assert(!kv->shares);
    return kv->values + kv_block(kv, place, block) * kv->value_bytes;
}

/* One head's part of a block. */
static inline uint8_t *kv_head_keys(const struct kv_kind *kv, int place, int block, int g) {
    return kv_keys(kv, place, block) + (size_t)g * kv->head_key_bytes;
}

static inline uint8_t *kv_head_values(const struct kv_kind *kv, int place, int block, int g) {
    return kv_values(kv, place, block) + (size_t)g * kv->head_value_bytes;
}

/* Rows of one key-value head that a step writes to adjacent positions of a block. Each row's keys
 * and values become codes or floats of the kind; number d of row r is k[r * stride + d]. */
struct kv_rows {
    const struct kv_kind *kv;
    uint8_t *keys;      /* the head's part of the block */
    uint8_t *values;    /* the same; NULL in a kind that shares */
    int offset, n;      /* positions offset..offset + n - 1; n is 1..MAX_KV_ROWS */
    const float *k, *v; /* [n][D] */
    size_t stride;      /* floats from a row to the next */
};

enum { MAX_KV_ROWS = LANES };

/* Query vectors that read the same key-value head over one chunk of the context. Query i sees
 * positions begin[i] .. end[i] - 1 of the chunk; if this range is empty, its part is unchanged.
 * Both bounds rise with i, and positions outside all ranges are not read. The results per query are
 * the largest score, the sum of the exponentials, and the sum of the values weighted by them. */
struct attend {
    const struct kv_kind *kv;
    int place, head;                  /* index of the layer within its kind; key-value head */
    const int32_t *table;             /* the sequence's block table */
    int start;                        /* first position of the chunk, a multiple of CHUNK */
    int n;                            /* number of queries, at most QUERIES */
    const float *q[QUERIES];          /* [D] */
    int begin[QUERIES], end[QUERIES]; /* 0..CHUNK */
    float scale, cap;                 /* from struct attention */
    int position[QUERIES];            /* of the query's row */
    float slope[QUERIES];             /* of its head in struct attention; 0: none */
    float *scores;                    /* scratch [QUERIES][CHUNK + 2 * LANES] */
    /* The queries as codes, which path->attend_begin writes for all chunks of a task. */
    int16_t *codes;       /* [QUERIES][D_padded] */
    float *scales;        /* [QUERIES][n_scales] */
    uint8_t *staged;      /* scratch for values of a kind that shares: [CHUNK][D_value_padded] */
    float *part[QUERIES]; /* out: [PART_VALUES + D_value_padded] */
};

enum { SCORE_STRIDE = CHUNK + 2 * LANES };

/* The layout of a part: the largest score, the sum of exp(score - largest), and from the aligned
 * offset PART_VALUES the sum of the values times these exponentials. */
enum { PART_MAX = 0, PART_SUM = 1, PART_VALUES = LANES };

#endif
