/* kernels/cpu/topology: the processors of this process and their memory nodes; the choice of
 * processors for compute threads; binding of threads and memory.
 *
 * The data in /sys/devices/system is used as far as it makes sense. A missing or odd file affects
 * placement but never prevents the start: such processors count as one node with one speed. */
#ifndef PENSTOCK_KERNELS_CPU_TOPOLOGY_H
#define PENSTOCK_KERNELS_CPU_TOPOLOGY_H

#include <stddef.h>

#include "config/config.h"
#include "kernels/cpu/sharing.h"

enum { MAX_PROCESSORS = 1024 };

struct processor {
    int number; /* the system's number */
    int node;   /* index in `nodes` */
    int package, core;
    int sibling; /* 0: the first usable hardware thread of its core, then 1.. */
    int speed;   /* a larger number is faster; 0: not known */
};

/* Processors sorted by node. Within a node, the first hardware threads of all cores precede the
 * second ones, and fast cores precede slow ones. */
struct topology {
    int n, n_nodes;
    struct processor processors[MAX_PROCESSORS];
    int nodes[MAX_NODES]; /* the system's numbers of the nodes with processors in the list */
};

/* Writes the processors that this process may use, at most `max` of them in rising order. Returns
 * their number, at least 1. */
int processors_allowed(int *numbers, int max);

/* Reads the properties of processors numbers[n], n >= 1, from `sys`: /sys/devices/system or a
 * test's folder. */
void topology_read(struct topology *t, const char *sys, const int *numbers, int n);

/* The processor of each compute thread. */
struct placement {
    int n_threads, n_nodes;
    int node_of[MAX_PROCESSORS];   /* node of each thread, rising from 0 */
    int processor[MAX_PROCESSORS]; /* processor of each thread; -1: all processors of its node */
    struct topology topology;
};

/* Chooses a placement for --cpu-affinity `wanted`: "nodes", "cores", or a list such as "0-7,16",
 * which gives each thread one of its processors. `threads` is their number; 0: limit(cores). Fails
 * with STATUS_USAGE if this is impossible. */
enum status placement_choose(struct placement *p, const char *wanted, int threads,
                             int (*limit)(int cores), struct err *err);
/* The same for processors that were read before. */
enum status placement_of(struct placement *p, const struct topology *t, const char *wanted,
                         int threads, int (*limit)(int cores), struct err *err);

/* Binds the calling thread as `thread`. If the system refuses, the thread stays unbound. */
void placement_bind(const struct placement *p, int thread);
/* Requests that the whole pages of [memory, memory + bytes) are on a node of the placement, now and
 * later. If the system refuses, the first thread that touches a page decides. */
void placement_move(const struct placement *p, const void *memory, size_t bytes, int node);

#endif
