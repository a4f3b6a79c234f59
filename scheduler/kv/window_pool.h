/* window_pool: the memory of layers that see only the last positions, their window.
 *
 * Such a layer needs the keys and values of a block only while some row can still see them. The
 * blocks of the block pool represent positions. For these layers, a block also has a window block,
 * and there are fewer window blocks than blocks:
 *
 *     table         [b0][b1][b2][b3][b4][b5]       the positions of every layer
 *     first_seen                 ^                 the windows of the next row begin in this block
 *     window blocks  -   -   w2  w3  w4  w5        w2 is idle: it may be reused for another block
 *
 * A block that is acquired gets a window block, and its holder watches it. The holder stops
 * watching when its window has passed the block (first_seen advances) or when it releases the
 * block. A window block without watchers is idle while its block is known to the prefix cache, and
 * free otherwise. If none is free, the oldest idle one is reused. Its block stays known, and
 * prefixes that need the window block are recomputed. Sequences that share a block share its window
 * block, so forks, copies and prefix hits need no extra work.
 *
 * window_pool_init allocates all memory. Engine thread only.
 */
#ifndef PENSTOCK_WINDOW_POOL_H
#define PENSTOCK_WINDOW_POOL_H

#include <assert.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct window_link {
    int32_t prev, next; /* in the list of idle ones by age; the head is link[n] */
};

/* Called on the engine thread about window blocks of blocks. They must not change the pool. */
struct window_observer {
    /* The block got the window block of an equal block, with its content. */
    void (*on_gain)(void *arg, int32_t block);
    /* The block is about to lose its window block, which is idle. */
    void (*on_lose)(void *arg, int32_t block);
    void *arg;
};

struct window_pool {
    int n;      /* window blocks; 0: all layers keep all positions, and the rest is unused */
    int window; /* positions that a row sees, including its own */
    int most;   /* maximum number of blocks that contain these positions */
    int block_size;
    int n_free, n_idle;
    int32_t *free;                   /* [n] stack of n_free */
    int32_t *owner;                  /* [n] the block of each window block, or -1 */
    struct window_link *link;        /* [n + 1] */
    int32_t *of;                     /* [n_blocks] a block's window block, or -1 */
    int32_t *watchers;               /* [n_blocks] holders whose window includes the block */
    struct window_observer observer; /* all NULL: none */
};

/* Allocates n window blocks for a pool of n_blocks; frees them. If n is 0, the other arguments are
 * ignored. */
void window_pool_init(struct window_pool *pool, int n, int window, int n_blocks, int block_size);
void window_pool_free(struct window_pool *pool);

/* Returns the number of window blocks that can be acquired now; without window blocks, more than
 * any caller needs. */
static inline int window_pool_available(const struct window_pool *pool) {
    return pool->n > 0 ? pool->n_free + pool->n_idle : INT_MAX / 2;
}

/* Returns the first block that the row of position n sees through a window. */
static inline int window_first_seen(int window, int block_size, int n) {
    return n >= window ? (n - window + 1) / block_size : 0;
}

static inline int window_pool_first_seen(const struct window_pool *pool, int n) {
    return pool->n > 0 ? window_first_seen(pool->window, pool->block_size, n) : 0;
}

/* Does the block have a window block? Always true for an empty pool: the model has no windows. */
static inline bool window_pool_has(const struct window_pool *pool, int32_t block) {
    return pool->n == 0 || pool->of[block] >= 0;
}

/* Returns how many of the first n blocks of a sequence can be used: the largest number after which
 * a row finds the window blocks of all that it sees. Those of the first n_own count as found. */
int window_pool_usable(const struct window_pool *pool, const int32_t *block, int n, int n_own);

/* Adds the observer. The pool must have window blocks and no observer. */
void window_pool_observe(struct window_pool *pool, const struct window_observer *observer);

/* Assigns a window block to a block without one, with one watcher. A window block must be
 * available. */
void window_pool_attach(struct window_pool *pool, int32_t block);

/* Adds a watcher to a block with a window block. */
void window_pool_watch(struct window_pool *pool, int32_t block);

/* Removes a watcher. After the last one, the window block stays idle if the block is known, else it
 * is freed. */
void window_pool_unwatch(struct window_pool *pool, int32_t block, bool known);

/* Frees the window block, if any, of a block without watchers. */
void window_pool_detach(struct window_pool *pool, int32_t block);

/* The holder of `block`, its only watcher, moves to `other`, which has the same content. `other`
 * gets the window block if it lacks one. */
void window_pool_move(struct window_pool *pool, int32_t block, int32_t other);

#endif
