/* What weights pass through on their way to the device. */
#ifndef PENSTOCK_CUDA_STAGING_CUH
#define PENSTOCK_CUDA_STAGING_CUH

#include "kernels/cuda/device.cuh"

/* Two halves of pinned host memory and a place on the device. Nothing is taken until the first
 * staging_reserve. */
struct staging {
    cudaStream_t stream;
    struct backend *host; /* whose threads copy, or NULL */
    size_t part_bytes;    /* of a file's rows at a time, but for wide ones */
    size_t half_bytes;    /* of each half; or 0 */
    uint8_t *pinned;      /* [2][half_bytes] */
    uint8_t *device;      /* [2 * half_bytes]: what was sent, then room for what is made of it */
    cudaEvent_t sent[2];  /* the copy from each half has ended */
    int turn;             /* the half that is filled next */
};

void staging_open(struct staging *staging, struct backend *host, cudaStream_t stream);

/* Has halves of at least so many bytes. Fails with STATUS_USAGE, and has none, where there is no
 * room. */
enum status staging_reserve(struct staging *staging, size_t half_bytes, struct err *err);

/* Sends up to half_bytes to the device. Returns where they lie, for what is queued on the stream
 * before the next send; the caller's memory is free again at once. */
const uint8_t *staging_send(struct staging *staging, const void *from, size_t bytes);

/* Gives the memory back, when the stream has done with it. It may be used again. */
void staging_release(struct staging *staging);

#endif
