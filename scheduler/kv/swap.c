#include "scheduler/kv/swap.h"

#include <stdlib.h>

#include "config/config.h"

static void swap_init_windows(struct swap_space *swap) {
    int n = swap->port.n_host_windows;
    swap->windows = (struct host_windows){.n = n};
    swap->windows.free = mem_calloc((size_t)n, sizeof *swap->windows.free);
    swap->window_of = mem_calloc((size_t)swap->n_host_blocks, sizeof *swap->window_of);
    for (int i = 0; i < swap->n_host_blocks; i++) swap->window_of[i] = -1;
}

static void init_lists(struct swap_lists *lists, int n) {
    for (int i = 0; i < 2; i++) {
        struct swap_list *list = i == 0 ? &lists->blocks : &lists->windows;
        list->host_block = mem_calloc((size_t)n, sizeof *list->host_block);
        list->block = mem_calloc((size_t)n, sizeof *list->block);
    }
}

static void free_lists(struct swap_lists *lists) {
    mem_free(lists->blocks.host_block);
    mem_free(lists->blocks.block);
    mem_free(lists->windows.host_block);
    mem_free(lists->windows.block);
}

void swap_init(struct swap_space *swap, const struct swap_port *port, struct block_pool *pool,
               int max_blocks) {
    int n = port->n_host_blocks;
    *swap = (struct swap_space){.port = *port, .pool = pool, .n_host_blocks = n, .first_free = -1};
    assert((port->n_host_windows > 0) == (n > 0 && pool->windows.n > 0));
    if (n > 0 && pool->windows.n > 0) swap_init_windows(swap);
    host_cache_init(&swap->cache, pool, n, swap->window_of, max_blocks);
    if (n == 0) return;
    int listed = max_int(max_blocks, MAX_OFFLOADED_PER_STEP);
    swap->next = mem_calloc((size_t)n, sizeof *swap->next);
    init_lists(&swap->out, listed);
    init_lists(&swap->in, listed);
}

void swap_free(struct swap_space *swap) {
    assert(swap_used(swap) == 0 && swap->n_swapped == 0 && swap_windows_used(swap) == 0);
    host_cache_free(&swap->cache);
    mem_free(swap->next);
    mem_free(swap->window_of);
    mem_free(swap->windows.free);
    free_lists(&swap->out);
    free_lists(&swap->in);
}

/* ---- host blocks ---------------------------------------------------------------------------- */

/* Reserves memory for up to `more` additional blocks from the fresh ones, of which `used` have
 * memory already. If the host lacks memory, *n shrinks to `used`. */
static void swap_reserve(struct swap_space *swap, enum block_kind kind, int *n, int used,
                         int more) {
    int fresh = min_int(more, *n - used);
    if (fresh > 0 && !swap->port.reserve(swap->port.self, kind, used + fresh)) *n = used;
}

bool swap_make_room(struct swap_space *swap, int n, int n_windows) {
    struct host_windows *windows = &swap->windows;
    swap_reserve(swap, KV_BLOCKS, &swap->n_host_blocks, swap->n_ever_used, n - swap->n_free);
    swap_reserve(swap, KV_WINDOW_BLOCKS, &windows->n, windows->n_ever_used,
                 n_windows - windows->n_free);
    if (n > swap->n_host_blocks - swap_used(swap)) return false;
    if (n_windows > windows->n - swap_windows_used(swap)) return false;
    while (n > swap->n_free + swap->n_host_blocks - swap->n_ever_used ||
           n_windows > swap_windows_unused(swap))
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

void swap_add_window(struct swap_space *swap, int32_t host_block) {
    struct host_windows *windows = &swap->windows;
    assert(swap->window_of[host_block] < 0 && swap_windows_unused(swap) > 0);
    swap->window_of[host_block] =
        windows->n_free > 0 ? windows->free[--windows->n_free] : windows->n_ever_used++;
}

static void drop_window(struct swap_space *swap, int32_t host_block) {
    if (!swap->window_of || swap->window_of[host_block] < 0) return;
    swap->windows.free[swap->windows.n_free++] = swap->window_of[host_block];
    swap->window_of[host_block] = -1;
}

void swap_release(struct swap_space *swap, int32_t host_block) {
    assert(host_block >= 0 && host_block < swap->n_ever_used);
    drop_window(swap, host_block);
    swap->next[host_block] = swap->first_free;
    swap->first_free = host_block;
    swap->n_free++;
}

/* ---- lists for the port --------------------------------------------------------------------- */

static void swap_append(struct swap_list *list, int32_t block, int32_t host_block) {
    list->block[list->n] = block;
    list->host_block[list->n++] = host_block;
}

void swap_list_add(struct swap_lists *lists, int32_t block, int32_t host_block) {
    swap_append(&lists->blocks, block, host_block);
}

void swap_list_add_window(const struct swap_space *swap, struct swap_lists *lists, int32_t window,
                          int32_t host_block) {
    assert(window >= 0 && swap->window_of[host_block] >= 0);
    swap_append(&lists->windows, window, swap->window_of[host_block]);
}

void swap_send(struct swap_space *swap) {
    struct swap_list *blocks = &swap->out.blocks, *windows = &swap->out.windows;
    if (blocks->n > 0)
        swap->port.out(swap->port.self, KV_BLOCKS, blocks->block, blocks->host_block, blocks->n);
    if (windows->n > 0)
        swap->port.out(swap->port.self, KV_WINDOW_BLOCKS, windows->block, windows->host_block,
                       windows->n);
    swap->n_out += (uint64_t)blocks->n;
    blocks->n = windows->n = 0;
}

void swap_load(struct swap_space *swap) {
    struct swap_list *blocks = &swap->in.blocks, *windows = &swap->in.windows;
    if (blocks->n > 0)
        swap->port.in(swap->port.self, KV_BLOCKS, blocks->host_block, blocks->block, blocks->n);
    if (windows->n > 0)
        swap->port.in(swap->port.self, KV_WINDOW_BLOCKS, windows->host_block, windows->block,
                      windows->n);
    swap->loading |= blocks->n > 0 || windows->n > 0;
    swap->n_in += (uint64_t)blocks->n;
    blocks->n = windows->n = 0;
}

void swap_load_window(struct swap_space *swap, int32_t block, int32_t host_block) {
    struct window_pool *windows = &swap->pool->windows;
    if (!window_pool_has(windows, block)) window_pool_attach(windows, block);
    swap_list_add_window(swap, &swap->in, windows->of[block], host_block);
}

/* ---- sequences ------------------------------------------------------------------------------ */

int32_t swap_out(struct swap_space *swap, const int32_t *block, int n, int first_seen) {
    const struct window_pool *windows = &swap->pool->windows;
    int n_windows = windows->n > 0 ? n - first_seen : 0;
    int32_t first = -1, last = -1;
    assert(!swap->loading && n >= 0 && n_windows >= 0);
    if (n == 0 || !swap_make_room(swap, n, n_windows)) return -1;
    for (int i = 0; i < n; i++) {
        int32_t host_block = swap_acquire(swap);
        swap_list_add(&swap->out, block[i], host_block);
        if (i >= n - n_windows) {
            swap_add_window(swap, host_block);
            swap_list_add_window(swap, &swap->out, windows->of[block[i]], host_block);
        }
        if (i == 0) first = host_block;
        if (i > 0) swap->next[last] = host_block;
        last = host_block;
    }
    swap->next[last] = -1;
    swap->n_swapped++;
    swap_send(swap);
    return first;
}

void swap_in(struct swap_space *swap, int32_t first, int n, int n_held, int first_seen,
             int32_t *table) {
    int32_t host_block = first;
    bool has_windows = swap->pool->windows.n > 0;
    assert(n > 0 && n_held >= 0);
    for (int i = 0; i < n; i++, host_block = swap->next[host_block]) {
        bool lacks = i >= n_held;
        if (lacks) {
            table[i] = block_pool_acquire_unseen(swap->pool);
            swap_list_add(&swap->in, table[i], host_block);
        }
        if (has_windows && i >= first_seen && !window_pool_has(&swap->pool->windows, table[i]))
            swap_load_window(swap, table[i], host_block);
    }
    assert(host_block < 0);
    host_cache_offload(swap); /* first queues the copies of the blocks that were evicted for this */
    swap_load(swap);
    swap_drop(swap, first, n);
}

void swap_drop(struct swap_space *swap, int32_t first, int n) {
    int32_t last = first;
    assert(n > 0 && swap->n_swapped > 0);
    drop_window(swap, first);
    for (int i = 1; i < n; i++) {
        last = swap->next[last];
        drop_window(swap, last);
    }
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

void swap_forget(struct swap_space *swap) {
    assert(swap_used(swap) == 0 && swap->n_swapped == 0 && !swap->loading);
    swap->cache.n_evicted = 0; /* their content is not saved */
    while (host_cache_blocks(&swap->cache) > 0)
        swap_release(swap, host_cache_remove_oldest(&swap->cache));
    assert(swap->n_free == swap->n_ever_used && swap_windows_used(swap) == 0);
    swap->n_ever_used = swap->n_free = 0;
    swap->windows.n_ever_used = swap->windows.n_free = 0;
    swap->first_free = -1;
}
