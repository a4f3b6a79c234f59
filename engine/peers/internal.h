/* Shared by mpi.c, which sends and receives, near.c, which gathers rows on one machine, and
 * watch.c, which watches the peers. */
#ifndef PENSTOCK_ENGINE_PEERS_INTERNAL_H
#define PENSTOCK_ENGINE_PEERS_INTERNAL_H

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include "engine/peers/peers.h"

/* A peer, as the watching thread sees it. */
struct watched {
    int pidfd;           /* readable when its process has ended; -1: on another machine */
    uint64_t seen_ns;    /* the last sign of life */
    MPI_Request in, out; /* the next beat from it, and the last one to it */
    int32_t beat_in, beat_out;
};

struct peers_call {
    void (*fn)(void *arg);
    void *arg;
};

struct peers {
    MPI_Comm words; /* messages and rows: the engine thread */
    MPI_Comm beats; /* signs of life: the watching thread */
    int rank, n, n_local;
    int place;    /* processes on this machine with lower ranks */
    bool crowded; /* this machine has more ranks than processors */
    uint64_t timeout_ns;
    int loss_code; /* the exit code after a loss */
    /* near.c: MPI_WIN_NULL if rows are messages; otherwise the memory of each rank */
    MPI_Win window;
    void *segment[MAX_PEERS];
    float *rows[MAX_PEERS]; /* mpi.c: [PEERS_ROWS] of each other rank; NULL before the first use */
    MPI_Request end;        /* above rank 0: the receipt of rank 0's exit code */
    bool ended;             /* it has arrived */
    int code;
    struct peers_call meanwhile; /* fn NULL: nothing */
    /* the watching thread */
    pthread_t thread;
    bool watches;
    int stop; /* an eventfd */
    struct watched peer[MAX_PEERS];
    _Atomic bool lost;
    pthread_mutex_t mutex; /* guards the fields below */
    struct err why;        /* if lost */
    int n_on_loss;
    struct peers_call on_loss[MAX_LOSS_CALLS];
};

/* Records that a peer is lost, unless one is already. Calls on_loss. `why` completes the sentence
 * "Rank N is lost: ". Any thread. */
void peers_lose(struct peers *peers, int rank, const char *why);

/* A wait: begins with wait_begin, and calls wait_pause between its looks. */
struct wait {
    uint64_t began_ns, most_sleep_ns;
    unsigned n_pauses;
};
/* in_step: the other processes compute for a step, so its sleeps are short. */
struct wait wait_begin(bool in_step);
/* Returns at once in the first moments, then yields, then sleeps, longer the longer the wait.
 * Returns true if the wait must end: rank 0 has ended. */
bool wait_pause(struct peers *peers, struct wait *wait);

/* Makes the shared memory if all processes are on this machine. All processes call both. */
void near_open(struct peers *peers);
void near_close(struct peers *peers);
/* peers_gather with shared memory. */
bool near_gather(struct peers *peers, const float *mine, int n, const float *rows[]);

/* Starts and stops the watching thread. watch_start is collective: all processes call it. */
enum status watch_start(struct peers *peers, struct err *err);
void watch_stop(struct peers *peers);

#endif
