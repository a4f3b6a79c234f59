#include <assert.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "server/kv_events/internal.h"

/* Bytes of MessagePack, at most: a token or hash with its type, an event without these, and the
 * batch around the events. */
enum { TOKEN_BYTES = 5, HASH_BYTES = 9, EVENT_BYTES = 256, BATCH_BYTES = 64 };

#define MEDIUM "GPU" /* vLLM's name for the memory in which attention reads blocks */
#define SPEC_KIND "full_attention"

void event_batch_init(struct event_batch *batch, const struct event_ring *ring) {
    size_t block = (size_t)ring->block_size * TOKEN_BYTES + HASH_BYTES + EVENT_BYTES;
    *batch = (struct event_batch){.ring = ring, .capacity = BATCH_BLOCKS * block + BATCH_BYTES};
    assert(batch->capacity <= KEPT_BYTES);
    batch->order = mem_calloc((size_t)ring->capacity, sizeof *batch->order);
    batch->data = mem_alloc(batch->capacity);
}

void event_batch_free(struct event_batch *batch) {
    mem_free(batch->order);
    mem_free(batch->data);
}

/* ---- order ---------------------------------------------------------------------------------- */

/* By ids: a parent becomes known before its children. */
static int by_id(const void *a, const void *b, void *ring) {
    uint64_t first = event_ring_at(ring, *(const uint64_t *)a)->id;
    uint64_t second = event_ring_at(ring, *(const uint64_t *)b)->id;
    return (first > second) - (first < second);
}

void event_batch_order(struct event_batch *batch, uint64_t n) {
    assert(n <= batch->ring->capacity);
    for (uint64_t i = 0; i < n; i++) batch->order[i] = i;
    for (uint64_t i = 0; i < n; i++) {
        const struct block_event *event = event_ring_at(batch->ring, i);
        if (event->change != BLOCKS_CLEARED) continue;
        assert(i + (uint64_t)event->n_known < n);
        qsort_r(batch->order + i + 1, (size_t)event->n_known, sizeof *batch->order, by_id,
                (void *)(uintptr_t)batch->ring);
    }
}

/* ---- runs ----------------------------------------------------------------------------------- */

static const struct block_event *event_of(const struct event_batch *batch, uint64_t i) {
    return event_ring_at(batch->ring, batch->order[i]);
}

/* Can the event be in one run with the event before it? */
static bool continues(const struct block_event *before, const struct block_event *event) {
    if (before->change != event->change) return false;
    if (event->change == BLOCK_STORED) return event->has_parent && event->parent == before->hash;
    return event->change == BLOCK_REMOVED;
}

/* Divides the events into runs. Returns the number of events that fit. */
static uint64_t find_runs(struct event_batch *batch, uint64_t from, uint64_t n) {
    uint64_t end = n - from > BATCH_BLOCKS ? from + BATCH_BLOCKS : n;
    batch->n_runs = 0;
    for (uint64_t i = from; i < end; i++) {
        const struct block_event *event = event_of(batch, i);
        if (i > from && continues(event_of(batch, i - 1), event)) {
            batch->run[batch->n_runs - 1].n++;
        } else {
            batch->run[batch->n_runs++] =
                (struct event_run){.change = event->change, .first = i, .n = 1};
        }
    }
    assert(batch->n_runs > 0 && batch->n_runs <= BATCH_BLOCKS);
    return end - from;
}

/* ---- MessagePack ---------------------------------------------------------------------------- */

static int batch_write(void *arg, const char *bytes, size_t length) {
    struct event_batch *batch = arg;
    assert(length <= batch->capacity - batch->length);
    memcpy(batch->data + batch->length, bytes, length);
    batch->length += length;
    return 0;
}

static void pack_text(msgpack_packer *to, const char *text) {
    msgpack_pack_str(to, strlen(text));
    msgpack_pack_str_body(to, text, strlen(text));
}

static void pack_hashes(msgpack_packer *to, const struct event_batch *batch,
                        const struct event_run *run) {
    pack_text(to, "block_hashes");
    msgpack_pack_array(to, (size_t)run->n);
    for (int i = 0; i < run->n; i++)
        msgpack_pack_uint64(to, event_of(batch, run->first + (uint64_t)i)->hash);
}

static void pack_tokens(msgpack_packer *to, const struct event_batch *batch,
                        const struct event_run *run) {
    int size = batch->ring->block_size;
    pack_text(to, "token_ids");
    msgpack_pack_array(to, (size_t)run->n * (size_t)size);
    for (int i = 0; i < run->n; i++) {
        const int32_t *tokens =
            event_ring_tokens(batch->ring, batch->order[run->first + (uint64_t)i]);
        for (int k = 0; k < size; k++) msgpack_pack_int32(to, tokens[k]);
    }
}

/* The 2 members that are the same for all events of blocks. */
static void pack_place(msgpack_packer *to) {
    pack_text(to, "medium");
    pack_text(to, MEDIUM);
    pack_text(to, "group_idx");
    msgpack_pack_int(to, 0);
}

/* vLLM's fields for adapters and salts are nil: blocks with a salt, also those of adapters, are not
 * reported. */
static void pack_stored(msgpack_packer *to, const struct event_batch *batch,
                        const struct event_run *run) {
    const struct block_event *first = event_of(batch, run->first);
    msgpack_pack_map(to, 11);
    pack_text(to, "type");
    pack_text(to, "BlockStored");
    pack_hashes(to, batch, run);
    pack_text(to, "parent_block_hash");
    if (first->has_parent)
        msgpack_pack_uint64(to, first->parent);
    else
        msgpack_pack_nil(to);
    pack_tokens(to, batch, run);
    pack_text(to, "block_size");
    msgpack_pack_int(to, batch->ring->block_size);
    pack_text(to, "lora_id");
    msgpack_pack_nil(to);
    pack_text(to, "lora_name");
    msgpack_pack_nil(to);
    pack_text(to, "extra_keys");
    msgpack_pack_nil(to);
    pack_place(to);
    pack_text(to, "kv_cache_spec_kind");
    pack_text(to, SPEC_KIND);
}

static void pack_removed(msgpack_packer *to, const struct event_batch *batch,
                         const struct event_run *run) {
    msgpack_pack_map(to, 4);
    pack_text(to, "type");
    pack_text(to, "BlockRemoved");
    pack_hashes(to, batch, run);
    pack_place(to);
}

static void pack_cleared(msgpack_packer *to) {
    msgpack_pack_map(to, 1);
    pack_text(to, "type");
    pack_text(to, "AllBlocksCleared");
}

static void pack_run(msgpack_packer *to, const struct event_batch *batch,
                     const struct event_run *run) {
    switch (run->change) {
    case BLOCK_STORED:
        pack_stored(to, batch, run);
        break;
    case BLOCK_REMOVED:
        pack_removed(to, batch, run);
        break;
    case BLOCKS_CLEARED:
        pack_cleared(to);
        break;
    }
}

static void pack_batch(struct event_batch *batch, double time) {
    msgpack_packer to;
    batch->length = 0;
    msgpack_packer_init(&to, batch, batch_write);
    msgpack_pack_array(&to, 3);
    msgpack_pack_double(&to, time);
    msgpack_pack_array(&to, (size_t)batch->n_runs);
    for (int i = 0; i < batch->n_runs; i++) pack_run(&to, batch, &batch->run[i]);
    msgpack_pack_int(&to, 0); /* the rank of data parallelism */
}

uint64_t event_batch_make(struct event_batch *batch, uint64_t from, uint64_t n, double time) {
    assert(from < n);
    uint64_t made = find_runs(batch, from, n);
    pack_batch(batch, time);
    return made;
}

void event_batch_make_cleared(struct event_batch *batch, double time) {
    batch->run[0] = (struct event_run){.change = BLOCKS_CLEARED};
    batch->n_runs = 1;
    pack_batch(batch, time);
}
