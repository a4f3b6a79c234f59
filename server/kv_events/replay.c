#include <assert.h>
#include <string.h>

#include "server/kv_events/internal.h"

void replay_init(struct kept_batches *replay) {
    *replay = (struct kept_batches){.batch = mem_calloc(KEPT_BATCHES, sizeof *replay->batch),
                                    .data = mem_large(KEPT_BYTES)};
}

void replay_free(struct kept_batches *replay) {
    mem_free(replay->batch);
    if (replay->data) mem_large_free(replay->data, KEPT_BYTES);
}

const struct kept_batch *replay_at(const struct kept_batches *replay, int i) {
    assert(i >= 0 && i < replay->n);
    return &replay->batch[(replay->first + i) % KEPT_BATCHES];
}

static void drop_oldest(struct kept_batches *replay) {
    assert(replay->n > 0);
    replay->first = (replay->first + 1) % KEPT_BATCHES;
    replay->n--;
}

/* Drops the batches that have bytes in from..to-1. They are the oldest ones: batches follow one
 * another in `data`, which is used as a ring. */
static void make_space(struct kept_batches *replay, size_t from, size_t to) {
    while (replay->n > 0) {
        const struct kept_batch *oldest = replay_at(replay, 0);
        if (oldest->offset >= to || oldest->offset + oldest->length <= from) return;
        drop_oldest(replay);
    }
}

void replay_add(struct kept_batches *replay, uint64_t sequence, const char *data, size_t length) {
    assert(length > 0 && length <= KEPT_BYTES);
    assert(replay->n == 0 || replay_at(replay, replay->n - 1)->sequence + 1 == sequence);
    if (replay->n == KEPT_BATCHES) drop_oldest(replay);
    if (replay->end + length > KEPT_BYTES) { /* the rest of the memory stays unused */
        make_space(replay, replay->end, KEPT_BYTES);
        replay->end = 0;
    }
    make_space(replay, replay->end, replay->end + length);
    memcpy(replay->data + replay->end, data, length);
    replay->batch[(replay->first + replay->n++) % KEPT_BATCHES] =
        (struct kept_batch){sequence, replay->end, length};
    replay->end += length;
}

int replay_find(const struct kept_batches *replay, uint64_t sequence) {
    if (replay->n == 0) return 0;
    uint64_t oldest = replay_at(replay, 0)->sequence;
    if (sequence <= oldest) return 0;
    return sequence - oldest < (uint64_t)replay->n ? (int)(sequence - oldest) : replay->n;
}
