/* Unicode's normal forms, for models whose tokenizer requires one (C: Qwen, OLMo).
 *
 * Decompositions and combining classes are from utf8proc. Combining marks are ordered here by a
 * merge sort, because a text of a million marks must not take quadratic time.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/text/tokenizer/internal.h"

/* Capacity for one decomposition. The longest (of U+FDFA) has 18 code points. */
#define DECOMPOSED_MAX 32

struct points {
    int32_t *point;
    size_t n, capacity;
};

static int combining_class(int32_t point) {
    return utf8proc_get_property(point)->combining_class;
}

/* Merges two adjacent runs by combining class. The merge is stable. */
static void merge_runs(int32_t *point, int32_t *room, size_t middle, size_t n) {
    memcpy(room, point, middle * sizeof *point);
    size_t left = 0, right = middle, out = 0;
    while (left < middle && right < n) {
        bool take_right = combining_class(point[right]) < combining_class(room[left]);
        point[out++] = take_right ? point[right++] : room[left++];
    }
    assert(out + (middle - left) == right);
    memcpy(point + out, room + left, (middle - left) * sizeof *point);
}

static void sort_marks(int32_t *point, int32_t *room, size_t n) {
    if (n < 2) return;
    sort_marks(point, room, n / 2);
    sort_marks(point + n / 2, room, n - n / 2);
    merge_runs(point, room, n / 2, n);
}

/* Sorts each run of combining marks by class. */
static void reorder(struct points *points) {
    int32_t *room = mem_alloc(points->n * sizeof *room);
    for (size_t at = 0; at < points->n;) {
        size_t n = 0;
        while (at + n < points->n && combining_class(points->point[at + n]) != 0) n++;
        sort_marks(points->point + at, room, n);
        at += n + (n == 0);
    }
    mem_free(room);
}

static void decompose(const char *text, size_t length, bool compatible, struct points *points) {
    int last_class = 0;
    utf8proc_option_t how =
        UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    for (size_t at = 0, size; at < length; at += size) {
        size = utf8_character(text + at, length - at);
        if (points->capacity - points->n < DECOMPOSED_MAX) {
            points->capacity = 2 * points->capacity + DECOMPOSED_MAX;
            points->point = mem_realloc(points->point, points->capacity * sizeof *points->point);
        }
        points->n += (size_t)utf8proc_decompose_char((int32_t)utf8_code_point(text + at, size),
                                                     points->point + points->n, DECOMPOSED_MAX, how,
                                                     &last_class);
        assert(points->n <= points->capacity);
    }
}

/* Appends valid UTF-8 in a normal form. */
static void normalize_run(enum step_kind form, const char *text, size_t length, struct buf *out) {
    struct points points = {0};
    decompose(text, length, form == STEP_NFKC || form == STEP_NFKD, &points);
    reorder(&points);
    ptrdiff_t n = (ptrdiff_t)points.n;
    if (form == STEP_NFC || form == STEP_NFKC)
        n = utf8proc_normalize_utf32(points.point, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    assert(n >= 0 && (size_t)n <= points.n);
    for (ptrdiff_t i = 0; i < n; i++) {
        char bytes[4];
        buf_add(out, bytes, utf8_write((uint32_t)points.point[i], bytes));
    }
    mem_free(points.point);
}

bool normalize_needed(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if ((uint8_t)text[i] >= 0xCC) return true; /* U+0300, the first mark, begins with CC */
    }
    return false;
}

void normalize_form(enum step_kind form, const char *text, size_t length, struct buf *out) {
    for (size_t at = 0, n; at < length; at += n) {
        n = utf8_valid_prefix(text + at, length - at);
        if (n > 0) normalize_run(form, text + at, n, out);
        if (n > 0 || at == length) continue;
        buf_add(out, text + at, 1);
        n = 1;
    }
}
