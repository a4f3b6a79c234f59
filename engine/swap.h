/* The engine's side of swapping. Folder-internal; what the scheduler sees is in engine.h. */
#ifndef PENSTOCK_ENGINE_SWAP_H
#define PENSTOCK_ENGINE_SWAP_H

#include "engine/engine.h"

struct engine_swap {
    struct backend *backend;
    struct kv_swap *swap; /* NULL: nothing is swapped */
    int n_slots;
};

/* Opens swap space of memory->swap bytes for the cache's blocks, where that is not 0. Fails with
 * STATUS_USAGE. Closing what was never opened does nothing. */
enum status swap_open(struct engine_swap *swap, struct backend *b, struct kv_cache *cache,
                      const struct engine_memory *memory, struct err *err);
void swap_close(struct engine_swap *swap);

#endif
