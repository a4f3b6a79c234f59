#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "scheduler/store/internal.h"

/* Nothing is written for this time after a write has failed. */
#define RETRY_NS (60 * 1000000000ull)

static void write_failed(struct prefix_store *store) {
    log_line(LOG_WARNING, "prefix store: %s cannot be written: %s; trying again in a minute",
             store->folder, strerror(errno));
    store->failed_ns = now_ns();
    store->writing = -1;
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

static void write_record(struct prefix_store *store, uint64_t slot) {
    uint8_t *record = store->queue + slot * store->record_bytes;
    const struct record_head *head = slot_head(store, slot);
    if (!prepare_segment(store)) return;
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
    store->stats.n_written++;
    pthread_mutex_unlock(&store->mutex);
    store->write_at += (int64_t)store->record_bytes;
}

static bool has_block(struct prefix_store *store, struct block_hash hash) {
    pthread_mutex_lock(&store->mutex);
    bool found = store_index_find(store, hash) != NULL;
    pthread_mutex_unlock(&store->mutex);
    return found;
}

void *writer_thread(void *arg) {
    struct prefix_store *store = arg;
    for (;;) {
        while (sem_wait(&store->filled) != 0) assert(errno == EINTR);
        uint64_t tail = atomic_load(&store->tail);
        if (tail == atomic_load(&store->head)) {
            assert(atomic_load(&store->stopping));
            return NULL;
        }
        uint64_t slot = tail % store->n_slots;
        const struct record_head *head = slot_head(store, slot);
        if (store->failed_ns && now_ns() - store->failed_ns > RETRY_NS) store->failed_ns = 0;
        if (!store->failed_ns && !has_block(store, head->hash)) write_record(store, slot);
        atomic_store(&store->tail, tail + 1);
    }
}
