/* kernels/cpu/sharing: divides the pieces of a job among threads. This code does not compute, does
 * not wait, and does not know the processors, so a simulation can drive it
 * (tests/kernels/test_sharing.c).
 *
 * The pieces 0..n-1 of a job are divided among the nodes, and each node's part evenly among its
 * threads. A thread's share is a range of adjacent pieces. A thread claims its own pieces in rising
 * order, then pieces of other threads: of its group, of its node, of other nodes.
 *
 *     node      0                          1
 *     group     0            1             2            3          at most GROUP_THREADS threads
 *     thread    0 1 2 ..     16 17 ..      32 33 ..     48 49 ..
 *     ended     pieces       pieces        pieces       pieces     -> groups that have ended
 *
 * Thread numbers rise with node numbers. One thread, the caller, starts jobs; any thread claims
 * pieces. */
#ifndef PENSTOCK_KERNELS_CPU_SHARING_H
#define PENSTOCK_KERNELS_CPU_SHARING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_NODES = 64, GROUP_THREADS = 16, MAX_JOB_PIECES = 1 << 18 };

/* The rest of a thread's share: the job's number, the first piece, and one past the last piece. */
struct thread_share {
    _Alignas(64) _Atomic uint64_t word;
};

/* Adjacent threads of a node, [first, end). */
struct share_group {
    _Alignas(64) _Atomic uint32_t ended; /* number of finished pieces of its shares */
    _Alignas(64) _Atomic uint32_t dry;   /* the last job in which this group was found empty */
    int first, end, node;
};

struct sharing {
    /* the current job, written only by the caller */
    _Alignas(64) _Atomic uint32_t number; /* changes before the borders do */
    /* pieces border[k]..border[k + 1] - 1 belong to node k */
    _Atomic uint32_t border[MAX_NODES + 1];
    /* The number of finished pieces, or of finished groups if there are several. The job ends at
     * `wanted`. A thread that waits for the end may use this as its futex word. */
    _Alignas(64) _Atomic uint32_t ended;
    uint32_t wanted;
    int n_threads, n_nodes, n_groups;
    /* threads node_first[k]..node_first[k + 1] - 1 belong to node k */
    int node_first[MAX_NODES + 1];
    int node_group[MAX_NODES + 1]; /* the same for groups */
    struct share_group *groups;
    struct thread_share *shares; /* [n_threads] */
    size_t bytes;
};

/* Makes the shares of n_threads threads. node_of[n_threads] are their nodes, rising from 0 without
 * gaps; NULL: one node. */
struct sharing *sharing_new(const int *node_of, int n_threads);
void sharing_free(struct sharing *s);
/* Returns the group of a thread. */
int sharing_group(const struct sharing *s, int thread);

/* Starts the next job and returns its number. Pieces border[k] to border[k + 1] - 1 belong to node
 * k; border[0] is 0. All pieces of the previous job must have ended. Only for the caller. */
uint32_t sharing_begin(struct sharing *s, const int *border);
/* Divides n pieces among the nodes in proportion to their threads. */
void sharing_borders(const struct sharing *s, int n, int *border);

/* The state of a thread's search for pieces of a job. */
struct range_search {
    uint32_t job;
    int thread, home, turn; /* number of groups visited; `home` is the thread's own group */
    int group, owner;       /* the share that it reads */
    int members_left;       /* members of the group left to visit, this owner included */
    uint32_t ran;           /* pieces of this group that it has claimed and not yet counted */
    bool counted;           /* `ended` has changed since the search began */
};
void sharing_search(const struct sharing *s, struct range_search *search, uint32_t job, int thread);
/* Claims the next piece for this thread, which has finished all earlier ones. Returns -1 if no
 * piece is left; all pieces that the thread ran are then counted. A late thread may call it with
 * the number of a finished job. */
int sharing_claim(struct sharing *s, struct range_search *search);

#endif
