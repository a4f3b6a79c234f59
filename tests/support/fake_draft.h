/* fake_draft: a draft model that is a second fake engine, so all its drafts are right, except those
 * that the test spoils. */
#ifndef PENSTOCK_TESTS_FAKE_DRAFT_H
#define PENSTOCK_TESTS_FAKE_DRAFT_H

#include "scheduler/speculate.h"
#include "support/fake_engine.h"

struct fake_draft {
    struct fake_engine *engine;
    struct engine_port inner;
    struct sampled *results; /* [max_seqs] */
    int n_samples, wrong;    /* percentage of drafts that are replaced with another token */
    uint64_t random;
    uint64_t n_drafts;
};

/* Makes it the draft model of a scheduler on a fake engine, before the first request. Close it
 * after the scheduler. */
void fake_draft_open(struct fake_draft *draft, struct scheduler *scheduler,
                     const struct draft_room *room);
void fake_draft_close(struct fake_draft *draft);

#endif
