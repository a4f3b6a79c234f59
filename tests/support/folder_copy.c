#include "support/folder_copy.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEMPORARY "/tmp/penstock-folder-XXXXXX"
#define MAX_FILE (1 << 20)

static char folder[sizeof TEMPORARY];

static void read_file(struct buf *out, const char *path) {
    FILE *file = fopen(path, "rb");
    char *bytes = mem_alloc(MAX_FILE);
    ck_assert_msg(file != NULL, "%s cannot be read", path);
    buf_add(out, bytes, fread(bytes, 1, MAX_FILE, file));
    fclose(file);
    free(bytes);
}

/* Calls fn with the path and the name of each file of a folder. */
static void each_file(const char *path, void (*fn)(const char *path, const char *name)) {
    char file[2 * FOLDER_PATH_BYTES];
    DIR *dir = opendir(path);
    ck_assert_msg(dir != NULL, "%s cannot be read", path);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        fn(file, entry->d_name);
    }
    closedir(dir);
}

static void copy_file(const char *path, const char *name) {
    struct buf bytes = {0};
    read_file(&bytes, path);
    folder_copy_write(name, bytes.data, bytes.length);
    buf_free(&bytes);
}

static void remove_file(const char *path, const char *name) {
    (void)name;
    ck_assert_int_eq(remove(path), 0);
}

const char *folder_copy(const char *from) {
    memcpy(folder, TEMPORARY, sizeof folder);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    each_file(from, copy_file);
    return folder;
}

void folder_copy_remove(void) {
    each_file(folder, remove_file);
    ck_assert_int_eq(rmdir(folder), 0);
}

const char *folder_copy_path(const char *file) {
    static char path[FOLDER_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return path;
}

void folder_copy_read(struct buf *out, const char *file) {
    read_file(out, folder_copy_path(file));
}

void folder_copy_write(const char *name, const void *bytes, size_t n) {
    FILE *file = fopen(folder_copy_path(name), "wb");
    ck_assert(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

void folder_copy_replace(const char *file, const char *from, const char *to) {
    struct buf bytes = {0}, changed = {0};
    folder_copy_read(&bytes, file);
    const char *place = memmem(bytes.data, bytes.length, from, strlen(from));
    ck_assert_msg(place != NULL, "%s is not in %s", from, file);
    size_t at = (size_t)(place - bytes.data), end = at + strlen(from);
    buf_add(&changed, bytes.data, at);
    buf_puts(&changed, to);
    buf_add(&changed, bytes.data + end, bytes.length - end);
    folder_copy_write(file, changed.data, changed.length);
    buf_free(&bytes);
    buf_free(&changed);
}
