/* memory_plan: decides, before anything is allocated, how much memory serving a model takes and
 * what it holds. The plan is a pure function of the model, the settings and the machine; a separate
 * function reads the machine. Folder-internal. */
#ifndef PENSTOCK_ENGINE_MEMORY_PLAN_H
#define PENSTOCK_ENGINE_MEMORY_PLAN_H

#include "engine/config/config.h"

/* The memory of the machine, in bytes. */
struct machine_memory {
    int64_t total;               /* physical memory, or the cgroup's limit if that is less */
    int64_t available;           /* the part that can be allocated now without swapping */
    struct device_memory device; /* of the serving GPU; 0 on the CPU */
};

/* Reads /proc/meminfo and the limits of the process's cgroups (version 2 or 1). Leaves `device`
 * unchanged. */
void machine_memory_read(struct machine_memory *memory);

/* The same with other folders than "/proc" and "/sys/fs/cgroup", for tests. Unreadable data counts
 * as no limit; if nothing can be read, 1 GiB is assumed. */
void machine_memory_read_at(struct machine_memory *memory, const char *proc, const char *cgroup);

/* Chooses the type of keys and values: config->kv_dtype. On the CPU auto means int16, or float32 in
 * the oracle mode. On CUDA auto means float16; for a model whose weights are mostly bfloat16 it
 * means bfloat16 unless float16 was requested, because keys trained with bfloat16's range may
 * exceed float16's. Fails with STATUS_USAGE for a type that the device does not support, and for
 * integer types with an odd block size. */
enum status memory_plan_kv_dtype(const struct engine_config *config,
                                 const struct model_config *model, enum dtype *out,
                                 struct err *err);

/* Returns the name of such a type, as in --kv-cache-dtype. */
const char *memory_kv_name(enum dtype dtype);

/* Fits the settings to an encoder: a step has room for a whole prompt, all of whose rows may be
 * read, and the longest prompt fits a step. Does nothing for other models. */
void memory_fit_encoder(struct engine_config *config, const struct model_config *model);

#define DEFAULT_UTILIZATION 0.9

/* Plans all memory. `weights` and `scratch` are estimates from the file's size and the step's
 * widths; the engine later replaces them by the actual sizes. The KV pool is exact: -
 * config->kv_memory bytes if given, in whole blocks; - otherwise the least of a quarter of the
 * available memory, 512 MiB, and the size for
 *   max_num_seqs sequences of full length;
 * - in both cases at least one sequence of full length, so that an admitted sequence can always
 *   finish. The length is config->max_model_len, or the model's own if that is 0.
 * On a GPU (machine->device) the pool is an estimate too, of the memory that
 * --gpu-memory-utilization leaves; memory_device_pool replaces it by the actual size. Fails with
 * STATUS_USAGE, naming the option and a valid value, if a setting is out of range or the memory is
 * too small for one sequence. */
enum status memory_plan(struct engine_memory *out, const struct model_config *info,
                        const struct engine_config *config, const struct machine_memory *machine,
                        struct err *err);

/* The most blocks of a model without keys and values. */
enum { MOST_EMPTY_BLOCKS = 1 << 18 };

/* Limits of checkpoints: their number, and the tokens between two of them. */
enum { MAX_CHECKPOINTS = 1 << 20, MAX_CHECKPOINT_EVERY = 1 << 16 };

/* Plans the states of recurrent layers for sequences and drafts, and for checkpoints if their
 * memory is stated. Fails with STATUS_USAGE if that is too small for one, or without such layers.
 * The bytes per token must be known. */
enum status memory_plan_states(struct engine_memory *plan, const struct model_config *info,
                               const struct engine_config *config, struct err *err);

/* Plans the states of checkpoints if their memory is not stated: at most half of the `left` bytes
 * after the KV cache, a quarter of its memory, and one for each place in it. */
void memory_plan_checkpoints(struct engine_memory *plan, const struct engine_config *config,
                             int64_t left);

/* Returns the number of window blocks for a number of blocks: at least those of one sequence of
 * full length. With more blocks, there are enough that sequences of usual length exhaust both kinds
 * together. 0 if the plan does not use window blocks. */
int memory_window_blocks(const struct engine_memory *plan, const struct engine_config *config,
                         int64_t n_blocks);

/* Bytes of both kinds of blocks. */
int64_t memory_pool_bytes(const struct engine_memory *plan, const struct engine_config *config,
                          int64_t n_blocks);

/* ---- on a GPU (memory/plan_gpu.c) ----------------------------------------------------------- */

/* Records the device's free memory before any allocation, and the share of it that may be used. A
 * part stays reserved for graphs and for growth during service. */
void memory_device_begin(struct engine_memory *plan, const struct engine_config *config,
                         const struct device_memory *device);

/* Returns the memory that checkpoints of states may share with the estimated pool; with a stated
 * pool, the memory that is left beside it. */
int64_t memory_device_left(const struct engine_memory *plan, const struct engine_config *config);

/* Estimates the pool from the estimates of weights, scratch and states. */
void memory_device_estimate(struct engine_memory *plan, const struct model_config *info,
                            const struct engine_config *config);

/* Device bytes of a pool with a number of blocks, including the window blocks that go with them and
 * the work memory of steps. */
struct pool_cost {
    int64_t (*bytes)(void *arg, int n_blocks);
    void *arg;
};

/* Plans the pool after all other allocations; `now` is the device's remaining memory. The number of
 * blocks is the maximum that fits into the share beside plan->draft, each with draft_block bytes
 * more, and at most four times the blocks of max_num_seqs sequences of full length; or the number
 * given by config->kv_memory. For a draft engine it is plan->given_blocks, limited by plan->given.
 * Fails with STATUS_USAGE if they do not fit, or if a sequence of full length does not. */
enum status memory_device_pool(struct engine_memory *plan, const struct engine_config *config,
                               const struct device_memory *now, const struct pool_cost *cost,
                               struct err *err);

/* Plans the host memory for preempted sequences, plan->swap: the requested size. By default it is 4
 * GiB or a quarter of the free memory if recomputing is more expensive: a token takes two
 * operations per parameter, and its keys and values cross the link twice. Fails with STATUS_USAGE
 * on the CPU, and if the machine has less memory. */
enum status memory_plan_swap(struct engine_memory *plan, const struct model_config *info,
                             const struct engine_config *config,
                             const struct machine_memory *machine, bool on_cuda, struct err *err);

#endif
