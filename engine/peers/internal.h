/* Shared by mpi.c, which sends and receives, and watch.c, which watches the peers. */
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

struct peers {
    MPI_Comm words; /* messages and rows: the engine thread */
    MPI_Comm beats; /* signs of life: the watching thread */
    int rank, n, n_local;
    bool crowded; /* this machine has more ranks than processors */
    uint64_t timeout_ns;
    int loss_code;   /* the exit code after a loss */
    MPI_Request end; /* above rank 0: the receipt of rank 0's exit code */
    bool ended;      /* it has arrived */
    int code;
    /* the watching thread */
    pthread_t thread;
    bool watches;
    int stop; /* an eventfd */
    struct watched peer[MAX_PEERS];
    _Atomic bool lost;
    pthread_mutex_t mutex; /* guards the fields below */
    struct err why;        /* if lost */
    void (*on_loss)(void *arg);
    void *arg;
};

/* Records that a peer is lost, unless one is already. Calls on_loss. Any thread. */
void peers_lose(struct peers *peers, int rank, const char *why);

/* Starts and stops the watching thread. watch_start is collective: all processes call it. */
enum status watch_start(struct peers *peers, struct err *err);
void watch_stop(struct peers *peers);

#endif
