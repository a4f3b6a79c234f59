#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "server/apis/apis.h"
#include "server/offline/batch.h"
#include "server/openai/openai.h"

/* ---- the set of keys ------------------------------------------------------------------------ */

static bool is_empty(const struct batch_key *key) {
    return !key->hash[0] && !key->hash[1];
}

/* Returns the key's slot, or the slot where it would be inserted. */
static struct batch_key *find(const struct batch_output *output, const uint64_t hash[2]) {
    assert(output->capacity > 0 && output->n_keys < output->capacity);
    size_t mask = output->capacity - 1, at = (size_t)hash[0] & mask;
    while (!is_empty(&output->keys[at]) &&
           (output->keys[at].hash[0] != hash[0] || output->keys[at].hash[1] != hash[1])) {
        at = (at + 1) & mask;
    }
    return &output->keys[at];
}

/* Keeps the table at most half full. */
static void make_room(struct batch_output *output) {
    if (output->n_keys * 2 < output->capacity) return;
    struct batch_output old = *output;
    output->capacity = old.capacity ? old.capacity * 2 : 1024;
    output->keys = mem_calloc(output->capacity, sizeof *output->keys);
    for (size_t i = 0; i < old.capacity; i++) {
        if (!is_empty(&old.keys[i])) *find(output, old.keys[i].hash) = old.keys[i];
    }
    mem_free(old.keys);
}

static enum batch_known note(struct batch_output *output, const struct buf *text, bool from_file) {
    XXH128_hash_t hash = XXH3_128bits(text->data, text->length);
    uint64_t both[2] = {hash.low64 | 1, hash.high64};
    make_room(output);
    struct batch_key *key = find(output, both);
    if (!is_empty(key)) return key->from_file ? BATCH_ANSWERED : BATCH_REPEATED;
    *key = (struct batch_key){{both[0], both[1]}, from_file};
    output->n_keys++;
    assert(output->n_keys * 2 <= output->capacity);
    return BATCH_NEW;
}

enum batch_known batch_output_note(struct batch_output *output, const struct buf *key) {
    return note(output, key, false);
}

/* ---- contents of the file ------------------------------------------------------------------- */

static enum status cannot(const char *path, struct err *err) {
    return err_set(err, STATUS_BAD_FILE, "output-file", "%s: %s", path, strerror(errno));
}

static enum status not_ours(const struct batch_output *output, int64_t number, struct err *err) {
    return err_set(
        err, STATUS_BAD_FILE, "output-file",
        "%s:%lld: this line was not written by `penstock batch`; the file was not changed; give "
        "another file",
        output->path, (long long)number);
}

/* Truncates an incomplete last line, which an interrupted run left. */
static enum status cut_torn(struct batch_output *output, const char *text, size_t length,
                            off_t begin, int64_t number, struct err *err) {
    size_t n = sizeof API_BATCH_START - 1;
    if (memcmp(text, API_BATCH_START, length < n ? length : n) != 0) {
        return not_ours(output, number, err);
    }
    if (ftruncate(fileno(output->file), begin) == 0) return STATUS_OK;
    return cannot(output->path, err);
}

static enum status read_answers(struct batch_output *output, struct err *err) {
    assert(output->file && output->n_keys == 0);
    struct buf key = {0};
    char *line = NULL;
    size_t capacity = 0;
    off_t begin = 0;
    int64_t number = 1;
    enum status status = STATUS_OK;
    for (ssize_t n; !status && (n = getline(&line, &capacity, output->file)) > 0; number++) {
        buf_clear(&key);
        if (line[n - 1] != '\n') {
            status = cut_torn(output, line, (size_t)n, begin, number, err);
        } else if (!api_batch_read_key(&key, line, (size_t)n)) {
            status = not_ours(output, number, err);
        } else {
            note(output, &key, true);
            output->n_found++;
        }
        begin += n;
    }
    if (!status && ferror(output->file)) {
        status = err_set(err, STATUS_BAD_FILE, "output-file", "%s cannot be read", output->path);
    }
    mem_free(line);
    buf_free(&key);
    return status;
}

/* ---- the file ------------------------------------------------------------------------------- */

enum status batch_output_open(struct batch_output *output, const char *path, struct err *err) {
    *output = (struct batch_output){.path = path};
    /* a pipe or a device accepts answers, but old answers cannot be read from it */
    struct stat found;
    bool regular = stat(path, &found) != 0 || S_ISREG(found.st_mode);
    int fd = open(path, (regular ? O_RDWR | O_CREAT : O_WRONLY) | O_CLOEXEC, 0666);
    if (fd < 0) return cannot(path, err);
    output->file = fdopen(fd, regular ? "r+" : "w");
    if (!output->file) {
        close(fd);
        return cannot(path, err);
    }
    if (!regular) return STATUS_OK;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return err_set(err, STATUS_BAD_FILE, "output-file",
                       "%s: another process is writing to this file", path);
    }
    enum status status = read_answers(output, err);
    if (!status && fseeko(output->file, 0, SEEK_END) != 0) status = cannot(path, err);
    return status;
}

enum status batch_output_write(struct batch_output *output, const struct buf *line,
                               struct err *err) {
    fwrite(line->data, 1, line->length, output->file);
    if (fflush(output->file) == 0 && !ferror(output->file)) return STATUS_OK;
    return err_set(err, STATUS_SYSTEM, "output-file", "%s: %s", output->path, strerror(errno));
}

void batch_output_close(struct batch_output *output) {
    if (output->file) fclose(output->file);
    mem_free(output->keys);
    *output = (struct batch_output){0};
}
