/* engine/ranks: the ranks of a model beyond the first. Each has a backend, a shard of the weights
 * and of the cache. They are threads of this process, or processes that mpirun started.
 *
 * Rank 0 belongs to the engine and runs on the engine's thread: for each action, the engine starts
 * it on the other ranks here and then performs it itself. In the processes of the other ranks,
 * engine_follow performs the actions (ranks_follow). The engine's thread calls all functions,
 * unless a comment names other threads. */
#ifndef PENSTOCK_ENGINE_RANKS_H
#define PENSTOCK_ENGINE_RANKS_H

#include "engine/models/model.h"
#include "engine/peers/peers.h"
#include "kernels/backend.h"

struct ranks;

/* The settings of the other ranks. The caller owns the data until ranks_end. */
struct ranks_plan {
    const struct model_config *model;
    const struct weights *weights;
    const struct weights *eagle; /* of the model's EAGLE-3 head, or NULL */
    const struct engine_config *config;
    /* rank 0's settings, but `threads` is the total of all ranks of this process and never 0 */
    struct backend_config backend;
};

/* Makes the group of `ranks` ranks, including rank 0. With `peers` they are the processes that have
 * met (ranks_meet); otherwise it starts a thread for each rank. With `on_cuda`, `gpu` is the number
 * of rank 0's GPU. Fails with STATUS_USAGE if there are not enough devices, or if NCCL cannot join
 * them. */
enum status ranks_open(struct ranks **out, int ranks, bool on_cuda, int gpu, struct peers *peers,
                       struct err *err);
/* Closes the other ranks, in other processes too, and then the group. Close rank 0's backend first.
 * NULL does nothing. */
void ranks_close(struct ranks *ranks);

/* The group of all backends; NULL for NULL. */
struct rank_group *ranks_group(const struct ranks *ranks);

/* The number of threads of rank r when all ranks share `threads` threads: at least one. */
int ranks_threads(int threads, int rank, int ranks);

/* The threads of this process if it is one rank: `threads`, or if that is 0, its share of the
 * machine's cores. */
int ranks_own_threads(int threads, const struct peers *peers);

/* Each starts an action on the other ranks: opening backends and loading shards; allocating caches;
 * touching all memory of the caches if the backend has kv_touch; running one pass. Call ranks_end
 * after each. `plan`, `config` and `step` are read until then. With NULL they do nothing. */
void ranks_begin_load(struct ranks *ranks, const struct ranks_plan *plan);
void ranks_begin_cache(struct ranks *ranks, const struct kv_config *config, int max_seqs,
                       int max_rows, int max_model_len);
void ranks_begin_touch(struct ranks *ranks);
void ranks_begin_pass(struct ranks *ranks, const struct step *step);

/* Gives each other rank r the adapter of_rank[r] under that number; of_rank[ranks] is read until
 * ranks_drop_adapter, unless the ranks have copies. Running passes must not have rows with it. If a
 * rank lacks memory or is lost, the function fails, and all ranks lack the adapter. Loading and
 * dropping are for one thread at a time, which may be another than the engine's, while passes run.
 * With NULL they do nothing. */
enum status ranks_give_adapter(struct ranks *ranks, int number, struct adapter *const *of_rank,
                               struct err *err);
void ranks_drop_adapter(struct ranks *ranks, int number);

/* Do the other ranks keep copies of adapters: are they processes? */
bool ranks_have_copies(const struct ranks *ranks);

/* Waits for the action on all other ranks. Returns the failure of the lowest failed rank. A pass
 * does not fail: a lost rank is reported by ranks_failed. */
enum status ranks_end(struct ranks *ranks, struct err *err);

/* Is a rank lost? If so, `err` (unless NULL) says which, with the code "rank_lost". All later
 * passes give undefined numbers. Any thread. */
bool ranks_failed(const struct ranks *ranks, struct err *err);

/* Rank 0 cannot go on because of `why`. Ranks in other processes, which may wait for it, then end.
 * Any thread. */
void ranks_fail(const struct ranks *ranks, const struct err *why);

/* Total bytes of the other ranks' weights and activations. */
void ranks_memory(const struct ranks *ranks, int64_t *weights, int64_t *scratch);

/* ---- processes ------------------------------------------------------------------------------ */

/* The description of a process, for the comparison at the start. `model` and `weights` may be NULL
 * after a failure. */
struct ranks_self {
    const struct model_config *model;
    const struct weights *weights;
    const struct weights *eagle; /* of the model's EAGLE-3 head, or NULL */
    const struct engine_config *config;
    int64_t available;           /* bytes of memory that this machine has free */
    int gpu;                     /* on CUDA: the number of its GPU (gpu_select) */
    struct device_memory device; /* the GPU's; 0 on the CPU */
};

/* Rank 0: waits for the other processes and compares them with this one. Sets *available to the
 * free memory for all ranks together, if the machine with the least for one rank is typical, and
 * *device to the least memory of a GPU. Fails with the failure of the lowest failed rank, or with
 * STATUS_USAGE, which names the difference: build, model files, or the option. */
enum status ranks_meet(struct peers *peers, const struct ranks_self *self, int64_t *available,
                       struct device_memory *device, struct err *err);

/* Another rank: reports itself to rank 0, or its failure `why` if that is not STATUS_OK, and then
 * performs the actions of rank 0 until rank 0 ends. Sets *code to rank 0's exit code. Fails if it
 * or another rank is lost. `plan` is NULL if the settings or the model are invalid. */
enum status ranks_follow(struct peers *peers, const struct ranks_self *self,
                         const struct ranks_plan *plan, const struct err *why, int *code,
                         struct err *err);

#endif
