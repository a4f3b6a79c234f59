/* The serving device and its buffers, which are allocated at start-up. A lack of memory is reported
 * in one sentence. Folder-internal. */
#ifndef PENSTOCK_ENGINE_DEVICE_H
#define PENSTOCK_ENGINE_DEVICE_H

#include "engine/config/config.h"

/* Replaces DEVICE_AUTO in config->device by DEVICE_CUDA if a GPU can be used, else by DEVICE_CPU.
 * why[size] is the reason for the log, or "" if there was no choice. *memory is the GPU's; 0 on the
 * CPU. If "cuda" is requested, it fails as backend_cuda_find does. */
enum status device_choose(struct engine_config *config, struct device_memory *memory, char *why,
                          size_t size, struct err *err);

/* Replaces the plan's estimate of the blocks by the number for which the device has memory after
 * all other allocations. `kv` describes a block and the layers that can use window blocks. Does
 * nothing on the CPU. */
enum status device_plan_pool(struct backend *b, struct engine_memory *memory,
                             const struct engine_config *config, const struct kv_config *kv,
                             struct err *err);

/* Allocates zeroed device memory for `what`; `remedy` says how to reduce it ("lower
 * --max-num-seqs"). Fails with STATUS_USAGE. */
enum status buffer_take(struct backend *b, void **out, size_t bytes, const char *what,
                        const char *remedy, struct err *err);

/* The same for host memory that the device copies from and to. */
enum status host_take(struct backend *b, void **out, size_t bytes, const char *what,
                      const char *remedy, struct err *err);

/* Reports that the device is out of memory. */
enum status refuse_room(struct backend *b, const char *what, size_t bytes, const char *remedy,
                        struct err *err);

#endif
