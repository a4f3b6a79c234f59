#include "engine/swap.h"

#include <assert.h>

enum status swap_open(struct engine_swap *swap, struct backend *b, struct kv_cache *cache,
                      const struct engine_memory *memory, struct err *err) {
    *swap = (struct engine_swap){.backend = b};
    if (memory->swap == 0) return STATUS_OK;
    assert(b->ops->swap_new); /* the plan gives the CPU none */
    return b->ops->swap_new(b, &swap->swap, cache, memory->swap, &swap->n_slots, err);
}

void swap_close(struct engine_swap *swap) {
    if (swap->swap) swap->backend->ops->swap_free(swap->backend, swap->swap);
}

int engine_swap_slots(const struct engine_swap *s) {
    return s->n_slots;
}

bool engine_swap_reserve(struct engine_swap *s, int n) {
    return s->backend->ops->swap_reserve(s->backend, s->swap, n);
}

void engine_swap_out(struct engine_swap *s, const int32_t *block, const int32_t *slot, int n) {
    s->backend->ops->swap_out(s->backend, s->swap, block, slot, n);
}

void engine_swap_in(struct engine_swap *s, const int32_t *slot, const int32_t *block, int n) {
    s->backend->ops->swap_in(s->backend, s->swap, slot, block, n);
}

void engine_swap_arrive(struct engine_swap *s) {
    s->backend->ops->swap_arrive(s->backend, s->swap);
}
