/* Which device there is. */
#include "kernels/cuda/find.cuh"

#include <stdio.h>

#include "kernels/cuda/room.cuh"

enum { LEAST_MAJOR = 8 }; /* compute capability 8.0, sm_80 */

enum status device_find(cudaDeviceProp *prop, int device, struct err *err) {
    int count = 0; /* stays as it is where there is no driver */
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > device) error = cudaGetDeviceProperties(prop, device);
    if (error == cudaSuccess && count > device) error = cudaSetDevice(device);
    if (error != cudaSuccess || count <= device) {
        cudaGetLastError(); /* it has been dealt with */
        return err_set(err, STATUS_USAGE, "device", "--device cuda: no usable GPU was found (%s)",
                       error == cudaSuccess ? "there is none" : cudaGetErrorString(error));
    }
    if (prop->major < LEAST_MAJOR)
        return err_set(err, STATUS_USAGE, "device",
                       "--device cuda: %s has compute capability %d.%d; 8.0 is the least",
                       prop->name, prop->major, prop->minor);
    return STATUS_OK;
}

enum status backend_cuda_find(struct device_memory *memory, char *name, size_t size,
                              struct err *err) {
    cudaDeviceProp prop;
    *memory = {};
    const enum status status = device_find(&prop, 0, err);
    if (status) return status;
    *memory = room_left();
    snprintf(name, size, "%s", prop.name);
    return STATUS_OK;
}
