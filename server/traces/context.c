/* The headers of W3C Trace Context: traceparent and tracestate. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/traces/internal.h"

/* ---- traceparent ----------------------------------------------------------------------------- */

/* The places of the parts: version, trace id, span id, flags. */
enum { AT_TRACE = 3, AT_SPAN = 36, AT_FLAGS = 53, LENGTH = 55 };

/* Returns the value of a hex digit in lower case, or -1. */
static int digit_of(char c) {
    if (is_digit(c)) return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads n bytes in hex. Returns false at another character. */
static bool read_hex(unsigned char *out, const char *text, int n) {
    for (int i = 0; i < n; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

static bool is_zero(const unsigned char *bytes, int n) {
    for (int i = 0; i < n; i++)
        if (bytes[i]) return false;
    return true;
}

bool trace_context_read(struct trace_context *out, const char *text) {
    unsigned char version;
    size_t length = strlen(text);
    bool has_form = length >= LENGTH && text[AT_TRACE - 1] == '-' && text[AT_SPAN - 1] == '-' &&
                    text[AT_FLAGS - 1] == '-';
    if (!has_form || !read_hex(&version, text, 1) || version == 0xff) return false;
    if (length > LENGTH && (version == 0 || text[LENGTH] != '-')) return false;
    if (!read_hex(out->trace_id, text + AT_TRACE, TRACE_ID_BYTES) ||
        !read_hex(out->span_id, text + AT_SPAN, SPAN_ID_BYTES) ||
        !read_hex(&out->flags, text + AT_FLAGS, 1))
        return false;
    out->flags &= TRACE_SAMPLED | TRACE_RANDOM; /* the meaning of the others is not known */
    return !is_zero(out->trace_id, TRACE_ID_BYTES) && !is_zero(out->span_id, SPAN_ID_BYTES);
}

void trace_hex_write(char *out, const unsigned char *bytes, int n) {
    for (int i = 0; i < n; i++) {
        out[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
}

void trace_context_write(const struct trace_context *context, char out[TRACE_PARENT_BYTES]) {
    assert(!is_zero(context->trace_id, TRACE_ID_BYTES));
    assert(!is_zero(context->span_id, SPAN_ID_BYTES));
    memcpy(out, "00-", 3);
    trace_hex_write(out + AT_TRACE, context->trace_id, TRACE_ID_BYTES);
    out[AT_SPAN - 1] = '-';
    trace_hex_write(out + AT_SPAN, context->span_id, SPAN_ID_BYTES);
    out[AT_FLAGS - 1] = '-';
    trace_hex_write(out + AT_FLAGS, &context->flags, 1);
    out[LENGTH] = 0;
}

/* ---- tracestate ------------------------------------------------------------------------------ */

enum { MAX_MEMBERS = 32, MAX_KEY = 256, MAX_TENANT = 241, MAX_SYSTEM = 14, MAX_VALUE = 256 };

/* A member without the white space around it. */
struct state_member {
    const char *text;
    size_t length, key_length; /* of key=value, of the key */
};

static bool is_lower(char c) {
    return c >= 'a' && c <= 'z';
}

/* Is it a key's part of up to `most` characters that begins with a letter, or also a digit? */
static bool is_word(const char *text, size_t length, size_t most, bool may_begin_with_digit) {
    if (length == 0 || length > most) return false;
    if (!is_lower(*text) && !(may_begin_with_digit && is_digit(*text))) return false;
    for (size_t i = 0; i < length; i++)
        if (!is_lower(text[i]) && !is_digit(text[i]) && !strchr("_-*/", text[i])) return false;
    return true;
}

static bool is_key(const char *text, size_t length) {
    const char *at = memchr(text, '@', length);
    if (!at) return is_word(text, length, MAX_KEY, false);
    size_t tenant = (size_t)(at - text);
    return is_word(text, tenant, MAX_TENANT, true) &&
           is_word(at + 1, length - tenant - 1, MAX_SYSTEM, false);
}

static bool is_value(const char *text, size_t length) {
    if (length > MAX_VALUE) return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~' || text[i] == ',' || text[i] == '=') return false;
    return true;
}

/* Reads the next member that is not empty, and moves *at past it. Returns false if it is invalid.
 * Its length is 0 at the end. */
static bool next_member(const char **at, struct state_member *out) {
    static const char space[] = " \t", ends[] = ", \t";
    const char *text = *at + strspn(*at, ends);
    size_t length = strcspn(text, ",");
    *at = text + length;
    while (length > 0 && strchr(space, text[length - 1])) length--;
    *out = (struct state_member){text, length, 0};
    if (length == 0) return true;
    const char *equals = memchr(text, '=', length);
    if (!equals) return false;
    out->key_length = (size_t)(equals - text);
    return is_key(text, out->key_length) && is_value(equals + 1, length - out->key_length - 1);
}

static bool has_key(const struct state_member *members, int n, const struct state_member *one) {
    for (int i = 0; i < n; i++)
        if (members[i].key_length == one->key_length &&
            memcmp(members[i].text, one->text, one->key_length) == 0)
            return true;
    return false;
}

/* Writes as many members from the front as fit. */
static void write_members(char out[TRACE_STATE_BYTES], const struct state_member *members, int n) {
    size_t length = 0;
    for (int i = 0; i < n; i++) {
        size_t comma = i > 0;
        if (length + comma + members[i].length >= TRACE_STATE_BYTES) break;
        if (comma) out[length++] = ',';
        memcpy(out + length, members[i].text, members[i].length);
        length += members[i].length;
    }
    out[length] = 0;
    assert(strlen(out) == length);
}

bool trace_state_read(char out[TRACE_STATE_BYTES], const char *text) {
    struct state_member members[MAX_MEMBERS], member;
    int n = 0;
    *out = 0;
    for (;;) {
        if (!next_member(&text, &member)) return false;
        if (member.length == 0) break;
        if (n == MAX_MEMBERS || has_key(members, n, &member)) return false;
        members[n++] = member;
    }
    write_members(out, members, n);
    return true;
}
