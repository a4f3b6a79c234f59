/* server/generation: stop strings and regular expressions in a text that arrives in parts. */
#ifndef PENSTOCK_SERVER_STOP_MATCHER_H
#define PENSTOCK_SERVER_STOP_MATCHER_H

#include "server/generation/grammar_store.h"
#include "server/openai/openai.h"

/* The arguments of grammar_store_search for a request's regular expressions. */
struct stop_source {
    struct grammar_store *store;
    struct grammar_claim *claim;
    bool may_compile;
};

/* Gets the regular expressions that end a request's answers: searches[n_stop_regexes], initially
 * NULL; the caller frees them with stop_searches_free. Compiles them if the source is NULL.
 * Continues after an earlier call returned CLAIM_UNCOMPILED or CLAIM_WAITS. Fails with a message
 * that has the name of the field, as the client wrote it, and the place in it. For workers only. */
enum claim_verdict stop_searches_get(const struct stop_source *source,
                                     const struct api_request *request, const char *name,
                                     struct search ***searches, struct err *err);
void stop_searches_free(struct search **searches, int n);

/* Finds the stop strings of a request, which stay in its memory, and its regular expressions. Holds
 * back text that may still become a match. */
struct stop_matcher {
    int n;
    const char *text[API_MAX_STOPS];
    size_t length[API_MAX_STOPS];
    uint32_t *borders; /* memory of the tables border[i] */
    const uint32_t *border[API_MAX_STOPS];
    /* per stop string: length of its prefix that ends the text so far */
    uint32_t state[API_MAX_STOPS];
    bool asleep; /* matches are ignored: min_tokens */
    int n_searches;
    struct search *const *searches; /* [n_searches] shared by all answers of the request */
    const struct api_text *regexes; /* [n_searches] their texts */
    struct search_run *runs;        /* [n_searches] */
    bool include;                   /* the stop string is part of the output */
    struct buf held;                /* text that is held back */
    size_t released;                /* released bytes at the start of `held` */
    const char *matched;            /* the matched stop string or regular expression, or NULL */
};

/* `searches` are from stop_searches_get and must outlive the matcher. */
void stop_matcher_init(struct stop_matcher *matcher, const struct api_request *request,
                       struct search *const *searches);

/* Appends to `out` the part of held + text that is certain. Returns true after a match: the text
 * after it is dropped, and `matched` is set. The match that ends first wins; among matches with
 * equal ends, the longest one. */
bool stop_matcher_add(struct stop_matcher *matcher, const char *text, size_t length,
                      struct buf *out);

/* Appends the held text and this one to `out`, and begins anew after it. */
void stop_matcher_skip(struct stop_matcher *matcher, const char *text, size_t length,
                       struct buf *out);

/* Releases the held text, at the end without a match. */
void stop_matcher_finish(struct stop_matcher *matcher, struct buf *out);
void stop_matcher_free(struct stop_matcher *matcher);

#endif
