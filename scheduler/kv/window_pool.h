/* window_pool: the memory of layers that see only the last positions, their window.
 *
 * Such a layer needs a block's keys and values only while some row can still see them. So the
 * block pool's blocks stand for positions, and for these layers a block has a window block, of
 * which there are fewer:
 *
 *     table         [b0][b1][b2][b3][b4][b5]       every layer's positions
 *     first_seen                 ^                 the next row sees nothing before it in a window
 *     window blocks  -   -   w2  w3  w4  w5        w2 is idle: who asks for b0..b2 may use it
 *
 * A block that is acquired gets a window block and is watched by its holder, until the window of
 * that one has passed it (first_seen moves on) or it gives the block up. A window block that nobody
 * watches is idle while its block is known to the prefix cache, and free otherwise. Idle ones are
 * taken where none is free, the oldest first; their blocks stay known, and prefixes that need them
 * are computed again. Whoever shares a block shares its window block, so forks, copies and prefix
 * hits need nothing else.
 *
 * All memory is taken in window_pool_init. Engine thread only.
 */
#ifndef PENSTOCK_WINDOW_POOL_H
#define PENSTOCK_WINDOW_POOL_H

#include <assert.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct window_link {
    int32_t prev, next; /* in the list of idle ones by age; its head is link[n] */
};

struct window_pool {
    int n;      /* window blocks; 0: all layers keep all positions, and nothing here is used */
    int window; /* positions that a row sees, its own included */
    int most;   /* blocks in which these lie, at most */
    int block_size;
    int n_free, n_idle;
    int32_t *free;            /* [n] stack of n_free */
    int32_t *owner;           /* [n] the block that has it, or -1 */
    struct window_link *link; /* [n + 1] */
    int32_t *of;              /* [n_blocks] a block's window block, or -1 */
    int32_t *watchers;        /* [n_blocks] holders of a block whose window it is in */
};

/* With n 0 the other arguments do not matter. */
void window_pool_init(struct window_pool *pool, int n, int window, int n_blocks, int block_size);
void window_pool_free(struct window_pool *pool);

/* Window blocks that could be taken now; where layers have none, more than anybody asks for. */
static inline int window_pool_available(const struct window_pool *pool) {
    return pool->n > 0 ? pool->n_free + pool->n_idle : INT_MAX / 2;
}

/* The first block that the row of position n sees. */
static inline int window_pool_first_seen(const struct window_pool *pool, int n) {
    return pool->n > 0 && n >= pool->window ? (n - pool->window + 1) / pool->block_size : 0;
}

/* Has the block got a window block? Where layers have none, it needs none. */
static inline bool window_pool_has(const struct window_pool *pool, int32_t block) {
    return pool->n == 0 || pool->of[block] >= 0;
}

/* How many of the first n blocks of a sequence can be used: the most behind which a row finds the
 * window blocks of all that it sees. Those of the first n_own count as found. */
int window_pool_usable(const struct window_pool *pool, const int32_t *block, int n, int n_own);

/* Gives a block that has none a window block, and its first watcher. There is one available. */
void window_pool_attach(struct window_pool *pool, int32_t block);

/* One watcher more of a block that has a window block. */
void window_pool_watch(struct window_pool *pool, int32_t block);

/* One watcher less. Without any, the window block of a block that is known stays idle. */
void window_pool_unwatch(struct window_pool *pool, int32_t block, bool known);

/* A block that nobody watches loses its window block, if it has one. */
void window_pool_detach(struct window_pool *pool, int32_t block);

/* The holder of `block`, its only watcher, goes over to `other`, which has the same content, and
 * which gets the window block if it has none. */
void window_pool_move(struct window_pool *pool, int32_t block, int32_t other);

#endif
