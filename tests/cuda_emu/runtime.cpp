/* The CUDA runtime's calls for devices and memory. Host threads take turns. */
#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <memory>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#include "include/emu_memory.h"
#include "internal.h"

using namespace emu;

/* ---- errors --------------------------------------------------------------------------------- */

const char *cudaGetErrorName(cudaError_t error) {
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
        return "cudaErrorInvalidConfiguration";
    case cudaErrorLaunchFailure:
        return "cudaErrorLaunchFailure";
    case cudaErrorCooperativeLaunchTooLarge:
        return "cudaErrorCooperativeLaunchTooLarge";
    case cudaErrorStreamCaptureUnsupported:
        return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
        return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorUnknown:
        return "cudaErrorUnknown";
    default:
        return "a CUDA error";
    }
}

const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorLaunchFailure ? "unspecified launch failure" : cudaGetErrorName(error);
}

/* ---- the device ----------------------------------------------------------------------------- */

/* CUDA_EMU_MEMORY sets the device's KiB for programs that cannot call emu_memory_set. */
static size_t device_bytes = [] {
    const char *text = getenv("CUDA_EMU_MEMORY");
    return text && atoi(text) > 0 ? (size_t)atoi(text) << 10 : (size_t)16 << 30;
}();
enum { MULTIPROCESSORS = 4, L2_BYTES = 4 << 20, BLOCKS_AT_ONCE = 2 };
enum { MAX_THREADS_AT_ONCE = 2048, SHARED_AT_ONCE = 228 << 10, SHARED_RESERVED = 1 << 10 };

static bool present = true;

void emu_present(bool there) {
    present = there;
}

/* All devices are one device with several numbers. */
static int n_devices() {
    const char *text = getenv("CUDA_EMU_DEVICES");
    return !present ? 0 : text ? atoi(text) : 1;
}
static thread_local int chosen_device;

cudaError_t cudaGetDeviceCount(int *count) {
    *count = n_devices();
    return present ? cudaSuccess : set_error(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device) {
    *device = chosen_device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= n_devices()) return set_error(cudaErrorInvalidDevice);
    chosen_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device) {
    if (device < 0 || device >= n_devices()) return set_error(cudaErrorInvalidDevice);
    *prop = {};
    snprintf(prop->name, sizeof prop->name, "emulated");
    prop->totalGlobalMem = device_bytes;
    prop->major = architecture() / 10;
    prop->minor = architecture() % 10;
    prop->multiProcessorCount = MULTIPROCESSORS;
    prop->sharedMemPerBlockOptin = shared_most();
    prop->l2CacheSize = L2_BYTES;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = MAX_THREADS;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = MULTIPROCESSORS;
        break;
    case cudaDevAttrL2CacheSize:
        *value = L2_BYTES;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = architecture() / 10;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = architecture() % 10;
        break;
    case cudaDevAttrCooperativeLaunch: {
        const char *said = getenv("CUDA_EMU_COOPERATIVE");
        *value = !said || strcmp(said, "0") != 0;
        break;
    }
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = shared_most();
        break;
    default:
        return set_error(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    *total_bytes = device_bytes;
    *free_bytes = device_bytes - device_bytes_used();
    return cudaSuccess;
}

namespace emu {

/* The register limit of a multiprocessor is not emulated. */
unsigned blocks_per_multiprocessor(unsigned threads, size_t dynamic_bytes) {
    const size_t shared = SHARED_AT_ONCE / (dynamic_bytes + SHARED_RESERVED);
    return (unsigned)std::min(
        {(size_t)BLOCKS_AT_ONCE, (size_t)MAX_THREADS_AT_ONCE / threads, shared});
}

unsigned blocks_at_once(unsigned threads, size_t dynamic_bytes) {
    return MULTIPROCESSORS * blocks_per_multiprocessor(threads, dynamic_bytes);
}

} // namespace emu

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int threads,
                                                          size_t smem) {
    *blocks = (int)blocks_per_multiprocessor((unsigned)threads, smem);
    return cudaSuccess;
}

/* ---- memory --------------------------------------------------------------------------------- */

static std::map<void *, size_t> pinned; /* size in bytes of each piece of pinned memory */
static int n_allocations, fails_at;     /* since the last emu_fail_at; 0: no failure is set */

void emu_memory_set(size_t bytes) {
    device_bytes = bytes;
}

size_t emu_memory_used() {
    size_t bytes = device_bytes_used();
    for (const auto &piece : pinned) bytes += piece.second;
    return bytes;
}

void emu_fail_at(int n) {
    n_allocations = 0;
    fails_at = n;
}

int emu_allocations() {
    return n_allocations;
}

cudaError_t cudaMalloc(void **memory, size_t bytes) {
    turn mine;
    if (refuse_in_capture("cudaMalloc")) return cudaErrorStreamCaptureUnsupported;
    if (cudaError_t error = call_fails(EMU_ALLOCATE)) return error;
    if (++n_allocations == fails_at) return set_error(cudaErrorMemoryAllocation);
    if (bytes > device_bytes - device_bytes_used()) return set_error(cudaErrorMemoryAllocation);
    return set_error(device_malloc(memory, bytes));
}

cudaError_t cudaFree(void *memory) {
    if (!memory) return cudaSuccess;
    if (refuse_in_capture("cudaFree")) return cudaErrorStreamCaptureUnsupported;
    wait_for_all_streams();
    return set_error(device_free(memory));
}

cudaError_t cudaMallocHost(void **memory, size_t bytes) {
    turn mine;
    if (refuse_in_capture("cudaMallocHost")) return cudaErrorStreamCaptureUnsupported;
    if (cudaError_t error = call_fails(EMU_ALLOCATE)) return error;
    if (++n_allocations == fails_at) return set_error(cudaErrorMemoryAllocation);
    *memory = malloc(bytes ? bytes : 1);
    if (!*memory) return set_error(cudaErrorMemoryAllocation);
    pinned[*memory] = bytes;
    checker_pinned(*memory, bytes);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned) {
    return cudaMallocHost(memory, bytes);
}

cudaError_t cudaFreeHost(void *memory) {
    turn mine;
    if (memory && refuse_in_capture("cudaFreeHost")) return cudaErrorStreamCaptureUnsupported;
    wait_for_all_streams();
    if (memory && pinned.erase(memory) == 0) {
        report("cudaFreeHost", "memory that cudaMallocHost did not return, or that was freed");
        return set_error(cudaErrorInvalidValue);
    }
    if (memory) checker_unpinned(memory);
    free(memory);
    return cudaSuccess;
}

range emu::pinned_at(const void *p) {
    turn mine;
    auto after = pinned.upper_bound(const_cast<void *>(p));
    if (after == pinned.begin()) return {};
    const auto &[start, bytes] = *std::prev(after);
    const range piece{static_cast<char *>(start), static_cast<char *>(start) + bytes};
    return piece.has(p) ? piece : range{};
}

static bool pinned_has_all(const void *p, size_t bytes) {
    const range piece = pinned_at(p);
    if (!piece.start || piece.has_all(p, bytes)) return true;
    report("cudaMemcpy", "%zu bytes at offset %td of %td pinned ones", bytes,
           static_cast<const char *>(p) - piece.start, piece.end - piece.start);
    return false;
}

/* Threads of several ranks may copy at the same time. */
static std::atomic<unsigned long> bytes_to_device{0};

unsigned long cuda_emu_bytes_to_device() {
    return bytes_to_device;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    if (cudaError_t error = call_fails(EMU_COPY)) return error;
    if (!pinned_has_all(to, bytes) || !pinned_has_all(from, bytes))
        return set_error(cudaErrorInvalidValue);
    count_queued(stream, EMU_COPY);
    if (kind == cudaMemcpyHostToDevice) bytes_to_device += bytes;
    return enqueue(stream, [=] { device_copy(to, from, bytes); });
}

/* A copy to the host waits until all work is done. A copy to the device may return when ordinary
 * memory has been read and before the device has the bytes. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
    turn mine;
    if (refuse_in_capture("cudaMemcpy")) return cudaErrorStreamCaptureUnsupported;
    if (is_device_memory(to) && !is_device_memory(from) && !pinned_at(from).start) {
        const char *read = static_cast<const char *>(from);
        const auto taken = std::make_shared<std::vector<char>>(read, read + bytes);
        return enqueue(nullptr, [=] { device_copy(to, taken->data(), bytes); });
    }
    enqueue(nullptr, [=] { device_copy(to, from, bytes); });
    return is_device_memory(to) && is_device_memory(from) ? cudaSuccess
                                                          : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    if (cudaError_t error = call_fails(EMU_COPY)) return error;
    count_queued(stream, EMU_COPY);
    return enqueue(stream, [=] { device_fill(to, value, bytes); });
}

/* Does not wait. */
cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    if (refuse_in_capture("cudaMemset")) return cudaErrorStreamCaptureUnsupported;
    return enqueue(nullptr, [=] { device_fill(to, value, bytes); });
}
