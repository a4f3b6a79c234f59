/* Sets of characters by name: of Perl, of POSIX, of Unicode. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "engine/grammar/read/regex.h"

void ranges_add(struct ranges *ranges, uint32_t low, uint32_t high) {
    assert(low <= high && high <= MAX_CODE_POINT);
    if (ranges->n == ranges->max) {
        ranges->max = ranges->max ? 2 * ranges->max : 16;
        ranges->list = mem_realloc(ranges->list, (size_t)ranges->max * sizeof *ranges->list);
    }
    ranges->list[ranges->n++] = (struct range){low, high};
}

void ranges_free(struct ranges *ranges) {
    free(ranges->list);
    *ranges = (struct ranges){0};
}

void ranges_negate(struct ranges *ranges) {
    int max = ranges->n + 1;
    struct range *list = mem_alloc((size_t)max * sizeof *list);
    int n = ranges_complement(ranges->list, ranges->n, list);
    ranges_free(ranges);
    *ranges = (struct ranges){list, n, max};
}

void ranges_fold(struct ranges *ranges) {
    int n = ranges->n = ranges_normalise(ranges->list, ranges->n);
    for (int i = 0; i < n; i++) {
        struct range range = ranges->list[i];
        if (range.low == 0 && range.high == MAX_CODE_POINT) return;
        for (uint32_t c = range.low; c <= range.high && c < 0x20000; c++) {
            uint32_t lower = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
            uint32_t upper = (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
            if (lower != c) ranges_add(ranges, lower, lower);
            if (upper != c) ranges_add(ranges, upper, upper);
        }
    }
}

/* ---- by name -------------------------------------------------------------------------------- */

/* Adds pairs of first and last characters. */
static void add_pairs(struct ranges *ranges, const char *pairs) {
    for (; *pairs; pairs += 2) ranges_add(ranges, (uint8_t)pairs[0], (uint8_t)pairs[1]);
}

bool ranges_add_perl(struct ranges *ranges, char letter) {
    const char *pairs;
    switch (letter | 32) {
    case 'd':
        pairs = "09";
        break;
    case 'w':
        pairs = "09AZaz__";
        break;
    case 's':
        pairs = "\t\n\f\r  ";
        break;
    default:
        return false;
    }
    struct ranges named = {0};
    add_pairs(&named, pairs);
    if (!(letter & 32)) ranges_negate(&named);
    for (int i = 0; i < named.n; i++) ranges_add(ranges, named.list[i].low, named.list[i].high);
    ranges_free(&named);
    return true;
}

bool ranges_add_posix(struct ranges *ranges, const char *name, size_t n) {
    static const struct {
        const char *name, *pairs;
    } classes[] = {
        {"alnum", "09AZaz"},
        {"alpha", "AZaz"},
        {"ascii", "\1\x7f"},
        {"blank", "\t\t  "},
        {"cntrl", "\1\x1f\x7f\x7f"},
        {"digit", "09"},
        {"graph", "!~"},
        {"lower", "az"},
        {"print", " ~"},
        {"punct", "!/:@[`{~"},
        {"space", "\t\r  "},
        {"upper", "AZ"},
        {"word", "09AZaz__"},
        {"xdigit", "09AFaf"},
    };
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (strlen(classes[i].name) != n || memcmp(classes[i].name, name, n) != 0) continue;
        add_pairs(ranges, classes[i].pairs);
        if (classes[i].pairs[0] == 1) ranges_add(ranges, 0, 0); /* NUL, which ends the pairs */
        return true;
    }
    return false;
}

bool ranges_add_category(struct ranges *ranges, const char *name, size_t n) {
    if (n < 1 || n > 2) return false;
    bool found = false;
    uint32_t begin = 0;
    bool inside = false;
    for (uint32_t c = 0; c <= MAX_CODE_POINT + 1; c++) {
        bool is_in = false;
        if (c <= MAX_CODE_POINT) {
            const char *category = utf8proc_category_string((utf8proc_int32_t)c);
            is_in = category[0] == name[0] && (n == 1 || category[1] == name[1]);
        }
        if (is_in && !inside) begin = c;
        if (!is_in && inside) ranges_add(ranges, begin, c - 1);
        found = found || is_in;
        inside = is_in;
    }
    return found;
}
