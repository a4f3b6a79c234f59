/* replay_drafter: drafts what a test knows will come, spoilt as often as it says. */
#ifndef PENSTOCK_TESTS_REPLAY_DRAFTER_H
#define PENSTOCK_TESTS_REPLAY_DRAFTER_H

#include "scheduler/draft/draft.h"

struct replay {
    /* Fills out[n] with the tokens that come after the n_known first ones of a choice; returns how
     * many it knows. */
    int (*foresee)(void *owner, int choice, int n_known, int32_t *out, int n);
    int V;
    int wrong;       /* percent of the drafts that are another token */
    bool any_length; /* drafts are cut off anywhere, and sometimes there are none */
    uint64_t random;
    uint64_t n_drafts, n_right;
};

/* The replay must outlive it. */
struct drafter replay_drafter(struct replay *replay);

#endif
