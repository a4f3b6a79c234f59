/* The device that serves, and its buffers that are taken at the start: what does not fit is told in
 * one sentence. Folder-internal. */
#ifndef PENSTOCK_ENGINE_DEVICE_H
#define PENSTOCK_ENGINE_DEVICE_H

#include "engine/engine.h"

/* Replaces DEVICE_AUTO in config->device by DEVICE_CUDA if a GPU can be used, else by DEVICE_CPU.
 * why[size] is for the log: "" unless there was a choice. *memory is the GPU's; 0 on the CPU.
 * Fails as backend_cuda_find does, where "cuda" is asked for. */
enum status device_choose(struct engine_config *config, struct device_memory *memory, char *why,
                          size_t size, struct err *err);

/* Puts the blocks that the device has room for, when all else is taken, in the place of those that
 * the plan has estimated; `kv` says what a block is, and which layers can have window blocks. Does
 * nothing on the CPU. */
enum status device_plan_pool(struct backend *b, struct engine_memory *memory,
                             const struct engine_config *config, const struct kv_config *kv,
                             struct err *err);

/* Takes device memory for `what`, zeroed; `remedy` is what makes it smaller ("lower
 * --max-num-seqs"). Fails with STATUS_USAGE. */
enum status buffer_take(struct backend *b, void **out, size_t bytes, const char *what,
                        const char *remedy, struct err *err);

/* The same of the host's memory that copies run from and to. */
enum status host_take(struct backend *b, void **out, size_t bytes, const char *what,
                      const char *remedy, struct err *err);

/* Says that the device has no room. */
enum status refuse_room(struct backend *b, const char *what, size_t bytes, const char *remedy,
                        struct err *err);

#endif
