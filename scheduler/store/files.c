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

static void close_direct(struct part_store *of) {
    if (of->direct_fd >= 0) close(of->direct_fd);
    of->direct_fd = -1;
}

static void write_failed(struct prefix_store *store, struct part_store *of) {
    log_line(LOG_WARNING, "prefix store: %s cannot be written: %s; trying again in a minute",
             store->place, strerror(errno));
    store->failed_ns = now_ns();
    of->writing = -1;
    close_direct(of);
    store_count_error(store);
    store_count_drop(store, DROP_UNAVAILABLE);
}

/* Makes sure that another record fits into the segment of the part that is being written. */
static bool prepare_segment(struct prefix_store *store, enum cache_part part) {
    struct part_store *of = &store->part[part];
    int64_t record = (int64_t)of->record_bytes;
    bool starts = of->writing < 0 || of->write_at + record > of->segment_bytes;
    if (starts) close_direct(of);
    pthread_mutex_lock(&store->mutex);
    if (starts) of->writing = -1;
    bool fits = segments_make_room(store, record + (starts ? SEGMENT_HEAD : 0));
    pthread_mutex_unlock(&store->mutex);
    segments_unlink(store);
    if (!fits) store_count_drop(store, DROP_UNAVAILABLE);
    if (!fits) return false;
    if (!starts) return true;
    of->writing = store_segment_create(store, part);
    of->write_at = SEGMENT_HEAD;
    if (of->writing < 0) write_failed(store, of);
    if (of->writing >= 0) of->direct_fd = store_segment_open_direct(store, part, of->writing);
    return of->writing >= 0;
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

/* Is the queue long enough for writes to the page cache? A long prompt queues many blocks at once,
 * and a full queue drops records. */
enum { MOST_WAITING = 4 };
static bool is_behind(const struct part_store *of) {
    return atomic_load(&of->head) - atomic_load(&of->tail) > MOST_WAITING;
}

/* Writes a record at the segment's end. Direct I/O copies nothing to the page cache, and takes a
 * fifth of the processor time, but waits for the disk. A disk with units larger than a page refuses
 * it with EINVAL. */
static bool append_record(struct part_store *of, int fd, const uint8_t *record) {
    const bool is_direct = of->direct_fd >= 0 && !is_behind(of);
    assert(of->direct_fd < 0 || of->write_at % DIRECT_UNIT == 0);
    if (of->direct_fd >= 0 && !is_direct)
        return write_all(fd, record, of->record_bytes, of->write_at);
    if (is_direct && write_all(of->direct_fd, record, of->record_bytes, of->write_at)) return true;
    if (is_direct && errno != EINVAL) return false;
    close_direct(of);
    return write_all(fd, record, of->record_bytes, of->write_at);
}

static void files_write(struct prefix_store *store, enum cache_part part, uint64_t slot) {
    struct part_store *of = &store->part[part];
    uint8_t *record = of->queue + slot * of->record_bytes;
    if (store->failed_ns && now_ns() - store->failed_ns > RETRY_NS) store->failed_ns = 0;
    if (store->failed_ns) store_count_drop(store, DROP_UNAVAILABLE);
    if (store->failed_ns || !prepare_segment(store, part)) return;
    struct segment *segment = &store->segment[of->writing];
    record_seal(store, record);
    if (!append_record(of, segment->fd, record)) {
        write_failed(store, of);
        return;
    }
    int number = (int)((of->write_at - SEGMENT_HEAD) / (int64_t)of->record_bytes);
    pthread_mutex_lock(&store->mutex);
    index_set_stored(store, part, slot_head(of, slot)->hash, of->writing, number);
    segment->bytes += (int64_t)of->record_bytes;
    store->bytes += (int64_t)of->record_bytes;
    store_count_written(store, part);
    pthread_mutex_unlock(&store->mutex);
    of->write_at += (int64_t)of->record_bytes;
}

/* ---- reading: workers ------------------------------------------------------------------------ */

static bool files_find(struct prefix_store *store, struct prefix_read *read) {
    pthread_mutex_lock(&store->mutex);
    for (int i = 0; i < read->n_blocks; i++)
        for (enum cache_part part = 0; part < N_CACHE_PARTS; part++)
            if (store_index_find(store, part, read->hash[i + 1]))
                read->flags[i].stored |= (uint8_t)(1 << part);
    pthread_mutex_unlock(&store->mutex);
    return true;
}

/* A record, in use. */
struct record_place {
    int segment, record, fd;
};

/* Takes the file of a record into use. Returns false if the record is gone. */
static bool use_record(struct prefix_store *store, enum cache_part part, struct block_hash hash,
                       struct record_place *place) {
    *place = (struct record_place){.fd = -1};
    pthread_mutex_lock(&store->mutex);
    const struct stored_part *stored = store_index_find(store, part, hash);
    if (stored)
        *place = (struct record_place){stored->segment, stored->record,
                                       segment_use(store, stored->segment)};
    pthread_mutex_unlock(&store->mutex);
    return place->fd >= 0;
}

/* Ends the use. A record that is not whole is not read again. */
static void unuse_record(struct prefix_store *store, enum cache_part part, struct block_hash hash,
                         const struct record_place *place, bool whole) {
    pthread_mutex_lock(&store->mutex);
    segment_unuse(store, place->segment);
    const struct stored_part *stored = store_index_find(store, part, hash);
    bool is_it = stored && stored->segment == place->segment && stored->record == place->record;
    if (!whole && is_it) index_set_stored(store, part, hash, place->segment, -1);
    store->stats.dropped[DROP_DAMAGED] += !whole;
    pthread_mutex_unlock(&store->mutex);
}

/* Reads the record of the next wanted part, and appends its content if it is whole. */
static bool read_next(struct prefix_store *store, const struct prefix_read *read, uint8_t *record,
                      struct restored_prefix *prefix) {
    int i = prefix->n_parts;
    const struct wanted_part *wanted = &read->wanted[i];
    struct block_hash hash = read->hash[wanted->block + 1];
    struct record_place place;
    size_t bytes = store->part[wanted->part].record_bytes;
    if (!use_record(store, wanted->part, hash, &place)) return false;
    off_t at = SEGMENT_HEAD + (off_t)place.record * (off_t)bytes;
    bool whole = pread(place.fd, record, bytes, at) == (ssize_t)bytes &&
                 stored_record_is(store, read, i, record);
    if (whole) restored_prefix_add(prefix, read, record);
    unuse_record(store, wanted->part, hash, &place, whole);
    return whole;
}

static void files_get(struct prefix_store *store, struct prefix_read *read,
                      struct restored_prefix *prefix) {
    uint64_t began = now_ns();
    size_t largest = 0, bytes = 0;
    for (int i = 0; i < read->n_wanted; i++) {
        size_t of_part = store->part[read->wanted[i].part].record_bytes;
        largest = of_part > largest ? of_part : largest;
    }
    uint8_t *record = mem_try_alloc(largest);
    while (record && prefix->n_parts < read->n_wanted && read_next(store, read, record, prefix))
        bytes += store->part[read->wanted[prefix->n_parts - 1].part].record_bytes;
    mem_free(record);
    assert(prefix->n_parts <= read->n_wanted);
    if (bytes > 0) store_count_read(store, bytes, now_ns() - began);
}

static void files_close(struct prefix_store *store) {
    for (enum cache_part part = 0; part < N_CACHE_PARTS; part++) close_direct(&store->part[part]);
    segments_close(store);
}

const struct store_backend store_in_files = {.open = segments_scan,
                                             .close = files_close,
                                             .write = files_write,
                                             .find = files_find,
                                             .get = files_get};
