/* DESIGN: drafts from texts that have ended, by frequency (after SuffixDecoding, Oliaro et al.
 * 2024).
 *
 * A ring holds the tokens of the latest outputs, each after the last tokens of its prompt, with a
 * gap between texts. As in lookup.c, places with the same hash over min_match tokens form a chain,
 * latest first. A chain ends at the part of the ring that has been overwritten. The number of a
 * place is the count of all tokens ever added up to it, so 0 means no place.
 *
 *     ring    ... q a b c d . q a b x y . q a b c e .      the sequence ends with a b
 *                       ^           ^           ^          three places, which vote: c (2 of 3),
 *                                                          then e (1 of 2, the later one)
 *
 * The places with the longest match vote. The most frequent next token is drafted, and places with
 * another next token are dropped. The sequence's own text is searched first (lookup.c), and the
 * draft with the longer match is used.
 *
 * Only sequences with the same cache_salt find a text, so the speed of an answer reveals nothing
 * about texts with another salt.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/draft/draft.h"

enum {
    RING = 1 << 17, /* tokens: 5 MiB with their chains */
    BUCKETS = RING,
    MAX_TEXT = RING / 8, /* tokens of one text */
    MAX_PLACES = 64,     /* that a search visits */
    MAX_VOTES = 16,
    GAP = -1, /* no token */
};

struct suffix_place {
    int32_t token;   /* the last token of the place */
    uint64_t before; /* the previous place in its chain */
    uint64_t salt[2];
};

struct suffix {
    const struct lookup_config *config;
    struct drafter lookup;
    uint64_t end;              /* number of tokens ever added */
    struct suffix_place *ring; /* [RING] place p is at (p - 1) % RING */
    uint64_t *head;            /* [BUCKETS] */
};

struct suffix *suffix_new(const struct lookup_config *config) {
    struct suffix *s = mem_calloc(1, sizeof *s);
    assert(config->min_match >= 1 && config->min_match <= config->max_match);
    s->config = config;
    s->lookup = drafter_lookup(config);
    s->ring = mem_calloc(RING, sizeof *s->ring);
    s->head = mem_calloc(BUCKETS, sizeof *s->head);
    return s;
}

void suffix_free(struct suffix *s) {
    if (!s) return;
    mem_free(s->ring);
    mem_free(s->head);
    mem_free(s);
}

static struct suffix_place *place_at(const struct suffix *s, uint64_t place) {
    assert(place > 0 && place <= s->end);
    return &s->ring[(place - 1) % RING];
}

/* Returns the bucket of the n tokens that end before `end`, among texts of a salt. */
static size_t suffix_bucket(const int32_t *end, int n, const uint64_t *salt) {
    uint64_t hash = salt[0] ^ salt[1];
    for (int i = 1; i <= n; i++) hash = (hash + (uint32_t)end[-i] + 1) * 0x9E3779B97F4A7C15u;
    return (size_t)(hash >> 32) % BUCKETS;
}

/* ---- texts that have ended ------------------------------------------------------------------ */

static void add_gap(struct suffix *s) {
    s->end++;
    *place_at(s, s->end) = (struct suffix_place){.token = GAP};
}

static void finished(void *self, const struct draft_context *c, int n_prompt) {
    struct suffix *s = self;
    int first = max_int(n_prompt - MAX_DRAFT_MATCH, 0), n = s->config->min_match;
    if (c->n - first > MAX_TEXT) first = c->n - MAX_TEXT;
    for (int i = first; i < c->n; i++) {
        s->end++;
        struct suffix_place *place = place_at(s, s->end);
        *place = (struct suffix_place){.token = c->tokens[i], .salt = {c->salt[0], c->salt[1]}};
        if (i + 1 - first < n) continue;
        uint64_t *head = &s->head[suffix_bucket(c->tokens + i + 1, n, c->salt)];
        place->before = *head;
        *head = s->end;
    }
    add_gap(s);
}

/* ---- guessing ------------------------------------------------------------------------------- */

/* Is the place, with the tokens that are compared before it, still in the ring? */
static bool is_kept(const struct suffix *s, uint64_t place) {
    return place > 0 && place + RING > s->end + MAX_DRAFT_MATCH;
}

static bool has_salt(const struct suffix_place *place, const uint64_t *salt) {
    return place->salt[0] == salt[0] && place->salt[1] == salt[1];
}

/* Returns how many of the last tokens up to the place and of the sequence are equal. */
static int suffix_match_at(const struct suffix *s, const struct draft_context *c, uint64_t place) {
    int n = 0, most = min_int(c->n, s->config->max_match);
    while (n < most && place > (uint64_t)n &&
           place_at(s, place - (uint64_t)n)->token == c->tokens[c->n - 1 - n])
        n++;
    return n;
}

/* Finds the places with the longest match, latest first. Returns their number, and their match in
 * *match. */
static int find_places(const struct suffix *s, const struct draft_context *c,
                       uint64_t found[MAX_VOTES], int *match) {
    int n = 0;
    *match = s->config->min_match;
    if (c->n < *match) return 0;
    uint64_t place = s->head[suffix_bucket(c->tokens + c->n, *match, c->salt)];
    for (int i = 0; i < MAX_PLACES && is_kept(s, place); i++) {
        const struct suffix_place *one = place_at(s, place);
        int own = has_salt(one, c->salt) ? suffix_match_at(s, c, place) : 0;
        if (own > *match) n = 0, *match = own;
        if (own == *match && n < MAX_VOTES) found[n++] = place;
        place = one->before;
    }
    return n;
}

/* Returns the most frequent next token of the places, or GAP; the latest place wins ties. Places
 * with that token advance, the others are dropped. */
static int32_t suffix_vote(const struct suffix *s, uint64_t *place, int *n) {
    int32_t next[MAX_VOTES], chosen = GAP;
    int most = 0, left = 0;
    for (int i = 0; i < *n; i++)
        next[i] = place[i] < s->end ? place_at(s, place[i] + 1)->token : GAP;
    for (int i = 0; i < *n; i++) {
        int votes = 0;
        for (int j = i; j < *n; j++) votes += next[j] == next[i];
        if (next[i] != GAP && votes > most) most = votes, chosen = next[i];
    }
    for (int i = 0; i < *n; i++)
        if (next[i] == chosen) place[left++] = place[i] + 1;
    *n = left;
    return chosen;
}

static struct draft suffix_propose(void *self, const struct draft_context *c, int max_drafts) {
    struct suffix *s = self;
    uint64_t place[MAX_VOTES];
    int match, most = min_int(max_drafts, c->max_tokens - c->n), drafts = 0;
    struct draft own = s->lookup.propose(s->lookup.self, c, max_drafts);
    int n = find_places(s, c, place, &match);
    if (n == 0 || (own.n > 0 && own.match >= match)) return own;
    for (; drafts < most; drafts++) {
        int32_t token = suffix_vote(s, place, &n);
        if (token == GAP) break;
        c->tokens[c->n + drafts] = token;
    }
    if (drafts == 0) return own;
    return (struct draft){drafts, match};
}

static size_t suffix_state_bytes(const void *self, int max_tokens) {
    const struct suffix *s = self;
    return s->lookup.state_bytes(s->lookup.self, max_tokens);
}

struct drafter drafter_suffix(struct suffix *suffix) {
    return (struct drafter){suffix, suffix_state_bytes, suffix_propose, finished};
}
