#include "kernels/cuda/room.cuh"

struct device_memory room_left() {
    size_t free_bytes = 0, total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) cudaGetLastError();
    return {total_bytes, free_bytes};
}

enum status room_device(void **out, size_t bytes, const struct room *room, struct err *err) {
    *out = nullptr;
    if (bytes == 0 || cuda_took(cudaMalloc(out, bytes))) return STATUS_OK;
    *out = nullptr;
    if (cuda_failure(err)) return STATUS_SERVER_ERROR;
    const struct device_memory left = room_left();
    return no_room(err, room->param, room->what, bytes, &left, room->way_out);
}

enum status room_zeros(void **out, size_t bytes, const struct room *room, struct err *err) {
    const enum status status = room_device(out, bytes, room, err);
    if (status || bytes == 0) return status;
    cuda_must(cudaMemset(*out, 0, bytes), "clearing memory");
    cuda_must(cudaStreamSynchronize(nullptr), "waiting for memory to be cleared");
    return STATUS_OK;
}

enum status room_pinned(void **out, size_t bytes, const struct room *room, struct err *err) {
    *out = nullptr;
    if (bytes == 0 || cuda_took(cudaMallocHost(out, bytes))) return STATUS_OK;
    *out = nullptr;
    if (cuda_failure(err)) return STATUS_SERVER_ERROR;
    return err_set(err, STATUS_USAGE, room->param,
                   "the host has no memory to pin for %s: %.1f MiB are needed; %s", room->what,
                   (double)bytes / (1 << 20), room->way_out);
}

enum status room_made(cudaError_t error, const char *what, struct err *err) {
    if (error == cudaSuccess) return STATUS_OK;
    cudaGetLastError(); /* it has been dealt with */
    return err_set(err, STATUS_USAGE, "device", "the GPU gives no %s (%s); use --device cpu", what,
                   cudaGetErrorString(error));
}
