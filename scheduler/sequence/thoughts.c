#include "scheduler/sequence/thoughts.h"

#include <assert.h>
#include <string.h>

static void force_if_due(struct thoughts *thoughts, const struct thought_limit *limit) {
    if (thoughts->state != THOUGHTS_OPEN || thoughts->n_tokens < limit->max_tokens) return;
    thoughts->state = THOUGHTS_FORCED;
    thoughts->n_taken = 0;
}

struct thoughts thoughts_first(const struct thought_limit *limit) {
    struct thoughts thoughts = {.state = THOUGHTS_OVER};
    if (!limit->is_set) return thoughts;
    assert(limit->max_tokens >= 0 && limit->n_forced > 0 && *limit->begin && *limit->end);
    if (limit->is_open)
        thoughts.state = THOUGHTS_OPEN;
    else if (!limit->is_behind)
        thoughts.state = THOUGHTS_BEFORE;
    force_if_due(&thoughts, limit);
    return thoughts;
}

/* Returns how many bytes of the marker the text ends with, if it ended with n of them before c. */
static int match_marker(const char *marker, int n, char c) {
    char text[64];
    assert(n + 1 < (int)sizeof text && strlen(marker) < sizeof text);
    memcpy(text, marker, (size_t)n);
    text[n++] = c;
    int kept = n;
    while (kept > 0 && memcmp(text + n - kept, marker, (size_t)kept) != 0) kept--;
    return kept;
}

static bool is_white(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void take_byte(struct thoughts *thoughts, const struct thought_limit *limit, char c) {
    const bool is_before = thoughts->state == THOUGHTS_BEFORE;
    const char *marker = is_before ? limit->begin : limit->end;
    if (thoughts->state == THOUGHTS_OVER) return;
    const int matched = thoughts->n_matched;
    const bool is_blank = matched == 0 && is_white(c);
    thoughts->n_matched = match_marker(marker, matched, c);
    if (marker[thoughts->n_matched] == 0) {
        thoughts->n_matched = 0;
        thoughts->state = is_before           ? THOUGHTS_OPEN
                          : limit->may_return ? THOUGHTS_BEFORE
                                              : THOUGHTS_OVER;
    } else if (is_before && !limit->may_return && !is_blank && thoughts->n_matched <= matched) {
        thoughts->state = THOUGHTS_OVER;
    }
}

void thoughts_take(struct thoughts *thoughts, const struct thought_limit *limit, int32_t id) {
    if (thoughts->state == THOUGHTS_OVER) return;
    if (thoughts->state == THOUGHTS_FORCED) {
        bool is_next = id == limit->forced[thoughts->n_taken];
        thoughts->n_taken++;
        if (!is_next || thoughts->n_taken == limit->n_forced) thoughts->state = THOUGHTS_OVER;
        return;
    }
    const bool was_open = thoughts->state == THOUGHTS_OPEN;
    size_t length;
    const char *text = limit->text_of(limit->texts, id, &length);
    for (size_t i = 0; i < length; i++) take_byte(thoughts, limit, text[i]);
    if (was_open && thoughts->state == THOUGHTS_OPEN) thoughts->n_tokens++;
    force_if_due(thoughts, limit);
}

int32_t thoughts_next(const struct thoughts *thoughts, const struct thought_limit *limit) {
    if (thoughts->state != THOUGHTS_FORCED) return -1;
    assert(thoughts->n_taken < limit->n_forced);
    return limit->forced[thoughts->n_taken];
}

bool thoughts_may_force(const struct thoughts *thoughts, const struct thought_limit *limit, int n) {
    assert(n > 0);
    switch (thoughts->state) {
    case THOUGHTS_BEFORE: /* the first of them may complete the marker */
        return thoughts->n_tokens + n - 1 >= limit->max_tokens;
    case THOUGHTS_OPEN:
        return thoughts->n_tokens + n >= limit->max_tokens;
    case THOUGHTS_FORCED:
        return true;
    case THOUGHTS_OVER:
        break;
    }
    return false;
}
