#include <assert.h>
#include <errno.h>
#include <string.h>

#include "config/config.h"
#include "scheduler/store/internal.h"

#define QUEUE_BYTES ((size_t)64 << 20)
#define MAX_READING ((size_t)512 << 20) /* memory of all blocks that are read and not restored */
enum { MIN_SLOTS = 4, MAX_SLOTS = 256, SEGMENTS_OF_LIMIT = 16 };
enum { TRIES_AGAIN = 16 }; /* of so many reads that seem slow, one is measured */

/* ---- opening --------------------------------------------------------------------------------- */

static void set_sizes(struct prefix_store *store) {
    int64_t record = (int64_t)store->record_bytes, limit = store->config.max_bytes;
    int64_t segment = limit / SEGMENTS_OF_LIMIT;
    if (segment < SEGMENT_HEAD + record) segment = SEGMENT_HEAD + record;
    if (segment > (int64_t)1 << 30) segment = (int64_t)1 << 30;
    store->segment_bytes = segment;
    store->n_slots = QUEUE_BYTES / store->record_bytes;
    if (store->n_slots < MIN_SLOTS) store->n_slots = MIN_SLOTS;
    if (store->n_slots > MAX_SLOTS) store->n_slots = MAX_SLOTS;
}

/* Records are written by one thread, in the order of the queue. A record whose block is stored by
 * now is not written. */
static void write_next(struct prefix_store *store, uint64_t tail) {
    uint64_t slot = tail % store->n_slots;
    pthread_mutex_lock(&store->mutex);
    bool is_stored = store_index_find(store, slot_head(store, slot)->hash) != NULL;
    pthread_mutex_unlock(&store->mutex);
    if (!is_stored) store->backend->write(store, slot);
    atomic_store(&store->tail, tail + 1);
}

static void *writer_thread(void *arg) {
    struct prefix_store *store = arg;
    for (;;) {
        while (sem_wait(&store->filled) != 0) assert(errno == EINTR);
        uint64_t tail = atomic_load(&store->tail);
        if (store->backend->tend && !atomic_load(&store->stopping)) store->backend->tend(store);
        if (tail != atomic_load(&store->head))
            write_next(store, tail);
        else if (atomic_load(&store->stopping))
            return NULL;
    }
}

static void allocate(struct prefix_store *store) {
    const struct prefix_store_config *config = &store->config;
    size_t n = store->backend->has_known
                   ? 2 * (size_t)config->n_blocks
                   : (size_t)(config->max_bytes / (int64_t)store->record_bytes);
    set_sizes(store);
    index_init(store, n);
    store->evicted = mem_calloc((size_t)store->n_slots, sizeof *store->evicted);
    store->queue = mem_large((size_t)store->n_slots * store->record_bytes);
}

enum status prefix_store_open(struct prefix_store **out, const struct prefix_store_config *config,
                              struct err *err) {
    size_t record = record_size(config->block_size, config->block_bytes);
    bool is_redis = store_is_redis(config->place);
    *out = NULL;
    assert(config->block_bytes > 0 && config->n_blocks > 0);
    if (!is_redis && config->max_bytes < 2 * (int64_t)(record + SEGMENT_HEAD))
        return err_set(err, STATUS_USAGE, NULL,
                       "--prefix-store-size must be at least %lld: two blocks of this model",
                       2 * (long long)(record + SEGMENT_HEAD));
    struct prefix_store *store = mem_calloc(1, sizeof *store);
    store->backend = is_redis ? &store_in_redis : &store_in_files;
    store->config = *config;
    store->place = mem_strdup(config->place);
    store->record_bytes = record;
    store->writing = -1;
    store->stats.is_up = true;
    pthread_mutex_init(&store->mutex, NULL);
    sem_init(&store->filled, 0, 0);
    allocate(store);
    enum status status = store->backend->open(store, err);
    if (status == STATUS_OK && pthread_create(&store->thread, NULL, writer_thread, store) != 0)
        status = err_set(err, STATUS_SYSTEM, NULL, "The thread of --prefix-store cannot start.");
    if (status == STATUS_OK) {
        *out = store;
        return STATUS_OK;
    }
    store->thread = pthread_self();
    prefix_store_close(store);
    return status;
}

void prefix_store_close(struct prefix_store *store) {
    if (!store) return;
    bool runs = !pthread_equal(store->thread, pthread_self());
    assert(atomic_load(&store->reading_bytes) == 0);
    atomic_store(&store->stopping, true);
    sem_post(&store->filled);
    if (runs) pthread_join(store->thread, NULL);
    store->backend->close(store);
    sem_destroy(&store->filled);
    pthread_mutex_destroy(&store->mutex);
    mem_large_free(store->queue, (size_t)store->n_slots * store->record_bytes);
    mem_free(store->evicted);
    mem_free(store->index);
    mem_free(store->spare);
    mem_free(store->place);
    mem_free(store);
}

const char *prefix_store_name(const struct prefix_store *store) {
    return store->place;
}

void prefix_store_stats(struct prefix_store *store, struct prefix_store_stats *out) {
    pthread_mutex_lock(&store->mutex);
    *out = store->stats;
    out->n_blocks = store->n_indexed;
    out->n_bytes = store->bytes;
    pthread_mutex_unlock(&store->mutex);
}

size_t prefix_store_memory(const struct prefix_store *store) {
    return (size_t)store->n_slots * store->record_bytes;
}

/* ---- engine thread --------------------------------------------------------------------------- */

/* A block that is still in the queue was evicted. */
static void note_evicted_slot(struct prefix_store *store, struct block_hash hash) {
    uint64_t head = atomic_load(&store->head);
    for (uint64_t i = atomic_load(&store->tail); i < head; i++) {
        uint64_t slot = i % store->n_slots;
        const struct record_head *at = slot_head(store, slot);
        if (at->hash.low == hash.low && at->hash.high == hash.high) store->evicted[slot] = true;
    }
}

void prefix_store_note(struct prefix_store *store, struct block_hash hash, bool is_known) {
    pthread_mutex_lock(&store->mutex);
    struct stored_block *block = store_index_find(store, hash);
    if (store->backend->has_known)
        index_note(store, hash, is_known);
    else if (block)
        block->is_known = is_known;
    else if (!is_known)
        note_evicted_slot(store, hash);
    pthread_mutex_unlock(&store->mutex);
}

void *prefix_store_reserve(struct prefix_store *store, struct block_hash hash,
                           struct block_hash parent, const int32_t *tokens) {
    uint64_t head = atomic_load(&store->head);
    pthread_mutex_lock(&store->mutex);
    bool is_stored = store_index_find(store, hash) != NULL;
    bool is_full = !is_stored && head - atomic_load(&store->tail) == store->n_slots;
    store->stats.dropped[DROP_QUEUE_FULL] += is_full;
    if (!is_stored && !is_full) store->evicted[head % store->n_slots] = false;
    pthread_mutex_unlock(&store->mutex);
    if (is_stored || is_full) return NULL;
    uint8_t *record = store->queue + head % store->n_slots * store->record_bytes;
    struct record_head *at = (struct record_head *)(void *)record;
    *at = (struct record_head){.hash = hash, .parent = parent};
    memcpy(record_tokens(record), tokens, (size_t)store->config.block_size * sizeof *tokens);
    return record + record_content_at(store);
}

void prefix_store_put(struct prefix_store *store) {
    assert(atomic_load(&store->head) - atomic_load(&store->tail) < store->n_slots);
    atomic_fetch_add(&store->head, 1);
    sem_post(&store->filled);
}

/* ---- counts: any thread ---------------------------------------------------------------------- */

void store_count_misses(struct prefix_store *store, int n) {
    pthread_mutex_lock(&store->mutex);
    store->stats.n_misses += (uint64_t)n;
    pthread_mutex_unlock(&store->mutex);
}

void store_count_drop(struct prefix_store *store, enum store_drop reason) {
    pthread_mutex_lock(&store->mutex);
    store->stats.dropped[reason]++;
    pthread_mutex_unlock(&store->mutex);
}

void store_count_error(struct prefix_store *store) {
    pthread_mutex_lock(&store->mutex);
    store->stats.n_errors++;
    store->stats.is_up = false;
    pthread_mutex_unlock(&store->mutex);
}

void store_count_written(struct prefix_store *store) {
    store->stats.n_written++;
    store->stats.bytes_written += store->record_bytes;
    store->stats.is_up = true;
}

void store_count_read(struct prefix_store *store, int n, uint64_t ns) {
    uint64_t bytes = (uint64_t)n * store->record_bytes;
    double each = (double)ns / (double)bytes;
    assert(n > 0);
    pthread_mutex_lock(&store->mutex);
    store->ns_per_byte = store->ns_per_byte > 0 ? 0.75 * store->ns_per_byte + 0.25 * each : each;
    store->stats.n_hits += (uint64_t)n;
    store->stats.bytes_read += bytes;
    pthread_mutex_unlock(&store->mutex);
}

/* ---- workers --------------------------------------------------------------------------------- */

bool store_is_slow(struct prefix_store *store, int n, double ns_per_token) {
    double bytes = (double)n * (double)store->record_bytes;
    double compute_ns = ns_per_token * (double)n * (double)store->config.block_size;
    pthread_mutex_lock(&store->mutex);
    bool slow = compute_ns > 0 && store->ask_ns + store->ns_per_byte * bytes > compute_ns;
    if (slow && ++store->n_refusals >= TRIES_AGAIN) slow = false;
    if (!slow) store->n_refusals = 0;
    pthread_mutex_unlock(&store->mutex);
    return slow;
}

struct restored_blocks *restored_blocks_new(struct prefix_store *store, int first, int n) {
    size_t bytes = (size_t)n * store->config.block_bytes;
    if (atomic_fetch_add(&store->reading_bytes, bytes) + bytes <= MAX_READING) {
        struct restored_blocks *blocks = mem_try_calloc(1, sizeof *blocks);
        uint8_t *data = blocks ? mem_try_alloc(bytes) : NULL;
        if (data) {
            *blocks = (struct restored_blocks){store, first, 0, store->config.block_bytes, data};
            return blocks;
        }
        mem_free(blocks);
    }
    atomic_fetch_sub(&store->reading_bytes, bytes);
    return NULL;
}

void restored_blocks_add(struct restored_blocks *blocks, const uint8_t *record) {
    const struct prefix_store *store = blocks->store;
    memcpy(blocks->data + (size_t)blocks->n++ * blocks->block_bytes,
           record + record_content_at(store), blocks->block_bytes);
}

struct restored_blocks *restored_blocks_end(struct restored_blocks *blocks, int n) {
    struct prefix_store *store = blocks->store;
    assert(blocks->n <= n);
    atomic_fetch_sub(&store->reading_bytes, (size_t)(n - blocks->n) * blocks->block_bytes);
    if (blocks->n > 0) return blocks;
    restored_blocks_free(blocks);
    return NULL;
}

struct restored_blocks *prefix_store_read(struct prefix_store *store, const int32_t *tokens,
                                          int n_tokens, double ns_per_token) {
    int n_blocks = n_tokens / store->config.block_size;
    return n_blocks > 0 ? store->backend->read(store, tokens, n_blocks, ns_per_token) : NULL;
}

void restored_blocks_free(struct restored_blocks *blocks) {
    if (!blocks) return;
    atomic_fetch_sub(&blocks->store->reading_bytes, (size_t)blocks->n * blocks->block_bytes);
    mem_free(blocks->data);
    mem_free(blocks);
}
