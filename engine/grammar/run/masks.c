/* The masks of an automaton's states; states with equal masks share one. A schema of 30 fields has
 * about 400 masks for 7,000 states. Guarded by the grammar's lock. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/run/automaton.h"

static uint32_t hash_bits(uint64_t of, const uint32_t *bits, size_t words) {
    uint64_t hash = of;
    for (size_t i = 0; i < words; i++) hash = (hash ^ bits[i]) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(hash >> 32);
}

static size_t bytes_of(size_t words) {
    return sizeof(struct mask) + words * sizeof(uint32_t);
}

static void grow_buckets(struct masks *masks) {
    uint32_t n = masks->n_buckets ? 2 * masks->n_buckets : 64;
    struct mask **buckets = mem_calloc(n, sizeof *buckets);
    for (uint32_t i = 0; i < masks->n_buckets; i++) {
        for (struct mask *m = masks->buckets[i], *next; m; m = next) {
            next = m->same_hash;
            m->same_hash = buckets[m->hash % n];
            buckets[m->hash % n] = m;
        }
    }
    mem_free(masks->buckets);
    masks->buckets = buckets;
    masks->n_buckets = n;
}

static struct mask *mask_new(uint64_t of, uint32_t hash, const uint32_t *bits, size_t words) {
    struct mask *mask = mem_alloc(bytes_of(words));
    *mask = (struct mask){.hash = hash, .of = of, .words = words};
    memcpy(mask->bits, bits, words * sizeof *bits);
    return mask;
}

struct mask *mask_share(struct automaton *a, uint64_t of, const uint32_t *bits, size_t words) {
    struct masks *masks = &a->masks;
    uint32_t hash = hash_bits(of, bits, words);
    if (masks->n >= masks->n_buckets) grow_buckets(masks);
    struct mask **bucket = &masks->buckets[hash % masks->n_buckets], *mask = *bucket;
    for (; mask; mask = mask->same_hash) {
        if (mask->hash == hash && mask->of == of && mask->words == words &&
            memcmp(mask->bits, bits, words * sizeof *bits) == 0)
            break;
    }
    if (!mask) {
        mask = mask_new(of, hash, bits, words);
        mask->same_hash = *bucket;
        *bucket = mask;
        masks->n++;
        masks->bytes += bytes_of(words);
        a->bytes += bytes_of(words);
    }
    mask->n_states++;
    return mask;
}

void mask_release(struct automaton *a, struct mask *mask) {
    struct masks *masks = &a->masks;
    if (!mask || --mask->n_states > 0) return;
    struct mask **at = &masks->buckets[mask->hash % masks->n_buckets];
    while (*at != mask) at = &(*at)->same_hash;
    *at = mask->same_hash;
    assert(masks->n > 0 && masks->bytes >= bytes_of(mask->words) && a->bytes >= masks->bytes);
    masks->n--;
    masks->bytes -= bytes_of(mask->words);
    a->bytes -= bytes_of(mask->words);
    mem_free(mask);
}
