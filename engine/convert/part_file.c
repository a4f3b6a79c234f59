#include "engine/convert/part_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum status refuse(const struct part_file *file, const char *what, struct err *err) {
    return err_set(err, STATUS_BAD_FILE, "output", "%s cannot be %s: %s", file->path, what,
                   strerror(errno));
}

/* Opens an unnamed file in the path's folder. Returns a negative number if the file system does not
 * support that. */
static int open_unnamed(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = mem_alloc(strlen(path) + 2);
    size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    memcpy(folder, path, length);
    memcpy(folder + length, ".", 2);
    int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    mem_free(folder);
    return fd;
}

enum status part_file_open(struct part_file *file, const char *path, struct err *err) {
    *file = (struct part_file){.path = path};
    if (access(path, F_OK) == 0)
        return err_set(err, STATUS_USAGE, "output",
                       "%s exists already; remove it, or give another name", path);
    file->fd = open_unnamed(path);
    if (file->fd >= 0) return STATUS_OK;
    file->part = mem_alloc(strlen(path) + sizeof ".part");
    memcpy(file->part, path, strlen(path));
    memcpy(file->part + strlen(path), ".part", sizeof ".part");
    file->fd = open(file->part, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    if (file->fd >= 0) return STATUS_OK;
    mem_free(file->part);
    return refuse(file, "made", err);
}

/* Reads a byte of each page. If a page cannot be read because the mapped file was truncated, the
 * process ends with a sentence that names the file (engine/files). */
static void touch_pages(const char *data, size_t bytes) {
    enum { PAGE = 4096 };
    for (size_t at = 0; at < bytes; at += PAGE) (void)*(const volatile char *)(data + at);
}

enum status part_file_write(struct part_file *file, const void *data, size_t bytes,
                            struct err *err) {
    const char *at = data;
    for (size_t left = bytes; left > 0;) {
        ssize_t n = write(file->fd, at, left);
        if (n < 0 && errno == EFAULT) touch_pages(at, left);
        if (n < 0 && errno != EINTR) return refuse(file, "written", err);
        if (n > 0) at += n, left -= (size_t)n;
    }
    file->bytes += (int64_t)bytes;
    return STATUS_OK;
}

enum status part_file_pad(struct part_file *file, size_t alignment, struct err *err) {
    static const char zeros[4096];
    size_t left = -(size_t)file->bytes % alignment;
    enum status status = STATUS_OK;
    for (; left > 0 && !status; left -= left < sizeof zeros ? left : sizeof zeros)
        status = part_file_write(file, zeros, left < sizeof zeros ? left : sizeof zeros, err);
    return status;
}

/* Both calls fail if the name exists by now. */
static int give_name(const struct part_file *file) {
    char link_path[64];
    if (file->part) return link(file->part, file->path);
    snprintf(link_path, sizeof link_path, "/proc/self/fd/%d", file->fd);
    return linkat(AT_FDCWD, link_path, AT_FDCWD, file->path, AT_SYMLINK_FOLLOW);
}

enum status part_file_close(struct part_file *file, bool is_whole, struct err *err) {
    enum status status = STATUS_OK;
    if (is_whole && (fsync(file->fd) != 0 || give_name(file) != 0))
        status = refuse(file, "written", err);
    close(file->fd);
    if (file->part) unlink(file->part);
    mem_free(file->part);
    return status;
}
