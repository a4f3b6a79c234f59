/* The message for a device that lacks memory. */
#include "kernels/kernels.h"

enum status device_out_of_memory(struct err *err, const char *param, const char *what, size_t bytes,
                                 const struct device_memory *memory, const char *remedy) {
    return err_set(err, STATUS_USAGE, param,
                   "the GPU memory is too small for %s: %.1f MiB are needed, and of %.1f MiB only "
                   "%.1f are free; %s",
                   what, mib((int64_t)bytes), mib((int64_t)memory->total),
                   mib((int64_t)memory->free), remedy);
}
