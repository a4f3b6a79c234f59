/* server/generation: stop strings and regular expressions in a text that comes in parts. */
#ifndef PENSTOCK_SERVER_STOP_MATCHER_H
#define PENSTOCK_SERVER_STOP_MATCHER_H

#include "server/generation/grammar_store.h"
#include "server/openai/openai.h"

/* Where a request gets its regular expressions, as grammar_store_search says. */
struct stop_source {
    struct grammar_store *store;
    struct grammar_claim *claim;
    bool may_compile;
};

/* Gets the regular expressions of a request that end its answers: searches[n_stop_regexes], NULL at
 * first, which the caller frees with stop_searches_free. Makes them if the source is NULL. It goes
 * on where the last call has ended with CLAIM_UNCOMPILED or CLAIM_WAITS. Refuses them with a
 * sentence that names the field, as it is called where it was given, and the place in it. Workers
 * only. */
enum claim_verdict stop_searches_get(const struct stop_source *source,
                                     const struct api_request *request, const char *name,
                                     struct search ***searches, struct err *err);
void stop_searches_free(struct search **searches, int n);

/* Finds the stop strings of a request, whose memory they stay in, and its regular expressions. Text
 * that may still become a match of one is held back. */
struct stop_matcher {
    int n;
    const char *text[API_MAX_STOPS];
    size_t length[API_MAX_STOPS];
    uint32_t *borders; /* memory of the tables that border[i] points into */
    const uint32_t *border[API_MAX_STOPS];
    uint32_t state[API_MAX_STOPS]; /* bytes of each stop string that the text so far ends with */
    bool asleep;                   /* matches that end now do not count: min_tokens */
    int n_searches;
    struct search *const *searches; /* [n_searches]: the request's, of all its answers */
    const struct api_text *regexes; /* [n_searches]: what they were made of */
    struct search_run *runs;        /* [n_searches] */
    bool include;                   /* the stop string itself is part of the output */
    struct buf held;                /* text not yet released */
    size_t released;                /* bytes at the start of `held` that are released already */
    const char *matched; /* the stop string or regular expression that was met, or NULL */
};

/* `searches` as stop_searches_get has made them, which outlive it. */
void stop_matcher_init(struct stop_matcher *matcher, const struct api_request *request,
                       struct search *const *searches);

/* Appends to `out` the part of held + text that is certain. Returns true once a stop was met:
 * then what follows it is dropped and `matched` says which. The match that ends first wins; at
 * equal ends the longest. */
bool stop_matcher_add(struct stop_matcher *matcher, const char *text, size_t length,
                      struct buf *out);

/* Releases what is held, at the end without a match. */
void stop_matcher_finish(struct stop_matcher *matcher, struct buf *out);
void stop_matcher_free(struct stop_matcher *matcher);

#endif
