#include "scheduler/kv/swap.h"

#include <stdlib.h>

#include "config/config.h"

void swap_init(struct swap_space *swap, const struct swap_port *port, struct block_pool *pool,
               int max_blocks) {
    int n = port->n_host_blocks;
    *swap = (struct swap_space){.port = *port, .pool = pool, .n_host_blocks = n, .first_free = -1};
    host_cache_init(&swap->cache, pool, n, max_blocks);
    if (n == 0) return;
    swap->next = mem_calloc((size_t)n, sizeof *swap->next);
    swap->host_block = mem_calloc((size_t)max_blocks, sizeof *swap->host_block);
    swap->block = mem_calloc((size_t)max_blocks, sizeof *swap->block);
}

void swap_free(struct swap_space *swap) {
    assert(swap_used(swap) == 0 && swap->n_swapped == 0);
    host_cache_free(&swap->cache);
    free(swap->next);
    free(swap->host_block);
    free(swap->block);
}

/* ---- host blocks ---------------------------------------------------------------------------- */

bool swap_make_room(struct swap_space *swap, int n) {
    int unused = swap->n_host_blocks - swap->n_ever_used, fresh = n - swap->n_free;
    if (fresh > unused) fresh = unused;
    if (fresh > 0 && !swap->port.reserve(swap->port.self, swap->n_ever_used + fresh))
        swap->n_host_blocks = swap->n_ever_used;
    if (n > swap->n_host_blocks - swap_used(swap)) return false;
    while (n > swap->n_free + swap->n_host_blocks - swap->n_ever_used)
        swap_release(swap, host_cache_remove_oldest(&swap->cache));
    return true;
}

int32_t swap_acquire(struct swap_space *swap) {
    int32_t host_block = swap->first_free;
    if (swap->n_free == 0) {
        assert(swap->n_ever_used < swap->n_host_blocks);
        return swap->n_ever_used++;
    }
    swap->first_free = swap->next[host_block];
    swap->n_free--;
    return host_block;
}

void swap_release(struct swap_space *swap, int32_t host_block) {
    assert(host_block >= 0 && host_block < swap->n_ever_used);
    swap->next[host_block] = swap->first_free;
    swap->first_free = host_block;
    swap->n_free++;
}

/* ---- sequences ------------------------------------------------------------------------------ */

int32_t swap_out(struct swap_space *swap, const int32_t *block, int n) {
    int32_t *list = swap->host_block;
    assert(!swap->loading && n >= 0);
    if (n == 0 || !swap_make_room(swap, n)) return -1;
    for (int i = 0; i < n; i++) list[i] = swap_acquire(swap);
    for (int i = 0; i < n; i++) swap->next[list[i]] = i + 1 < n ? list[i + 1] : -1;
    swap->n_swapped++;
    swap->n_out += (uint64_t)n;
    swap->port.out(swap->port.self, block, list, n);
    return list[0];
}

void swap_in(struct swap_space *swap, int32_t first, int n, int n_held, int32_t *table) {
    int32_t host_block = first;
    assert(n > 0 && n_held >= 0);
    for (int i = 0; i < n; i++, host_block = swap->next[host_block]) {
        if (i < n_held) continue;
        swap->host_block[i - n_held] = host_block;
        table[i] = swap->block[i - n_held] = block_pool_acquire(swap->pool);
    }
    assert(host_block < 0);
    if (n > n_held) {
        host_cache_offload(swap); /* the blocks that were taken over are copied out first */
        swap->port.in(swap->port.self, swap->host_block, swap->block, n - n_held);
        swap->loading = true;
        swap->n_in += (uint64_t)(n - n_held);
    }
    swap_drop(swap, first, n);
}

void swap_drop(struct swap_space *swap, int32_t first, int n) {
    int32_t last = first;
    assert(n > 0 && swap->n_swapped > 0);
    for (int i = 1; i < n; i++) last = swap->next[last];
    assert(swap->next[last] < 0);
    swap->next[last] = swap->first_free;
    swap->first_free = first;
    swap->n_free += n;
    swap->n_swapped--;
}

void swap_arrive(struct swap_space *swap) {
    if (swap->loading) swap->port.arrive(swap->port.self);
    swap->loading = false;
}
