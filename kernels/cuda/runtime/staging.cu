/* DESIGN: weights on their way to the device.
 *
 * A device can copy from mapped file pages only through pinned memory. So all host threads copy
 * pages into one pinned half, while the stream copies from the other half and packs the previous
 * part. The host waits only for the copy from the half that it is about to fill. One buffer on the
 * device is enough, because its users run in the stream's order. Memory is bounded for any matrix:
 * four times half_bytes, 32 MiB. */
#include "kernels/cuda/runtime/staging.cuh"

#include <string.h>

#include "kernels/cuda/runtime/runtime.cuh"

constexpr size_t PART_BYTES = 8 << 20;

void staging_open(struct staging *staging, struct backend *host, cudaStream_t stream) {
    *staging = {};
    staging->host = host;
    staging->stream = stream;
    staging->part_bytes = PART_BYTES;
}

enum status staging_reserve(struct staging *staging, size_t half_bytes, struct err *err) {
    static const struct alloc_hint loading = {"the buffers that load weights", "model",
                                              "give a smaller model, or free memory of the GPU"};
    if (half_bytes <= staging->half_bytes) return STATUS_OK;
    staging_release(staging);
    void *pinned, *device = nullptr;
    enum status status = pinned_alloc(&pinned, 2 * half_bytes, &loading, err);
    if (!status) status = device_alloc(&device, 2 * half_bytes, &loading, err);
    for (cudaEvent_t &sent : staging->sent)
        if (!status)
            status = cuda_handle_ok(cudaEventCreateWithFlags(&sent, cudaEventDisableTiming),
                                    "event", err);
    staging->pinned = (uint8_t *)pinned;
    staging->device = (uint8_t *)device;
    staging->half_bytes = half_bytes;
    if (status) staging_release(staging);
    return status;
}

/* ---- copying on the host -------------------------------------------------------------------- */

struct copying {
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
};
constexpr size_t COPY_BYTES = 1 << 18; /* per thread at a time */

static void copy_some(void *arg, int i) {
    const struct copying *copying = (const struct copying *)arg;
    const size_t at = (size_t)i * COPY_BYTES, left = copying->bytes - at;
    memcpy(copying->to + at, copying->from + at, left < COPY_BYTES ? left : COPY_BYTES);
}

const uint8_t *staging_send(struct staging *staging, const void *from, size_t bytes) {
    assert(bytes <= staging->half_bytes);
    const int half = staging->turn;
    uint8_t *pinned = staging->pinned + (size_t)half * staging->half_bytes;
    cuda_check(cudaEventSynchronize(staging->sent[half]), "waiting for weights to be sent");
    struct copying copying = {pinned, (const uint8_t *)from, bytes};
    const int parts = (int)((bytes + COPY_BYTES - 1) / COPY_BYTES);
    if (staging->host)
        staging->host->device->parallel(staging->host, copy_some, &copying, parts);
    else
        memcpy(pinned, from, bytes);
    cuda_check(
        cudaMemcpyAsync(staging->device, pinned, bytes, cudaMemcpyHostToDevice, staging->stream),
        "sending weights");
    cuda_check(cudaEventRecord(staging->sent[half], staging->stream), "recording an event");
    staging->turn = 1 - half;
    return staging->device;
}

void staging_release(struct staging *staging) {
    if (!staging->half_bytes) return;
    cuda_check(cudaStreamSynchronize(staging->stream), "waiting for the stream");
    for (cudaEvent_t &sent : staging->sent) {
        if (sent) cuda_check(cudaEventDestroy(sent), "freeing an event");
        sent = nullptr;
    }
    cuda_check(cudaFreeHost(staging->pinned), "freeing pinned memory");
    cuda_check(cudaFree(staging->device), "freeing memory");
    staging->half_bytes = 0;
    staging->turn = 0;
}
