#include "engine/memory/device.h"

#include <stdio.h>

#include "engine/memory/memory.h"
#include "kernels/backend.h"

enum status refuse_room(struct backend *b, const char *what, size_t bytes, const char *remedy,
                        struct err *err) {
    struct device_memory memory = {0};
    if (b->memory->available) b->memory->available(b, &memory);
    return device_out_of_memory(err, NULL, what, bytes, &memory, remedy);
}

enum status buffer_take(struct backend *b, void **out, size_t bytes, const char *what,
                        const char *remedy, struct err *err) {
    *out = b->memory->buffer_new(b, bytes);
    return *out ? STATUS_OK : refuse_room(b, what, bytes, remedy, err);
}

enum status host_take(struct backend *b, void **out, size_t bytes, const char *what,
                      const char *remedy, struct err *err) {
    *out = b->memory->host_new(b, bytes);
    if (*out) return STATUS_OK;
    return err_set(err, STATUS_USAGE, NULL,
                   "the host cannot pin memory for %s: %.1f MiB are needed; %s", what,
                   mib((int64_t)bytes), remedy);
}

enum status device_choose(struct engine_config *config, struct device_memory *memory, char *why,
                          size_t size, struct err *err) {
    char gpu[128] = "";
    struct err cause = {0};
    bool any = config->device == DEVICE_AUTO;
    *why = 0;
    *memory = (struct device_memory){0};
    if (!any && config->device != DEVICE_CUDA) return STATUS_OK;
    enum status status = backend_cuda_find(memory, gpu, sizeof gpu, &cause);
    if (!any) {
        if (status && err) *err = cause;
        return status;
    }
    config->device = status ? DEVICE_CPU : DEVICE_CUDA;
    snprintf(why, size, " (device auto: %s)", status ? "no usable GPU was found" : gpu);
    return STATUS_OK;
}

/* ---- the pool ------------------------------------------------------------------------------- */

/* The cost of a pool on the device. */
struct pool_on {
    struct backend *b;
    const struct engine_memory *memory;
    const struct engine_config *settings;
    struct kv_config config;
    bool swaps;
};

static int64_t pool_bytes(void *arg, int n_blocks) {
    struct pool_on *on = arg;
    on->config.n_blocks = n_blocks;
    on->config.n_window_blocks = memory_window_blocks(on->memory, on->settings, n_blocks);
    size_t bytes = on->b->cache->kv_bytes(on->b, &on->config);
    size_t beside = on->swaps ? on->b->swap->swap_bytes(on->b, &on->config) : 0;
    if (__builtin_add_overflow(bytes, beside, &bytes)) return INT64_MAX;
    return bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX;
}

enum status device_plan_pool(struct backend *b, struct engine_memory *memory,
                             const struct engine_config *config, const struct kv_config *kv,
                             struct err *err) {
    if (!b->memory->available) return STATUS_OK;
    struct device_memory now;
    struct pool_on on = {b, memory, config, *kv, memory->swap > 0};
    struct pool_cost cost = {pool_bytes, &on};
    b->memory->available(b, &now);
    return memory_device_pool(memory, config, &now, &cost, err);
}
