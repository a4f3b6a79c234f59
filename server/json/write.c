/* Writes JSON text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/json/json.h"

void json_write_part(struct buf *out, const char *text, size_t length) {
    static const char escaped[] = "\"\\\n\r\t", letter[] = "\"\\nrt";
    size_t start = 0, i = 0; /* text[start..i) needs no escapes and is not yet written */
    while (i < length) {
        unsigned char c = (unsigned char)text[i];
        bool is_escaped = c < 0x20 || c == '"' || c == '\\';
        size_t n = is_escaped ? 0 : c < 0x80 ? 1 : utf8_character(text + i, length - i);
        if (n == 0) {
            const char *known = c ? strchr(escaped, c) : NULL;
            buf_add(out, text + start, i - start);
            n = utf8_maximal_subpart(text + i, length - i);
            if (c >= 0x80)
                buf_add(out, "\xEF\xBF\xBD", 3);
            else if (known)
                buf_add(out, (char[]){'\\', letter[known - escaped]}, 2);
            else
                buf_printf(out, "\\u%04x", c);
            start = i + n;
        }
        i += n;
    }
    buf_add(out, text + start, length - start);
}

void json_write_string(struct buf *out, const char *text, size_t length) {
    buf_add(out, "\"", 1);
    json_write_part(out, text, length);
    buf_add(out, "\"", 1);
}

/* An escape takes up to 6 bytes; a U+FFFD takes 3 and replaces at least 1 byte. */
size_t json_string_bound(const char *text, size_t length) {
    size_t bound = 2;
    for (size_t i = 0, n; i < length; i += n) {
        unsigned char c = (unsigned char)text[i];
        n = c < 0x80 ? 1 : utf8_character(text + i, length - i);
        bound += c < 0x20 ? 6 : c == '"' || c == '\\' ? 2 : n > 0 ? n : 3;
        if (n == 0) n = 1;
    }
    return bound;
}

void json_write_int(struct buf *out, int64_t value) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)value);
    buf_add(out, digits, (size_t)n);
}

/* Writes the fewest digits that parse to the same number. */
static void write_number(struct buf *out, const struct json *value) {
    char digits[32];
    if (json_is_integer(value)) {
        json_write_int(out, json_integer(value));
        return;
    }
    if (json_digits(value)) {
        buf_puts(out, json_digits(value));
        return;
    }
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, json_number(value));
        if (strtod(digits, NULL) == json_number(value)) break;
    }
    buf_puts(out, digits);
}

static void write_children(struct buf *out, const struct json *value) {
    bool object = value->type == JSON_OBJECT;
    buf_puts(out, object ? "{" : "[");
    json_each(child, value) {
        if (child != json_first(value)) buf_puts(out, ",");
        if (object) {
            json_write_string(out, child->name, strlen(child->name));
            buf_puts(out, ":");
        }
        json_write_value(out, child);
    }
    buf_puts(out, object ? "}" : "]");
}

/* The parser bounds the depth of a tree. */
void json_write_value(struct buf *out, const struct json *value) {
    switch (value->type) {
    case JSON_NULL:
        buf_puts(out, "null");
        break;
    case JSON_BOOL:
        buf_puts(out, json_true(value) ? "true" : "false");
        break;
    case JSON_NUMBER:
        write_number(out, value);
        break;
    case JSON_STRING:
        json_write_string(out, json_text(value), json_length(value));
        break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        write_children(out, value);
    }
}

void json_write_ints(struct buf *out, const int32_t *values, int n) {
    buf_add(out, "[", 1);
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_add(out, ",", 1);
        json_write_int(out, values[i]);
    }
    buf_add(out, "]", 1);
}

void json_write_object(struct buf *out, const struct buf *text) {
    struct json *parsed = NULL;
    struct err err;
    size_t start = out->length;
    if (text->length > 0) json_parse(&parsed, "It", text->data, text->length, &err);
    if (json_is(parsed, JSON_OBJECT))
        buf_add(out, text->data, text->length);
    else
        buf_puts(out, "{}");
    for (size_t i = start; i < out->length; i++) /* line breaks can only be between elements */
        if (out->data[i] == '\n' || out->data[i] == '\r') out->data[i] = ' ';
    json_free(parsed);
}
