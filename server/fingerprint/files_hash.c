/* The SHA-256 of texts, and of the files of models and adapters. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/fingerprint/hash.h"

static_assert(2 * crypto_hash_sha256_BYTES == HASH_DIGITS, "a hash is a SHA-256");

enum { PIECE_BYTES = 64 << 10, MAX_PARTS = 9999 };

#define PART_NAME "-%05d-of-%05d.gguf"

void hash_text(char hex[HASH_DIGITS + 1], const void *text, size_t length) {
    unsigned char digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(digest, text, length);
    sodium_bin2hex(hex, HASH_DIGITS + 1, digest, sizeof digest);
}

/* ---- one file ------------------------------------------------------------------------------- */

static enum status unreadable(struct err *err, const char *path) {
    return err_set(err, STATUS_SERVER_ERROR, NULL,
                   "The hash of the model or adapter is not known: %s cannot be read (%s).", path,
                   strerror(errno));
}

/* Hashes one file. Fails if it cannot be read, or if `stops` is set. */
static enum status hash_file(const char *path, const atomic_bool *stops, char hex[HASH_DIGITS + 1],
                             struct err *err) {
    crypto_hash_sha256_state state;
    unsigned char piece[PIECE_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return unreadable(err, path);
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    crypto_hash_sha256_init(&state);
    ssize_t n = 1;
    while (n > 0 && !atomic_load(stops)) {
        n = read(fd, piece, PIECE_BYTES);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            crypto_hash_sha256_update(&state, piece, (unsigned long long)n);
    }
    enum status status = n < 0 ? unreadable(err, path) : STATUS_OK;
    if (!status && atomic_load(stops))
        status = err_set(err, STATUS_UNAVAILABLE, NULL, "The server is shutting down.");
    close(fd);
    unsigned char digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_final(&state, digest);
    sodium_bin2hex(hex, HASH_DIGITS + 1, digest, sizeof digest);
    return status;
}

/* ---- several files -------------------------------------------------------------------------- */

/* Adds the line of a file, as sha256sum prints it. */
static enum status add_line(struct buf *lines, const char *path, const atomic_bool *stops,
                            struct err *err) {
    char hex[HASH_DIGITS + 1];
    const char *slash = strrchr(path, '/');
    enum status status = hash_file(path, stops, hex, err);
    if (!status) buf_printf(lines, "%s  %s\n", hex, slash ? slash + 1 : path);
    return status;
}

static int counts(const struct dirent *entry) {
    static const char *const ends[] = {".safetensors", ".json", ".model", ".jinja", ".txt"};
    size_t length = strlen(entry->d_name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t n = strlen(ends[i]);
        if (length > n && strcmp(entry->d_name + length - n, ends[i]) == 0) return 1;
    }
    return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static enum status add_folder(struct buf *lines, const char *folder, const atomic_bool *stops,
                              struct err *err) {
    struct dirent **entries;
    enum status status = STATUS_OK;
    int n = scandir(folder, &entries, counts, by_name);
    if (n < 0) return unreadable(err, folder);
    for (int i = 0; i < n; i++) {
        char *path = path_in(folder, entries[i]->d_name);
        if (!status) status = add_line(lines, path, stops, err);
        mem_free(path);
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* Returns the number of parts if the path names the first of several; otherwise 1. */
static int parts_of(const char *path) {
    const size_t end = sizeof "-00001-of-00003.gguf" - 1;
    size_t length = strlen(path);
    char expected[32];
    int n = 0;
    if (length < end || sscanf(path + length - end, "-00001-of-%5d", &n) != 1) return 1;
    if (n < 2 || n > MAX_PARTS) return 1;
    snprintf(expected, sizeof expected, PART_NAME, 1, n);
    return strcmp(path + length - end, expected) == 0 ? n : 1;
}

static enum status add_parts(struct buf *lines, const char *first, int n, const atomic_bool *stops,
                             struct err *err) {
    int base = (int)(strlen(first) - (sizeof "-00001-of-00003.gguf" - 1));
    enum status status = STATUS_OK;
    for (int i = 1; i <= n && !status; i++) {
        struct buf path = {0};
        buf_printf(&path, "%.*s" PART_NAME, base, first, i, n);
        status = add_line(lines, path.data, stops, err);
        buf_free(&path);
    }
    return status;
}

enum status files_hash(char hex[HASH_DIGITS + 1], const char *path, const atomic_bool *stops,
                       struct err *err) {
    struct stat info;
    struct buf lines = {0};
    int parts = parts_of(path);
    if (stat(path, &info) != 0) return unreadable(err, path);
    bool is_folder = S_ISDIR(info.st_mode);
    if (!is_folder && parts == 1) return hash_file(path, stops, hex, err);
    enum status status = is_folder ? add_folder(&lines, path, stops, err)
                                   : add_parts(&lines, path, parts, stops, err);
    if (!status) hash_text(hex, lines.data ? lines.data : "", lines.length);
    buf_free(&lines);
    return status;
}

/* ---- adapters ------------------------------------------------------------------------------- */

enum status adapter_hash(char hex[HASH_DIGITS + 1], const char *path, struct err *err) {
    static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors"};
    const atomic_bool never = false;
    struct stat info;
    struct buf lines = {0};
    enum status status = STATUS_OK;
    if (stat(path, &info) != 0) return unreadable(err, path);
    if (!S_ISDIR(info.st_mode)) return hash_file(path, &never, hex, err);
    for (int i = 0; i < 2 && !status; i++) {
        char *file = path_in(path, names[i]);
        status = add_line(&lines, file, &never, err);
        mem_free(file);
    }
    if (!status) hash_text(hex, lines.data, lines.length);
    buf_free(&lines);
    return status;
}
