/* Files of records: a header, then records one after the other. Only the newest file grows. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/promises/internal.h"

/* Name and version of the format, 24 bytes. */
static const char head[SEGMENT_HEAD_BYTES + 1] = "penstock journal 1\n\0\0\0\0\0";

void segment_name(char out[SEGMENT_NAME_BYTES], uint64_t number) {
    snprintf(out, SEGMENT_NAME_BYTES, "%016llx.journal", (unsigned long long)number);
}

bool segment_is_name(const char *name, uint64_t *number) {
    unsigned long long value;
    char again[SEGMENT_NAME_BYTES];
    if (strlen(name) != 24 || sscanf(name, "%16llx.journal", &value) != 1) return false;
    segment_name(again, value);
    *number = value;
    return strcmp(name, again) == 0;
}

bool segment_write(int fd, const void *data, size_t length, uint64_t offset) {
    const char *at = data;
    while (length > 0) {
        ssize_t n = pwrite(fd, at, length, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) return false;
        at += n;
        offset += (uint64_t)n;
        length -= (size_t)n;
    }
    return true;
}

int segment_create(int folder, uint64_t number) {
    char name[SEGMENT_NAME_BYTES];
    segment_name(name, number);
    int fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    if (segment_write(fd, head, SEGMENT_HEAD_BYTES, 0) && fdatasync(fd) == 0 && fsync(folder) == 0)
        return fd;
    int cause = errno;
    close(fd);
    unlinkat(folder, name, 0);
    errno = cause;
    return -1;
}

/* ---- scanning ------------------------------------------------------------------------------- */

bool segment_scan_begin(struct segment_scan *scan, const char *data, size_t length) {
    *scan = (struct segment_scan){data, length, SEGMENT_HEAD_BYTES, SEGMENT_HEAD_BYTES, 0};
    return length >= SEGMENT_HEAD_BYTES && memcmp(data, head, SEGMENT_HEAD_BYTES) == 0;
}

/* Records begin at multiples of 8 bytes, so a scan finds the next one after damaged bytes. */
bool segment_scan_next(struct segment_scan *scan, struct record *record, size_t *offset,
                       size_t *size) {
    bool is_damaged = false;
    while (scan->at < scan->length) {
        size_t n = record_read(record, scan->data + scan->at, scan->length - scan->at);
        *offset = scan->at;
        *size = n;
        scan->at += n > 0 ? n : 8;
        if (n == 0) {
            is_damaged = true;
            continue;
        }
        scan->damage += is_damaged;
        scan->good = scan->at;
        return true;
    }
    return false;
}
