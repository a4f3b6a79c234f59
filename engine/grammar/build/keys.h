/* A table from keys to states of a deterministic automaton. Private to engine/grammar/build. */
#ifndef PENSTOCK_GRAMMAR_KEYS_H
#define PENSTOCK_GRAMMAR_KEYS_H

#include "config/config.h"

/* A key is a sequence of `n` numbers. Its index is the index of its state.
 *
 * All zero: an empty table. The keys of a product of two automata are pairs of states; those of a
 * subset construction are sorted sets of nodes. */
struct key_table {
    struct dfa_key {
        /* at: offset in `numbers`; next: key of the same bucket, index + 1 */
        uint32_t at, n, hash, next;
    } * keys;
    uint32_t *numbers; /* of all keys, concatenated */
    uint32_t n, max, n_numbers, max_numbers, n_buckets, *buckets;
};

static inline const uint32_t *key_numbers(const struct key_table *table, uint32_t place) {
    return table->numbers + table->keys[place].at;
}

/* Returns the index of a key. Copies the numbers if the key is new. */
uint32_t key_place(struct key_table *table, const uint32_t *numbers, uint32_t n);

/* Frees a table from the heap. */
void key_table_free(struct key_table *table);

#endif
