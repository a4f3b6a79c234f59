#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "scheduler/store/internal.h"

size_t record_size(int block_size, size_t part_bytes) {
    size_t size = sizeof(struct record_head) + (size_t)block_size * sizeof(int32_t) + part_bytes;
    size_t unit = size < LARGE_RECORD ? SMALL_UNIT : DIRECT_UNIT;
    return (size + unit - 1) / unit * unit;
}

int32_t *record_tokens(uint8_t *record) {
    return (int32_t *)(void *)(record + sizeof(struct record_head));
}

size_t record_content_at(const struct prefix_store *store) {
    return sizeof(struct record_head) + (size_t)store->config.block_size * sizeof(int32_t);
}

static uint64_t head_sum_of(const struct prefix_store *store, const uint8_t *record) {
    size_t from = offsetof(struct record_head, part);
    return XXH3_64bits(record + from, record_content_at(store) - from);
}

static XXH128_hash_t sum_of(const struct prefix_store *store, enum cache_part part,
                            const uint8_t *record) {
    size_t from = offsetof(struct record_head, head_sum);
    return XXH3_128bits(record + from, store->part[part].record_bytes - from);
}

void record_seal(const struct prefix_store *store, uint8_t *record) {
    struct record_head *head = (struct record_head *)(void *)record;
    assert(head->part < N_CACHE_PARTS && store->part[head->part].is_used);
    head->magic = RECORD_MAGIC;
    head->head_sum = head_sum_of(store, record);
    XXH128_hash_t sum = sum_of(store, (enum cache_part)head->part, record);
    head->sum[0] = sum.low64;
    head->sum[1] = sum.high64;
}

bool record_head_is_whole(const struct prefix_store *store, enum cache_part part,
                          const uint8_t *record) {
    struct record_head head;
    memcpy(&head, record, sizeof head);
    return head.magic == RECORD_MAGIC && head.part == (uint64_t)part &&
           head.head_sum == head_sum_of(store, record);
}

static bool same_hash(struct block_hash a, struct block_hash b) {
    return a.low == b.low && a.high == b.high;
}

bool stored_record_is(const struct prefix_store *store, const struct prefix_read *read, int i,
                      const uint8_t *record) {
    const struct wanted_part *wanted = &read->wanted[i];
    size_t size = (size_t)store->config.block_size;
    struct record_head head;
    memcpy(&head, record, sizeof head);
    assert(i < read->n_wanted && store->part[wanted->part].is_used);
    XXH128_hash_t sum = sum_of(store, wanted->part, record);
    if (head.magic != RECORD_MAGIC || head.sum[0] != sum.low64 || head.sum[1] != sum.high64)
        return false;
    if (head.part != (uint64_t)wanted->part) return false;
    if (!same_hash(head.hash, read->hash[wanted->block + 1])) return false;
    if (!same_hash(head.parent, read->hash[wanted->block])) return false;
    return memcmp(record + sizeof head, read->tokens + (size_t)wanted->block * size,
                  size * sizeof *read->tokens) == 0;
}
