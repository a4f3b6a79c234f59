/* DESIGN: drafts from a text that the client expects, which the output mostly follows.
 *
 * A cursor marks the place in the text at which the output continues. It advances with each token
 * that equals the text's. If the output leaves the text, the cursor is set again as soon as the
 * last tokens of the output are found in the text: at the longest match, and among equal matches at
 * the first after the cursor.
 *
 *     text     a b c d e f g h          output   a b c x y f g | drafts: h
 *                            ^                   follows, leaves at x, is found again after f g
 */
#include <assert.h>

#include "scheduler/draft/draft.h"

/* MAX_PLACES: a search of this number of places takes a few microseconds at most. */
enum { MAX_PLACES = 4096, MIN_MATCH = 2 };

/* The assumed match at the start of an output, which is likely to follow the text. */
enum { FIRST_MATCH = 4 };

/* Returns how many of the last tokens of the output are before `place`. */
static int predicted_match_at(const struct prediction *p, const struct draft_context *c,
                              int n_prompt, int place) {
    int n = 0, most = min_int(min_int(place, c->n - n_prompt), MAX_DRAFT_MATCH);
    while (n < most && p->tokens[place - n - 1] == c->tokens[c->n - n - 1]) n++;
    return n;
}

/* Sets the cursor to the best match of the last tokens of the output, or leaves it unchanged. */
static void find_again(struct prediction *p, const struct draft_context *c, int n_prompt) {
    int best = MIN_MATCH - 1, at = p->at;
    for (int i = 0; i < p->n && i < MAX_PLACES && best < MAX_DRAFT_MATCH; i++) {
        int place = (p->at + i) % p->n + 1, match = predicted_match_at(p, c, n_prompt, place);
        if (match > best) best = match, at = place;
    }
    p->match = best >= MIN_MATCH ? best : 0;
    p->at = at;
}

struct draft draft_predicted(struct prediction *p, const struct draft_context *c, int n_prompt,
                             int max_drafts) {
    assert(p->n > 0 && p->at <= p->n && p->n_seen <= c->n && c->n >= n_prompt);
    if (p->n_seen < n_prompt) p->n_seen = n_prompt, p->match = FIRST_MATCH;
    for (; p->n_seen < c->n && p->match > 0; p->n_seen++) {
        bool follows = p->at < p->n && p->tokens[p->at] == c->tokens[p->n_seen];
        p->match = follows ? min_int(p->match + 1, MAX_DRAFT_MATCH) : 0;
        p->at += follows;
    }
    p->n_seen = c->n;
    if (p->match == 0) find_again(p, c, n_prompt);
    if (p->match == 0) return (struct draft){0};
    int n = min_int(min_int(max_drafts, p->n - p->at), c->max_tokens - c->n);
    for (int i = 0; i < n; i++) c->tokens[c->n + i] = p->tokens[p->at + i];
    return (struct draft){n, n > 0 ? p->match : 0};
}
