/* memory_plan: how much memory serving a model takes and what it holds, decided before any of it is
 * taken. The plan is a pure function of the model, the settings and the machine; reading the
 * machine is apart from it.
 * Folder-internal. */
#ifndef PENSTOCK_ENGINE_MEMORY_PLAN_H
#define PENSTOCK_ENGINE_MEMORY_PLAN_H

#include "engine/engine.h"

/* What the machine has to give, in bytes. */
struct machine_memory {
    int64_t total;     /* physical memory, or the cgroup's limit where that is less */
    int64_t available; /* of it, what could be taken now without swapping */
};

/* Reads /proc/meminfo and the limits of the process's cgroups (version 2 or 1). */
void machine_memory_read(struct machine_memory *memory);

/* The same below other folders than "/proc" and "/sys/fs/cgroup", for tests. What cannot be read
 * counts as no limit; with nothing at all to read, 1 GiB is taken to be there. */
void machine_memory_read_at(struct machine_memory *memory, const char *proc, const char *cgroup);

/* The type that keys and values are kept in: what config->kv_dtype says, where "auto" (or NULL) is
 * int16 (float16 on CUDA), or float32 in the oracle mode. Fails with STATUS_USAGE for another name,
 * for one that the device does not have, and for integers in blocks of an odd number of slots. */
enum status memory_plan_kv_dtype(const struct engine_config *config, enum dtype *out,
                                 struct err *err);

/* Plans all memory. `weights` and `scratch` are estimates, from the file's size and the step's
 * widths; the engine puts what it took in their place. The KV pool is exact:
 * - config->kv_memory bytes where that is given, in whole blocks;
 * - otherwise the least of a quarter of the available memory, 512 MiB, and what max_num_seqs
 * sequences of full length take;
 * - in both cases at least one sequence of full length, so that what is admitted can always be
 * finished. The length is config->max_model_len, or the model's own where that is 0. Fails with
 * STATUS_USAGE, naming the option and a value that would do, when a setting is out of range or the
 * memory is too small for one sequence. */
enum status memory_plan(struct engine_memory *out, const struct model_info *info,
                        const struct engine_config *config, const struct machine_memory *machine,
                        struct err *err);

#endif
