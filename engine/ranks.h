/* ranks: the other ranks of a model. Each has a thread, a backend, a shard of the weights and of
 * the cache. Rank 0 belongs to the engine and runs on the engine's thread: for each action, the
 * engine starts it on the other ranks here and then performs it itself. Folder-internal; all
 * functions are for the engine's thread. */
#ifndef PENSTOCK_ENGINE_RANKS_H
#define PENSTOCK_ENGINE_RANKS_H

#include "engine/models/model.h"
#include "kernels/backend.h"

struct ranks;

/* The settings of the other ranks. The caller owns the data until ranks_end. */
struct ranks_plan {
    const struct model_config *model;
    const struct weights *weights;
    const struct engine_config *config;
    /* rank 0's settings, but `threads` is the total of all ranks and never 0 */
    struct backend_config backend;
};

/* Makes the group of `ranks` ranks, including rank 0, and starts the threads of the others. Fails
 * with STATUS_USAGE if there are not enough devices. */
enum status ranks_open(struct ranks **out, int ranks, bool on_cuda, struct err *err);
/* Closes the other ranks and then the group. Close rank 0's backend first. NULL does nothing. */
void ranks_close(struct ranks *ranks);

/* The group of all backends; NULL for NULL. */
struct rank_group *ranks_group(const struct ranks *ranks);

/* The number of threads of rank r when all ranks share `threads` threads: at least one. */
int ranks_threads(int threads, int rank, int ranks);

/* Each starts an action on the other ranks: opening backends and loading shards; allocating caches;
 * touching all memory of the caches if the backend has kv_touch; running one pass. Call ranks_end
 * after each. With NULL they do nothing. */
void ranks_begin_load(struct ranks *ranks, const struct ranks_plan *plan);
void ranks_begin_cache(struct ranks *ranks, const struct kv_config *config);
void ranks_begin_touch(struct ranks *ranks);
void ranks_begin_pass(struct ranks *ranks, const struct step *step);

/* Waits for the action on all other ranks. Returns the failure of the lowest failed rank. */
enum status ranks_end(struct ranks *ranks, struct err *err);

/* Total bytes of the other ranks' weights and activations. */
void ranks_memory(const struct ranks *ranks, int64_t *weights, int64_t *scratch);

#endif
