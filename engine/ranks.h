/* ranks: the ranks of a model beyond the first, each on a thread of its own with a backend, a shard
 * of the weights and of the cache. The engine has rank 0 and runs it on its own thread; what all of
 * them are to do it begins here for the others and then does itself. Folder-internal; all functions
 * are for the engine's thread. */
#ifndef PENSTOCK_ENGINE_RANKS_H
#define PENSTOCK_ENGINE_RANKS_H

#include "engine/models/model.h"

struct ranks;

/* What the others are opened with. All of it is the caller's, until ranks_end. */
struct ranks_plan {
    const struct model_config *model;
    const struct weights *weights;
    const struct engine_config *config;
    /* of rank 0, but for the threads: these are of all ranks together, and never 0 */
    struct backend_config backend;
};

/* Makes the group of so many ranks, which rank 0 belongs to as well, and starts the others'
 * threads. Fails with STATUS_USAGE where the device has no room for them. */
enum status ranks_open(struct ranks **out, int ranks, bool on_cuda, struct err *err);
/* Closes the others, and then the group: after rank 0's backend was closed. NULL does nothing. */
void ranks_close(struct ranks *ranks);

/* The group of all backends; NULL of NULL. */
struct rank_group *ranks_group(const struct ranks *ranks);

/* Threads of rank r when so many are shared by all ranks: one at least. */
int ranks_threads(int threads, int rank, int ranks);

/* The others begin to open their backends and to load their shards; to make their caches; to take
 * all their caches' memory, where a backend has kv_touch; to run one pass. Each is followed by
 * ranks_end before the next. With NULL for the ranks nothing is done. */
void ranks_begin_load(struct ranks *ranks, const struct ranks_plan *plan);
void ranks_begin_cache(struct ranks *ranks, const struct kv_config *config);
void ranks_begin_touch(struct ranks *ranks);
void ranks_begin_pass(struct ranks *ranks, const struct step *step);

/* Waits until all others have done what they began; the first failure of the lowest rank. */
enum status ranks_end(struct ranks *ranks, struct err *err);

/* Bytes of the others' weights and activations, in all. */
void ranks_memory(const struct ranks *ranks, int64_t *weights, int64_t *scratch);

#endif
