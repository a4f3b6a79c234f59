/* Named sets of characters: Perl's, POSIX's, Unicode's. */
#include <assert.h>
#include <pthread.h>
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
    mem_free(ranges->list);
    *ranges = (struct ranges){0};
}

void ranges_negate(struct ranges *ranges) {
    assert(ranges->n >= 0 && ranges->n <= ranges->max);
    int max = ranges->n + 1;
    struct range *list = mem_alloc((size_t)max * sizeof *list);
    int n = ranges_complement(ranges->list, ranges->n, list);
    ranges_free(ranges);
    *ranges = (struct ranges){list, n, max};
}

size_t ranges_fold(struct ranges *ranges) {
    assert(ranges->n >= 0 && ranges->n <= ranges->max);
    size_t n_characters = 0;
    int n = ranges->n = ranges_normalise(ranges->list, ranges->n);
    for (int i = 0; i < n; i++) {
        struct range range = ranges->list[i];
        if (range.low == 0 && range.high == MAX_CODE_POINT) return n_characters;
        for (uint32_t c = range.low; c <= range.high && c < 0x20000; c++, n_characters++) {
            uint32_t lower = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
            uint32_t upper = (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
            if (lower != c) ranges_add(ranges, lower, lower);
            if (upper != c) ranges_add(ranges, upper, upper);
        }
    }
    ranges->n = ranges_normalise(ranges->list, ranges->n);
    return n_characters;
}

/* ---- by name -------------------------------------------------------------------------------- */

/* Adds ranges given as pairs of their first and last characters. */
static void add_pairs(struct ranges *ranges, const char *pairs) {
    for (; *pairs; pairs += 2) ranges_add(ranges, (uint8_t)pairs[0], (uint8_t)pairs[1]);
}

/* The blanks of ECMA-262 outside Latin-1. */
static void add_ecma_blanks(struct ranges *ranges) {
    static const struct range blanks[] = {{0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                          {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
                                          {0xFEFF, 0xFEFF}};
    for (size_t i = 0; i < sizeof blanks / sizeof *blanks; i++) {
        ranges_add(ranges, blanks[i].low, blanks[i].high);
    }
}

bool ranges_add_perl(struct ranges *ranges, char letter, bool is_ecma) {
    const char *pairs;
    struct ranges named = {0};
    switch (letter | 32) {
    case 'd':
        pairs = "09";
        break;
    case 'w':
        pairs = "09AZaz__";
        break;
    case 's':
        pairs = is_ecma ? "\t\r  \xa0\xa0" : "\t\n\f\r  ";
        if (is_ecma) add_ecma_blanks(&named);
        break;
    default:
        return false;
    }
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
        if (classes[i].pairs[0] == 1) ranges_add(ranges, 0, 0); /* `pairs` cannot contain NUL */
        return true;
    }
    return false;
}

/* Returns the short name of a category's full name. */
static const char *short_category(const char *name, size_t n) {
    static const struct {
        const char *full, *category;
    } names[] = {
        {"Letter", "L"},
        {"Lowercase_Letter", "Ll"},
        {"Uppercase_Letter", "Lu"},
        {"Titlecase_Letter", "Lt"},
        {"Modifier_Letter", "Lm"},
        {"Other_Letter", "Lo"},
        {"Mark", "M"},
        {"Number", "N"},
        {"Decimal_Number", "Nd"},
        {"digit", "Nd"},
        {"Punctuation", "P"},
        {"punct", "P"},
        {"Symbol", "S"},
        {"Separator", "Z"},
        {"Space_Separator", "Zs"},
        {"Other", "C"},
        {"Control", "Cc"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i].full) == n && memcmp(names[i].full, name, n) == 0)
            return names[i].category;
    }
    return NULL;
}

/* Runs of adjacent characters of one category, in order. Built once, at the first use, since this
 * visits all of Unicode and a pattern may name thousands of categories. */
enum { MAX_RUNS = 8192 };
static struct run {
    uint32_t first;
    char category[2];
} runs[MAX_RUNS];
static int n_runs;
static pthread_once_t runs_once = PTHREAD_ONCE_INIT;

static void find_runs(void) {
    for (uint32_t c = 0; c <= MAX_CODE_POINT; c++) {
        const char *category = utf8proc_category_string((utf8proc_int32_t)c);
        if (n_runs && memcmp(runs[n_runs - 1].category, category, 2) == 0) continue;
        assert(n_runs < MAX_RUNS);
        runs[n_runs].first = c;
        memcpy(runs[n_runs++].category, category, 2);
    }
}

bool ranges_add_category(struct ranges *ranges, const char *name, size_t n) {
    if (n > 2) {
        name = short_category(name, n);
        n = name ? strlen(name) : 0;
    }
    if (n == 0) return false;
    bool found = false;
    pthread_once(&runs_once, find_runs);
    for (int i = 0; i < n_runs; i++) {
        bool is_in = runs[i].category[0] == name[0] && (n == 1 || runs[i].category[1] == name[1]);
        uint32_t end = i + 1 < n_runs ? runs[i + 1].first : MAX_CODE_POINT + 1;
        if (is_in) ranges_add(ranges, runs[i].first, end - 1);
        found = found || is_in;
    }
    return found;
}
