/* swap: who holds which slot of the host's memory. A slot has room for one block.
 *
 *     fresh    n_taken..n_slots-1: never used, and its memory not taken yet
 *     free     in the list that begins at first_free
 *     owned    by one swapped sequence, in the list that begins at its first_slot, in the order of
 *              its positions: slot i holds positions i*B .. i*B+B-1 of those that are computed
 *     kept     for whoever may ask for a prefix again (cold.h); given away when others want slots
 *
 * A sequence owns slots exactly while it is swapped. It owns one for each block that it had, also
 * of those that it shared: the others may end before it comes back.
 *
 * Copies are queued when slots change hands, and are in the order of the calls; so neither a slot
 * nor a block waits for one before it is given to another. Only blocks that come back must be left
 * alone by steps until swap_arrive, which every plan but the one that has asked for them begins
 * with.
 *
 * All memory but the slots' own is taken in swap_init. Engine thread only.
 */
#ifndef PENSTOCK_SWAP_H
#define PENSTOCK_SWAP_H

#include "scheduler/cold.h"

struct swap_space {
    int n_slots; /* fewer than at first where the host has no memory for more */
    int n_taken; /* slots 0..n_taken-1 have been used */
    int n_free;
    int32_t first_free;
    int32_t *next;         /* [n_slots] the slot behind it in its list, or -1 */
    int32_t *slot, *block; /* [stride] lists for the port */
    int max_slots;
    int n_swapped; /* sequences */
    bool arriving; /* blocks come that no step may touch yet */
    struct cold_cache cold;
};

/* `stride` is the blocks that one sequence can come to hold. */
void swap_init(struct swap_space *swap, int n_slots, int stride);
void swap_free(struct swap_space *swap);

/* Slots that are owned. */
static inline int swap_used(const struct swap_space *swap) {
    return swap->n_taken - swap->n_free - cold_kept(&swap->cold);
}

/* Are there n more slots to give, with their memory? What is kept gives way to that. Where the host
 * has no memory for them, there will be no more. */
bool swap_has_room(struct scheduler *s, int n);

/* Takes one of them; gives one back. */
int32_t swap_take_slot(struct swap_space *swap);
void swap_give_slot(struct swap_space *swap, int32_t slot);

/* Queues the copy of all blocks of a running sequence that is about to lose them, when that is
 * worth it and there are slots. Returns whether it now owns them. */
bool swap_sequence_out(struct scheduler *s, struct sequence *sequence);

/* Brings back what a sequence that now runs has in the host's memory, behind the blocks that it
 * already has. Its slots are free afterwards. */
void swap_sequence_in(struct scheduler *s, struct sequence *sequence);

/* Gives a sequence's slots back. */
void swap_drop(struct scheduler *s, struct sequence *sequence);

/* Steps from now on find what comes. */
void swap_arrive(struct scheduler *s);

#endif
