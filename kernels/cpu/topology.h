/* kernels/cpu/topology: the processors that a process may use and the nodes of memory that they are
 * near to; which of them its compute threads are to run on; binding threads and memory to them.
 *
 * What the system says in /sys/devices/system is taken where it makes sense. A file that is missing
 * or odd costs placement, never the start: such processors are of one node and of one speed. */
#ifndef PENSTOCK_KERNELS_CPU_TOPOLOGY_H
#define PENSTOCK_KERNELS_CPU_TOPOLOGY_H

#include <stddef.h>

#include "config/config.h"
#include "kernels/cpu/sharing.h"

enum { MAX_PROCESSORS = 1024 };

struct processor {
    int number; /* as the system counts them */
    int node;   /* in `nodes` */
    int package, core;
    int sibling; /* 0: the first hardware thread of its core that may be used, then 1.. */
    int speed;   /* of two, the faster one has the greater number; 0: not known */
};

/* Processors by node; in a node the first hardware threads of all cores stand before the second
 * ones, and fast cores before slow ones. */
struct topology {
    int n, n_nodes;
    struct processor processors[MAX_PROCESSORS];
    int nodes[MAX_NODES]; /* as the system counts them; only those with processors in the list */
};

/* Processors that this process may run on, at most `max` of them in rising order; returns how
 * many, at least 1. */
int processors_allowed(int *numbers, int max);

/* What `sys`, which is /sys/devices/system or a test's folder, says of processors numbers[n], at
 * least one. */
void topology_read(struct topology *t, const char *sys, const int *numbers, int n);

/* Where each compute thread is to run. */
struct placement {
    int n_threads, n_nodes;
    int node_of[MAX_PROCESSORS];   /* of a thread: rising from 0 */
    int processor[MAX_PROCESSORS]; /* that it is bound to; -1: to all of its node */
    struct topology topology;
};

/* Chooses for --cpu-affinity `wanted` ("nodes", "cores", or a list such as "0-7,16"; each thread of
 * a list has one of its processors, by node) and `threads`, 0: as many as `limit(cores)` says.
 * Fails with STATUS_USAGE where it cannot be done, and says why. */
enum status placement_choose(struct placement *p, const char *wanted, int threads,
                             int (*limit)(int cores), struct err *err);
/* The same for processors that were read before. */
enum status placement_of(struct placement *p, const struct topology *t, const char *wanted,
                         int threads, int (*limit)(int cores), struct err *err);

/* Binds the calling thread as `thread`. The system may refuse; then it runs where it did. */
void placement_bind(const struct placement *p, int thread);
/* Asks for whole pages of [memory, memory + bytes) on a node of the placement, wherever they are
 * now, and for later ones. The system may refuse; then the first to touch a page decides. */
void placement_move(const struct placement *p, const void *memory, size_t bytes, int node);

#endif
