#include <assert.h>

#include "config/config.h"

/* Returns the length of a character from its lead byte, 0 for an invalid lead byte. */
static size_t character_size(uint8_t lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;
    if (lead >= 0xE0 && lead <= 0xEF) return 3;
    if (lead >= 0xF0 && lead <= 0xF4) return 4;
    return 0;
}

/* Returns the number of bytes that are a valid beginning of a character of `size` bytes. The range
 * of the second byte (Unicode, table 3-7) excludes overlong forms, surrogates and code points above
 * U+10FFFF. */
static size_t valid_bytes(const char *text, size_t length, size_t size) {
    uint8_t lead = (uint8_t)text[0];
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    size_t n = 1;
    while (n < size && n < length && (uint8_t)text[n] >= low && (uint8_t)text[n] <= high) {
        low = 0x80;
        high = 0xBF;
        n++;
    }
    return n;
}

size_t utf8_character(const char *text, size_t length) {
    if (length == 0) return 0;
    size_t size = character_size((uint8_t)text[0]);
    return size && valid_bytes(text, length, size) == size ? size : 0;
}

size_t utf8_valid_prefix(const char *text, size_t length) {
    size_t at = 0;
    while (at < length) {
        if ((uint8_t)text[at] < 0x80) {
            at++;
            continue;
        }
        size_t size = utf8_character(text + at, length - at);
        if (size == 0) break;
        at += size;
    }
    return at;
}

size_t utf8_partial(const char *text, size_t length) {
    if (length == 0) return 0;
    size_t size = character_size((uint8_t)text[0]);
    size_t n = size ? valid_bytes(text, length, size) : 0;
    return n < size && n == length ? n : 0;
}

size_t utf8_maximal_subpart(const char *text, size_t length) {
    size_t size = character_size((uint8_t)text[0]);
    return size ? valid_bytes(text, length, size) : 1;
}

size_t utf8_unfinished(const char *text, size_t length) {
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        if (utf8_partial(text + length - back, back) == back) return back;
    }
    return 0;
}

static bool is_continuation(char byte) {
    return ((uint8_t)byte & 0xC0) == 0x80;
}

int utf8_count(const char *text, size_t length) {
    int n = 0;
    for (size_t i = 0; i < length; i++) n += !is_continuation(text[i]);
    return n;
}

int utf8_cut(const char *text, size_t length, int limit) {
    assert(limit >= 0);
    size_t cut = (size_t)limit;
    if (length <= cut) return (int)length;
    while (cut > 0 && is_continuation(text[cut])) cut--;
    return (int)cut;
}

uint32_t utf8_code_point(const char *text, size_t size) {
    static const uint8_t lead_bits[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    assert(size >= 1 && size <= 4);
    uint32_t code_point = (uint8_t)text[0] & lead_bits[size];
    for (size_t i = 1; i < size; i++) code_point = code_point << 6 | ((uint8_t)text[i] & 0x3F);
    return code_point;
}

size_t utf8_write(uint32_t code_point, char out[4]) {
    static const uint8_t lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    size_t size = code_point < 0x80 ? 1 : code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code_point & 0x3F));
        code_point >>= 6;
    }
    out[0] = (char)(lead[size] | code_point);
    return size;
}

size_t printable_prefix(const char *text, size_t length) {
    size_t n = utf8_character(text, length);
    uint32_t point = n ? utf8_code_point(text, n) : 0;
    return point < 0x20 || (point >= 0x7f && point < 0xa0) ? 0 : n;
}

bool is_printable(const char *text, size_t length) {
    for (size_t n; length > 0; text += n, length -= n) {
        n = printable_prefix(text, length);
        if (n == 0) return false;
    }
    return true;
}
