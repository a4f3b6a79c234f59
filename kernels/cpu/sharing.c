/* Work sharing: which thread claims which piece.
 *
 * DESIGN
 * Shares    There is one 64-bit word per thread. A claim is a compare-and-swap. Shares are not
 *           distributed: the first thread that reads a share, its owner or another, finds an
 *           earlier job's number and computes the share. So the start of a job writes one cache
 *           line, independently of the number of threads.
 * Late      A thread that was delayed since an earlier job cannot use a later job's borders:
 *           `number` changes before the borders do and is read after them. If a share still has an
 *           older number, it was not started in this job, so the job has not ended. So a successful
 *           claim proves that the job is the current one.
 * Ended     Each group counts its own pieces, whichever thread ran them. The thread that counts the
 *           last piece of a group counts the group. So few threads share a cache line. A single
 *           group needs no such tree.
 * Dry       A thread that finds a whole group without pieces marks it, so others skip its shares.
 * Numbers   A share holds the low 28 bits of a job's number. They repeat after about an hour of
 *           jobs. Before they do, all shares are reset to number 0, which no job uses. */
#include "kernels/cpu/sharing.h"

#include <assert.h>

#include "config/config.h"

enum { PIECE_BITS = 18, JOB_BITS = 64 - 2 * PIECE_BITS };

/* ---- a share's word ------------------------------------------------------------------------- */

static uint32_t job_bits(uint32_t job) {
    return job & ((1u << JOB_BITS) - 1);
}

static uint64_t word_of(uint32_t job, uint32_t from, uint32_t to) {
    assert(from <= to && to < MAX_JOB_PIECES);
    return (uint64_t)job_bits(job) << (2 * PIECE_BITS) | (uint64_t)from << PIECE_BITS | to;
}

static uint32_t from_of(uint64_t word) {
    return (uint32_t)(word >> PIECE_BITS) & (MAX_JOB_PIECES - 1);
}

static uint32_t to_of(uint64_t word) {
    return (uint32_t)word & (MAX_JOB_PIECES - 1);
}

/* ---- groups --------------------------------------------------------------------------------- */

/* Divides a node's threads [first, end) into groups of about equal size. */
static int node_groups(struct share_group *groups, int node, int first, int end) {
    int n = (end - first + GROUP_THREADS - 1) / GROUP_THREADS;
    for (int g = 0; g < n && groups; g++) {
        groups[g].node = node;
        groups[g].first = first + (end - first) * g / n;
        groups[g].end = first + (end - first) * (g + 1) / n;
    }
    return n;
}

struct sharing *sharing_new(const int *node_of, int n_threads) {
    struct sharing plan = {.n_threads = n_threads};
    assert(n_threads >= 1 && (!node_of || node_of[0] == 0));
    for (int t = 1; t < n_threads && node_of; t++) {
        assert(node_of[t] == node_of[t - 1] || node_of[t] == node_of[t - 1] + 1);
        if (node_of[t] != node_of[t - 1]) plan.node_first[++plan.n_nodes] = t;
    }
    assert(plan.n_nodes < MAX_NODES);
    plan.node_first[++plan.n_nodes] = n_threads;
    for (int k = 0; k < plan.n_nodes; k++) {
        plan.n_groups += node_groups(NULL, k, plan.node_first[k], plan.node_first[k + 1]);
        plan.node_group[k + 1] = plan.n_groups;
    }
    plan.bytes = sizeof plan + (size_t)plan.n_groups * sizeof *plan.groups +
                 (size_t)n_threads * sizeof *plan.shares;
    struct sharing *s = mem_large(plan.bytes);
    *s = plan;
    s->groups = (struct share_group *)(s + 1);
    s->shares = (struct thread_share *)(s->groups + s->n_groups);
    for (int k = 0; k < s->n_nodes; k++)
        node_groups(s->groups + s->node_group[k], k, s->node_first[k], s->node_first[k + 1]);
    return s;
}

void sharing_free(struct sharing *s) {
    mem_large_free(s, s->bytes);
}

/* ---- a job ---------------------------------------------------------------------------------- */

void sharing_borders(const struct sharing *s, int n, int *border) {
    assert(n >= 0);
    border[0] = 0;
    border[s->n_nodes] = n;
    for (int k = 1; k < s->n_nodes; k++)
        border[k] = (int)((int64_t)n * s->node_first[k] / s->n_threads);
}

/* Returns the first piece of a thread's share. The share ends at the first piece of the next thread
 * in the node, or at the end of the node's part. */
static uint32_t share_begin(const struct sharing *s, int node, int thread) {
    assert(node >= 0 && node < s->n_nodes && thread >= 0);
    uint32_t from = atomic_load_explicit(&s->border[node], memory_order_acquire);
    uint32_t to = atomic_load_explicit(&s->border[node + 1], memory_order_acquire);
    uint32_t first = (uint32_t)s->node_first[node], end = (uint32_t)s->node_first[node + 1];
    return from + (uint32_t)((uint64_t)(to - from) * ((uint32_t)thread - first) / (end - first));
}

/* The number of pieces in a group's shares. */
static uint32_t group_pieces(const struct sharing *s, const struct share_group *group) {
    return share_begin(s, group->node, group->end) - share_begin(s, group->node, group->first);
}

uint32_t sharing_begin(struct sharing *s, const int *border) {
    uint32_t job = atomic_load_explicit(&s->number, memory_order_relaxed) + 1;
    if (job_bits(job) == 0) {
        for (int t = 0; t < s->n_threads; t++) atomic_store(&s->shares[t].word, 0);
        job++;
    }
    assert(border[0] == 0 && border[s->n_nodes] < MAX_JOB_PIECES);
    atomic_store_explicit(&s->number, job, memory_order_relaxed);
    for (int k = 0; k <= s->n_nodes; k++) {
        assert(k == 0 || border[k] >= border[k - 1]);
        atomic_store_explicit(&s->border[k], (uint32_t)border[k], memory_order_release);
    }
    atomic_store_explicit(&s->ended, 0, memory_order_relaxed);
    s->wanted = (uint32_t)border[s->n_nodes];
    if (s->n_groups == 1) return job;
    s->wanted = 0;
    for (int g = 0; g < s->n_groups; g++) s->wanted += group_pieces(s, &s->groups[g]) > 0;
    return job;
}

/* Returns the share of a thread in the current job. Returns false if the job is over or the share
 * is empty. */
static bool share_of(const struct sharing *s, uint32_t job, int node, int owner, uint32_t *from,
                     uint32_t *to) {
    *from = share_begin(s, node, owner);
    *to = share_begin(s, node, owner + 1);
    return atomic_load_explicit(&s->number, memory_order_relaxed) == job && *from < *to;
}

/* Claims the next piece of one share; -1: the share is empty. */
static int claim_from(struct sharing *s, uint32_t job, int node, int owner) {
    assert(node >= 0 && node < s->n_nodes);
    _Atomic uint64_t *share = &s->shares[owner].word;
    uint64_t word = atomic_load_explicit(share, memory_order_acquire);
    for (;;) {
        uint32_t from = from_of(word), to = to_of(word);
        if (word >> (2 * PIECE_BITS) != job_bits(job)) {
            if (!share_of(s, job, node, owner, &from, &to)) return -1;
        } else if (from == to) {
            return -1;
        }
        if (atomic_compare_exchange_weak_explicit(share, &word, word_of(job, from + 1, to),
                                                  memory_order_acq_rel, memory_order_acquire))
            return (int)from;
    }
}

/* ---- a search ------------------------------------------------------------------------------- */

/* The group that a thread of group `home` visits at its turn-th turn: first the groups of its own
 * node, starting with its own, then all others. */
static int group_at(const struct sharing *s, int home, int turn) {
    int node = s->groups[home].node, first = s->node_group[node];
    int own = s->node_group[node + 1] - first;
    return turn < own ? first + (home - first + turn) % own : (first + turn) % s->n_groups;
}

int sharing_group(const struct sharing *s, int thread) {
    int g = 0;
    while (s->groups[g].end <= thread) g++;
    return g;
}

/* Moves the search to the group of its turn. Different thieves start at different members. */
static void go_to_group(const struct sharing *s, struct range_search *search) {
    search->group = group_at(s, search->home, search->turn);
    const struct share_group *g = &s->groups[search->group];
    search->members_left = g->end - g->first;
    search->owner =
        search->turn == 0 ? search->thread : g->first + search->thread % search->members_left;
}

void sharing_search(const struct sharing *s, struct range_search *search, uint32_t job,
                    int thread) {
    assert(thread >= 0 && thread < s->n_threads);
    *search = (struct range_search){.job = job, .thread = thread, .home = sharing_group(s, thread)};
    go_to_group(s, search);
}

/* Adds the pieces that the search ran in this group to the group's count. */
static void count(struct sharing *s, struct range_search *search, struct share_group *group) {
    if (search->ran == 0) return;
    if (s->n_groups == 1) {
        atomic_fetch_add(&s->ended, search->ran);
        search->counted = true;
    } else if (atomic_fetch_add(&group->ended, search->ran) + search->ran ==
               group_pieces(s, group)) {
        atomic_store(&group->ended, 0);
        atomic_fetch_add(&s->ended, 1);
        search->counted = true;
    }
    search->ran = 0;
}

/* A group of two members does not use the mark: each sees the other's share quickly. */
static bool is_dry(const struct share_group *group, uint32_t job) {
    return group->end - group->first > 2 &&
           atomic_load_explicit(&group->dry, memory_order_relaxed) == job;
}

static void set_dry(struct share_group *group, uint32_t job) {
    if (group->end - group->first > 2 && !is_dry(group, job))
        atomic_store_explicit(&group->dry, job, memory_order_relaxed);
}

/* Claims the next piece of the search's group; -1: the group is empty. */
static int claim_in_group(struct sharing *s, struct range_search *search) {
    const struct share_group *group = &s->groups[search->group];
    while (search->members_left > 0) {
        int piece = claim_from(s, search->job, group->node, search->owner);
        if (piece >= 0) return piece;
        search->members_left--;
        if (++search->owner == group->end) search->owner = group->first;
        if (is_dry(group, search->job)) search->members_left = 0;
    }
    return -1;
}

int sharing_claim(struct sharing *s, struct range_search *search) {
    for (;;) {
        struct share_group *group = &s->groups[search->group];
        int piece = claim_in_group(s, search);
        if (piece >= 0) {
            search->ran++;
            return piece;
        }
        set_dry(group, search->job);
        count(s, search, group);
        do {
            if (++search->turn >= s->n_groups) return -1;
            go_to_group(s, search);
        } while (is_dry(&s->groups[search->group], search->job));
    }
}
