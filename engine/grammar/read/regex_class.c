/* Character classes and escapes of regular expressions. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/read/regex.h"

struct expr *pattern_ranges(struct regex *r, struct ranges *ranges) {
    if (r->ignores_case) builder_works(r->b, ranges_fold(ranges));
    builder_works(r->b, (size_t)ranges->n * 10);
    struct expr *expr = expr_class(r->b, ranges->list, ranges->n);
    ranges_free(ranges);
    return expr;
}

/* ---- escapes -------------------------------------------------------------------------------- */

/* Reads `min` to `max` digits of a base. Returns -1 if they are too few. */
static int32_t read_digits(struct regex *r, int min, int max, int base) {
    int32_t value = 0;
    int n = 0;
    for (; n < max && r->at < r->end && isxdigit((unsigned char)*r->at); n++, r->at++) {
        int digit = *r->at <= '9' ? *r->at - '0' : (*r->at | 32) - 'a' + 10;
        if (digit >= base) break;
        value = value * base + digit;
    }
    return n < min ? -1 : value;
}

static int32_t read_hex(struct regex *r) {
    if (r->at == r->end || *r->at != '{') return read_digits(r, 2, 2, 16);
    r->at++;
    int32_t value = read_digits(r, 1, 6, 16);
    if (r->at == r->end || *r->at != '}' || value > MAX_CODE_POINT) return -1;
    r->at++;
    return value;
}

int32_t pattern_escaped(struct regex *r) {
    static const char letters[] = "nrtfva", stand_for[] = "\n\r\t\f\v\a";
    if (r->at == r->end) return -1;
    char c = *r->at;
    const char *found = c ? strchr(letters, c) : NULL;
    if (c == 'x' || c == 'u') {
        r->at++;
        return c == 'x' ? read_hex(r) : read_digits(r, 4, 4, 16);
    }
    if (c >= '0' && c <= '7') { /* \0 or three digits; \1 is a backreference */
        bool is_octal = c == '0' || (r->end - r->at >= 3 && isdigit((unsigned char)r->at[1]) &&
                                     isdigit((unsigned char)r->at[2]));
        return is_octal ? read_digits(r, 1, 3, 8) : -1;
    }
    if (c == 'c' && r->is_ecma && r->end - r->at >= 2 && isalpha((unsigned char)r->at[1])) {
        r->at += 2;
        return r->at[-1] & 31;
    }
    if (found || (c > 0 && ispunct((unsigned char)c)) || c == ' ') {
        r->at++;
        return found ? stand_for[found - letters] : c;
    }
    return -1;
}

bool pattern_property(struct regex *r, char letter, struct ranges *into) {
    struct ranges named = {0};
    bool negated = letter == 'P';
    const char *name = r->at;
    size_t n = 1;
    if (r->at == r->end) return false;
    if (*r->at == '{') {
        const char *close = memchr(r->at, '}', (size_t)(r->end - r->at));
        if (!close) return false;
        name++;
        n = (size_t)(close - name);
        r->at = close + 1;
    } else {
        r->at++;
    }
    if (n > 0 && *name == '^') negated = !negated, name++, n--;
    if (!ranges_add_category(&named, name, n)) return false;
    builder_works(r->b, 5000); /* for the search through all runs of categories */
    if (negated) ranges_negate(&named);
    for (int i = 0; i < named.n; i++) ranges_add(into, named.list[i].low, named.list[i].high);
    ranges_free(&named);
    return true;
}

/* ---- [...] ---------------------------------------------------------------------------------- */

/* Reads one character of a class. Returns -1 after a set, which it adds, or after a failure. */
static int32_t read_member(struct regex *r, struct ranges *ranges) {
    const char *at = r->at;
    if (*at == '[' && r->end - at > 2 && at[1] == ':') {
        const char *close = memmem(at + 2, (size_t)(r->end - at - 2), ":]", 2);
        bool negated = close && at[2] == '^';
        struct ranges named = {0};
        if (close &&
            ranges_add_posix(&named, at + 2 + negated, (size_t)(close - at) - 2 - negated)) {
            if (negated) ranges_negate(&named);
            for (int i = 0; i < named.n; i++)
                ranges_add(ranges, named.list[i].low, named.list[i].high);
            ranges_free(&named);
            r->at = close + 2;
            return -1;
        }
    }
    if (*at != '\\') {
        size_t size = utf8_character(at, (size_t)(r->end - at));
        r->at += size;
        return (int32_t)utf8_code_point(at, size);
    }
    r->at++;
    char letter = r->at < r->end ? *r->at : 0;
    if (letter && ranges_add_perl(ranges, letter, r->is_ecma)) {
        r->at++;
        return -1;
    }
    if (letter == 'p' || letter == 'P') {
        r->at++;
        if (!pattern_property(r, letter, ranges))
            pattern_fail(r, at, "an unknown Unicode property");
        return -1;
    }
    if (letter == 'b') {
        r->at++;
        return '\b';
    }
    int32_t c = pattern_escaped(r);
    if (c < 0) pattern_fail(r, at, "an unknown escape");
    return c;
}

struct expr *pattern_class(struct regex *r) {
    struct ranges ranges = {0};
    const char *open = r->at - 1;
    bool negated = r->at < r->end && *r->at == '^';
    r->at += negated;
    for (bool first = true; r->b->status == STATUS_OK; first = false) {
        if (r->at == r->end) {
            pattern_fail(r, open, "a '[' without its ']'");
        } else if (*r->at == ']' && !first) {
            r->at++;
            break;
        } else {
            const char *at = r->at;
            builder_works(r->b, 10);
            int32_t low = read_member(r, &ranges), high = low;
            if (low >= 0 && r->end - r->at >= 2 && r->at[0] == '-' && r->at[1] != ']') {
                r->at++;
                high = read_member(r, &ranges);
                if (high < low) pattern_fail(r, at, "a range whose end is before its beginning");
            }
            if (low >= 0 && high >= low) ranges_add(&ranges, (uint32_t)low, (uint32_t)high);
        }
    }
    if (r->ignores_case) builder_works(r->b, ranges_fold(&ranges));
    if (negated) ranges_negate(&ranges);
    builder_works(r->b, (size_t)ranges.n * 10);
    struct expr *expr = expr_class(r->b, ranges.list, ranges.n);
    ranges_free(&ranges);
    return expr;
}
