/* The CUDA backend's functions for a program that was built without the CUDA toolkit. */
#include <assert.h>

#include "kernels/gpu_group.h"
#include "kernels/kernels.h"

static enum status refuse(struct err *err) {
    return err_set(err, STATUS_USAGE, "device",
                   "{device} cuda: this program was built without CUDA, because the toolkit (nvcc) "
                   "was not found; use {device} cpu, or build it on a machine with the toolkit");
}

enum status backend_cuda_open(struct backend **out, const struct backend_config *config,
                              struct err *err) {
    (void)config;
    *out = NULL;
    return refuse(err);
}

enum status rank_group_cuda_new(struct rank_group **out, int ranks, struct err *err) {
    (void)ranks;
    *out = NULL;
    return refuse(err);
}

enum status backend_cuda_find(struct device_memory *memory, char *name, size_t size,
                              struct err *err) {
    (void)name, (void)size;
    *memory = (struct device_memory){0};
    return refuse(err);
}

int gpu_select(int place) {
    return place; /* backend_cuda_find refuses it */
}

enum status gpu_group_id(struct gpu_group_id *id, struct err *err) {
    *id = (struct gpu_group_id){{0}};
    return refuse(err);
}

enum status gpu_group_check(struct err *err) {
    return refuse(err);
}

enum status gpu_group_join(struct rank_group **out, const struct gpu_join *join, struct err *err) {
    (void)join;
    *out = NULL;
    return refuse(err);
}

/* Callers need a group or a backend, and this program cannot make them. */
void gpu_group_abort(struct rank_group *group) {
    assert(!group);
    (void)group;
}

bool gpu_is_idle(struct backend *b) {
    assert(!b);
    return !b;
}
