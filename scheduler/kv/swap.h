/* swap: the states and owners of the host blocks. A host block is memory of the host with room for
 * one block of the KV cache.
 *
 *     fresh    n_ever_used..n_host_blocks-1: never used, memory not reserved yet
 *     free     in the list that begins at first_free
 *     owned    by one swapped sequence, in a list in the order of its positions: the i-th holds
 *              positions i*B .. i*B+B-1 of the computed ones
 *     cached   holds a prefix that may be requested again (host_cache.h), until it is needed
 *
 * A sequence owns host blocks exactly while it is swapped: one for each block of its table. This
 * includes shared blocks, since the other holders may end before the sequence returns.
 *
 * If layers with windows have separate blocks (window_pool.h), a host block whose block had a
 * window block has a host window block until the host block is released. For a swapped sequence
 * these are the window blocks that its next row sees; for a cached prefix, those that were not lost
 * earlier.
 *
 * Copies are queued when host blocks change owners and run in the order of the calls. So neither a
 * host block nor a block waits for a copy before it is reused. The only exception: steps must not
 * touch blocks that are being loaded until swap_arrive.
 *
 * swap_init allocates all memory except the host blocks. Engine thread only.
 */
#ifndef PENSTOCK_SWAP_H
#define PENSTOCK_SWAP_H

#include "scheduler/kv/host_cache.h"

/* The functions that copy blocks: the engine_swap functions of engine.h, which describes each. */
struct swap_port {
    void *self;
    int n_host_blocks;  /* 0: nothing is swapped, and the functions may be NULL */
    int n_host_windows; /* 0: layers with windows have no separate blocks */
    /* of one kind: blocks and host blocks, or window blocks and host window blocks */
    bool (*reserve)(void *self, enum block_kind kind, int n);
    void (*out)(void *self, enum block_kind kind, const int32_t *block, const int32_t *host_block,
                int n);
    void (*in)(void *self, enum block_kind kind, const int32_t *host_block, const int32_t *block,
               int n);
    void (*arrive)(void *self);
};

/* Blocks that are copied together, and the host blocks that are their targets or sources. */
struct swap_list {
    int32_t *host_block, *block;
    int n;
};

/* Blocks to copy in one direction, and window blocks with their host window blocks. */
struct swap_lists {
    struct swap_list blocks, windows;
};

/* Host window blocks. window_of stores their owners. */
struct host_windows {
    int n;           /* smaller than the port's if the host lacks memory */
    int n_ever_used; /* 0..n_ever_used-1 */
    int n_free;      /* free ones among the ever used */
    int32_t *free;   /* [n] stack of n_free */
};

struct swap_space {
    struct swap_port port;
    struct block_pool *pool;
    int n_host_blocks; /* smaller than the port's if the host lacks memory */
    int n_ever_used;   /* host blocks 0..n_ever_used-1 */
    int n_free;
    int32_t first_free;
    int32_t *next; /* [n_host_blocks] next in its list, or -1 */
    /* [n_host_blocks] its host window block, or -1; NULL without host window blocks */
    int32_t *window_of;
    struct host_windows windows;
    struct swap_lists out, in; /* filled, then sent through the port */
    int n_swapped;             /* number of swapped sequences */
    bool loading;              /* some blocks are being loaded; no step may touch them yet */
    uint64_t n_out, n_in;      /* numbers of copied blocks */
    struct host_cache cache;
};

/* Allocates the lists of swap space and its host cache; frees them. `max_blocks` is the maximum
 * number of blocks of one sequence. */
void swap_init(struct swap_space *swap, const struct swap_port *port, struct block_pool *pool,
               int max_blocks);
void swap_free(struct swap_space *swap);

/* Returns the number of owned host blocks. */
static inline int swap_used(const struct swap_space *swap) {
    return swap->n_ever_used - swap->n_free - host_cache_blocks(&swap->cache);
}

/* Host window blocks that are owned, and those that can be acquired without dropping cached
 * blocks. */
static inline int swap_windows_used(const struct swap_space *swap) {
    return swap->windows.n_ever_used - swap->windows.n_free - swap->cache.n_windows;
}
static inline int swap_windows_unused(const struct swap_space *swap) {
    return swap->windows.n_free + swap->windows.n - swap->windows.n_ever_used;
}

/* ---- host blocks ---------------------------------------------------------------------------- */

/* Makes n host blocks and n_windows host window blocks available, with their memory. Drops cached
 * ones if needed. Returns false if there is not enough room. If the host cannot provide memory, the
 * number of blocks shrinks permanently. */
bool swap_make_room(struct swap_space *swap, int n, int n_windows);

/* Acquire and release a host block. An acquired one has no host window block until swap_add_window;
 * release also frees the host window block. */
int32_t swap_acquire(struct swap_space *swap);
void swap_add_window(struct swap_space *swap, int32_t host_block);
void swap_release(struct swap_space *swap, int32_t host_block);

/* Add a block to a list of copies, to or from host_block; or a window block, to or from the host
 * window block of host_block. */
void swap_list_add(struct swap_lists *lists, int32_t block, int32_t host_block);
void swap_list_add_window(const struct swap_space *swap, struct swap_lists *lists, int32_t window,
                          int32_t host_block);
/* Queue the copies in swap->out (send) or swap->in (load), and empty the lists. */
void swap_send(struct swap_space *swap);
void swap_load(struct swap_space *swap);

/* Lists the load of a block's window block, which is attached first if the block lacks one. For a
 * block that its holder will see through a window. */
void swap_load_window(struct swap_space *swap, int32_t block, int32_t host_block);

/* ---- sequences ------------------------------------------------------------------------------ */

/* Queues the copies of all n blocks of a sequence that is about to lose them, and of their window
 * blocks from first_seen on. Returns the first of the list of host blocks that the sequence now
 * owns, or -1 if there is no room. */
int32_t swap_out(struct swap_space *swap, const int32_t *block, int n, int first_seen);

/* Loads a sequence from its list of n host blocks. The first n_held are already in
 * table[0..n_held); the others are loaded into new blocks, table[n_held..n). Window blocks are
 * loaded from first_seen on, also for held blocks that lack one. Afterwards the list is free. */
void swap_in(struct swap_space *swap, int32_t first, int n, int n_held, int first_seen,
             int32_t *table);

/* Releases the list of n host blocks of a sequence. */
void swap_drop(struct swap_space *swap, int32_t first, int n);

/* Drops all cached host blocks: the engine is about to free the memory of all host blocks, which is
 * reserved again when they are used. A sequence must not be swapped. */
void swap_forget(struct swap_space *swap);

/* Makes the steps that are submitted from now on wait for the queued loads. */
void swap_arrive(struct swap_space *swap);

#endif
