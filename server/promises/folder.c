/* DESIGN: the folder of a journal.
 *
 *   lock                            locked by flock while a process uses the folder
 *   0000000000000001.journal        segments; the names are numbers in hexadecimal
 *   0000000000000002.journal        only the newest one grows
 *
 * A segment holds about a sixteenth of --state-size. To make room, the oldest segment is deleted:
 * promises that finished in it are evicted, and records of promises that still run are appended
 * again first. So the oldest finished promises go first, and no file is ever rewritten.
 *
 * Only the newest segment may end in a torn record, because a segment is synced before the next one
 * begins. The start cuts it there. Damage elsewhere costs the records that it touches.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/promises/internal.h"

/* ---- opening -------------------------------------------------------------------------------- */

static enum status fail(const struct journal_folder *folder, const char *what, struct err *err) {
    const char *fix = errno == EACCES || errno == EROFS || errno == EPERM
                          ? "; name a folder that this user may write"
                          : "";
    return err_set(err, STATUS_SYSTEM, "state-dir", "--state-dir %s: %s: %s%s.", folder->path, what,
                   strerror(errno), fix);
}

/* Writes the process's number into the lock file, for the message below. */
static enum status lock_folder(struct journal_folder *folder, struct err *err) {
    char owner[24] = "";
    folder->lock = openat(folder->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (folder->lock < 0) return fail(folder, "the lock file cannot be written", err);
    if (flock(folder->lock, LOCK_EX | LOCK_NB) == 0) {
        int n = snprintf(owner, sizeof owner, "%ld\n", (long)getpid());
        if (ftruncate(folder->lock, 0) != 0 || pwrite(folder->lock, owner, (size_t)n, 0) != n)
            return fail(folder, "the lock file cannot be written", err);
        return STATUS_OK;
    }
    if (errno != EWOULDBLOCK) return fail(folder, "the folder cannot be locked", err);
    ssize_t n = pread(folder->lock, owner, sizeof owner - 1, 0);
    owner[n > 0 ? n : 0] = 0;
    return err_set(
        err, STATUS_USAGE, "state-dir",
        "--state-dir %s is used by another process (pid %ld): give each process a folder "
        "of its own.",
        folder->path, strtol(owner, NULL, 10));
}

enum status folder_open(struct journal_folder *folder, const struct journal_config *config,
                        struct err *err) {
    *folder = (struct journal_folder){.path = config->folder,
                                      .fd = -1,
                                      .lock = -1,
                                      .file = -1,
                                      .max_bytes = (uint64_t)config->size};
    assert(config->size >= JOURNAL_MIN_SIZE);
    if (mkdir(folder->path, 0700) != 0 && errno != EEXIST)
        return fail(folder, "the folder cannot be created", err);
    folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd < 0) return fail(folder, "the folder cannot be opened", err);
    return lock_folder(folder, err);
}

static void close_file(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void folder_close(struct journal_folder *folder) {
    close_file(&folder->file);
    close_file(&folder->lock);
    close_file(&folder->fd);
}

/* ---- reading -------------------------------------------------------------------------------- */

static int compare_segments(const void *a, const void *b) {
    uint64_t x = ((const struct journal_segment *)a)->number,
             y = ((const struct journal_segment *)b)->number;
    return (x > y) - (x < y);
}

static enum status list_segments(struct journal_folder *folder, struct err *err) {
    int fd = dup(folder->fd);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *found;
    if (!dir) {
        close_file(&fd);
        return fail(folder, "the folder cannot be read", err);
    }
    while ((found = readdir(dir))) {
        uint64_t number;
        if (!segment_is_name(found->d_name, &number)) continue;
        if (folder->n_segments == MAX_SEGMENTS) {
            closedir(dir);
            return err_set(err, STATUS_BAD_FILE, "state-dir",
                           "--state-dir %s holds more than %d journal files: it is not a folder of "
                           "this program, or files were copied into it.",
                           folder->path, MAX_SEGMENTS);
        }
        folder->segment[folder->n_segments++].number = number;
    }
    closedir(dir);
    qsort(folder->segment, (size_t)folder->n_segments, sizeof *folder->segment, compare_segments);
    return STATUS_OK;
}

/* What reading one segment needs and finds. */
struct segment_reading {
    struct promise_index *index;
    uint64_t last_number, damaged;
    size_t good;   /* the end of the last intact record */
    bool is_known; /* the file has the header of this format */
};

static void read_records(struct segment_reading *to, uint64_t segment, const char *data,
                         size_t length) {
    struct segment_scan scan;
    struct record record;
    size_t offset, size;
    to->is_known = segment_scan_begin(&scan, data, length);
    while (to->is_known && segment_scan_next(&scan, &record, &offset, &size)) {
        struct promise *promise = promise_new(&record);
        promise->entry.segment = segment;
        promise->entry.offset = offset;
        promise->entry.length = (uint32_t)size;
        if (record.promise > to->last_number) to->last_number = record.promise;
        index_apply(to->index, promise);
    }
    to->damaged += scan.damage;
    to->good = scan.good;
}

/* Maps a segment and reads its records. The file is open afterwards. */
static enum status read_segment(struct journal_folder *folder, struct journal_segment *segment,
                                struct segment_reading *to, int *fd, struct err *err) {
    char name[SEGMENT_NAME_BYTES];
    struct stat info;
    segment_name(name, segment->number);
    *fd = openat(folder->fd, name, O_RDWR | O_CLOEXEC);
    if (*fd < 0 || fstat(*fd, &info) != 0) return fail(folder, name, err);
    segment->bytes = (uint64_t)info.st_size;
    to->good = 0;
    to->is_known = false;
    if (segment->bytes == 0) return STATUS_OK;
    void *data = mmap(NULL, segment->bytes, PROT_READ, MAP_PRIVATE, *fd, 0);
    if (data == MAP_FAILED) return fail(folder, name, err);
    read_records(to, segment->number, data, segment->bytes);
    munmap(data, segment->bytes);
    return STATUS_OK;
}

/* A crash may leave a new segment without its header. Any other file of another format is the
 * user's to look at. */
static enum status refuse_unknown(const struct journal_folder *folder,
                                  const struct journal_segment *segment, struct err *err) {
    return err_set(
        err, STATUS_BAD_FILE, "state-dir",
        "--state-dir %s: %016llx.journal is not a journal of this version: move it away.",
        folder->path, (unsigned long long)segment->number);
}

/* Cuts the newest segment after its last intact record, and keeps it open for writing. */
static enum status cut_tail(struct journal_folder *folder, struct journal_segment *segment, int fd,
                            uint64_t good, struct err *err) {
    if (segment->bytes > good && (ftruncate(fd, (off_t)good) != 0 || fdatasync(fd) != 0))
        return fail(folder, "the torn end of the journal cannot be cut", err);
    if (segment->bytes > good)
        log_line(LOG_WARNING, "--state-dir %s: %llu bytes of unfinished writes were cut",
                 folder->path, (unsigned long long)(segment->bytes - good));
    segment->bytes = good;
    folder->file = fd;
    return STATUS_OK;
}

static void forget_segment(struct journal_folder *folder, int fd) {
    char name[SEGMENT_NAME_BYTES];
    segment_name(name, folder->segment[folder->n_segments - 1].number);
    close(fd);
    unlinkat(folder->fd, name, 0);
    folder->n_segments--;
}

enum status folder_read(struct journal_folder *folder, struct promise_index *index,
                        uint64_t *last_number, uint64_t *damaged, struct err *err) {
    struct segment_reading to = {.index = index};
    if (list_segments(folder, err)) return err->status;
    for (int i = 0; i < folder->n_segments; i++) {
        struct journal_segment *segment = &folder->segment[i];
        bool is_last = i == folder->n_segments - 1;
        int fd;
        if (read_segment(folder, segment, &to, &fd, err)) {
            close_file(&fd);
            return err->status;
        }
        bool is_unborn = is_last && !to.is_known && segment->bytes < SEGMENT_HEAD_BYTES;
        if (is_unborn) {
            forget_segment(folder, fd);
            break;
        }
        enum status status = to.is_known ? STATUS_OK : refuse_unknown(folder, segment, err);
        if (!status && is_last) status = cut_tail(folder, segment, fd, to.good, err);
        if (status || !is_last) close(fd);
        if (status) return status;
        folder->bytes += segment->bytes;
    }
    *last_number = to.last_number;
    *damaged = to.damaged;
    return STATUS_OK;
}

/* ---- writing -------------------------------------------------------------------------------- */

static struct journal_segment *newest(struct journal_folder *folder) {
    return folder->n_segments > 0 ? &folder->segment[folder->n_segments - 1] : NULL;
}

bool folder_rotate(struct journal_folder *folder, size_t length) {
    const struct journal_segment *last = newest(folder);
    uint64_t most = folder->max_bytes / SEGMENTS_IN_SIZE;
    bool has_room = last && (last->bytes + length <= most || last->bytes <= SEGMENT_HEAD_BYTES);
    if (folder->file >= 0 && has_room) return true;
    if (folder->n_segments == MAX_SEGMENTS) {
        errno = EFBIG;
        return false;
    }
    if (folder->file >= 0 && fdatasync(folder->file) != 0) return false;
    uint64_t number = last ? last->number + 1 : 1;
    int fd = segment_create(folder->fd, number);
    if (fd < 0) return false;
    close_file(&folder->file);
    folder->file = fd;
    folder->segment[folder->n_segments++] = (struct journal_segment){number, SEGMENT_HEAD_BYTES};
    folder->bytes += SEGMENT_HEAD_BYTES;
    return true;
}

bool folder_append(struct journal_folder *folder, const void *data, size_t length,
                   struct promise_entry *place) {
    struct journal_segment *last = newest(folder);
    assert(folder->file >= 0 && last && last->bytes % 8 == 0 && length % 8 == 0);
    if (!segment_write(folder->file, data, length, last->bytes)) {
        int cause = errno;
        (void)!ftruncate(folder->file, (off_t)last->bytes); /* else the next write covers it */
        errno = cause;
        return false;
    }
    place->segment = last->number;
    place->offset = last->bytes;
    place->length = (uint32_t)length;
    last->bytes += length;
    folder->bytes += length;
    return true;
}

/* Copies through a small buffer; a failure is cut off again. */
bool folder_move(struct journal_folder *folder, const struct promise_entry *from,
                 struct promise_entry *place) {
    char part[4096], name[SEGMENT_NAME_BYTES];
    segment_name(name, from->segment);
    int fd = openat(folder->fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    struct journal_segment *last = newest(folder);
    uint64_t begin = last->bytes;
    bool ok = true;
    for (size_t at = 0; at < from->length && ok;) {
        size_t n = from->length - at < sizeof part ? from->length - at : sizeof part;
        struct promise_entry unused;
        ok = pread(fd, part, n, (off_t)(from->offset + at)) == (ssize_t)n &&
             folder_append(folder, part, n, &unused);
        at += n;
    }
    close(fd);
    if (!ok) {
        folder->bytes -= last->bytes - begin;
        last->bytes = begin;
        return false;
    }
    *place = *from;
    place->segment = last->number;
    place->offset = begin;
    return true;
}

void folder_drop(struct journal_folder *folder) {
    char name[SEGMENT_NAME_BYTES];
    assert(folder->n_segments > 1 && folder->bytes >= folder->segment[0].bytes);
    segment_name(name, folder->segment[0].number);
    if (unlinkat(folder->fd, name, 0) != 0)
        log_line(LOG_WARNING, "--state-dir %s: %s cannot be deleted: %s", folder->path, name,
                 strerror(errno));
    folder->bytes -= folder->segment[0].bytes;
    folder->n_segments--;
    memmove(folder->segment, folder->segment + 1,
            (size_t)folder->n_segments * sizeof *folder->segment);
}
