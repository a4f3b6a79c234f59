/* DESIGN: writes recorded answers.
 *
 * A record is made in memory while its answer is sent, and is appended in one write after the last
 * byte. So records of parallel answers do not mix, and a process that is killed loses only records
 * of answers that were not complete. The write goes to the page cache from the loop thread: a
 * server that records is for tests, not for load. A lock keeps a second process from the file.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "server/cassette/cassette.h"
#include "server/json/json.h"

struct recorder {
    char *path;
    int fd;
    bool has_failed; /* the log has said so */
};

enum status recorder_open(struct recorder **out, const char *path, struct err *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    *out = NULL;
    if (fd < 0) return err_set(err, STATUS_BAD_FILE, "record", "%s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return err_set(err, STATUS_BAD_FILE, "record",
                       "%s: another process records to this file; give another one", path);
    }
    *out = mem_calloc(1, sizeof **out);
    **out = (struct recorder){.path = mem_strdup(path), .fd = fd};
    return STATUS_OK;
}

void recorder_close(struct recorder *recorder) {
    if (!recorder) return;
    close(recorder->fd);
    mem_free(recorder->path);
    mem_free(recorder);
}

static void write_member(struct buf *out, const char *name, const char *text) {
    buf_printf(out, ",\"%s\":", name);
    if (text)
        json_write_string(out, text, strlen(text));
    else
        buf_puts(out, "null");
}

void tape_begin(struct tape *tape, const struct tape_head *head) {
    struct buf *out = &tape->line;
    assert(!tape_is_on(tape) && head->request_length > 0);
    buf_puts(out, "{\"version\":1");
    write_member(out, "path", head->path);
    buf_puts(out, ",\"request\":");
    buf_add(out, head->request, head->request_length);
    buf_printf(out, ",\"status\":%d", head->status);
    write_member(out, "type", head->type);
    buf_printf(out, ",\"stream\":%s", head->is_stream ? "true" : "false");
    write_member(out, "id", head->id);
    write_member(out, "ignored", head->ignored);
    buf_puts(out, ",\"pieces\":[");
    tape->n_pieces = 0;
}

void tape_add(struct tape *tape, const char *bytes, size_t length, uint64_t turn) {
    struct buf *out = &tape->line;
    assert(tape_is_on(tape));
    if (length == 0) return;
    if (tape->n_pieces > 0 && turn == tape->turn) {
        out->length--; /* the quote that ends the last piece */
    } else {
        buf_puts(out, tape->n_pieces > 0 ? ",\"" : "\"");
        tape->n_pieces++;
    }
    json_write_part(out, bytes, length);
    buf_puts(out, "\"");
    tape->turn = turn;
}

void tape_end(struct tape *tape, const struct buf *receipt) {
    assert(tape_is_on(tape));
    buf_puts(&tape->line, "],\"receipt\":");
    if (receipt && receipt->length > 0)
        buf_add(&tape->line, receipt->data, receipt->length);
    else
        buf_puts(&tape->line, "null");
    buf_puts(&tape->line, "}\n");
}

void tape_free(struct tape *tape) {
    buf_free(&tape->line);
    tape->n_pieces = 0;
}

/* Writes all bytes. Returns false if that fails. */
static bool write_all(int fd, const char *data, size_t length) {
    for (size_t at = 0; at < length;) {
        ssize_t n = write(fd, data + at, length - at);
        if (n < 0 && errno != EINTR) return false;
        if (n > 0) at += (size_t)n;
    }
    return true;
}

void recorder_add(struct recorder *recorder, struct tape *tape) {
    assert(tape_is_on(tape) && tape->line.data[tape->line.length - 1] == '\n');
    off_t before = lseek(recorder->fd, 0, SEEK_END);
    bool written = write_all(recorder->fd, tape->line.data, tape->line.length);
    int error = errno;
    if (!written && before >= 0 && ftruncate(recorder->fd, before) != 0)
        log_line(LOG_WARNING, "%s: a part of a record cannot be removed (%s)", recorder->path,
                 strerror(errno));
    if (!written && !recorder->has_failed)
        log_line(LOG_WARNING, "%s: an answer was not recorded (%s)", recorder->path,
                 strerror(error));
    recorder->has_failed = !written;
    tape_free(tape);
}
