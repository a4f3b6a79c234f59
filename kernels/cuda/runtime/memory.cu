#include "kernels/cuda/runtime/runtime.cuh"

struct device_memory device_memory_now() {
    size_t free_bytes = 0, total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) cudaGetLastError();
    return {total_bytes, free_bytes};
}

enum status device_alloc(void **out, size_t bytes, const struct alloc_hint *hint, struct err *err) {
    assert(out && hint && hint->what && hint->remedy);
    *out = nullptr;
    if (bytes == 0 || cuda_alloc_ok(cudaMalloc(out, bytes))) return STATUS_OK;
    *out = nullptr;
    if (cuda_failure(err)) return STATUS_SERVER_ERROR;
    const struct device_memory left = device_memory_now();
    return device_out_of_memory(err, hint->param, hint->what, bytes, &left, hint->remedy);
}

enum status device_calloc(void **out, size_t bytes, const struct alloc_hint *hint,
                          struct err *err) {
    const enum status status = device_alloc(out, bytes, hint, err);
    if (status || bytes == 0) return status;
    cuda_check(cudaMemset(*out, 0, bytes), "clearing memory");
    cuda_check(cudaStreamSynchronize(nullptr), "waiting for memory to be cleared");
    return STATUS_OK;
}

enum status pinned_alloc(void **out, size_t bytes, const struct alloc_hint *hint, struct err *err) {
    *out = nullptr;
    if (bytes == 0 || cuda_alloc_ok(cudaMallocHost(out, bytes))) return STATUS_OK;
    *out = nullptr;
    if (cuda_failure(err)) return STATUS_SERVER_ERROR;
    return err_set(err, STATUS_USAGE, hint->param,
                   "the host cannot pin %.1f MiB of memory for %s; %s", (double)bytes / (1 << 20),
                   hint->what, hint->remedy);
}

enum status cuda_handle_ok(cudaError_t error, const char *what, struct err *err) {
    if (error == cudaSuccess) return STATUS_OK;
    cudaGetLastError(); /* the error is handled here */
    return err_set(err, STATUS_USAGE, "device", "cannot create a CUDA %s (%s); use {device} cpu",
                   what, cudaGetErrorString(error));
}
