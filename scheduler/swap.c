#include "scheduler/swap.h"

#include <stdlib.h>

#include "scheduler/internal.h"

void swap_init(struct swap_space *swap, int n_slots, int stride) {
    *swap = (struct swap_space){.n_slots = n_slots, .max_slots = n_slots, .first_free = -1};
    if (n_slots == 0) return;
    swap->next = mem_calloc((size_t)n_slots, sizeof *swap->next);
    swap->slot = mem_calloc((size_t)stride, sizeof *swap->slot);
    swap->block = mem_calloc((size_t)stride, sizeof *swap->block);
}

void swap_free(struct swap_space *swap) {
    free(swap->next);
    free(swap->slot);
    free(swap->block);
}

/* ---- slots ---------------------------------------------------------------------------------- */

bool swap_has_room(struct scheduler *s, int n) {
    struct swap_space *swap = &s->swap;
    int unused = swap->n_slots - swap->n_taken, fresh = n - swap->n_free;
    if (fresh > unused) fresh = unused;
    if (fresh > 0 && !s->port.swap_reserve(s->port.self, swap->n_taken + fresh))
        swap->n_slots = swap->n_taken;
    if (n > swap->n_slots - swap_used(swap)) return false;
    while (n > swap->n_free + swap->n_slots - swap->n_taken) cold_drop_oldest(s);
    return true;
}

int32_t swap_take_slot(struct swap_space *swap) {
    int32_t slot = swap->first_free;
    if (swap->n_free == 0) {
        assert(swap->n_taken < swap->n_slots);
        return swap->n_taken++;
    }
    swap->first_free = swap->next[slot];
    swap->n_free--;
    return slot;
}

void swap_give_slot(struct swap_space *swap, int32_t slot) {
    swap->next[slot] = swap->first_free;
    swap->first_free = slot;
    swap->n_free++;
}

void swap_drop(struct scheduler *s, struct sequence *sequence) {
    struct swap_space *swap = &s->swap;
    int32_t last = sequence->first_slot;
    assert(sequence->n_slots > 0 && swap->n_swapped > 0);
    for (int i = 1; i < sequence->n_slots; i++) last = swap->next[last];
    assert(swap->next[last] < 0);
    swap->next[last] = swap->first_free;
    swap->first_free = sequence->first_slot;
    swap->n_free += sequence->n_slots;
    sequence->n_slots = 0;
    swap->n_swapped--;
}

/* ---- sequences ------------------------------------------------------------------------------ */

bool swap_sequence_out(struct scheduler *s, struct sequence *sequence) {
    struct swap_space *swap = &s->swap;
    int n = sequence->n_blocks;
    assert(sequence->state == SEQUENCE_RUNNING && sequence->n_slots == 0 && !swap->arriving);
    if (n == 0 || sequence->n_computed < s->config.swap_from || !swap_has_room(s, n)) return false;
    for (int i = 0; i < n; i++) swap->slot[i] = swap_take_slot(swap);
    for (int i = 0; i < n; i++) swap->next[swap->slot[i]] = i + 1 < n ? swap->slot[i + 1] : -1;
    sequence->first_slot = swap->slot[0];
    sequence->n_slots = n;
    swap->n_swapped++;
    s->stats.swapped_out += (uint64_t)n;
    s->port.swap_out(s->port.self, sequence->table, swap->slot, n);
    return true;
}

/* The blocks that come are known at once: who shares one reads it in a later step. */
static void register_arriving(struct scheduler *s, struct sequence *sequence, int first) {
    if (!s->pool.caching) return;
    register_blocks(s, sequence, first * s->pool.block_size);
    for (int i = first; i < sequence->n_blocks; i++)
        assert(sequence->table[i] == s->swap.block[i - first]); /* none had been known */
}

/* Into the sequence's blocks from the first-th on, which are taken for it. */
static void bring_rest(struct scheduler *s, struct sequence *sequence, int first) {
    struct swap_space *swap = &s->swap;
    int n = sequence->n_slots;
    int32_t slot = sequence->first_slot;
    assert(n == block_pool_blocks_for(&s->pool, sequence->n_computed));
    for (int i = 0; i < n; i++, slot = swap->next[slot]) {
        if (i < first) continue;
        swap->slot[i - first] = slot;
        sequence->table[i] = swap->block[i - first] = block_pool_take(&s->pool);
    }
    sequence->n_blocks = n;
    cold_keep(s);
    s->port.swap_in(s->port.self, swap->slot, swap->block, n - first);
    swap->arriving = true;
    s->stats.swapped_in += (uint64_t)(n - first);
    register_arriving(s, sequence, first);
}

void swap_sequence_in(struct scheduler *s, struct sequence *sequence) {
    assert(sequence->state == SEQUENCE_RUNNING && sequence->n_slots > 0);
    if (sequence->n_blocks < sequence->n_slots) bring_rest(s, sequence, sequence->n_blocks);
    swap_drop(s, sequence);
}

void swap_arrive(struct scheduler *s) {
    if (s->swap.arriving) s->port.swap_arrive(s->port.self);
    s->swap.arriving = false;
}
