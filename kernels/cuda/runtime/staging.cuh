/* Buffers that weights pass through on their way to the device. */
#ifndef PENSTOCK_CUDA_STAGING_CUH
#define PENSTOCK_CUDA_STAGING_CUH

#include "kernels/cuda/runtime/device.cuh"

/* Two halves of pinned host memory and a buffer on the device, allocated by staging_reserve. */
struct staging {
    cudaStream_t stream;
    struct backend *host; /* its threads copy; or NULL */
    size_t part_bytes;    /* bytes of a file's rows per part; wide rows may exceed it */
    size_t half_bytes;    /* of each half; or 0 */
    uint8_t *pinned;      /* [2][half_bytes] */
    uint8_t *device;      /* [2 * half_bytes]: the data sent, then the data made from it */
    cudaEvent_t sent[2];  /* recorded after the copy from each half */
    int turn;             /* the half to fill next */
};

void staging_open(struct staging *staging, struct backend *host, cudaStream_t stream);

/* Makes each half at least that large. Fails with STATUS_USAGE and frees both if memory is short.
 */
enum status staging_reserve(struct staging *staging, size_t half_bytes, struct err *err);

/* Sends up to half_bytes to the device. Returns their address, valid for work queued on the stream
 * before the next send. The caller may reuse its memory at once. */
const uint8_t *staging_send(struct staging *staging, const void *from, size_t bytes);

/* Frees the memory after the stream has finished with it. staging_reserve may follow. */
void staging_release(struct staging *staging);

#endif
