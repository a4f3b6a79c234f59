#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "scheduler/store/internal.h"

size_t record_size(int block_size, size_t block_bytes) {
    size_t size = sizeof(struct record_head) + (size_t)block_size * sizeof(int32_t) + block_bytes;
    return (size + 63) / 64 * 64;
}

int32_t *record_tokens(uint8_t *record) {
    return (int32_t *)(void *)(record + sizeof(struct record_head));
}

size_t record_content_at(const struct prefix_store *store) {
    return sizeof(struct record_head) + (size_t)store->config.block_size * sizeof(int32_t);
}

static uint64_t head_sum_of(const struct prefix_store *store, const uint8_t *record) {
    size_t from = offsetof(struct record_head, hash);
    size_t end = sizeof(struct record_head) + (size_t)store->config.block_size * sizeof(int32_t);
    return XXH3_64bits(record + from, end - from);
}

static XXH128_hash_t sum_of(const struct prefix_store *store, const uint8_t *record) {
    size_t from = offsetof(struct record_head, head_sum);
    return XXH3_128bits(record + from, store->record_bytes - from);
}

void record_seal(const struct prefix_store *store, uint8_t *record) {
    struct record_head *head = (struct record_head *)(void *)record;
    head->magic = RECORD_MAGIC;
    head->head_sum = head_sum_of(store, record);
    XXH128_hash_t sum = sum_of(store, record);
    head->sum[0] = sum.low64;
    head->sum[1] = sum.high64;
}

bool record_head_is_whole(const struct prefix_store *store, const uint8_t *record) {
    struct record_head head;
    memcpy(&head, record, sizeof head);
    return head.magic == RECORD_MAGIC && head.head_sum == head_sum_of(store, record);
}

static bool same_hash(struct block_hash a, struct block_hash b) {
    return a.low == b.low && a.high == b.high;
}

bool stored_record_is(const struct prefix_store *store, const uint8_t *record,
                      struct block_hash hash, struct block_hash parent, const int32_t *tokens) {
    struct record_head head;
    memcpy(&head, record, sizeof head);
    XXH128_hash_t sum = sum_of(store, record);
    if (head.magic != RECORD_MAGIC || head.sum[0] != sum.low64 || head.sum[1] != sum.high64)
        return false;
    if (!same_hash(head.hash, hash) || !same_hash(head.parent, parent)) return false;
    return memcmp(record + sizeof head, tokens,
                  (size_t)store->config.block_size * sizeof *tokens) == 0;
}
