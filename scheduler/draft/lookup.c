/* DESIGN: prompt lookup by hash chains, as deflate (RFC 1951) finds its matches.
 *
 * All places of a sequence with the same hash over min_match tokens form a chain, latest first. A
 * table by hash holds the heads of the chains. So a token costs 8 to 12 bytes, adding it needs no
 * search, and a search walks one chain. A place is the position of the last of its tokens, plus 1,
 * so memory of zeros is an empty index.
 *
 *     tokens   a b c d e . . . a b c x . . . a b c |  drafts: x . .
 *                  ^             ^             ^
 *     chain        3  <--------- 11 <--------- 17     of hash(b c): min_match 2
 *
 * A draft may copy tokens that were drafted just before it, so text that repeats is continued.
 */
#include <assert.h>

#include "scheduler/draft/draft.h"

/* MAX_ADDED: a long prompt is indexed over several steps, so it delays none of them; this number of
 * tokens takes 10 to 20 microseconds. MAX_PLACES: a search of this number of places takes less than
 * one microsecond. */
enum { MAX_ADDED = 4096, MAX_PLACES = 32, MIN_BUCKETS = 16 };

struct lookup {
    int n_indexed;  /* number of tokens whose places are in the chains */
    int32_t word[]; /* [buckets] heads, then [max_tokens] the previous place in the chain */
};

static size_t n_buckets(int max_tokens) {
    size_t n = MIN_BUCKETS;
    while (n < (size_t)max_tokens) n *= 2;
    return n;
}

static size_t lookup_state_bytes(const void *self, int max_tokens) {
    (void)self;
    return sizeof(struct lookup) + (n_buckets(max_tokens) + (size_t)max_tokens) * sizeof(int32_t);
}

/* Multiplicative hashing (Knuth, TAOCP 6.4) of the n tokens that end before `end`. */
static size_t lookup_bucket(const int32_t *end, int n, size_t buckets) {
    uint64_t hash = 0;
    for (int i = 1; i <= n; i++) hash = (hash + (uint32_t)end[-i] + 1) * 0x9E3779B97F4A7C15u;
    return (size_t)(hash >> 32) & (buckets - 1);
}

/* Adds the places of the new tokens, at most MAX_ADDED. A search follows the chain of the last
 * one. */
static void add_places(struct lookup *lookup, const struct draft_context *c, int min_match) {
    size_t buckets = n_buckets(c->max_tokens);
    int32_t *head = lookup->word, *before = lookup->word + buckets;
    int end = min_int(c->n, lookup->n_indexed + MAX_ADDED);
    assert(lookup->n_indexed <= c->n && c->n <= c->max_tokens);
    for (int place = lookup->n_indexed + 1; place <= end; place++) {
        if (place < min_match) continue;
        size_t bucket = lookup_bucket(c->tokens + place, min_match, buckets);
        before[place - 1] = head[bucket];
        head[bucket] = place;
    }
    lookup->n_indexed = end;
}

/* Returns how many of the last tokens before `place` and before n are equal. */
static int lookup_match_at(const struct draft_context *c, int place, int max_match) {
    const int32_t *a = c->tokens + place, *b = c->tokens + c->n;
    int n = 0, most = min_int(place, max_match);
    while (n < most && a[-n - 1] == b[-n - 1]) n++;
    return n;
}

static struct draft lookup_propose(void *self, const struct draft_context *c, int max_drafts) {
    const struct lookup_config *config = self;
    struct lookup *lookup = c->state;
    const int32_t *before = lookup->word + n_buckets(c->max_tokens);
    int best = 0, match = config->min_match - 1;
    assert(config->min_match >= 1 && config->min_match <= config->max_match);
    assert(config->max_match <= MAX_DRAFT_MATCH);
    add_places(lookup, c, config->min_match);
    int place = c->n > 0 ? before[c->n - 1] : 0; /* also 0 if it is not indexed yet */
    for (int i = 0; i < MAX_PLACES && place > 0 && match < config->max_match; i++) {
        assert(place < c->n);
        int found = lookup_match_at(c, place, config->max_match);
        if (found > match) best = place, match = found;
        place = before[place - 1];
    }
    if (best == 0) return (struct draft){0};
    int n = min_int(max_drafts, c->max_tokens - c->n);
    for (int i = 0; i < n; i++) c->tokens[c->n + i] = c->tokens[best + i];
    return (struct draft){n, match};
}

struct drafter drafter_lookup(const struct lookup_config *config) {
    return (struct drafter){(void *)config, lookup_state_bytes, lookup_propose};
}
