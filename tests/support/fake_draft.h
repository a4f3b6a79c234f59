/* fake_draft: a draft model that is the fake engine again, so that all that it drafts is right, but
 * for what the test spoils. */
#ifndef PENSTOCK_TESTS_FAKE_DRAFT_H
#define PENSTOCK_TESTS_FAKE_DRAFT_H

#include "scheduler/speculate.h"
#include "support/fake_engine.h"

struct fake_draft {
    struct fake_engine *engine;
    struct engine_port inner;
    struct sampled *results; /* [max_seqs] */
    int n_samples, wrong;    /* percent of the drafts that are another token */
    uint64_t random;
    uint64_t n_drafts;
};

/* Lets a scheduler whose engine is a fake ask it, from before its first request on. Close it after
 * the scheduler. */
void fake_draft_open(struct fake_draft *draft, struct scheduler *scheduler,
                     const struct draft_room *room);
void fake_draft_close(struct fake_draft *draft);

#endif
