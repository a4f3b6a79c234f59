#include "engine/files/mapping.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/name_index.h"

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
    int cause = errno;
    close(fd);
    if (data == MAP_FAILED)
        return err_set(err, STATUS_BAD_FILE, "model", "%s: %s", path, strerror(cause));
    *out = (struct mapping){data, (size_t)info.st_size};
    return STATUS_OK;
}

void mapping_close(struct mapping *mapping) {
    if (mapping->data) munmap((void *)(uintptr_t)mapping->data, mapping->size);
    *mapping = (struct mapping){0};
}

/* Of one file by its name; 0 for what is no file. */
static uint64_t stamp_of(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return 0;
    const uint64_t parts[] = {(uint64_t)info.st_dev,          (uint64_t)info.st_ino,
                              (uint64_t)info.st_size,         (uint64_t)info.st_mtim.tv_sec,
                              (uint64_t)info.st_mtim.tv_nsec, name_hash(path, strlen(path))};
    return name_hash((const char *)parts, sizeof parts);
}

uint64_t mapping_stamp(const char *path) {
    DIR *folder = opendir(path);
    uint64_t sum = folder ? 0 : stamp_of(path);
    if (!folder) return sum;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char *name = path_in(path, entry->d_name);
        sum += stamp_of(name); /* a folder has its names in any order */
        free(name);
    }
    closedir(folder);
    return sum;
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
    free(path);
    return is_there;
}

enum status blame_file(struct err *err, enum status status, const char *path) {
    if (!err) return status;
    const struct err cause = *err;
    return err_set(err, status, cause.param[0] ? cause.param : "model", "%s: %s", path,
                   cause.message);
}
