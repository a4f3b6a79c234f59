/* Keys of states: sequences of numbers in one array, found by their hash. */
#include "engine/grammar/build/keys.h"

#include <string.h>

static uint32_t hash_numbers(const uint32_t *numbers, uint32_t n) {
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < n; i++) hash = (hash ^ numbers[i]) * 16777619u, hash ^= hash >> 15;
    return hash;
}

static void grow_table(struct key_table *table) {
    table->max = table->max ? 2 * table->max : 64;
    table->keys = mem_realloc(table->keys, table->max * sizeof *table->keys);
    mem_free(table->buckets);
    table->n_buckets = 2 * table->max;
    table->buckets = mem_calloc(table->n_buckets, sizeof *table->buckets);
    for (uint32_t i = 0; i < table->n; i++) {
        uint32_t *bucket = &table->buckets[table->keys[i].hash & (table->n_buckets - 1)];
        table->keys[i].next = *bucket;
        *bucket = i + 1;
    }
}

static uint32_t add_numbers(struct key_table *table, const uint32_t *numbers, uint32_t n) {
    uint32_t at = table->n_numbers;
    if (at + n > table->max_numbers) {
        table->max_numbers = 2 * (at + n);
        table->numbers = mem_realloc(table->numbers, table->max_numbers * sizeof *table->numbers);
    }
    if (n) memcpy(table->numbers + at, numbers, n * sizeof *numbers);
    table->n_numbers += n;
    return at;
}

uint32_t key_place(struct key_table *table, const uint32_t *numbers, uint32_t n) {
    uint32_t hash = hash_numbers(numbers, n);
    if (table->n == table->max) grow_table(table);
    uint32_t *bucket = &table->buckets[hash & (table->n_buckets - 1)];
    for (uint32_t i = *bucket; i; i = table->keys[i - 1].next) {
        const struct dfa_key *key = &table->keys[i - 1];
        if (key->hash == hash && key->n == n &&
            (n == 0 || memcmp(table->numbers + key->at, numbers, n * sizeof *numbers) == 0))
            return i - 1;
    }
    table->keys[table->n] = (struct dfa_key){add_numbers(table, numbers, n), n, hash, *bucket};
    *bucket = ++table->n;
    return table->n - 1;
}

void key_table_free(struct key_table *table) {
    mem_free(table->keys);
    mem_free(table->numbers);
    mem_free(table->buckets);
    mem_free(table);
}
