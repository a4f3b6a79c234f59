#include "scheduler/kv/block_pool.h"

#include <assert.h>
#include <stdlib.h>

#include "config/config.h"

void block_pool_init(struct block_pool *pool, int n_blocks, int block_size, bool caching) {
    *pool = (struct block_pool){
        .n_blocks = n_blocks, .block_size = block_size, .n_free = n_blocks, .caching = caching};
    prefix_cache_init(&pool->known, n_blocks, block_size);
    pool->free = mem_calloc((size_t)n_blocks, sizeof *pool->free);
    pool->block = mem_calloc((size_t)n_blocks + 1, sizeof *pool->block);
    for (int32_t b = 0; b < n_blocks; b++) pool->free[b] = n_blocks - 1 - b;
    pool->block[n_blocks].prev = pool->block[n_blocks].next = n_blocks;
}

void block_pool_free(struct block_pool *pool) {
    prefix_cache_free(&pool->known);
    window_pool_free(&pool->windows);
    mem_free(pool->free);
    mem_free(pool->block);
}

void block_pool_observe(struct block_pool *pool, const struct block_observer *observer) {
    assert(pool->n_observers < MAX_BLOCK_OBSERVERS && pool->known.n_known == 0);
    assert(observer->on_known || observer->on_evict);
    pool->observer[pool->n_observers++] = *observer;
}

static struct block_parts parts_of(const struct block_pool *pool, int32_t block) {
    assert(prefix_cache_knows(&pool->known, block));
    return (struct block_parts){block, pool->windows.n > 0 ? pool->windows.of[block] : -1};
}

static void tell_known(const struct block_pool *pool, int32_t block) {
    const struct block_parts parts = parts_of(pool, block);
    for (int i = 0; i < pool->n_observers; i++) {
        const struct block_observer *observer = &pool->observer[i];
        if (observer->on_known) observer->on_known(observer->arg, &parts);
    }
}

static void tell_evict(const struct block_pool *pool, int32_t block) {
    const struct block_parts parts = parts_of(pool, block);
    for (int i = 0; i < pool->n_observers; i++) {
        const struct block_observer *observer = &pool->observer[i];
        if (observer->on_evict) observer->on_evict(observer->arg, &parts);
    }
}

static void cached_push(struct block_pool *pool, int32_t block) {
    struct block *head = &pool->block[pool->n_blocks];
    pool->block[block].prev = head->prev;
    pool->block[block].next = pool->n_blocks;
    pool->block[head->prev].next = block;
    head->prev = block;
    pool->n_cached++;
}

static void cached_remove(struct block_pool *pool, int32_t block) {
    struct block *gone = &pool->block[block];
    assert(pool->n_cached > 0 && pool->block[gone->prev].next == block);
    pool->block[gone->prev].next = gone->next;
    pool->block[gone->next].prev = gone->prev;
    pool->n_cached--;
}

static int32_t evict_oldest(struct block_pool *pool) {
    int32_t block = pool->block[pool->n_blocks].next;
    assert(pool->n_cached > 0 && block < pool->n_blocks);
    tell_evict(pool, block);
    cached_remove(pool, block);
    prefix_cache_remove(&pool->known, block);
    window_pool_detach(&pool->windows, block);
    return block;
}

int32_t block_pool_acquire_unseen(struct block_pool *pool) {
    assert(block_pool_available(pool) > 0);
    int32_t block;
    if (pool->n_free > 0)
        block = pool->free[--pool->n_free];
    else
        block = evict_oldest(pool);
    assert(pool->block[block].references == 0 && !prefix_cache_knows(&pool->known, block));
    pool->block[block].references = 1;
    return block;
}

int32_t block_pool_acquire(struct block_pool *pool) {
    int32_t block = block_pool_acquire_unseen(pool);
    window_pool_attach(&pool->windows, block);
    return block;
}

void block_pool_share(struct block_pool *pool, int32_t block) {
    if (pool->block[block].references == 0) {
        assert(prefix_cache_knows(&pool->known, block));
        cached_remove(pool, block);
    }
    pool->block[block].references++;
}

void block_pool_release(struct block_pool *pool, int32_t block) {
    assert(pool->block[block].references > 0);
    if (--pool->block[block].references > 0) return;
    if (prefix_cache_knows(&pool->known, block)) {
        cached_push(pool, block);
    } else {
        pool->free[pool->n_free++] = block;
    }
    assert(block_pool_available(pool) <= pool->n_blocks);
}

int32_t block_pool_register(struct block_pool *pool, int32_t block, const struct block_key *key) {
    assert(pool->caching && pool->block[block].references > 0);
    int32_t known = prefix_cache_find(&pool->known, key);
    if (known < 0) {
        prefix_cache_add(&pool->known, block, key, 0);
        tell_known(pool, block);
        return block;
    }
    assert(known != block);
    block_pool_share(pool, known);
    window_pool_move(&pool->windows, block, known);
    block_pool_release(pool, block);
    return known;
}

void block_pool_restore(struct block_pool *pool, int32_t block, const struct block_key *key,
                        uint64_t id) {
    assert(pool->caching && pool->block[block].references > 0 && id > 0);
    assert(prefix_cache_find(&pool->known, key) < 0);
    prefix_cache_add(&pool->known, block, key, id);
    tell_known(pool, block);
}

void block_pool_forget(struct block_pool *pool) {
    assert(block_pool_available(pool) == pool->n_blocks);
    while (pool->n_cached > 0) {
        int32_t block = evict_oldest(pool);
        pool->free[pool->n_free++] = block;
    }
    assert(pool->n_free == pool->n_blocks && pool->known.n_known == 0);
}
