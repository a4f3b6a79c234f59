/* What is said where a device lacks memory. */
#include "kernels/kernels.h"

static double mib(size_t bytes) {
    return (double)bytes / (1 << 20);
}

enum status no_room(struct err *err, const char *param, const char *what, size_t bytes,
                    const struct device_memory *memory, const char *way_out) {
    return err_set(err, STATUS_USAGE, param,
                   "the GPU has no room for %s: %.1f MiB are needed, and of its %.1f MiB there are "
                   "%.1f free; %s",
                   what, mib(bytes), mib(memory->total), mib(memory->free), way_out);
}
