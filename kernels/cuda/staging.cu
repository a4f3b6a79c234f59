/* DESIGN: weights on their way to the device.
 *
 * A file's pages are mapped memory, which a device can only copy from by way of pinned memory. So
 * they are copied into one pinned half, on all of the host's threads, while the stream still copies
 * from the other and packs what came before: the host waits only for the copy from the half that it
 * is about to fill. On the device one place is enough, since all work on it is in the stream's
 * order. Memory is bounded whatever a matrix's size: half_bytes four times, 32 MiB.
 */
#include "kernels/cuda/staging.cuh"

#include <string.h>

#include "kernels/cuda/room.cuh"

constexpr size_t PART_BYTES = 8 << 20;

void staging_open(struct staging *staging, struct backend *host, cudaStream_t stream) {
    *staging = {};
    staging->host = host;
    staging->stream = stream;
    staging->part_bytes = PART_BYTES;
}

enum status staging_reserve(struct staging *staging, size_t half_bytes, struct err *err) {
    static const struct room loading = {"what weights pass through", "model",
                                        "give a smaller model, or free memory of the GPU"};
    if (half_bytes <= staging->half_bytes) return STATUS_OK;
    staging_release(staging);
    void *pinned, *device = nullptr;
    enum status status = room_pinned(&pinned, 2 * half_bytes, &loading, err);
    if (!status) status = room_device(&device, 2 * half_bytes, &loading, err);
    for (cudaEvent_t &sent : staging->sent)
        if (!status)
            status =
                room_made(cudaEventCreateWithFlags(&sent, cudaEventDisableTiming), "event", err);
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
constexpr size_t COPY_BYTES = 1 << 18; /* a thread at a time */

static void copy_some(void *arg, int i) {
    const struct copying *copying = (const struct copying *)arg;
    const size_t at = (size_t)i * COPY_BYTES, left = copying->bytes - at;
    memcpy(copying->to + at, copying->from + at, left < COPY_BYTES ? left : COPY_BYTES);
}

static void copy_on_host(struct backend *host, void *to, const void *from, size_t bytes) {
    struct copying copying = {(uint8_t *)to, (const uint8_t *)from, bytes};
    const int n = (int)((bytes + COPY_BYTES - 1) / COPY_BYTES);
    if (host)
        host->ops->parallel(host, copy_some, &copying, n);
    else
        memcpy(to, from, bytes);
}

const uint8_t *staging_send(struct staging *staging, const void *from, size_t bytes) {
    assert(bytes <= staging->half_bytes);
    const int half = staging->turn;
    uint8_t *pinned = staging->pinned + (size_t)half * staging->half_bytes;
    cuda_must(cudaEventSynchronize(staging->sent[half]), "waiting for weights to be sent");
    copy_on_host(staging->host, pinned, from, bytes);
    cuda_must(
        cudaMemcpyAsync(staging->device, pinned, bytes, cudaMemcpyHostToDevice, staging->stream),
        "sending weights");
    cuda_must(cudaEventRecord(staging->sent[half], staging->stream), "recording an event");
    staging->turn = 1 - half;
    return staging->device;
}

void staging_release(struct staging *staging) {
    if (!staging->half_bytes) return;
    cuda_must(cudaStreamSynchronize(staging->stream), "waiting for the stream");
    for (cudaEvent_t &sent : staging->sent) {
        if (sent) cuda_must(cudaEventDestroy(sent), "freeing an event");
        sent = nullptr;
    }
    cuda_must(cudaFreeHost(staging->pinned), "freeing pinned memory");
    cuda_must(cudaFree(staging->device), "freeing memory");
    staging->half_bytes = 0;
    staging->turn = 0;
}
