/* swap: which host block holds what. A host block is memory of the host with room for one block of
 * the KV cache.
 *
 *     fresh    n_ever_used..n_host_blocks-1: never used, and its memory not reserved yet
 *     free     in the list that begins at first_free
 *     owned    by one swapped sequence, in a list in the order of its positions: the i-th holds
 *              positions i*B .. i*B+B-1 of those that are computed
 *     cached   holds a prefix that may be asked for again (host_cache.h), until it is needed
 *
 * A sequence owns host blocks exactly while it is swapped: one for each block that it had, also for
 * those that it shared, since the others may end before it comes back.
 *
 * Where layers with windows have blocks of their own (window_pool.h), a host block whose block had
 * a window block has a host window block, until it is given back itself: of a swapped sequence
 * those that its next row sees, of a cached prefix those that were not lost before.
 *
 * Copies are queued when host blocks change hands, and are in the order of the calls; so neither a
 * host block nor a block has to wait for a copy before it is given to another holder. Only blocks
 * that are being loaded must not be touched by steps until swap_arrive.
 *
 * All memory but the host blocks' own is taken in swap_init. Engine thread only.
 */
#ifndef PENSTOCK_SWAP_H
#define PENSTOCK_SWAP_H

#include "scheduler/kv/host_cache.h"

/* How blocks are copied: the engine_swap functions of engine.h, which say what each does. */
struct swap_port {
    void *self;
    int n_host_blocks;  /* 0: nothing is swapped, and the functions may be NULL */
    int n_host_windows; /* 0: layers with windows have no blocks of their own */
    /* `window`: of window blocks and host window blocks */
    bool (*reserve)(void *self, bool window, int n);
    void (*out)(void *self, bool window, const int32_t *block, const int32_t *host_block, int n);
    void (*in)(void *self, bool window, const int32_t *host_block, const int32_t *block, int n);
    void (*arrive)(void *self);
};

/* Blocks that are copied together, and the host blocks that they are copied to or from. */
struct swap_list {
    int32_t *host_block, *block;
    int n;
};

/* Blocks that go one way, and window blocks with their host window blocks. */
struct swap_lists {
    struct swap_list blocks, windows;
};

/* Host window blocks: window_of says whose they are. */
struct host_windows {
    int n;           /* fewer than the port's if the host has no memory for more */
    int n_ever_used; /* 0..n_ever_used-1 */
    int n_free;      /* of them */
    int32_t *free;   /* [n] stack of n_free */
};

struct swap_space {
    struct swap_port port;
    struct block_pool *pool;
    int n_host_blocks; /* fewer than the port's if the host has no memory for more */
    int n_ever_used;   /* host blocks 0..n_ever_used-1 */
    int n_free;
    int32_t first_free;
    int32_t *next;      /* [n_host_blocks] the next in its list, or -1 */
    int32_t *window_of; /* [n_host_blocks] its host window block, or -1; NULL without such */
    struct host_windows windows;
    struct swap_lists out, in; /* for the port */
    int n_swapped;             /* sequences */
    bool loading;              /* blocks are being loaded that no step may touch yet */
    uint64_t n_out, n_in;      /* blocks that were copied */
    struct host_cache cache;
};

/* `max_blocks` is how many blocks one sequence can hold. */
void swap_init(struct swap_space *swap, const struct swap_port *port, struct block_pool *pool,
               int max_blocks);
void swap_free(struct swap_space *swap);

/* Host blocks that are owned. */
static inline int swap_used(const struct swap_space *swap) {
    return swap->n_ever_used - swap->n_free - host_cache_blocks(&swap->cache);
}

/* Host window blocks that are owned, and those that could be taken without dropping cached ones. */
static inline int swap_windows_used(const struct swap_space *swap) {
    return swap->windows.n_ever_used - swap->windows.n_free - swap->cache.n_windows;
}
static inline int swap_windows_unused(const struct swap_space *swap) {
    return swap->windows.n_free + swap->windows.n - swap->windows.n_ever_used;
}

/* ---- host blocks ---------------------------------------------------------------------------- */

/* Makes n host blocks and so many host window blocks available, with their memory; cached ones are
 * dropped if needed. If the host cannot provide memory, their number shrinks for good. */
bool swap_make_room(struct swap_space *swap, int n, int n_windows);

/* Takes one of them, without a host window block, for which there is swap_add_window; gives both
 * back. */
int32_t swap_acquire(struct swap_space *swap);
void swap_add_window(struct swap_space *swap, int32_t host_block);
void swap_release(struct swap_space *swap, int32_t host_block);

/* Adds a block to what is copied next, to host_block or from there; a window block, to or from the
 * host window block of host_block. */
void swap_list_add(struct swap_lists *lists, int32_t block, int32_t host_block);
void swap_list_add_window(const struct swap_space *swap, struct swap_lists *lists, int32_t window,
                          int32_t host_block);
/* Queues the copies of all that was added to swap->out, to swap->in; they are empty afterwards. */
void swap_send(struct swap_space *swap);
void swap_load(struct swap_space *swap);

/* Of a block that its holder is to see through a window: loads its window block, which it gets if
 * it has none. */
void swap_load_window(struct swap_space *swap, int32_t block, int32_t host_block);

/* ---- sequences ------------------------------------------------------------------------------ */

/* Queues the copies of all n blocks of a sequence that is about to lose them, and of their window
 * blocks from first_seen on. Returns the first of the list of host blocks that the sequence now
 * owns; -1 if there is no room. */
int32_t swap_out(struct swap_space *swap, const int32_t *block, int n, int first_seen);

/* Loads what a sequence has in its list of n host blocks, of which the first n_held are in
 * table[0..n_held) already, into new blocks table[n_held..n), and what is seen through windows,
 * from first_seen on, also for held blocks that have no window block; the list is free
 * afterwards. */
void swap_in(struct swap_space *swap, int32_t first, int n, int n_held, int first_seen,
             int32_t *table);

/* Releases a sequence's list of n host blocks. */
void swap_drop(struct swap_space *swap, int32_t first, int n);

/* Steps from now on find what is being loaded. */
void swap_arrive(struct swap_space *swap);

#endif
