/* server/generation: stop strings in a text that comes in parts. */
#ifndef PENSTOCK_SERVER_STOP_MATCHER_H
#define PENSTOCK_SERVER_STOP_MATCHER_H

#include "server/openai/openai.h"

/* Finds the stop strings of a request, whose memory they stay in. Text that may still become a stop
 * string is held back. */
struct stop_matcher {
    int n;
    const char *text[API_MAX_STOPS];
    size_t length[API_MAX_STOPS];
    uint32_t *borders; /* memory of the tables that border[i] points into */
    const uint32_t *border[API_MAX_STOPS];
    uint32_t state[API_MAX_STOPS]; /* bytes of each stop string that the text so far ends with */
    bool asleep;                   /* matches that end now do not count: min_tokens */
    bool include;                  /* the stop string itself is part of the output */
    struct buf held;               /* text not yet released */
    size_t released;               /* bytes at the start of `held` that are released already */
    int matched;                   /* index of the stop string that was met, or -1 */
};
void stop_matcher_init(struct stop_matcher *matcher, const struct api_request *request);

/* Appends to `out` the part of held + text that is certain. Returns true once a stop string was
 * met: then what follows it is dropped and `matched` says which. The earliest match wins; at equal
 * ends the longest. */
bool stop_matcher_add(struct stop_matcher *matcher, const char *text, size_t length,
                      struct buf *out);

/* Releases what is held, at the end without a match. */
void stop_matcher_finish(struct stop_matcher *matcher, struct buf *out);
void stop_matcher_free(struct stop_matcher *matcher);

#endif
