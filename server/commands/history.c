/* DESIGN: stores the messages typed in `run --chat` for later runs.
 *
 * The file is text with one entry per line. In an entry, \n is a line end and \\ a backslash. Each
 * entry is appended with one write, so processes do not overwrite each other's entries. The size is
 * bounded on reading: old entries are dropped, and the file is rewritten if it has grown to twice
 * the limit.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/commands/console.h"

bool history_path(struct buf *path) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && *state == '/')
        buf_printf(path, "%s/penstock/history", state);
    else if (home && *home == '/')
        buf_printf(path, "%s/.local/state/penstock/history", home);
    return path->length > 0;
}

/* ---- entries and lines ---------------------------------------------------------------------- */

static void add_line(struct buf *out, const char *text) {
    for (; *text; text++) {
        if (*text == '\n')
            buf_puts(out, "\\n");
        else if (*text == '\\')
            buf_puts(out, "\\\\");
        else
            buf_add(out, text, 1);
    }
    buf_puts(out, "\n");
}

/* Converts a line of the file to its entry, in place. */
static void decode_line(char *line) {
    char *out = line;
    line[strcspn(line, "\r\n")] = 0;
    for (const char *at = line; *at; at++) {
        if (*at != '\\' || !at[1])
            *out++ = *at;
        else
            *out++ = *++at == 'n' ? '\n' : *at;
    }
    *out = 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

struct history_lines {
    char *line[HISTORY_ENTRIES]; /* ring buffer */
    int n;                       /* number of lines read in total */
};

static void read_lines(struct history_lines *lines, FILE *file) {
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, file) > 0) {
        char **place = &lines->line[lines->n % HISTORY_ENTRIES];
        decode_line(line);
        if (!*line || strlen(line) > HISTORY_ENTRY_BYTES) continue;
        mem_free(*place);
        *place = mem_strdup(line);
        lines->n++;
    }
    mem_free(line);
}

/* Replaces the file by one with only the newest entries. If that fails, the file stays long. */
static void rewrite(const char *path, const struct history_lines *lines) {
    assert(lines->n >= HISTORY_ENTRIES);
    struct buf text = {0}, other = {0};
    for (int i = lines->n - HISTORY_ENTRIES; i < lines->n; i++)
        add_line(&text, lines->line[i % HISTORY_ENTRIES]);
    buf_printf(&other, "%s.%ld", path, (long)getpid());
    int fd = open(other.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        bool whole = write(fd, text.data, text.length) == (ssize_t)text.length;
        whole &= close(fd) == 0;
        if (!whole || rename(other.data, path) != 0) unlink(other.data);
    }
    buf_free(&text);
    buf_free(&other);
}

void history_load(const char *path, void (*entry)(void *arg, const char *text), void *arg) {
    struct history_lines *lines = mem_calloc(1, sizeof *lines);
    FILE *file = fopen(path, "re");
    if (file) {
        read_lines(lines, file);
        fclose(file);
    }
    for (int i = max_int(lines->n - HISTORY_ENTRIES, 0); i < lines->n; i++)
        entry(arg, lines->line[i % HISTORY_ENTRIES]);
    if (lines->n >= 2 * HISTORY_ENTRIES) rewrite(path, lines);
    for (int i = 0; i < HISTORY_ENTRIES; i++) mem_free(lines->line[i]);
    mem_free(lines);
}

/* ---- appending ------------------------------------------------------------------------------ */

/* Creates missing parent folders of the file. */
static void make_folders(const char *path) {
    char *folder = mem_strdup(path);
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(folder, 0700); /* if this fails, open fails too */
        *slash = '/';
    }
    mem_free(folder);
}

enum status history_append(const char *path, const char *text, struct err *err) {
    if (strlen(text) > HISTORY_ENTRY_BYTES) return STATUS_OK;
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    int fd = open(path, flags, 0600);
    if (fd < 0 && errno == ENOENT) {
        make_folders(path);
        fd = open(path, flags, 0600);
    }
    struct buf line = {0};
    add_line(&line, text);
    bool written = fd >= 0 && fchmod(fd, 0600) == 0 &&
                   write(fd, line.data, line.length) == (ssize_t)line.length;
    int cause = errno;
    buf_free(&line);
    if (fd >= 0) close(fd);
    if (written) return STATUS_OK;
    return err_set(err, STATUS_SYSTEM, "history", "%s: %s", path, strerror(cause));
}
