/* shares: which of several clients is next, so that none of them starves the others.
 *
 * Each share has a counter of its service: computed prompt tokens and generated tokens, divided by
 * its weight. Within a priority, the waiting sequence of the share with the smallest counter is
 * next (virtual token counters: Sheng et al. 2024, "Fairness in Serving Large Language Models").
 * Within a share the order is that of arrival. A generated token counts as two prompt tokens, as in
 * the paper. Tokens from the prefix cache, and tokens that are computed again after a preemption,
 * are not counted.
 *
 * A share without queued requests saves up no claim: when its next request arrives, its counter is
 * lifted to the smallest of the shares with queued requests; if there is none, to that of the share
 * whose queue became empty last. So the services of two shares that both have queued requests,
 * divided by their weights, never differ by more than a bound that does not depend on the time.
 *
 * The counters order only waiting sequences, and a long answer may run for a minute. So a share
 * must not fill the batch: it leaves an eighth of the batch rows to the others, at least one row,
 * and at most one row for each other share.
 *
 * Engine thread only. shares_init allocates all memory.
 */
#ifndef PENSTOCK_SHARES_H
#define PENSTOCK_SHARES_H

#include "scheduler/sequence/generation.h"

enum { PROMPT_TOKEN_COST = 1, OUTPUT_TOKEN_COST = 2 };

struct share {
    int weight;       /* 1..MAX_SHARE_WEIGHT */
    int queued;       /* requests that have never run */
    uint64_t service; /* units of 2^-20 of a prompt token at weight 1 */
};

struct shares {
    int n;
    struct share *share; /* [n] */
    uint64_t left;       /* counter of the share whose queue became empty last */
};

/* Makes n shares with weight[n], or with weight 1 if that is NULL; frees them. */
void shares_init(struct shares *shares, int n, const int *weight);
void shares_free(struct shares *shares);

/* Returns the service of `tokens` prompt tokens, in the units of a share's counter. */
static inline uint64_t share_cost(const struct share *share, uint64_t tokens) {
    assert(share->weight >= 1);
    return (tokens << 20) / (uint64_t)share->weight;
}

/* Adds the service of `tokens` prompt tokens. */
static inline void share_charge(struct share *share, uint64_t tokens) {
    share->service += share_cost(share, tokens);
}

/* Returns the batch rows that one share may have, of max_seqs: at least 1. Any thread. */
int shares_most_rows(const struct shares *shares, int max_seqs);

/* A request of the share is queued; it runs for the first time, or ends before it has run. */
void shares_arrive(struct shares *shares, int share);
void shares_leave(struct shares *shares, int share);

#endif
