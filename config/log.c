/* DESIGN
 * Each log line is one write(2) of at most LINE_BYTES, which is PIPE_BUF. So lines of several
 * threads do not mix, even on a pipe, without a lock. The line is built on the stack, so logging
 * does not allocate. A value that does not fit is cut at a character boundary. A field that does
 * not fit is omitted. The end of the line is always complete.
 *
 * All output passes through `escape`: control characters, line separators, marks that change the
 * direction of text, and invalid UTF-8 are never written.
 *
 * Level and format are set before threads start, and only read later.
 */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"

#define LINE_BYTES PIPE_BUF
#define MESSAGE_BYTES 2048 /* of an escaped message */
#define VALUE_BYTES 512    /* of an escaped value */
#define TAIL_BYTES 4       /* reserved for the end of a line */

static struct {
    _Atomic int level; /* an enum log_level */
    enum log_format format;
    const char *style[LOG_ERROR + 1], *plain; /* codes around the level of a text line */
} settings = {LOG_INFO, LOG_TEXT, {"", "", "", ""}, ""};

void log_set_level(enum log_level level) {
    assert(level <= LOG_ERROR);
    atomic_store(&settings.level, (int)level);
}

void log_setup(enum log_level level, enum log_format format) {
    assert(level <= LOG_ERROR && format <= LOG_JSON);
    log_set_level(level);
    settings.format = format;
    settings.style[LOG_DEBUG] = terminal_style(STDERR_FILENO, TERMINAL_NOTE);
    settings.style[LOG_INFO] = terminal_style(STDERR_FILENO, TERMINAL_NOTE);
    settings.style[LOG_WARNING] = terminal_style(STDERR_FILENO, TERMINAL_WARNING);
    settings.style[LOG_ERROR] = terminal_style(STDERR_FILENO, TERMINAL_ERROR);
    settings.plain = terminal_style(STDERR_FILENO, TERMINAL_PLAIN);
}

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- one line, on the stack ----------------------------------------------------------------- */

struct line {
    char data[LINE_BYTES];
    size_t length;
};

/* ---- escaping ------------------------------------------------------------------------------- */

/* Would this character move the cursor, end the line, or change the direction of text? */
static bool is_unsafe(uint32_t code) {
    return code < 0x20 || (code >= 0x7F && code <= 0x9F) || (code >= 0x2028 && code <= 0x202E) ||
           (code >= 0x2066 && code <= 0x2069) || code == 0x200E || code == 0x200F || code == 0xFEFF;
}

/* Writes the escaped form of one character to out[12] and returns its length. Sets *used to its
 * length in `text`. */
static size_t escape_one(const char *text, bool quotes, char *out, size_t *used) {
    size_t n = utf8_character(text, strnlen(text, 4));
    *used = n ? n : 1;
    if (n == 0) return (size_t)sprintf(out, "\\ufffd");
    uint32_t code = utf8_code_point(text, n);
    if (quotes && (code == '"' || code == '\\')) return (size_t)sprintf(out, "\\%c", (int)code);
    if (code == '\n') return (size_t)sprintf(out, "\\n");
    if (is_unsafe(code)) return (size_t)sprintf(out, "\\u%04x", code);
    memcpy(out, text, n);
    return n;
}

/* Writes the escaped text to out[size] and returns its length. If it does not fit, it is cut at a
 * character boundary and ends with an ellipsis. `quotes`: the text is for use inside quotes. */
static size_t escape(const char *text, bool quotes, char *out, size_t size) {
    static const char ellipsis[] = "\xE2\x80\xA6";
    size_t length = 0, used;
    assert(size > sizeof ellipsis);
    for (const char *at = text; *at; at += used) {
        char one[12];
        size_t n = escape_one(at, quotes, one, &used);
        if (length + n + sizeof ellipsis > size) {
            memcpy(out + length, ellipsis, sizeof ellipsis - 1);
            return length + sizeof ellipsis - 1;
        }
        memcpy(out + length, one, n);
        length += n;
    }
    return length;
}

/* ---- parts of a line ------------------------------------------------------------------------ */

/* Is `key=value` unambiguous without quotes? */
static bool needs_no_quotes(const char *text) {
    if (!*text) return false;
    for (; *text; text++) {
        if ((unsigned char)*text <= ' ' || strchr("\"\\=", *text)) return false;
    }
    return true;
}

/* Writes a field's value to out[size], quoted if necessary. Returns its length. */
static size_t value_text(const struct log_field *field, char *out, size_t size) {
    bool json = settings.format == LOG_JSON;
    if (field->kind == LOG_INTEGER) return (size_t)snprintf(out, size, "%lld", field->integer);
    if (field->kind == LOG_REAL) {
        if (json && !isfinite(field->real)) return (size_t)snprintf(out, size, "null");
        return (size_t)snprintf(out, size, "%.6g", field->real);
    }
    if (!field->string) return (size_t)snprintf(out, size, json ? "null" : "-");
    if (!json && needs_no_quotes(field->string)) return escape(field->string, false, out, size);
    out[0] = '"';
    size_t n = 1 + escape(field->string, true, out + 1, size - 2);
    out[n] = '"';
    return n + 1;
}

/* Appends ` key=value` or `,"key":value`, or nothing if it does not fit. */
static void line_field(struct line *line, const struct log_field *field) {
    assert(field->key && *field->key);
    bool json = settings.format == LOG_JSON;
    char key[80], whole[VALUE_BYTES + 96];
    size_t key_length = escape(field->key, true, key, sizeof key);
    size_t n =
        (size_t)snprintf(whole, sizeof whole, json ? ",\"%.*s\":" : " %.*s=", (int)key_length, key);
    n += value_text(field, whole + n, VALUE_BYTES);
    if (n > LINE_BYTES - TAIL_BYTES - line->length) return;
    memcpy(line->data + line->length, whole, n);
    line->length += n;
}

static void line_head(struct line *line, enum log_level level, const char *message) {
    static const char *const padded[] = {"DEBUG", "INFO ", "WARN ", "ERROR"};
    static const char *const names[] = {"debug", "info", "warning", "error"};
    bool json = settings.format == LOG_JSON;
    char time[40], text[MESSAGE_BYTES];
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t length = strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(time + length, sizeof time - length, ".%03dZ", (int)(now.tv_nsec / 1000000));
    int n = (int)escape(message, json, text, sizeof text);
    line->length =
        (size_t)(json ? snprintf(line->data, sizeof line->data,
                                 "{\"time\":\"%s\",\"level\":\"%s\",\"message\":\"%.*s\"", time,
                                 names[level], n, text)
                      : snprintf(line->data, sizeof line->data, "%s %s %.*s", time, padded[level],
                                 n, text));
}

void log_fields(enum log_level level, const char *message, const struct log_field *fields, int n) {
    if ((int)level < atomic_load_explicit(&settings.level, memory_order_relaxed)) return;
    int saved = errno;
    struct line line;
    line_head(&line, level, message);
    for (int i = 0; i < n; i++) line_field(&line, &fields[i]);
    if (settings.format == LOG_JSON) line.data[line.length++] = '}';
    line.data[line.length++] = '\n';
    assert(line.length <= LINE_BYTES);
    /* errors cannot be reported, and a full disk must not end the server */
    ssize_t written;
    do written = write(STDERR_FILENO, line.data, line.length);
    while (written < 0 && errno == EINTR);
    errno = saved;
}

void log_line(enum log_level level, const char *format, ...) {
    if ((int)level < atomic_load_explicit(&settings.level, memory_order_relaxed)) return;
    char message[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    log_fields(level, message, NULL, 0);
}
