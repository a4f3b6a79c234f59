#include "scheduler/plan/shares.h"

#include "config/config.h"

void shares_init(struct shares *shares, int n, const int *weight) {
    assert(n >= 1 && n <= MAX_SHARES);
    *shares = (struct shares){.n = n, .share = mem_calloc((size_t)n, sizeof *shares->share)};
    for (int i = 0; i < n; i++) {
        shares->share[i].weight = weight ? weight[i] : 1;
        assert(shares->share[i].weight >= 1 && shares->share[i].weight <= MAX_SHARE_WEIGHT);
    }
}

void shares_free(struct shares *shares) {
    mem_free(shares->share);
}

enum { KEPT_PART = 8 }; /* a share leaves max_seqs / KEPT_PART rows to the others */

int shares_most_rows(const struct shares *shares, int max_seqs) {
    assert(shares->n >= 1 && max_seqs >= 1);
    const int kept = min_int(shares->n - 1, max_int(max_seqs / KEPT_PART, 1));
    return max_int(max_seqs - kept, 1);
}

/* Returns the smallest counter of the shares with queued requests. */
static uint64_t least_service(const struct shares *shares) {
    const struct share *least = NULL;
    for (int i = 0; i < shares->n; i++) {
        const struct share *share = &shares->share[i];
        if (share->queued > 0 && (!least || share->service < least->service)) least = share;
    }
    return least ? least->service : shares->left;
}

void shares_arrive(struct shares *shares, int i) {
    assert(i >= 0 && i < shares->n);
    struct share *share = &shares->share[i];
    if (share->queued == 0) {
        uint64_t least = least_service(shares);
        if (share->service < least) share->service = least;
    }
    share->queued++;
}

void shares_leave(struct shares *shares, int i) {
    assert(i >= 0 && i < shares->n && shares->share[i].queued > 0);
    struct share *share = &shares->share[i];
    if (--share->queued == 0) shares->left = share->service;
}
