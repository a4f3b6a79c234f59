#include "scheduler/kv/state_pool.h"

#include "config/config.h"

void state_pool_init(struct state_pool *pool, int n) {
    assert(n >= 0);
    *pool = (struct state_pool){.n = n, .n_free = n};
    if (n == 0) return;
    pool->free = mem_calloc((size_t)n, sizeof *pool->free);
    pool->references = mem_calloc((size_t)n, sizeof *pool->references);
    for (int i = 0; i < n; i++) pool->free[i] = n - 1 - i;
}

void state_pool_free(struct state_pool *pool) {
    mem_free(pool->free);
    mem_free(pool->references);
}

int32_t state_pool_acquire(struct state_pool *pool) {
    assert(pool->n_free > 0);
    int32_t state = pool->free[--pool->n_free];
    assert(pool->references[state] == 0);
    pool->references[state] = 1;
    return state;
}

void state_pool_share(struct state_pool *pool, int32_t state) {
    assert(state >= 0 && state < pool->n && pool->references[state] > 0);
    pool->references[state]++;
}

void state_pool_release(struct state_pool *pool, int32_t state) {
    assert(state >= 0 && state < pool->n && pool->references[state] > 0);
    if (--pool->references[state] == 0) pool->free[pool->n_free++] = state;
    assert(pool->n_free <= pool->n);
}
