#include "engine/files/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A process has 1,024 descriptors unless told otherwise, and models may come in thousands of parts:
 * those beyond the first are mapped alone. */
enum { MOST_DESCRIPTORS = 256 };

enum status mapping_open(struct mapping *out, const char *path, struct err *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused, not waited for */
    struct stat info;
    *out = (struct mapping){0};
    if (fd < 0 || fstat(fd, &info) != 0) {
        int cause = errno;
        if (fd >= 0) close(fd);
        return err_set(err, STATUS_BAD_FILE, "model", "%s: %s", path, strerror(cause));
    }
    if (!S_ISREG(info.st_mode) || info.st_size == 0) {
        close(fd);
        return err_set(err, STATUS_BAD_FILE, "model", "%s: not a file, or an empty one", path);
    }
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        int cause = errno;
        close(fd);
        return err_set(err, STATUS_BAD_FILE, "model", "%s: %s", path, strerror(cause));
    }
    if (fd >= MOST_DESCRIPTORS) {
        close(fd);
        fd = -1;
    }
    *out = (struct mapping){data, (size_t)info.st_size, fd};
    return STATUS_OK;
}

void mapping_close(struct mapping *mapping) {
    if (mapping->data) {
        munmap((void *)(uintptr_t)mapping->data, mapping->size);
        if (mapping->fd >= 0) close(mapping->fd);
    }
    *mapping = (struct mapping){0};
}

char *path_in(const char *folder, const char *name) {
    struct buf path = {0};
    size_t length = strlen(folder);
    buf_printf(&path, "%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/", name);
    return path.data;
}

bool is_in_folder(const char *folder, const char *name) {
    char *path = path_in(folder, name);
    bool is_there = access(path, F_OK) == 0;
    mem_free(path);
    return is_there;
}

enum status blame_file(struct err *err, enum status status, const char *path) {
    if (!err) return status;
    const struct err cause = *err;
    return err_set(err, status, cause.param[0] ? cause.param : "model", "%s: %s", path,
                   cause.message);
}
