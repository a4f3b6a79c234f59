/* DESIGN. A strict JSON parser.
 *
 * It accepts exactly the JSON of RFC 8259 (no 01, no raw control characters, no text after the
 * document). It preserves strings that contain \u0000 and 64-bit integers, reports the position of
 * an error, and keeps no state outside its arguments, as a server needs. It is recursive, to a
 * depth of JSON_MAX_DEPTH. Each node and string is a separate block.
 */
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"

#define MAX_NUMBER_LENGTH 127

struct json_reader {
    const char *what; /* the first words of a message */
    const char *text, *at, *end;
    int depth, n_values, max_values;
    struct err *err;
};

static enum status read_value(struct json_reader *reader, struct json **out);

static enum status fail_at(struct json_reader *reader, const char *at, const char *what) {
    int line = 1, column = 1;
    for (const char *p = reader->text; p < at; p++) {
        column++;
        if (*p == '\n') line++, column = 1;
    }
    return err_set(reader->err, STATUS_INVALID_REQUEST, NULL,
                   "%s is not valid JSON: %s at line %d, column %d (byte %zu).", reader->what, what,
                   line, column, (size_t)(at - reader->text));
}

static void skip_space(struct json_reader *reader) {
    const char *p = reader->at;
    while (p < reader->end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    reader->at = p;
}

static bool next_is(struct json_reader *reader, char c) {
    assert(reader->at <= reader->end);
    skip_space(reader);
    if (reader->at == reader->end || *reader->at != c) return false;
    reader->at++;
    return true;
}

static struct json *node_new(enum json_type type) {
    struct json *node = mem_alloc(sizeof *node);
    *node = (struct json){.type = type};
    return node;
}

/* ---- strings -------------------------------------------------------------------------------- */

/* Returns the value of four hex digits at p, or -1. */
static int hex4(const char *p, const char *end) {
    int value = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)p[i])) return -1;
        int digit = p[i] <= '9' ? p[i] - '0' : (p[i] | 32) - 'a' + 10;
        value = value * 16 + digit;
    }
    return value;
}

/* Reads \uXXXX after the 'u', and the second half of a surrogate pair. */
static bool read_unicode(struct json_reader *reader, char **to) {
    int first = hex4(reader->at, reader->end);
    if (first < 0) return false;
    reader->at += 4;
    unsigned c = (unsigned)first;
    bool high = first >= 0xD800 && first < 0xDC00;
    if (high && reader->end - reader->at >= 6 && reader->at[0] == '\\' && reader->at[1] == 'u') {
        int second = hex4(reader->at + 2, reader->end);
        if (second >= 0xDC00 && second < 0xE000) {
            reader->at += 6;
            c = 0x10000 + ((unsigned)(first - 0xD800) << 10) + (unsigned)(second - 0xDC00);
        }
    }
    if (c >= 0xD800 && c < 0xE000) c = 0xFFFD;
    *to += utf8_write(c, *to);
    return true;
}

/* Reads the escape after a backslash. */
static bool read_escape(struct json_reader *reader, char **to) {
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    if (reader->at == reader->end) return false;
    char c = *reader->at;
    if (c == 'u') {
        reader->at++;
        return read_unicode(reader, to);
    }
    const char *found = c ? strchr(from, c) : NULL;
    if (!found) return false;
    *(*to)++ = into[found - from];
    reader->at++;
    return true;
}

static enum status read_characters(struct json_reader *reader, char *to, size_t *length) {
    char *start = to;
    while (*reader->at != '"') { /* read_string has checked that it exists */
        assert(reader->at < reader->end);
        const char *at = reader->at;
        unsigned char c = (unsigned char)*at;
        if (c == '\\') {
            reader->at++;
            if (!read_escape(reader, &to)) return fail_at(reader, at, "an unknown escape");
        } else if (c < 0x20) {
            return fail_at(reader, at, "a control character that is not escaped");
        } else {
            size_t n = c < 0x80 ? 1 : utf8_character(at, (size_t)(reader->end - at));
            if (n == 0) return fail_at(reader, at, "a byte that is not UTF-8");
            memcpy(to, at, n);
            to += n;
            reader->at += n;
        }
    }
    *to = 0;
    *length = (size_t)(to - start);
    return STATUS_OK;
}

/* Reads a string after its opening quote. Each escape is at least as long as its character, so the
 * length between the quotes is a sufficient capacity. */
static enum status read_string(struct json_reader *reader, char **out, size_t *length) {
    const char *close = reader->at, *end = reader->end;
    while (close < end && *close != '"') close += *close == '\\' && end - close > 1 ? 2 : 1;
    if (close == end) return fail_at(reader, reader->at - 1, "a string without an end");
    char *text = mem_alloc((size_t)(close - reader->at) + 1);
    enum status status = read_characters(reader, text, length);
    if (status != STATUS_OK) {
        mem_free(text);
        return status;
    }
    reader->at++;
    *out = text;
    return STATUS_OK;
}

static enum status read_string_value(struct json_reader *reader, struct json **out) {
    char *text;
    size_t length;
    enum status status = read_string(reader, &text, &length);
    if (status != STATUS_OK) return status;
    *out = node_new(JSON_STRING);
    (*out)->string = text;
    (*out)->length = length;
    return STATUS_OK;
}

/* ---- numbers and names ---------------------------------------------------------------------- */

static const char *skip_digits(const char *p, const char *end) {
    while (p < end && isdigit((unsigned char)*p)) p++;
    return p;
}

/* Returns the end of the JSON number at p, or NULL. */
static const char *number_end(const char *p, const char *end, bool *integer) {
    if (p < end && *p == '-') p++;
    const char *digits = p;
    p = skip_digits(p, end);
    if (p == digits || (*digits == '0' && p > digits + 1)) return NULL;
    *integer = true;
    if (p < end && *p == '.') {
        digits = p + 1;
        p = skip_digits(digits, end);
        *integer = false;
        if (p == digits) return NULL;
    }
    if (p < end && (*p | 32) == 'e') {
        digits = p + 1;
        if (digits < end && (*digits == '+' || *digits == '-')) digits++;
        p = skip_digits(digits, end);
        *integer = false;
        if (p == digits) return NULL;
    }
    return p;
}

/* Is the number an integer within int64, without loss? An integer of more than 15 digits is read
 * from its text, because a double may have rounded it. */
static bool exact_integer(const char *text, bool is_written_as_one, double value, int64_t *out) {
    /* 2^53: a double represents every integer up to this */
    const double exact = 9007199254740992.0;
    if (is_written_as_one && strlen(text) > 15) {
        errno = 0;
        *out = strtoll(text, NULL, 10);
        return errno == 0;
    }
    if (value != floor(value) || fabs(value) > exact) return false;
    *out = (int64_t)value;
    return true;
}

static enum status read_number(struct json_reader *reader, struct json **out) {
    char text[MAX_NUMBER_LENGTH + 1];
    bool is_written_as_integer;
    const char *start = reader->at;
    const char *end = number_end(start, reader->end, &is_written_as_integer);
    if (!end) return fail_at(reader, start, "a malformed number");
    size_t length = (size_t)(end - start);
    if (length > MAX_NUMBER_LENGTH) return fail_at(reader, start, "a number of too many digits");
    memcpy(text, start, length);
    text[length] = 0;
    double value = strtod(text, NULL);
    if (!isfinite(value)) return fail_at(reader, start, "a number that is too large");
    struct json *number = *out = node_new(JSON_NUMBER);
    number->number = is_written_as_integer && value == 0 ? 0 : value; /* -0 is 0, -0.0 is not */
    number->is_integer = exact_integer(text, is_written_as_integer, value, &number->integer);
    number->is_large = is_written_as_integer && !number->is_integer;
    if (number->is_large) {
        number->digits = mem_alloc(length + 1);
        memcpy(number->digits, text, length + 1);
    }
    reader->at = end;
    return STATUS_OK;
}

static enum status read_name(struct json_reader *reader, struct json **out) {
    static const struct {
        const char *name;
        enum json_type type;
        bool boolean;
    } names[] = {
        {"true", JSON_BOOL, true}, {"false", JSON_BOOL, false}, {"null", JSON_NULL, false}};
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(names[i].name);
        if ((size_t)(reader->end - reader->at) < length) continue;
        if (memcmp(reader->at, names[i].name, length) != 0) continue;
        reader->at += length;
        *out = node_new(names[i].type);
        (*out)->boolean = names[i].boolean;
        return STATUS_OK;
    }
    return fail_at(reader, reader->at, "no value");
}

/* ---- arrays and objects --------------------------------------------------------------------- */

/* Reads a member's name and colon. */
static enum status read_member_name(struct json_reader *reader, char **name) {
    size_t length;
    if (!next_is(reader, '"')) return fail_at(reader, reader->at, "no field name in quotes");
    const char *start = reader->at;
    enum status status = read_string(reader, name, &length);
    if (status != STATUS_OK) return status;
    if (strlen(*name) != length) return fail_at(reader, start, "a field name with \\u0000");
    if (!next_is(reader, ':')) return fail_at(reader, reader->at, "no ':' after a field name");
    return STATUS_OK;
}

/* Reads an element or member. On failure, *out may hold a part of it. */
static enum status read_child(struct json_reader *reader, enum json_type parent,
                              struct json **out) {
    char *name = NULL;
    enum status status = STATUS_OK;
    if (parent == JSON_OBJECT) status = read_member_name(reader, &name);
    if (status == STATUS_OK) status = read_value(reader, out);
    if (*out)
        (*out)->name = name;
    else
        mem_free(name);
    return status;
}

/* Reads an array or object after '[' or '{'. */
static enum status read_children(struct json_reader *reader, struct json *parent, char close) {
    assert(reader->depth > 0 && reader->at <= reader->end);
    struct json **last = &parent->child;
    if (next_is(reader, close)) return STATUS_OK;
    for (;;) {
        enum status status = read_child(reader, parent->type, last);
        if (status != STATUS_OK) return status;
        last = &(*last)->next;
        parent->n_children++;
        if (next_is(reader, close)) return STATUS_OK;
        if (!next_is(reader, ',')) {
            return fail_at(reader, reader->at, close == ']' ? "no ',' or ']'" : "no ',' or '}'");
        }
    }
}

static enum status read_container(struct json_reader *reader, struct json **out, char open) {
    if (reader->depth == JSON_MAX_DEPTH) {
        return fail_at(reader, reader->at, "too deep a nesting");
    }
    reader->at++;
    *out = node_new(open == '[' ? JSON_ARRAY : JSON_OBJECT);
    assert(reader->depth < JSON_MAX_DEPTH);
    reader->depth++;
    enum status status = read_children(reader, *out, open == '[' ? ']' : '}');
    reader->depth--;
    return status;
}

/* Reads one value. On failure, *out may hold a part of it; the caller frees it with the tree. */
static enum status read_value(struct json_reader *reader, struct json **out) {
    skip_space(reader);
    if (reader->at == reader->end) return fail_at(reader, reader->at, "no value");
    if (++reader->n_values > reader->max_values)
        return fail_at(reader, reader->at, "too many values");
    char c = *reader->at;
    if (c == '{' || c == '[') return read_container(reader, out, c);
    if (c == '-' || isdigit((unsigned char)c)) return read_number(reader, out);
    if (c != '"') return read_name(reader, out);
    reader->at++;
    return read_string_value(reader, out);
}

enum status json_parse(struct json **out, const char *what, const char *text, size_t length,
                       struct err *err) {
    return json_parse_bounded(out, what, text, length, JSON_MAX_VALUES, err);
}

enum status json_parse_bounded(struct json **out, const char *what, const char *text, size_t length,
                               int max_values, struct err *err) {
    struct json_reader reader = {.what = what,
                                 .text = text,
                                 .at = text,
                                 .end = text + length,
                                 .max_values = max_values,
                                 .err = err};
    struct json *root = NULL;
    enum status status = read_value(&reader, &root);
    skip_space(&reader);
    assert(reader.depth == 0 && reader.at <= reader.end);
    if (status == STATUS_OK && reader.at != reader.end) {
        status = fail_at(&reader, reader.at, "text after the document");
    }
    if (status != STATUS_OK) {
        json_free(root);
        root = NULL;
    }
    *out = root;
    return status;
}
