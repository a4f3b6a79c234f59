/* DESIGN: the hash of a model's files, computed in the background.
 *
 * A model may be larger than memory, so reading it takes minutes. The thread begins at the first
 * need, with the lowest priority, and compares a flag after each piece, so that a server can end
 * meanwhile. `mutex` guards the state and the list of waiters, and is held while they are resumed,
 * so a waiter that has left is never resumed. The result never changes.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/receipts/origin.h"
#include "server/receipts/receipts.h"

enum { PIECE_BYTES = 64 << 10, MAX_PARTS = 9999 };

#define PART_NAME "-%05d-of-%05d.gguf"

enum hash_state { HASH_IDLE, HASH_RUNS, HASH_ENDED };

struct model_hash {
    const char *path;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum hash_state state;
    atomic_bool stops;
    struct list waiters;
    struct err err; /* STATUS_OK: `hex` is the hash */
    char hex[HASH_DIGITS + 1];
};

/* ---- files ---------------------------------------------------------------------------------- */

static enum status unreadable(struct err *err, const char *path) {
    return err_set(err, STATUS_SERVER_ERROR, NULL,
                   "The model's hash is not known: %s cannot be read (%s).", path, strerror(errno));
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

/* Adds the line of a file, as sha256sum prints it. */
static enum status add_line(struct buf *lines, const struct model_hash *hash, const char *path,
                            struct err *err) {
    char hex[HASH_DIGITS + 1];
    const char *slash = strrchr(path, '/');
    enum status status = hash_file(path, &hash->stops, hex, err);
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

static enum status add_folder(struct buf *lines, const struct model_hash *hash, struct err *err) {
    struct dirent **entries;
    enum status status = STATUS_OK;
    int n = scandir(hash->path, &entries, counts, by_name);
    if (n < 0) return unreadable(err, hash->path);
    for (int i = 0; i < n; i++) {
        char *path = path_in(hash->path, entries[i]->d_name);
        if (!status) status = add_line(lines, hash, path, err);
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

static enum status add_parts(struct buf *lines, const struct model_hash *hash, int n,
                             struct err *err) {
    int base = (int)(strlen(hash->path) - (sizeof "-00001-of-00003.gguf" - 1));
    enum status status = STATUS_OK;
    for (int i = 1; i <= n && !status; i++) {
        struct buf path = {0};
        buf_printf(&path, "%.*s" PART_NAME, base, hash->path, i, n);
        status = add_line(lines, hash, path.data, err);
        buf_free(&path);
    }
    return status;
}

static enum status compute(struct model_hash *hash) {
    struct stat info;
    struct buf lines = {0};
    struct err *err = &hash->err;
    int parts = parts_of(hash->path);
    if (stat(hash->path, &info) != 0) return unreadable(err, hash->path);
    bool is_folder = S_ISDIR(info.st_mode);
    if (!is_folder && parts == 1) return hash_file(hash->path, &hash->stops, hash->hex, err);
    enum status status =
        is_folder ? add_folder(&lines, hash, err) : add_parts(&lines, hash, parts, err);
    if (!status) hash_text(hash->hex, lines.data ? lines.data : "", lines.length);
    buf_free(&lines);
    return status;
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void resume_all(struct model_hash *hash) {
    for (struct list_node *node; (node = list_first(&hash->waiters));) {
        struct hash_waiter *waiter = list_entry(node, struct hash_waiter, node);
        list_remove(&hash->waiters, node);
        waiter->resume(waiter);
    }
}

static void *run(void *arg) {
    struct model_hash *hash = arg;
    setpriority(PRIO_PROCESS, (id_t)gettid(), 19); /* of this thread */
    compute(hash);
    pthread_mutex_lock(&hash->mutex);
    assert(hash->state == HASH_RUNS);
    hash->state = HASH_ENDED;
    pthread_cond_broadcast(&hash->changed);
    resume_all(hash);
    pthread_mutex_unlock(&hash->mutex);
    return NULL;
}

struct model_hash *model_hash_new(const char *path) {
    struct model_hash *hash = mem_calloc(1, sizeof *hash);
    hash->path = path;
    pthread_mutex_init(&hash->mutex, NULL);
    pthread_cond_init(&hash->changed, NULL);
    list_init(&hash->waiters);
    return hash;
}

void model_hash_free(struct model_hash *hash) {
    if (!hash) return;
    assert(hash->waiters.n == 0);
    atomic_store(&hash->stops, true);
    if (hash->state != HASH_IDLE) pthread_join(hash->thread, NULL);
    pthread_mutex_destroy(&hash->mutex);
    pthread_cond_destroy(&hash->changed);
    mem_free(hash);
}

/* Begins, under the mutex. If the thread cannot start, hashing fails. */
static void begin(struct model_hash *hash) {
    if (hash->state != HASH_IDLE) return;
    hash->state = HASH_RUNS;
    hash->err = (struct err){0};
    int error = pthread_create(&hash->thread, NULL, run, hash);
    if (error == 0) return;
    hash->state = HASH_IDLE; /* the next request tries again */
    err_set(&hash->err, STATUS_UNAVAILABLE, NULL,
            "The model's hash is not known: no thread can be started (%s).", strerror(error));
}

void model_hash_start(struct model_hash *hash) {
    pthread_mutex_lock(&hash->mutex);
    begin(hash);
    pthread_mutex_unlock(&hash->mutex);
}

bool model_hash_await(struct model_hash *hash, struct hash_waiter *waiter) {
    pthread_mutex_lock(&hash->mutex);
    begin(hash);
    assert(!waiter->node.list && waiter->resume);
    bool waits = hash->state == HASH_RUNS && !waiter->has_left;
    if (waits) list_append(&hash->waiters, &waiter->node);
    pthread_mutex_unlock(&hash->mutex);
    return !waits;
}

void model_hash_leave(struct model_hash *hash, struct hash_waiter *waiter) {
    pthread_mutex_lock(&hash->mutex);
    waiter->has_left = true;
    if (waiter->node.list) list_remove(&hash->waiters, &waiter->node);
    pthread_mutex_unlock(&hash->mutex);
}

enum status model_hash_get(struct model_hash *hash, char out[HASH_DIGITS + 1], struct err *err) {
    pthread_mutex_lock(&hash->mutex);
    begin(hash);
    while (hash->state == HASH_RUNS) pthread_cond_wait(&hash->changed, &hash->mutex);
    enum status status = hash->err.status;
    if (status && err) *err = hash->err;
    if (!status) memcpy(out, hash->hex, sizeof hash->hex);
    pthread_mutex_unlock(&hash->mutex);
    return status;
}
