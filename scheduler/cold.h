/* cold: what the prefix cache forgets, kept in the host's memory while there is room.
 *
 * Where there is swap space, slots that no swapped sequence wants hold blocks that the pool has
 * given to somebody else. They are found like known blocks, by the same keys and ids, behind those
 * that the pool still has; so a prompt's blocks are looked for first there and then here. What is
 * found comes back into blocks of its own and is known to the pool again; its slot is free then.
 *
 *     known to the pool --taken from it--> kept --found by a sequence--> known to the pool
 *                                           |
 *                                           +--oldest, and a slot is wanted--> forgotten
 *
 * Engine thread only. All memory but the slots' own is taken in cold_init.
 */
#ifndef PENSTOCK_COLD_H
#define PENSTOCK_COLD_H

#include "scheduler/block_pool.h"
#include "scheduler/sequence.h"

/* Blocks that are kept at once, at most: more would hold up the step behind. */
#define MOST_KEPT 64

/* A block that the pool has just forgotten; its tokens and what it holds are still there. */
struct forgotten {
    int32_t block;
    struct known_block what;
};

struct cold_link {
    int32_t prev, next; /* in the list by when they were kept; n_slots is its head */
};

struct cold_cache {
    bool on;
    struct prefix_cache known;   /* of slots */
    int n_slots;                 /* that there were at first */
    struct cold_link *link;      /* [n_slots + 1] */
    struct forgotten *forgotten; /* [n_blocks] since the last cold_keep */
    int n_forgotten;
    int32_t *slot; /* [stride] what a sequence has found, in order */
    uint64_t *id;  /* [stride] what it is known as */
    int n_found;
};

/* Slots that hold something. */
static inline int cold_kept(const struct cold_cache *cold) {
    return cold->on ? cold->known.n_known : 0;
}

struct scheduler;

/* `stride` is the blocks that one sequence can come to hold. Stays off without slots or without
 * prefix caching. */
void cold_init(struct scheduler *s, int stride);
void cold_free(struct scheduler *s);

/* Keeps what the pool has forgotten since the last call: queues the copies. Due before anything
 * else is written to those blocks. */
void cold_keep(struct scheduler *s);

/* How many of a sequence's blocks, at most n from the `from`-th on, are kept, behind one that is
 * known by this id. */
int cold_match(const struct cold_cache *cold, const struct sequence *sequence, int from, int n,
               uint64_t parent);

/* Takes those n slots out, for the sequence that has just got all blocks before them; and, once
 * blocks can be taken, brings what they hold into its next blocks. */
void cold_take(struct scheduler *s, struct sequence *sequence, int n);
void cold_bring(struct scheduler *s, struct sequence *sequence);

/* Forgets the oldest, whose slot is free then. There is one. */
void cold_drop_oldest(struct scheduler *s);

#endif
