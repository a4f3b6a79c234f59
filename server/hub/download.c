/* DESIGN: one file, from the hub to its blob.
 *
 * The bytes go to HASH.incomplete and are hashed as they arrive. An attempt that breaks is followed
 * by one from the next byte, and a later process continues the file that it finds. When the size is
 * right and the hash is HASH, the file gets its name; before that, no program takes it for the
 * blob. Wrong bytes are deleted.
 *
 * A lock on HASH.lock, which huggingface_hub also takes, lets one process fetch a file while others
 * wait and then find it.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/hub/internal.h"

#define MAX_ATTEMPTS 6          /* without a new byte */
#define FIRST_PAUSE_MS 50       /* then four times as long after each attempt */
#define MAX_PAUSE_MS 300000     /* of Retry-After */
#define MAX_DOCUMENT (64 << 20) /* bytes of a listing */

/* One file on its way. */
struct download {
    struct hub_transfer *transfer;
    const struct hub_file *file;
    char *blob, *incomplete;
    int fd;
    int64_t at; /* bytes in the incomplete file, all hashed */
    struct hub_digest digest;
    enum status failure; /* of the disk */
    struct err *err;
};

static void report(const struct hub_transfer *transfer, enum hub_event event, const char *file,
                   const char *note) {
    const struct hub_report one = {.event = event,
                                   .file = file,
                                   .done = transfer->done,
                                   .total = transfer->total,
                                   .note = note};
    if (transfer->settings->report)
        transfer->settings->report(transfer->settings->report_arg, &one);
}

static void pause_for(int64_t ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* Pauses before the next attempt; `failed` have brought nothing. Returns false if there is none. */
static bool may_retry(const struct hub_transfer *transfer, const char *file, int failed,
                      const struct hub_answer *answer, struct err *err) {
    int64_t ms = FIRST_PAUSE_MS << (2 * failed);
    if (!answer->again || failed + 1 >= MAX_ATTEMPTS) return false;
    ms = min_int64(ms, transfer->settings->timeout_ms);
    if (answer->wait_ms > MAX_PAUSE_MS) {
        err_set(err, STATUS_UNAVAILABLE, NULL,
                "the hub asks to come back in %" PRId64 " minutes (%ld); try again then",
                answer->wait_ms / 60000, answer->code);
        return false;
    }
    report(transfer, HUB_RETRY, file, err->message);
    pause_for(max_int64(ms, answer->wait_ms));
    return true;
}

/* ---- documents ------------------------------------------------------------------------------ */

static bool document_begins(void *arg, int64_t at) {
    buf_clear(arg);
    return at == 0;
}

static bool document_adds(void *arg, const void *data, size_t length) {
    struct buf *body = arg;
    if (body->length + length > MAX_DOCUMENT) return false;
    buf_add(body, data, length);
    return true;
}

enum status hub_get_document(struct hub_transfer *transfer, const char *path, struct buf *body,
                             struct err *err) {
    const struct hub_sink sink = {document_begins, document_adds, body};
    struct hub_answer answer;
    for (int failed = 0;; failed++) {
        enum status status =
            hub_get(transfer->connection, path, transfer->name->repo, 0, &sink, &answer, err);
        if (answer.stopped)
            return err_set(err, STATUS_BAD_FILE, NULL, "the hub's answer has over %d MB",
                           MAX_DOCUMENT >> 20);
        if (!status || !may_retry(transfer, transfer->name->repo, failed, &answer, err))
            return status ? err->status : status;
    }
}

/* ---- the incomplete file -------------------------------------------------------------------- */

static enum status disk_failed(struct download *download, const char *verb) {
    int cause = errno;
    return err_set(download->err, STATUS_SYSTEM, NULL, "cannot %s %.400s: %s%s", verb,
                   download->incomplete, strerror(cause),
                   cause == ENOSPC || cause == EFBIG || cause == EDQUOT
                       ? "; make room and pull again, which continues here"
                       : "");
}

/* Hashes the bytes that an earlier pull has left. */
static enum status open_incomplete(struct download *download) {
    static char bytes[1 << 16];
    ssize_t n = 1;
    download->fd = open(download->incomplete, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (download->fd < 0) return disk_failed(download, "open");
    while ((n = read(download->fd, bytes, sizeof bytes)) > 0) {
        hub_digest_add(&download->digest, bytes, (size_t)n);
        download->at += n;
    }
    if (n < 0) return disk_failed(download, "read");
    download->transfer->done += download->at;
    return STATUS_OK;
}

/* Begins the file again at its first byte. */
static bool start_over(struct download *download) {
    if (ftruncate(download->fd, 0) != 0 || lseek(download->fd, 0, SEEK_SET) != 0) {
        download->failure = disk_failed(download, "empty");
        return false;
    }
    download->transfer->done -= download->at;
    download->at = 0;
    hub_digest_restart(&download->digest);
    return true;
}

static bool file_begins(void *arg, int64_t at) {
    struct download *download = arg;
    assert(at == 0 || at == download->at);
    return at == download->at || start_over(download);
}

static bool file_adds(void *arg, const void *data, size_t length) {
    struct download *download = arg;
    if (download->at + (int64_t)length > download->file->bytes) {
        download->failure = err_set(download->err, STATUS_BAD_FILE, NULL,
                                    "the hub sent more than the %" PRId64 " bytes of %.200s",
                                    download->file->bytes, download->file->path);
        return false;
    }
    for (size_t sent = 0; sent < length;) {
        ssize_t n = write(download->fd, (const char *)data + sent, length - sent);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            download->failure = disk_failed(download, "write");
            return false;
        }
        hub_digest_add(&download->digest, (const char *)data + sent, (size_t)n);
        sent += (size_t)n;
        download->at += n;
        download->transfer->done += n;
    }
    report(download->transfer, HUB_STEP, download->file->path, NULL);
    return true;
}

/* ---- attempts ------------------------------------------------------------------------------- */

/* Appends the path of a file's bytes at the endpoint, with each byte that a path escapes. */
static void resolve_path(const struct download *download, struct buf *out) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~/";
    const struct hub_transfer *transfer = download->transfer;
    buf_printf(out, "/%s/resolve/%s/", transfer->name->repo, transfer->listing->commit);
    for (const char *at = download->file->path; *at; at++) {
        if (strchr(plain, *at))
            buf_add(out, at, 1);
        else
            buf_printf(out, "%%%02X", (unsigned char)*at);
    }
}

/* Does the answer belong to the file of the listing? */
static enum status check_answer(const struct download *download, const struct hub_answer *answer,
                                struct err *err) {
    const char *commit = download->transfer->listing->commit;
    bool is_other = *answer->commit && strcmp(answer->commit, commit) != 0;
    is_other |= *answer->hash && strlen(download->file->hash) == SHA256_DIGITS &&
                strcmp(answer->hash, download->file->hash) != 0;
    if (!is_other && (answer->total < 0 || answer->total == download->file->bytes))
        return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, NULL,
                   "the hub sent another %.200s than its listing states; pull again",
                   download->file->path);
}

/* Gets the bytes from download->at on, once. */
static enum status attempt(struct download *download, const char *path, struct hub_answer *answer) {
    const struct hub_sink sink = {file_begins, file_adds, download};
    const struct hub_file *file = download->file;
    struct err *err = download->err;
    enum status status =
        hub_get(download->transfer->connection, path, file->path, download->at, &sink, answer, err);
    if (download->failure) return download->failure;
    answer->again |= answer->stopped;
    if (answer->stopped)
        return err_set(err, STATUS_UNAVAILABLE, NULL,
                       "the hub sent another part of %.200s than the one asked for", file->path);
    if (answer->code == 416 && !start_over(download)) return download->failure;
    if (status) return status;
    status = check_answer(download, answer, err);
    if (status) unlink(download->incomplete);
    if (status || download->at == file->bytes) return status;
    answer->again = true;
    return err_set(err, STATUS_UNAVAILABLE, NULL,
                   "the hub sent only %" PRId64 " of the %" PRId64 " bytes of %.200s", download->at,
                   file->bytes, file->path);
}

/* Gets the bytes that the incomplete file lacks, in as many attempts as it takes while each brings
 * some. */
static enum status fetch(struct download *download) {
    struct buf path = {0};
    enum status status = STATUS_OK;
    int failed = 0;
    resolve_path(download, &path);
    if (download->at > download->file->bytes && !start_over(download)) status = download->failure;
    while (!status && download->at < download->file->bytes) {
        struct hub_answer answer;
        int64_t before = download->at;
        status = attempt(download, path.data, &answer);
        if (!status || download->failure) break;
        if (download->at > before) failed = 0;
        if (may_retry(download->transfer, download->file->path, failed++, &answer, download->err))
            status = STATUS_OK;
    }
    buf_free(&path);
    return status ? download->err->status : STATUS_OK;
}

/* Checks the whole file, and gives it its name. */
static enum status finish(struct download *download, struct err *err) {
    char hex[SHA256_DIGITS + 1];
    hub_digest_end(&download->digest, hex);
    assert(download->at == download->file->bytes);
    if (strcmp(hex, download->file->hash) != 0) {
        unlink(download->incomplete);
        download->transfer->done -= download->at;
        return err_set(err, STATUS_BAD_FILE, NULL,
                       "the bytes of %.200s have another hash than the hub states; they were "
                       "deleted, pull again",
                       download->file->path);
    }
    if (fdatasync(download->fd) != 0) return disk_failed(download, "write");
    if (rename(download->incomplete, download->blob) != 0) return disk_failed(download, "rename");
    return STATUS_OK;
}

/* ---- the lock ------------------------------------------------------------------------------- */

/* Locks the file at `path`. Its holder may delete it, so the lock counts only if the path still
 * names the same file. Returns -1 if this file system has no locks: the hash still guards. */
static int lock_path(struct download *download, const char *path) {
    struct stat mine, named;
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0664);
        if (fd < 0) return -1;
        bool has = flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (!has && errno == EWOULDBLOCK) {
            report(download->transfer, HUB_WAIT, download->file->path, NULL);
            while (!(has = flock(fd, LOCK_EX) == 0) && errno == EINTR) {
            }
        }
        if (has && fstat(fd, &mine) == 0 && stat(path, &named) == 0 && mine.st_ino == named.st_ino)
            return fd;
        close(fd);
        if (!has) return -1;
    }
}

static int lock(struct download *download) {
    const char *folder = strrchr(download->transfer->repo_folder, '/');
    struct buf path = {0};
    struct err err;
    buf_printf(&path, "%s/.locks%s/%s.lock", download->transfer->settings->cache, folder,
               download->file->hash);
    int fd = hub_make_folders(path.data, &err) ? -1 : lock_path(download, path.data);
    buf_free(&path);
    return fd;
}

/* ---- the file ------------------------------------------------------------------------------- */

static bool has_blob(const struct download *download) {
    struct stat info;
    return stat(download->blob, &info) == 0 && info.st_size == download->file->bytes;
}

static enum status fetch_locked(struct download *download, struct err *err) {
    if (has_blob(download)) { /* from another process meanwhile */
        download->transfer->done += download->file->bytes;
        return STATUS_OK;
    }
    hub_digest_begin(&download->digest, download->file);
    enum status status = open_incomplete(download);
    if (!status) status = fetch(download);
    if (!status) status = finish(download, err);
    if (download->fd >= 0) close(download->fd);
    hub_digest_free(&download->digest);
    if (!status) report(download->transfer, HUB_FETCHED, download->file->path, NULL);
    return status;
}

enum status hub_download(struct hub_transfer *transfer, const struct hub_file *file,
                         struct err *err) {
    struct download download = {.transfer = transfer, .file = file, .fd = -1, .err = err};
    struct buf blob = {0}, incomplete = {0};
    assert(file->bytes >= 0 && *file->hash);
    buf_printf(&blob, "%s/blobs/%s", transfer->repo_folder, file->hash);
    buf_printf(&incomplete, "%s.incomplete", blob.data);
    download.blob = blob.data;
    download.incomplete = incomplete.data;
    enum status status = hub_make_folders(blob.data, download.err);
    if (!status && !has_blob(&download)) {
        int held = lock(&download);
        status = fetch_locked(&download, download.err);
        if (held >= 0) close(held);
    }
    buf_free(&blob);
    buf_free(&incomplete);
    return status;
}
