/* DESIGN. Finds up to 16 stop strings and up to 16 regular expressions (engine/grammar/search.c) in
 * a text that arrives in parts. The time for stop strings is linear in the length of any text.
 *
 * Each string has an automaton (Knuth, Morris and Pratt). Its state after each byte is the length
 * of the longest suffix of the text that is a prefix of the string. So the maximum state is exactly
 * the number of bytes to hold back: one byte less could miss a match, one more would delay text
 * that is certain. A state never begins inside a UTF-8 character, because stop strings do not. The
 * bytes of an incomplete character are held back too.
 *
 * A regular expression also holds back the text that it may still match, unless the match stays in
 * the output; then the beginning of the match does not matter.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/generation/stop_matcher.h"

/* border[i]: length of the longest proper suffix of text[0..i] that is also its prefix. */
static void find_borders(const char *text, size_t length, uint32_t *border) {
    uint32_t k = 0;
    border[0] = 0;
    for (size_t i = 1; i < length; i++) {
        while (k > 0 && text[i] != text[k]) k = border[k - 1];
        if (text[i] == text[k]) k++;
        border[i] = k;
    }
}

/* ---- regular expressions -------------------------------------------------------------------- */

/* Adds the name of the refused expression to an error, if the expression is the cause. */
static void name_regex(const struct api_request *request, const char *name, int i,
                       const struct err *why, struct err *err) {
    char path[32];
    *err = *why;
    if (why->status != STATUS_INVALID_REQUEST) return;
    snprintf(path, sizeof path, request->n_stop_regexes > 1 ? "%s[%d]" : "%s", name, i);
    err_set(err, why->status, path, "'%s' cannot be searched for: %s", path, why->message);
}

static enum claim_verdict get_one(const struct stop_source *source,
                                  const struct api_request *request, const char *name, int i,
                                  struct search **search, struct err *err) {
    const struct api_text *regex = &request->stop_regexes[i];
    struct err why = {0};
    if (*search) return CLAIM_READY;
    enum claim_verdict verdict =
        grammar_store_search(source->store, source->claim, source->may_compile, regex->text,
                             regex->length, search, &why);
    if (verdict == CLAIM_REFUSED) name_regex(request, name, i, &why, err);
    return verdict;
}

enum claim_verdict stop_searches_get(const struct stop_source *source,
                                     const struct api_request *request, const char *name,
                                     struct search ***searches, struct err *err) {
    static const struct stop_source none;
    const int n = request->n_stop_regexes;
    int states = 0;
    if (!source) source = &none;
    if (n > 0 && !*searches) *searches = mem_calloc((size_t)n, sizeof **searches);
    for (int i = 0; i < n; i++) {
        enum claim_verdict verdict = get_one(source, request, name, i, &(*searches)[i], err);
        if (verdict != CLAIM_READY) return verdict;
        states += search_states((*searches)[i]);
        if (states <= MAX_SEARCH_STATES) continue;
        struct err why;
        err_set(&why, STATUS_INVALID_REQUEST, NULL,
                "Together with those before it, it needs more than %d states.", MAX_SEARCH_STATES);
        name_regex(request, name, i, &why, err);
        return CLAIM_REFUSED;
    }
    return CLAIM_READY;
}

void stop_searches_free(struct search **searches, int n) {
    for (int i = 0; searches && i < n; i++) search_release(searches[i]);
    mem_free(searches);
}

/* ---- strings and regular expressions -------------------------------------------------------- */

void stop_matcher_init(struct stop_matcher *matcher, const struct api_request *request,
                       struct search *const *searches) {
    size_t total = 0;
    *matcher = (struct stop_matcher){.n = request->n_stops,
                                     .n_searches = request->n_stop_regexes,
                                     .searches = searches,
                                     .regexes = request->stop_regexes};
    matcher->include = request->include_stop_str_in_output;
    if (matcher->n_searches > 0)
        matcher->runs = mem_calloc((size_t)matcher->n_searches, sizeof *matcher->runs);
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

/* Records a stop that ends here, if it is the longest one. */
static void meet(struct stop_matcher *matcher, const char *stop, size_t length, size_t *longest) {
    if (length <= *longest || matcher->asleep) return;
    matcher->matched = stop;
    *longest = length;
}

/* Advances all automata by one byte. Returns the length of the longest stop that ends here; 0:
 * none. */
static size_t step(struct stop_matcher *matcher, char c) {
    size_t longest = 0;
    for (int i = 0; i < matcher->n; i++) {
        uint32_t k = matcher->state[i];
        while (k > 0 && matcher->text[i][k] != c) k = matcher->border[i][k - 1];
        if (matcher->text[i][k] == c) k++;
        bool whole = k == matcher->length[i];
        matcher->state[i] = whole && matcher->asleep ? matcher->border[i][k - 1] : k;
        if (whole) meet(matcher, matcher->text[i], k, &longest);
    }
    for (int i = 0; i < matcher->n_searches; i++) {
        size_t length = search_step(matcher->searches[i], &matcher->runs[i], (uint8_t)c);
        if (length) meet(matcher, matcher->regexes[i].text, length, &longest);
    }
    return longest;
}

static size_t bytes_to_hold(const struct stop_matcher *matcher) {
    const struct buf *held = &matcher->held;
    size_t longest =
        utf8_unfinished(held->data + matcher->released, held->length - matcher->released);
    for (int i = 0; i < matcher->n; i++) {
        if (matcher->state[i] > longest) longest = matcher->state[i];
    }
    for (int i = 0; i < matcher->n_searches && !matcher->include; i++) {
        size_t open = search_open(&matcher->runs[i]);
        if (open > longest) longest = open;
    }
    return longest;
}

/* Releases all held text except its last `keep` bytes. Released bytes stay in the buffer until they
 * outnumber the kept bytes, so that bytes are not moved at every token. */
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
    assert(matcher->released <= held->length);
    if (matcher->matched) return true;
    if (matcher->n + matcher->n_searches == 0) {
        buf_add(out, text, length);
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        size_t longest = step(matcher, text[i]);
        if (longest == 0) continue;
        buf_add(held, text, i + 1);
        release(matcher, matcher->include ? 0 : longest, out);
        buf_clear(held);
        matcher->released = 0;
        return true;
    }
    buf_add(held, text, length);
    release(matcher, bytes_to_hold(matcher), out);
    return false;
}

void stop_matcher_skip(struct stop_matcher *matcher, const char *text, size_t length,
                       struct buf *out) {
    assert(!matcher->matched);
    release(matcher, 0, out);
    buf_clear(&matcher->held);
    matcher->released = 0;
    memset(matcher->state, 0, sizeof matcher->state);
    for (int i = 0; i < matcher->n_searches; i++) {
        search_run_free(&matcher->runs[i]);
        matcher->runs[i] = (struct search_run){0};
    }
    buf_add(out, text, length);
}

void stop_matcher_finish(struct stop_matcher *matcher, struct buf *out) {
    release(matcher, 0, out);
}

void stop_matcher_free(struct stop_matcher *matcher) {
    for (int i = 0; matcher->runs && i < matcher->n_searches; i++)
        search_run_free(&matcher->runs[i]);
    mem_free(matcher->runs);
    matcher->n_searches = 0;
    matcher->runs = NULL;
    buf_free(&matcher->held);
    mem_free(matcher->borders);
    matcher->borders = NULL;
}
