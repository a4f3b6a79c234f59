/* memory_plan: how much memory serving a model takes and what it holds, decided before any of it is
 * taken. The plan is a pure function of the model, the settings and the machine; reading the
 * machine is apart from it. Folder-internal. */
#ifndef PENSTOCK_ENGINE_MEMORY_PLAN_H
#define PENSTOCK_ENGINE_MEMORY_PLAN_H

#include "engine/engine.h"

/* What the machine has to give, in bytes. */
struct machine_memory {
    int64_t total;               /* physical memory, or the cgroup's limit where that is less */
    int64_t available;           /* of it, what could be taken now without swapping */
    struct device_memory device; /* of the GPU that serves; 0: of none */
};

/* Reads /proc/meminfo and the limits of the process's cgroups (version 2 or 1); `device` stays as
 * it is. */
void machine_memory_read(struct machine_memory *memory);

/* The same below other folders than "/proc" and "/sys/fs/cgroup", for tests. What cannot be read
 * counts as no limit; with nothing at all to read, 1 GiB is taken to be there. */
void machine_memory_read_at(struct machine_memory *memory, const char *proc, const char *cgroup);

/* The type that keys and values are kept in: what config->kv_dtype says, where auto is int16, or
 * float32 in the oracle mode. On CUDA auto is float16; it is bfloat16 for a model whose weights are
 * mostly of that type, unless float16 was asked for: keys that were trained with its range may
 * exceed float16's. Fails with STATUS_USAGE for one that the device
 * does not have, and for integers in blocks of an odd number of slots. */
enum status memory_plan_kv_dtype(const struct engine_config *config,
                                 const struct model_config *model, enum dtype *out,
                                 struct err *err);

#define DEFAULT_UTILIZATION 0.9

/* Plans all memory. `weights` and `scratch` are estimates, from the file's size and the step's
 * widths; the engine puts what it took in their place. The KV pool is exact:
 * - config->kv_memory bytes where that is given, in whole blocks;
 * - otherwise the least of a quarter of the available memory, 512 MiB, and what max_num_seqs
 *   sequences of full length take;
 * - in both cases at least one sequence of full length, so that what is admitted can always be
 *   finished. The length is config->max_model_len, or the model's own where that is 0.
 * On a GPU (machine->device) the pool is an estimate too, of what --gpu-memory-utilization leaves;
 * memory_device_pool puts the real one in its place. Fails with STATUS_USAGE, naming the option and
 * a value that would do, when a setting is out of range or the memory is too small for one
 * sequence. */
enum status memory_plan(struct engine_memory *out, const struct model_config *info,
                        const struct engine_config *config, const struct machine_memory *machine,
                        struct err *err);

/* The window blocks that go with so many blocks: those of one sequence of full length, and with
 * more blocks soon so many that sequences of the usual length use up both together; 0 if the plan
 * has none. */
int memory_window_blocks(const struct engine_memory *plan, const struct engine_config *config,
                         int64_t n_blocks);

/* Bytes of both. */
int64_t memory_pool_bytes(const struct engine_memory *plan, const struct engine_config *config,
                          int64_t n_blocks);

/* ---- on a GPU (memory/plan_gpu.c) ----------------------------------------------------------- */

/* Notes the device's memory as it was before anything was taken, and the share of it that may be:
 * the part that is kept free, for graphs and for what grows in service, comes off it. */
void memory_device_begin(struct engine_memory *plan, const struct engine_config *config,
                         const struct device_memory *device);

/* What the pool would be if weights and scratch took what was estimated. */
void memory_device_estimate(struct engine_memory *plan, const struct model_config *info,
                            const struct engine_config *config);

/* Bytes of the device that a pool of so many blocks takes, with the window blocks that go with
 * them and all that steps over it work in. */
struct pool_cost {
    int64_t (*bytes)(void *arg, int n_blocks);
    void *arg;
};

/* Plans the pool when all else has been taken: `now` is what the device has left. Blocks are as
 * many as fit into the share beside plan->draft, each with draft_block bytes more, but no more than
 * four times what max_num_seqs sequences of full length take; or those of config->kv_memory. Of an
 * engine that drafts they are as many as plan->given_blocks, as far as they fit into plan->given.
 * Fails with STATUS_USAGE when they do not fit, or a sequence of full length does not. */
enum status memory_device_pool(struct engine_memory *plan, const struct engine_config *config,
                               const struct device_memory *now, const struct pool_cost *cost,
                               struct err *err);

/* Plans the host's memory for preempted sequences, plan->swap: what was asked for; where nothing
 * was, 4 GiB or a quarter of the free memory if recomputing would be dearer: a token takes two
 * operations a parameter, and its keys and values pass the link twice. Fails with STATUS_USAGE on
 * the CPU, and where the machine has less. */
enum status memory_plan_swap(struct engine_memory *plan, const struct model_config *info,
                             const struct engine_config *config,
                             const struct machine_memory *machine, bool on_cuda, struct err *err);

#endif
