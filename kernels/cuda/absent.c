/* The CUDA backend's functions for a program that was built without the CUDA toolkit. */
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
