/* DESIGN. Finds up to 16 stop strings in a text that comes in parts, in time linear in its length
 * for any text.
 *
 * Each string has the automaton of Knuth, Morris and Pratt: after every byte its state is the
 * length of the longest end of the text that begins the string. So the largest state is exactly
 * what must be held back: a byte less could still become a match, a byte more would delay text that
 * is certain. A state never begins inside a UTF-8 character, as no stop string does; the bytes of a
 * character that is incomplete yet are held as well.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/generation/stop_matcher.h"

/* border[i]: length of the longest proper end of text[0..i] that also begins it. */
static void find_borders(const char *text, size_t length, uint32_t *border) {
    uint32_t k = 0;
    border[0] = 0;
    for (size_t i = 1; i < length; i++) {
        while (k > 0 && text[i] != text[k]) k = border[k - 1];
        if (text[i] == text[k]) k++;
        border[i] = k;
    }
}

void stop_matcher_init(struct stop_matcher *matcher, const struct api_request *request) {
    size_t total = 0;
    *matcher = (struct stop_matcher){.n = request->n_stops, .matched = -1};
    matcher->include = request->include_stop_str_in_output;
    for (int i = 0; i < matcher->n; i++) {
        assert(request->stops[i].length > 0 && request->stops[i].length < UINT32_MAX);
        matcher->text[i] = request->stops[i].text;
        matcher->length[i] = request->stops[i].length;
        total += matcher->length[i];
    }
    if (total == 0) return;
    uint32_t *border = matcher->borders = mem_alloc(total * sizeof *border);
    for (int i = 0; i < matcher->n; i++) {
        find_borders(matcher->text[i], matcher->length[i], border);
        matcher->border[i] = border;
        border += matcher->length[i];
    }
}

/* Moves all automata by one byte. Returns the longest stop string that ends here, or -1. */
static int step(struct stop_matcher *matcher, char c) {
    int found = -1;
    for (int i = 0; i < matcher->n; i++) {
        uint32_t k = matcher->state[i];
        while (k > 0 && matcher->text[i][k] != c) k = matcher->border[i][k - 1];
        if (matcher->text[i][k] == c) k++;
        bool whole = k == matcher->length[i];
        matcher->state[i] = whole && matcher->asleep ? matcher->border[i][k - 1] : k;
        if (!whole || matcher->asleep) continue;
        if (found < 0 || matcher->length[i] > matcher->length[found]) found = i;
    }
    return found;
}

static size_t bytes_to_hold(const struct stop_matcher *matcher) {
    const struct buf *held = &matcher->held;
    size_t longest =
        utf8_unfinished(held->data + matcher->released, held->length - matcher->released);
    for (int i = 0; i < matcher->n; i++) {
        if (matcher->state[i] > longest) longest = matcher->state[i];
    }
    return longest;
}

/* Releases all that is held but its last `keep` bytes. Released bytes stay in the buffer until they
 * are as many as those that are kept, so that a byte is moved once and not at every token. */
static void release(struct stop_matcher *matcher, size_t keep, struct buf *out) {
    struct buf *held = &matcher->held;
    assert(keep <= held->length - matcher->released);
    size_t end = held->length - keep;
    if (end == matcher->released) return;
    buf_add(out, held->data + matcher->released, end - matcher->released);
    matcher->released = end;
    if (end < keep) return;
    memmove(held->data, held->data + end, keep);
    held->length = keep;
    held->data[keep] = 0;
    matcher->released = 0;
}

bool stop_matcher_add(struct stop_matcher *matcher, const char *text, size_t length,
                      struct buf *out) {
    struct buf *held = &matcher->held;
    assert(matcher->released <= held->length && matcher->matched < matcher->n);
    if (matcher->matched >= 0) return true;
    if (matcher->n == 0) {
        buf_add(out, text, length);
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        int found = step(matcher, text[i]);
        if (found < 0) continue;
        matcher->matched = found;
        buf_add(held, text, i + 1);
        release(matcher, matcher->include ? 0 : matcher->length[found], out);
        buf_clear(held);
        matcher->released = 0;
        return true;
    }
    buf_add(held, text, length);
    release(matcher, bytes_to_hold(matcher), out);
    return false;
}

void stop_matcher_finish(struct stop_matcher *matcher, struct buf *out) {
    release(matcher, 0, out);
}

void stop_matcher_free(struct stop_matcher *matcher) {
    buf_free(&matcher->held);
    free(matcher->borders);
    matcher->borders = NULL;
}
