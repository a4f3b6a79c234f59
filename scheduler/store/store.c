#include <assert.h>
#include <string.h>
#include <unistd.h>

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

enum status prefix_store_open(struct prefix_store **out, const struct prefix_store_config *config,
                              struct err *err) {
    size_t record = record_size(config->block_size, config->block_bytes);
    *out = NULL;
    assert(config->block_bytes > 0);
    if (config->max_bytes < 2 * (int64_t)(record + SEGMENT_HEAD))
        return err_set(err, STATUS_USAGE, NULL,
                       "--prefix-store-size must be at least %lld: two blocks of this model",
                       2 * (long long)(record + SEGMENT_HEAD));
    struct prefix_store *store = mem_calloc(1, sizeof *store);
    store->config = *config;
    store->folder = mem_strdup(config->folder);
    store->record_bytes = record;
    store->writing = -1;
    set_sizes(store);
    pthread_mutex_init(&store->mutex, NULL);
    sem_init(&store->filled, 0, 0);
    index_init(store, (size_t)(config->max_bytes / (int64_t)record));
    store->evicted = mem_calloc((size_t)store->n_slots, sizeof *store->evicted);
    store->queue = mem_large((size_t)store->n_slots * record);
    enum status status = segments_scan(store, err);
    if (status == STATUS_OK && pthread_create(&store->thread, NULL, writer_thread, store) != 0)
        status = err_set(err, STATUS_SYSTEM, NULL, "The thread of --prefix-store cannot start.");
    if (status == STATUS_OK) {
        *out = store;
        return STATUS_OK;
    }
    atomic_store(&store->stopping, true);
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
    segments_close(store);
    sem_destroy(&store->filled);
    pthread_mutex_destroy(&store->mutex);
    mem_large_free(store->queue, (size_t)store->n_slots * store->record_bytes);
    mem_free(store->evicted);
    mem_free(store->index);
    mem_free(store->spare);
    mem_free(store->folder);
    mem_free(store);
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
    if (block)
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
    store->stats.n_skipped += is_full;
    if (!is_stored && !is_full) store->evicted[head % store->n_slots] = false;
    pthread_mutex_unlock(&store->mutex);
    if (is_stored || is_full) return NULL;
    uint8_t *record = store->queue + head % store->n_slots * store->record_bytes;
    struct record_head *at = (struct record_head *)(void *)record;
    *at = (struct record_head){.hash = hash, .parent = parent};
    memcpy(record_tokens(record), tokens, (size_t)store->config.block_size * sizeof *tokens);
    return record_content(store, record);
}

void prefix_store_put(struct prefix_store *store) {
    assert(atomic_load(&store->head) - atomic_load(&store->tail) < store->n_slots);
    atomic_fetch_add(&store->head, 1);
    sem_post(&store->filled);
}

/* ---- workers --------------------------------------------------------------------------------- */

/* A record of a prompt's block, in use. */
struct wanted {
    struct block_hash hash, parent;
    int segment, record, fd;
};

/* Finds the stored blocks of a prompt from the first that the pool does not know. Takes the files
 * into use. Returns their number. */
static int find_wanted(struct prefix_store *store, const int32_t *tokens, int n_blocks,
                       struct wanted *wanted, int *first) {
    struct block_hash parent = {0};
    int size = store->config.block_size, n = 0;
    pthread_mutex_lock(&store->mutex);
    for (int i = 0; i < n_blocks; i++) {
        struct block_hash hash = prefix_hash(parent, tokens + i * size, size);
        const struct stored_block *block = store_index_find(store, hash);
        if (!block) break;
        if (n == 0) *first = i;
        bool skips = n == 0 && block->is_known;
        int fd = skips ? -1 : segment_use(store, block->segment);
        if (!skips && fd < 0) break;
        if (!skips) wanted[n++] = (struct wanted){hash, parent, block->segment, block->record, fd};
        parent = hash;
    }
    pthread_mutex_unlock(&store->mutex);
    return n;
}

/* Is reading `bytes` expected to take longer than computing the tokens? */
static bool is_slow(struct prefix_store *store, size_t bytes, double compute_ns) {
    pthread_mutex_lock(&store->mutex);
    bool slow = compute_ns > 0 && store->ns_per_byte * (double)bytes > compute_ns;
    if (slow && ++store->n_refusals >= TRIES_AGAIN) slow = false;
    if (!slow) store->n_refusals = 0;
    pthread_mutex_unlock(&store->mutex);
    return slow;
}

/* Reads one record and appends its content. */
static bool read_block(struct prefix_store *store, const struct wanted *wanted,
                       const int32_t *tokens, uint8_t *record, struct restored_blocks *blocks) {
    off_t at = SEGMENT_HEAD + (off_t)wanted->record * (off_t)store->record_bytes;
    size_t bytes = store->record_bytes;
    bool whole = pread(wanted->fd, record, bytes, at) == (ssize_t)bytes &&
                 stored_record_is(store, record, wanted->hash, wanted->parent, tokens);
    if (whole) {
        memcpy(blocks->data + (size_t)blocks->n++ * blocks->block_bytes,
               record_content(store, record), blocks->block_bytes);
        return true;
    }
    pthread_mutex_lock(&store->mutex);
    struct stored_block *block = store_index_find(store, wanted->hash);
    if (block) block->record = -1;
    store->stats.n_bad++;
    pthread_mutex_unlock(&store->mutex);
    return false;
}

static void read_wanted(struct prefix_store *store, const struct wanted *wanted, int n,
                        const int32_t *tokens, struct restored_blocks *blocks) {
    uint64_t began = now_ns();
    uint8_t *record = mem_try_alloc(store->record_bytes);
    int size = store->config.block_size;
    for (int i = 0; record && i < n; i++)
        if (!read_block(store, &wanted[i], tokens + (blocks->first + i) * size, record, blocks))
            break;
    mem_free(record);
    if (blocks->n == 0) return;
    double each = (double)(now_ns() - began) / ((double)blocks->n * (double)store->record_bytes);
    pthread_mutex_lock(&store->mutex);
    store->ns_per_byte = store->ns_per_byte > 0 ? 0.75 * store->ns_per_byte + 0.25 * each : each;
    store->stats.n_read += (uint64_t)blocks->n;
    pthread_mutex_unlock(&store->mutex);
}

/* Returns memory for n blocks, or NULL if it is short or too much is in use. */
static struct restored_blocks *blocks_new(struct prefix_store *store, int first, int n) {
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

/* `n` becomes the number of blocks that were read, and the memory of the others is not counted. */
static struct restored_blocks *blocks_end(struct restored_blocks *blocks, int n) {
    struct prefix_store *store = blocks->store;
    atomic_fetch_sub(&store->reading_bytes, (size_t)(n - blocks->n) * blocks->block_bytes);
    if (blocks->n > 0) return blocks;
    restored_blocks_free(blocks);
    return NULL;
}

struct restored_blocks *prefix_store_read(struct prefix_store *store, const int32_t *tokens,
                                          int n_tokens, double ns_per_token) {
    int size = store->config.block_size, n_blocks = n_tokens / size, first = 0;
    struct restored_blocks *blocks = NULL;
    struct wanted *wanted = n_blocks > 0 ? mem_try_calloc((size_t)n_blocks, sizeof *wanted) : NULL;
    if (!wanted) return NULL;
    int n = find_wanted(store, tokens, n_blocks, wanted, &first);
    double compute_ns = ns_per_token * (double)n * (double)size;
    if (n > 0 && !is_slow(store, (size_t)n * store->record_bytes, compute_ns))
        blocks = blocks_new(store, first, n);
    if (blocks) {
        read_wanted(store, wanted, n, tokens, blocks);
        blocks = blocks_end(blocks, n);
    }
    pthread_mutex_lock(&store->mutex);
    for (int i = 0; i < n; i++) segment_unuse(store, wanted[i].segment);
    pthread_mutex_unlock(&store->mutex);
    mem_free(wanted);
    return blocks;
}

void restored_blocks_free(struct restored_blocks *blocks) {
    if (!blocks) return;
    atomic_fetch_sub(&blocks->store->reading_bytes, (size_t)blocks->n * blocks->block_bytes);
    mem_free(blocks->data);
    mem_free(blocks);
}
