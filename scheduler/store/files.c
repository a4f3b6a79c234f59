/* Records in the files of a folder. prefix_store.h describes them. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "scheduler/store/internal.h"

/* ---- writing: the writer thread -------------------------------------------------------------- */

/* Nothing is written for this time after a write has failed. */
#define RETRY_NS (60 * 1000000000ull)

static void write_failed(struct prefix_store *store) {
    log_line(LOG_WARNING, "prefix store: %s cannot be written: %s; trying again in a minute",
             store->place, strerror(errno));
    store->failed_ns = now_ns();
    store->writing = -1;
    store_count_error(store);
    store_count_drop(store, DROP_UNAVAILABLE);
}

/* Makes sure that another record fits into the segment that is being written. */
static bool prepare_segment(struct prefix_store *store) {
    int64_t record = (int64_t)store->record_bytes;
    bool starts = store->writing < 0 || store->write_at + record > store->segment_bytes;
    pthread_mutex_lock(&store->mutex);
    if (starts) store->writing = -1;
    bool fits = segments_make_room(store, record + (starts ? SEGMENT_HEAD : 0));
    pthread_mutex_unlock(&store->mutex);
    segments_unlink(store);
    if (!fits) store_count_drop(store, DROP_UNAVAILABLE);
    if (!fits) return false;
    if (!starts) return true;
    store->writing = store_segment_create(store);
    store->write_at = SEGMENT_HEAD;
    if (store->writing < 0) write_failed(store);
    return store->writing >= 0;
}

/* Writes all bytes. A short write is tried again: the next one gives the reason. */
static bool write_all(int fd, const uint8_t *data, size_t length, off_t at) {
    while (length > 0) {
        ssize_t n = pwrite(fd, data, length, at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data += n;
        at += n;
        length -= (size_t)n;
    }
    return true;
}

static void files_write(struct prefix_store *store, uint64_t slot) {
    uint8_t *record = store->queue + slot * store->record_bytes;
    const struct record_head *head = slot_head(store, slot);
    if (store->failed_ns && now_ns() - store->failed_ns > RETRY_NS) store->failed_ns = 0;
    if (store->failed_ns) store_count_drop(store, DROP_UNAVAILABLE);
    if (store->failed_ns || !prepare_segment(store)) return;
    struct segment *segment = &store->segment[store->writing];
    record_seal(store, record);
    if (!write_all(segment->fd, record, store->record_bytes, store->write_at)) {
        write_failed(store);
        return;
    }
    int number = (int)((store->write_at - SEGMENT_HEAD) / (int64_t)store->record_bytes);
    pthread_mutex_lock(&store->mutex);
    index_add(store, head->hash, store->writing, number, !store->evicted[slot]);
    segment->bytes += (int64_t)store->record_bytes;
    store->bytes += (int64_t)store->record_bytes;
    store_count_written(store);
    pthread_mutex_unlock(&store->mutex);
    store->write_at += (int64_t)store->record_bytes;
}

/* ---- reading: workers ------------------------------------------------------------------------ */

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
        bool skips = n == 0 && block->is_known;
        if (skips) *first = i + 1;
        int fd = skips ? -1 : segment_use(store, block->segment);
        if (!skips && fd < 0) break;
        if (!skips) wanted[n++] = (struct wanted){hash, parent, block->segment, block->record, fd};
        parent = hash;
    }
    pthread_mutex_unlock(&store->mutex);
    return n;
}

/* Reads one record and appends its content. */
static bool read_block(struct prefix_store *store, const struct wanted *wanted,
                       const int32_t *tokens, uint8_t *record, struct restored_blocks *blocks) {
    off_t at = SEGMENT_HEAD + (off_t)wanted->record * (off_t)store->record_bytes;
    size_t bytes = store->record_bytes;
    bool whole = pread(wanted->fd, record, bytes, at) == (ssize_t)bytes &&
                 stored_record_is(store, record, wanted->hash, wanted->parent, tokens);
    if (whole) {
        restored_blocks_add(blocks, record);
        return true;
    }
    pthread_mutex_lock(&store->mutex);
    struct stored_block *block = store_index_find(store, wanted->hash);
    if (block) block->record = -1;
    store->stats.dropped[DROP_DAMAGED]++;
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
    if (blocks->n > 0) store_count_read(store, blocks->n, now_ns() - began);
}

static struct restored_blocks *files_read(struct prefix_store *store, const int32_t *tokens,
                                          int n_blocks, double ns_per_token) {
    struct wanted *wanted = mem_try_calloc((size_t)n_blocks, sizeof *wanted);
    struct restored_blocks *blocks = NULL;
    int first = 0;
    if (!wanted) return NULL;
    int n = find_wanted(store, tokens, n_blocks, wanted, &first);
    if (n > 0 && !store_is_slow(store, n, ns_per_token))
        blocks = restored_blocks_new(store, first, n);
    if (blocks) {
        read_wanted(store, wanted, n, tokens, blocks);
        blocks = restored_blocks_end(blocks, n);
    }
    pthread_mutex_lock(&store->mutex);
    for (int i = 0; i < n; i++) segment_unuse(store, wanted[i].segment);
    store->stats.n_misses += (uint64_t)(n_blocks - first - (blocks ? blocks->n : 0));
    pthread_mutex_unlock(&store->mutex);
    mem_free(wanted);
    return blocks;
}

const struct store_backend store_in_files = {
    .open = segments_scan, .close = segments_close, .write = files_write, .read = files_read};
