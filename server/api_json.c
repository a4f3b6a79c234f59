/* DESIGN. A strict JSON reader that makes cJSON trees.
 *
 * cJSON's own reader takes what is not JSON (01, raw control characters, anything after a NUL),
 * ends strings at \u0000, rounds integers above 2^53, and reports where it failed in a global that
 * all threads share. A server's front door needs none of these. So the text is read here, by
 * recursion that is bounded by JSON_MAX_DEPTH, and only the nodes are cJSON's.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api_internal.h"

#define MAX_NUMBER_LENGTH 127

struct reader {
    const char *text, *at, *end;
    int depth, n_values;
    struct err *err;
};

static enum status read_value(struct reader *reader, cJSON **out);

static enum status fail_at(struct reader *reader, const char *at, const char *what) {
    int line = 1, column = 1;
    for (const char *p = reader->text; p < at; p++) {
        column++;
        if (*p == '\n') line++, column = 1;
    }
    return err_set(reader->err, STATUS_INVALID_REQUEST, NULL,
                   "The body is not valid JSON: %s at line %d, column %d (byte %zu).", what, line,
                   column, (size_t)(at - reader->text));
}

static enum status fail_memory(struct reader *reader) {
    return err_set(reader->err, STATUS_UNAVAILABLE, NULL, "Not enough memory for this request.");
}

static void skip_space(struct reader *reader) {
    const char *p = reader->at;
    while (p < reader->end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    reader->at = p;
}

static bool next_is(struct reader *reader, char c) {
    skip_space(reader);
    if (reader->at == reader->end || *reader->at != c) return false;
    reader->at++;
    return true;
}

static cJSON *node_new(int type) {
    cJSON *node = cJSON_malloc(sizeof *node);
    if (node) *node = (cJSON){.type = type};
    return node;
}

/* ---- strings -------------------------------------------------------------------------------- */

/* The four hex digits at p, or -1. */
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

/* Reads \uXXXX at reader->at (behind the 'u'), with its second half where it is one of a pair. */
static bool read_unicode(struct reader *reader, char **to) {
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

/* Reads the escape at reader->at (behind the backslash). */
static bool read_escape(struct reader *reader, char **to) {
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

/* Where the string that begins at `p` (behind its quote) ends: at its closing quote, or at the end
 * of the text. */
static const char *string_end(const char *p, const char *end) {
    while (p < end && *p != '"') p += *p == '\\' && end - p > 1 ? 2 : 1;
    return p;
}

static enum status read_characters(struct reader *reader, char *to, size_t *length) {
    char *start = to;
    while (*reader->at != '"') {
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

/* Reads a string whose opening quote is behind reader->at. No escape is shorter than what it stands
 * for, so the text between the quotes is room enough. */
static enum status read_string(struct reader *reader, char **out, size_t *length) {
    const char *close = string_end(reader->at, reader->end);
    if (close == reader->end) return fail_at(reader, reader->at - 1, "a string without an end");
    char *text = cJSON_malloc((size_t)(close - reader->at) + 1);
    if (!text) return fail_memory(reader);
    enum status status = read_characters(reader, text, length);
    if (status != STATUS_OK) {
        cJSON_free(text);
        return status;
    }
    reader->at++;
    *out = text;
    return STATUS_OK;
}

static enum status read_string_value(struct reader *reader, cJSON **out) {
    char *text;
    size_t length;
    enum status status = read_string(reader, &text, &length);
    if (status != STATUS_OK) return status;
    *out = node_new(cJSON_String);
    if (!*out || length > INT32_MAX) {
        cJSON_free(text);
        return fail_memory(reader);
    }
    (*out)->valuestring = text;
    (*out)->valueint = (int)length;
    return STATUS_OK;
}

/* ---- numbers and names ---------------------------------------------------------------------- */

static const char *skip_digits(const char *p, const char *end) {
    while (p < end && isdigit((unsigned char)*p)) p++;
    return p;
}

/* The end of the number at p by JSON's grammar, or NULL. */
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

static int clamp_to_int(double value) {
    return value >= INT32_MAX ? INT32_MAX : value <= INT32_MIN ? INT32_MIN : (int)value;
}

static enum status read_number(struct reader *reader, cJSON **out) {
    char text[MAX_NUMBER_LENGTH + 1];
    bool integer;
    const char *start = reader->at, *end = number_end(start, reader->end, &integer);
    if (!end) return fail_at(reader, start, "a malformed number");
    size_t length = (size_t)(end - start);
    if (length > MAX_NUMBER_LENGTH) return fail_at(reader, start, "a number of too many digits");
    memcpy(text, start, length);
    text[length] = 0;
    double value = strtod(text, NULL);
    if (!isfinite(value)) return fail_at(reader, start, "a number that is too large");
    *out = node_new(cJSON_Number);
    if (!*out) return fail_memory(reader);
    (*out)->valuedouble = value;
    (*out)->valueint = clamp_to_int(value);
    if (integer && length > 15) { /* 15 digits always survive in a double */
        (*out)->valuestring = cJSON_malloc(length + 1);
        if (!(*out)->valuestring) return fail_memory(reader);
        memcpy((*out)->valuestring, text, length + 1);
    }
    reader->at = end;
    return STATUS_OK;
}

static enum status read_name(struct reader *reader, cJSON **out) {
    static const struct {
        const char *name;
        int type;
    } names[] = {{"true", cJSON_True}, {"false", cJSON_False}, {"null", cJSON_NULL}};
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(names[i].name);
        if ((size_t)(reader->end - reader->at) < length) continue;
        if (memcmp(reader->at, names[i].name, length) != 0) continue;
        reader->at += length;
        *out = node_new(names[i].type);
        if (*out && names[i].type == cJSON_True) (*out)->valueint = 1;
        return *out ? STATUS_OK : fail_memory(reader);
    }
    return fail_at(reader, reader->at, "no value");
}

/* ---- arrays and objects --------------------------------------------------------------------- */

/* Appends a child in constant time: the first child's `prev` is the last one. */
static void append(cJSON *parent, cJSON *child) {
    if (!parent->child) {
        parent->child = child;
        child->prev = child;
        return;
    }
    cJSON *last = parent->child->prev;
    last->next = child;
    child->prev = last;
    parent->child->prev = child;
}

static enum status read_member(struct reader *reader, cJSON *parent) {
    char *key = NULL;
    size_t length = 0;
    enum status status = STATUS_OK;
    if (parent->type == cJSON_Object) {
        if (!next_is(reader, '"')) return fail_at(reader, reader->at, "no field name in quotes");
        const char *start = reader->at;
        if ((status = read_string(reader, &key, &length)) != STATUS_OK) return status;
        if (strlen(key) != length) status = fail_at(reader, start, "a field name with \\u0000");
        if (status == STATUS_OK && !next_is(reader, ':')) {
            status = fail_at(reader, reader->at, "no ':' behind a field name");
        }
    }
    cJSON *child = NULL;
    if (status == STATUS_OK) status = read_value(reader, &child);
    if (!child) {
        cJSON_free(key);
        return status;
    }
    child->string = key;
    append(parent, child);
    return status;
}

/* Reads what follows '[' or '{'. */
static enum status read_members(struct reader *reader, cJSON *parent, char close) {
    if (next_is(reader, close)) return STATUS_OK;
    for (;;) {
        enum status status = read_member(reader, parent);
        if (status != STATUS_OK) return status;
        if (next_is(reader, close)) return STATUS_OK;
        if (!next_is(reader, ',')) {
            return fail_at(reader, reader->at, close == ']' ? "no ',' or ']'" : "no ',' or '}'");
        }
    }
}

static enum status read_container(struct reader *reader, cJSON **out, char open) {
    if (reader->depth == JSON_MAX_DEPTH) {
        return fail_at(reader, reader->at, "too deep a nesting");
    }
    reader->at++;
    *out = node_new(open == '[' ? cJSON_Array : cJSON_Object);
    if (!*out) return fail_memory(reader);
    reader->depth++;
    enum status status = read_members(reader, *out, open == '[' ? ']' : '}');
    reader->depth--;
    return status;
}

/* Reads one value. On failure *out may hold a part of it, which goes the way of the tree. */
static enum status read_value(struct reader *reader, cJSON **out) {
    skip_space(reader);
    if (reader->at == reader->end) return fail_at(reader, reader->at, "no value");
    if (++reader->n_values > JSON_MAX_VALUES) return fail_at(reader, reader->at, "too many values");
    char c = *reader->at;
    if (c == '{' || c == '[') return read_container(reader, out, c);
    if (c == '-' || isdigit((unsigned char)c)) return read_number(reader, out);
    if (c != '"') return read_name(reader, out);
    reader->at++;
    return read_string_value(reader, out);
}

enum status json_parse(cJSON **out, const char *text, size_t length, struct err *err) {
    struct reader reader = {text, text, text + length, 0, 0, err};
    cJSON *root = NULL;
    enum status status = read_value(&reader, &root);
    skip_space(&reader);
    if (status == STATUS_OK && reader.at != reader.end) {
        status = fail_at(&reader, reader.at, "text behind the document");
    }
    if (status != STATUS_OK) {
        cJSON_Delete(root);
        root = NULL;
    }
    *out = root;
    return status;
}

/* ---- looking at values ---------------------------------------------------------------------- */

size_t json_string_length(const cJSON *string) {
    return (size_t)string->valueint;
}

bool json_integer(const cJSON *number, int64_t *out) {
    const double exact = 9007199254740992.0; /* 2^53: up to it every integer is a double */
    if (!cJSON_IsNumber(number)) return false;
    if (number->valuestring) {
        errno = 0;
        *out = strtoll(number->valuestring, NULL, 10);
        return errno == 0;
    }
    double value = number->valuedouble;
    if (value != floor(value) || fabs(value) > exact) return false;
    *out = (int64_t)value;
    return true;
}

const char *json_type_name(const cJSON *value) {
    switch (value->type & 0xFF) {
    case cJSON_False:
    case cJSON_True:
        return "a boolean";
    case cJSON_NULL:
        return "null";
    case cJSON_Number:
        return "a number";
    case cJSON_String:
        return "a string";
    case cJSON_Array:
        return "an array";
    default:
        return "an object";
    }
}
