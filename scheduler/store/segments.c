#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "config/config.h"
#include "scheduler/store/internal.h"

#define SEGMENT_ENDING ".segment"

static int64_t clock_ns(struct timespec at) {
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

struct segment_head store_segment_head(const struct prefix_store *store, enum cache_part part) {
    struct segment_head head = {.magic = SEGMENT_MAGIC,
                                .identity = {store->config.identity[0], store->config.identity[1]},
                                .part = (uint64_t)part,
                                .block_size = (uint64_t)store->config.block_size,
                                .part_bytes = store->config.part_bytes[part],
                                .record_bytes = store->part[part].record_bytes};
    head.sum = XXH3_64bits(&head, offsetof(struct segment_head, sum));
    return head;
}

static void segment_path(const struct prefix_store *store, const char *name, struct buf *out) {
    buf_clear(out);
    buf_printf(out, "%s/%s", store->place, name);
}

/* ---- reading the folder ---------------------------------------------------------------------- */

/* Adds the whole records of a segment to the index. */
static void index_segment(struct prefix_store *store, int segment, enum cache_part part) {
    const struct segment *of = &store->segment[segment];
    size_t bytes = record_content_at(store), each = store->part[part].record_bytes;
    uint8_t *record = mem_alloc(bytes);
    int64_t n = (of->bytes - SEGMENT_HEAD) / (int64_t)each;
    for (int64_t i = 0; i < n && i < INT32_MAX; i++) {
        off_t at = SEGMENT_HEAD + i * (off_t)each;
        if (pread(of->fd, record, bytes, at) != (ssize_t)bytes) break;
        if (!record_head_is_whole(store, part, record)) {
            store->stats.dropped[DROP_DAMAGED]++;
            continue;
        }
        struct record_head head;
        memcpy(&head, record, sizeof head);
        index_set_stored(store, part, head.hash, segment, (int)i);
    }
    mem_free(record);
}

/* Returns the part of a segment with this server's identity, or N_CACHE_PARTS. */
static enum cache_part part_of_segment(const struct prefix_store *store, int fd) {
    struct segment_head head;
    enum cache_part part = PART_BLOCK;
    if (pread(fd, &head, sizeof head, 0) != sizeof head) return N_CACHE_PARTS;
    for (; part < N_CACHE_PARTS; part++) {
        const struct segment_head own = store_segment_head(store, part);
        if (store->part[part].is_used && memcmp(&head, &own, sizeof head) == 0) break;
    }
    return part;
}

/* Opens a segment. Its fd stays open if it has records of this server's identity. */
static void scan_segment(struct prefix_store *store, const char *name) {
    struct buf path = {0};
    struct stat file;
    struct segment *segment = &store->segment[store->n_segments];
    segment_path(store, name, &path);
    int fd = open(path.data, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    buf_free(&path);
    if (fd < 0) return; /* another process has removed it */
    if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) {
        close(fd);
        return;
    }
    *segment = (struct segment){.fd = fd, .bytes = file.st_size, .order = clock_ns(file.st_mtim)};
    assert(strlen(name) < sizeof segment->name); /* is_segment */
    memcpy(segment->name, name, strlen(name) + 1);
    store->bytes += segment->bytes;
    store->n_segments++;
    enum cache_part part = part_of_segment(store, fd);
    if (part < N_CACHE_PARTS) {
        index_segment(store, store->n_segments - 1, part);
    } else {
        close(fd);
        segment->fd = -1;
    }
}

static bool is_segment(const char *name) {
    size_t length = strlen(name), ending = strlen(SEGMENT_ENDING);
    return length > ending && length < SEGMENT_NAME &&
           strcmp(name + length - ending, SEGMENT_ENDING) == 0;
}

enum status segments_scan(struct prefix_store *store, struct err *err) {
    if (mkdir(store->place, 0700) != 0 && errno != EEXIST)
        return err_set(err, STATUS_SYSTEM, NULL, "--prefix-store %s cannot be made: %s",
                       store->place, strerror(errno));
    DIR *folder = opendir(store->place);
    if (!folder)
        return err_set(err, STATUS_SYSTEM, NULL, "--prefix-store %s cannot be read: %s",
                       store->place, strerror(errno));
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!is_segment(entry->d_name)) continue;
        if (store->n_segments == MAX_SEGMENTS - N_CACHE_PARTS) break; /* places for writing */
        scan_segment(store, entry->d_name);
    }
    closedir(folder);
    return STATUS_OK;
}

/* ---- room ------------------------------------------------------------------------------------ */

static bool is_being_written(const struct prefix_store *store, int i) {
    for (enum cache_part part = 0; part < N_CACHE_PARTS; part++)
        if (store->part[part].writing == i) return true;
    return false;
}

static void segment_remove(struct prefix_store *store, int i) {
    struct segment *segment = &store->segment[i];
    assert(!segment->removed && !is_being_written(store, i));
    store->bytes -= segment->bytes;
    segment->removed = true;
    index_drop_segment(store, i);
    if (segment->readers == 0 && segment->fd >= 0) {
        close(segment->fd);
        segment->fd = -1;
    }
}

static int oldest_segment(const struct prefix_store *store) {
    int oldest = -1;
    for (int i = 0; i < store->n_segments; i++) {
        const struct segment *segment = &store->segment[i];
        if (segment->removed || is_being_written(store, i)) continue;
        if (oldest < 0 || segment->order < store->segment[oldest].order) oldest = i;
    }
    return oldest;
}

/* Returns an entry for another segment, or -1. */
static int unused_segment(const struct prefix_store *store) {
    if (store->n_segments < MAX_SEGMENTS) return store->n_segments;
    for (int i = 0; i < store->n_segments; i++)
        if (store->segment[i].unlinked && store->segment[i].readers == 0) return i;
    return -1;
}

/* The writer thread alone changes names and `unlinked` after the start. */
void segments_unlink(struct prefix_store *store) {
    struct buf path = {0};
    for (int i = 0; i < store->n_segments; i++) {
        struct segment *segment = &store->segment[i];
        if (!segment->removed || segment->unlinked) continue;
        segment_path(store, segment->name, &path);
        if (unlink(path.data) != 0 && errno != ENOENT)
            log_line(LOG_WARNING, "prefix store: %s cannot be removed: %s", path.data,
                     strerror(errno));
        segment->unlinked = true;
    }
    buf_free(&path);
}

bool segments_make_room(struct prefix_store *store, int64_t more) {
    bool crowded = unused_segment(store) < 0;
    while (crowded || store->bytes + more > store->config.max_bytes) {
        int oldest = oldest_segment(store);
        if (oldest < 0) return false;
        segment_remove(store, oldest);
        crowded = false;
    }
    return true;
}

/* ---- files ----------------------------------------------------------------------------------- */

int store_segment_create(struct prefix_store *store, enum cache_part part) {
    struct timespec now;
    struct segment_head head = store_segment_head(store, part);
    struct segment made = {0};
    struct buf path = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    made.order = clock_ns(now);
    made.bytes = SEGMENT_HEAD;
    snprintf(made.name, sizeof made.name, "%016llx-%d" SEGMENT_ENDING,
             (unsigned long long)made.order, (int)getpid());
    segment_path(store, made.name, &path);
    made.fd = open(path.data, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool whole = made.fd >= 0 && pwrite(made.fd, &head, sizeof head, 0) == sizeof head;
    if (made.fd >= 0 && !whole) {
        int reason = errno;
        close(made.fd);
        unlink(path.data);
        errno = reason;
    }
    buf_free(&path);
    if (!whole) return -1;
    pthread_mutex_lock(&store->mutex);
    int i = unused_segment(store);
    assert(i >= 0); /* segments_make_room has freed one */
    if (i == store->n_segments) store->n_segments++;
    store->segment[i] = made;
    store->bytes += made.bytes;
    pthread_mutex_unlock(&store->mutex);
    return i;
}

int store_segment_open_direct(const struct prefix_store *store, enum cache_part part, int i) {
    struct buf path = {0};
    assert(i >= 0 && store->segment[i].name[0]);
    if (store->part[part].record_bytes % DIRECT_UNIT != 0) return -1;
    segment_path(store, store->segment[i].name, &path);
    int fd = open(path.data, O_WRONLY | O_DIRECT | O_CLOEXEC | O_NOFOLLOW);
    buf_free(&path);
    return fd;
}

int segment_use(struct prefix_store *store, int i) {
    struct segment *segment = &store->segment[i];
    if (segment->removed || segment->fd < 0) return -1;
    segment->readers++;
    return segment->fd;
}

void segment_unuse(struct prefix_store *store, int i) {
    struct segment *segment = &store->segment[i];
    assert(segment->readers > 0);
    if (--segment->readers > 0 || !segment->removed) return;
    close(segment->fd);
    segment->fd = -1;
}

void segments_close(struct prefix_store *store) {
    for (int i = 0; i < store->n_segments; i++) {
        assert(store->segment[i].readers == 0);
        if (store->segment[i].fd >= 0) close(store->segment[i].fd);
    }
}
