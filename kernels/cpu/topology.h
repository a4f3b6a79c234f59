/* kernels/cpu/topology: finds the processors of this process and their memory nodes, chooses a
 * processor for each compute thread, and binds threads and memory.
 *
 * The data is from /sys/devices/system. If a file is missing or makes no sense, the process still
 * starts: all processors then count as one node with one speed. */
#ifndef PENSTOCK_KERNELS_CPU_TOPOLOGY_H
#define PENSTOCK_KERNELS_CPU_TOPOLOGY_H

#include <stddef.h>

#include "config/config.h"
#include "kernels/cpu/sharing.h"
#include "kernels/profile.h"

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

/* Counts what topology_read has read. */
struct cpu_counts topology_counts(const struct topology *t);

/* The processor of each compute thread. */
struct placement {
    int n_threads, n_nodes;
    int node_of[MAX_PROCESSORS];   /* node of each thread, rising from 0 */
    int processor[MAX_PROCESSORS]; /* processor of each thread; -1: all processors of its node */
    struct topology topology;
};

/* Chooses a placement for --cpu-affinity `wanted`: "nodes", "cores", or a list of processors such
 * as "0-7,16", one for each thread. `threads` is the number of threads; 0: limit(number of cores).
 * Fails with STATUS_USAGE if this is impossible. */
enum status placement_choose(struct placement *p, const char *wanted, int threads,
                             int (*limit)(int cores), struct err *err);
/* Like placement_choose, for processors that topology_read has read. */
enum status placement_of(struct placement *p, const struct topology *t, const char *wanted,
                         int threads, int (*limit)(int cores), struct err *err);

/* Binds the calling thread to the processor of thread number `thread`. If the system refuses, the
 * thread stays unbound. */
void placement_bind(const struct placement *p, int thread);
/* Asks the system to keep the whole pages of [memory, memory + bytes) on a node of the placement.
 * If it refuses, each page is on the node of the first thread that touches it. */
void placement_move(const struct placement *p, const void *memory, size_t bytes, int node);

#endif
