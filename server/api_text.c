#include <stdio.h>
#include <string.h>

#include "server/api_internal.h"

/* ---- UTF-8 ---------------------------------------------------------------------------------- */

/* The second byte's range after each lead byte, from Unicode's table 3-7. */
static size_t lead_byte(unsigned char c, unsigned char *low, unsigned char *high) {
    *low = 0x80, *high = 0xBF;
    if (c < 0xC2 || c > 0xF4) return 0;
    if (c < 0xE0) return 2;
    if (c == 0xE0) *low = 0xA0;
    if (c == 0xED) *high = 0x9F;
    if (c == 0xF0) *low = 0x90;
    if (c == 0xF4) *high = 0x8F;
    return c < 0xF0 ? 3 : 4;
}

size_t json_utf8_character(const char *text, size_t length, size_t *bad) {
    const unsigned char *p = (const unsigned char *)text;
    unsigned char low, high;
    *bad = 1;
    if (p[0] < 0x80) return 1;
    size_t n = lead_byte(p[0], &low, &high);
    if (n == 0) return 0;
    for (size_t i = 1; i < n; i++) {
        *bad = i;
        if (i == length || p[i] < low || p[i] > high) return 0;
        low = 0x80, high = 0xBF;
    }
    return n;
}

bool json_utf8_is_valid(const char *text, size_t length) {
    size_t bad, n;
    for (size_t i = 0; i < length; i += n) {
        n = json_utf8_character(text + i, length - i, &bad);
        if (n == 0) return false;
    }
    return true;
}

int json_utf8_cut(const char *text, size_t length, size_t limit) {
    if (length <= limit) return (int)length;
    while (limit > 0 && ((unsigned char)text[limit] & 0xC0) == 0x80) limit--;
    return (int)limit;
}

/* ---- JSON text ------------------------------------------------------------------------------ */

static void write_escape(struct buf *out, unsigned char c) {
    switch (c) {
    case '"':
        buf_add(out, "\\\"", 2);
        return;
    case '\\':
        buf_add(out, "\\\\", 2);
        return;
    case '\n':
        buf_add(out, "\\n", 2);
        return;
    case '\r':
        buf_add(out, "\\r", 2);
        return;
    case '\t':
        buf_add(out, "\\t", 2);
        return;
    default:
        buf_printf(out, "\\u%04x", c);
    }
}

static bool is_plain(unsigned char c) {
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

void json_write_string(struct buf *out, const char *text, size_t length) {
    size_t start = 0, i = 0; /* text[start..i) needs no escape and is not written yet */
    buf_add(out, "\"", 1);
    while (i < length) {
        unsigned char c = (unsigned char)text[i];
        size_t bad = 1, n = is_plain(c) ? 1 : 0;
        if (c >= 0x80) n = json_utf8_character(text + i, length - i, &bad);
        if (n == 0) {
            buf_add(out, text + start, i - start);
            if (c >= 0x80)
                buf_add(out, "\xEF\xBF\xBD", 3);
            else
                write_escape(out, c);
            n = bad;
            start = i + n;
        }
        i += n;
    }
    buf_add(out, text + start, length - start);
    buf_add(out, "\"", 1);
}

void json_write_int(struct buf *out, int64_t value) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)value);
    buf_add(out, digits, (size_t)n);
}

void json_write_ints(struct buf *out, const int32_t *values, int n) {
    buf_add(out, "[", 1);
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_add(out, ",", 1);
        json_write_int(out, values[i]);
    }
    buf_add(out, "]", 1);
}
