#include "engine/device.h"

#include <stdio.h>
#include <string.h>

#include "engine/memory_plan.h"

enum status refuse_room(struct backend *b, const char *what, size_t bytes, const char *way_out,
                        struct err *err) {
    struct device_memory memory = {0};
    if (b->ops->memory) b->ops->memory(b, &memory);
    return no_room(err, NULL, what, bytes, &memory, way_out);
}

enum status buffer_take(struct backend *b, void **out, size_t bytes, const char *what,
                        const char *way_out, struct err *err) {
    *out = b->ops->buffer_new(b, bytes);
    return *out ? STATUS_OK : refuse_room(b, what, bytes, way_out, err);
}

enum status host_take(struct backend *b, void **out, size_t bytes, const char *what,
                      const char *way_out, struct err *err) {
    *out = b->ops->host_new(b, bytes);
    if (*out) return STATUS_OK;
    return err_set(err, STATUS_USAGE, NULL,
                   "the host has no memory to pin for %s: %.1f MiB are needed; %s", what,
                   (double)bytes / (1 << 20), way_out);
}

static bool is(const char *setting, const char *name) {
    return setting && strcmp(setting, name) == 0;
}

enum status device_choose(struct engine_config *config, struct device_memory *memory, char *why,
                          size_t size, struct err *err) {
    char gpu[128] = "";
    struct err cause = {0};
    bool any = is(config->device, "auto");
    *why = 0;
    *memory = (struct device_memory){0};
    if (!any && !is(config->device, "cuda")) return STATUS_OK;
    enum status status = backend_cuda_find(memory, gpu, sizeof gpu, &cause);
    if (!any) {
        if (status && err) *err = cause;
        return status;
    }
    config->device = status ? "cpu" : "cuda";
    snprintf(why, size, " (--device auto: %s)", status ? "there is no GPU that can be used" : gpu);
    return STATUS_OK;
}

/* ---- the pool ------------------------------------------------------------------------------- */

/* What a pool costs on the device. */
struct pool_on {
    struct backend *b;
    struct kv_config config;
    bool swaps;
};

static int64_t pool_bytes(void *arg, int n_blocks) {
    struct pool_on *on = arg;
    on->config.n_blocks = n_blocks;
    size_t bytes = on->b->ops->kv_bytes(on->b, &on->config);
    size_t beside = on->swaps ? on->b->ops->swap_bytes(on->b, &on->config) : 0;
    if (__builtin_add_overflow(bytes, beside, &bytes)) return INT64_MAX;
    return bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX;
}

enum status device_plan_pool(struct backend *b, struct engine_memory *memory,
                             const struct engine_config *config, const struct kv_config *kv,
                             struct err *err) {
    if (!b->ops->memory) return STATUS_OK;
    struct device_memory now;
    struct pool_on on = {b, *kv, memory->swap > 0};
    struct pool_cost cost = {pool_bytes, &on};
    b->ops->memory(b, &now);
    return memory_device_pool(memory, config, &now, &cost, err);
}
