#include "scheduler/kv/window_pool.h"

#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

void window_pool_init(struct window_pool *pool, int n, int window, int n_blocks, int block_size) {
    *pool = (struct window_pool){.n = n, .most = INT_MAX, .block_size = block_size};
    if (n == 0) return;
    assert(n > 0 && window > 0 && n_blocks > 0 && block_size > 0);
    pool->window = window;
    pool->most = window_blocks_seen(window, block_size);
    assert(n >= pool->most || n >= n_blocks);
    pool->n_free = n;
    pool->free = mem_calloc((size_t)n, sizeof *pool->free);
    pool->owner = mem_calloc((size_t)n, sizeof *pool->owner);
    pool->link = mem_calloc((size_t)n + 1, sizeof *pool->link);
    pool->of = mem_calloc((size_t)n_blocks, sizeof *pool->of);
    pool->watchers = mem_calloc((size_t)n_blocks, sizeof *pool->watchers);
    for (int32_t w = 0; w < n; w++) pool->free[w] = n - 1 - w;
    memset(pool->owner, 0xff, (size_t)n * sizeof *pool->owner);
    memset(pool->of, 0xff, (size_t)n_blocks * sizeof *pool->of);
    pool->link[n] = (struct window_link){n, n};
}

void window_pool_free(struct window_pool *pool) {
    mem_free(pool->free);
    mem_free(pool->owner);
    mem_free(pool->link);
    mem_free(pool->of);
    mem_free(pool->watchers);
}

void window_pool_observe(struct window_pool *pool, const struct window_observer *observer) {
    assert(pool->n > 0 && !pool->observer.on_gain && !pool->observer.on_lose);
    assert(observer->on_gain && observer->on_lose);
    pool->observer = *observer;
}

int window_pool_usable(const struct window_pool *pool, const int32_t *block, int n, int n_own) {
    int usable = 0, lacking = -1; /* the last block without a window block */
    for (int i = 0; i < n; i++) {
        if (i >= n_own && !window_pool_has(pool, block[i])) lacking = i;
        if (lacking < window_pool_first_seen(pool, (i + 1) * pool->block_size)) usable = i + 1;
    }
    return usable;
}

static void idle_push(struct window_pool *pool, int32_t w) {
    int32_t last = pool->link[pool->n].prev;
    pool->link[w] = (struct window_link){last, pool->n};
    pool->link[last].next = pool->link[pool->n].prev = w;
    pool->n_idle++;
}

static void idle_remove(struct window_pool *pool, int32_t w) {
    struct window_link gone = pool->link[w];
    assert(pool->n_idle > 0 && pool->link[gone.prev].next == w);
    pool->link[gone.prev].next = gone.next;
    pool->link[gone.next].prev = gone.prev;
    pool->n_idle--;
}

void window_pool_detach(struct window_pool *pool, int32_t block) {
    if (pool->n == 0 || pool->of[block] < 0) return;
    int32_t w = pool->of[block];
    assert(pool->watchers[block] == 0 && pool->owner[w] == block);
    if (pool->observer.on_lose) pool->observer.on_lose(pool->observer.arg, block);
    idle_remove(pool, w);
    pool->of[block] = pool->owner[w] = -1;
    pool->free[pool->n_free++] = w;
}

void window_pool_attach(struct window_pool *pool, int32_t block) {
    if (pool->n == 0) return;
    assert(pool->of[block] < 0 && pool->watchers[block] == 0);
    if (pool->n_free == 0) window_pool_detach(pool, pool->owner[pool->link[pool->n].next]);
    int32_t w = pool->free[--pool->n_free];
    assert(pool->owner[w] < 0);
    pool->owner[w] = block;
    pool->of[block] = w;
    pool->watchers[block] = 1;
}

void window_pool_watch(struct window_pool *pool, int32_t block) {
    if (pool->n == 0) return;
    assert(pool->of[block] >= 0);
    if (pool->watchers[block]++ == 0) idle_remove(pool, pool->of[block]);
}

void window_pool_unwatch(struct window_pool *pool, int32_t block, bool known) {
    if (pool->n == 0) return;
    assert(pool->of[block] >= 0 && pool->watchers[block] > 0);
    if (--pool->watchers[block] > 0) return;
    idle_push(pool, pool->of[block]);
    if (!known) window_pool_detach(pool, block);
}

void window_pool_move(struct window_pool *pool, int32_t block, int32_t other) {
    if (pool->n == 0) return;
    assert(pool->watchers[block] == 1);
    if (pool->of[other] >= 0) {
        window_pool_watch(pool, other);
        window_pool_unwatch(pool, block, false);
        return;
    }
    int32_t w = pool->of[block];
    assert(pool->watchers[other] == 0);
    pool->watchers[block] = 0;
    pool->watchers[other] = 1;
    pool->of[block] = -1;
    pool->of[other] = w;
    pool->owner[w] = other;
    if (pool->observer.on_gain) pool->observer.on_gain(pool->observer.arg, other);
}
