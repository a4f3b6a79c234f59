/* DESIGN: drafts from a text that the client expects, which the output mostly follows.
 *
 * A cursor stands in the text where the output goes on, and moves with each token that is the
 * text's. Where the output has left the text, the cursor is set again as soon as the output's last
 * tokens are found in it: at the longest match, of equal ones at the first behind the cursor.
 *
 *     text     a b c d e f g h          output   a b c x y f g | drafts: h
 *                            ^                   follows, leaves at x, is found again behind f g
 */
#include <assert.h>

#include "scheduler/draft/draft.h"

/* A search looks at so many places, which takes a few microseconds at most. */
enum { MAX_PLACES = 4096, MIN_MATCH = 2 };

/* The match that the beginning of an output counts as: it is likely to be the text's. */
enum { FIRST_MATCH = 4 };

/* How many of the output's last tokens stand before `place`. */
static int match_at(const struct prediction *p, const struct draft_context *c, int n_prompt,
                    int place) {
    int n = 0, most = min_int(min_int(place, c->n - n_prompt), MAX_DRAFT_MATCH);
    while (n < most && p->tokens[place - n - 1] == c->tokens[c->n - n - 1]) n++;
    return n;
}

/* Sets the cursor where the output's last tokens stand, or leaves it where it is. */
static void find_again(struct prediction *p, const struct draft_context *c, int n_prompt) {
    int best = MIN_MATCH - 1, at = p->at;
    for (int i = 0; i < p->n && i < MAX_PLACES && best < MAX_DRAFT_MATCH; i++) {
        int place = (p->at + i) % p->n + 1, match = match_at(p, c, n_prompt, place);
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
