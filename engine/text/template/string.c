/* Strings: bytes of UTF-8, each of which belongs to the template or to the user. A character begins
 * at every byte that is not a continuation byte, so invalid UTF-8 also has a length and can be
 * cut. */
#include <assert.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/text/template/template.h"

/* ---- builder -------------------------------------------------------------------------------- */

struct template_builder *builder_new(struct render *r) {
    struct template_builder *b = render_alloc(r, sizeof *b);
    *b = (struct template_builder){0};
    return b;
}

/* Allocates capacity for `more` bytes. Strings that point to the old bytes stay valid, because the
 * arena does not free single allocations. */
static void reserve(struct render *r, struct template_builder *b, size_t more) {
    if (more > SIZE_MAX / 4 - b->length) render_fail(r, "a string is too long");
    if (b->limit && b->length + more > b->limit) {
        render_fail(r, "the rendered prompt is longer than %zu bytes", b->limit);
    }
    if (b->capacity - b->length >= more) return;
    size_t capacity = b->capacity ? 2 * b->capacity : 64;
    while (capacity - b->length < more) capacity *= 2;
    char *data = render_alloc(r, capacity);
    if (b->length) memcpy(data, b->data, b->length);
    b->data = data;
    if (b->mask) {
        uint8_t *mask = render_alloc(r, capacity);
        memcpy(mask, b->mask, b->length);
        b->mask = mask;
    }
    b->capacity = capacity;
    assert(b->capacity - b->length >= more);
}

void builder_add(struct render *r, struct template_builder *b, const char *data, size_t length,
                 bool user) {
    if (length == 0) return;
    render_charge(r, length / 64 + 1);
    reserve(r, b, length);
    if (b->length == 0 && !b->mask) b->user = user;
    if (!b->mask && b->user != user) { /* the first byte with another owner */
        b->mask = render_alloc(r, b->capacity);
        memset(b->mask, b->user, b->length);
    }
    memcpy(b->data + b->length, data, length);
    if (b->mask) memset(b->mask + b->length, user, length);
    b->length += length;
    assert(b->length <= b->capacity);
}

void builder_puts(struct render *r, struct template_builder *b, const char *text) {
    builder_add(r, b, text, strlen(text), false);
}

void builder_add_part(struct render *r, struct template_builder *b, const struct string *text,
                      size_t start, size_t length) {
    assert(start <= text->length && length <= text->length - start);
    if (!text->mask) {
        builder_add(r, b, text->data + start, length, text->user);
        return;
    }
    for (size_t at = start, end = start + length; at < end;) {
        size_t stop = at + 1;
        while (stop < end && text->mask[stop] == text->mask[at]) stop++;
        builder_add(r, b, text->data + at, stop - at, text->mask[at]);
        at = stop;
    }
}

void builder_add_string(struct render *r, struct template_builder *b, const struct string *text) {
    builder_add_part(r, b, text, 0, text->length);
}

static struct string *string_new(struct render *r) {
    struct string *text = render_alloc(r, sizeof *text);
    *text = (struct string){.data = ""};
    return text;
}

struct value builder_value(struct render *r, struct template_builder *b) {
    struct string *text = string_new(r);
    if (b->length) {
        *text = (struct string){
            .data = b->data, .mask = b->mask, .length = b->length, .user = b->user, .home = b};
    }
    return VALUE_OF_STRING(text);
}

/* ---- making strings ------------------------------------------------------------------------- */

struct value string_of(struct render *r, const char *literal) {
    struct string *text = string_new(r);
    text->data = literal;
    text->length = strlen(literal);
    return VALUE_OF_STRING(text);
}

struct value string_copy(struct render *r, const char *data, size_t length, bool user) {
    struct template_builder b = {0};
    builder_add(r, &b, data, length, user);
    struct string *text = string_new(r);
    *text = (struct string){.data = b.length ? b.data : "", .length = length, .user = user};
    return VALUE_OF_STRING(text);
}

struct value string_part(struct render *r, const struct string *text, size_t start, size_t length) {
    assert(start <= text->length && length <= text->length - start);
    struct string *part = string_new(r);
    *part = (struct string){.data = text->data + start,
                            .mask = text->mask ? text->mask + start : NULL,
                            .length = length,
                            .user = text->user};
    return VALUE_OF_STRING(part);
}

struct value string_append(struct render *r, const struct string *left,
                           const struct string *right) {
    if (left->length == 0) return VALUE_OF_STRING(right);
    if (right->length == 0) return VALUE_OF_STRING(left);
    struct template_builder *b = left->home;
    assert(!b || b->length >= left->length);
    /* otherwise `left` is the builder's whole content and grows in place */
    if (!b || b->length != left->length) {
        b = builder_new(r);
        builder_add_string(r, b, left);
    }
    builder_add_string(r, b, right);
    return builder_value(r, b);
}

/* ---- reading strings ------------------------------------------------------------------------ */

bool string_is_user(const struct string *text, size_t at) {
    assert(at < text->length);
    return text->mask ? text->mask[at] : text->user;
}

bool string_equal(const struct string *a, const struct string *b) {
    return a->length == b->length && memcmp(a->data, b->data, a->length) == 0;
}

bool string_is(const struct string *text, const char *literal) {
    size_t n = strlen(literal);
    return text->length == n && memcmp(text->data, literal, n) == 0;
}

int string_compare(const struct string *a, const struct string *b) {
    size_t n = a->length < b->length ? a->length : b->length;
    int order = memcmp(a->data, b->data, n);
    if (order) return order < 0 ? -1 : 1;
    return a->length < b->length ? -1 : a->length > b->length;
}

ptrdiff_t string_find(struct render *r, const struct string *text, const struct string *part,
                      size_t from) {
    if (from > text->length) return -1;
    if (part->length == 0) return (ptrdiff_t)from;
    const char *found = memmem(text->data + from, text->length - from, part->data, part->length);
    size_t looked = found ? (size_t)(found - text->data) - from : text->length - from;
    render_charge(r, looked / 8 + part->length / 2 + 1);
    return found ? found - text->data : -1;
}

ptrdiff_t string_find_last(struct render *r, const struct string *text, const struct string *part) {
    if (part->length == 0) return (ptrdiff_t)text->length;
    ptrdiff_t last = -1;
    for (size_t from = 0;;) {
        ptrdiff_t at = string_find(r, text, part, from);
        if (at < 0) return last;
        last = at;
        from = (size_t)at + 1;
    }
}

static bool starts_character(const struct string *text, size_t at) {
    return ((unsigned char)text->data[at] & 0xC0) != 0x80;
}

size_t string_next(const struct string *text, size_t at) {
    do at++;
    while (at < text->length && !starts_character(text, at));
    return at;
}

size_t string_points(struct render *r, const struct string *text) {
    size_t n = text->length > 0;
    for (size_t at = 1; at < text->length; at++) n += starts_character(text, at);
    render_charge(r, text->length / 16);
    return n;
}

size_t string_offset(const struct string *text, size_t from, size_t n_points) {
    while (n_points-- > 0 && from < text->length) from = string_next(text, from);
    return from;
}

int32_t string_point(const struct string *text, size_t at, size_t end) {
    const char *data = text->data + at;
    return utf8_character(data, end - at) == end - at ? (int32_t)utf8_code_point(data, end - at)
                                                      : -1;
}

bool point_is_space(int32_t c) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

bool point_is_printable(int32_t c) {
    if (c < 0x7F) return c >= 0x20;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

bool point_is_cased(int32_t c) {
    utf8proc_category_t category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT;
}

int32_t point_upper(int32_t point, int32_t previous) {
    (void)previous;
    return utf8proc_toupper(point);
}

int32_t point_lower(int32_t point, int32_t previous) {
    (void)previous;
    return utf8proc_tolower(point);
}

/* ---- changing strings ----------------------------------------------------------------------- */

/* Copies unchanged characters in runs; `kept` is the start of the current run. */
struct value string_map(struct render *r, const struct string *text,
                        int32_t (*how)(int32_t point, int32_t previous)) {
    struct template_builder *b = builder_new(r);
    int32_t previous = -1;
    size_t kept = 0;
    render_charge(r, text->length / 2);
    for (size_t at = 0, next; at < text->length; at = next) {
        next = string_next(text, at);
        int32_t point = string_point(text, at, next);
        int32_t changed = point < 0 ? point : how(point, previous);
        bool is_sharp_s = point == 0xDF && how == point_upper; /* upper case has two letters */
        previous = point;
        if (changed == point && !is_sharp_s) continue;
        builder_add_part(r, b, text, kept, at - kept);
        kept = next;
        if (is_sharp_s) {
            builder_add(r, b, "SS", 2, string_is_user(text, at));
        } else {
            char bytes[4];
            size_t n = utf8_write((uint32_t)changed, bytes);
            builder_add(r, b, bytes, n, string_is_user(text, at));
        }
    }
    builder_add_part(r, b, text, kept, text->length - kept);
    return builder_value(r, b);
}

/* Is the character text[at..next) in `set`, or white space if `set` is NULL? */
static bool is_stripped(struct render *r, const struct string *text, size_t at, size_t next,
                        const struct string *set) {
    if (!set) return point_is_space(string_point(text, at, next));
    const struct string one = {.data = text->data + at, .length = next - at};
    return string_find(r, set, &one, 0) >= 0;
}

struct value string_strip(struct render *r, const struct string *text, const struct string *set,
                          bool left, bool right) {
    size_t start = 0, end = text->length;
    while (left && start < end) {
        size_t next = string_next(text, start);
        if (!is_stripped(r, text, start, next, set)) break;
        start = next;
    }
    while (right && end > start) {
        size_t last = end - 1;
        while (last > start && !starts_character(text, last)) last--;
        if (!is_stripped(r, text, last, end, set)) break;
        end = last;
    }
    assert(start <= end);
    render_charge(r, (text->length - (end - start)) / 2);
    return string_part(r, text, start, end - start);
}
