/* replay_drafter: drafts the tokens that a test predicts, and spoils a given share of them. */
#ifndef PENSTOCK_TESTS_REPLAY_DRAFTER_H
#define PENSTOCK_TESTS_REPLAY_DRAFTER_H

#include "scheduler/draft/draft.h"

struct replay {
    /* Fills out[n] with the tokens that follow the first n_known ones of a choice. Returns the
     * number of known ones. */
    int (*foresee)(void *owner, int choice, int n_known, int32_t *out, int n);
    int V;
    int wrong;       /* percentage of drafts that are replaced with another token */
    bool any_length; /* drafts end at any length, sometimes at 0 */
    uint64_t random;
    uint64_t n_drafts, n_right;
};

/* The replay must outlive it. */
struct drafter replay_drafter(struct replay *replay);

#endif
