/* Device selection. */
#include "kernels/cuda/runtime/runtime.cuh"

#include <stdio.h>

extern "C" {
#include "kernels/gpu_group.h"
}

enum { MIN_MAJOR = 8 }; /* compute capability 8.0, sm_80 */

enum status device_select(cudaDeviceProp *prop, int device, struct err *err) {
    int count = 0; /* not written without a driver */
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > device) error = cudaGetDeviceProperties(prop, device);
    if (error == cudaSuccess && count > device) error = cudaSetDevice(device);
    if (error != cudaSuccess || count <= device) {
        cudaGetLastError(); /* the error is handled here */
        return err_set(err, STATUS_USAGE, "device", "{device} cuda: no usable GPU was found (%s)",
                       error != cudaSuccess ? cudaGetErrorString(error)
                       : count == 0         ? "there is none"
                                            : "this machine has fewer than ranks");
    }
    if (prop->major < MIN_MAJOR)
        return err_set(err, STATUS_USAGE, "device",
                       "{device} cuda: %s has compute capability %d.%d, and at least 8.0 is needed",
                       prop->name, prop->major, prop->minor);
    if (!device_has_code())
        return err_set(err, STATUS_USAGE, "device",
                       "{device} cuda: this program was built for other GPUs than %s (compute "
                       "capability %d.%d); build it on this machine (make run), or for all (make "
                       "build)",
                       prop->name, prop->major, prop->minor);
    return STATUS_OK;
}

size_t device_block_bytes() {
    int device = 0, bytes = 0;
    bool asked = cuda_ok(cudaGetDevice(&device), "asking for the device");
    asked = asked &&
            cuda_ok(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                    "asking for a block's shared memory");
    assert(bytes >= 0);
    return asked ? (size_t)bytes : 0;
}

/* The GPU that gpu_select selected on this thread. Without a selection, CUDA's own is 0. */
static thread_local int selected;

int gpu_select(int place) {
    int count = 0; /* not written without a driver */
    assert(place >= 0);
    if (cudaGetDeviceCount(&count) != cudaSuccess)
        cudaGetLastError();            /* device_select reports it */
    selected = count == 1 ? 0 : place; /* a launcher may show each process only its own GPU */
    return selected;
}

enum status backend_cuda_find(struct device_memory *memory, char *name, size_t size,
                              struct err *err) {
    cudaDeviceProp prop;
    *memory = {};
    const enum status status = device_select(&prop, selected, err);
    if (status) return status;
    *memory = device_memory_now();
    snprintf(name, size, "%s", prop.name);
    return STATUS_OK;
}
