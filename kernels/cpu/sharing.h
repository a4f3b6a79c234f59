/* kernels/cpu/sharing: which thread takes which piece of a job. Nothing here computes, waits or
 * knows of processors, so that a simulation can drive it (tests/kernels/test_sharing.c).
 *
 * A job's pieces 0..n-1 are divided among the nodes, and each node's part evenly among its threads;
 * a thread's share is a run of neighbouring pieces. A thread takes its own pieces in rising order,
 * then what is left of others: of its group, of its node, of other nodes.
 *
 *     node      0                          1
 *     group     0            1             2            3          at most GROUP_THREADS threads
 *     thread    0 1 2 ..     16 17 ..      32 33 ..     48 49 ..
 *     ended     pieces       pieces        pieces       pieces     -> groups that have ended
 *
 * The numbers of threads rise with their nodes. One thread, the caller, begins jobs; any thread
 * claims pieces. */
#ifndef PENSTOCK_KERNELS_CPU_SHARING_H
#define PENSTOCK_KERNELS_CPU_SHARING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_NODES = 64, GROUP_THREADS = 16, MAX_JOB_PIECES = 1 << 18 };

/* What is left of a thread's share: the job's number, its first piece, the one after its last. */
struct share {
    _Alignas(64) _Atomic uint64_t word;
};

/* Neighbouring threads of a node, [first, end). */
struct share_group {
    _Alignas(64) _Atomic uint32_t ended; /* pieces of its shares that have ended */
    _Alignas(64) _Atomic uint32_t dry;   /* the last job of whose pieces here none was left */
    int first, end, node;
};

struct sharing {
    /* the job, written by the caller only */
    _Alignas(64) _Atomic uint32_t number;   /* changes before the borders do */
    _Atomic uint32_t border[MAX_NODES + 1]; /* node k has pieces border[k]..border[k + 1] - 1 */
    /* Pieces that have ended, or groups where there are several; the job has ended at `wanted`. A
     * thread that sleeps until then may take it for its futex word. */
    _Alignas(64) _Atomic uint32_t ended;
    uint32_t wanted;
    int n_threads, n_nodes, n_groups;
    int node_first[MAX_NODES + 1]; /* node k has threads node_first[k]..node_first[k + 1] - 1 */
    int node_group[MAX_NODES + 1]; /* and groups, likewise */
    struct share_group *groups;
    struct share *shares; /* [n_threads] */
    size_t bytes;
};

/* Threads whose nodes, rising from 0 without gaps, are node_of[n_threads]; NULL: one node. */
struct sharing *sharing_new(const int *node_of, int n_threads);
void sharing_free(struct sharing *s);
/* The group of a thread. */
int sharing_group(const struct sharing *s, int thread);

/* The caller begins the next job and gets its number; node k is to have pieces border[k] to
 * border[k + 1] - 1, border[0] is 0. All pieces of the job before have ended. */
uint32_t sharing_begin(struct sharing *s, const int *border);
/* Borders of n pieces by the number of each node's threads. */
void sharing_borders(const struct sharing *s, int n, int *border);

/* How far a thread has come in looking for pieces of a job. */
struct search {
    uint32_t job;
    int thread, home, turn; /* groups before this one; the first is the thread's own, `home` */
    int group, owner;       /* whose share it looks at */
    int members_left;       /* of the group, this owner included */
    uint32_t ran;           /* pieces of this group that it has claimed and not counted */
    bool counted;           /* `ended` has changed since the search began */
};
void sharing_search(const struct sharing *s, struct search *search, uint32_t job, int thread);
/* The next piece for this thread, which has ended all that it got before; -1: none is left to
 * claim, and what it ran has been counted. Also for a thread that comes late, with the number of a
 * job that is over. */
int sharing_claim(struct sharing *s, struct search *search);

#endif
