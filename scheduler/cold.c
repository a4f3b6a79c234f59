#include "scheduler/cold.h"

#include <stdlib.h>

#include "scheduler/internal.h"

static void note_forgotten(void *arg, int32_t block) {
    struct scheduler *s = arg;
    struct cold_cache *cold = &s->swap.cold;
    assert(cold->n_forgotten < s->pool.n_blocks);
    cold->forgotten[cold->n_forgotten++] =
        (struct forgotten){.block = block, .what = s->pool.known.block[block]};
}

void cold_init(struct scheduler *s, int stride) {
    struct cold_cache *cold = &s->swap.cold;
    int n = s->swap.n_slots;
    *cold = (struct cold_cache){.on = n > 0 && s->pool.caching, .n_slots = n};
    if (!cold->on) return;
    prefix_cache_init(&cold->known, n, s->pool.block_size);
    cold->link = mem_calloc((size_t)n + 1, sizeof *cold->link);
    cold->link[n] = (struct cold_link){n, n};
    cold->forgotten = mem_calloc((size_t)s->pool.n_blocks, sizeof *cold->forgotten);
    cold->slot = mem_calloc((size_t)stride, sizeof *cold->slot);
    cold->id = mem_calloc((size_t)stride, sizeof *cold->id);
    s->pool.on_forget = note_forgotten;
    s->pool.arg = s;
}

void cold_free(struct scheduler *s) {
    struct cold_cache *cold = &s->swap.cold;
    if (cold->on) prefix_cache_free(&cold->known);
    free(cold->link);
    free(cold->forgotten);
    free(cold->slot);
    free(cold->id);
}

/* ---- the list by age ------------------------------------------------------------------------ */

static void link_newest(struct cold_cache *cold, int32_t slot) {
    int32_t head = cold->n_slots, last = cold->link[head].prev;
    cold->link[slot] = (struct cold_link){last, head};
    cold->link[last].next = cold->link[head].prev = slot;
}

static void unlink_slot(struct cold_cache *cold, int32_t slot) {
    struct cold_link gone = cold->link[slot];
    assert(cold->link[gone.prev].next == slot && cold->link[gone.next].prev == slot);
    cold->link[gone.prev].next = gone.next;
    cold->link[gone.next].prev = gone.prev;
}

void cold_drop_oldest(struct scheduler *s) {
    struct cold_cache *cold = &s->swap.cold;
    int32_t slot = cold->link[cold->n_slots].next;
    assert(slot < cold->n_slots);
    unlink_slot(cold, slot);
    prefix_cache_remove(&cold->known, slot);
    swap_give_slot(&s->swap, slot);
}

/* ---- out ------------------------------------------------------------------------------------ */

/* Gives a forgotten block a slot, or finds that what it holds is kept already: then -1. */
static int32_t keep(struct scheduler *s, const struct forgotten *forgotten) {
    struct cold_cache *cold = &s->swap.cold;
    const struct known_block *what = &forgotten->what;
    const int32_t *tokens = prefix_cache_tokens(&s->pool.known, forgotten->block);
    struct block_key key = {what->hash, what->salt, tokens, what->parent};
    int32_t slot = prefix_cache_find(&cold->known, &key);
    bool found = slot >= 0;
    if (found) {
        unlink_slot(cold, slot);
    } else {
        slot = swap_take_slot(&s->swap);
        prefix_cache_add(&cold->known, slot, &key, what->id);
    }
    link_newest(cold, slot);
    return found ? -1 : slot;
}

/* Of many the last ones are kept: what stands before others in a prompt is forgotten after them. */
void cold_keep(struct scheduler *s) {
    struct cold_cache *cold = &s->swap.cold;
    int32_t slot[MOST_KEPT], block[MOST_KEPT];
    int n = 0, all = cold->n_forgotten, most = all < MOST_KEPT ? all : MOST_KEPT;
    int room = s->swap.n_slots - swap_used(&s->swap);
    if (most > room) most = room;
    cold->n_forgotten = 0;
    if (most == 0 || !swap_has_room(s, most)) return;
    for (const struct forgotten *f = cold->forgotten + all - most; most > 0; f++, most--) {
        block[n] = f->block;
        slot[n] = keep(s, f);
        n += slot[n] >= 0;
    }
    if (n > 0) s->port.swap_out(s->port.self, block, slot, n);
    s->stats.swapped_out += (uint64_t)n;
}

/* ---- in ------------------------------------------------------------------------------------- */

int cold_match(const struct cold_cache *cold, const struct sequence *sequence, int from, int n,
               uint64_t parent) {
    if (!cold->on || n <= 0) return 0;
    return prefix_cache_match(&cold->known, sequence_key(sequence, from, parent),
                              sequence->hashes + from, n, NULL);
}

void cold_take(struct scheduler *s, struct sequence *sequence, int n) {
    struct cold_cache *cold = &s->swap.cold;
    int from = sequence->n_blocks;
    int32_t before = from > 0 ? sequence->table[from - 1] : -1;
    struct block_key key = sequence_key(sequence, from, prefix_cache_id(&s->pool.known, before));
    cold->n_found = prefix_cache_match(&cold->known, key, sequence->hashes + from, n, cold->slot);
    assert(cold->n_found == n && n > 0);
    for (int i = 0; i < n; i++) {
        cold->id[i] = prefix_cache_id(&cold->known, cold->slot[i]);
        unlink_slot(cold, cold->slot[i]);
        prefix_cache_remove(&cold->known, cold->slot[i]);
    }
    sequence->n_computed = sequence->n_settled = (from + n) * s->pool.block_size;
}

void cold_bring(struct scheduler *s, struct sequence *sequence) {
    struct cold_cache *cold = &s->swap.cold;
    int from = sequence->n_blocks, n = cold->n_found;
    int32_t *block = sequence->table + from;
    for (int i = 0; i < n; i++) block[i] = block_pool_take(&s->pool);
    sequence->n_blocks += n;
    cold_keep(s);
    s->port.swap_in(s->port.self, cold->slot, block, n);
    s->swap.arriving = true;
    s->stats.swapped_in += (uint64_t)n;
    for (int i = 0; i < n; i++) {
        int32_t before = from + i > 0 ? block[i - 1] : -1;
        uint64_t parent = prefix_cache_id(&s->pool.known, before);
        struct block_key key = sequence_key(sequence, from + i, parent);
        block_pool_restore(&s->pool, block[i], &key, cold->id[i]);
        swap_give_slot(&s->swap, cold->slot[i]);
    }
    cold->n_found = 0;
}
