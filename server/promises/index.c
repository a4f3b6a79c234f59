/* The index of all promises in memory: three chained hash tables over the same entries. */
#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "server/promises/internal.h"

void index_open(struct promise_index *index) {
    index->n_buckets = JOURNAL_MAX_PROMISES;
    for (int i = 0; i < N_CHAINS; i++)
        index->bucket[i] = mem_calloc(index->n_buckets, sizeof *index->bucket[i]);
    list_init(&index->running);
    list_init(&index->finished);
}

static void remove_all(struct promise_index *index, struct list *list) {
    while (list_first(list))
        index_remove(index, list_entry(list_first(list), struct promise, node));
}

void index_close(struct promise_index *index) {
    remove_all(index, &index->running);
    remove_all(index, &index->finished);
    for (int i = 0; i < N_CHAINS; i++) mem_free(index->bucket[i]);
}

/* ---- names ---------------------------------------------------------------------------------- */

struct promise_name index_name(const void *key, size_t key_length, const char *text,
                               size_t length) {
    uint64_t seed = key_length > 0 ? XXH3_64bits(key, key_length) : 1;
    XXH128_hash_t hash = XXH3_128bits_withSeed(text, length, seed);
    return (struct promise_name){{hash.low64 | 1, hash.high64}};
}

static bool is_in_chain(struct promise_name name) {
    return name.half[0] != 0;
}

static bool is_same(struct promise_name a, struct promise_name b) {
    return a.half[0] == b.half[0] && a.half[1] == b.half[1];
}

static struct promise_name number_name(uint64_t number) {
    return index_name(NULL, 0, (const char *)&number, sizeof number);
}

static struct promise_name field_name(const struct record *record, enum record_field field) {
    const struct record_bytes *key = &record->field[RECORD_KEY], *text = &record->field[field];
    if (text->length == 0) return (struct promise_name){{0, 0}};
    return index_name(key->data, key->length, text->data, text->length);
}

struct promise *promise_new(const struct record *record) {
    struct promise *promise = mem_calloc(1, sizeof *promise);
    promise->kind = record->kind;
    promise->entry.number = record->promise;
    promise->entry.is_finished = record->kind == RECORD_ANSWER;
    promise->name[BY_NUMBER] = number_name(record->promise);
    if (record->kind == RECORD_REMOVED) return promise;
    if (record->flags & RECORD_STORED) promise->name[BY_ID] = field_name(record, RECORD_ID);
    promise->name[BY_IDEMPOTENCY] = field_name(record, RECORD_IDEMPOTENCY);
    return promise;
}

/* ---- chains --------------------------------------------------------------------------------- */

static struct promise **bucket_of(const struct promise_index *index, enum promise_chain chain,
                                  struct promise_name name) {
    return &index->bucket[chain][name.half[1] & (index->n_buckets - 1)];
}

struct promise *index_find(const struct promise_index *index, enum promise_chain chain,
                           struct promise_name name) {
    struct promise *promise = *bucket_of(index, chain, name);
    while (promise && !is_same(promise->name[chain], name)) promise = promise->next[chain];
    return promise;
}

static void chain_add(struct promise_index *index, struct promise *promise) {
    for (int i = 0; i < N_CHAINS; i++) {
        if (!is_in_chain(promise->name[i])) continue;
        struct promise **bucket = bucket_of(index, i, promise->name[i]);
        promise->next[i] = *bucket;
        *bucket = promise;
    }
}

static void chain_remove(struct promise_index *index, struct promise *promise) {
    for (int i = 0; i < N_CHAINS; i++) {
        if (!is_in_chain(promise->name[i])) continue;
        struct promise **at = bucket_of(index, i, promise->name[i]);
        while (*at != promise) {
            assert(*at);
            at = &(*at)->next[i];
        }
        *at = promise->next[i];
    }
}

void index_remove(struct promise_index *index, struct promise *promise) {
    chain_remove(index, promise);
    list_detach(&promise->node);
    mem_free(promise);
}

void index_apply(struct promise_index *index, struct promise *promise) {
    struct promise *old = index_find(index, BY_NUMBER, promise->name[BY_NUMBER]);
    bool is_kept = promise->kind != RECORD_REMOVED;
    if (old) index_remove(index, old);
    if (!is_kept) {
        mem_free(promise);
        return;
    }
    chain_add(index, promise);
    list_append(promise->entry.is_finished ? &index->finished : &index->running, &promise->node);
    assert(index_find(index, BY_NUMBER, promise->name[BY_NUMBER]) == promise);
}
